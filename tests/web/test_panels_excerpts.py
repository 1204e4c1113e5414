"""What a search shows of a message: the right words are marked, and the text stays what it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harken.surfaces.web.page.panels import ELLIPSIS, LONGEST_EXCERPT, MarkedPiece, excerpt, folded, marked, words_of

TEXTS = st.text(max_size=600)


@given(TEXTS, TEXTS)
def test_pieces_joined_are_the_text(text: str, query: str) -> None:
    """Marking must neither lose nor add anything: the reader judges the message by it."""
    assert "".join(piece.text for piece in marked(text, words_of(query))) == text


@given(TEXTS, TEXTS)
def test_only_the_words_are_marked(text: str, query: str) -> None:
    """A mark says: this is why it was found."""
    words = words_of(query)
    assert all(folded(piece.text) in words for piece in marked(text, words) if piece.is_match)


@given(st.text(max_size=3_000), TEXTS)
def test_excerpt_is_short_and_on_one_line(text: str, query: str) -> None:
    """A huge message is one result among others."""
    shown = "".join(piece.text for piece in excerpt(text, words_of(query)))
    assert len(shown) <= LONGEST_EXCERPT + 2 * len(ELLIPSIS)
    assert not set(shown) & set("\n\r\t\v\f")


def test_words_are_found_as_the_index_finds_them() -> None:
    """Otherwise results would be shown without what they were found for."""
    assert list(marked("Die Prüfung läuft: snake_case", words_of("PRUFUNG case"))) == [
        MarkedPiece("Die "),
        MarkedPiece("Prüfung", is_match=True),
        MarkedPiece(" läuft: snake_"),
        MarkedPiece("case", is_match=True),
    ]


def test_excerpt_begins_near_the_first_match() -> None:
    """The reader sees the place, not the greeting of a long mail."""
    pieces = excerpt("hello " * 500 + "the needle is here " + "bye " * 500, words_of("needle"))
    assert pieces[0] == pieces[-1] == MarkedPiece(ELLIPSIS)
    assert MarkedPiece("needle", is_match=True) in pieces


def test_text_without_spaces_is_cut_all_the_same() -> None:
    """Ten thousand characters without a space are one of the things people get."""
    shown = "".join(piece.text for piece in excerpt("x" * 10_000, words_of("y")))
    assert shown == "x" * LONGEST_EXCERPT + ELLIPSIS
