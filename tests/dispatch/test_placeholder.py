"""Placeholders: for whom and for how long the place of an answer is held."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from harken.dispatch.outbox import OLDEST, PATIENCE, SETTLED, Placeholders
from harken.errors import Forbidden, HarkenError, Unavailable
from harken.model import (
    INBOX,
    RULES,
    WATCH,
    Consumer,
    Message,
    MessageKind,
    NewMessage,
    Reader,
    SessionKey,
    Trust,
)
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_new_message

SECONDS = 5
AGENT = Consumer("claude-code")
ASKED = a_new_message("is it done?", conversation="c1")


@dataclass
class Chats:
    """Notes what is done to places, or says why it cannot be."""

    done: list[tuple[str, str]] = field(default_factory=list)
    trouble: HarkenError | None = None
    acted: anyio.Event = field(default_factory=anyio.Event)

    async def hold_place(self, message: Message) -> None:
        """Note it."""
        await self._act("hold", message)

    async def leave_place(self, message: Message) -> None:
        """Note it."""
        await self._act("leave", message)

    async def clear_place(self, message: Message, answers: Collection[str]) -> None:
        """Note it; what was sent must be named, so that it stays."""
        assert set(answers) == {"up"}
        await self._act("clear", message)

    async def _act(self, what: str, message: Message) -> None:
        self.done.append((what, message.text))
        self.acted.set()
        if self.trouble is not None:
            raise self.trouble


@dataclass
class Desk:
    """A store, and the loop over it."""

    store: Store
    clock: FakeClock
    chats: Chats = field(default_factory=Chats)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin as a new daemon does."""
        self.loop = Placeholders(self.store, self.clock, {"teams": self.chats})

    async def ask(self, asked: NewMessage = ASKED, *, text: str = "is it done?") -> Message:
        """Let somebody ask something."""
        (appended,) = await self.store.messages.append([replace(asked, text=text)])
        return appended.message

    async def see(self, message: Message, consumer: Consumer = AGENT) -> None:
        """Let a reader see it."""
        reader = Reader(consumer=consumer, session=SessionKey("s"))
        await self.store.deliveries.acknowledge(reader, [message.id], "ack")

    async def reply(self, message: Message, *, is_sent: bool = True) -> None:
        """Answer it."""
        row = await self.store.outbox.add(message.id, "yes", author="agent", consumer=AGENT)
        if is_sent:
            await self.store.outbox.sent(row.id, "up")


@asynccontextmanager
async def open_desk(folder: Path) -> AsyncIterator[Desk]:
    """Open a new store, with a loop that has begun."""
    clock = FakeClock()
    async with open_store(folder / "harken.db", clock) as store:
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        desk = Desk(store, clock)
        await desk.loop.look()
        yield desk


async def test_a_place_is_held_once_an_agent_has_seen_the_message(tmp_path: Path) -> None:
    """Before that nobody works on it; afterwards it is said once."""
    async with open_desk(tmp_path) as desk:
        message = await desk.ask()
        await desk.loop.look()
        assert desk.chats.done == []
        await desk.see(message)
        for _ in range(2):
            await desk.loop.look()
        assert desk.chats.done == [("hold", "is it done?")]


@pytest.mark.parametrize("reader", [WATCH, RULES])
async def test_what_only_a_person_or_a_rule_has_seen_is_not_being_worked_on(tmp_path: Path, reader: Consumer) -> None:
    """Reading one's own chats must not tell others that an agent does something."""
    async with open_desk(tmp_path) as desk:
        await desk.see(await desk.ask(), reader)
        await desk.loop.look()
        assert desk.chats.done == []


@pytest.mark.parametrize(
    "asked",
    [
        replace(ASKED, trust=Trust.UNKNOWN),
        replace(ASKED, source="outlook"),
        replace(ASKED, kind=MessageKind.EDIT),
        replace(ASKED, kind=MessageKind.DELETION),
    ],
    ids=["stranger", "other source", "edit", "deletion"],
)
async def test_no_place_is_held_for_others(tmp_path: Path, asked: NewMessage) -> None:
    """A stranger learns nothing, least of all that an agent reads along."""
    async with open_desk(tmp_path) as desk:
        await desk.see(await desk.ask(asked))
        await desk.loop.look()
        assert desk.chats.done == []


async def test_no_place_is_held_for_what_is_old_or_answered(tmp_path: Path) -> None:
    """Hours later, or after the answer, it would only disturb."""
    async with open_desk(tmp_path) as desk:
        late = await desk.ask(text="late")
        desk.clock.advance((OLDEST + timedelta(seconds=1)).total_seconds())
        answered = await desk.ask(replace(ASKED, conversation="c2"), text="answered")
        fetched_late = replace(ASKED, conversation="c3", sent_at=desk.clock.now() - OLDEST - timedelta(seconds=1))
        fetched = await desk.ask(fetched_late, text="fetched late")
        await desk.reply(answered, is_sent=False)
        for message in (late, answered, fetched):
            await desk.see(message)
        await desk.loop.look()
        assert desk.chats.done == []


async def test_a_conversation_is_told_once_at_a_time(tmp_path: Path) -> None:
    """Five questions in a row must not be met with five times the same sentence."""
    async with open_desk(tmp_path) as desk:
        first, second = await desk.ask(text="first"), await desk.ask(text="second")
        other = await desk.ask(replace(ASKED, conversation="c2"), text="other")
        for message in (first, second, other):
            await desk.see(message)
        await desk.loop.look()
        assert desk.chats.done == [("hold", "first"), ("hold", "other")]
        await desk.reply(first)
        await desk.see(await desk.ask(text="third"))
        await desk.loop.look()
        assert desk.chats.done[2:] == [("hold", "third")]


@pytest.mark.parametrize(("is_sent", "left"), [(True, [("clear", "is it done?")]), (False, [("leave", "is it done?")])])
async def test_a_place_without_an_answer_says_so_in_the_end(
    tmp_path: Path, *, is_sent: bool, left: list[tuple[str, str]]
) -> None:
    """Somebody waits for what was promised; an answer that never left is none."""
    async with open_desk(tmp_path) as desk:
        message = await desk.ask()
        await desk.see(message)
        await desk.loop.look()
        await desk.reply(message, is_sent=is_sent)
        desk.clock.advance(PATIENCE.total_seconds())
        for _ in range(2):
            await desk.loop.look()
        assert desk.chats.done[1:] == left


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_place_is_cleared_once_what_was_put_there_has_settled(tmp_path: Path, *, is_restarted: bool) -> None:
    """A placeholder that shows only after the answer would promise for ever what is there; also after a crash."""
    async with open_desk(tmp_path) as desk:
        message = await desk.ask()
        await desk.see(message)
        await desk.loop.look()
        await desk.reply(message)
        if is_restarted:
            desk.restart()
        await desk.loop.look()
        desk.clock.advance(SETTLED.total_seconds() - 1)
        await desk.loop.look()
        assert desk.chats.done == [("hold", message.text)]
        desk.clock.advance(1)
        for _ in range(2):
            await desk.loop.look()
        assert desk.chats.done[1:] == [("clear", message.text)]


@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_place_whose_answer_is_still_on_its_way_is_cleared_after_it(tmp_path: Path, earlier: int) -> None:
    """It may take the place yet, also when it is not the first: nothing is deleted before it is known where it is."""
    async with open_desk(tmp_path) as desk:
        message = await desk.ask()
        await desk.see(message)
        await desk.loop.look()
        for _ in range(earlier):
            await desk.reply(message)
        row = await desk.store.outbox.add(message.id, "yes", author="agent", consumer=AGENT)
        for _ in range(3):
            await desk.loop.look()
            desk.clock.advance(SETTLED.total_seconds())
        assert desk.chats.done == [("hold", message.text)]
        await desk.store.outbox.sent(row.id, "up")
        await desk.loop.look()
        assert desk.chats.done[1:] == [("clear", message.text)]


@pytest.mark.parametrize(("trouble", "times"), [(Unavailable("down"), 3), (Forbidden("no"), 1)])
async def test_clearing_is_tried_again_where_that_helps(tmp_path: Path, trouble: HarkenError, times: int) -> None:
    """An outage passes, and a refusal stays."""
    async with open_desk(tmp_path) as desk:
        message = await desk.ask()
        await desk.see(message)
        await desk.loop.look()
        await desk.reply(message)
        desk.chats.trouble = trouble
        for _ in range(4):
            await desk.loop.look()
            desk.clock.advance(SETTLED.total_seconds())
        assert desk.chats.done[1:] == [("clear", message.text)] * times
        desk.clock.advance(PATIENCE.total_seconds())
        for _ in range(3):
            await desk.loop.look()
        once_more = 1 if isinstance(trouble, Unavailable) else 0
        assert desk.chats.done[1:] == [("clear", message.text)] * (times + once_more)


async def test_a_place_that_an_ended_daemon_held_is_not_forgotten(tmp_path: Path) -> None:
    """After a crash the chat would say for ever that somebody works."""
    async with open_desk(tmp_path) as desk:
        message, unseen = await desk.ask(), await desk.ask(text="unseen")
        await desk.see(message)
        await desk.loop.look()
        desk.restart()
        await desk.loop.look()
        desk.clock.advance(PATIENCE.total_seconds())
        await desk.loop.look()
        assert desk.chats.done == [("hold", message.text), ("leave", message.text)]
        assert unseen.text not in [text for _, text in desk.chats.done]


async def test_when_the_daemon_stops_every_place_says_that_there_is_no_answer_yet(tmp_path: Path) -> None:
    """Nobody works on it any more until it is started again."""
    async with open_desk(tmp_path) as desk:
        await desk.see(await desk.ask())
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(desk.loop.run)
                await desk.chats.acted.wait()
                group.cancel_scope.cancel()
        assert desk.chats.done == [("hold", "is it done?"), ("leave", "is it done?")]


async def test_a_source_that_cannot_hold_places_now_disturbs_nothing(tmp_path: Path) -> None:
    """It is a courtesy: whatever goes wrong with it, the next message is looked at."""
    async with open_desk(tmp_path) as desk:
        desk.chats.trouble = Unavailable("down")
        await desk.see(await desk.ask())
        await desk.loop.look()
        await desk.see(await desk.ask(replace(ASKED, conversation="c2"), text="next"))
        await desk.loop.look()
        assert desk.chats.done == [("hold", "is it done?"), ("hold", "next")]
