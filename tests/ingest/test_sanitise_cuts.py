"""A text that is cut is as clean at its end as everywhere else. Found by `make fuzz`."""

from __future__ import annotations

import pytest

from harken.ingest.sanitise import clean, one_line
from harken.model import TextFormat

CHAIN = "\U0001f3fd\u200d" * 60  # skin tones, each joined to the next: there is no place to cut it at


@pytest.mark.parametrize("size", [2, 3, 12, 13])
def test_chain_of_joined_signs_leaves_no_joiner_before_the_ellipsis(size: int) -> None:
    """What nobody sees does not stay behind, and a line that is cut twice is the same."""
    line = one_line(CHAIN, size)
    assert "\u200d…" not in line
    assert one_line(line, size) == line


def test_text_that_ends_in_a_chain_of_joined_signs_is_cut_once() -> None:
    """A text that is cleaned twice on its way must not differ from one that is cleaned once."""
    for size in range(50, 60):
        once = clean(CHAIN, TextFormat.PLAIN, size).text
        assert "\u200d\n" not in once
        assert clean(once, TextFormat.PLAIN, size).text == once


def test_text_of_which_only_white_space_would_be_left_is_the_note_alone() -> None:
    """A blank line before the note would go when the text is cleaned once more."""
    once = clean("\t" * 90 + "words", TextFormat.PLAIN, 60).text
    assert once == "[… 95 characters cut]"
    assert clean(once, TextFormat.PLAIN, 60).text == once
