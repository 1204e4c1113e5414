"""The texts of a service: what systemd and launchd read there is what was meant, and whose file it is can be told."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.setup.service import ServiceCommand, is_ours, launchd_agent, systemd_unit, unit_name

ANALYZE = shutil.which("systemd-analyze")
SECONDS = 30.0
printable = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cf", "Cn", "Co", "Zs"]), max_size=30)


def daemon(home: str = "/home/ann/.harken", path: str = "/usr/bin:/bin", *, is_usual: bool = True) -> ServiceCommand:
    """Return a daemon that is to be a service."""
    command = ("/opt/harken/bin/python", "-I", "-m", "harken", "serve", "--home", home)
    return ServiceCommand(command=command, environ={"PATH": path}, home=home, is_usual=is_usual)


def test_the_unit_says_what_is_started_and_when_it_is_started_again() -> None:
    """People read it before they say yes, and systemd for years after."""
    first, *rest = systemd_unit(daemon()).splitlines()
    assert first.startswith("# Written by `harken service install`;")
    assert rest == [
        "[Unit]",
        "Description=Harken, an inbox for coding agents (/home/ann/.harken)",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        'ExecStart="/opt/harken/bin/python" "-I" "-m" "harken" "serve" "--home" "/home/ann/.harken"',
        'Environment="PATH=/usr/bin:/bin"',
        "Restart=on-failure",
        "RestartSec=5",
        "RestartPreventExitStatus=2 4",
        "KillMode=mixed",
        "TimeoutStopSec=20",
        "OOMPolicy=continue",
        "LimitCORE=0:infinity",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]


def test_the_unit_takes_no_right_from_what_runs_start() -> None:
    """A run is an agent at work: what holds for the daemon holds for its tools, sudo and containers among them."""
    text = systemd_unit(daemon())
    for option in ("NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID", "UMask"):
        assert option not in text


@given(home=printable, path=printable)
def test_any_path_survives_the_quoting_of_a_unit(home: str, path: str) -> None:
    """A folder may have quotes, percent signs and dollars in its name; none of them may mean something."""
    meant = daemon("/" + home, path)
    lines = systemd_unit(meant).splitlines()
    [command] = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]
    assert words == list(meant.command)
    [environ] = [line.partition("=")[2] for line in lines if line.startswith("Environment=")]
    assert shlex.split(environ)[0].replace("%%", "%") == f"PATH={path}"


@pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")
def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """It is the one who reads it."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    file = tmp_path / "harken-check.service"
    command = ("/bin/sh", "-c", ":", '/ho me/%h "q" $X \\b')
    file.write_text(
        systemd_unit(ServiceCommand(command=command, environ={"PATH": "/bin"}, home="/a b%", is_usual=False))
    )
    done = subprocess.run(
        [str(ANALYZE), "--user", "verify", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")


@given(home=printable)
def test_an_agent_of_launchd_says_the_same(home: str) -> None:
    """On macOS it is a property list."""
    meant = daemon("/" + home)
    found = plistlib.loads(launchd_agent(meant, "harken", "/home/ann/.harken/logs/service.log").encode())
    assert found == {
        "Label": "harken",
        "ProgramArguments": list(meant.command),
        "EnvironmentVariables": {"PATH": "/usr/bin:/bin"},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 20,
        "StandardErrorPath": "/home/ann/.harken/logs/service.log",
        "SoftResourceLimits": {"Core": 0},
    }


@given(home=printable, place=st.integers(0, 10_000), extra=st.sampled_from(["x", "\n", "#", " "]))
def test_a_text_is_known_as_ours_until_anybody_changes_it(home: str, place: int, extra: str) -> None:
    """What a person has put into a unit is not to be taken away with it."""
    for text in (systemd_unit(daemon("/" + home)), launchd_agent(daemon("/" + home), "harken", "/log")):
        assert is_ours(text)
        at = place % (len(text) + 1)
        changed = text[:at] + extra + text[at:]
        assert not is_ours(changed)
    assert not is_ours("[Unit]\nDescription=mine\n")


def test_each_home_has_a_service_of_its_own() -> None:
    """Two homes of a person run side by side."""
    names = [unit_name(daemon(home, is_usual=False)) for home in ("/a", "/b")]
    assert unit_name(daemon()) == "harken"
    assert len({"harken", *names}) == 3
