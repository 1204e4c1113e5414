"""`harken outbox`: a person sees which replies have not left and why, and has them tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.rig import Json, Rig, serving
from tests.cli.test_as_agent import REFUSED, hosting
from tests.seeded import Asked, seed


@pytest.fixture
def parked(tmp_path: Path) -> Iterator[tuple[Rig, str]]:
    """A home in which the answer to a message of a source that is gone could not leave."""
    [message] = seed(tmp_path / "home", [Asked(text="when?", source="gone")])
    with serving(tmp_path / "home") as rig:
        reply = rig.json("reply", str(message), "soon\x1b[2J")["reply_id"]
        rig.until(lambda _status: state(rig, reply) == "parked")
        yield rig, reply


def state(rig: Rig, reply: str) -> str:
    """Return how far a reply is."""
    found: list[Json] = rig.ask("outbox")["replies"]
    return next((str(each["state"]) for each in found if each["reply_id"] == reply), "")


def test_reply_that_could_not_be_sent_is_shown_with_its_reason(parked: tuple[Rig, str]) -> None:
    """Parked means that nobody tries any more: the person must see it, and what to do."""
    rig, reply = parked
    [line] = rig.ok("outbox").splitlines()
    assert line.split()[:2] == [reply, "parked"]
    assert "cannot be answered" in line
    assert "\x1b" not in line
    assert rig.ok("outbox", "--state", "sent") == ""
    assert [each["reply_id"] for each in rig.json("outbox", "--state", "parked")["replies"]] == [reply]


def test_parked_reply_is_tried_again_and_the_journal_says_so(parked: tuple[Rig, str]) -> None:
    """Whoever has put things right need not write the answer anew."""
    rig, reply = parked
    assert rig.ok("outbox", "retry", reply).split()[:2] == [reply, "queued"]
    rig.until(lambda _status: state(rig, reply) == "parked")
    events: list[Json] = rig.ask("journal", after=0, limit=500)["events"]
    kinds = [event["kind"] for event in events if event.get("reply") == reply]
    assert kinds.count("parked") == 2
    assert kinds.count("retried") == 1


def test_unknown_reply_is_said_to_be_unknown(parked: tuple[Rig, str]) -> None:
    """A mistyped id changes nothing."""
    rig, reply = parked
    result = rig.run("outbox", "retry", reply, "r-unknown")
    assert result.code == 3
    assert "harken outbox" in result.err
    assert state(rig, reply) == "parked"


def test_agent_may_not_have_replies_sent_again(parked: tuple[Rig, str]) -> None:
    """What may have been sent is the person's to judge."""
    rig, reply = parked
    with hosting(rig):
        assert rig.run("outbox", "retry", reply).code == REFUSED
