"""The part of the store suite about conversations: what belongs together, what the person did, and what brings it back.

One test, or more, for each sentence of `store/contract/conversations.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from harken.errors import NotFound
from harken.model import (
    INBOX,
    OWNER_ID,
    REPLIES,
    WATCH,
    Attention,
    Mailbox,
    MessageId,
    MessageKind,
    NewMessage,
    Reader,
    Sender,
    SessionKey,
    Trust,
)
from harken.store.contract import Store
from harken.store.contract.conversations import (
    ConversationKey,
    ConversationState,
    ConversationSummary,
    ConversationView,
    Triage,
    TriageResult,
)
from harken.store.contract.retention import Limits
from harken.store.contract.timeline import TimelineScope
from harken.testing import FakeClock
from tests.contracts.store_suite import TASK, Journal, StoreSuite, new_message

MANY = 50
CHAT = ConversationKey(source="teams", thread="chat")
PERSON = Reader(consumer=WATCH, session=SessionKey(""))
BUILD = ConversationKey(source="ci", thread="build")


def said(text: str, key: ConversationKey = CHAT, *, mailbox: Mailbox = INBOX) -> NewMessage:
    """Return a message of a conversation as ingest would hand it over."""
    return replace(new_message(text, mailbox=mailbox), source=key.source, thread=key.thread)


def own(text: str, thread: str) -> NewMessage:
    """Return what the person wrote on this machine."""
    by_you = said(text, ConversationKey(source="local", thread=thread))
    return replace(by_you, sender=Sender(OWNER_ID, "you"), trust=Trust.OWNER)


async def listed(
    store: Store, clock: FakeClock, view: ConversationView = ConversationView.OPEN, *, before: int = 0
) -> Sequence[ConversationSummary]:
    """Return what a view shows."""
    return await store.conversations.list(view, MANY, at=clock.now(), before=before)


async def threads(store: Store, clock: FakeClock, view: ConversationView = ConversationView.OPEN) -> list[str]:
    """Return the threads that a view shows."""
    return [each.key.thread for each in await listed(store, clock, view)]


async def stored(store: Store, *messages: NewMessage) -> list[MessageId]:
    """Append messages; return their ids."""
    return [each.message.id for each in await store.messages.append(list(messages))]


async def put(
    store: Store, message: MessageId, state: ConversationState, until: datetime | None = None
) -> TriageResult:
    """Do something about the conversation of a message, up to that message."""
    [found] = await store.conversations.triage([Triage(message=message, state=state, until=until)])
    return found


class ConversationSuite(StoreSuite):
    """Conversations, from the first message until the person is done with them."""

    async def test_messages_of_a_thread_are_one_conversation_with_the_newest_first(
        self, store: Store, clock: FakeClock
    ) -> None:
        """An alert that repeats, or a chat, is one thing to decide about; the same thread elsewhere is another."""
        other = replace(CHAT, source="mail")
        await store.messages.append([said("one"), said("built", BUILD), said("two"), said("letter", other)])
        await store.messages.append([replace(said("alone"), thread=""), replace(said("apart"), thread="")])
        found = await listed(store, clock)
        assert [(each.newest.text, each.count, each.unread) for each in found] == [
            ("apart", 1, 1),
            ("alone", 1, 1),
            ("letter", 1, 1),
            ("two", 2, 2),
            ("built", 1, 1),
        ]
        following = await listed(store, clock, before=found[2].position)
        assert [each.newest.text for each in following] == ["two", "built"]
        assert [each.key.thread for each in found[:2]] == [each.newest.id for each in found[:2]]

    async def test_mail_of_tasks_and_edits_are_in_no_conversation(self, store: Store, clock: FakeClock) -> None:
        """What an agent is told is its own to read; a corrected word is nothing to decide about again."""
        task, word = await stored(store, said("for the agent", mailbox=TASK), said("word"))
        await put(store, word, ConversationState.DONE)
        await store.messages.append([replace(said("wort"), kind=MessageKind.EDIT)])
        assert await threads(store, clock) == []
        [done] = await listed(store, clock, ConversationView.DONE)
        assert (done.newest.text, done.count) == ("word", 1)
        with pytest.raises(NotFound, match="none of your conversations"):
            await put(store, task, ConversationState.DONE)

    async def test_done_stays_away_until_somebody_else_writes(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Being done with something must not hide what is said later."""
        [first] = await stored(store, said("one"))
        assert (await put(store, first, ConversationState.DONE)).was.state is ConversationState.OPEN
        assert (await put(store, first, ConversationState.DONE)).was.state is ConversationState.DONE
        assert (await threads(store, clock), await threads(store, clock, ConversationView.DONE)) == ([], ["chat"])
        assert [event.data for event in journal.of("triage")] == [{"message_id": first, "state": "done", "until": None}]
        await store.messages.append([said("two")])
        assert (await threads(store, clock), await threads(store, clock, ConversationView.DONE)) == (["chat"], [])

    @pytest.mark.parametrize("state", [ConversationState.DONE, ConversationState.SNOOZED])
    async def test_what_came_after_the_message_that_was_named_is_not_covered(
        self, store: Store, clock: FakeClock, state: ConversationState
    ) -> None:
        """A list is older than what arrived while it was looked at: nobody has decided about that."""
        shown, newer = await stored(store, said("shown"), said("newer"))
        until = clock.now() + timedelta(hours=1) if state is ConversationState.SNOOZED else None
        told = await put(store, shown, state, until)
        assert (told.now.state, told.now.newest.id) == (ConversationState.OPEN, newer)
        [left] = await listed(store, clock)
        assert left.unread == (1 if state is ConversationState.DONE else 2)
        assert (await put(store, newer, state, until)).now.state is state

    async def test_reading_covers_what_was_named_only(self, store: Store, clock: FakeClock) -> None:
        """What nobody has looked at must not count as seen."""
        shown, _ = await stored(store, said("shown"), said("newer"))
        [left] = await store.conversations.mark([shown], is_unread=False)
        assert (left.unread, left.is_marked) == (1, False)
        assert await threads(store, clock, ConversationView.UNREAD) == ["chat"]

    async def test_list_that_was_drawn_earlier_brings_nothing_back(self, store: Store, clock: FakeClock) -> None:
        """Of two windows one knows more. What is done is done there; what was put off there is still to come."""
        older, newer = await stored(store, said("one"), said("two"))
        await put(store, newer, ConversationState.DONE)
        assert (await put(store, older, ConversationState.DONE)).now.state is ConversationState.DONE
        later = clock.now() + timedelta(hours=1)
        await put(store, newer, ConversationState.SNOOZED, later)
        assert (await put(store, older, ConversationState.DONE)).now.state is ConversationState.OPEN

    async def test_one_that_cannot_be_found_changes_none(self, store: Store, clock: FakeClock) -> None:
        """Half of what was asked for would have to be found out again."""
        message, task = await stored(store, said("one"), said("for the agent", mailbox=TASK))
        orders = [Triage(message=each, state=ConversationState.DONE) for each in (message, task)]
        with pytest.raises(NotFound):
            await store.conversations.triage(orders)
        assert [(each.key, each.unread) for each in await listed(store, clock)] == [(CHAT, 1)]

    async def test_snoozed_comes_back_when_its_time_has_come_or_something_is_said(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Both are promised where it is put off; until then it is in a list of its own, what is due first first."""
        left = said("left", replace(CHAT, thread="left"))
        chat, build, _ = await stored(store, said("one"), said("built", BUILD), left)
        soon, later = clock.now() + timedelta(hours=1), clock.now() + timedelta(hours=2)
        await put(store, chat, ConversationState.SNOOZED, later)
        await put(store, build, ConversationState.SNOOZED, soon)
        assert await threads(store, clock, ConversationView.SNOOZED) == ["build", "chat"]
        assert await self._counts(store, clock) == (1, 2, soon)
        clock.advance(3_600)
        assert await threads(store, clock) == ["build", "left"]
        assert await threads(store, clock, ConversationView.SNOOZED) == ["chat"]
        assert await self._counts(store, clock) == (2, 1, later)
        await store.messages.append([said("two")])
        assert await threads(store, clock) == ["build", "chat", "left"]
        [found] = [each for each in await listed(store, clock) if each.key == CHAT]
        assert (found.state, found.until) == (ConversationState.OPEN, None)

    async def test_what_comes_back_is_unread_and_for_you_and_told_once(self, store: Store, clock: FakeClock) -> None:
        """You wanted to be reminded: a line that looks as if it had been read would remind nobody."""
        quiet = replace(said("built", BUILD), attention=Attention.PROMPT)
        [build] = await stored(store, quiet)
        await store.conversations.mark([build], is_unread=False)
        await put(store, build, ConversationState.SNOOZED, clock.now() + timedelta(hours=1))
        parts = (ConversationView.UNREAD, ConversationView.FOR_YOU)
        assert [await threads(store, clock, view) for view in parts] == [[], []]
        assert await store.conversations.take_returned(clock.now(), MANY) == []
        clock.advance(3_600)
        assert [await threads(store, clock, view) for view in parts] == [["build"], ["build"]]
        assert [each.key for each in await store.conversations.take_returned(clock.now(), MANY)] == [BUILD]
        assert await store.conversations.take_returned(clock.now(), MANY) == []
        await store.conversations.mark([build], is_unread=False)
        assert [await threads(store, clock, view) for view in parts] == [[], ["build"]]

    async def test_pages_go_on_behind_what_has_come_back(self, store: Store, clock: FakeClock) -> None:
        """Several that are put off together come back together: none may be lost between two pages."""
        keys = [replace(CHAT, thread=str(number)) for number in range(6)]
        messages = await stored(store, *(said("text", key) for key in keys))
        for message in messages[:4]:
            await put(store, message, ConversationState.SNOOZED, clock.now() + timedelta(hours=1))
        for view, expected in ((ConversationView.SNOOZED, "0123"), (ConversationView.OPEN, "321054")):
            shown, before = "", 0
            while part := await store.conversations.list(view, 2, at=clock.now(), before=before):
                shown, before = shown + "".join(each.key.thread for each in part), part[-1].position
            assert shown == expected
            clock.advance(3_600)

    async def test_what_the_person_writes_is_sent_and_brings_nothing_back(self, store: Store, clock: FakeClock) -> None:
        """A list of what to decide about does not hold one's own words; an answer to them does come."""
        await store.messages.append([own("do it", "order"), said("one")])
        assert (await threads(store, clock), await threads(store, clock, ConversationView.SENT)) == (
            ["chat"],
            ["order"],
        )
        [answer] = await stored(store, said("done", ConversationKey(source="local", thread="order"), mailbox=REPLIES))
        assert await threads(store, clock) == ["order", "chat"]
        await put(store, answer, ConversationState.DONE)
        await store.messages.append([own("thanks", "order")])
        assert await threads(store, clock) == ["chat"]

    async def test_what_the_person_writes_elsewhere_brings_nothing_back(self, store: Store, clock: FakeClock) -> None:
        """Who answers in the chat itself, on a phone, has dealt with it; the source knows its own account."""
        [message] = await stored(store, said("one"))
        await put(store, message, ConversationState.DONE)
        await store.messages.append([replace(said("my answer"), author=WATCH)])
        await store.messages.append([replace(said("my letter", BUILD), trust=Trust.OWNER)])
        assert await threads(store, clock) == []
        assert await threads(store, clock, ConversationView.SENT) == ["build"]
        [done] = await listed(store, clock, ConversationView.DONE)
        assert (done.newest.text, done.count, done.unread) == ("my answer", 2, 0)

    async def test_undo_puts_back_what_was_and_leaves_what_came_since(self, store: Store, clock: FakeClock) -> None:
        """It takes back what you did, and nothing that others did."""
        sent, one = await stored(store, own("do it", "order"), said("one"))
        for message, state in ((sent, ConversationState.SENT), (one, ConversationState.OPEN)):
            assert (await put(store, message, ConversationState.DONE)).was.state is state
        await store.messages.append([said("two")])
        back = [
            Triage(message=sent, state=ConversationState.SENT, is_unread=False),
            Triage(message=one, state=ConversationState.OPEN, is_unread=True),
        ]
        states = [each.now.state for each in await store.conversations.triage(back)]
        assert states == [ConversationState.SENT, ConversationState.OPEN]
        assert [(each.unread, each.is_marked) for each in await listed(store, clock)] == [(1, True)]

    async def test_unread_is_what_the_person_has_not_seen_or_marked(self, store: Store, clock: FakeClock) -> None:
        """The mark is for what has to be read once more; being done ends it."""
        chat, _ = await stored(store, said("one"), said("built", BUILD))
        await store.deliveries.acknowledge(PERSON, [chat], "page")
        assert await threads(store, clock, ConversationView.UNREAD) == ["build"]
        for _ in range(2):
            assert [each.is_marked for each in await store.conversations.mark([chat], is_unread=True)] == [True]
        assert await threads(store, clock, ConversationView.UNREAD) == ["build", "chat"]
        await store.conversations.mark([chat], is_unread=False)
        assert await threads(store, clock, ConversationView.UNREAD) == ["build"]
        await store.conversations.mark([chat], is_unread=True)
        await put(store, chat, ConversationState.DONE)
        await put(store, chat, ConversationState.OPEN)
        assert await threads(store, clock, ConversationView.UNREAD) == ["build"]

    async def test_looking_at_a_part_of_a_thread_sees_that_part_and_ends_the_mark(
        self, store: Store, clock: FakeClock
    ) -> None:
        """What is below the screen was not looked at."""
        first, _ = await stored(store, said("one"), said("two"))
        await store.conversations.mark([first], is_unread=True)
        part = await store.timeline.part(TimelineScope(source=CHAT.source, thread=CHAT.thread), MANY)
        up_to = part.lines[0][0]
        for expected in (1, 0):
            assert await store.conversations.see(CHAT, since=0, up_to=up_to, evidence="page") == expected
        [found] = await listed(store, clock)
        assert (found.unread, found.is_marked) == (1, False)

    async def test_for_you_are_answers_questions_and_people_who_may_wake(self, store: Store, clock: FakeClock) -> None:
        """What a machine announces is for agents first; what a person wants of you is not."""
        built = replace(said("built", BUILD), attention=Attention.PROMPT)
        quiet = [built, replace(said("spam", replace(CHAT, thread="spam")), trust=Trust.UNKNOWN)]
        asked = replace(said("how?", replace(BUILD, thread="asked")), attention=Attention.PROMPT, is_question=True)
        answer = said("so", ConversationKey(source="local", thread="order"), mailbox=REPLIES)
        waking = said("hello")
        await store.messages.append([*quiet, asked, answer, waking])
        assert await threads(store, clock, ConversationView.FOR_YOU) == ["chat", "order", "asked"]
        assert [each.key.thread for each in await listed(store, clock) if each.is_asked] == ["asked"]

    async def test_retention_takes_messages_out_of_their_conversation(self, store: Store, clock: FakeClock) -> None:
        """A conversation without a message would be a line that says nothing."""
        made = await store.messages.append([said("one"), said("two"), said("built", BUILD)])
        await store.deliveries.acknowledge(PERSON, [each.message.id for each in made], "page")
        await put(store, made[1].message.id, ConversationState.DONE)
        await put(store, made[1].message.id, ConversationState.OPEN)
        await store.retention.prune(Limits(max_count=2, max_age_seconds=1e9, expired_stays_seconds=0))
        assert [(each.key, each.count) for each in await listed(store, clock)] == [(BUILD, 1), (CHAT, 1)]
        await store.retention.prune(Limits(max_count=1, max_age_seconds=1e9, expired_stays_seconds=0))
        assert [(each.key, each.count) for each in await listed(store, clock)] == [(BUILD, 1)]

    async def test_retention_leaves_what_you_did_about_a_conversation_that_goes_on(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Your own word brings nothing back, also when what it follows is deleted right after you said it."""
        [first] = await stored(store, said("one"))
        await put(store, first, ConversationState.DONE)
        await stored(store, replace(said("mine"), author=WATCH))
        await store.retention.prune(Limits(max_count=1, max_age_seconds=1e9, expired_stays_seconds=0))
        done = await listed(store, clock, ConversationView.DONE)
        assert [(each.key, each.count, each.newest.text) for each in done] == [(CHAT, 1, "mine")]

    async def test_timeline_of_a_thread_has_its_messages_of_all_mailboxes(self, store: Store) -> None:
        """A question in the inbox and its answer in another mailbox are read together."""
        scope = TimelineScope(source=CHAT.source, thread=CHAT.thread)
        made = await store.messages.append([said("one"), said("built", BUILD), said("two", mailbox=REPLIES)])
        part = await store.timeline.part(scope, MANY)
        assert [message.text for _, message in part.lines] == ["one", "two"]
        older = await store.timeline.part(scope, 1)
        assert ([message.text for _, message in older.lines], older.has_older) == (["two"], True)
        following = await store.timeline.part(scope, MANY, after=part.lines[0][0])
        assert [message.text for _, message in following.lines] == ["two"]
        assert await store.timeline.unseen(scope, part.newest, MANY) == [made[0].message.id, made[2].message.id]

    async def _counts(self, store: Store, clock: FakeClock) -> tuple[int, int, datetime | None]:
        found = await store.conversations.counts(clock.now())
        by_state = found.by_state
        return by_state[ConversationState.OPEN], by_state[ConversationState.SNOOZED], found.next_due
