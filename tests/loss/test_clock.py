"""The machine's clock is set back: order and delivery do not notice, because neither is taken from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import compose
from harken.inbox.caller import Caller, Role
from harken.inbox.inbox import Inbox
from harken.model import INBOX, Consumer, Reader, SessionKey
from harken.testing import FakeClock
from tests.loss.rig import journal_lines

DAY = 86_400.0
OWNER = Caller(role=Role.OWNER)


def reader(session: str) -> Reader:
    """A session of the one consumer of this story."""
    return Reader(consumer=Consumer("agent"), session=SessionKey(session), mailboxes=(INBOX,))


async def pull(inbox: Inbox, session: str, carrier: str) -> list[tuple[str, bool]]:
    """Pull, and return what was given and whether it was marked as a repeat."""
    pulled = await inbox.pull(reader(session), surface="inbox_pull", carrier=carrier)
    return [(offer.message.text, offer.is_repeat) for offer in pulled.offers]


@pytest.mark.anyio
async def test_order_and_delivery_do_not_follow_the_clock(home: Path) -> None:
    """Two days back between messages: they are numbered, given and journaled in the order in which they came."""
    ensure(Home(home))
    clock = FakeClock()
    async with compose(Home(home), Settings(), clock) as daemon:
        for text in ("one", "two", "three"):
            await daemon.inbox.send(OWNER, text)
            clock.set_back(2 * DAY)
        assert await pull(daemon.inbox, "s1", "call 1") == [("one", False), ("two", False), ("three", False)]
        assert await pull(daemon.inbox, "s1", "call 2") == []
        stored = await daemon.inbox.list()
        assert [(m.text, m.seq) for m in stored] == [("one", 1), ("two", 2), ("three", 3)]
    lines = sorted(journal_lines(home), key=lambda line: line["n"])
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(list((home / "journal").glob("*.jsonl"))) > 1
    async with compose(Home(home), Settings(), clock):
        pass
    assert sorted(journal_lines(home), key=lambda line: line["n"]) == lines


@pytest.mark.anyio
async def test_lease_of_the_future_does_not_hide_a_message(home: Path) -> None:
    """A lease made before the clock was corrected would last for days: it counts as over, and the offer is marked."""
    ensure(Home(home))
    clock = FakeClock()
    async with compose(Home(home), Settings(), clock) as daemon:
        await daemon.inbox.send(OWNER, "one")
        assert await pull(daemon.inbox, "s1", "call 1") == [("one", False)]
        clock.set_back(2 * DAY)
        assert await pull(daemon.inbox, "s2", "call 2") == [("one", True)]


@pytest.mark.anyio
async def test_reply_leaves_although_the_clock_went_back(home: Path) -> None:
    """A reply is due at the time it was made; a clock that is behind that must not hold it for days."""
    ensure(Home(home))
    clock = FakeClock()
    async with compose(Home(home), Settings(), clock) as daemon:
        sent = await daemon.inbox.send(OWNER, "question")
        await daemon.inbox.reply(OWNER, sent.message.id, "answer")
        clock.set_back(2 * DAY)
        assert [row.body for row in await daemon.store.outbox.due(10)] == ["answer"]
