"""The part of the store suite about messages: accepting, finding again, order, dedup and checkpoints."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations, pairwise, takewhile

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.errors import HarkenError, NotFound, UserError
from harken.model import INBOX, Attention, Mailbox, Message, MessageId, MessageKind, NewMessage, Priority, Sender, Trust
from harken.store.contract import Store
from harken.store.contract.messages import Checkpoint, Filter
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_suite import (
    AGENT,
    EVERYTHING,
    LONG_SECONDS,
    READER,
    TASK,
    WAIT_SECONDS,
    Journal,
    StoreSuite,
    fill,
    mentions,
    new_message,
    texts,
)


class AppendSuite(StoreSuite):
    """Accepting messages."""

    async def test_message_is_stored_as_it_was_given(self, store: Store, clock: FakeClock) -> None:
        """Whatever ingest decided must come back unchanged, hostile characters included."""
        new = NewMessage(
            mailbox=TASK,
            source="mail",
            sender=Sender("ann@example.org", "Ann"),
            text="line\n\0'; DROP TABLE x; -- \U0001f600",
            trust=Trust.OWNER,
            attention=Attention.PROMPT,
            channel="alerts/critical",
            conversation="c",
            thread="t",
            kind=MessageKind.EDIT,
            priority=Priority.LOW,
            upstream_id="u",
            sent_at=datetime(2026, 1, 4, 23, 59, 58, 123456, tzinfo=UTC),
            meta={"a": "b", "": ""},
        )
        [appended] = await store.messages.append([new])
        expected = Message(
            id=appended.message.id,
            seq=1,
            received_at=clock.now(),
            **{
                name: getattr(new, name)
                for name in NewMessage.__dataclass_fields__
                if name in Message.__dataclass_fields__
            },
        )
        assert appended.is_new
        assert appended.message == expected
        assert await store.messages.get(expected.id) == expected
        assert await store.messages.page(EVERYTHING, 10) == [expected]

    async def test_sequence_counts_each_mailbox_from_one(self, store: Store) -> None:
        """A reader follows one mailbox by number; another mailbox must not make holes in it."""
        boxes = [INBOX, TASK, INBOX, TASK, INBOX]
        appended = await store.messages.append([new_message(mailbox=box) for box in boxes])
        assert [(each.message.mailbox, each.message.seq) for each in appended] == [
            (INBOX, 1),
            (TASK, 1),
            (INBOX, 2),
            (TASK, 2),
            (INBOX, 3),
        ]

    async def test_known_message_is_not_stored_again(self, store: Store, journal: Journal) -> None:
        """Sources repeat themselves after every restart; the second time must be visible as such and leave no gap."""
        [first] = await store.messages.append([new_message("one", key=b"k")])
        again, fresh = await store.messages.append([new_message("changed", key=b"k"), new_message("two", key=b"l")])
        assert (again.message, again.is_new) == (first.message, False)
        assert (fresh.message.seq, fresh.is_new) == (2, True)
        assert journal.kinds() == ["received", "received"]

    async def test_repetition_inside_one_batch_is_stored_once(self, store: Store) -> None:
        """A source may repeat itself within one page of its feed."""
        first, again = await store.messages.append([new_message("one", key=b"k"), new_message("one", key=b"k")])
        assert [first.is_new, again.is_new] == [True, False]
        assert again.message == first.message
        assert await texts(store) == ["one"]

    async def test_dedup_key_counts_across_mailboxes(self, store: Store) -> None:
        """A changed route must not make an old message new."""
        [first] = await store.messages.append([new_message(key=b"k")])
        [again] = await store.messages.append([new_message(key=b"k", mailbox=TASK)])
        assert (again.message, again.is_new) == (first.message, False)

    async def test_message_without_key_is_always_new(self, store: Store) -> None:
        """Two equal sentences of a person are two messages."""
        appended = await store.messages.append([new_message("hi"), new_message("hi")])
        assert [each.is_new for each in appended] == [True, True]

    async def test_dedup_outlives_retention(self, store: Store, clock: FakeClock) -> None:
        """A source that starts over after a year must not bring back what was deleted."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        [first] = await store.messages.append([new_message("one", key=b"k")])
        await fill(store, "two")
        for _ in range(2):
            await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert await texts(store) == ["two"]
        [again] = await store.messages.append([new_message("one", key=b"k")])
        assert (again.message.id, again.is_new) == (first.message.id, False)
        assert await texts(store) == ["two"]
        [fresh] = await store.messages.append([new_message("three")])
        assert fresh.message.seq == 3

    async def test_reference_to_an_earlier_message_is_its_id(self, store: Store) -> None:
        """An edit names the upstream's message; readers need ours."""
        [first] = await store.messages.append([new_message("one", key=b"k")])
        edit = NewMessage(
            mailbox=INBOX,
            source="teams",
            sender=Sender("ann"),
            text="one!",
            trust=Trust.KNOWN,
            attention=Attention.WAKE,
            kind=MessageKind.EDIT,
            refers_key=b"k",
        )
        [appended] = await store.messages.append([edit])
        assert appended.message.refers_to == first.message.id
        assert (await store.messages.get(appended.message.id)).refers_to == first.message.id

    async def test_checkpoint_is_stored_with_the_messages_before_it(self, store: Store) -> None:
        """After a restart the source continues exactly behind what is stored."""
        assert await store.checkpoints.get("teams", "chat") == ""
        await store.messages.append([new_message()], Checkpoint("teams", "chat", "p1"))
        await store.messages.append([], Checkpoint("teams", "chat", "p2"))
        await store.messages.append([], Checkpoint("teams", "other", "x"))
        assert await store.checkpoints.get("teams", "chat") == "p2"
        assert await store.checkpoints.get("teams", "other") == "x"
        assert await store.checkpoints.get("mail", "chat") == ""

    async def test_batch_that_fails_leaves_nothing(self, store: Store) -> None:
        """A checkpoint without its messages is a loss; a message without its checkpoint arrives twice."""
        poison = new_message("half of a pair: \ud800")
        stored = True
        try:
            await store.messages.append([new_message("good"), poison], Checkpoint("teams", "chat", "p"))
        except HarkenError:
            stored = False
        assert len(await texts(store)) == (2 if stored else 0)
        assert await store.checkpoints.get("teams", "chat") == ("p" if stored else "")
        assert len(await store.events.after(0, 10)) == (2 if stored else 0)
        [fresh] = await store.messages.append([new_message()])
        assert fresh.message.seq == (3 if stored else 1)

    async def test_each_new_message_is_journaled_with_its_text(self, store: Store, journal: Journal) -> None:
        """The journal is the record people keep: it must hold the message itself."""
        appended = await store.messages.append([new_message("one"), new_message("two")])
        assert [event.message for event in journal.of("received")] == [each.message for each in appended]

    async def test_what_a_source_dropped_is_journaled(self, store: Store, journal: Journal) -> None:
        """Dropping is allowed, silence about it is not."""
        await store.messages.append([new_message()], dropped=7)
        await store.messages.append([])
        await store.messages.append([], Checkpoint("teams", "chat", "p"), dropped=8)
        first, second = journal.of("dropped")
        assert mentions(first, 7)
        assert mentions(second, 8)


class AppendConcurrencySuite(StoreSuite):
    """Accepting messages from many sides at once."""

    async def test_concurrent_appends_are_gap_free_and_in_commit_order(self, store: Store) -> None:
        """A reader at `seq > n` must never step over a message that commits later."""
        appenders, rounds = 50, 6
        in_flight, most_in_flight, followed = 0, 0, list[int]()

        async def append(name: int) -> None:
            nonlocal in_flight, most_in_flight
            for each in range(rounds):
                in_flight += 1
                most_in_flight = max(most_in_flight, in_flight)
                await store.messages.append([new_message(f"{name} {each} {half}") for half in "ab"])
                in_flight -= 1

        async def follow() -> None:
            while len(followed) < appenders * rounds * 2:
                after = followed[-1] if followed else 0
                page = await store.messages.page(Filter(mailbox=INBOX, after=after), 7)
                followed.extend(message.seq for message in page)
                await anyio.lowlevel.checkpoint()

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                for name in range(appenders):
                    group.start_soon(append, name)
        assert most_in_flight == appenders
        assert followed == list(range(1, appenders * rounds * 2 + 1))
        order = [text.split() for text in await texts(store)]
        assert [half for _, _, half in order] == ["a", "b"] * (appenders * rounds), "a batch was torn apart"
        for name in range(appenders):
            mine = [int(each) for who, each, half in order if who == str(name) and half == "a"]
            assert mine == list(range(rounds))
        switches = sum(before[0] != after[0] for before, after in pairwise(order))
        assert switches > appenders, "the appenders ran one after the other, so this proved nothing"

    async def test_same_message_from_two_sides_is_stored_once(self, store: Store) -> None:
        """A webhook and a poll of the same source meet often."""
        news = list[bool]()

        async def append() -> None:
            [appended] = await store.messages.append([new_message(key=b"k")])
            news.append(appended.is_new)

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(append)
        assert sorted(news) == [False] * 19 + [True]
        assert len(await texts(store)) == 1

    async def test_failing_call_does_not_hurt_its_neighbours(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Calls that are committed together must not fail together, and the failed ones must leave no trace."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        [first] = await store.messages.append([new_message("first")])
        refused, stored = list[str](), list[int]()

        async def fail_late(name: str) -> None:
            try:
                await store.deliveries.acknowledge(READER, [first.message.id, MessageId("unknown")], name)
            except NotFound:
                refused.append(name)

        async def fail_in_the_middle(name: str) -> None:
            try:
                await store.messages.append([new_message("torn"), new_message("\ud800")])
            except UserError:
                refused.append(name)

        async def append(name: str) -> None:
            [appended] = await store.messages.append([new_message(name)])
            stored.append(appended.message.seq)

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                for each in range(20):
                    for call in (append, fail_late, fail_in_the_middle):
                        group.start_soon(call, f"{each}")
        assert len(refused) == 40
        assert sorted(stored) == list(range(2, 22))
        assert sorted(await texts(store)) == sorted(["first", *(str(n) for n in range(20))])
        assert (await store.deliveries.unread(READER)).count == 21
        assert journal.events == await store.events.after(0, 1000)

    async def test_texts_that_cannot_be_stored_are_refused_each_by_its_own_call(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Alone, as one batch or beside others: what a call is told does not depend on who is committed with it."""
        refused = list[str]()

        async def fail(name: str) -> None:
            with pytest.raises(UserError):
                await store.messages.append([new_message(name), new_message("\ud800")])
            refused.append(name)

        with anyio.fail_after(WAIT_SECONDS):
            await fail("alone")
            async with anyio.create_task_group() as group:
                for each in range(20):
                    group.start_soon(fail, f"{each}")
                group.start_soon(store.deliveries.enroll, AGENT, INBOX, clock.now())
        assert len(refused) == 21
        assert await texts(store) == []

    async def test_cancelled_callers_leave_whole_batches_or_nothing(self, store: Store, journal: Journal) -> None:
        """A caller may go away at any moment, and what it began is done entirely or not at all."""
        begun = 0
        async with anyio.create_task_group() as group:

            async def append(name: int) -> None:
                nonlocal begun
                begun += 1
                if begun == 30:
                    group.cancel_scope.cancel()
                await store.messages.append(
                    [new_message(f"{name} {half}", key=f"{name}{half}".encode()) for half in "ab"]
                )

            for name in range(30):
                group.start_soon(append, name)
        assert group.cancel_scope.cancelled_caught
        [last] = await store.messages.append([new_message("last")])
        page = await store.messages.page(EVERYTHING, 100)
        assert [message.seq for message in page] == list(range(1, last.message.seq + 1))
        names = [message.text.split() for message in page[:-1]]
        assert [half for _, half in names] == ["a", "b"] * (len(names) // 2)
        assert journal.events == await store.events.after(0, 1000)


class FindSuite(StoreSuite):
    """Finding messages again."""

    @pytest.mark.parametrize(
        ("ref", "text"), [("#3", "i3"), ("3", "i3"), ("inbox#3", "i3"), ("task:a#1", "t1"), ("#1", "i1")]
    )
    async def test_message_is_found_by_its_number(self, store: Store, ref: str, text: str) -> None:
        """People and agents name messages the short way."""
        await fill(store, "i1", "i2", "i3")
        await fill(store, "t1", mailbox=TASK)
        assert (await store.messages.get(ref)).text == text

    async def test_message_is_found_by_the_beginning_of_its_id(self, store: Store) -> None:
        """An id is long; its beginning is enough while it fits one, and never guessed when it fits several."""
        for _ in range(4):
            await store.messages.append([new_message() for _ in range(100)])
        page = await store.messages.page(EVERYTHING, 400)
        shared = max((shared_beginning(a.id, b.id) for a, b in combinations(page, 2)), key=len)
        with pytest.raises(UserError):
            await store.messages.get(shared)
        for message in page[:10]:
            others = [shared_beginning(message.id, other.id) for other in page if other != message]
            unique = message.id[: max(5, *(len(each) + 1 for each in others))]
            assert await store.messages.get(unique) == message

    @pytest.mark.parametrize("ref", ["nothing", "#2", "2", "#0", "task:b#1", "%", "_", "inbox#", "#-1", "9" * 40])
    async def test_unknown_reference_is_not_found(self, store: Store, ref: str) -> None:
        """A wildcard, an overflow or a typing error is not a message."""
        await fill(store, "one")
        with pytest.raises(NotFound):
            await store.messages.get(ref)

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        ref=st.text(max_size=12)
        | st.sampled_from(["\ud800", "m-\ud800", "\0"])
        | st.from_regex(r"[a-z]{0,3}#\d{1,30}", fullmatch=True)
        | st.just("#²")
    )
    async def test_any_text_may_be_asked_for(self, store: Store, ref: str) -> None:
        """References are typed by people and models: each is found, unknown or unclear, and never a crash."""
        await fill(store, "one")
        try:
            message = await store.messages.get(ref)
        except (NotFound, UserError):
            return
        assert message.text == "one"

    async def test_page_is_in_order_of_receipt_from_either_end(self, store: Store) -> None:
        """The order of commits is the only one everybody agrees on."""
        await store.messages.append([new_message(str(n), mailbox=TASK if n % 2 else INBOX) for n in range(5)])
        assert await texts(store) == ["0", "1", "2", "3", "4"]
        assert await texts(store, newest_first=True) == ["4", "3", "2", "1", "0"]
        assert await texts(store, limit=2) == ["0", "1"]
        assert await texts(store, limit=2, newest_first=True) == ["4", "3"]

    async def test_mail_of_a_trial_is_listed_only_where_its_mailbox_is_named(self, store: Store) -> None:
        """`doctor --live` sends markers to hosts: they must not stand between what people wrote."""
        trial = Mailbox("trial:one")
        await store.messages.append([new_message("a marker", mailbox=trial), new_message("a word")])
        await store.messages.index(10)
        assert await texts(store) == ["a word"]
        assert await texts(store, where=Filter(mailbox=trial)) == ["a marker"]
        assert await texts(store, where=Filter(among=(trial,))) == ["a marker"]
        assert [each.text for each in await store.messages.search("a", EVERYTHING, 10)] == ["a word"]

    async def test_order_of_receipt_ignores_the_clock(self, store: Store, clock: FakeClock) -> None:
        """A clock that is set back must not sort new mail below old."""
        await fill(store, "one")
        clock.set_back(86400)
        await fill(store, "two")
        assert await texts(store) == ["one", "two"]
        assert await texts(store, newest_first=True) == ["two", "one"]

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (Filter(mailbox="inbox"), ["1", "2", "4"]),
            (Filter(channel="email"), ["2", "3"]),
            (Filter(sender="bob"), ["4"]),
            (Filter(source="mail"), ["3"]),
            (Filter(thread="t"), ["4"]),
            (Filter(mailbox="inbox", after=1), ["2", "4"]),
            (Filter(mailbox="inbox", before=3), ["1", "2"]),
            (Filter(mailbox="inbox", after=1, before=3), ["2"]),
            (Filter(since=datetime(2026, 1, 5, 9, 15, tzinfo=UTC)), ["2", "3", "4"]),
            (Filter(until=datetime(2026, 1, 5, 9, 45, tzinfo=UTC)), ["1", "2"]),
            (Filter(mailbox="inbox", channel="email"), ["2"]),
            (Filter(among=(INBOX,)), ["1", "2", "4"]),
            (Filter(among=()), []),
            (Filter(channel="%"), []),
            (Filter(sender="' OR 1=1 --"), []),
        ],
    )
    async def test_filter_shows_only_what_fits(
        self, store: Store, clock: FakeClock, where: Filter, expected: list[str]
    ) -> None:
        """Each field narrows, an empty one does not, and a value is never a pattern."""
        for text, mailbox, source, sender, channel, thread in [
            ("1", INBOX, "teams", "ann", "", ""),
            ("2", INBOX, "teams", "ann", "email", ""),
            ("3", TASK, "mail", "ann", "email", ""),
            ("4", INBOX, "teams", "bob", "", "t"),
        ]:
            new = NewMessage(
                mailbox=Mailbox(mailbox),
                source=source,
                sender=Sender(sender),
                text=text,
                trust=Trust.KNOWN,
                attention=Attention.WAKE,
                channel=channel,
                thread=thread,
            )
            await store.messages.append([new])
            clock.advance(1800)
        assert await texts(store, where) == expected
        assert await texts(store, where, newest_first=True) == expected[::-1]


class SearchSuite(StoreSuite):
    """Finding messages by their words."""

    async def test_search_finds_all_words_newest_first(self, store: Store) -> None:
        """More words narrow a search; the newest is most likely meant."""
        await fill(store, "deploy failed on staging", "deploy done", "lunch?", "the deploy, it failed!")
        await index_all(store)
        assert await found(store, "deploy") == ["the deploy, it failed!", "deploy done", "deploy failed on staging"]
        assert await found(store, "failed deploy") == ["the deploy, it failed!", "deploy failed on staging"]
        assert await found(store, "deploy", limit=1) == ["the deploy, it failed!"]
        assert await found(store, "deploy lunch") == []

    async def test_words_of_any_language_are_found(self, store: Store) -> None:
        """Not everybody writes in the letters of English, and a server may have been set up for those alone."""
        said = "Привет, мир! Ελλάδα—世界。Die Straße ist „grün“ 😀 x"
        await fill(store, said, "something else")
        await index_all(store)
        for query in ("привет", "МИР", "мир привет", "ελλάδα", "ΕΛΛΆΔΑ", "世界", "straße", "Grün", "grun", "X"):
            assert await found(store, query) == [said], query
        assert await found(store, "привет мирный") == []

    async def test_search_keeps_to_the_filter(self, store: Store) -> None:
        """A search inside a task must not show the person's own mail."""
        await fill(store, "deploy one")
        await fill(store, "deploy two", mailbox=TASK)
        await index_all(store)
        assert await found(store, "deploy", Filter(mailbox=TASK)) == ["deploy two"]
        assert await found(store, "deploy", Filter(among=(TASK,))) == ["deploy two"]
        assert await found(store, "deploy", Filter(among=())) == []

    async def test_words_of_a_query_language_are_only_words(self, store: Store) -> None:
        """People paste anything; an operator must neither widen nor narrow what they asked."""
        await fill(store, "cats and dogs", "cats", 'say "near" now')
        await index_all(store)
        assert await found(store, "cats AND dogs") == ["cats and dogs"]
        assert await found(store, "cats OR birds") == []
        assert await found(store, '"near"') == ['say "near" now']
        assert await found(store, "text:cats") == []

    async def test_indexing_is_bounded_and_ends(self, store: Store) -> None:
        """Indexing is upkeep in small steps; it must say when nothing is left."""
        await fill(store, "a1", "a2", "a3")
        counts = [await store.messages.index(2) for _ in range(3)]
        assert max(counts) <= 2
        assert sum(counts) <= 3
        assert counts[-1] == 0
        assert await found(store, "a3") == ["a3"]

    async def test_deleted_message_is_not_found(self, store: Store) -> None:
        """What retention removed is gone from the search, too, and the search still works."""
        await fill(store, "deploy old", "deploy new")
        await index_all(store)
        for _ in range(2):
            await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert await found(store, "deploy") == ["deploy new"]

    @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(query=st.text(max_size=30) | st.text(alphabet="ab\"'*^():-+{}[]~ ANDORTNE\0\ud800", max_size=20))
    async def test_any_text_is_a_valid_query(self, store: Store, query: str) -> None:
        """A search box is typed into by people and models: it answers, whatever they type."""
        await store.messages.append([new_message("a b AND", key=b"k")])
        await index_all(store)
        assert len(await store.messages.search(query, EVERYTHING, 5)) <= 1

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(words=st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=1, max_size=5))
    async def test_search_agrees_with_looking_at_every_message(self, store: Store, words: list[str]) -> None:
        """The index is an aid: it must give what reading everything would give."""
        await store.messages.append([new_message(" ".join(words))])
        await index_all(store)
        for query in (["alpha"], ["beta", "gamma"], words):
            everything = await texts(store, newest_first=True)
            expected = [text for text in everything if set(query) <= set(text.split())]
            assert await found(store, " ".join(query)) == expected


def shared_beginning(one: str, other: str) -> str:
    """Return how far two ids are the same."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True))
    return "".join(letter for letter, _ in same)


async def index_all(store: Store) -> None:
    """Make everything searchable."""
    while await store.messages.index(100):
        pass


async def found(store: Store, query: str, where: Filter = EVERYTHING, limit: int = 1000) -> list[str]:
    """Return the texts a search finds."""
    return [message.text for message in await store.messages.search(query, where, limit)]
