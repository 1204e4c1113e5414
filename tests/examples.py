"""How many examples a property test tries: all of them in `make soak`, a quarter in `make test`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

ALL: Final = 100
"""What a test tries in `make soak` that gives no number of its own."""

QUARTER: Final = ALL // 4


def examples(number: int) -> int:
    """Return how many of so many examples are tried in this run."""
    return number * settings().max_examples // ALL
