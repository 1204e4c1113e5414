"""The marks by which a told text is found again, in prompts and in the records of hosts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken import render
from harken.model import DeliveryId, Offer
from harken.sessions.turns import holds
from tests.builders import a_message

DELIVERY = DeliveryId("d-0000000007")
TEXTS = st.text(max_size=60)


def offer_of(text: str) -> Offer:
    """Return a message with this text as it is offered."""
    message = a_message(text, received_at=datetime(2026, 1, 5, 9, 0, tzinfo=UTC))
    return Offer(message=message, delivery_id=DELIVERY)


def renderings(text: str) -> list[str]:
    """Return a message as every surface gives it whole."""
    offer = offer_of(text)
    message = offer.message
    results = [json.dumps(each(offer)) for each in (render.for_pull, render.for_wait)]
    compact = [json.dumps(render.for_pull(offer), separators=(",", ":"))]
    return [render.telling([offer]), render.channel_block([message], {message.id: DELIVERY}), *results, *compact]


@given(TEXTS)
def test_every_rendering_of_a_whole_text_is_found(text: str) -> None:
    """In a prompt as it is, and in records as JSON inside of JSON."""
    for told in renderings(text):
        record = json.dumps({"content": told})
        for place in (told, record, json.dumps({"line": record})):
            assert holds(place, DELIVERY)
            assert holds(place.encode("utf-8", "replace"), DELIVERY)
            assert not holds(place, "d-0000000008")


@given(TEXTS.map(lambda text: text + "."), st.data())
def test_telling_that_was_cut_is_not_found(text: str, data: st.DataObject) -> None:
    """A host that cuts shows the beginning, which names the delivery too."""
    told = render.telling([offer_of(text)])
    cut = data.draw(st.integers(0, told.index(f"--- {DELIVERY} ends") + len(DELIVERY) + 6))
    assert not holds(told[:cut], DELIVERY)


@pytest.mark.parametrize(
    "quote", ["{}", "see {}", "({})", "`{}` is offered", "--- {} begins", "--- {} ends", '{{"delivery_id": "{}"}}']
)
def test_quoted_id_is_not_the_text(quote: str) -> None:
    """People and agents read it in the ledger, and write of it."""
    assert not holds(quote.format(DELIVERY), DELIVERY)
