"""What is kept: pages of an export, and retention as the person asks for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from harken.errors import Forbidden, UserError
from harken.inbox.retention import ExportFilter, MailRetention
from harken.model import INBOX, DeliveryState
from harken.store.contract.retention import Limits, MailboxExcess, RetentionReport
from tests.inbox.rig import AGENT, FIRST, OTHER, OWNER, Bench

YEAR_SECONDS = 365 * 86_400.0
ALL = ExportFilter(mailbox="inbox")


def keeping(bench: Bench, most: int = 100) -> MailRetention:
    """Return what the daemon would make of it."""
    return MailRetention(bench.store, Limits(most, YEAR_SECONDS), lambda: 0)


async def test_exporting_pages_through_a_mailbox_with_who_has_seen_it(bench: Bench) -> None:
    """Nothing is skipped between two pages, and an offer alone is not 'seen'."""
    one, two, three = [await bench.send(text) for text in ("one", "two", "three")]
    await bench.inbox.ack(FIRST, [one])
    await bench.inbox.reply(AGENT, two, "on it")
    await bench.pull(OTHER)
    kept = keeping(bench)
    first = await kept.export(ALL, 0, 2)
    assert [(each.message.id, list(each.seen_by)) for each in first] == [(one, ["claude-code"]), (two, ["claude-code"])]
    assert [(each.message.id, list(each.seen_by)) for each in await kept.export(ALL, 2, 2)] == [(three, [])]
    assert list(await kept.export(ALL, 3, 2)) == []


async def test_each_filter_of_an_export_leaves_out_what_it_says(bench: Bench) -> None:
    """A person takes out one conversation, not everything."""
    await bench.send("a", channel="ci")
    later = bench.clock.advance(60)
    await bench.send("b", channel="ops")
    await bench.send("c", channel="ops", sender="ann")
    kept = keeping(bench)

    async def texts(chosen: ExportFilter) -> list[str]:
        return [each.message.text for each in await kept.export(chosen, 0, 9)]

    assert await texts(replace(ALL, channel="ops")) == ["b", "c"]
    assert await texts(replace(ALL, sender="ann")) == ["c"]
    assert await texts(replace(ALL, source="local")) == ["a", "b", "c"]
    assert await texts(replace(ALL, source="teams")) == []
    assert await texts(replace(ALL, since=later)) == ["b", "c"]
    assert await texts(replace(ALL, until=later)) == ["a"]
    with pytest.raises(UserError):
        await texts(replace(ALL, since=later, until=later - timedelta(seconds=1)))


async def test_an_export_with_ledgers_names_every_consumer_and_reply(bench: Bench) -> None:
    """An audit asks who was given what, and what was answered; who has not been given it belongs to that."""
    await bench.inbox.count(OTHER)
    message = await bench.send("one")
    await bench.pull(FIRST)
    await bench.inbox.reply(AGENT, message, "on it")
    (plain,) = await keeping(bench).export(ALL, 0, 9)
    assert (plain.ledger, plain.replies) == (None, None)
    (found,) = await keeping(bench).export(ALL, 0, 9, has_ledger=True)
    assert found.ledger is not None
    assert found.replies is not None
    states = {each.consumer: each.state for each in found.ledger}
    assert (states[FIRST.consumer], states[OTHER.consumer]) == (DeliveryState.ANSWERED, DeliveryState.QUEUED)
    assert [each.body for each in found.replies] == ["on it"]


async def test_only_the_person_removes_what_is_over_the_limits(bench: Bench) -> None:
    """A message can persuade an agent to run a command; it must not persuade it to make mail expire."""
    await bench.send("one")
    await bench.send("two")
    kept = keeping(bench, most=1)
    with pytest.raises(Forbidden):
        await kept.prune(AGENT)
    (found,) = [each for each in await kept.excess() if each.mailbox == INBOX]
    assert found == MailboxExcess(mailbox=INBOX, stored=2, over=1, to_expire=found.to_expire, to_delete=0)
    assert await kept.prune(OWNER) == RetentionReport(expired=found.to_expire, deleted=0)
