"""Replies on their way out: tried again, held for the person, parked where people see it, and sent once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from harken.dispatch.outbox import MAX_ATTEMPTS, WAIT_FOR_PERSON, Outbox
from harken.errors import HarkenError, NeedsPerson, Refused, Unavailable
from harken.model import INBOX, WATCH, Attention, NewMessage, Outgoing, Sender, Trust
from harken.store.base import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock


class Service:
    """Takes replies, or says why not."""

    def __init__(self) -> None:
        self.trouble: HarkenError | None = None
        self.sent: list[str] = []

    async def send(self, reply: Outgoing) -> str:
        """Take a reply."""
        if self.trouble is not None:
            raise self.trouble
        self.sent.append(reply.body)
        return f"up-{len(self.sent)}"


class Round:
    """An outbox with one reply in it."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store, self.clock, self.service = store, clock, Service()
        self.outbox = Outbox(store, {"teams": self.service}, clock)

    async def state(self) -> tuple[str, str]:
        """Return how far the reply is, and what is in its way."""
        (row,) = await self.store.outbox()
        return row.state, row.error


@asynccontextmanager
async def answered(folder: Path) -> AsyncIterator[Round]:
    """Answer a message."""
    clock = FakeClock()
    async with open_store(folder / "harken.db", clock) as store:
        new = NewMessage(
            mailbox=INBOX,
            source="teams",
            sender=Sender("anna"),
            text="is it done?",
            trust=Trust.KNOWN,
            attention=Attention.WAKE,
        )
        message = (await store.append([new]))[0].message
        await store.add_reply(message.id, "it is", author="agent:x", consumer=WATCH)
        yield Round(store, clock)


async def test_reply_waits_for_the_person_and_leaves_when_they_have_acted(tmp_path: Path) -> None:
    """A sign-in that ends overnight must not cost the answers of that night."""
    async with answered(tmp_path) as way:
        way.service.trouble = NeedsPerson("The sign-in has ended.", "Sign in.", action="sign in")
        for _ in range(2 * MAX_ATTEMPTS):
            await way.outbox.send_due()
            way.clock.advance(60)
        assert await way.state() == ("queued", "The sign-in has ended.")
        way.service.trouble = None
        await way.outbox.send_due()
        assert (await way.state())[0] == "sent"
        assert way.service.sent == ["it is"]


async def test_reply_that_waits_for_the_person_for_days_is_parked(tmp_path: Path) -> None:
    """Nobody wants an answer to go out weeks later by itself."""
    async with answered(tmp_path) as way:
        way.service.trouble = NeedsPerson("The sign-in has ended.")
        way.clock.advance((WAIT_FOR_PERSON + timedelta(minutes=1)).total_seconds())
        await way.outbox.send_due()
        assert (await way.state())[0] == "parked"


@pytest.mark.parametrize(("trouble", "tries"), [(Refused("no such chat"), 1), (Unavailable("down"), MAX_ATTEMPTS)])
async def test_what_cannot_be_sent_is_parked_with_the_reason(tmp_path: Path, trouble: HarkenError, tries: int) -> None:
    """At once where trying again cannot help, after a while where it could."""
    async with answered(tmp_path) as way:
        way.service.trouble = trouble
        for number in range(tries):
            assert (await way.state())[0] == "queued", number
            await way.outbox.send_due()
            way.clock.advance(3_600)
        assert await way.state() == ("parked", trouble.message)
