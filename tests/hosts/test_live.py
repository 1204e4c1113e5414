"""The live checks of `harken doctor --live` and `harken probe`, on the real hosts, as a person runs them.

The hosts run with the settings of a private home, which name a model of the test's own: it must never be asked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from harken.testing import running_daemon
from harken.testing.agent import Json
from tests.hosts.stage import Stage
from tests.hosts.story import ledger, marker, send

LIVE_SECONDS: Final = 500.0
END_SECONDS: Final = 20.0

# What each host does with a marker. Those that do not trust a new folder ask, and nobody answers for the person.
TURN: Final = {
    "hook: prompt": "arrived",
    "hook: tool": "arrived",
    "hook: stop": "arrived",
    "tool": "arrived",
    "reopened": "arrived",
    "long tool": "arrived",
    "restart": "not tried",
}
# Through what these have to come.
CASES: Final = {"reopened": "hook: prompt", "long tool": "hook: tool", "restart": "hook: tool"}
EXPECTED: Final = {
    "claude-code": TURN | {"wake": "arrived"},
    "copilot-cli": TURN | {"wake": "not tried"},
    "codex": TURN | {"wake": "arrived"},
    "gemini-cli": TURN | {"wake": "not offered"},
    "opencode": TURN | {"hook: stop": "not offered", "wake": "arrived"},
    "qwen-code": TURN | {"wake": "arrived"},
}
SETTINGS: Final = (
    ".claude/settings.json",
    ".codex/config.toml",
    ".codex/hooks.json",
    ".config/opencode/opencode.json",
    ".copilot/settings.json",
    ".gemini/settings.json",
    ".gemini/trustedFolders.json",
    ".qwen/settings.json",
)
# All of these are refused or ignored by every host today; one that turns up some day is good news, and found here.
NOTIFICATIONS: Final = (
    "notifications/message (info)",
    "notifications/message (error)",
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/claude/channel",
    "an unknown method",
)


def settings(stage: Stage) -> dict[str, bytes]:
    """Return the settings of the person."""
    return {name: (stage.user / name).read_bytes() for name in SETTINGS if (stage.user / name).exists()}


def start_once(stage: Stage) -> None:
    """Let the host do what it does at its very first start, whoever starts it: several complete their settings."""
    # opencode fetches a package for plugins at every start until it has it, and there is no network here.
    (stage.user / ".npmrc").write_text("offline=true\n")
    stage.ask("hello")
    if stage.host.name == "codex":
        # The same for a terminal: Codex notes that it looked for a screen reader.
        with (stage.user / ".codex" / "config.toml").open("a") as config:
            config.write("[tui]\nscreen_reader_detection_done = true\n")


def live(stage: Stage, code: int, *options: str) -> Json:
    """Return what a live check says about the host."""
    done = stage.try_harken("doctor", "--live", stage.host.name, "--json", *options, seconds=LIVE_SECONDS)
    assert done.returncode == code, f"{done.stdout}{done.stderr}"
    (host,) = json.loads(done.stdout)["hosts"]
    return host


def live_with(stage: Stage, path: str) -> subprocess.CompletedProcess[str]:
    """Run a live check of Claude Code with another `PATH`, however it ends."""
    home = ("--home", str(stage.harken_home))
    return subprocess.run(
        [sys.executable, "-I", "-m", "harken", *home, "doctor", "--live", "claude", "--json"],
        capture_output=True,
        check=False,
        env={**stage.environment, "PATH": path},
        text=True,
        timeout=LIVE_SECONDS,
    )


def assert_left_alone(stage: Stage, asked: int = 0) -> None:
    """Assert that nothing of a trial is left, and that the person's own model was not asked once more."""
    assert not (stage.harken_home / "trial").exists()
    assert len(stage.model.requests) == asked
    left = [process for process in psutil.process_iter() if str(stage.harken_home / "trial") in cwd_of(process)]
    assert left == []


def cwd_of(process: psutil.Process) -> str:
    """Return where a process works; nothing when it is gone."""
    try:
        return process.cwd()
    except psutil.Error:
        return ""


def given(stage: Stage, message: str) -> list[object]:
    """Return the lines of the ledger that tell of an agent that was given a message."""
    lines = ledger(stage, message)["ledger"]
    return [line for line in lines if line["state"] != "queued" and line["consumer"] != "watch"]


def test_every_surface_of_a_connected_host_is_proven(stage: Stage) -> None:
    """The verb exists for it; it takes no message of the person's and changes none of their settings."""
    start_once(stage)
    stage.harken("connect", stage.host.name, "--yes")
    before, asked, waiting = settings(stage), len(stage.model.requests), send(stage, marker())
    host = live(stage, 0)
    assert {row["surface"]: row["verdict"] for row in host["surfaces"]} == EXPECTED[stage.host.name]
    arrived = [row for row in host["surfaces"] if row["message"] and row["verdict"] == "arrived"]
    for row in arrived:
        surface = CASES.get(row["surface"], row["surface"])
        assert row["ledger"].startswith(f"seen through {surface}"), row
        lines = ledger(stage, row["message"])["ledger"]
        assert {line["state"] for line in lines if line["consumer"] in {"watch", stage.host.name}} == {"seen"}
    assert len(arrived) >= 2
    assert given(stage, waiting) == []
    assert settings(stage) == before
    copilot = stage.user / ".copilot" / "config.json"
    assert not copilot.exists() or str(stage.harken_home) not in copilot.read_text()
    assert_left_alone(stage, asked)


def test_harken_that_is_restarted_while_the_host_works_is_found_again(bare_stage: Stage) -> None:
    """Done only when it is asked for; the person's Harken runs afterwards, and nothing of theirs was taken."""
    with person_with(bare_stage):
        before = daemon_of(bare_stage)
        waiting = send(bare_stage, marker())
        host = live(bare_stage, 0, "--restart")
        (row,) = (each for each in host["surfaces"] if each["surface"] == "restart")
        assert (row["verdict"], row["ledger"].startswith("seen through hook: tool")) == ("arrived", True), row
        assert daemon_of(bare_stage) != before
        assert given(bare_stage, waiting) == []


@contextmanager
def person_with(stage: Stage) -> Iterator[None]:
    """A Harken that people start, which another may take the place of; the host is connected to it."""
    start_once(stage)
    stage.harken("up")
    try:
        stage.harken("connect", stage.host.name, "--yes")
        yield
    finally:
        stage.harken("down")


def daemon_of(stage: Stage) -> int:
    """Return the process of the daemon."""
    return int(json.loads(stage.harken("status", "--json"))["daemon"]["pid"])


@pytest.mark.parametrize("host", ["claude-code", "codex"], indirect=True)
def test_host_that_is_not_connected_is_told_how(stage: Stage) -> None:
    """Whoever forgot the first step is told the first step, and not what follows from it."""
    host = live(stage, 1)
    assert host["is_connected"] is False
    hints = {row["hint"] for row in host["surfaces"] if row["verdict"] == "missing"}
    assert hints == {f"Run: harken connect {stage.host.name}"}
    assert_left_alone(stage)


@pytest.mark.parametrize("host", ["codex"], indirect=True)
def test_hooks_that_are_not_trusted_are_named_as_the_reason(stage: Stage) -> None:
    """Codex skips such hooks without a word; the tools still work."""
    stage.harken("connect", "codex", "--yes")
    config = stage.user / ".codex" / "config.toml"
    kept, _, _ = config.read_text().partition("[hooks.state")
    config.write_text(kept)
    host = live(stage, 1)
    verdicts = {row["surface"]: row["verdict"] for row in host["surfaces"]}
    assert (verdicts["tool"], verdicts["hook: prompt"], verdicts["hook: tool"]) == ("arrived", "missing", "missing")
    assert "trust" in next(row["hint"] for row in host["surfaces"] if row["surface"] == "hook: tool")
    assert "hooks.state" not in config.read_text()


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
def test_host_that_cannot_be_started_is_reported_with_its_words(stage: Stage) -> None:
    """A broken installation is not a broken connection."""
    stage.harken("connect", "claude-code", "--yes")
    (stage.user / ".claude" / "settings.json").write_text("{")
    stub = stage.folder / "bin" / "claude"
    stub.parent.mkdir()
    stub.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "2.1.325 (Claude Code)" || { echo "no licence" >&2; exit 3; }\n'
    )
    stub.chmod(0o755)
    done = live_with(stage, f"{stub.parent}{os.pathsep}{stage.environment['PATH']}")
    assert done.returncode == 1, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert "no licence" in host["error"]["hint"]
    assert_left_alone(stage)


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
def test_host_that_is_not_there_cannot_be_checked(stage: Stage) -> None:
    """Asked about a host by name, a check that could not be made is not a check that was passed."""
    unnamed = stage.try_harken("doctor", "--live")
    assert (unnamed.returncode, "Which host?" in unnamed.stderr) == (2, True)
    done = live_with(stage, "/usr/bin:/bin")
    assert done.returncode == 1
    (host,) = json.loads(done.stdout)["hosts"]
    assert (host["found"], host["error"]["message"]) == (None, "Claude Code is not installed.")
    assert_left_alone(stage)


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
def test_home_behind_a_link_costs_nobody_a_message(bare_stage: Stage) -> None:
    """A program names its folder without links: unless that is known for a trial's, it would read the person's mail."""
    real = bare_stage.folder / "real"
    real.mkdir(mode=0o700)
    bare_stage.harken_home.symlink_to(real)
    with running_daemon(bare_stage.harken_home):
        bare_stage.harken("connect", "claude-code", "--yes")
        waiting = send(bare_stage, marker())
        bare_stage.try_harken("doctor", "--live", "claude-code", seconds=LIVE_SECONDS)
        assert given(bare_stage, waiting) == []
    assert_left_alone(bare_stage)


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
def test_interrupted_check_leaves_nothing_behind(stage: Stage) -> None:
    """Ctrl-C in the middle ends the host, and the folder is gone."""
    stage.harken("connect", "claude-code", "--yes")
    trials = stage.harken_home / "trial"
    with subprocess.Popen(
        [sys.executable, "-I", "-m", "harken", "--home", str(stage.harken_home), "doctor", "--live", "claude"],
        cwd=stage.project,
        env=stage.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as verb:
        hosts = wait_for_host(verb, trials)
        verb.send_signal(signal.SIGINT)
        assert verb.wait(END_SECONDS) == 130
    assert psutil.wait_procs(hosts, END_SECONDS)[1] == []
    assert_left_alone(stage)


def wait_for_host(verb: subprocess.Popen[bytes], trials: Path) -> list[psutil.Process]:
    """Return the processes in the folder of a trial, once there are some."""
    while verb.poll() is None:
        found = [process for process in psutil.process_iter() if str(trials) in cwd_of(process)]
        if found:
            return found
    raise AssertionError("the check ended before a host was started")


def traces(stage: Stage, *options: str) -> dict[str, Json]:
    """Return what the tracer found, by what was sent."""
    out = stage.harken("probe", stage.host.name, "--json", *options, seconds=LIVE_SECONDS)
    return {row["what"]: row for row in json.loads(out)["traces"]}


def assert_traced(found: dict[str, Json]) -> None:
    """Assert that nothing but wake, hooks and tool reached the model."""
    assert {what: found[what]["model"] for what in NOTIFICATIONS} == dict.fromkeys(NOTIFICATIONS, False)
    own = ("wake", "hook: prompt", "hook: tool", "hook: stop", "tool")
    assert {what: found[what]["model"] for what in own} == dict.fromkeys(own, True)


@pytest.mark.parametrize("host", ["claude-code"], indirect=True)
def test_probe_in_a_trusted_folder_traces_everything(stage: Stage) -> None:
    """What a host does with each notification is known by trying, and may change with any version."""
    stage.harken("connect", "claude-code", "--yes")
    refused = stage.try_harken("probe", "claude-code", seconds=LIVE_SECONDS)
    assert "did not wait for a prompt" in refused.stderr
    unasked = stage.try_harken("probe", "claude-code", "--dir", str(stage.project), seconds=LIVE_SECONDS)
    assert "needs your yes" in unasked.stderr
    found = traces(stage, "--dir", str(stage.project), "--yes")
    assert_traced(found)
    assert found["hook: stop"]["screen"] is True
    assert [path.name for path in stage.project.iterdir()] == [".git"]
    assert_left_alone(stage)


@pytest.mark.parametrize("host", ["qwen-code"], indirect=True)
def test_probe_in_a_folder_of_its_own_traces_everything(stage: Stage) -> None:
    """A host that trusts any folder is probed without touching one of the person's, or their messages."""
    stage.harken("connect", "qwen-code", "--yes")
    waiting = send(stage, marker())
    assert_traced(traces(stage))
    assert given(stage, waiting) == []
    assert_left_alone(stage)


@pytest.mark.parametrize("host", ["codex"], indirect=True)
def test_question_of_a_host_is_never_answered(stage: Stage) -> None:
    """Codex asks about hooks a moment after it seems ready; a key that is meant as a prompt would trust them."""
    stage.harken("connect", "codex", "--yes")
    config = stage.user / ".codex" / "config.toml"
    kept, _, _ = config.read_text().partition("[hooks.state")
    config.write_text(kept)
    refused = stage.try_harken("probe", "codex", seconds=LIVE_SECONDS)
    assert "Trust all and continue" in refused.stderr
    assert "hooks.state" not in config.read_text()
    assert_left_alone(stage)


@pytest.mark.parametrize("host", ["gemini-cli"], indirect=True)
def test_probe_never_asks_the_persons_own_model(stage: Stage) -> None:
    """Gemini's model can be replaced only by a settings file in the folder, so a folder of the person's is refused."""
    refused = stage.try_harken("probe", "gemini", "--dir", str(stage.project), "--yes", seconds=LIVE_SECONDS)
    assert refused.returncode == 2
    assert "folder of the trial's own" in refused.stderr
    assert_left_alone(stage)
