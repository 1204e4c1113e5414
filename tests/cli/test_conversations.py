"""`harken conversations`, `done`, `snooze`, `reopen`, `unread`: a person sorts what came, on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.rig import Json, Rig, serving
from tests.cli.test_as_agent import REFUSED, hosting

VERBS = ("done", "snooze", "reopen", "unread")
NEWEST = "3"  # of the alert


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A home with an alert that came three times, and a word of somebody."""
    with serving(tmp_path / "home") as rig:
        for number in range(3):
            rig.json("send", f"disk is full, {number}", "--from", "monitor", "--conversation", "disk")
        rig.json("send", "lunch?", "--from", "anna")
        yield rig


def threads(rig: Rig, view: str = "open") -> list[str]:
    """Return the newest text of each conversation of a view."""
    found: list[Json] = rig.json("conversations", "--view", view)["conversations"]
    return [each["newest"]["content_text_sanitized"] for each in found]


def test_repeats_are_one_line_that_says_how_many(rig: Rig) -> None:
    """An alert that came forty times is one thing to decide about."""
    first, second = rig.ok("conversations").splitlines()
    assert first.split()[1:] == ["unread", "anna", "cli", "lunch?"]
    assert second.split()[1:5] == ["unread", "monitor", "cli", "(3)"]
    assert rig.json("conversations")["counts"] == {"open": 2, "sent": 0, "done": 0, "snoozed": 0}


def test_done_is_undone_and_ended_by_what_is_said_next(rig: Rig) -> None:
    """Both are how nothing gets lost by being done with it."""
    lunch = rig.json("conversations")["conversations"][0]["newest"]["id"]
    assert rig.ok("done", lunch).split() == [lunch, "is", "done"]
    assert threads(rig) == ["disk is full, 2"]
    assert rig.ok("reopen", lunch).split()[1:] == ["is", "in", "your", "list"]
    assert threads(rig) == ["lunch?", "disk is full, 2"]
    [alert] = rig.json("done", NEWEST)["conversations"]
    assert (alert["state"], alert["was"]) == ("done", "open")
    assert threads(rig) == ["lunch?"]
    rig.json("send", "disk is full, 3", "--from", "monitor", "--conversation", "disk")
    assert threads(rig) == ["disk is full, 3", "lunch?"]


def test_what_is_newer_than_the_message_that_was_named_stays_in_the_list(rig: Rig) -> None:
    """The list in a terminal may be hours old: what arrived since then was not looked at."""
    newest = rig.json("conversations")["conversations"][1]["newest"]["id"]
    for verb in ("done", "snooze"):
        assert rig.ok(verb, "2").endswith(f"stays in your list: there is something newer, {newest}\n")
    assert threads(rig) == ["lunch?", "disk is full, 2"]


def test_snooze_takes_a_length_or_a_time_ahead(rig: Rig) -> None:
    """A time that is over, or both at once, is a slip of the hand."""
    assert "is put off until" in rig.ok("snooze", NEWEST, "--for", "2h")
    assert threads(rig, "snoozed") == ["disk is full, 2"]
    assert rig.ok("snooze", NEWEST, "--until", "tomorrow 9:00")
    assert "That time has passed." in rig.run("snooze", "1", "--until", "yesterday").err
    assert "more than ten years off" in rig.run("snooze", "1", "--until", "9999-01-01T00:00").err
    assert "For how long" in rig.run("snooze", "1", "--for", "2h", "--until", "tomorrow").err
    assert rig.json("snooze", "4")["conversations"][0]["until"]
    assert threads(rig) == []
    assert rig.ok("conversations") == ""


def test_unread_lasts_until_it_is_read(rig: Rig) -> None:
    """It is for what has to be read once more."""
    rig.ok("unread", NEWEST, "--read")
    assert threads(rig, "unread") == ["lunch?"]
    rig.ok("unread", "1")
    assert threads(rig, "unread") == ["lunch?", "disk is full, 2"]


def test_sorting_survives_a_restart(rig: Rig) -> None:
    """It is stored, not remembered by a browser."""
    rig.ok("done", NEWEST)
    rig.ok("snooze", "4", "--for", "1d")
    rig.ok("down")
    try:
        assert (threads(rig), threads(rig, "done"), threads(rig, "snoozed")) == ([], ["disk is full, 2"], ["lunch?"])
    finally:
        rig.ok("down")


@pytest.mark.parametrize("verb", VERBS)
def test_agent_is_refused(rig: Rig, verb: str) -> None:
    """What you have done with is yours to say: an agent that tidies up would hide mail from you."""
    with hosting(rig):
        assert rig.run(verb, "1").code == REFUSED
    assert threads(rig) == ["lunch?", "disk is full, 2"]


def test_wrong_number_among_right_ones_sorts_none(rig: Rig) -> None:
    """Half of what was asked for would have to be found out again."""
    assert "There is no message" in rig.run("done", "1", "99").err
    assert threads(rig) == ["lunch?", "disk is full, 2"]


def test_shell_offers_what_is_in_the_list(rig: Rig) -> None:
    """Nobody types an id."""
    [lunch, disk] = [each["newest"]["id"] for each in rig.json("conversations")["conversations"]]
    rig.ok("done", disk)
    words = {"COMP_WORDS": "harken done m-", "COMP_CWORD": "2", "_HARKEN_COMPLETE": "bash_complete"}
    offered = Rig(rig.home, words).run().out.splitlines()
    assert [each.partition(",")[2] for each in offered] == [lunch]
