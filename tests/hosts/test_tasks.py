"""A task with each real host: seeded in its worktree, started by the command that Harken prints, and begun by its mail.

The host is not connected for the person. What arrived is read on the model's wire; afterwards nothing is left behind.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Final

import pytest

from harken.trial.screen import TerminalProgram
from tests.hosts.stage import Stage
from tests.hosts.story import arrived, ledger, line_of, marker, send, sessions
from tests.workspaces.repos import commit, git

OPENING: Final = "Begin with the messages that wait for this task."


@pytest.fixture
def worktree(stage: Stage) -> Path:
    """The folder that the task will have, which the host is told to trust as a person would tell it."""
    commit(stage.project, "README.md")
    path = stage.folder / "project.worktrees" / "one"
    stage.recipe.prepare(stage.user, path, stage.model.url)
    return path


def test_a_task_begins_with_the_mail_that_waits_for_it(stage: Stage, worktree: Path) -> None:
    """One command from an idea to an agent that works on it; no word of the message is in that command."""
    word = marker()
    prompt = f"The word is {word}."
    stage.harken("task", "new", "One", "--agent", stage.host.name, "--prompt", prompt)
    assert git(worktree, "status", "--porcelain") == ""
    assert git(stage.project, "status", "--porcelain") == ""
    told = json.loads(stage.harken("task", "start", "one", "--json"))
    assert told["command"] == f"cd {worktree} && {shlex.join(told['argv'])}"
    assert word not in told["command"]
    message = json.loads(stage.harken("check-inbox", "one", "--peek", "--json"))["messages"][0]["id"]
    overrides = stage.recipe.for_private(stage.model.url)
    argv = (*told["argv"], *overrides.argv, *stage.recipe.interactive_argv)
    with TerminalProgram(argv, stage.environment, worktree):
        asked = arrived(stage, word)
        assert asked.count(OPENING) > 0
        shown = json.loads(stage.harken("task", "show", "one", "--json"))
        assert (shown["state"], [session["host"] for session in shown["sessions"]]) == ("running", [stage.host.name])
    states = {line["consumer"]: line["state"] for line in ledger(stage, message)["ledger"]}
    assert states["task:one"] in {"offered", "seen"}


def test_a_task_that_ends_leaves_no_trace_of_its_host(stage: Stage, worktree: Path) -> None:
    """Whatever a host's own commands wrote for the task goes with it."""
    before = _traces(stage)
    stage.harken("task", "new", "One", "--agent", stage.host.name)
    assert _traces(stage) != before
    stage.harken("task", "done", "one", "--remove-worktree")
    assert _traces(stage) == before
    assert not worktree.parent.exists()


def test_a_session_in_the_main_checkout_is_left_alone(stage: Stage) -> None:
    """A task in a worktree connects nobody who works beside it, although some hosts read its hooks from there."""
    if stage.host.name == "claude-code":
        pytest.skip("its local settings of the main checkout are those of all worktrees")
    commit(stage.project, "README.md")
    stage.harken("task", "new", "One", "--agent", stage.host.name)
    word = marker()
    message = send(stage, f"The word is {word}.", "--priority", "high")
    stage.ask("What is the word?")
    assert [asked for asked in stage.model.requests if asked.count(word)] == []
    assert (sessions(stage), line_of(stage, message)) == ([], {})
    if stage.host.name == "codex":
        # The same hooks do run there: a session in a task's folder hears them.
        own = marker()
        stage.harken("task", "new", "Two", "--here", "--prompt", f"The word is {own}.")
        stage.ask("What is the word?")
        assert [asked for asked in stage.model.requests if asked.count(own)] != []


def _traces(stage: Stage) -> set[Path]:
    """Return the files that name Harken's home: below the person's home, and in the repository."""
    home = str(stage.harken_home).encode()
    files = [
        path
        for root in (stage.user, stage.folder / "project", stage.folder / "project.worktrees")
        for path in root.rglob("*")
    ]
    return {path for path in files if path.is_file() and (home in path.read_bytes() or b"harken" in path.name.encode())}
