"""What goes into one result: never more than its host shows its model, whatever the messages say. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken import render
from harken.budget import (
    FRAME_BYTES,
    LISTING_PART,
    Rendering,
    ResultBudget,
    encoded_bytes,
    newest_that_fit,
)
from harken.hosts.host import GENERIC
from harken.inbox.results import PullResult
from harken.ingest.policy import MAX_SAID_CHARS as MAX_CHARS
from harken.ingest.prepare import MAX_ID, MAX_META_ENTRIES, MAX_META_VALUE, MAX_NAME, MAX_SENDER_ID
from harken.model import Consumer, DeliveryId, MessageId, Offer, Selection, Sender, Trust
from harken.verbs.verb import ToolAnswer, cut_note
from tests.builders import a_message
from tests.examples import examples

NOW: Final = datetime(2026, 11, 17, 9, 0, tzinfo=UTC)
SMALLEST: Final = GENERIC.result_bytes
HIGHEST: Final = 10**12


@dataclass(frozen=True, slots=True)
class Surface:
    """How a tool renders messages, and the JSON around them."""

    whole: Rendering
    cut: Rendering
    field: str  # that holds the text
    is_list: bool = True

    def value(self, selection: Selection) -> object:
        """Return the JSON of a result."""
        entries = [*map(self.whole, selection.whole), *map(self.cut, selection.cut)]
        return entries if self.is_list else {"unread_remaining": HIGHEST, "messages": entries}


SURFACES: Final[Mapping[str, Surface]] = {
    "inbox_pull": Surface(render.for_pull, render.cut_for_pull, "content_text_sanitized", is_list=False),
    "wait_for_inbound_message": Surface(render.for_wait, render.cut_for_wait, "content"),
    "inbox_search": Surface(render.for_search, render.cut_for_search, "content_text_sanitized", is_list=False),
    "check_inbox": Surface(
        partial(render.for_task, task="t" * 100), partial(render.cut_for_task, task="t" * 100), "body"
    ),
}
on_every_surface = pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES)


def offers(*texts: str) -> Sequence[Offer]:
    """Return what would be offered, one for each text."""
    return [
        Offer(
            message=a_message(
                text,
                id=MessageId(f"m-{number:010d}"),
                seq=number,
                received_at=NOW,
                sender=Sender("ann", "Ann"),
                trust=Trust.UNKNOWN,
            ),
            delivery_id=DeliveryId(f"d-{number:010d}"),
        )
        for number, text in enumerate(texts)
    ]


def texts_of(chosen: Sequence[Offer]) -> list[str]:
    """Return what was chosen."""
    return [offer.message.text for offer in chosen]


def pull(max_bytes: int) -> ResultBudget:
    """Return the budget of `inbox_pull` on a host that shows so much."""
    return ResultBudget(max_bytes, render.for_pull, render.cut_for_pull)


# Letters of one byte, of two, three and four, and such as JSON writes with two or six.
ALPHABET: Final = 'a "\\\n\té今😀\x01'
TEXTS: Final = st.builds(
    lambda letters, times: (letters * times)[:MAX_CHARS],
    st.text(alphabet=ALPHABET, min_size=1, max_size=40),
    st.integers(min_value=1, max_value=2_000),
)
SHORT: Final = st.text(alphabet=ALPHABET, max_size=30)


@st.composite
def waiting(draw: st.DrawFn) -> Sequence[Offer]:
    """Draw what may wait: texts of every length, names of every script, repeats, others that have read it."""
    found = []
    for offer in offers(*draw(st.lists(TEXTS, max_size=12))):
        name, channel, thread = draw(SHORT), draw(SHORT), draw(SHORT)
        meta = draw(st.dictionaries(SHORT, SHORT, max_size=3))
        said = replace(offer.message, sender=Sender("ann", name), channel=channel, thread=thread, meta=meta)
        readers = draw(st.lists(st.sampled_from([Consumer("claude-code"), Consumer("codex")]), unique=True))
        answered = draw(st.sampled_from([None, *readers]))
        is_repeat = draw(st.booleans())
        found.append(replace(offer, message=said, is_repeat=is_repeat, answered_by=answered, seen_by=tuple(readers)))
    return found


@on_every_surface
@settings(max_examples=examples(40))
@given(found=waiting(), max_bytes=st.integers(min_value=SMALLEST, max_value=60_000), limit=st.integers(1, 20))
def test_result_is_within_the_budget_and_hides_nothing(
    surface: Surface, found: Sequence[Offer], max_bytes: int, limit: int
) -> None:
    """A result that is longer is cut by the host, and what it carried would count as seen; nothing may vanish either.

    Each message is whole in it, or cut and marked so, or still counted as waiting; and never twice.
    """
    chosen = ResultBudget(max_bytes, surface.whole, surface.cut)(found, limit)
    note = cut_note(PullResult.of(chosen, HIGHEST), "inbox_pull")
    blocks = ToolAnswer(surface.value(chosen), note=note).texts(HIGHEST)
    assert sum(len(block.encode()) for block in blocks) <= max_bytes

    whole, cut = {each.message.id for each in chosen.whole}, {each.message.id for each in chosen.cut}
    assert len(whole) == len(chosen.whole) <= limit
    assert len(cut) == len(chosen.cut)
    assert not whole & (cut | chosen.too_long)
    assert whole | cut <= {each.message.id for each in found}
    assert found == [] or whole | cut
    for each in chosen.cut:
        entry = surface.cut(each)
        assert isinstance(entry, dict)
        assert (entry["truncated"], entry["length"]) == (True, len(each.message.text))
        assert each.message.text.startswith(entry[surface.field])
        assert entry[surface.field] != each.message.text
        assert "delivery_id" not in entry
    for each in chosen.whole:
        entry = surface.whole(each)
        assert isinstance(entry, dict)
        assert entry[surface.field] == each.message.text
        assert "truncated" not in entry


@settings(max_examples=examples(40))
@given(found=waiting(), max_bytes=st.integers(min_value=SMALLEST, max_value=60_000))
def test_asking_again_and_again_gives_all_that_is_not_too_long(found: Sequence[Offer], max_bytes: int) -> None:
    """Each result goes on where the one before ended, in order: no message waits for ever behind another."""
    left, given_so_far = list(found), list[Offer]()
    while True:
        chosen = pull(max_bytes)(left, 20)
        if not chosen.whole:
            break
        given_so_far += chosen.whole
        left = [each for each in left if each not in chosen.whole]
    assert {each.message.id for each in left} == chosen.too_long
    assert [each.message.seq for each in given_so_far] == sorted(each.message.seq for each in given_so_far)
    room = max_bytes - max_bytes // LISTING_PART - FRAME_BYTES
    assert all(encoded_bytes(render.for_pull(each)) > room for each in left)


def test_long_message_does_not_stand_before_short_ones() -> None:
    """It is listed; those behind it go whole."""
    chosen = pull(SMALLEST)(offers("x" * 30_000, "one", "y" * 30_000, "two"), 20)
    assert texts_of(chosen.whole) == ["one", "two"]
    assert texts_of(chosen.cut) == ["x" * 30_000, "y" * 30_000]
    assert not chosen.is_full


def test_order_is_kept_among_those_that_fit() -> None:
    """A short message does not overtake one that is the first of the next result."""
    chosen = pull(SMALLEST)(offers("a" * 6_000, "b" * 6_000, "c"), 20)
    assert texts_of(chosen.whole) == ["a" * 6_000]
    assert texts_of(chosen.cut) == ["b" * 6_000, "c"]
    assert (chosen.is_full, chosen.too_long) == (True, frozenset())


def test_message_that_fits_only_alone_goes_alone() -> None:
    """Else it would have to be read in two pieces, and the second would be a line."""
    text = "x" * (SMALLEST - FRAME_BYTES - encoded_bytes(render.for_pull(*offers(""))))
    assert texts_of(pull(SMALLEST)(offers(text), 20).whole) == [text]
    assert texts_of(pull(SMALLEST)(offers(text + "x"), 20).whole) == []


def test_list_of_what_is_cut_takes_a_quarter_at_most() -> None:
    """First words of many are worth less than whole messages."""
    chosen = pull(SMALLEST)(offers(*("x" * 30_000 for _ in range(50)), *("short" for _ in range(20))), 20)
    assert sum(encoded_bytes(render.cut_for_pull(each)) for each in chosen.cut) <= SMALLEST // LISTING_PART
    assert len(chosen.whole) > 10


def test_header_that_fills_the_list_is_heard_of_when_nothing_else_is_there() -> None:
    """Whoever chooses names and ids so long that no list holds them must not make a message that nobody hears of."""
    (plain,) = offers("x" * MAX_CHARS)
    hostile = replace(
        plain.message,
        sender=Sender("😀" * MAX_SENDER_ID, "😀" * MAX_NAME),
        channel="😀" * MAX_NAME,
        conversation="😀" * MAX_ID,
        thread="😀" * MAX_ID,
        text="😀" * MAX_CHARS,
        meta={f"{number}": "😀" * MAX_META_VALUE for number in range(MAX_META_ENTRIES)},
    )
    chosen = pull(SMALLEST)([replace(plain, message=hostile)], 20)
    assert len(chosen.cut) == 1
    (block,) = ToolAnswer({"unread_remaining": HIGHEST, "messages": [render.cut_for_pull(chosen.cut[0])]}).texts(0)
    assert len(block.encode()) <= SMALLEST


def test_resource_has_as_many_headers_as_fit() -> None:
    """Names are somebody's word, too; the count is what must arrive."""
    newest = [replace(each.message, sender=Sender("😀" * MAX_SENDER_ID)) for each in offers(*"abcde")]
    for most in (SMALLEST, 5_000, 100):
        assert encoded_bytes(newest_that_fit(5, newest, most)) <= most
    assert len(json.dumps(newest_that_fit(5, newest, SMALLEST)["newest"])) > 1_000
    assert newest_that_fit(5, newest, 100) == {"unread": 5, "last_id": "", "newest": []}


def test_first_words_end_with_a_word() -> None:
    """Half a word may say something else; a text without spaces is cut all the same."""
    assert render.first_words("short") == "sh"
    cut = render.first_words("word " * 100)
    assert len(cut) <= render.FIRST_WORDS_CHARS
    assert cut.endswith("word")
    assert render.first_words("今" * 500) == "今" * render.FIRST_WORDS_CHARS
