"""What people look at: the list, timelines with their ledgers, forecasts, what is seen, the pulse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import NotFound, UserError
from harken.inbox.access import Access
from harken.inbox.caller import MAX_PAGE_CHARS, Bounds
from harken.inbox.inbox import Inbox
from harken.inbox.results import LedgerEntry, Outlook
from harken.inbox.taskbook import TaskBook
from harken.inbox.tasks import NewTask, Tasks
from harken.inbox.views import BUSIEST, MailboxLine, PulseRow, TimelineItem, Views, nearest_rank
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import IngestPolicy
from harken.model import (
    INBOX,
    REPLIES,
    WATCH,
    Attention,
    Consumer,
    DeliveryState,
    Draft,
    Mailbox,
    MessageKind,
    NewMessage,
    Reader,
    SenderRule,
    SessionKey,
    TaskState,
    Trust,
)
from harken.sessions.registry import Sessions
from harken.sessions.session import MailScope
from harken.store.contract.retention import Limits
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_new_message
from tests.inbox.rig import FIRST, LEASE, OTHER, OWNER, Bench, from_teams

PERSON: Final = Reader(consumer=WATCH, session=SessionKey(""))


@dataclass(frozen=True, slots=True)
class Looker:
    """The views over a new store, and what makes something to look at."""

    views: Views
    tasks: Tasks
    bench: Bench

    async def say(self, *texts: str, **more: str) -> None:
        """Send messages to `inbox`, or where told."""
        for text in texts:
            await self.bench.send(text, **more)

    async def receive(self, *drafts: Draft) -> None:
        """Take in what someone outside wrote."""
        await self.bench.intake.accept(drafts)

    async def task(self, title: str) -> Mailbox:
        """Make a task; return its mailbox."""
        folder = "/work/" + title.replace(" ", "-")
        return (await self.tasks.new(OWNER, NewTask(title=title, dir=folder))).task.mailbox

    def run(self, mailbox: Mailbox) -> None:
        """Let a session run in a task."""
        reader = Reader(consumer=Consumer(mailbox), session=SessionKey(f"in {mailbox}"), mailboxes=(mailbox,))
        self.bench.connect(reader)


@pytest.fixture
async def looker(tmp_path: Path) -> AsyncIterator[Looker]:
    """Views and tasks over the same parts as the rest of the use cases."""
    clock = FakeClock()
    policy = IngestPolicy(
        sender_rules=(SenderRule("local", "owner", Trust.OWNER),),
        default_trust={"local": Trust.KNOWN, "teams": Trust.KNOWN},
        default_attention={"local": Attention.WAKE, "teams": Attention.WAKE},
    )
    async with open_store(tmp_path / "harken.db", clock) as store:
        policies, pairings, book = (
            PolicyBook(store.people, store.tokens, policy),
            Pairings(clock),
            TaskBook(store.tasks),
        )
        intake = Intake(store, policies, pairings)
        inbox = Inbox(store, intake, policies, Sessions(), clock, bounds=Bounds(lease=LEASE), tasks=book)
        tasks = Tasks(store, inbox, book, clock, reading_of=lambda _cwd, agent, _named=None, **_: MailScope(agent))
        bench = Bench(inbox, Access(store.people, policies, pairings, clock), intake, store, clock)
        yield Looker(Views(store, tasks.list, inbox, clock), tasks, bench)


def texts(items: Sequence[TimelineItem]) -> list[str]:
    """Return what is shown, in order."""
    return [item.message.text for item in items]


def states(item: TimelineItem) -> dict[Consumer, DeliveryState]:
    """Return how far a message got, by consumer."""
    return {entry.consumer: entry.state for entry in item.ledger}


def numbers(line: MailboxLine) -> tuple[str, int, int]:
    """Return a line's name, what is new to the person, and what waits for agents."""
    return (line.name, line.unread, line.waiting)


# -- the list --------------------------------------------------------------------------------------------------


async def test_the_first_look_shows_an_empty_inbox(looker: Looker) -> None:
    """A new user has to see where mail will be."""
    overview = await looker.views.overview()
    assert overview.mailboxes == [MailboxLine(name=INBOX, unread=0, waiting=0, head=0, last_at=None)]
    assert (overview.channels, overview.tasks) == ([], [])


async def test_mailboxes_are_listed_with_what_is_new_and_what_waits(looker: Looker) -> None:
    """The person and the agents read apart: each has a number of its own, and the inbox comes first."""
    await looker.say("one", "two", "three")
    await looker.say("a", to="project:apple")
    await looker.say("b", to="trial:x")
    await looker.bench.store.deliveries.enroll(FIRST.consumer, INBOX, looker.bench.clock.now())
    await looker.bench.store.deliveries.enroll(OTHER.consumer, INBOX, looker.bench.clock.now())
    first, *_ = await looker.bench.pull(FIRST, 1)
    await looker.bench.inbox.proofs.prove([first.delivery_id], "test")
    await looker.views.mark_seen(mailbox=INBOX, up_to=2)
    overview = await looker.views.overview()
    assert [numbers(line) for line in overview.mailboxes] == [("inbox", 1, 2), ("project:apple", 1, 0)]
    assert overview.mailboxes[0].last_at == looker.bench.clock.now()


async def test_open_tasks_are_listed_running_ones_first(looker: Looker) -> None:
    """What works now is what people look for; the rest stays where it was."""
    boxes = [await looker.task(title) for title in ("fix login", "write docs", "add tests")]
    await looker.say("do it", to=boxes[1])
    looker.run(boxes[2])
    overview = await looker.views.overview()
    assert [numbers(line) for line in overview.tasks] == [
        ("task:add-tests", 0, 0),
        ("task:fix-login", 0, 0),
        ("task:write-docs", 1, 1),
    ]
    assert [line.task.state for line in overview.tasks if line.task] == [
        TaskState.RUNNING,
        TaskState.QUEUED,
        TaskState.QUEUED,
    ]
    assert [line.name for line in overview.mailboxes] == [INBOX]


async def test_mail_of_a_task_that_is_over_is_listed_while_it_is_new(looker: Looker) -> None:
    """Whatever happens, a message that the person has not seen must be somewhere."""
    box = await looker.task("fix login")
    await looker.say("too late?", to=box)
    await looker.tasks.finish(OWNER, "fix-login")
    overview = await looker.views.overview()
    assert ([numbers(line) for line in overview.mailboxes], overview.tasks) == ([("inbox", 0, 0), (box, 1, 0)], [])
    await looker.views.mark_seen(mailbox=box, up_to=1)
    assert [line.name for line in (await looker.views.overview()).mailboxes] == [INBOX]


async def test_channels_are_listed(looker: Looker) -> None:
    """Where people and scripts wrote is a place to look at; that something was typed here is none."""
    await looker.say("local")
    await looker.receive(from_teams("one"), replace(from_teams("two"), channel="alerts"))
    channels = (await looker.views.overview()).channels
    assert [(line.source, line.channel, line.count, line.unread) for line in channels] == [
        ("teams", "alerts", 1, 1),
        ("teams", "teams", 1, 1),
        ("local", "ci", 1, 1),
    ]


# -- timelines -------------------------------------------------------------------------------------------------


async def test_a_channel_is_one_timeline_over_all_mailboxes(looker: Looker) -> None:
    """Routes may have put what one channel said into several places."""
    drafts = [replace(from_teams(f"{n}"), mailbox=Mailbox("project:x") if n % 2 else None) for n in range(5)]
    await looker.receive(*drafts)
    newest = await looker.views.timeline(channel="teams", source="teams", limit=3)
    older = await looker.views.timeline(channel="teams", source="teams", limit=3, before=newest.older)
    assert texts([*older.items, *newest.items]) == ["0", "1", "2", "3", "4"]
    assert texts((await looker.views.timeline()).items) == ["0", "1", "2", "3", "4"]


async def test_nobody_can_reword_what_another_said(looker: Looker) -> None:
    """A sender who names another's message would otherwise speak with that person's name and trust."""
    await looker.receive(replace(from_teams("pay Ann"), upstream_id="u1"))
    await looker.receive(replace(from_teams("pay Eve", sender="eve"), upstream_id="u1", kind=MessageKind.EDIT))
    await looker.receive(replace(from_teams("", sender="eve"), upstream_id="u1", kind=MessageKind.DELETION))
    original, forged, deletion = (await looker.views.timeline(mailbox=INBOX)).items
    assert (original.message.text, original.edits, original.is_deleted) == ("pay Ann", [], False)
    assert (forged.message.sender.id, forged.quoted) == ("eve", original.message)
    assert deletion.message.kind is MessageKind.DELETION


async def test_the_ledger_has_a_line_for_every_agent_that_reads(looker: Looker) -> None:
    """What is said about a message in a timeline is what `read` says, without the person's own line."""
    await looker.say("one", "two")
    for reader in (FIRST, OTHER):
        await looker.bench.pull(reader, 1)
    [seen] = await looker.bench.inbox.ack(FIRST, ["#1"])
    await looker.bench.inbox.ack(PERSON, ["#1"])
    one, two = (await looker.views.timeline(mailbox=INBOX)).items
    assert states(one) == {FIRST.consumer: DeliveryState.SEEN, OTHER.consumer: DeliveryState.OFFERED}
    assert next(entry.delivery for entry in one.ledger if entry.delivery and entry.delivery.id == seen.id) == seen
    assert states(two) == {FIRST.consumer: DeliveryState.QUEUED, OTHER.consumer: DeliveryState.QUEUED}
    details = await looker.bench.inbox.read(two.message.id)
    assert two.ledger == [entry for entry in details.ledger if entry.consumer != WATCH]


async def test_an_agent_that_began_later_has_no_line(looker: Looker) -> None:
    """It will never be given what was there before it, and `queued` would be a promise."""
    await looker.say("before")
    await looker.bench.store.deliveries.enroll(FIRST.consumer, INBOX, looker.bench.clock.advance(1))
    await looker.say("after")
    before, after = (await looker.views.timeline(mailbox=INBOX)).items
    assert (before.ledger, after.ledger) == ([], [LedgerEntry(consumer=FIRST.consumer, state=DeliveryState.QUEUED)])


async def test_a_page_carries_no_more_than_one_answer_can(looker: Looker) -> None:
    """Fifty messages of the greatest length would be one huge page; the newest are shown, the rest is asked for."""
    huge = [replace(new_text("x" * (MAX_PAGE_CHARS // 3)), channel=f"c{number}") for number in range(7)]
    await looker.bench.store.messages.append(huge)
    newest = await looker.views.timeline(mailbox=INBOX)
    older = await looker.views.timeline(mailbox=INBOX, before=newest.older)
    assert [item.message.seq for item in newest.items] == [5, 6, 7]
    assert [item.message.seq for item in older.items] == [2, 3, 4]
    later = await looker.views.timeline(mailbox=INBOX, after=1)
    assert ([item.message.seq for item in later.items], later.newest) == ([2, 3, 4], 4)


def new_text(text: str) -> NewMessage:
    """Return a message as ingest would hand it over, however long."""
    return a_new_message(text)


async def test_one_message_is_shown_as_in_its_timeline(looker: Looker) -> None:
    """A page refreshes a single line when its ledger changes; it must not look different then."""
    await looker.say("one", "two")
    await looker.bench.pull(FIRST, 1)
    items = (await looker.views.timeline(mailbox=INBOX)).items
    assert [await looker.views.item(item.message.id) for item in items] == items
    assert await looker.views.item("inbox#2") == items[1]


@pytest.mark.parametrize("position", [-1, -(2**70), 2**63, 2**70])
async def test_a_position_from_an_address_bar_is_only_a_number(looker: Looker, position: int) -> None:
    """Whatever somebody types must not break the store."""
    await looker.say("one")
    await looker.views.timeline(mailbox=INBOX, before=position)
    await looker.views.timeline(channel="ci", after=position)
    assert await looker.views.mark_seen(mailbox=INBOX, up_to=position) == int(position > 0)


async def test_a_timeline_is_of_a_mailbox_or_of_a_channel(looker: Looker) -> None:
    """Asking for both is a mistake that is told, not guessed at."""
    with pytest.raises(UserError, match="one mailbox or of one channel"):
        await looker.views.timeline(mailbox=INBOX, channel="ci")


async def test_trials_are_shown_nowhere(looker: Looker) -> None:
    """Their mail is made by a check of a host, and says nothing to people."""
    await looker.say("secret", to="trial:x")
    await looker.say("open secret")
    with pytest.raises(NotFound):
        await looker.views.timeline(mailbox="trial:x")
    with pytest.raises(NotFound):
        await looker.views.item("trial:x#1")
    assert texts((await looker.views.timeline(channel="ci")).items) == ["open secret"]
    assert texts((await looker.views.timeline()).items) == ["open secret"]
    assert texts(await looker.views.search("secret")) == ["open secret"]
    assert [row.counts[-1] for row in (await looker.views.pulse()).rows] == [1]


async def test_what_is_found_has_its_ledger(looker: Looker) -> None:
    """A search answers what became of a message, too; newest first."""
    await looker.say("red apple", "green apple", "red pear")
    await looker.bench.pull(FIRST, 1)
    found = await looker.views.search("red")
    assert texts(found) == ["red pear", "red apple"]
    assert states(found[1]) == {FIRST.consumer: DeliveryState.OFFERED}
    assert await looker.views.search("") == []


# -- what would happen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
async def test_a_forecast_is_what_sending_says(looker: Looker, priority: str) -> None:
    """What is shown before sending and after it must be the same sentence, whoever is here."""
    box = await looker.task("fix login")
    for prepare in (lambda: None, lambda: looker.run(box), lambda: looker.bench.connect(FIRST)):
        prepare()
        for mailbox in (INBOX, REPLIES, box, "project:none"):
            before = await looker.views.forecast(mailbox, priority)
            sent = await looker.bench.inbox.send(OWNER, "hello", to=mailbox, priority=priority)
            assert before == sent.forecast


async def test_a_forecast_stores_nothing(looker: Looker) -> None:
    """It is asked for with every change of the composer."""
    await looker.views.forecast(INBOX, "high")
    assert (await looker.views.timeline()).items == []
    assert await looker.bench.store.events.last() == 0


async def test_a_forecast_says_when_a_task_is_done_or_unknown(looker: Looker) -> None:
    """A composer that only fails after writing wastes the person's words."""
    box = await looker.task("fix login")
    await looker.tasks.finish(OWNER, "fix-login")
    done, unknown = await looker.views.forecast(box, "normal"), await looker.views.forecast("task:nope", "normal")
    assert (done.outlook, done.sentence) == (
        Outlook.NO_READER,
        "cannot be sent: task 'fix-login' is done and accepts no more messages",
    )
    assert (unknown.outlook, unknown.sentence) == (Outlook.NO_READER, "cannot be sent: there is no task 'nope'")
    with pytest.raises(UserError):
        await looker.views.forecast(INBOX, "urgent")


# -- what the person has seen ----------------------------------------------------------------------------------


async def test_a_long_absence_is_caught_up_with_one_look(looker: Looker) -> None:
    """More than one transaction marks is marked all the same, and the cursor follows."""
    await looker.bench.store.messages.append([new_text(f"{number}") for number in range(1_234)])
    assert await looker.views.mark_seen(mailbox=INBOX, up_to=1_233) == 1_233
    [line] = (await looker.views.overview()).mailboxes
    assert line.unread == 1
    [place] = [each for each in await looker.bench.store.deliveries.consumers() if each.consumer == WATCH]
    assert place.cursor == 1_233


async def test_a_channel_that_was_shown_is_seen_in_every_mailbox(looker: Looker) -> None:
    """Looking at a channel leaves no dot behind where its messages are kept."""
    await looker.receive(from_teams("one"), replace(from_teams("two"), mailbox=Mailbox("project:x")))
    await looker.receive(replace(from_teams("elsewhere"), channel="alerts"))
    shown = await looker.views.timeline(channel="teams", source="teams")
    assert await looker.views.mark_seen(channel="teams", source="teams", up_to=shown.newest) == 2
    overview = await looker.views.overview()
    assert [numbers(line) for line in overview.mailboxes] == [("inbox", 1, 0), ("project:x", 0, 0)]
    assert [(line.channel, line.unread) for line in overview.channels] == [("alerts", 1), ("teams", 0)]
    with pytest.raises(UserError, match="Seen where"):
        await looker.views.mark_seen(up_to=1)


async def test_an_edit_that_was_shown_in_its_message_is_seen_too(looker: Looker) -> None:
    """It has a number of its own; a dot that no line explains would stay for ever."""
    first = replace(from_teams("teh"), upstream_id="u1")
    await looker.receive(first)
    await looker.receive(replace(first, text="the", kind=MessageKind.EDIT))
    shown = await looker.views.timeline(mailbox=INBOX)
    await looker.views.mark_seen(mailbox=INBOX, up_to=shown.newest)
    assert [line.unread for line in (await looker.views.overview()).mailboxes] == [0]


# -- the pulse -------------------------------------------------------------------------------------------------


async def test_the_pulse_counts_by_whole_hours_the_current_one_last(looker: Looker) -> None:
    """A chart whose columns begin at odd minutes cannot be read."""
    clock = looker.bench.clock
    await looker.say("old", channel="a")
    clock.advance(3 * 3600 + 600)
    await looker.say("one", "two", channel="a")
    clock.advance(3600)
    await looker.say("three", channel="b")
    view = await looker.views.pulse(3)
    last = clock.now().replace(minute=0, second=0, microsecond=0)
    assert view.begins == [last - timedelta(hours=ago) for ago in (2, 1, 0)]
    assert view.rows == [PulseRow(channel="a", counts=[0, 2, 0]), PulseRow(channel="b", counts=[0, 0, 1])]
    assert (view.seen, view.median, view.p95) == (0, None, None)


async def test_the_pulse_names_the_busiest_channels_and_sums_the_rest(looker: Looker) -> None:
    """Fifty colours tell nothing; and a channel that is called like the sum is part of it."""
    for number in range(BUSIEST + 3):
        await looker.say(*["x"] * (number + 1), channel=f"c{number}")
    await looker.say(*["x"] * 50, channel="other")
    rows = (await looker.views.pulse(1)).rows
    assert [row.channel for row in rows] == [*(f"c{number}" for number in reversed(range(3, BUSIEST + 3))), "other"]
    assert [sum(row.counts) for row in rows] == [*reversed(range(4, BUSIEST + 4)), 50 + 1 + 2 + 3]


async def test_the_pulse_tells_how_soon_agents_got_their_mail(looker: Looker) -> None:
    """Median and p95 are times that really happened, by nearest rank."""
    await looker.say(*(f"{number}" for number in range(20)))
    for offer in await looker.bench.pull(FIRST, 20):
        looker.bench.clock.advance(1)
        await looker.bench.inbox.proofs.prove([offer.delivery_id], "test")
    view = await looker.views.pulse()
    assert (view.seen, view.median, view.p95) == (20, 10.0, 19.0)


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1), st.integers(min_value=1, max_value=100))
def test_nearest_rank_is_the_least_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    """The definition, whatever the length of the list."""
    ascending = sorted(values)
    found = nearest_rank(ascending, percent)
    assert found in ascending
    assert sum(value <= found for value in ascending) * 100 >= percent * len(ascending)
    assert sum(value < found for value in ascending) * 100 < percent * len(ascending)


async def test_what_retention_took_is_not_asked_for(looker: Looker) -> None:
    """A timeline over a mailbox with a gap at its beginning ends there."""
    await looker.say(*(f"{number}" for number in range(5)))
    await looker.views.mark_seen(mailbox=INBOX, up_to=5)
    await looker.bench.store.retention.prune(Limits(max_count=2, max_age_seconds=1e9))
    timeline = await looker.views.timeline(mailbox=INBOX, limit=2)
    assert (texts(timeline.items), timeline.older) == (["3", "4"], 0)
