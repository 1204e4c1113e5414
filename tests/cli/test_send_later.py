"""Messages for later on the command line: said, shown, withdrawn, and delivered by a daemon that was away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.rig import Rig, serving


def test_message_for_later_is_listed_read_and_withdrawn(rig: Rig) -> None:
    """Whoever says something for tomorrow must be able to look it up, and to think better of it."""
    said = rig.ok("send", "stand-up", "--at", "tomorrow 9:20", "--channel", "later")
    ref, mailbox, *words = said.split()
    assert (mailbox, " ".join(words)[:12], words[-1]) == ("inbox", "waits until ", "09:20")
    assert "waits until" in rig.ok("list", "--channel", "later")
    details = rig.json("read", ref)
    assert details["message"]["seq"] == 0
    assert {line["state"] for line in details["ledger"]} == {"queued"}
    assert "It waits until" in rig.ok("read", ref)
    assert rig.json("search", "stand-up")["messages"] == []
    assert "was withdrawn at" in rig.ok("unsend", ref[:8])
    assert rig.ask("list")["scheduled"] == []
    assert "by you" in rig.ok("read", ref)


@pytest.mark.parametrize(
    "words",
    [
        ("--at", "soon"),
        ("--in", "soon"),
        ("--at", "18:00", "--in", "2h"),
        ("--after-turn", "--when", "idle"),
        ("--at", "yesterday 9:00"),
    ],
)
def test_time_that_makes_no_sense_is_refused(rig: Rig, words: tuple[str, ...]) -> None:
    """What waits for a time that is not meant is as good as lost."""
    done = rig.run("send", "hello", *words)
    assert (done.code, done.out) == (2, "")
    assert rig.ask("list")["scheduled"] == []


def test_after_turn_without_a_turn_is_delivered_at_once(rig: Rig) -> None:
    """There is nothing to wait for."""
    assert rig.json("send", "hello", "--after-turn")["seq"] > 0


def test_message_that_came_due_while_the_daemon_was_away_is_delivered_late(tmp_path: Path) -> None:
    """It was accepted. The next daemon delivers it, once, and without being asked."""
    home = tmp_path / "home"
    with serving(home) as rig:
        sent = rig.json("send", "good night", "--from", "ci-bot", "--in", "1s")
    with serving(home) as rig:
        taken = json.loads(rig.ok("wait", "--timeout", "30", "--json"))["messages"]
        assert [message["id"] for message in taken] == [sent["id"]]
        assert rig.ask("list")["scheduled"] == []
    with serving(home) as rig:
        assert [message["id"] for message in rig.ask("list")["messages"]] == [sent["id"]]
