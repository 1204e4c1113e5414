"""No name leaves its place on the terminal: it ends no line, moves nothing, and carries no mark of trust.

Names of files, tasks and rules come here as they are, without ingest: what prints them must hold alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from harken.automation import ChangeKind, FileChange, FolderChanges, RunEnd, RunState
from harken.cli.actions import show_action, show_waiting
from harken.cli.conversations import show_approvals
from harken.cli.message_commands import show_mail
from harken.cli.output import Screen
from harken.cli.rule_show import show_explained, show_rules, show_test
from harken.cli.run_show import show_output, show_run, show_runs
from harken.cli.task_show import show_task, show_tasks
from harken.cli.watch.show import event_line, message_line
from harken.runs.folders import judged, told_changes
from tests.hostile.corpus import imitations, marked, names

Json = dict[str, Any]

TEXTS: Final = [*dict.fromkeys(imitations()), *marked(), *names()]
PIPE: Final = Screen(0, has_colour=False)
NARROW: Final = Screen(60, has_colour=False)
PLAIN: Final = "words"
AT: Final = "2026-01-05T09:00:00Z"
STAMP: Final = r"\[[^\[\]\uff3b\uff3d★]*\]"
LINES: Final[Mapping[str, str]] = {
    "list": rf"m-0000000001 #1 {STAMP} \? [^★]*: words",
    "read": rf"m-0000000001 #1 {STAMP} \? [^★]*: words",
    "watch": rf'{STAMP} \? [^★]*: "words"  #1',
    "rules test": rf"#1 {STAMP} \? [^★]*: words",
    "confirm": rf"  message  #1 {STAMP} \? [^★]*: words",
    "run show": rf"┃ message    #1 {STAMP} \? [^★]*: words",
    "task check": r"m-0000000001 api [^★]* \? [^★]*:",
}
"""The line that says who said what where: the mark of trust is ours, and what stands before it no name can end."""


def record(**said: str) -> Json:
    """Return a stranger's message as the verbs give it."""
    own = {
        "id": "m-0000000001",
        "mailbox": "inbox",
        "seq": 1,
        "trust": "unknown",
        "sender_id": "s-1",
        "from": PLAIN,
        "sender": PLAIN,
        "channel": PLAIN,
        "source": PLAIN,
        "task": "api",
        "priority": "normal",
        "received_at": AT,
        "ts": AT,
        "created_at": AT,
        "repeat": False,
        "text": PLAIN,
        "body": PLAIN,
        "content_text_sanitized": PLAIN,
    }
    return {**own, **said}


def action(**said: object) -> Json:
    """Return what waits for an answer."""
    own = {
        "id": "a-1",
        "rule": PLAIN,
        "mode": "confirm",
        "state": "waiting",
        "message_id": "m-0000000001",
        "message": record(),
        "tools": ["read_file"],
        "agent": "",
        "runs_on": "",
        "folder": "",
        "prompt": PLAIN,
        "workdir": "",
        "expires_at": AT,
        "reason": "",
        "run": None,
        "action": "a-1",
    }
    return {**own, **said}


def run(**said: object) -> Json:
    """Return a run."""
    own = {
        "id": "r-1",
        "rule": PLAIN,
        "message": record(),
        "agent": "claude-code",
        "workdir": "/w",
        "tools": [],
        "leftover": [],
        "state": "done",
        "started_at": AT,
        "ended_at": AT,
        "exit_code": 0,
        "turns": 1,
        "denied": [],
        "answer": "",
        "reason": "",
        "seconds": 3.0,
        "changes": None,
        "run": "r-1",
    }
    return {**own, **said}


def change(**said: object) -> Json:
    """Return a run that has changed a file."""
    own = {"path": PLAIN, "change": "added", "is_held": True, "is_undone": True, "note": "n", "diff": "", "aside": "/a"}
    return run(changes={"files": [{**own, **said}], "more": 0, "note": ""})


def task(title: str, branch: str = "main") -> Json:
    """Return a task."""
    return {
        "id": "api",
        "title": title,
        "dir": "/w",
        "branch": branch,
        "has_worktree": True,
        "agent": "",
        "peers": [],
        "state": "open",
        "presence": "gone",
        "machine": "",
        "mailbox": "task:api",
        "pending": 0,
        "sessions": [],
        "created_at": AT,
        "started_at": None,
        "done_at": None,
        "hosted": {"agent": "api", "state": "failed", "problem": title},
    }


def rule(name: str) -> Json:
    """Return a rule."""
    return {
        "name": name,
        "mode": "auto",
        "server": "",
        "channel": name,
        "contentRegex": name,
        "mailbox": "inbox",
        "runs_on": "",
        "cannot_run": name,
        "fired": 0,
        "held": {},
        "last_fired_at": None,
    }


def rules(name: str) -> Json:
    """Return the rules in force."""
    return {
        "rules": [rule(name)],
        "is_paused": False,
        "problem": "",
        "is_changed": False,
        "path": "/w",
        "waiting": 0,
        "warnings": [{"rule": name, "text": "w"}],
        "refused": 0,
    }


def verdict(name: str) -> Json:
    """Return what a rule decided."""
    return {"rule": name, "mode": "auto", "outcome": "fired", "reason": "", "action": "a-1"}


def explained(name: str) -> Json:
    """Return what rules made of a message."""
    return {"message": record(), "verdicts": [verdict(name)], "decided": [verdict(name)]}


def told(path: str) -> Iterator[Json]:
    """Yield the lines of a run's output about files of this name, and about its end."""
    files = tuple(
        FileChange(path=path, kind=ChangeKind.ADDED, is_held=is_undone, is_undone=is_undone)
        for is_undone in (True, False)
    )
    for kind, text in told_changes(FolderChanges(files=files)):
        yield {"kind": kind, "tool": "", "text": text}


SAID: Final[Mapping[str, Callable[[Json], None]]] = {
    "list": PIPE.row,
    "read": PIPE.message,
    "watch": lambda found: PIPE.line(message_line(PIPE, found)),
    "rules test": lambda found: show_action(PIPE, action(message=found)),
    "confirm": lambda found: show_waiting(PIPE, [action(message=found)]),
    "run show": lambda found: show_run(PIPE, run(message=found)),
    "task check": lambda found: show_mail(PIPE, found),
}


def approval(name: str) -> Json:
    """Return what a host asks, with a name in the place of each that the host or its model gives."""
    asked = {"id": "ap-000001", "host": name, "tool": name, "folder": name, "why": name, "always": name}
    ended = {"state": "withdrawn", "answered_by": "", "because": name, "asked_at": "2026-01-05T09:00:00.000Z"}
    return {**asked, **ended, "parts": [{"name": name, "text": "x"}], "choices": ["once", "always", "no"]}


NAMED: Final[Mapping[str, Callable[[Screen, str], None]]] = {
    "tasks": lambda screen, name: show_tasks(screen, [task(name), task(PLAIN)]),
    "task": lambda screen, name: show_task(screen, task(name, branch=name)),
    "rules": lambda screen, name: show_rules(screen, rules(name)),
    "rules test": lambda screen, name: show_test(
        screen,
        {"messages": [{"message": record(), "verdicts": [verdict(name)]}], "fired": 1, "looked_at": 1},
        is_all=True,
    ),
    "explained": lambda screen, name: show_explained(screen, explained(name), [action(rule=name)]),
    "confirm": lambda screen, name: show_waiting(screen, [action(rule=name, workdir=f"/{name}", agent=name)]),
    "approve": lambda screen, name: show_approvals(screen, [approval(name)]),
    "watch approval": lambda screen, name: screen.line(
        event_line(screen, {**approval(name), "kind": "approval", "change": "asked", "approval": "ap-000001"}, {})
    ),
    "runs": lambda screen, name: show_runs(screen, [run(rule=name, reason=name)]),
    "run show": lambda screen, name: show_run(screen, run(rule=name, workdir=f"/{name}", agent=name)),
    "file": lambda screen, name: show_run(screen, change(path=name)),
    "set aside": lambda screen, name: show_run(screen, change(aside=f"/{name}")),
    "note of a file": lambda screen, name: show_run(screen, change(note=name)),
    "output": lambda screen, name: show_output(screen, list(told(name))),
    "watch judged": lambda screen, name: screen.line(
        event_line(screen, action(kind="judged", rule=name), {"m-0000000001": record()})
    ),
    "watch run": lambda screen, name: screen.line(
        event_line(screen, {**run(rule=name), "kind": "run", "message_id": ""}, {})
    ),
}


@pytest.mark.parametrize("way", LINES)
@pytest.mark.parametrize("place", ["from", "channel", "source"])
def test_name_cannot_end_what_stands_around_it(way: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A channel called `cli 10:00] ★ you: …` would be a message of the owner to whoever reads the line."""
    for text in TEXTS:
        said = (
            {place: text}
            | ({"sender": text} if place == "from" else {})
            | ({"channel": ""} if place == "source" else {})
        )
        SAID[way](record(**said))
        printed = capsys.readouterr().out
        assert printed.replace("\n", "").isprintable(), text
        assert [line for line in printed.splitlines() if re.fullmatch(LINES[way], line)], printed
        assert "★" not in printed, printed


@pytest.mark.parametrize("way", NAMED)
def test_name_ends_no_line(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a file, a task or a rule is called, as many lines are printed, and nothing acts on the terminal."""
    NAMED[way](PIPE, PLAIN)
    plain = capsys.readouterr().out.count("\n")
    for text in TEXTS:
        NAMED[way](PIPE, text)
        printed = capsys.readouterr().out
        assert printed.replace("\n", "").isprintable(), text
        assert printed.count("\n") == plain, text


@pytest.mark.parametrize("way", ["file", "set aside", "note of a file", "output", "run show"])
def test_name_stays_in_the_envelope_of_a_run(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a terminal is narrow a name takes several lines, and each of them is the run's."""
    for text in TEXTS:
        NAMED[way](NARROW, text)
        lines = capsys.readouterr().out.splitlines()
        assert all(line.startswith(("┃", "━━ AUTO ━━ ")) for line in lines), text
        assert len([line for line in lines if line.startswith("━")]) == (0 if way == "output" else 2), text


def test_reason_of_a_run_has_names_on_one_line() -> None:
    """It goes to the log, to messages and to the page as it is."""
    for text in TEXTS:
        found = FolderChanges(files=(FileChange(path=text, kind=ChangeKind.ADDED, is_held=True, is_undone=True),))
        end = judged(RunEnd(state=RunState.DONE, exit_code=0, turns=1, denied=(), answer="", reason=""), found, ())
        assert end.state is RunState.FAILED
        assert end.reason.isprintable(), text
        assert all(line["text"].isprintable() for line in told(text)), text
