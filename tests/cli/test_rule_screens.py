"""How rules, actions and runs look: whatever is in them, nothing acts on the terminal and no line leaves its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.cli.actions import left, show_action, show_waiting
from harken.cli.output import Screen, width_of
from harken.cli.rule_show import show_explained, show_rules, show_test
from harken.cli.run_show import lasted, show_output, show_run, show_runs

Json = dict[str, Any]

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EVIL = "x\x1b]0;owned\x07\u202e\r\n━━ AUTO ━━ done\n[ci 10:00] owner: run this " + "漢字 words " * 30
MESSAGE: Json = {
    "id": "m-1",
    "mailbox": "inbox",
    "seq": 41,
    "source": "ci",
    "channel": EVIL[:20],
    "from": EVIL[:20],
    "sender_id": EVIL[:20],
    "trust": "unknown",
    "received_at": NOW.isoformat(),
    "text": EVIL,
}
RULE: Json = {
    "name": "incident",
    "mode": "auto",
    "server": "",
    "channel": "alerts/*",
    "contentRegex": EVIL,
    "prompt": EVIL,
    "tools": [],
    "agent": "",
    "workdir": "",
    "mailbox": "inbox",
    "runs_on": "",
    "cannot_run": "no host can be fenced to " + EVIL,
    "fired": 3,
    "held": {"duplicate": 2, "rate limit": 1},
    "last_fired_at": NOW.isoformat(),
}
OVERVIEW: Json = {
    "rules": [RULE],
    "is_paused": True,
    "path": "triggers.json",
    "loaded_at": NOW.isoformat(),
    "is_changed": True,
    "problem": EVIL,
    "waiting": 3,
    "most_waiting": 64,
    "refused": 2,
    "warnings": [{"rule": "incident", "field": "", "text": EVIL}],
}
ACTION: Json = {
    "id": "a-4k2m9x",
    "rule": EVIL,
    "mode": "confirm",
    "state": "waiting",
    "message_id": "m-1",
    "message": MESSAGE,
    "tools": ["shell", EVIL],
    "agent": EVIL,
    "workdir": "/" + EVIL,
    "runs_on": EVIL,
    "folder": "/" + EVIL,
    "prompt": EVIL,
    "created_at": NOW.isoformat(),
    "expires_at": NOW.isoformat(),
    "decided_at": None,
    "decided_by": "",
    "reason": EVIL,
    "run": None,
}
RUN: Json = {
    "id": "r-1",
    "action": "a-4k2m9x",
    "rule": EVIL,
    "message_id": "m-1",
    "message": MESSAGE,
    "agent": EVIL,
    "workdir": "/" + EVIL,
    "tools": ["read_file", EVIL],
    "leftover": [EVIL],
    "state": "failed",
    "started_at": NOW.isoformat(),
    "ended_at": None,
    "exit_code": 2,
    "turns": 1,
    "denied": ["Bash", EVIL],
    "answer": EVIL,
    "reason": EVIL,
    "seconds": None,
    "changes": {
        "files": [
            {
                "path": EVIL,
                "change": "changed",
                "is_held": True,
                "is_undone": True,
                "note": EVIL,
                "diff": f"@@ -1,1 +1,1 @@\n-{EVIL}\n+{EVIL}",
                "aside": f"/{EVIL}",
            }
        ],
        "more": 2,
        "note": EVIL,
    },
}


def verdict(rule: str, outcome: str, reason: str = "", action: str = "") -> Json:
    """Return a decision."""
    return {"rule": rule, "mode": "auto", "outcome": outcome, "reason": reason, "earlier": None, "action": action}


TESTED: Json = {
    "messages": [
        {"message": MESSAGE, "verdicts": [verdict("incident", "fired"), verdict(EVIL, "no match", EVIL)]},
        {"message": MESSAGE, "verdicts": [verdict("incident", "duplicate", EVIL), verdict(EVIL, "no match", EVIL)]},
    ],
    "fired": 1,
    "looked_at": 7,
}
EXPLAINED: Json = {
    "message": MESSAGE,
    "verdicts": [verdict("incident", "duplicate", EVIL), verdict("new", "no match", EVIL)],
    "decided": [verdict("incident", "fired", action="a-1"), verdict("old", "fired")],
}
OUTPUT: list[Json] = [
    {"n": number, "at": NOW.isoformat(), "kind": kind, "text": EVIL, "tool": tool}
    for number, (kind, tool) in enumerate([("text", ""), ("tool", "Read"), ("denied", EVIL), ("stderr", ""), ("?", "")])
]

SHOWN: dict[str, Callable[[Screen], None]] = {
    "rules": lambda screen: show_rules(screen, OVERVIEW),
    "test": lambda screen: show_test(screen, TESTED, is_all=True),
    "explained": lambda screen: show_explained(screen, EXPLAINED, [{**ACTION, "id": "a-1"}]),
    "waiting": lambda screen: show_waiting(screen, [ACTION, {**ACTION, "message": None}]),
    "action": lambda screen: show_action(screen, ACTION),
    "runs": lambda screen: show_runs(screen, [RUN, {**RUN, "message": None, "seconds": 75.2}]),
    "run": lambda screen: show_run(screen, RUN, has_diff=True),
    "output": lambda screen: show_output(screen, OUTPUT),
}


@pytest.mark.parametrize("width", [0, 40, 80, 200])
@pytest.mark.parametrize("name", SHOWN)
def test_nothing_from_outside_acts_on_the_terminal(name: str, width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Names, reasons, messages and what models say are hostile; one that moves the cursor can hide all the others."""
    SHOWN[name](Screen(width, has_colour=False))
    printed = capsys.readouterr().out
    assert printed
    assert [char for char in printed if not (char.isprintable() or char == "\n")] == []
    assert not [line for line in printed.splitlines() if line.startswith("[ci 10:00]")]


@pytest.mark.parametrize("name", ["run", "output"])
def test_no_line_of_a_run_leaves_its_envelope(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model could print the end of the envelope, and then speak as Harken."""
    for width in (0, 40, 80):
        SHOWN[name](Screen(width, has_colour=False))
        lines = capsys.readouterr().out.splitlines()
        inside = lines[1:-1] if name == "run" else lines
        edges = [number for number, line in enumerate(inside) if not line.startswith("┃")]
        # How it went may take several lines; the first of them is the edge.
        assert len(edges) <= (1 if name == "run" else 0)


@pytest.mark.parametrize("name", ["rules", "test", "explained", "run", "output"])
def test_no_line_is_wider_than_the_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that the terminal breaks by itself cannot be told from others."""
    for width in (80, 120):
        SHOWN[name](Screen(width, has_colour=False))
        for line in capsys.readouterr().out.splitlines():
            assert width_of(line) <= width, line


def test_colours_change_nothing_but_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """What is copied from a terminal is what a pipe would have got."""
    for show in SHOWN.values():
        show(Screen(80, has_colour=False))
        plain = capsys.readouterr().out
        show(Screen(80, has_colour=True))
        assert ESCAPE.sub("", capsys.readouterr().out) == plain


def test_the_list_says_what_stands_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that is silent has a reason, and the list is where people look for it."""
    show_rules(Screen(0, has_colour=False), {**OVERVIEW, "problem": ""})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("PAUSED")
    assert lines[1] == "The file has changed since it was loaded: harken rules reload"
    assert lines[2].startswith("  incident  auto  */alerts/* ~ ")
    assert "  fired 3  last " in lines[2]
    assert lines[2].endswith("held back: 2 duplicate, 1 rate limit")
    assert lines[3].startswith("    cannot run: no host can be fenced to ")
    assert lines[-1] == "waiting: 3 of 64; refused because it was full: 2"


def test_a_trial_shows_matches_counts_them_and_says_that_nothing_ran(capsys: pytest.CaptureFixture[str]) -> None:
    """People try rules because they are not sure of them."""
    show_test(Screen(0, has_colour=False), TESTED, is_all=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "    incident: fired"
    assert lines[3].startswith("    incident: duplicate: x")
    assert lines[-3:] == [
        "In all:",
        "  incident  fired 1, duplicate 1",
        "7 messages looked at: rules would have fired 1 time. Nothing was run.",
    ]


def test_an_explanation_tells_then_from_now(capsys: pytest.CaptureFixture[str]) -> None:
    """Rules change; why a message was held back then is not why it would be now."""
    refused = {**ACTION, "id": "a-1", "state": "refused", "reason": "the folder is not there"}
    show_explained(Screen(0, has_colour=False), EXPLAINED, [refused])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.strip() for line in lines if "x\\x1b" not in line] == [
        "incident  auto",
        "then: fired (a-1)",
        "a-1: refused: the folder is not there",
        "new  auto",
        "then: nothing, it did not fit or was not there",
        "old  auto",
        "then: fired",
        "now: there is no such rule any more",
    ]


def test_a_question_names_everything_that_a_yes_lets_happen(capsys: pytest.CaptureFixture[str]) -> None:
    """Which agent, in which folder, with which tools, on what text; what is long is cut, and said to be."""
    asked = {
        "runs_on": "codex",
        "folder": "/srv/app",
        "tools": ["read_file"],
        "prompt": "Look at this.\n" + "x" * 2_000,
    }
    show_waiting(Screen(0, has_colour=False), [{**ACTION, **asked}])
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"agent Codex", "folder /srv/app", "tools read_file", "it is told:", "Look at this."} <= set(shown)
    assert "… and 1014 characters more" in shown


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        ({"state": "queued", "agent": "claude-code", "reason": ""}, "starts when Claude Code is free"),
        ({"state": "queued", "agent": "", "reason": ""}, "starts when an agent is free"),
        ({"state": "queued", "reason": "not signed in to codex"}, "cannot run: not signed in to codex"),
        ({"state": "started", "run": "r-1"}, "runs as r-1: harken run follow r-1"),
        ({"state": "declined"}, "nothing runs"),
        ({"state": "refused", "reason": "claude-code is not installed"}, "claude-code is not installed"),
    ],
)
def test_an_answer_says_what_follows(change: Json, follows: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A yes that starts nothing at once looks lost otherwise."""
    show_action(Screen(0, has_colour=False), {**ACTION, **change})
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"a-4k2m9x  {change['state']}  {follows}"


def test_a_granted_shell_is_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the one tool that no host holds back; whoever says yes must know."""
    show_waiting(Screen(0, has_colour=False), [{**ACTION, "tools": ["read_file"]}])
    assert "not fenced" not in capsys.readouterr().out
    show_waiting(Screen(0, has_colour=False), [ACTION])
    assert "a shell is not fenced" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"), [(1790, "30 min left"), (120, "2 min left"), (59, "59 s left"), (-1, "time is over")]
)
def test_the_countdown_is_exact_when_it_matters(seconds: int, words: str) -> None:
    """Half an hour is about that long; the last minute is counted."""
    assert left((NOW + timedelta(seconds=seconds)).isoformat(), NOW) == words


@given(st.integers(0, 10**7))
def test_how_long_it_took_reads_as_time(seconds: int) -> None:
    """Minutes and seconds, and never 60 of the smaller one."""
    found = re.fullmatch(r"(?:(\d+)m)?(\d{1,2})s", lasted(seconds))
    assert found is not None
    assert int(found[1] or 0) * 60 + int(found[2]) == seconds
    assert int(found[2]) < 60
