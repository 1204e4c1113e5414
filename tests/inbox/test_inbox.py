"""The use cases: saying, getting, proving, looking."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from harken.errors import NotFound, TooLong, UserError
from harken.inbox.caller import Bounds
from harken.inbox.inbox import MAX_OFFER
from harken.inbox.results import Outlook
from harken.model import INBOX, REPLIES, WATCH, Attention, Consumer, DeliveryState, Mailbox, Priority, SessionKey
from harken.store.contract.deliveries import Omission
from tests.inbox.rig import AGENT, FIRST, OTHER, OWNER, SECOND, Bench, ids, open_bench, reads
from tests.inbox.test_outlooks import Way


async def test_sending_says_what_was_stored_and_what_will_happen(bench: Bench) -> None:
    """Whoever sends wants to know whether anybody is there."""
    sent = await bench.inbox.send(OWNER, "the build is red", sender="ci-bot", channel="ci", conversation="run-7")
    message = sent.message
    assert (message.mailbox, message.seq, message.text) == ("inbox", 1, "the build is red")
    assert (message.source, message.channel, message.conversation) == ("local", "ci", "run-7")
    assert (sent.is_new, sent.forecast.outlook) == (True, Outlook.NEXT_SESSION)


async def test_a_message_sent_again_is_stored_once(bench: Bench) -> None:
    """A script that retries must not make the agent do it twice."""
    first = await bench.inbox.send(OWNER, "the build is red", upstream_id="build-7")
    again = await bench.inbox.send(OWNER, "the build is red", upstream_id="build-7")
    assert (again.is_new, again.forecast.outlook, again.message.id) == (False, Outlook.KNOWN, first.message.id)
    assert len(await bench.inbox.list()) == 1


async def test_the_same_words_twice_are_two_messages(bench: Bench) -> None:
    """'yes' means something new each time."""
    first, second = await bench.inbox.send(OWNER, "yes"), await bench.inbox.send(OWNER, "yes")
    assert first.message.id != second.message.id


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": "  "}, "A message needs a text"),
        ({"text": "x", "priority": "urgent"}, "There is no priority 'urgent'"),
        ({"text": "x", "to": "my mailbox"}, "is not a mailbox name"),
    ],
)
async def test_what_cannot_be_sent_is_refused_and_not_stored(
    bench: Bench, arguments: dict[str, str], said: str
) -> None:
    """With a sentence that says what to change."""
    text = arguments.pop("text")
    with pytest.raises(UserError, match=said) as error:
        await bench.inbox.send(OWNER, text, **arguments)
    assert error.value.hint
    assert await bench.inbox.list() == []


async def test_priority_lowers_attention_and_goes_first(bench: Bench) -> None:
    """High is given before what waited longer."""
    low = await bench.inbox.send(OWNER, "whenever", priority="low")
    high = await bench.inbox.send(OWNER, "now", priority="high")
    assert (low.message.priority, low.message.attention) == (Priority.LOW, Attention.BOUNDARY)
    assert ids(await bench.pull()) == [high.message.id, low.message.id]


async def test_pulling_gives_each_consumer_everything_once(bench: Bench) -> None:
    """In order of receipt, with what remains."""
    sent = [await bench.send(text) for text in ("one", "two", "three")]
    pulled = await bench.inbox.pull(FIRST, limit=2, surface="pull", carrier="c1")
    assert (ids(pulled.offers), pulled.remaining) == (sent[:2], 1)
    assert ids(await bench.pull()) == sent[2:]
    assert await bench.pull() == []
    assert ids(await bench.pull(OTHER)) == sent


async def test_looking_takes_nothing(bench: Bench) -> None:
    """What was shown still waits."""
    sent = [await bench.send(text) for text in ("one", "two")]
    for _ in range(2):
        seen = await bench.inbox.pull(FIRST, limit=1, consume=False, surface="pull", carrier="c1")
        assert (ids(seen.offers), seen.remaining) == (sent[:1], 1)
        assert [offer.delivery_id for offer in seen.offers] == [""]
    assert await bench.inbox.count(FIRST) == 2


async def test_a_pull_is_bounded(bench: Bench) -> None:
    """However much is asked for; and nothing is not a number of messages."""
    for number in range(MAX_OFFER + 1):
        await bench.send(f"number {number}")
    assert len(await bench.pull(limit=10_000)) == MAX_OFFER
    with pytest.raises(UserError, match="limit must be at least 1"):
        await bench.pull(limit=0)


async def test_a_new_consumer_begins_with_the_last_day_and_what_no_agent_has_seen(bench: Bench) -> None:
    """A host that is connected today must not start with last year's mail, nor with what another has done."""
    await bench.send("last week")
    bench.clock.advance(timedelta(days=2).total_seconds())
    done = await bench.send("done by another")
    await bench.pull()
    await bench.inbox.ack(FIRST, [done])
    open_message = await bench.send("still open")
    assert ids(await bench.pull(OTHER)) == [open_message]


async def test_a_new_consumer_is_told_what_it_was_not_given(tmp_path: Path) -> None:
    """Silence about what nobody was given would be its end; older and too many are different settings."""
    async with open_bench(tmp_path, Bounds(new_consumer_most=2)) as bench:
        await bench.send("last week")
        bench.clock.advance(timedelta(days=2).total_seconds())
        *_over, third, fourth = [await bench.send(text) for text in ("one", "two", "three", "four")]
        assert ids(await bench.pull()) == [third, fourth]
        left_out = Omission(older=1, surplus=2, up_to=3)
        assert (await bench.inbox.stats(FIRST)).left_out == {INBOX: left_out}
        places = {place.consumer: place.left_out for place in (await bench.inbox.status()).consumers}
        assert places == {FIRST.consumer: left_out, WATCH: Omission()}


async def test_an_offer_without_proof_comes_back_after_its_lease_as_a_repeat(bench: Bench) -> None:
    """The session may hang for ever: fifteen minutes later another one may do the work."""
    message = await bench.send()
    (first,) = await bench.pull(FIRST)
    assert first.is_repeat is False
    bench.clock.advance(timedelta(minutes=14).total_seconds())
    assert await bench.pull(SECOND) == []
    bench.clock.advance(timedelta(minutes=1).total_seconds())
    (again,) = await bench.pull(SECOND)
    assert (again.message.id, again.is_repeat, again.delivery_id) == (message, True, first.delivery_id)


async def test_a_released_session_gives_back_what_it_did_not_prove(bench: Bench) -> None:
    """What it proved stays with it."""
    proven, unproven = await bench.send("one"), await bench.send("two")
    offers = await bench.pull(FIRST)
    await bench.inbox.proofs.prove([offers[0].delivery_id], "later call")
    await bench.inbox.proofs.release(FIRST.session)
    assert [(offer.message.id, offer.is_repeat) for offer in await bench.pull(SECOND)] == [(unproven, True)]
    assert (await bench.inbox.read(proven)).ledger[0].state is DeliveryState.SEEN


async def test_a_withdrawn_offer_never_happened(bench: Bench) -> None:
    """The call was cancelled before its answer: the next one is the first."""
    message = await bench.send()
    await bench.pull(FIRST)
    await bench.inbox.proofs.withdraw(FIRST.session, "c1")
    (offer,) = await bench.pull(SECOND)
    assert (offer.message.id, offer.is_repeat) == (message, False)


async def test_acknowledging_is_proof_for_one_consumer(bench: Bench) -> None:
    """By id, by a beginning of it, by number or by delivery; nobody else's cursor moves."""
    await bench.inbox.count(OTHER)
    first, second, third = [await bench.send(text) for text in ("one", "two", "three")]
    (offer,) = await bench.pull(limit=1)
    acknowledged = await bench.inbox.ack(FIRST, [offer.delivery_id, second, "#3"])
    assert [(each.message_id, each.state, each.evidence) for each in acknowledged] == [
        (first, DeliveryState.SEEN, "ack"),
        (second, DeliveryState.SEEN, "ack"),
        (third, DeliveryState.SEEN, "ack"),
    ]
    assert await bench.inbox.ack(FIRST, [first]) == []
    assert (await bench.inbox.count(FIRST), await bench.inbox.count(OTHER)) == (0, 3)


async def test_acknowledging_something_unknown_changes_nothing(bench: Bench) -> None:
    """One wrong id among good ones is a mistake to be told, not to be half done."""
    message = await bench.send()
    (offer,) = await bench.pull()
    with pytest.raises(NotFound):
        await bench.inbox.ack(FIRST, [offer.delivery_id, message, "m-none"])
    with pytest.raises(UserError, match="Which message"):
        await bench.inbox.ack(FIRST, [])
    assert [entry.state for entry in (await bench.inbox.read(message)).ledger if entry.delivery] == [
        DeliveryState.OFFERED
    ]


async def test_a_reply_is_a_row_of_the_outbox_and_proof(bench: Bench) -> None:
    """It leaves by itself; whoever answered has read."""
    await bench.inbox.count(OTHER)
    message = await bench.send()
    row = await bench.inbox.reply(AGENT, message, "on it")
    assert (row.message.id, row.body, row.state, row.author) == (message, "on it", "queued", "agent:claude-code")
    details = await bench.inbox.read(message)
    assert [(entry.consumer, entry.state) for entry in details.ledger if entry.delivery] == [
        ("claude-code", DeliveryState.ANSWERED)
    ]
    assert list(details.replies) == [row]
    (offer,) = await bench.pull(OTHER)
    assert offer.answered_by == "claude-code"


async def test_the_same_request_replies_once(bench: Bench) -> None:
    """After a restart the edge sends it again; the person must not get it twice."""
    message = await bench.send()
    first = await bench.inbox.reply(AGENT, message, "on it", edge="e1", request="7")
    again = await bench.inbox.reply(AGENT, message, "on it", edge="e1", request="7")
    other = await bench.inbox.reply(AGENT, message, "on it", edge="e2", request="7")
    assert first.id == again.id != other.id
    assert len((await bench.inbox.read(message)).replies) == 2


@pytest.mark.parametrize(
    ("ref", "body", "error"),
    [("", " ", UserError), ("", "x" * 64_001, UserError), ("m-none", "on it", NotFound)],
)
async def test_what_cannot_be_replied_is_refused(bench: Bench, ref: str, body: str, error: type[Exception]) -> None:
    """And leaves no row behind."""
    message = await bench.send()
    with pytest.raises(error):
        await bench.inbox.reply(AGENT, ref or message, body)
    assert (await bench.inbox.status()).waiting_replies == 0


async def test_stats_count_what_is_not_final(bench: Bench) -> None:
    """Also what is being handed over: it may come back."""
    first = await bench.send("one")
    received = (await bench.inbox.read(first)).message.received_at
    bench.clock.advance(60)
    await bench.send("two", channel="ops")
    await bench.pull(limit=1)
    stats = await bench.inbox.stats(FIRST)
    assert (stats.depth, stats.oldest, stats.by_channel) == (2, received, {"ci": 1, "ops": 1})
    assert await bench.inbox.count(FIRST) == 1


async def test_listing_shows_the_newest_that_fit_oldest_first(bench: Bench) -> None:
    """As a conversation is read."""
    one, two, three = [await bench.send(text) for text in ("one", "two", "three")]
    other = await bench.send("four", channel="ops", sender="ann")
    assert [message.id for message in await bench.inbox.list(limit=2)] == [three, other]
    assert [message.id for message in await bench.inbox.list(channel="ci")] == [one, two, three]
    assert [message.id for message in await bench.inbox.list(sender="ann")] == [other]
    assert [message.id for message in await bench.inbox.list(mailbox="inbox", before=3)] == [one, two]
    assert await bench.inbox.list(mailbox=REPLIES) == []


async def test_searching_finds_what_was_sent_a_moment_ago(bench: Bench) -> None:
    """Newest first, all words, whatever the query looks like."""
    red, green = await bench.send("the build is red"), await bench.send("the build is green", channel="ops")
    assert [message.id for message in await bench.inbox.search("build")] == [green, red]
    assert [message.id for message in await bench.inbox.search("red build")] == [red]
    assert [message.id for message in await bench.inbox.search("build", channel="ops")] == [green]
    assert [message.id for message in await bench.inbox.search('"build" (red*')] == [red]


async def test_reading_shows_the_line_of_every_consumer(bench: Bench) -> None:
    """Queued ones too: 'nobody has it yet' must be visible."""
    await bench.inbox.count(FIRST)
    await bench.inbox.count(OTHER)
    message = await bench.send()
    await bench.pull(FIRST)
    ledger = {entry.consumer: entry.state for entry in (await bench.inbox.read(message)).ledger}
    assert ledger[Consumer("claude-code")] is DeliveryState.OFFERED
    assert ledger[Consumer("copilot-cli")] is DeliveryState.QUEUED


async def test_the_journal_tells_what_happened_to_a_message(bench: Bench) -> None:
    """In order, without gaps."""
    message = await bench.send()
    (offer,) = await bench.pull()
    await bench.inbox.proofs.prove([offer.delivery_id], "later call")
    await bench.inbox.reply(AGENT, message, "on it")
    events = [event for event in await bench.inbox.journal(0, 100) if event.kind != "consumer"]
    assert [event.kind for event in events] == ["received", "offered", "seen", "answered"]
    assert await bench.inbox.last_event() == events[-1].n


async def test_a_person_reads_replies_too(bench: Bench) -> None:
    """They are addressed to the person; agents do not get them."""
    reader = await bench.inbox.person(FIRST.session)
    assert set(reader.mailboxes) >= {"inbox", "replies"}
    await bench.send("an answer", to="replies")
    assert len(await bench.pull(reader)) == 1
    assert await bench.pull(FIRST) == []


async def test_the_length_of_replies_is_configurable(tmp_path: Path) -> None:
    """The bound that is enforced is the one that was given."""
    async with open_bench(tmp_path, Bounds(max_said_chars=20)) as bench:
        message = await bench.send()
        assert (await bench.inbox.reply(AGENT, message, "x" * 20)).body == "x" * 20
        with pytest.raises(TooLong, match="at most 20 characters, and this has 21"):
            await bench.inbox.reply(AGENT, message, "x" * 21)


async def test_mail_to_a_project_waits_for_its_first_reader(bench: Bench) -> None:
    """The window of a new consumer is for the inbox, which others read too; this was meant for whoever comes."""
    message = await bench.send(to="project:shop")
    late = await bench.send("too old for someone new")
    bench.clock.advance(timedelta(days=5).total_seconds())
    assert ids(await bench.pull(reads(FIRST, "project:shop"))) == [message]
    assert late not in ids(await bench.pull(OTHER))


async def test_all_mail_to_a_project_waits_for_its_first_reader(tmp_path: Path) -> None:
    """However much it is: nobody else was given it. Whoever comes next begins with the newest, and is told so."""
    shop = Mailbox("project:shop")
    async with open_bench(tmp_path, Bounds(new_consumer_most=2)) as bench:
        sent = [await bench.send(f"number {number}", to=shop) for number in range(5)]
        assert ids(await bench.pull(await bench.inbox.person(SessionKey("w")))) == sent
        assert ids(await bench.pull(reads(FIRST, shop))) == sent
        assert (await bench.inbox.stats(reads(FIRST, shop))).left_out == {}
        assert ids(await bench.pull(reads(OTHER, shop))) == sent[3:]
        assert (await bench.inbox.stats(reads(OTHER, shop))).left_out == {shop: Omission(surplus=3, up_to=3)}


async def test_one_message_with_a_wrong_clock_hides_nothing(bench: Bench) -> None:
    """The clock of a machine may be wrong for a moment; what came before and after is as young as it was."""
    before = await bench.send("before")
    bench.clock.set_back(timedelta(days=10).total_seconds())
    wrong = await bench.send("with a wrong clock")
    bench.clock.advance(timedelta(days=10).total_seconds())
    after = await bench.send("after")
    assert ids(await bench.pull()) == [before, wrong, after]


async def test_sending_where_no_agent_reads_is_said(bench: Bench) -> None:
    """A promise that the next session gets it would never be kept."""
    sent = await bench.inbox.send(OWNER, "hello", to="project:shop")
    assert sent.forecast.outlook is Outlook.NO_READER
    assert "project:shop" in sent.forecast.sentence


async def test_a_wake_that_is_quicker_than_the_forecast_does_not_change_it(bench: Bench) -> None:
    """A host is asked whether it can be woken, and may answer after the wake: who is busy by then was woken by it."""
    session = bench.connect(FIRST)
    session.moments.add("prompt")
    session.wakers["wake: bell"] = Way()
    session.rest()

    async def woken_meanwhile() -> str:
        if await bench.inbox.waiting(FIRST, frozenset(Attention), 1):
            session.work()
        return ""

    session.probe = woken_meanwhile
    sent = await bench.inbox.send(OWNER, "hello")
    assert sent.forecast.outlook is Outlook.WAKE


async def test_a_configured_project_has_readers(tmp_path: Path) -> None:
    """Its sessions come when somebody works there."""
    shop = Mailbox("project:shop")
    async with open_bench(tmp_path, Bounds(agents_read=frozenset({INBOX, shop}))) as bench:
        sent = await bench.inbox.send(OWNER, "hello", to=shop)
        assert sent.forecast.outlook is Outlook.NEXT_SESSION
