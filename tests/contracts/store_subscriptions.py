"""The part of the store suite about callback subscriptions: renewed, told of each event once, suspended, ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from harken.errors import Conflict, NotFound
from harken.model import OutboxId
from harken.store.contract import Store
from harken.store.contract.outbox import CallbackSubscription, EventPost
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_suite import Journal, StoreSuite, fill, later

OVERLAP = timedelta(hours=1)
TOKEN = f"t-{1}"
FIRST, SECOND = (f"whsec_{each}" for each in ("first", "second"))


def wanted(clock: FakeClock, number: int = 0) -> CallbackSubscription:
    """Return a subscription as the use case would ask for it."""
    return CallbackSubscription(
        id="sub-1",
        token=TOKEN,
        holder="buildbox",
        url="https://agent.example.org/hooks/0123456789",
        event="message.received",
        arguments='{"channel":"ci"}',
        secret=FIRST,
        made_at=clock.now(),
        renewed_at=clock.now(),
        expires_at=later(clock, 600),
        number=number,
    )


async def posts_of(store: Store, count: int) -> list[EventPost]:
    """Return events about the first messages of the inbox."""
    return [
        EventPost(number=n, id=f"evt-{n}", message=(await store.messages.get(f"#{n}")).id, body=f'{{"n":{n}}}')
        for n in range(1, count + 1)
    ]


class SubscriptionSuite(StoreSuite):
    """Who has events posted to an address."""

    async def test_subscription_is_stored_and_its_secrets_and_path_are_in_no_event(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """The address may be all that guards its receiver, and the secret signs in our name."""
        made = await store.subscriptions.keep(wanted(clock), OVERLAP)
        assert made == wanted(clock)
        assert await store.subscriptions.find("sub-1") == made
        assert await store.subscriptions.list() == [made]
        (event,) = journal.of("subscription")
        assert event.data == {
            "subscription": "sub-1",
            "token": "buildbox",
            "change": "made",
            "event": "message.received",
            "filter": {"channel": "ci"},
            "to": "https://agent.example.org",
        }
        assert "0123456789" not in repr(made)
        assert "first" not in repr(made)

    async def test_renewing_replaces_the_secret_and_the_one_before_signs_on(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """A receiver that has only one of the two must understand what is posted meanwhile. Its place stays."""
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        clock.advance(60)
        again = replace(wanted(clock, number=77), secret=SECOND, expires_at=later(clock, 600))
        renewed = await store.subscriptions.keep(again, OVERLAP)
        assert (renewed.secret, renewed.former_secret) == (SECOND, FIRST)
        assert renewed.former_until == clock.now() + OVERLAP
        assert (renewed.number, renewed.expires_at) == (0, later(clock, 600))
        assert await store.subscriptions.keep(again, OVERLAP) == renewed
        assert [event.data["change"] for event in journal.of("subscription")] == ["made", "rotated"]

    async def test_events_enter_the_outbox_once_in_their_order(self, store: Store, clock: FakeClock) -> None:
        """A daemon that was too slow to move the subscription must not put its events there again."""
        await fill(store, "one", "two")
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        with pytest.raises(NotFound):
            await store.subscriptions.queue("sub-2", [], since=0, number=1)
        posts = await posts_of(store, 2)
        await store.subscriptions.queue("sub-1", posts, since=0, number=2)
        with pytest.raises(Conflict):
            await store.subscriptions.queue("sub-1", posts, since=0, number=2)
        first = await store.subscriptions.next_post("sub-1")
        assert first is not None
        assert (first.upstream_id, first.event, first.subscription, first.message.text) == ("evt-1", 1, "sub-1", "one")
        assert [row.upstream_id for row in await store.outbox.list(state="queued")] == ["evt-2", "evt-1"]
        await store.subscriptions.posted("sub-1", first.id)
        await store.subscriptions.posted("sub-1", first.id)
        second = await store.subscriptions.next_post("sub-1")
        assert second is not None
        assert second.upstream_id == "evt-2"
        found = await store.subscriptions.find("sub-1")
        assert found is not None
        assert (found.number, found.told, found.told_at) == (2, 1, clock.now())

    async def test_an_event_is_no_reply(self, store: Store, clock: FakeClock) -> None:
        """What answers a message, and what a source has to send, are replies alone; what is not posted is kept."""
        await fill(store, "question", "newest")
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        await store.subscriptions.queue("sub-1", await posts_of(store, 1), since=0, number=1)
        assert await store.outbox.due(10) == []
        question = (await store.messages.get("#1")).id
        assert await store.outbox.to_message(question) == []
        assert await store.outbox.to_messages([question]) == {question: []}
        clock.advance(86_400)
        await store.retention.prune(Limits(max_count=1, max_age_seconds=1e9))
        assert await store.subscriptions.next_post("sub-1") is not None

    async def test_what_cannot_be_posted_is_parked_and_suspends_the_subscription(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """An address that nothing reaches is not tried for ever, and the person sees it; a retry goes on with it."""
        await fill(store, "one", "two")
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        posts = await posts_of(store, 2)
        await store.subscriptions.queue("sub-1", posts, since=0, number=2)
        ids: list[OutboxId] = []
        for _ in posts:
            row = await store.subscriptions.next_post("sub-1")
            assert row is not None
            ids.append(row.id)
            again = later(clock, 5)
            await store.subscriptions.failed("sub-1", row.id, "http_5xx", due_at=again, suspend_after=2)
            tried = await store.subscriptions.next_post("sub-1")
            assert tried is not None
            assert (tried.attempts, tried.error, tried.due_at) == (1, "http_5xx", again)
            await store.subscriptions.failed("sub-1", row.id, "http_5xx", due_at=None, suspend_after=2)
        found = await store.subscriptions.find("sub-1")
        assert found is not None
        assert (found.is_suspended, found.error, found.failing_from) == (True, "http_5xx", clock.now())
        assert [row.state for row in await store.outbox.list(state="parked")] == ["parked"] * 2
        changes = [event.data["change"] for event in journal.of("subscription")]
        assert changes == ["made", "parked", "parked", "suspended"]
        await store.outbox.retry([ids[0]])
        row = await store.subscriptions.next_post("sub-1")
        assert row is not None
        assert row.id == ids[0]
        found = await store.subscriptions.find("sub-1")
        assert found is not None
        assert not found.is_suspended

    async def test_renewing_ends_a_suspension(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """The receiver is back: what waited for it is due at once."""
        await fill(store, "one", "two")
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        posts = await posts_of(store, 2)
        await store.subscriptions.queue("sub-1", posts, since=0, number=2)
        first = await store.subscriptions.next_post("sub-1")
        assert first is not None
        await store.subscriptions.failed("sub-1", first.id, "timeout", due_at=None, suspend_after=1)
        renewed = await store.subscriptions.keep(wanted(clock), OVERLAP)
        assert (renewed.is_suspended, renewed.given_up) == (False, 0)
        assert [event.data["change"] for event in journal.of("subscription")][-1] == "resumed"

    async def test_a_gap_is_kept_until_the_subscriber_knows(self, store: Store, clock: FakeClock) -> None:
        """What was missed is said, also by the daemon after this one."""
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        await store.subscriptions.queue("sub-1", [], since=0, number=9, has_gap=True)
        await store.subscriptions.queue("sub-1", [], since=9, number=12)
        found = await store.subscriptions.find("sub-1")
        assert found is not None
        assert (found.has_gap, found.number) == (True, 12)
        await store.subscriptions.told_gap("sub-1")
        found = await store.subscriptions.find("sub-1")
        assert found is not None
        assert not found.has_gap

    async def test_an_ended_subscription_leaves_nothing_in_the_outbox(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """Nothing may be posted for a token that has ended; and a message is not kept for it."""
        await fill(store, "one")
        await store.subscriptions.keep(wanted(clock), OVERLAP)
        await store.subscriptions.queue("sub-1", await posts_of(store, 1), since=0, number=1)
        for _ in range(2):
            await store.subscriptions.end("sub-1", "its token was revoked")
        assert await store.subscriptions.find("sub-1") is None
        assert await store.outbox.list() == []
        await store.subscriptions.failed("sub-1", None, "timeout", due_at=None)
        assert [event.data["change"] for event in journal.of("subscription")] == ["made", "ended"]
