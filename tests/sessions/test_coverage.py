"""What a conversation was given of a long message, against a second, simpler way to say it."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from harken.model import MessageId
from harken.sessions.session import MAX_MESSAGES_IN_PIECES, Coverage

LENGTH: Final = 12
A, B = MessageId("m-a"), MessageId("m-b")
SPANS: Final = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, LENGTH)).map(
    lambda pair: (pair[0], min(LENGTH, pair[0] + pair[1]))
)


@given(st.lists(SPANS, max_size=12), SPANS)
def test_the_gap_is_the_first_character_that_no_piece_had(pieces: list[tuple[int, int]], last: tuple[int, int]) -> None:
    """A message is given when all of its characters are, in whatever order; one that is missing must be found."""
    coverage = Coverage()
    for piece in pieces:
        coverage.add(A, piece)
    had = {place for start, end in [*pieces, last] for place in range(start, end)}
    missing = [place for place in range(LENGTH) if place not in had]
    assert coverage.gap(A, LENGTH, last) == (missing[0] if missing else None)


def test_the_last_piece_alone_proves_nothing() -> None:
    """Whoever jumps to the end has not read the message."""
    coverage = Coverage()
    coverage.add(A, (8, 12))
    assert coverage.gap(A, LENGTH, (8, 12)) == 0
    assert coverage.gap(A, LENGTH, (0, 4)) == 4
    assert coverage.gap(B, LENGTH, (0, 12)) is None


def test_asking_does_not_add() -> None:
    """A piece counts when it was given, not when it was asked for."""
    coverage = Coverage()
    assert coverage.gap(A, LENGTH, (0, 6)) == 6
    assert coverage.gap(A, LENGTH, (6, 12)) == 0


def test_what_is_forgotten_counts_as_not_given() -> None:
    """However many messages are begun and left, no more is kept than is of use; and nothing is taken for read."""
    coverage = Coverage()
    coverage.add(A, (0, 6))
    for number in range(MAX_MESSAGES_IN_PIECES):
        coverage.add(MessageId(f"m-{number}"), (0, 1))
    assert coverage.gap(A, LENGTH, (6, 12)) == 0
    for start in range(0, 10_000, 2):
        coverage.add(B, (start, start + 1))
    assert coverage.gap(B, 10_000, (9_000, 10_000)) == 0
