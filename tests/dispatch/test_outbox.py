"""Replies on their way out: tried again, held for the person, parked where people see it, and sent once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest

from harken.dispatch.outbox import GIVE_UP_AFTER, Outbox, retry_delay
from harken.errors import Forbidden, HarkenError, NeedsPerson, Unavailable, Uncertain, UserError
from harken.model import WATCH, OutgoingReply, Sender
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_new_message

QUESTION = a_new_message("is it done?", sender=Sender("anna"))


class Service:
    """Takes replies, or says why not."""

    def __init__(self) -> None:
        self.trouble: HarkenError | None = None
        self.fault: Exception | None = None
        self.sent: list[str] = []
        self.tried: list[datetime | None] = []
        self.is_stuck = False
        self.hands_over = True
        self.reached = anyio.Event()

    async def send(self, reply: OutgoingReply) -> str:
        """Take a reply."""
        self.tried.append(reply.tried_at)
        if self.hands_over:
            await reply.hand_over()
        self.reached.set()
        if self.is_stuck:
            await anyio.sleep_forever()
        if self.fault is not None:
            raise self.fault
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
        (row,) = await self.store.outbox.list()
        return row.state, row.error


@asynccontextmanager
async def answered(folder: Path) -> AsyncIterator[Round]:
    """Answer a message."""
    clock = FakeClock()
    async with open_store(folder / "harken.db", clock) as store:
        message = (await store.messages.append([QUESTION]))[0].message
        await store.outbox.add(message.id, "it is", author="agent:x", consumer=WATCH)
        yield Round(store, clock)


async def test_reply_waits_for_the_person_and_leaves_when_they_have_acted(tmp_path: Path) -> None:
    """A sign-in that ends overnight must not cost the answers of that night."""
    async with answered(tmp_path) as way:
        way.service.trouble = NeedsPerson("The sign-in has ended.", "Sign in.", action="sign in")
        for _ in range(40):
            await way.outbox.send_due("teams")
            way.clock.advance(60)
        assert await way.state() == ("queued", "The sign-in has ended.")
        way.service.trouble = None
        await way.outbox.send_due("teams")
        assert (await way.state())[0] == "sent"
        assert way.service.sent == ["it is"]


async def test_reply_that_waits_for_the_person_for_days_is_parked(tmp_path: Path) -> None:
    """Nobody wants an answer to go out weeks later by itself."""
    async with answered(tmp_path) as way:
        way.service.trouble = NeedsPerson("The sign-in has ended.")
        way.clock.advance((GIVE_UP_AFTER + timedelta(minutes=1)).total_seconds())
        await way.outbox.send_due("teams")
        assert (await way.state())[0] == "parked"


@pytest.mark.parametrize("trouble", [Forbidden("no such chat"), UserError("too long")])
async def test_what_can_never_be_sent_is_parked_with_the_reason(tmp_path: Path, trouble: HarkenError) -> None:
    """Trying again cannot help: people must see it."""
    async with answered(tmp_path) as way:
        way.service.trouble = trouble
        await way.outbox.send_due("teams")
        assert await way.state() == ("parked", trouble.message)


async def test_service_that_is_away_for_a_day_costs_nothing(tmp_path: Path) -> None:
    """A laptop that was closed for the night sends its answers in the morning; after days nobody wants them."""
    async with answered(tmp_path) as way:
        way.service.trouble = Unavailable("down")
        for _ in range(24):
            await way.outbox.send_due("teams")
            assert (await way.state())[0] == "queued"
            way.clock.advance(3_600)
        way.clock.advance(GIVE_UP_AFTER.total_seconds())
        await way.outbox.send_due("teams")
        assert await way.state() == ("parked", "down")


async def test_sender_is_told_of_a_try_that_may_have_been_sent(tmp_path: Path) -> None:
    """After a crash, or an answer that got lost, it has to look before it sends again."""
    async with answered(tmp_path) as way:
        began = way.clock.now()
        way.service.trouble = Uncertain("no answer came")
        await way.outbox.send_due("teams")
        way.clock.advance(600)
        # What happens now says nothing about what happened then.
        way.service.trouble = Unavailable("down")
        way.service.hands_over = False
        await way.outbox.send_due("teams")
        way.clock.advance(600)
        way.service.trouble = None
        await way.outbox.send_due("teams")
        assert way.service.tried == [None, began, began]


async def test_try_that_surely_failed_is_forgotten(tmp_path: Path) -> None:
    """Whoever is told to wait by the service need not look for what it refused."""
    async with answered(tmp_path) as way:
        way.service.trouble = Unavailable("too many requests")
        await way.outbox.send_due("teams")
        way.clock.advance(600)
        way.service.trouble = None
        await way.outbox.send_due("teams")
        assert way.service.tried == [None, None]


async def test_kill_while_it_is_sent_is_known_afterwards(tmp_path: Path) -> None:
    """The note is in the store before anything leaves."""
    async with answered(tmp_path) as way:
        way.service.is_stuck = True
        with anyio.move_on_after(0.2):
            await way.outbox.send_due("teams")
        way.service.is_stuck = False
        await Outbox(way.store, {"teams": way.service}, way.clock).send_due("teams")
        assert way.service.tried == [None, way.clock.now()]


async def test_source_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """An answer to a mail must not wait for a chat whose service does not answer."""
    async with answered(tmp_path) as way:
        new = replace(QUESTION, source="mail")
        message = (await way.store.messages.append([new]))[0].message
        way.service.is_stuck = True
        mail = Service()
        outbox = Outbox(way.store, {"teams": way.service, "mail": mail}, way.clock)
        async with anyio.create_task_group() as tasks:
            for lane in outbox.lanes:
                tasks.start_soon(outbox.run, lane)
            with anyio.fail_after(20):
                await way.service.reached.wait()
                await way.store.outbox.add(message.id, "by mail", author="agent:x", consumer=WATCH)
                await mail.reached.wait()
            tasks.cancel_scope.cancel()
        assert mail.sent == ["by mail"]


async def test_reply_to_a_source_that_is_gone_is_parked(tmp_path: Path) -> None:
    """Whoever takes a source out of the configuration sees what it still had to send."""
    async with answered(tmp_path) as way:
        await Outbox(way.store, {}, way.clock).send_due()
        assert await way.state() == ("parked", "the source teams cannot be answered")


async def test_try_that_was_cut_short_when_its_source_was_removed_may_have_been_sent(tmp_path: Path) -> None:
    """A person who reads that it was not sent would send it again."""
    async with answered(tmp_path) as round_:
        (row,) = await round_.store.outbox.list()
        await round_.store.outbox.trying(row.id)
        assert await Outbox(round_.store, {}, round_.clock).send_due()
        (row,) = await round_.store.outbox.list()
        assert (row.state, row.tried_at is not None) == ("parked", True)


async def test_sender_whose_code_fails_holds_up_no_other_reply(tmp_path: Path) -> None:
    """A source may be another package's: its fault is shown at the reply, which may have been sent."""
    async with answered(tmp_path) as round_:
        round_.service.fault = KeyError("thread")
        assert await round_.outbox.send_due("teams")
        assert await round_.state() == ("parked", "The source teams has failed: KeyError: 'thread'.")
        (row,) = await round_.store.outbox.list()
        assert row.tried_at is not None


async def test_source_that_is_not_ready_keeps_its_replies(tmp_path: Path) -> None:
    """It may be off for an afternoon, or wait for a certificate: what was answered leaves when it is back."""
    async with answered(tmp_path) as way:
        away = Outbox(way.store, {}, way.clock, expected={"teams"})
        await away.send_due()
        assert await way.state() == ("queued", "the source teams is not ready")
        way.clock.advance(120)
        await way.outbox.send_due("teams")
        assert (await way.state())[0] == "sent"


async def test_answers_of_a_conversation_keep_their_order(tmp_path: Path) -> None:
    """The second says that it is done; before the first, which says that it begins, it makes no sense."""
    async with answered(tmp_path) as way:
        message = (await way.store.messages.append([replace(QUESTION, conversation="c")]))[0].message
        for body in ("I begin", "it is done"):
            await way.store.outbox.add(message.id, body, author="agent:x", consumer=WATCH)
        way.service.trouble = Unavailable("down")
        await way.outbox.send_due("teams")
        # The one outside and the first of the two: the second was not even tried.
        assert len(way.service.tried) == 2
        way.service.trouble = None
        way.clock.advance(1)
        await way.outbox.send_due("teams")
        assert way.service.sent == []
        way.clock.advance(60)
        while await way.outbox.send_due("teams"):
            pass
        assert way.service.sent == ["it is", "I begin", "it is done"]


def test_no_delay_is_longer_than_the_store_knows() -> None:
    """One that is would count as due at once."""
    assert retry_delay(0, 86_400) <= timedelta(hours=1)


async def test_what_may_have_been_sent_is_still_known_when_it_is_parked(tmp_path: Path) -> None:
    """Whoever has it tried again must have it looked for first."""
    async with answered(tmp_path) as way:
        way.service.trouble = Uncertain("no answer came")
        await way.outbox.send_due("teams")
        way.clock.advance((GIVE_UP_AFTER + timedelta(minutes=1)).total_seconds())
        await way.outbox.send_due("teams")
        [row] = await way.store.outbox.list(state="parked")
        assert row.tried_at is not None
