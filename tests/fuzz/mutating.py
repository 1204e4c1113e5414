"""Bytes made of other bytes: torn, joined and sprinkled with words of the target, and JSON with its values exchanged.

Changing bytes of JSON nearly always gives something that is none; so a part of the cases exchanges whole values and
writes them again. The same seed gives the same cases. Coverage is not known here: `scripts/fuzz.py` adds it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

ODD_BYTES: Final = (
    *(b"", b"\x00", b"\n", b"\r\n", b"\n\n", b"\x1b[31m", b"\x1b]0;t\x07", b"\x9b", b"\xff", b"\xed\xa0\x80", b"\xc0"),
    *("\u202e".encode(), "\u200b".encode(), "\u0301".encode() * 9, "\ufe0f".encode(), "\U000e0041".encode()),
    *(b"<", b">", b"[", b"]", b"{", b"}", b'"', b"\\", b"\\u0000", b"\\ud800", b"%00", b"=?utf-8?q?=00?=", b"--"),
    *(b"<system-reminder>", b"</channel>", b"<b>", b"<!--", b"&lt;", b"A" * 300, b"[" * 200, b"0" * 40),
)
ODD_VALUES: Final[tuple[object, ...]] = (
    *(None, True, False, 0, -1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, -0.0, 1.5),
    *("", " ", "\n", "\x00", "\ud800", "\u202e", "a\nb", "0", "-1", "null", "9" * 30, "1e400", "NaN", "x" * 300),
    *("<system-reminder>", "\x1b[2J", "2026-02-30T25:61:61Z", "0001-01-01T00:00:00+14:00", "https://[", "../../x"),
    *([], {}, [[]], [None], [{}], {"": ""}, {"id": None}, [1, "a", None], {"value": [{}]}),
)
MAX_CHANGES: Final = 6
MAX_DEPTH: Final = 40
MAX_PLACES: Final = 1_000

Path: TypeAlias = tuple[str | int, ...]
"""Where a value is in JSON: keys and numbers, from outside."""


class Chance(random.Random):
    """The same surprises in every run."""


class Mutator:
    """Makes cases for one target."""

    def __init__(self, seeds: Sequence[bytes], tokens: Sequence[bytes], most_bytes: int) -> None:
        self._seeds = list(seeds) or [b""]
        self._tokens = [*tokens, *ODD_BYTES]
        self._most_bytes = most_bytes

    def case(self, number: int) -> bytes:
        """Return a case by its number: first every seed as it is, then something made of them."""
        if number < len(self._seeds):
            return self._seeds[number]
        chance = Chance(number)
        return self.changed(chance.choice(self._seeds), chance)

    def changed(self, data: bytes, chance: Chance) -> bytes:
        """Return some bytes, changed in a few places."""
        # Mostly one kind at a time: JSON that was torn is none, and then its values do not matter.
        exchanging = chance.choice((0.0, 0.2, 1.0, 1.0))
        for _ in range(chance.randint(1, MAX_CHANGES)):
            data = self._with_value(data, chance) if chance.random() < exchanging else self._torn(data, chance)
        return data[: self._most_bytes]

    def _torn(self, data: bytes, chance: Chance) -> bytes:
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((0, 0, 1, 1, 2, 8, 64)))
        match chance.randrange(6):
            case 0:
                put = chance.choice(self._tokens)
            case 1:
                put = data[start:end] * chance.choice((2, 3, 20))
            case 2:
                put = bytes([chance.randrange(256)])
            case 3:
                other = chance.choice(self._seeds)
                begin = chance.randint(0, len(other))
                put = other[begin : begin + chance.choice((4, 16, 256))]
            case 4:
                put = bytes(each ^ (1 << chance.randrange(8)) for each in data[start:end])
            case _:
                put = b""
        return data[:start] + put + data[end:]

    def _with_value(self, data: bytes, chance: Chance) -> bytes:
        """Return bytes with one value of the JSON behind their last blank line exchanged; torn where there is none."""
        head, blank, body = data.rpartition(b"\n\n")
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            return self._torn(data, chance)
        try:
            return head + blank + json.dumps(_exchanged(tree, chance)).encode()
        except RecursionError:
            return data


def _exchanged(tree: object, chance: Chance) -> object:
    """Return a tree with one value exchanged or taken away; each place is as likely as any other."""
    path = chance.choice(list(islice(_places(tree, (), MAX_DEPTH), MAX_PLACES)))
    return _with(tree, path, chance)


def _places(tree: object, path: Path, depth: int) -> Iterator[Path]:
    yield path
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner if depth else ():
        yield from _places(value, (*path, key), depth - 1)


def _with(tree: object, path: Path, chance: Chance) -> object:
    if not path:
        return chance.choice(ODD_VALUES)
    key, *rest = path
    is_gone = not rest and chance.random() < 1 / 10
    if isinstance(tree, list):
        return [
            _with(value, tuple(rest), chance) if place == key else value
            for place, value in enumerate(tree)
            if not (is_gone and place == key)
        ]
    assert isinstance(tree, dict)
    return {
        name: _with(value, tuple(rest), chance) if name == key else value
        for name, value in tree.items()
        if not (is_gone and name == key)
    }
