"""The part of the store suite about choosing: an answer carries only so much, and nothing else is offered.

It knows `OfferFilter.choose` of the contract; what fits into the answer of which host is decided, and tested, far
above.
"""

from __future__ import annotations

from collections.abc import Sequence

from harken.model import Choose, DeliveryState, Offer, Selection
from harken.store.contract import Store
from harken.store.contract.deliveries import OfferFilter
from harken.testing import FakeClock
from tests.contracts.store_deliveries import DeliverySuite
from tests.contracts.store_suite import (
    AGENT,
    OTHER,
    OTHER_READER,
    READER,
    SECOND,
    Journal,
    fill,
    later,
    offer,
    offered_texts,
)


def up_to(characters: int) -> Choose:
    """Return a choice of whole texts with so many characters together; one that has more is too long for any."""

    def choose(offers: Sequence[Offer], limit: int) -> Selection:
        long = [each for each in offers if len(each.message.text) > characters]
        whole, left = list[Offer](), characters
        short = [each for each in offers if each not in long]
        for each in short[:limit]:
            left -= len(each.message.text)
            if left < 0:
                break
            whole.append(each)
        return Selection(whole=whole, cut=long, too_long=frozenset(each.message.id for each in long), is_full=left < 0)

    return choose


async def given(store: Store, clock: FakeClock, choose: Choose, limit: int = 10) -> Selection:
    """Offer what a choice lets go whole."""
    return await store.deliveries.offer(
        READER, limit, surface="pull", carrier="call-1", lease_until=later(clock, 900), where=OfferFilter(choose=choose)
    )


class ChoiceSuite(DeliverySuite):
    """What an answer carries."""

    async def test_only_what_goes_whole_is_offered(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """The rest has no row and no lease: whatever is proven later, it is not proven with it."""
        await fill(store, "one", "two", "three")
        selection = await given(store, clock, up_to(6))
        assert offered_texts(selection.whole) == ["one", "two"]
        assert selection.is_full
        (event,) = journal.of("offered")
        assert event.data["deliveries"] == {each.delivery_id: each.message.id for each in selection.whole}
        last = await store.messages.get("#3")
        assert await store.deliveries.ledger(last.id) == []
        assert (await store.deliveries.unread(READER)).leased == 2
        assert offered_texts(await offer(store, clock, SECOND)) == ["three"]

    async def test_what_is_chosen_is_what_is_proven(self, store: Store, clock: FakeClock) -> None:
        """The delivery ids that the choice saw are those that were stored."""
        await fill(store, "one", "too long")
        selection = await given(store, clock, up_to(3))
        seen = await store.deliveries.prove(
            [each.delivery_id for each in (*selection.whole, *selection.cut)], "later call"
        )
        assert [each.message_id for each in seen] == [each.message.id for each in selection.whole]

    async def test_what_no_answer_carries_does_not_stand_before_what_one_does(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Somebody who sends long texts must not keep all others from being heard."""
        await fill(store, *("too long" for _ in range(30)), "one", "two", "three")
        selection = await given(store, clock, up_to(5), limit=2)
        assert offered_texts(selection.whole) == ["one"]
        assert len(selection.too_long) == 30
        assert offered_texts((await given(store, clock, up_to(5), limit=2)).whole) == ["two"]

    async def test_a_choice_knows_what_is_a_repeat_and_who_has_read_it(self, store: Store, clock: FakeClock) -> None:
        """Both stand in the answer, and take room in it."""
        await fill(store, "one", "two")
        first = await offer(store, clock, limit=1)
        await store.deliveries.release(READER.session)
        (theirs, _) = await offer(store, clock, OTHER_READER)
        await store.deliveries.prove([theirs.delivery_id], "later call")
        await store.outbox.add(theirs.message.id, "on it", author="agent:copilot-cli", consumer=OTHER)
        one, two = (await given(store, clock, up_to(100))).whole
        assert (one.delivery_id, one.is_repeat, one.answered_by, one.seen_by) == (
            first[0].delivery_id, True, OTHER, (OTHER,)
        )  # fmt: skip
        assert (two.is_repeat, two.answered_by, two.seen_by) == (False, None, ())

    async def test_nothing_that_goes_whole_offers_nothing(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """A list of first words is no offer."""
        await fill(store, "too long")
        selection = await given(store, clock, up_to(3))
        assert (offered_texts(selection.whole), offered_texts(selection.cut)) == ([], ["too long"])
        assert journal.of("offered") == []
        assert await self._states(store) == []

    async def _states(self, store: Store) -> list[DeliveryState]:
        message = await store.messages.get("#1")
        return [each.state for each in await store.deliveries.ledger(message.id) if each.consumer == AGENT]
