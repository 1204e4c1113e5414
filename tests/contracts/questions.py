"""The part of the store suite about questions: what opens one, what closes it, and how far its reminders got.

One test, or more, for each sentence of `store/contract/questions.py`. `store.py` puts it together with the other parts.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from harken.model import INBOX, RULES, WATCH, Mailbox, MessageId, MessageKind, NewMessage, Reader, Sender, SessionKey
from harken.store.contract import Store
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_suite import AGENT, READER, TASK, Backend, Journal, StoreSuite, new_message, offer

MANY = 100


def asked(
    text: str, conversation: str = "", *, key: bytes | None = None, mailbox: Mailbox = INBOX, source: str = "teams"
) -> NewMessage:
    """Return a question as ingest would hand it over."""
    found = new_message(text, key=key, mailbox=mailbox)
    return replace(found, source=source, conversation=conversation, is_question=True)


async def ask(store: Store, *questions: NewMessage) -> list[MessageId]:
    """Store questions; return their ids."""
    return [each.message.id for each in await store.messages.append(questions)]


async def open_texts(store: Store) -> list[str]:
    """Return what waits for an answer."""
    return [question.message.text for question in await store.questions.open(MANY)]


async def answer(store: Store, message: MessageId) -> None:
    """Answer, and let the answer leave."""
    row = await store.outbox.add(message, "done", author="claude", consumer=AGENT)
    await store.outbox.sent(row.id, "upstream-1")


class QuestionSuite(StoreSuite):
    """Questions, from the asking to the answer."""

    async def test_only_what_expects_an_answer_waits_for_one(self, store: Store, clock: FakeClock) -> None:
        """A build that failed asks nobody; a list full of such things would be read by nobody."""
        await store.messages.append([asked("how?"), new_message("told")])
        [question] = await store.questions.open(MANY)
        assert (question.message.text, question.tried, question.due_at) == ("how?", frozenset(), clock.now())
        assert (question.is_seen, question.has_reply) == (False, False)

    async def test_counts_say_how_much_waits_where_and_since_when(self, store: Store, clock: FakeClock) -> None:
        """It is what people see first: three wait, the oldest for two hours."""
        began = clock.now()
        await ask(store, asked("one"))
        clock.advance(60)
        await ask(store, asked("two"), asked("three", mailbox=TASK))
        counted = [(each.mailbox, each.count, each.oldest) for each in await store.questions.counts()]
        assert counted == [(INBOX, 2, began), (TASK, 1, clock.now())]

    async def test_questions_of_some_mailboxes_come_alone_and_the_oldest_first(
        self, store: Store, clock: FakeClock
    ) -> None:
        """A session is told of what it reads, and the oldest waits longest."""
        await ask(store, asked("task", mailbox=TASK))
        clock.advance(1)
        await ask(store, asked("second"), asked("third"))
        assert [each.message.text for each in await store.questions.open(2)] == ["task", "second"]
        assert [each.message.text for each in await store.questions.open(MANY, mailboxes=[INBOX])] == [
            "second",
            "third",
        ]

    async def test_of_some_messages_those_that_wait_are_found(self, store: Store) -> None:
        """Whoever shows a message says whether it waits, however many others do."""
        first, second = await ask(store, asked("how?"), asked("what?", mailbox=TASK))
        [told] = [each.message.id for each in await store.messages.append([new_message("told")])]
        found = await store.questions.open(MANY, messages=[second, told, MessageId("unknown")])
        assert [each.message.id for each in found] == [second]
        assert await store.questions.open(MANY, messages=[]) == []
        assert await store.questions.open(MANY, mailboxes=[]) == []
        assert await store.questions.open(MANY, mailboxes=[], messages=[second]) == []
        assert await store.questions.open(MANY, mailboxes=[INBOX], messages=[second]) == []
        assert [each.message.id for each in await store.questions.open(MANY, messages=[second, first])] == [
            first,
            second,
        ]

    async def test_question_that_is_repeated_upstream_waits_once(self, store: Store) -> None:
        """Sources yield things again; nobody is asked twice for it, and what was answered stays so."""
        await ask(store, asked("how?", key=b"k"))
        await ask(store, asked("how?", key=b"k"))
        [question] = await store.questions.open(MANY)
        await answer(store, question.message.id)
        await ask(store, asked("how?", key=b"k"))
        assert await open_texts(store) == []

    async def test_question_waits_until_its_answer_has_left(self, store: Store, journal: Journal) -> None:
        """An answer that cannot be sent has reached nobody: whoever asked still waits."""
        [message] = await ask(store, asked("how?"))
        row = await store.outbox.add(message, "so", author="claude", consumer=AGENT)
        assert [each.has_reply for each in await store.questions.open(MANY)] == [True]
        await store.outbox.failed(row.id, "away", due_at=None)
        assert [each.has_reply for each in await store.questions.open(MANY)] == [False]
        await store.outbox.sent(row.id, "u-1")
        assert await open_texts(store) == []
        assert [event.data for event in journal.of("settled")] == [{"message_id": message, "by": "reply"}]

    async def test_answer_settles_what_was_asked_before_in_the_conversation(
        self, store: Store, clock: FakeClock
    ) -> None:
        """People ask in several messages and get one answer; what they ask after it is new."""
        first, second = await ask(store, asked("how", "c"), asked("and when?", "c"))
        await ask(store, asked("elsewhere", "d"), asked("alone"))
        clock.advance(1)
        await ask(store, asked("later", "c"))
        await answer(store, second)
        assert first != second
        assert await open_texts(store) == ["elsewhere", "alone", "later"]

    async def test_conversation_of_another_source_stays_open(self, store: Store) -> None:
        """Two services may name a conversation alike."""
        [message] = await ask(store, asked("teams", "c"))
        await ask(store, asked("mail", "c", source="mail"))
        await answer(store, message)
        assert await open_texts(store) == ["mail"]

    async def test_person_who_answers_upstream_settles_it(self, store: Store) -> None:
        """Many answer in Teams itself; Harken must not remind them of it for hours."""
        await ask(store, asked("how?", "c"), asked("other", "d"))
        await store.messages.append(
            [replace(new_message("like so"), conversation="c", is_answer=True), asked("and then?", "c")]
        )
        assert await open_texts(store) == ["other", "and then?"]

    async def test_question_that_is_deleted_upstream_needs_no_answer(self, store: Store) -> None:
        """Whoever takes a question back does not wait for an answer."""
        await ask(store, asked("how?", key=b"k"))
        await store.messages.append([replace(new_message("gone"), kind=MessageKind.DELETION, refers_key=b"k")])
        assert await open_texts(store) == []

    async def test_person_can_say_that_no_answer_is_needed(self, store: Store, journal: Journal) -> None:
        """Some things are settled by telephone."""
        message, other = await ask(store, asked("how?"), asked("what?"))
        assert await store.questions.settle([message, message, MessageId("unknown")], "the person") == 1
        assert await store.questions.settle([message], "the person") == 0
        assert [question.message.id for question in await store.questions.open(MANY)] == [other]
        assert [event.data for event in journal.of("settled")] == [{"message_id": message, "by": "the person"}]

    async def test_question_says_whether_an_agent_has_seen_it(self, store: Store, clock: FakeClock) -> None:
        """An agent is reminded only of what it was given; that the person looked at it is not that."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        [message] = await ask(store, asked("how?"))
        for consumer in (WATCH, RULES):
            await store.deliveries.acknowledge(Reader(consumer=consumer, session=SessionKey("p")), [message], "looked")
        assert [each.is_seen for each in await store.questions.open(MANY)] == [False]
        [given] = await offer(store, clock, READER)
        assert [each.is_seen for each in await store.questions.open(MANY)] == [False]
        await store.deliveries.prove([given.delivery_id], "ack")
        assert [each.is_seen for each in await store.questions.open(MANY)] == [True]

    async def test_what_is_due_is_decided_once_and_survives_a_restart(
        self, backend: Backend, tmp_path: Path, clock: FakeClock, journal: Journal
    ) -> None:
        """A reminder that is forgotten with every restart comes again with every restart."""
        async with backend(tmp_path, clock, journal) as store:
            first, second = await ask(store, asked("how?"), asked("what?"))
            later = clock.now() + timedelta(minutes=10)
            assert len(await store.questions.due(clock.now(), MANY)) == 2
            assert await store.questions.move([first], due_at=later, way="toast", kind="escalated") == 1
            assert await store.questions.move([second], due_at=later) == 1
            assert await store.questions.due(clock.now(), MANY) == []
        async with backend(tmp_path, clock, journal) as store:
            assert await store.questions.due(clock.now(), MANY) == []
            clock.advance(600)
            due = await store.questions.due(clock.now(), MANY)
            assert [(each.message.id, set(each.tried), each.reminders) for each in due] == [
                (first, {"toast"}, 1),
                (second, set(), 0),
            ]
        assert [event.data for event in journal.of("escalated")] == [{"message_id": first, "how": "toast"}]

    async def test_what_was_answered_meanwhile_is_not_moved(self, store: Store, clock: FakeClock) -> None:
        """Nobody is reminded of what was answered, also when both happen at once."""
        [message] = await ask(store, asked("how?"))
        await answer(store, message)
        assert await store.questions.move([message], due_at=clock.now(), way="agent", kind="reminded") == 0
        assert await open_texts(store) == []

    async def test_ways_that_were_gone_are_remembered(self, store: Store, clock: FakeClock) -> None:
        """Nobody is told twice by the same way, whatever is configured meanwhile."""
        [message] = await ask(store, asked("how?"))
        for way in ("toast", "agent", "toast"):
            await store.questions.move([message], due_at=clock.now(), way=way)
        await store.questions.move([message], due_at=clock.now())
        [question] = await store.questions.open(MANY)
        assert (set(question.tried), question.reminders) == ({"agent", "toast"}, 0)

    async def test_everything_can_be_made_due(self, store: Store, clock: FakeClock) -> None:
        """Settings change, and clocks are set back; what was put off by the old ones must not sleep for ever."""
        far, near = await ask(store, asked("far"), asked("near"))
        await store.questions.move([far], due_at=clock.now() + timedelta(days=400))
        soon = clock.now() + timedelta(hours=1)
        await store.questions.move([near], due_at=soon)
        assert await store.questions.wake(soon) == 1
        assert [each.message.id for each in await store.questions.due(clock.now(), MANY)] == [far]

    async def test_answer_to_somebody_else_leaves_a_question_open(self, store: Store, clock: FakeClock) -> None:
        """Anybody can join a conversation, or name one in a mail: whoever asked there before still waits."""
        await ask(store, asked("from ann", "c"))
        clock.advance(1)
        stranger = replace(asked("from eve", "c"), sender=Sender("eve"))
        [message] = await ask(store, stranger)
        await answer(store, message)
        assert await open_texts(store) == ["from ann"]

    async def test_question_goes_with_its_message(self, store: Store, clock: FakeClock) -> None:
        """What retention has removed cannot be answered any more."""
        await ask(store, asked("old"))
        clock.advance(3600)
        await ask(store, asked("young"))
        for _ in range(3):
            await store.retention.prune(Limits(max_count=MANY, max_age_seconds=60))
        assert await open_texts(store) == ["young"]
