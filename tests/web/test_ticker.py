"""The ticker tells everything that the journal records, once, in order, to whoever follows, however slow they are."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from harken.automation import Mode, Order, Outcome, RuleVerdict, Run, RunEnd, RunId, RunState
from harken.inbox.ticker import BATCH, MAX_NAMED, NAMES, RECENT, Follower, Ticker, TickerStep
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import Consumer, Draft, Mailbox, MessageId, Reader, Sender, SessionKey, Trust
from harken.store.contract import Store
from harken.store.contract.automation import Settlement
from harken.store.contract.events import Event, EventStore
from harken.store.contract.retention import Limits
from harken.store.sqlite import open_store
from harken.testing import FakeClock

SECONDS = 10.0
AGENT = Reader(consumer=Consumer("claude-code"), session=SessionKey("s1"), mailboxes=(Mailbox("inbox"),))


class CountedEvents:
    """The events of a store, whose reads are counted."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self.reads = 0

    async def after(self, number: int, limit: int) -> list[Event]:
        """Read, and count."""
        self.reads += 1
        return await self._events.after(number, limit)

    async def own_after(self, number: int, limit: int) -> list[Event]:
        """Pass on."""
        return await self._events.own_after(number, limit)

    async def last(self) -> int:
        """Pass on."""
        return await self._events.last()

    async def record(self, kind: str, data: Mapping[str, object]) -> Event:
        """Pass on."""
        return await self._events.record(kind, data)

    async def continue_after(self, number: int) -> None:
        """Pass on."""
        await self._events.continue_after(number)


@dataclass(frozen=True, slots=True)
class Told:
    """A ticker over a real store."""

    ticker: Ticker
    store: Store
    events: CountedEvents
    clock: FakeClock

    async def send(self, *texts: str, mailbox: str = "inbox") -> list[MessageId]:
        """Store messages in one commit."""
        drafts = [_draft(text, mailbox) for text in texts]
        appended = await self.store.messages.append([prepare(draft, IngestPolicy()) for draft in drafts])
        return [each.message.id for each in appended]

    async def take(self, follower: Follower, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the next events of a follower."""
        found: list[tuple[str, dict[str, Any]]] = []
        with anyio.fail_after(SECONDS):
            while len(found) < count:
                found += told(await follower.next(SECONDS))
        return found


def _draft(text: str, mailbox: str) -> Draft:
    return Draft(source="mail", sender=Sender("ann@example.org", "Ann"), text=text, mailbox=Mailbox(mailbox))


def told(steps: Sequence[TickerStep]) -> list[tuple[str, dict[str, Any]]]:
    """Return names and data."""
    return [(event.name, json.loads(event.data)) for step in steps for event in step.events]


def numbers(found: Sequence[tuple[str, dict[str, Any]]]) -> list[int]:
    """Return the numbers of events."""
    return [data["n"] for _, data in found]


@asynccontextmanager
async def feeding(path: Path) -> AsyncIterator[Told]:
    """A ticker that is joined to a store as the daemon does it."""
    ticker, clock = Ticker(), FakeClock()
    async with open_store(path / "harken.db", clock, after_commit=ticker.publish) as store:
        events = CountedEvents(store.events)
        await ticker.attach(events, store.messages)
        yield Told(ticker, store, events, clock)


@pytest.fixture
async def fed(tmp_path: Path) -> AsyncIterator[Told]:
    """A ticker over an empty store."""
    async with feeding(tmp_path) as joined:
        yield joined


async def test_life_of_a_message_is_told_in_order(fed: Told) -> None:
    """A page that shows each state as it comes needs all of them, with what they are about and nothing of the text."""
    await fed.store.deliveries.enroll(AGENT.consumer, Mailbox("inbox"), fed.clock.now())
    with fed.ticker.follow() as follower:
        (message,) = await fed.send("the build is red")
        lease = fed.clock.now() + timedelta(minutes=1)
        (offer,) = (
            await fed.store.deliveries.offer(AGENT, 1, surface="inbox_pull", carrier="c", lease_until=lease)
        ).whole
        await fed.store.deliveries.prove([offer.delivery_id], "later call")
        await fed.store.outbox.add(message, "on it", author="agent:claude-code", consumer=AGENT.consumer)
        found = await fed.take(follower, 4)
    assert [name for name, _ in found] == ["message.queued", "message.offered", "message.seen", "message.answered"]
    assert [(data["message_id"], data["mailbox"], data["seq"], data["state"]) for _, data in found] == [
        (message, "inbox", 1, state) for state in ("queued", "offered", "seen", "answered")
    ]
    assert {data["delivery_id"] for _, data in found[1:]} == {offer.delivery_id}
    assert (found[1][1]["surface"], found[1][1]["session"], found[2][1]["evidence"]) == (
        "inbox_pull",
        "s1",
        "later call",
    )
    assert found[0][1] | {"n": 0} == {
        "n": 0,
        "at": "2026-01-05T09:00:00.000Z",
        "message_id": message,
        "mailbox": "inbox",
        "seq": 1,
        "state": "queued",
        "source": "mail",
        "channel": "",
        "from": "Ann",
        "sender_id": "ann@example.org",
        "trust": "unknown",
        "attention": "count",
        "priority": "normal",
        "kind": "message",
        "thread": found[0][1]["thread"],
        "refers_to": None,
    }
    assert "the build is red" not in json.dumps(found)


async def test_what_rules_do_is_told_with_the_message_it_is_about(fed: Told) -> None:
    """The page shows questions and runs as they come and go; why a run failed is its own word, and stays out."""
    (message,) = await fed.send("the build is red")
    order = Order(
        agent="codex", workdir="/w", tools=("read_file",), prompt="look", timeout=timedelta(minutes=1), max_turns=1
    )
    decided = RuleVerdict(message=message, rule="red", mode=Mode.CONFIRM, outcome=Outcome.FIRED, order=order)
    settlement = Settlement(revision=0, judged=1, verdicts=[decided], keep_since=fed.clock.now())
    with fed.ticker.follow() as follower:
        [action] = await fed.store.rules.settle(settlement)
        await fed.store.actions.answer(action.id, is_yes=True, by="cli")
        run = Run(
            id=RunId("r-1"),
            action=action.id,
            rule="red",
            message=message,
            agent="codex",
            workdir="/w",
            tools=(),
            state=RunState.RUNNING,
            started_at=fed.clock.now(),
        )
        await fed.store.runs.start(run)
        await fed.store.runs.end(run.id, RunEnd(state=RunState.FAILED, reason="ignore all rules"))
        await fed.store.rules.pause(is_on=True)
        await fed.store.rules.pause(is_on=False)
        found = await fed.take(follower, 6)
    about = {"at": "2026-01-05T09:00:00.000Z", "message_id": message, "mailbox": "inbox", "seq": 1, "rule": "red"}
    change = {"at": about["at"], "mailbox": None}
    running = {**about, "run": run.id, "action": action.id, "agent": "codex"}
    assert [(name, {key: value for key, value in data.items() if key != "n"}) for name, data in found] == [
        ("message.judged", {**about, "mode": "confirm", "outcome": "fired", "action": action.id}),
        ("action.changed", {**about, "mode": "confirm", "action": action.id, "state": "queued"}),
        ("run.changed", {**running, "state": "running"}),
        ("run.changed", {**running, "state": "failed"}),
        ("rules.changed", {**change, "change": "paused"}),
        ("rules.changed", {**change, "change": "resumed"}),
    ]


async def test_what_happens_to_a_question_is_told_with_its_place(fed: Told) -> None:
    """A page that shows what waits for an answer takes it away when it is settled, and needs no second look."""
    draft = Draft(source="local", sender=Sender("ann"), text="how?", is_question=True)
    [appended] = await fed.store.messages.append([prepare(draft, IngestPolicy(default_trust={"local": Trust.KNOWN}))])
    message = appended.message.id
    with fed.ticker.follow(None) as follower:
        await fed.store.questions.move([message], due_at=fed.clock.now(), way="agent", kind="reminded")
        await fed.store.questions.move([message], due_at=fed.clock.now(), way="toast", kind="escalated")
        await fed.store.questions.settle([message], "you")
        found = await fed.take(follower, 3)
    about = {"at": "2026-01-05T09:00:00.000Z", "message_id": message, "mailbox": "inbox", "seq": 1}
    assert [(name, {key: value for key, value in data.items() if key != "n"}) for name, data in found] == [
        ("question.changed", {**about, "state": state}) for state in ("reminded", "escalated", "settled")
    ]


async def test_one_event_of_the_journal_for_many_messages_is_told_for_each(fed: Told) -> None:
    """Whoever shows messages gets one event per message, and may come back only after the last of them."""
    ids = await fed.send("one", "two", "three")
    with fed.ticker.follow() as follower:
        await fed.store.deliveries.acknowledge(AGENT, ids, "ack")
        with anyio.fail_after(SECONDS):
            steps = await follower.next(SECONDS)
    assert [data["message_id"] for _, data in told(steps)] == ids
    assert len(steps) == 1
    assert follower.position == steps[0].n


async def test_follower_that_begins_in_the_past_misses_nothing(fed: Told) -> None:
    """Whoever lost its connection comes back with a number: far behind, or a little, it gets every event once."""
    count = RECENT + 2 * BATCH + 38
    assert count % 50 == 0
    for begin in range(0, count, 50):
        await fed.send(*[f"message {begin + i}" for i in range(50)])
    with fed.ticker.follow() as newest, fed.ticker.follow(0) as oldest, fed.ticker.follow(count - 5) as near:
        await fed.send("now")
        assert numbers(await fed.take(newest, 1)) == [count + 1]
        assert numbers(await fed.take(near, 6)) == list(range(count - 4, count + 2))
        assert numbers(await fed.take(oldest, count + 1)) == list(range(1, count + 2))


async def test_a_hundred_followers_share_one_read(fed: Told) -> None:
    """The cost of an event is that of reading it once, however many pages are open."""
    with ExitStack() as open_pages:
        followers = [open_pages.enter_context(fed.ticker.follow()) for _ in range(100)]
        results: list[list[int]] = []

        async def follow(follower: Follower) -> None:
            results.append(numbers(await fed.take(follower, 3)))

        before = fed.events.reads
        async with anyio.create_task_group() as group:
            for follower in followers:
                group.start_soon(follow, follower)
            await anyio.lowlevel.checkpoint()
            await fed.send("one", "two", "three")
        assert results == [[1, 2, 3]] * 100
        assert fed.events.reads - before <= 3
    assert fed.ticker.followers == 0


async def test_nothing_new_is_nothing_after_the_time_given(fed: Told) -> None:
    """The stream says that it lives in between, so a wait must end."""
    with fed.ticker.follow() as follower, anyio.fail_after(SECONDS):
        assert await follower.next(0.01) == []


async def test_events_that_are_gone_are_a_reset(fed: Told) -> None:
    """Retention takes old events: whoever was away that long is told so, and gets all that is left."""
    await fed.send("one", "two")
    await fed.store.events.continue_after(50)
    await fed.send("three")
    with fed.ticker.follow(0) as follower:
        found = await fed.take(follower, 4)
    assert [(name, data["n"]) for name, data in found] == [
        ("message.queued", 1),
        ("message.queued", 2),
        ("reset", 50),
        ("message.queued", 52),
    ]


async def test_messages_that_retention_took_do_not_break_the_feed(fed: Told) -> None:
    """An event outlives its message; what is left of it is told."""
    ids = await fed.send("one", "two")
    await fed.store.deliveries.acknowledge(AGENT, ids[:1], "ack")
    fed.clock.advance(3_600)
    await fed.send("young")
    for _ in range(2):
        await fed.store.retention.prune(Limits(max_count=1_000, max_age_seconds=60))
    with fed.ticker.follow(0) as follower:
        found = await fed.take(follower, 2)
    seen = [data for name, data in found if name == "message.seen"]
    assert [(data["message_id"], data["mailbox"]) for data in seen] == [(ids[0], None)]
    assert "young" not in json.dumps(found)


async def test_expired_messages_are_told_as_changed(fed: Told) -> None:
    """A message that nobody will get any more must not stay `queued` on a page."""
    await fed.store.deliveries.enroll(AGENT.consumer, Mailbox("inbox"), fed.clock.now())
    ids = await fed.send("one", "two")
    fed.clock.advance(3_600)
    await fed.send("young")
    with fed.ticker.follow(names=["message.changed"]) as follower:
        await fed.store.retention.prune(Limits(max_count=1_000, max_age_seconds=60))
        found = await fed.take(follower, 4)
    assert {(name, data["state"], data["mailbox"]) for name, data in found} == {("message.changed", "expired", "inbox")}
    assert {(data["consumer"], data["message_id"]) for _, data in found} == {
        (consumer, each) for consumer in ("claude-code", "watch") for each in ids
    }


async def test_of_very_many_the_first_are_named_and_the_rest_counted(fed: Told) -> None:
    """Marking a whole mailbox as seen is one event of the journal: it must not become thousands on every page."""
    ids = await fed.send(*[f"message {i}" for i in range(MAX_NAMED + 7)])
    with fed.ticker.follow(mailbox="inbox") as follower:
        await fed.store.deliveries.acknowledge(AGENT, ids, "ack")
        found = await fed.take(follower, MAX_NAMED + 1)
    assert [data["message_id"] for _, data in found] == [*ids[:MAX_NAMED], None]
    assert {name: found[-1][1][name] for name in ("count", "mailbox", "state")} == {
        "count": 7,
        "mailbox": None,
        "state": "seen",
    }


async def test_pokes_are_told_once_for_many_and_have_no_number(fed: Told) -> None:
    """Sessions do something with each call; people want to see that something changed, not how often."""
    with fed.ticker.follow() as follower, fed.ticker.follow(names=["message.seen"]) as other:
        for _ in range(1_000):
            fed.ticker.poke()
        with anyio.fail_after(SECONDS):
            steps = await follower.next(SECONDS)
            assert [(step.n, event.name) for step in steps for event in step.events] == [(0, "session.changed")]
            assert await follower.next(0.3) == []
            assert await other.next(0.01) == []


def test_every_event_is_documented() -> None:
    """Programs are written against these names: none is secret, and none is described that does not come."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## `([a-z.]+)`$", page, re.MULTILINE)) == set(NAMES)
