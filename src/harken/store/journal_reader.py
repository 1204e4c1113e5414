"""Reading the journal's files back: where they end, and their lines in the order of their numbers.

Nothing is changed here, and nothing is believed: a line that is none of ours is left out. Writing is `journal.py`.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harken.store.contract.health import StoreIdentity
from harken.store.identity import is_volatile
from harken.store.journal import DAY_FILES, last_line

JournalLine = Mapping[str, object]
"""A line as it was written: `n`, `at`, `kind`, and what the kind has."""

_decode = msgspec.json.Decoder(dict[str, object]).decode


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """The highest number in the journal, 0 when it is empty, and the store that the line with it is of."""

    number: int = 0
    store: StoreIdentity | None = None


@dataclass(frozen=True, slots=True)
class _DayFile:
    path: Path
    first: int
    last: int


def find_end(folder: Path) -> JournalEnd:
    """Return where the journal ends."""
    end = JournalEnd()
    for path in _day_files(folder):
        number, text = last_line(path)
        if number > end.number:
            line = _parse(text)
            end = JournalEnd(number, StoreIdentity.parse(line.get("store")) if line else None)
    return end


def lines_after(folder: Path, number: int) -> Iterator[JournalLine]:
    """Yield the lines with higher numbers, in the order of these; each number once."""
    newest = number
    for cluster in _clusters(folder, number):
        merged = heapq.merge(*(_lines(file.path) for file in cluster), key=number_of)
        for line in merged:
            if number_of(line) > newest:
                newest = number_of(line)
                yield line


def every_line(folder: Path) -> Iterator[JournalLine]:
    """Yield the lines as they stand in the files, in any order: for files that others may have written."""
    for path in _day_files(folder):
        yield from _lines(path)


def number_of(line: JournalLine) -> int:
    """Return the number of a line, 0 for what has none."""
    number = line.get("n")
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def count_synced(folder: Path, number: int) -> tuple[int, int]:
    """Count the events above a number that no power cut takes from a database; and the messages among them."""
    kinds = [line.get("kind") for line in lines_after(folder, number) if not is_volatile(str(line.get("kind")), line)]
    return len(kinds), kinds.count("received")


def _clusters(folder: Path, number: int) -> Iterator[Sequence[_DayFile]]:
    """Yield the files in order; those with overlapping numbers, because the clock was set back, together."""
    files = sorted(
        (file for path in _day_files(folder) if (file := _look(path)).last > number),
        key=lambda file: (file.first, file.last),
    )
    cluster: list[_DayFile] = []
    for file in files:
        if cluster and file.first > max(each.last for each in cluster):
            yield cluster
            cluster = []
        cluster.append(file)
    if cluster:
        yield cluster


def _day_files(folder: Path) -> list[Path]:
    """Return the files that can be read: one that cannot is the journal's own worry, and no reason to stop."""
    return [path for path in folder.glob(DAY_FILES) if path.is_file() and os.access(path, os.R_OK)]


def _look(path: Path) -> _DayFile:
    first = next((number_of(line) for line in _lines(path)), 0)
    return _DayFile(path, first, last_line(path)[0])


def _lines(path: Path) -> Iterator[JournalLine]:
    with path.open("rb") as file:
        for text in file:
            line = _parse(text)
            if line is not None and number_of(line):
                yield line


def _parse(text: bytes) -> JournalLine | None:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
