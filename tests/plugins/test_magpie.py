"""A host of another package, found by its entry point alone: connected, told, woken, run and looked at like ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.rig import SECONDS, Rig, serving
from tests.loss.rig import until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MINE = b'{  "theme"  :  "dark" }'
SUITE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A person's machine with Magpie, its package for Harken, and a daemon."""

    rig: Rig
    program: Path
    user: Path
    log: Path  # what Magpie's model gets

    @property
    def settings(self) -> Path:
        """Magpie's settings."""
        return self.user / ".magpie" / "settings.json"

    def told(self) -> list[str]:
        """Return what Magpie's model has got so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed, as pip does it."""
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
    shutil.copytree(HERE / "magpie", folder / "source")  # building leaves traces beside the sources
    words = [*pip, "--no-build-isolation", "--no-index", "--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(words, check=True, timeout=SUITE_SECONDS)
    return folder / "site"


@pytest.fixture(scope="module")
def machine(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A daemon, and a person whose Magpie has settings of its own."""
    folder = tmp_path_factory.mktemp("m")
    user, log = folder / "user", folder / "log"
    (user / ".magpie").mkdir(parents=True)
    (user / ".magpie" / "settings.json").write_bytes(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(packages))
        patch.setenv("PATH", f"{packages / 'bin'}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("HOME", str(user))
        patch.setenv("MAGPIE_LOG", str(log))
        with serving(folder / "home") as rig:
            yield Machine(rig, packages / "bin" / "magpie", user, log)


def test_it_is_connected_told_woken_and_disconnected(machine: Machine) -> None:
    """The whole life of a connection, with hooks that the host itself runs; afterwards nothing of it is left."""
    rig = machine.rig
    rig.ok("connect", "mag", "--yes")
    assert "Nothing to change" in rig.ok("connect", "magpie", "--yes")
    rig.ok("send", "early bird")
    with subprocess.Popen(
        [str(machine.program), "--prompt", "begin"], env=rig.environment, cwd=machine.user
    ) as session:
        until(lambda: len(machine.told()) == 2, "the first prompt has brought what waited", SECONDS)
        prompt, context = machine.told()
        assert (prompt, "early bird" in context) == ("begin", True)
        rig.until(
            lambda found: [(each["host"], each["presence"]) for each in found["sessions"]] == [("magpie", "idle")]
        )
        woken = rig.json("send", "wake up")["id"]
        until(lambda: len(machine.told()) == 3, "an idle session was woken", SECONDS)
        assert "wake up" in machine.told()[2]
        until(lambda: _seen_by(rig, woken) == "wake: pipe", "what woke it was proven", SECONDS)
        session.kill()
    assert b"--variables" in machine.settings.read_bytes()
    rig.ok("disconnect", "magpie", "--yes")
    assert machine.settings.read_bytes() == MINE
    assert [path.name for path in machine.settings.parent.iterdir()] == ["settings.json"]


def _seen_by(rig: Rig, message: str) -> str:
    lines = rig.json("read", message)["ledger"]
    return next((line["surface"] for line in lines if (line["consumer"], line["state"]) == ("magpie", "seen")), "")


def test_doctor_looks_at_it(machine: Machine) -> None:
    """A host that nobody can look at stays broken."""
    machine.rig.ok("connect", "magpie", "--yes")
    found = machine.rig.json("doctor", "magpie")
    (host,) = found["hosts"]
    assert (host["host"], host["found"]["version"]) == ("magpie", "1.0")
    assert "the settings are current" in {each["what"] for each in host["findings"] if each["is_good"]}
    assert all(each["is_good"] for each in host["findings"])
    machine.rig.ok("disconnect", "magpie", "--yes")


def test_a_task_is_made_for_it_and_started(machine: Machine, tmp_path: Path) -> None:
    """With its own settings in the task's folder, and its own command."""
    (tmp_path / "work").mkdir()
    machine.rig.ok("task", "new", "Nest", "--agent", "mag", "--dir", str(tmp_path / "work"))
    started = machine.rig.json("task", "start", "nest", "--print")
    assert started["argv"][0].endswith("magpie")
    assert b"harken" in (tmp_path / "work" / ".magpie" / "settings.json").read_bytes()


def test_a_rule_runs_it_and_its_output_is_read(machine: Machine, tmp_path: Path) -> None:
    """Fenced to the tools of the rule, with its answer kept."""
    rig = machine.rig
    rule = {"name": "ask", "channel": "ci", "mode": "auto", "prompt": "Look: {{content}}", "agent": "magpie"}
    rules = {"rules": [{**rule, "tools": ["read_file"], "workdir": str(tmp_path), "trust": "owner"}]}
    (rig.home / "triggers.json").write_text(json.dumps(rules))
    rig.ok("rules", "reload")
    rig.ok("send", "it is red", "--channel", "ci")
    until(lambda: [each["state"] for each in rig.ask("runs")["runs"]] == ["done"], "the run is over", SECONDS)
    (run,) = rig.ask("runs")["runs"]
    assert (run["agent"], run["denied"]) == ("magpie", ["shell"])
    assert "Magpie has read" in run["answer"]


def test_it_passes_the_suite_of_hosts(packages: Path) -> None:
    """The same as every host of our own."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/hosts_unit/test_contract.py",
            "-k",
            "magpie",
        ],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(packages)},
        text=True,
        timeout=SUITE_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
