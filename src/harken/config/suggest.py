"""The known word that an unknown one probably means.

Pure. Used for keys, values and environment variables alike, so that every "did you mean" reads the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word most like this one, or nothing when none is near; case and hyphens do not count."""
    plain: dict[str, str] = {}
    for candidate in known:
        plain.setdefault(_plain(candidate), candidate)
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.65)
    return plain[near[0]] if near else ""


def closest_name(name: str, known: Iterable[str]) -> str:
    """Return the dotted name most like this one: as a whole, else by its last part alone."""
    names = list(known)
    leaves: dict[str, str] = {}
    for candidate in names:
        leaves.setdefault(_plain(candidate).rpartition(".")[2], candidate)
    leaf = _plain(name).rpartition(".")[2]
    return closest(name, names) or leaves.get(closest(leaf, leaves), "")


def did_you_mean(guess: str) -> str:
    """Return the question to add to an error, or nothing without a guess."""
    return f" Did you mean {guess}?" if guess else ""


def _plain(word: str) -> str:
    # Without the bound, comparing a very long word with every candidate takes seconds.
    return word[:100].casefold().replace("-", "_")
