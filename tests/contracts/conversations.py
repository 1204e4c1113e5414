"""The part of the store suite about conversations: what belongs together, what the person did, and what brings it back.

One test, or more, for each sentence of `store/contract/conversations.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from harken.model import (
    INBOX,
    OWNER_ID,
    REPLIES,
    WATCH,
    Attention,
    Mailbox,
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
        await store.messages.append([said("for the agent", mailbox=TASK), said("word")])
        await store.conversations.put([CHAT], ConversationState.DONE)
        await store.messages.append([replace(said("wort"), kind=MessageKind.EDIT)])
        assert await threads(store, clock) == []
        [done] = await listed(store, clock, ConversationView.DONE)
        assert (done.newest.text, done.count) == ("word", 1)
        tasks = [each.message.id for each in await store.messages.append([said("again", mailbox=TASK)])]
        assert await store.conversations.of(tasks) == {}

    async def test_done_stays_away_until_somebody_else_writes(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Being done with something must not hide what is said later."""
        [first] = await store.messages.append([said("one")])
        assert await store.conversations.put([CHAT, BUILD], ConversationState.DONE) == 1
        assert await store.conversations.put([CHAT], ConversationState.DONE) == 0
        assert (await threads(store, clock), await threads(store, clock, ConversationView.DONE)) == ([], ["chat"])
        assert [event.data for event in journal.of("triage")] == [
            {"message_id": first.message.id, "state": "done", "until": None}
        ]
        await store.messages.append([said("two")])
        assert (await threads(store, clock), await threads(store, clock, ConversationView.DONE)) == (["chat"], [])

    async def test_snoozed_comes_back_when_its_time_has_come_or_something_is_said(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Both are promised where it is put off; until then it is in a list of its own, what is due first first."""
        await store.messages.append([said("one"), said("built", BUILD), said("left", replace(CHAT, thread="left"))])
        soon, later = clock.now() + timedelta(hours=1), clock.now() + timedelta(hours=2)
        await store.conversations.put([CHAT], ConversationState.SNOOZED, until=later)
        await store.conversations.put([BUILD], ConversationState.SNOOZED, until=soon)
        assert await threads(store, clock, ConversationView.SNOOZED) == ["build", "chat"]
        assert await self._counts(store, clock) == (1, 2, soon)
        clock.advance(3_600)
        assert await threads(store, clock) == ["build", "left"]
        assert await threads(store, clock, ConversationView.SNOOZED) == ["chat"]
        assert await self._counts(store, clock) == (2, 1, later)
        await store.messages.append([said("two")])
        assert await threads(store, clock) == ["build", "chat", "left"]
        [chat] = [each for each in await listed(store, clock) if each.key == CHAT]
        assert (chat.state, chat.until) == (ConversationState.OPEN, None)

    async def test_what_the_person_writes_is_sent_and_brings_nothing_back(self, store: Store, clock: FakeClock) -> None:
        """A list of what to decide about does not hold one's own words; an answer to them does come."""
        await store.messages.append([own("do it", "order"), said("one")])
        assert (await threads(store, clock), await threads(store, clock, ConversationView.SENT)) == (
            ["chat"],
            ["order"],
        )
        answer = said("done", ConversationKey(source="local", thread="order"), mailbox=REPLIES)
        await store.messages.append([answer])
        assert await threads(store, clock) == ["order", "chat"]
        order = ConversationKey(source="local", thread="order")
        await store.conversations.put([order], ConversationState.DONE)
        await store.messages.append([own("thanks", "order")])
        assert await threads(store, clock) == ["chat"]

    async def test_unread_is_what_the_person_has_not_seen_or_marked(self, store: Store, clock: FakeClock) -> None:
        """The mark is for what has to be read once more; being done ends it."""
        made = await store.messages.append([said("one"), said("built", BUILD)])
        await store.deliveries.acknowledge(PERSON, [made[0].message.id], "page")
        assert await threads(store, clock, ConversationView.UNREAD) == ["build"]
        assert await store.conversations.mark([CHAT], is_unread=True) == 1
        assert await store.conversations.mark([CHAT], is_unread=True) == 0
        assert await threads(store, clock, ConversationView.UNREAD) == ["build", "chat"]
        await store.conversations.mark([CHAT], is_unread=False)
        assert await threads(store, clock, ConversationView.UNREAD) == ["build"]
        await store.conversations.mark([CHAT], is_unread=True)
        await store.conversations.put([CHAT], ConversationState.DONE)
        await store.conversations.put([CHAT], ConversationState.OPEN)
        assert await threads(store, clock, ConversationView.UNREAD) == ["build"]

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
        await store.retention.prune(Limits(max_count=2, max_age_seconds=1e9, expired_stays_seconds=0))
        assert [(each.key, each.count) for each in await listed(store, clock)] == [(BUILD, 1), (CHAT, 1)]
        await store.retention.prune(Limits(max_count=1, max_age_seconds=1e9, expired_stays_seconds=0))
        assert [(each.key, each.count) for each in await listed(store, clock)] == [(BUILD, 1)]

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
