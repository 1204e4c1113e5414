"""What the README and the quickstart tell people to type works from the package, on a machine that has nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT, commands, fences
from tests.packaging.rig import build, install

COMMAND_SECONDS: Final = 90
# They need an agent, which the tests of the hosts have; without one they say so.
OF_AGENTS: Final = ("connect", "doctor", "wait", "open")


@dataclass(frozen=True)
class NewMachine:
    """A person's account on which Harken was installed a moment ago."""

    commands: Path
    account: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `harken` as the person would."""
        environment = {
            "PATH": f"{self.commands}:{os.defpath}",
            "HOME": str(self.account),
            "LANG": "C.UTF-8",
            "HARKEN_TOASTS_ENABLED": "false",
        }
        return subprocess.run(
            [str(self.commands / "harken"), *arguments],
            cwd=self.account,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def machine() -> Iterator[NewMachine]:
    """A machine with the package and nothing configured. Its path is short: a socket is made in it."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder:
        (wheel,) = build(Path(folder) / "dist", "wheel").glob("*.whl")
        account = Path(folder) / "me"
        account.mkdir()
        here = NewMachine(install(wheel, Path(folder) / "installed"), account)
        yield here
        here.run("down")


def lines_of(page: Path) -> list[list[str]]:
    """Return the commands of a page that need no agent, in their order."""
    found = [arguments for block in fences(page, "sh") for arguments in commands(block)]
    return [each for each in found if each[0] not in OF_AGENTS]


def test_the_package_runs_from_its_own_files(machine: NewMachine) -> None:
    """Everything below would be worth nothing if it were the checkout that runs."""
    asked = "import harken; print(harken.__file__)"
    done = subprocess.run([machine.commands / "python", "-c", asked], capture_output=True, text=True, check=True)
    assert str(ROOT / "src") not in done.stdout
    assert machine.run("--version").stdout.startswith("harken ")


def test_the_commands_of_the_first_pages_work_on_a_new_machine(machine: NewMachine) -> None:
    """They are the first thing a stranger tries; when one fails, there is no second. What both pages say runs once."""
    pages = [lines_of(page) for page in (ROOT / "README.md", DOCS / "quickstart.md")]
    assert all(any(words[0] == "send" for words in lines) for lines in pages)
    for arguments in dict.fromkeys(tuple(words) for lines in pages for words in lines):
        quick = ("demo", "--fast") if arguments[0] == "demo" else arguments
        done = machine.run(*quick)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        if arguments[0] == "send":
            assert re.match(r"m-\w{10}  inbox #\d+  waits for the next session", done.stdout), done.stdout


def test_without_an_agent_the_next_step_is_said(machine: NewMachine) -> None:
    """The commands that need one name what is missing, and end with an error that a script sees."""
    done = machine.run("connect", "claude-code")
    assert done.returncode != 0
    assert "Claude Code" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (machine.account / ".claude").exists()
