"""What each real host puts into the environment of the commands that its model runs, and what follows from it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from harken.hosts.host import find_marks
from harken.hosts.registry import host_marks
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.stage import Stage
from tests.loss.rig import until

COMMAND_SECONDS: Final = 60.0
# What an agent writes that wants to go on: nobody waits for it, and it descends from nobody any more.
SCRIPT: Final = """\
env > {folder}/environment
setsid sh -c '{harken} allow stranger@example.org > {folder}/said 2>&1; mv {folder}/said {folder}/done' < /dev/null &
"""


def test_command_in_the_background_of_a_host_has_its_marks_and_is_not_the_owners(stage: Stage) -> None:
    """The marks are promises about programs of others: one that sets them no more must be noticed."""
    folder = stage.project / ".git"
    harken = shlex.join([sys.executable, "-I", "-m", "harken", "--home", str(stage.harken_home)])
    script = folder / "late.sh"
    script.write_text(SCRIPT.format(folder=folder, harken=harken))
    stage.model.follow(in_order(ModelAnswer.shell(f"sh {script}"), then="done"))
    stage.ask("let them in")
    until((folder / "done").exists, "the command has ended", COMMAND_SECONDS)
    assert [mark.host for mark in find_marks(_environment(folder / "environment"), host_marks())] == [stage.host.name]
    said = " ".join((folder / "done").read_text().split())
    assert "An agent may not allow" in said
    assert "is set in its environment" in said


def _environment(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
