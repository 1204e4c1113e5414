"""The use cases: saying, getting, proving, looking."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from harken.errors import Forbidden, NotFound, TooLong, UserError
from harken.inbox.caller import Bounds
from harken.inbox.results import Outlook
from harken.model import INBOX, WATCH, Attention, DeliveryState, Mailbox, Priority, SessionKey
from harken.store.contract.deliveries import Omission
from tests.inbox.rig import AGENT, FIRST, OTHER, OWNER, SECOND, Bench, ids, open_bench, reads
from tests.inbox.test_forecast import Way


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


@pytest.mark.parametrize("words", ["yes a-4k2m9x", "y\u200bes ap-7k2q8d", "NO ap-7k2q8d use make"])
async def test_agent_cannot_say_in_a_chat_what_answers_for_you(bench: Bench, words: str) -> None:
    """A reply may leave through an account of yours, and would come back as your word."""
    message = (await bench.inbox.send(OWNER, "how is it going?")).message.id
    with pytest.raises(Forbidden, match="answer what is asked of you"):
        await bench.inbox.reply(AGENT, message, words)
    assert (await bench.inbox.reply(AGENT, message, f"Write {words}")).body == f"Write {words}"
