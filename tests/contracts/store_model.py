"""The store against a model of it that is too simple to be wrong: lists, sets and the sentences of the contract.

`Model` is written from the docstrings of `store/contract` alone. `Machine` lets both live through the same random
story and compares them after every step. It needs no fixtures; `store.py` runs it for each backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from anyio.from_thread import start_blocking_portal
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harken.model import INBOX, WATCH, Consumer, DeliveryId, Mailbox, Message, MessageId, Priority, Reader, SessionKey
from harken.store.contract import Store
from harken.store.contract.deliveries import Omission, Unread
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_suite import EVERYTHING, LEASE_SECONDS, LONG_SECONDS, TASK, Journal, new_message, waits_for

CONSUMERS: Final = (Consumer("claude-code"), Consumer("copilot-cli"), WATCH)
MAILBOXES: Final = (INBOX, TASK)
CHANNELS: Final = ("", "ci", "mail")
WINDOW_SECONDS: Final = 3600.0

Result = TypeVar("Result")
Account = tuple[Consumer, Mailbox]


@dataclass
class Entry:
    """What one consumer has to do with one message."""

    is_final: bool = False
    is_seen: bool = False
    lease_until: datetime | None = None
    session: SessionKey | None = None
    was_offered: bool = False


@dataclass
class Model:
    """Everything a store knows about deliveries, as plainly as possible."""

    messages: list[Message] = field(default_factory=list)
    entries: dict[tuple[Consumer, MessageId], Entry] = field(default_factory=dict)
    accounts: set[Account] = field(default_factory=set)
    heads: Counter[Mailbox] = field(default_factory=Counter)
    left_out: dict[Account, Omission] = field(default_factory=dict)

    def add(self, message: Message) -> None:
        """Take in a message for everyone who reads its mailbox."""
        self.accounts.add((WATCH, message.mailbox))  # the person reads every mailbox from its beginning
        self.heads[message.mailbox] += 1
        assert message.seq == self.heads[message.mailbox]
        self.messages.append(message)
        for consumer, mailbox in self.accounts:
            if mailbox == message.mailbox:
                self.entries[consumer, message.id] = Entry()

    def enroll(self, consumer: Consumer, mailbox: Mailbox, since: datetime, most: int | None) -> bool:
        """Give a consumer what is recent, not too much, and was seen by no agent."""
        if (consumer, mailbox) in self.accounts:
            return False
        self.accounts.add((consumer, mailbox))
        stored = [message for message in self.messages if message.mailbox == mailbox]
        given = [message for message in stored if message.received_at >= since]
        given = given[max(0, len(given) - most) :] if most is not None else given
        begin = given[0].seq if given else self.heads[mailbox] + 1
        gone = set(range(1, self.heads[mailbox] + 1)) - {message.seq for message in stored}
        begin = max(begin, max(gone, default=0) + 1)
        left = [message for message in stored if message.seq < begin]
        older = sum(message.received_at < since for message in left)
        if left:
            self.left_out[consumer, mailbox] = Omission(older=older, surplus=len(left) - older, up_to=begin - 1)
        for message in stored:
            by_agent = any(
                entry.is_seen for (who, which), entry in self.entries.items() if which == message.id and who != WATCH
            )
            self.entries[consumer, message.id] = Entry(is_final=by_agent or message.seq < begin)
        return True

    def open(self, reader: Reader) -> list[Message]:
        """Return what is not final."""
        return [
            message
            for message in self.messages
            if message.mailbox in reader.mailboxes
            and (reader.consumer, message.mailbox) in self.accounts
            and not self.entries[reader.consumer, message.id].is_final
        ]

    def eligible(self, reader: Reader, now: datetime, channel: str) -> list[Message]:
        """Return what may be offered, in order of receipt."""
        return [
            message
            for message in self.open(reader)
            if (not channel or message.channel == channel)
            and ((lease := self.entries[reader.consumer, message.id].lease_until) is None or lease <= now)
        ]

    def finish(self, consumer: Consumer, message: MessageId, *, is_seen: bool) -> bool:
        """End a delivery; return whether it was open."""
        entry = self.entries[consumer, message]
        if entry.is_final:
            return False
        entry.is_final, entry.is_seen, entry.lease_until = True, is_seen, None
        return True

    def release(self, is_gone: Callable[[SessionKey], bool]) -> None:
        """End the leases of the sessions that are gone."""
        for entry in self.entries.values():
            if entry.session and is_gone(entry.session):
                entry.lease_until = None

    def prune(self, max_count: int) -> tuple[int, set[MessageId]]:
        """Expire what is open; return how many deliveries that were, and what may be deleted."""
        expired, may_go = 0, set[MessageId]()
        for message in self.messages:
            if message.seq <= self.heads[message.mailbox] - max_count:
                readers = [consumer for consumer, mailbox in self.accounts if mailbox == message.mailbox]
                if all(self.entries[consumer, message.id].is_final for consumer in readers):
                    may_go.add(message.id)
                expired += sum(self.finish(consumer, message.id, is_seen=False) for consumer in readers)
        return expired, may_go

    def forget(self, gone: set[MessageId]) -> None:
        """Delete messages."""
        self.messages = [message for message in self.messages if message.id not in gone]
        self.entries = {key: entry for key, entry in self.entries.items() if key[1] not in gone}

    def cursor(self, consumer: Consumer, mailbox: Mailbox) -> int:
        """Return the number before the first that is not final."""
        reader = Reader(consumer=consumer, session=SessionKey(""), mailboxes=(mailbox,))
        return min((message.seq for message in self.open(reader)), default=self.heads[mailbox] + 1) - 1

    def unread(self, reader: Reader, now: datetime) -> Unread:
        """Count what is not final."""
        waiting = self.open(reader)
        leases = [self.entries[reader.consumer, message.id].lease_until for message in waiting]
        return Unread(
            count=len(waiting),
            leased=sum(lease is not None and lease > now for lease in leases),
            oldest=min((message.received_at for message in waiting), default=None),
            by_channel=Counter(message.channel for message in waiting),
        )


sessions = st.sampled_from([SessionKey("s1"), SessionKey("s2")])
readers = st.builds(
    Reader,
    consumer=st.sampled_from(CONSUMERS),
    session=sessions,
    mailboxes=st.sampled_from([(INBOX,), (TASK,), (INBOX, TASK)]),
)


class Machine(RuleBasedStateMachine):
    """A random story that a store and the model live through together."""

    def __init__(self, open_store: Callable[[FakeClock, Journal], AbstractAsyncContextManager[Store]]) -> None:
        super().__init__()
        self.clock, self.journal, self.model = FakeClock(), Journal(), Model()
        self.deliveries: dict[DeliveryId, tuple[Consumer, MessageId]] = {}
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal())
        self.store = self.stack.enter_context(
            self.portal.wrap_async_context_manager(open_store(self.clock, self.journal))
        )

    def teardown(self) -> None:
        """Close the store."""
        self.stack.close()

    def do(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Run one call of the store in its event loop."""
        return self.portal.call(call)

    @initialize()
    def begin(self) -> None:
        """Let one agent read everything, and have some mail to begin with."""
        for mailbox in MAILBOXES:
            self.enroll(CONSUMERS[0], mailbox, None)
            for priority in (Priority.NORMAL, Priority.HIGH, Priority.LOW):
                self.append(mailbox, "ci", priority, None, 1)

    @rule(
        mailbox=st.sampled_from(MAILBOXES),
        channel=st.sampled_from(CHANNELS),
        priority=st.sampled_from(Priority),
        key=st.none() | st.sampled_from([b"a", b"b", b"c"]),
        count=st.integers(1, 3),
    )
    def append(self, mailbox: Mailbox, channel: str, priority: Priority, key: bytes | None, count: int) -> None:
        """Receive some messages."""
        new = [new_message(mailbox=mailbox, channel=channel, priority=priority) for _ in range(count - 1)]
        new.append(new_message(mailbox=mailbox, channel=channel, priority=priority, key=key))
        for appended in self.do(partial(self.store.messages.append, new)):
            if appended.is_new:
                self.model.add(appended.message)

    @rule(
        consumer=st.sampled_from(CONSUMERS),
        mailbox=st.sampled_from(MAILBOXES),
        most=st.none() | st.integers(0, 4),
    )
    def enroll(self, consumer: Consumer, mailbox: Mailbox, most: int | None) -> None:
        """Begin to read a mailbox."""
        since = self.clock.now() - timedelta(seconds=WINDOW_SECONDS)
        is_new = self.do(partial(self.store.deliveries.enroll, consumer, mailbox, since, most=most))
        assert is_new == self.model.enroll(consumer, mailbox, since, most)

    @rule(reader=readers, limit=st.integers(1, 4), channel=st.sampled_from(CHANNELS))
    def offer(self, reader: Reader, limit: int, channel: str) -> None:
        """Hand out some mail."""
        reader = self._enrolled(reader)
        now = self.clock.now()
        until = now + timedelta(seconds=LEASE_SECONDS)
        eligible = self.model.eligible(reader, now, channel)
        assert self.do(partial(self.store.deliveries.peek, reader, 1000, channel=channel)) == eligible
        offers = self.do(
            partial(
                self.store.deliveries.offer,
                reader,
                limit,
                surface="pull",
                carrier="c",
                lease_until=until,
                channel=channel,
            )
        ).whole
        expected = sorted(eligible, key=lambda message: message.priority is not Priority.HIGH)[:limit]
        entries = [self.model.entries[reader.consumer, message.id] for message in expected]
        assert [(each.message, each.is_repeat) for each in offers] == [
            (message, entry.was_offered) for message, entry in zip(expected, entries, strict=True)
        ]
        for each, entry in zip(offers, entries, strict=True):
            self.deliveries[each.delivery_id] = (reader.consumer, each.message.id)
            entry.lease_until, entry.session, entry.was_offered = until, reader.session, True

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def prove(self, data: st.DataObject) -> None:
        """Show that some deliveries arrived."""
        known = st.sampled_from(sorted(self.deliveries))
        chosen = data.draw(st.lists(known | st.just(DeliveryId("unknown")), max_size=4), label="deliveries")
        expected = {
            delivery
            for delivery in sorted(set(chosen) & self.deliveries.keys())
            if self.deliveries[delivery] in self.model.entries
            and self.model.finish(*self.deliveries[delivery], is_seen=True)
        }
        assert {each.id for each in self.do(partial(self.store.deliveries.prove, chosen, "proof"))} == expected

    @precondition(lambda self: self.model.messages)
    @rule(reader=readers, data=st.data())
    def acknowledge(self, reader: Reader, data: st.DataObject) -> None:
        """Say that some messages were read."""
        known = [message for message in self.model.messages if (reader.consumer, message.id) in self.model.entries]
        chosen = data.draw(st.lists(st.sampled_from(known), max_size=3), label="messages") if known else []
        wide = Reader(consumer=reader.consumer, session=reader.session, mailboxes=MAILBOXES)
        ids = [message.id for message in chosen]
        expected = {each for each in ids if self.model.finish(reader.consumer, each, is_seen=True)}
        changed = self.do(partial(self.store.deliveries.acknowledge, wide, ids, "ack"))
        assert {each.message_id for each in changed} == expected

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        """Answer a message."""
        message = data.draw(st.sampled_from(self.model.messages), label="message")
        consumer = CONSUMERS[0]
        self.do(partial(self.store.outbox.add, message.id, "done", author="me", consumer=consumer))
        self.model.finish(consumer, message.id, is_seen=True)
        self.model.entries[consumer, message.id].is_seen = True

    @rule(session=sessions)
    def release(self, session: SessionKey) -> None:
        """Let a session give back its mail."""
        self.do(partial(self.store.deliveries.release, session))
        self.model.release(lambda each: each == session)

    @rule(session=sessions)
    def release_except(self, session: SessionKey) -> None:
        """Let every other session give back its mail."""
        self.do(partial(self.store.deliveries.release_except, [session]))
        self.model.release(lambda each: each != session)

    @rule(seconds=st.sampled_from([1.0, LEASE_SECONDS, WINDOW_SECONDS]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule(max_count=st.integers(1, 4))
    def prune(self, max_count: int) -> None:
        """Apply retention by count."""
        limits = Limits(max_count=max_count, max_age_seconds=LONG_SECONDS)
        pruned = self.do(partial(self.store.retention.prune, limits))
        expired, may_go = self.model.prune(max_count)
        kept = {message.id for message in self.do(partial(self.store.messages.page, EVERYTHING, 1000))}
        gone = {message.id for message in self.model.messages} - kept
        assert gone <= may_go, "deleted although it was open for somebody"
        assert (pruned.expired, pruned.deleted) == (expired, len(gone))
        self.model.forget(gone)

    @invariant()
    def same_accounts(self) -> None:
        """Everything that can be seen is the same on both sides."""
        assert self.do(partial(self.store.messages.page, EVERYTHING, 1000)) == self.model.messages
        states = {(each.consumer, each.mailbox): each for each in self.do(self.store.deliveries.consumers)}
        assert states.keys() == self.model.accounts
        for (consumer, mailbox), state in states.items():
            reader = Reader(consumer=consumer, session=SessionKey("s1"), mailboxes=(mailbox,))
            expected = self.model.unread(reader, self.clock.now())
            counted = self.do(partial(self.store.deliveries.unread, reader, by_channel=True))
            assert counted == expected
            assert (state.unread, state.head) == (expected.count, self.model.heads[mailbox])
            assert state.cursor == self.model.cursor(consumer, mailbox)
            assert state.left_out == self.model.left_out.get((consumer, mailbox), Omission())

    @invariant()
    def same_ledger(self) -> None:
        """The ledger lists as open exactly what is open."""
        for message in self.model.messages:
            assert self.do(partial(waits_for, self.store, message.id)) == {
                consumer
                for (consumer, which), entry in self.model.entries.items()
                if which == message.id and not entry.is_final
            }

    def _enrolled(self, reader: Reader) -> Reader:
        mine = tuple(mailbox for mailbox in reader.mailboxes if (reader.consumer, mailbox) in self.model.accounts)
        if not mine:
            return Reader(consumer=CONSUMERS[0], session=reader.session, mailboxes=reader.mailboxes)
        return Reader(consumer=reader.consumer, session=reader.session, mailboxes=mine)
