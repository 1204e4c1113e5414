"""What a promise of a page is, for those who write them down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """A verbatim part of one statement of a page, `…` for what is between two parts, and the tests that hold it."""

    quote: str
    held_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PromisePage:
    """A page, what it promises, and what it says without a promise, with the reason."""

    path: str
    promises: Sequence[Promise]
    no_promise: Mapping[str, str]
    without: Collection[str] = ()  # sections that promise nothing


def held(quote: str, *tests: str) -> Promise:
    """Return a promise with the names of its tests."""
    return Promise(quote, tests)
