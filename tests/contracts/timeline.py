"""The part of the store suite about looking: timelines, what belongs to a message, mailboxes, channels, the pulse.

It knows `store/contract/timeline.py` only. That each read costs no more than what it shows is tested beside each
backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from harken.automation import Mode, Outcome, RuleVerdict
from harken.model import (
    INBOX,
    LOCAL,
    WATCH,
    Attention,
    Mailbox,
    Message,
    MessageId,
    MessageKind,
    NewMessage,
    Reader,
    Sender,
    SessionKey,
)
from harken.store.contract import Store
from harken.store.contract.automation import Settlement
from harken.store.contract.deliveries import MuteFilter
from harken.store.contract.people import ClearedChannel
from harken.store.contract.retention import Limits
from harken.store.contract.timeline import (
    MAX_MUTED_AMONG_PROMPTS,
    MAX_UNREAD_OF_CHANNEL,
    ChannelState,
    HourlyCount,
    MailboxState,
    TimelinePart,
    TimelineScope,
)
from harken.testing import FakeClock
from tests.contracts.store_suite import (
    AGENT,
    LONG_SECONDS,
    OTHER_READER,
    READER,
    TASK,
    Journal,
    StoreSuite,
    fill,
    new_message,
    offer,
)

TRIAL = Mailbox("trial:one")
PERSON = Reader(consumer=WATCH, session=SessionKey(""))
ALL = 1000
HOUR = timedelta(hours=1)


def edit(text: str, *, of: bytes = b"k", kind: MessageKind = MessageKind.EDIT, sender: str = "ann") -> NewMessage:
    """Return a later statement about the message with a key."""
    return replace(new_message(text), kind=kind, refers_key=of, sender=Sender(sender))


def shown(part: TimelinePart) -> list[str]:
    """Return what a part shows, in order."""
    return [message.text for _, message in part.lines]


async def add(store: Store, *messages: NewMessage) -> list[Message]:
    """Store messages and return them."""
    return [each.message for each in await store.messages.append(messages)]


async def all_parts(store: Store, place: TimelineScope, limit: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return a whole timeline twice: by going back from its end, and by going on from its first line."""
    back, part = list[list[str]](), await store.timeline.part(place, limit)
    while True:
        back.append(shown(part))
        if not part.has_older:
            break
        part = await store.timeline.part(place, limit, before=part.lines[0][0])
    on, newest = list[list[str]](), part.lines[0][0]
    while (part := await store.timeline.part(place, limit, after=newest)).lines:
        on.append(shown(part))
        newest = part.newest
    return back, on


class TimelineSuite(StoreSuite):
    """What a timeline shows."""

    async def test_a_mailbox_is_shown_from_its_end_by_its_own_numbers(self, store: Store) -> None:
        """People read the newest first; what other mailboxes got must not make a hole or a longer page."""
        for number in range(1, 8):
            await fill(store, f"{number}")
            await fill(store, f"other {number}", mailbox=TASK)
        newest = await store.timeline.part(TimelineScope(mailbox=INBOX), 3)
        assert shown(newest) == ["5", "6", "7"]
        assert [position for position, _ in newest.lines] == [5, 6, 7]
        assert (newest.newest, newest.has_older) == (7, True)
        older = await store.timeline.part(TimelineScope(mailbox=INBOX), 4, before=5)
        assert (shown(older), older.newest, older.has_older) == (["1", "2", "3", "4"], 4, False)

    async def test_what_follows_a_position_comes_from_there_on(self, store: Store) -> None:
        """A page that was away asks for what it missed: the first of it, or some would be skipped."""
        await fill(store, *"abcdefg")
        part = await store.timeline.part(TimelineScope(mailbox=INBOX), 2, after=3)
        assert (shown(part), part.newest) == (["d", "e"], 5)
        part = await store.timeline.part(TimelineScope(mailbox=INBOX), 2, after=5)
        assert (shown(part), part.newest) == (["f", "g"], 7)
        part = await store.timeline.part(TimelineScope(mailbox=INBOX), 2, after=7)
        assert part == TimelinePart(lines=[], newest=7)

    @pytest.mark.parametrize(
        ("place", "texts"),
        [
            (TimelineScope(mailbox=INBOX), ["teams/a/0", "mail/a/2", "teams/b/3", "mail/b/5", "teams/a/6"]),
            (TimelineScope(source="teams", channel="a"), ["teams/a/0", "teams/a/1", "teams/a/6"]),
            (TimelineScope(channel="a"), ["teams/a/0", "teams/a/1", "mail/a/2", "teams/a/6"]),
            (TimelineScope(source="mail"), ["mail/a/2", "mail/b/5"]),
            (
                TimelineScope(),
                ["teams/a/0", "teams/a/1", "mail/a/2", "teams/b/3", "teams/b/4", "mail/b/5", "teams/a/6"],
            ),
        ],
    )
    async def test_every_line_of_a_place_is_shown_once_in_order_of_receipt(
        self, store: Store, place: TimelineScope, texts: list[str]
    ) -> None:
        """Going back and going on over several mailboxes must neither lose nor repeat a line at the seams."""
        said = [
            ("teams", "a", INBOX), ("teams", "a", TASK), ("mail", "a", INBOX), ("teams", "b", INBOX),
            ("teams", "b", TASK), ("mail", "b", INBOX), ("teams", "a", INBOX),
        ]  # fmt: skip
        for number, (source, channel, mailbox) in enumerate(said):
            text = f"{source}/{channel}/{number}"
            await add(store, replace(new_message(text, mailbox=mailbox, channel=channel), source=source))
        for limit in (1, 2, 3, 10):
            back, on = await all_parts(store, place, limit)
            assert [line for part in reversed(back) for line in part] == texts
            assert [line for part in on for line in part] == texts[1:]
            assert all(len(part) <= limit for part in (*back, *on))

    async def test_an_edit_belongs_to_the_line_it_refers_to(self, store: Store) -> None:
        """A correction shown as a second message reads as if it were said twice; but it must not be asked for again."""
        await add(store, new_message("one", key=b"k"), new_message("two"))
        await add(store, edit("one!"), edit("", kind=MessageKind.DELETION))
        part = await store.timeline.part(TimelineScope(mailbox=INBOX), 10)
        assert (shown(part), part.newest) == (["one", "two"], 4)
        assert await store.timeline.part(TimelineScope(mailbox=INBOX), 10, after=2) == TimelinePart(lines=[], newest=4)
        assert shown(await store.timeline.part(TimelineScope(mailbox=INBOX), 1)) == ["two"]

    async def test_an_edit_by_somebody_else_or_elsewhere_is_a_line_of_its_own(self, store: Store) -> None:
        """Otherwise a stranger could change what a person reads under another's name, or mail would be nowhere."""
        await add(store, new_message("one", key=b"k"))
        elsewhere = replace(edit("elsewhere"), mailbox=TASK)
        await add(store, edit("forged", sender="eve"), edit("of nothing", of=b"unknown"), elsewhere)
        assert shown(await store.timeline.part(TimelineScope(mailbox=INBOX), 10)) == ["one", "forged", "of nothing"]
        assert shown(await store.timeline.part(TimelineScope(mailbox=TASK), 10)) == ["elsewhere"]

    async def test_an_edit_outlives_what_it_refers_to_as_a_line(self, store: Store) -> None:
        """After retention the edit is all that is left; it must not vanish with its original."""
        await add(store, new_message("one", key=b"k"))
        await add(store, edit("one!"), new_message("two"))
        await store.deliveries.acknowledge(PERSON, [m.id for m in await messages_in(store)], "test")
        await store.retention.prune(Limits(max_count=2, max_age_seconds=LONG_SECONDS))
        assert shown(await store.timeline.part(TimelineScope(mailbox=INBOX), 10)) == ["one!", "two"]

    async def test_an_empty_place_has_nothing_and_no_position(self, store: Store) -> None:
        """The first page of a new user."""
        for place in (
            TimelineScope(),
            TimelineScope(mailbox=INBOX),
            TimelineScope(channel="a"),
            TimelineScope(source="b", channel="c"),
        ):
            assert await store.timeline.part(place, 10) == TimelinePart(lines=[], newest=0)


async def messages_in(store: Store, mailbox: Mailbox = INBOX) -> Sequence[Message]:
    """Return every line of a mailbox and what belongs to it."""
    part = await store.timeline.part(TimelineScope(mailbox=mailbox), ALL)
    lines = [message for _, message in part.lines]
    later = await store.messages.referring([message.id for message in lines])
    return [*lines, *(each for found in later.values() for each in found)]


class BelongingSuite(StoreSuite):
    """What is shown with messages, asked for many at once."""

    async def test_messages_are_found_by_their_ids(self, store: Store) -> None:
        """What is quoted may be gone: it is left out, and the rest is found all the same."""
        first, second = await add(store, new_message("one"), new_message("two", mailbox=TASK))
        found = await store.messages.get_many([second.id, MessageId("m-unknown"), first.id])
        assert found == {first.id: first, second.id: second}
        assert await store.messages.get_many([]) == {}

    async def test_ledgers_are_those_of_each_message(self, store: Store, clock: FakeClock) -> None:
        """One question for a whole page must say exactly what a question for each message says."""
        for reader in (READER, OTHER_READER):
            await store.deliveries.enroll(reader.consumer, INBOX, clock.now())
        first, second, third = await add(store, *map(new_message, ("one", "two", "three")))
        [one, _] = await offer(store, clock, READER, 2)
        await store.deliveries.prove([one.delivery_id], "test")
        await offer(store, clock, OTHER_READER, 1)
        ids = [first.id, second.id, third.id]
        ledgers = await store.deliveries.ledgers(ids)
        assert ledgers == {each: await store.deliveries.ledger(each) for each in ids}
        assert [len(ledgers[each]) for each in ids] == [2, 1, 0]

    async def test_what_refers_to_a_message_is_the_newest_of_it_oldest_first(self, store: Store) -> None:
        """The last wording counts, however often somebody changed their mind."""
        [first, second] = await add(store, new_message("one", key=b"k"), new_message("two", key=b"l"))
        await add(store, *(edit(f"{number}") for number in range(100)))
        answer = replace(new_message("an answer", mailbox=TASK), refers_key=b"k")
        await add(store, answer)
        found = await store.messages.referring([first.id, second.id])
        texts = [message.text for message in found[first.id]]
        assert found.keys() == {first.id}
        assert texts == [*(f"{number}" for number in range(101 - len(texts), 100)), "an answer"]
        assert len(texts) > 1

    async def test_replies_are_those_to_each_message(self, store: Store) -> None:
        """A reply that is shown beside the wrong message would be worse than none."""
        first, second = await add(store, new_message("one"), new_message("two"))
        for body in ("yes", "no"):
            await store.outbox.add(first.id, body, author="agent", consumer=AGENT)
        found = await store.outbox.to_messages([first.id, second.id])
        assert found == {first.id: await store.outbox.to_message(first.id), second.id: []}
        assert [row.body for row in found[first.id]] == ["yes", "no"]


class UnseenSuite(StoreSuite):
    """What the person has not seen."""

    async def test_what_the_person_has_not_seen_of_a_mailbox_up_to_a_position(self, store: Store) -> None:
        """Looking at a mailbox marks what was there; what came in meanwhile stays new."""
        stored = await add(store, *(new_message(f"{number}") for number in range(6)))
        await fill(store, "elsewhere", mailbox=TASK)
        await store.deliveries.acknowledge(PERSON, [stored[2].id], "test")
        expected = [stored[index].id for index in (0, 1, 3, 4)]
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 5, ALL) == expected
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 5, 2) == expected[:2]
        await store.deliveries.acknowledge(PERSON, expected, "test")
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 5, ALL) == []
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 6, ALL) == [stored[5].id]

    async def test_what_is_before_a_position_stays_unseen(self, store: Store) -> None:
        """A page shows the newest part: what is older was on no screen, and must not be marked with it."""
        stored = await add(store, *(new_message(f"{number}") for number in range(6)))
        await store.deliveries.acknowledge(PERSON, [stored[0].id, stored[3].id], "test")
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 5, ALL, since=3) == [
            stored[2].id,
            stored[4].id,
        ]
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 5, ALL, since=1) == [
            stored[i].id for i in (1, 2, 4)
        ]
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 5, ALL, since=6) == []

    async def test_what_is_before_a_position_of_a_channel_stays_unseen(self, store: Store) -> None:
        """The same over several mailboxes, where positions are places in the order of receipt."""
        stored = await add(store, *(new_message(channel="a", mailbox=box) for box in (INBOX, TASK, INBOX, TASK)))
        part = await store.timeline.part(TimelineScope(channel="a"), ALL)
        since, up_to = part.lines[1][0], part.lines[2][0]
        assert await store.timeline.unseen(TimelineScope(channel="a"), up_to, ALL, since=since) == [
            stored[1].id,
            stored[2].id,
        ]

    async def test_an_offer_without_proof_is_not_seen(self, store: Store, clock: FakeClock) -> None:
        """A terminal that was closed before it printed must not make mail look read."""
        [message] = await add(store, new_message())
        await offer(store, clock, PERSON, 1)
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 1, ALL) == [message.id]

    async def test_what_agents_have_seen_is_still_new_to_the_person(self, store: Store, clock: FakeClock) -> None:
        """The person's own marks are nobody else's."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        [message] = await add(store, new_message())
        await store.deliveries.acknowledge(READER, [message.id], "test")
        assert await store.timeline.unseen(TimelineScope(mailbox=INBOX), 1, ALL) == [message.id]

    async def test_unseen_of_a_channel_is_found_over_all_mailboxes(self, store: Store) -> None:
        """A channel may be routed to several mailboxes; looking at it must mark them all, among the newest."""
        boxes = [INBOX, TASK, INBOX, TASK]
        stored = await add(store, *(new_message(channel="a", mailbox=box) for box in boxes))
        await add(store, new_message(channel="b"), new_message(channel="a", mailbox=TRIAL))
        part = await store.timeline.part(TimelineScope(channel="a"), ALL)
        assert await store.timeline.unseen(TimelineScope(channel="a"), part.newest, ALL) == [each.id for each in stored]
        up_to = part.lines[2][0]
        assert await store.timeline.unseen(TimelineScope(source="teams", channel="a"), up_to, 2) == [
            stored[1].id,
            stored[2].id,
        ]


class OverviewSuite(StoreSuite):
    """The mailboxes and channels there are."""

    async def test_mailboxes_are_listed_by_name_with_their_last_message(self, store: Store, clock: FakeClock) -> None:
        """The list of a page; a mailbox that nobody wrote to is not one yet."""
        assert await store.timeline.mailboxes() == []
        await fill(store, "one", "two")
        first = clock.now()
        second = clock.advance(60)
        await fill(store, "three", mailbox=TASK)
        await fill(store, "a trial", mailbox=TRIAL)
        assert await store.timeline.mailboxes() == [
            MailboxState(name=INBOX, head=2, last_at=first),
            MailboxState(name=TASK, head=1, last_at=second),
        ]

    async def test_a_mailbox_keeps_its_number_when_retention_took_its_messages(self, store: Store) -> None:
        """There is no last message to tell the time of, but there were some."""
        stored = await add(store, new_message("old"))
        await fill(store, "elsewhere", mailbox=TASK)
        await store.deliveries.acknowledge(PERSON, [stored[0].id], "test")
        await store.retention.prune(Limits(max_count=0, max_age_seconds=LONG_SECONDS))
        assert MailboxState(name=INBOX, head=1, last_at=None) in await store.timeline.mailboxes()

    async def test_channels_are_listed_by_their_last_message(self, store: Store, clock: FakeClock) -> None:
        """What is said on this machine has no channel that anyone would look for; trials are nobody's mail."""
        first = clock.now()
        stored = await add(store, new_message(channel="a"), new_message(channel="a", mailbox=TASK))
        second = clock.advance(60)
        await add(store, replace(new_message(channel="a"), source="mail"))
        await add(store, replace(new_message(channel="cli"), source=LOCAL), new_message(channel="t", mailbox=TRIAL))
        await store.deliveries.acknowledge(PERSON, [stored[1].id], "test")
        expected = [
            ChannelState(source="mail", channel="a", count=1, unread=1, last_at=second),
            ChannelState(source="teams", channel="a", count=2, unread=1, last_at=first),
        ]
        assert await store.timeline.channels(10) == expected
        assert await store.timeline.channels(1) == expected[:1]

    async def test_channels_are_found_by_source_and_by_name_however_long_they_were_silent(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Whoever names one must not be told that it is not there because others were active since."""
        at = clock.now()
        await add(store, new_message(channel="rare"), replace(new_message(channel="rare"), source="mail"))
        await add(store, *(new_message(channel=f"c{number}") for number in range(20)))
        rare = [
            ChannelState(source=source, channel="rare", count=1, unread=1, last_at=at) for source in ("mail", "teams")
        ]
        assert await store.timeline.channels(5, channel="rare") == rare
        assert await store.timeline.channels(5, source="mail") == rare[:1]
        assert await store.timeline.channels(5, source="teams", channel="rare") == rare[1:]
        assert await store.timeline.channels(1, channel="rare") == rare[:1]
        assert await store.timeline.channels(5, source="mail", channel="c1") == []
        assert await store.timeline.channels(5, channel="cli", source=LOCAL) == []

    async def test_a_channel_counts_its_unread_up_to_a_bound(self, store: Store) -> None:
        """Beyond it nobody reads the number, and counting on would cost as much as there is."""
        many = MAX_UNREAD_OF_CHANNEL + 20
        stored = await add(store, *(new_message(channel="a") for _ in range(many)))
        [state] = await store.timeline.channels(10)
        assert (state.count, state.unread) == (many, MAX_UNREAD_OF_CHANNEL)
        await store.deliveries.acknowledge(PERSON, [message.id for message in stored[:-1]], "test")
        [state] = await store.timeline.channels(10)
        assert (state.count, state.unread) == (many, 1)

    async def test_a_channel_forgets_what_retention_took(self, store: Store) -> None:
        """A count that only grows would promise messages that are not there; an empty channel is none."""
        stored = await add(store, new_message(channel="a"), new_message(channel="b"), new_message(channel="b"))
        await store.deliveries.acknowledge(PERSON, [message.id for message in stored], "test")
        await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        [state] = await store.timeline.channels(10)
        assert (state.channel, state.count) == ("b", 1)

    async def test_a_cleared_channel_begins_after_what_it_held(self, store: Store, journal: Journal) -> None:
        """The person wants it out of sight, not gone: its mailbox has it, and what comes next is shown again."""
        await add(store, *(new_message(text, channel="a") for text in "12"), new_message("other", channel="b"))
        cleared = [ClearedChannel(source="teams", channel="a", count=2)]
        assert await store.people.clear_channels(channel="a") == cleared
        assert await store.people.clear_channels(channel="a") == []
        await add(store, new_message("3", channel="a"))
        for place in (TimelineScope(channel="a"), TimelineScope(source="teams", channel="a")):
            part = await store.timeline.part(place, ALL)
            assert shown(part) == shown(await store.timeline.part(place, ALL, after=0)) == ["3"]
            assert len(await store.timeline.unseen(place, part.newest, ALL)) == 1
        assert shown(await store.timeline.part(TimelineScope(mailbox=INBOX), ALL)) == ["1", "2", "other", "3"]
        assert shown(await store.timeline.part(TimelineScope(source="teams"), ALL)) == ["1", "2", "other", "3"]
        states = {each.channel: (each.count, each.unread, each.cleared) for each in await store.timeline.channels(9)}
        assert states == {"a": (1, 1, 2), "b": (1, 1, 0)}
        assert [each.data["count"] for each in journal.of("cleared")] == [2]

    async def test_all_channels_are_cleared_at_once_the_last_active_first(self, store: Store) -> None:
        """What was only said on this machine has no channel, and trials are nobody's mail."""
        await add(store, new_message(channel="a"), replace(new_message(channel="a"), source="mail"))
        await add(store, replace(new_message(channel="cli"), source=LOCAL), new_message(channel="t", mailbox=TRIAL))
        assert [each.source for each in await store.people.clear_channels()] == ["mail", "teams"]
        assert await store.people.clear_channels(source="mail") == []
        assert shown(await store.timeline.part(TimelineScope(source=LOCAL, channel="cli"), ALL)) == ["hello"]

    async def test_what_retention_took_of_a_cleared_channel_is_not_counted(self, store: Store) -> None:
        """Neither among what is hidden nor among what is shown."""
        stored = await add(store, *(new_message(text, channel="a") for text in "12"))
        await store.people.clear_channels()
        stored += await add(store, new_message("new", channel="a"))
        await store.deliveries.acknowledge(PERSON, [each.id for each in stored], "test")
        await store.retention.prune(Limits(max_count=2, max_age_seconds=LONG_SECONDS))
        assert shown(await store.timeline.part(TimelineScope(channel="a"), ALL)) == ["new"]
        [state] = await store.timeline.channels(9)
        assert (state.count, state.cleared) == (1, 1)

    async def test_places_say_what_counting_says(self, store: Store, clock: FakeClock) -> None:
        """The list of a page and the count that a reader is told must not differ."""
        for reader in (READER, OTHER_READER):
            await store.deliveries.enroll(reader.consumer, INBOX, clock.now())
        stored = await add(store, *(new_message(f"{number}") for number in range(5)))
        await store.deliveries.enroll(AGENT, TASK, clock.now())
        await store.deliveries.acknowledge(READER, [stored[0].id, stored[2].id], "test")
        await offer(store, clock, OTHER_READER, 2)
        counted = {}
        for place in await store.deliveries.consumers():
            reader = Reader(consumer=place.consumer, session=SessionKey("x"), mailboxes=(place.mailbox,))
            counted[(place.consumer, place.mailbox)] = (place.unread, (await store.deliveries.unread(reader)).count)
        assert counted == {
            (AGENT, INBOX): (3, 3),
            (AGENT, TASK): (0, 0),
            (OTHER_READER.consumer, INBOX): (5, 5),
            (WATCH, INBOX): (5, 5),
        }

    async def test_places_can_be_asked_of_some_mailboxes(self, store: Store, clock: FakeClock) -> None:
        """A timeline of one mailbox need not hear of two hundred others."""
        await fill(store, "one")
        await fill(store, "two", mailbox=TASK)
        await store.deliveries.enroll(AGENT, TASK, clock.now())
        everyone = await store.deliveries.consumers()
        assert await store.deliveries.consumers([TASK]) == [place for place in everyone if place.mailbox == TASK]
        assert await store.deliveries.consumers([]) == []
        assert len(everyone) == 3


def announced(text: str, *, mailbox: Mailbox = INBOX, channel: str = "ci", sender: str = "ci") -> NewMessage:
    """Return a message that goes with prompts."""
    new = replace(new_message(text, mailbox=mailbox, channel=channel), sender=Sender(sender, sender.upper()))
    return replace(new, attention=Attention.PROMPT)


class PromptSuite(StoreSuite):
    """What goes with prompts."""

    async def test_the_newest_of_all_mailboxes_are_found_oldest_first(self, store: Store, clock: FakeClock) -> None:
        """Whatever else was received since, and seen or not."""
        first, *_rest = await add(store, announced("1"), announced("2", mailbox=TASK), announced("3"))
        clock.advance(1)
        await add(store, *(new_message(f"other {n}") for n in range(300)), announced("4", mailbox=Mailbox("task:b")))
        await store.deliveries.acknowledge(PERSON, [first.id], "ack")
        found = await store.timeline.for_prompts([INBOX, TASK], 5, MuteFilter())
        assert [message.text for message in found] == ["1", "2", "3"]
        assert [message.text for message in await store.timeline.for_prompts([TASK, INBOX], 2, MuteFilter())] == [
            "2",
            "3",
        ]
        assert await store.timeline.for_prompts([], 5, MuteFilter()) == []
        assert await store.timeline.for_prompts([Mailbox("task:c")], 5, MuteFilter()) == []

    async def test_what_is_muted_is_left_out(self, store: Store) -> None:
        """By channel, by a sender's id or name, or all of it; the next older ones take its place."""
        noise = [announced(f"noise {n}", channel="noise") for n in range(20)]
        await add(store, announced("1"), announced("2", sender="eve"), announced("3"), *noise)
        quiet = frozenset({"noise"})
        for mutes, texts in (
            (MuteFilter(channels=quiet), ["2", "3"]),
            (MuteFilter(channels=quiet, senders=frozenset({"eve"})), ["1", "3"]),
            (MuteFilter(channels=quiet, senders=frozenset({"EVE"})), ["1", "3"]),
            (MuteFilter(), ["noise 18", "noise 19"]),
            (MuteFilter(is_total=True), []),
        ):
            assert [message.text for message in await store.timeline.for_prompts([INBOX], 2, mutes)] == texts

    async def test_what_was_cleared_does_not_go_with_prompts(self, store: Store) -> None:
        """Other channels have their place instead, also with what is older."""
        await add(store, announced("before", channel="alerts"), *(announced(f"{number}") for number in range(5)))
        await store.people.clear_channels(channel="ci")
        await add(store, announced("new"))
        found = await store.timeline.for_prompts([INBOX], 3, MuteFilter())
        assert [message.text for message in found] == ["before", "new"]

    async def test_what_a_rule_told_of_goes_with_prompts_too(self, store: Store, clock: FakeClock) -> None:
        """Whoever it is from: the owner's rule says that it matters. Once, however many rules say so; not if muted."""
        stranger = replace(new_message("from a stranger"), attention=Attention.COUNT, channel="door")
        told, *_ = await add(store, stranger, replace(stranger, text="not told"), announced("later"))
        standing = await store.rules.state()
        verdicts = [
            RuleVerdict(message=told.id, rule=name, mode=Mode.NOTIFY, outcome=Outcome.FIRED) for name in ("one", "two")
        ]
        await store.rules.settle(
            Settlement(
                revision=standing.revision, judged=standing.head, verdicts=verdicts, keep_since=clock.now() - HOUR
            )
        )
        for mutes, texts in (
            (MuteFilter(), ["from a stranger", "later"]),
            (MuteFilter(channels=frozenset({"door"})), ["later"]),
        ):
            assert [message.text for message in await store.timeline.for_prompts([INBOX], 5, mutes)] == texts

    async def test_behind_very_much_that_is_muted_nothing_is_looked_for(self, store: Store) -> None:
        """A prompt does not wait for a walk through everything a noisy server has ever said."""
        await add(
            store, announced("far away"), *(announced("x", channel="noise") for _ in range(MAX_MUTED_AMONG_PROMPTS))
        )
        muted = MuteFilter(channels=frozenset({"noise"}))
        assert await store.timeline.for_prompts([INBOX], 5, muted) == []
        await add(store, announced("near"))
        assert [message.text for message in await store.timeline.for_prompts([INBOX], 5, muted)] == ["near"]


class PulseSuite(StoreSuite):
    """What happened lately."""

    async def test_messages_are_counted_per_span_and_channel(self, store: Store, clock: FakeClock) -> None:
        """A chart per hour; what is older is not counted, what begins an hour is in it, trials are nobody's mail."""
        await add(store, new_message(channel="old"))
        since = clock.advance(1)
        await add(store, new_message(channel="a"), new_message(channel="b"), new_message(channel="a", mailbox=TASK))
        clock.advance(3600)
        await add(store, new_message(channel="a"), new_message(channel="a", mailbox=TRIAL))
        pulse = await store.timeline.activity(since, HOUR)
        assert pulse.counts == [
            HourlyCount(begin=since, channel="a", count=2),
            HourlyCount(begin=since, channel="b", count=1),
            HourlyCount(begin=since + HOUR, channel="a", count=1),
        ]
        assert pulse.seconds_to_seen == []

    async def test_time_to_seen_is_that_of_the_first_agent(self, store: Store, clock: FakeClock) -> None:
        """The person who looks, and an agent that finds it later, say nothing about how soon it was got."""
        since = clock.now()
        for reader in (READER, OTHER_READER):
            await store.deliveries.enroll(reader.consumer, INBOX, since)
        slow, quick, person = await add(store, *map(new_message, ("slow", "quick", "person")))
        clock.advance(2.5)
        await store.deliveries.acknowledge(READER, [quick.id], "test")
        await store.deliveries.acknowledge(PERSON, [slow.id, quick.id, person.id], "test")
        clock.advance(10)
        await store.deliveries.acknowledge(OTHER_READER, [quick.id, slow.id], "test")
        assert (await store.timeline.activity(since, HOUR)).seconds_to_seen == [2.5, 12.5]

    async def test_what_an_agent_said_itself_was_not_brought_to_it(self, store: Store, clock: FakeClock) -> None:
        """It would count as seen within no time, and make the figure look better than it is."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        await add(store, replace(new_message(), author=AGENT))
        assert (await store.timeline.activity(clock.now(), HOUR)).seconds_to_seen == []

    async def test_a_clock_that_was_set_back_makes_nothing_seen_before_it_came(
        self, store: Store, clock: FakeClock
    ) -> None:
        """A negative time would be shown to people."""
        await store.deliveries.enroll(AGENT, INBOX, clock.now())
        [message] = await add(store, new_message())
        clock.set_back(60)
        await store.deliveries.acknowledge(READER, [message.id], "test")
        assert (await store.timeline.activity(clock.now(), HOUR)).seconds_to_seen == [0.0]
