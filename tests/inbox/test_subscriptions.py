"""Subscriptions: which rows of the journal become events for whom, and that no cursor passes over one in silence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.automation import Mode, RunEnd, RunState
from harken.inbox.caller import Bounds
from harken.inbox.subscriptions import (
    ANSWERED,
    APPROVAL_WAITING,
    BATCH,
    EVENT_TYPES,
    MAX_SCANNED,
    QUESTION,
    RECEIVED,
    RUN_FINISHED,
    EventAudience,
    EventPage,
    EventSubscriptions,
    Subscription,
    cursor_text,
    read_cursor,
)
from harken.inbox.ticker import Ticker
from harken.model import INBOX, Consumer, Draft, Mailbox, Sender, SessionKey
from harken.store.contract.health import StoreIdentity
from harken.store.contract.retention import Limits
from tests.contracts.rules import ORDER, run_of, settle, verdict
from tests.inbox.rig import AGENT, FIRST, LEASE, OWNER, Bench, from_teams, open_bench

STORE = StoreIdentity("a" * 16, 2)
LONG_SECONDS = 10.0**9
AUDIENCE = EventAudience(
    mailboxes=frozenset({INBOX}),
    consumer=Consumer("listener"),
    session=SessionKey("listener:1"),
    sender="agent:listener",
)


@pytest.fixture
async def feed(bench: Bench) -> AsyncIterator[EventSubscriptions]:
    """What subscribers of the store read."""
    ticker = Ticker()
    await ticker.attach(bench.store.events, bench.store.messages)
    yield EventSubscriptions(bench.store, ticker, bench.clock)
    ticker.close()


def wanted(name: str = RECEIVED, **arguments: str) -> Subscription:
    """Return a subscription."""
    return Subscription(EVENT_TYPES[name], EVENT_TYPES[name].parse(arguments))


def told(page: EventPage) -> list[str]:
    """Return the messages that a page is about."""
    return [each.message.id for _, each in page.occurrences if each.message is not None]


async def all_after(
    feed: EventSubscriptions, name: str, number: int = 0, audience: EventAudience = AUDIENCE
) -> EventPage:
    """Return everything of a kind that follows a number."""
    page = await feed.page(wanted(name), audience, number, 100)
    assert not page.has_more
    return page


async def test_message_that_retention_took_makes_the_page_truncated(bench: Bench, feed: EventSubscriptions) -> None:
    """The row is still there, but nobody can say any more whether it was wanted."""
    await bench.send("first")
    last = await bench.send("second")
    assert not (await all_after(feed, RECEIVED)).is_truncated
    for _ in range(2):
        await bench.store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
    page = await EventSubscriptions(bench.store, Ticker(), bench.clock).page(wanted(), AUDIENCE, 0, 100)
    assert (told(page), page.is_truncated) == ([last], True)
    after = await feed.page(wanted(), AUDIENCE, page.number, 100)
    assert (told(after), after.is_truncated) == ([], False)


async def test_rows_that_are_gone_make_the_page_truncated_and_it_goes_on_behind_them(
    bench: Bench, feed: EventSubscriptions
) -> None:
    """A subscriber that was away for too long must look again for itself, once."""
    await bench.send("first")
    number = await bench.store.events.last()
    await bench.store.events.continue_after(number + 50)
    sent = await bench.send("after the gap")
    page = await feed.page(wanted(), AUDIENCE, number, 100)
    assert (told(page), page.is_truncated, page.begin) == ([sent], True, number + 50)
    again = await feed.page(wanted(), AUDIENCE, page.begin, 100)
    assert (told(again), again.is_truncated) == ([sent], False)


async def test_cursor_is_good_after_the_store_was_opened_again(tmp_path: Path) -> None:
    """Clients keep cursors for weeks; the daemon does not live as long."""
    async with open_bench(tmp_path, Bounds(lease=LEASE)) as bench:
        feed = EventSubscriptions(bench.store, Ticker(), bench.clock)
        await bench.send("before")
        cursor = await feed.cursor((await feed.place(None)).number)
        sent = await bench.send("after")
    async with open_bench(tmp_path, Bounds(lease=LEASE)) as bench:
        feed = EventSubscriptions(bench.store, Ticker(), bench.clock)
        place = await feed.place(cursor)
        assert not place.is_truncated
        assert told(await all_after(feed, RECEIVED, place.number)) == [sent]


def test_cursor_of_an_earlier_epoch_goes_on_behind_itself_and_is_truncated() -> None:
    """What was lost with the store before the restore cannot be told; what came since then can."""
    before = cursor_text(replace(STORE, epoch=1), 40)
    assert read_cursor(before, STORE, 60).number == 40
    assert read_cursor(before, STORE, 60).is_truncated
    assert read_cursor(cursor_text(STORE, 40), STORE, 60).is_truncated is False
    assert read_cursor(cursor_text(STORE, 70), STORE, 60) == read_cursor("", STORE, 60)
    assert read_cursor(cursor_text(StoreIdentity("b" * 16, 2), 40), STORE, 60) == read_cursor("", STORE, 60)


@given(st.text(max_size=600) | st.binary(max_size=90).map(lambda raw: raw.hex()))
def test_no_cursor_of_a_stranger_does_more_than_begin_somewhere(text: str) -> None:
    """It comes from outside, and decides where the store is read."""
    assert 0 <= read_cursor(text, STORE, 60).number <= 60


async def test_question_is_told_once_as_such(bench: Bench, feed: EventSubscriptions) -> None:
    """Somebody waits for an answer: that is another event than that something came."""
    await bench.access.allow(OWNER, "ann", source="teams")
    asked = await bench.intake.accept([replace(from_teams("when?"), is_question=True), from_teams("thanks", "bob")])
    page = await all_after(feed, QUESTION)
    assert [each.id for _, each in page.occurrences] == [f"evt-question-{asked[0].message.id}"]
    assert told(page) == [asked[0].message.id]
    received = await all_after(feed, RECEIVED)
    assert [each.facts for _, each in received.occurrences] == [{"question": True}, {"question": False}]


async def test_end_of_a_run_is_told_and_its_beginning_is_not(bench: Bench, feed: EventSubscriptions) -> None:
    """Whoever waits for a result is not helped by hearing that it began."""
    message = (await bench.intake.accept([from_teams("fix it")]))[0].message
    action = await bench.store.actions.add(message.id, ORDER, "you")
    run = await bench.store.runs.start(run_of(action))
    assert told(await all_after(feed, RUN_FINISHED)) == []
    await bench.store.runs.end(run.id, RunEnd(state=RunState.DONE, answer="secret"))
    ((_, end),) = (await all_after(feed, RUN_FINISHED)).occurrences
    assert end.facts == {
        "run": run.id, "action": action.id, "rule": action.rule, "agent": "claude-code", "state": "done"
    }  # fmt: skip
    assert end.id == f"evt-run-{run.id}"


@pytest.mark.parametrize(
    ("approves", "is_told"), [({"*"}, True), ({"inbox"}, True), ({"project:shop"}, False), (set(), False)]
)
async def test_rule_that_asks_is_told_to_those_who_may_answer_it(
    bench: Bench, feed: EventSubscriptions, approves: set[str], *, is_told: bool
) -> None:
    """And a rule that asks nothing is told to nobody."""
    message = (await bench.intake.accept([from_teams("fix it")]))[0].message
    verdicts = [verdict(message, name, mode) for name, mode in (("asks", Mode.CONFIRM), ("tells", Mode.NOTIFY))]
    await settle(bench.store, bench.clock, verdicts)
    audience = replace(AUDIENCE, approves=frozenset(map(Mailbox, approves)))
    page = await all_after(feed, APPROVAL_WAITING, audience=audience)
    (action,) = [each for each in await bench.store.actions.list() if each.rule == "asks"]
    found = [(each.facts["approval"], each.facts["rule"], each.facts["message_id"]) for _, each in page.occurrences]
    assert found == ([(action.id, "asks", message.id)] if is_told else [])


async def test_answer_of_another_is_told_and_ones_own_is_not(bench: Bench, feed: EventSubscriptions) -> None:
    """Who answered needs not be told; who would have answered too, does."""
    message = (await bench.intake.accept([from_teams("when?")]))[0].message
    await bench.pull(FIRST)
    await bench.inbox.reply(AGENT, message.id, "at noon")
    ((_, answered),) = (await all_after(feed, ANSWERED)).occurrences
    assert answered.facts["by"] == FIRST.consumer
    own = replace(AUDIENCE, consumer=FIRST.consumer)
    assert told(await all_after(feed, ANSWERED, audience=own)) == []


async def test_only_the_mailboxes_of_the_audience_are_told(bench: Bench, feed: EventSubscriptions) -> None:
    """Events tell nobody what the tools would not show."""
    await bench.intake.accept([replace(from_teams("for the project"), mailbox=Mailbox("project:x"))])
    assert told(await all_after(feed, RECEIVED)) == []
    reader = replace(AUDIENCE, mailboxes=frozenset({INBOX, Mailbox("project:x")}))
    assert len(told(await all_after(feed, RECEIVED, audience=reader))) == 1


async def test_events_of_another_harken_are_no_events_here_unless_they_are_asked_for(
    bench: Bench, feed: EventSubscriptions
) -> None:
    """Two that follow each other would otherwise tell each other of each other's events for ever."""
    ours = f"{RECEIVED}/evt-received-m-1"
    echo = Draft(source="other", sender=Sender("other", "Other"), text="{}", channel=RECEIVED, upstream_id=ours)
    theirs = replace(echo, upstream_id=f"{RECEIVED}/mail-7")
    stored = [each.message.id for each in await bench.intake.accept([echo, theirs])]
    assert told(await all_after(feed, RECEIVED)) == stored[1:]
    page = await feed.page(wanted(channel=RECEIVED), AUDIENCE, 0, 10)
    assert told(page) == stored


async def test_page_looks_at_so_many_rows_and_goes_on_from_there(bench: Bench, feed: EventSubscriptions) -> None:
    """A filter that fits nothing must not hold the store while it looks for it."""
    drafts = [from_teams(f"number {number}") for number in range(MAX_SCANNED + BATCH)]
    await bench.intake.accept(drafts)
    page = await feed.page(wanted(text="nothing like it"), AUDIENCE, 0, 10)
    assert (told(page), page.has_more) == ([], True)
    assert page.number < await bench.store.events.last()
    rest = await feed.page(wanted(text="nothing like it"), AUDIENCE, page.number, 10)
    assert (rest.has_more, rest.number) == (False, await bench.store.events.last())
