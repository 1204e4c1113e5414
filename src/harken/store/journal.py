"""The journal: one JSONL file a day, written from the store's events before anyone is pushed.

The store's event rows are the truth; a line is their copy for people and audits. So a file that cannot be written costs
no message: the journal says once that it is behind, shows it in `status`, and catches up from the store. A line cut off
by a crash is removed and written again at start. So is what was taken away: a file that was moved, deleted or changed
under the daemon is looked at anew. Where daemons share a store, each writes the lines of what it committed: the numbers
between them are the others'. The functions that read the files back change nothing and believe nothing: they leave out
a line that is none of ours.
"""

from __future__ import annotations

import errno
import heapq
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread
import msgspec

from harken.memory import json_bytes
from harken.model import record, timestamp
from harken.store.contract.events import Event, EventStore
from harken.store.contract.health import StoreIdentity
from harken.store.identity import is_volatile

_log = logging.getLogger("harken.journal")

_REPAIR_BATCH = 500
_CHUNK_BYTES = 1 << 16
_MAX_BAD_LINES = 100  # a file that ends in more than these was not left by a crash: it is not ours to cut
DAY_FILES = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].jsonl"
_decode = msgspec.json.Decoder(dict[str, object]).decode

JournalLine = Mapping[str, object]
"""A line as it was written: `n`, `at`, `kind`, and what the kind has."""


class _Stamps(dict[datetime, str]):
    """Times as they are written: the events of a commit share one, and writing it took longer than the rest."""

    def __missing__(self, moment: datetime) -> str:
        written = self[moment] = timestamp(moment)
        return written


def line(event: Event, written: Callable[[datetime], str] = timestamp, store: str = "") -> bytes:
    """Return an event as one line of the journal. `written` writes the times, `store` names the store of the line."""
    entry: dict[str, object] = {"n": event.n, "at": written(event.at), "kind": event.kind, **event.data}
    if store:
        entry["store"] = store
    if event.message is not None:
        entry["message"] = record(event.message, written=written)
    return json_bytes(entry) + b"\n"


class Journal:
    """Appends lines to `folder/YYYY-MM-DD.jsonl`. `observe` runs where the store writes, in any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        is_shared: bool = False,
        look_seconds: float = 0.0,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        """`look_seconds`: so long its name is taken to lead to the file that it led to."""
        self._folder = folder
        self._look_seconds = look_seconds
        self._looked_at = 0.0
        self._sync = sync
        self._is_synced = True
        self._store = ""
        self._lock = threading.Lock()
        self._last = 0
        self._is_shared = is_shared
        self._is_whole = False  # shared: no event of this daemon before the next that it commits is missing
        self._held: list[Event] = []  # shared: committed before that was known
        self._is_found = False
        self._day, self._path = "", folder
        self._file = -1
        self._end = 0  # where the open file ends, as we left it
        self._cut: tuple[str, int] | None = None
        self._problem = ""

    @property
    def problem(self) -> str:
        """What is wrong with the file, empty when all lines are written."""
        return self._problem

    @property
    def last(self) -> int:
        """The number of the last event that has its line."""
        return self._last

    def observe(self, events: Sequence[Event]) -> None:
        """Write the lines of one commit. Never raises: what could not be written is written by `catch_up`."""
        with self._lock:
            if self._problem:
                return
            # Numbers that other daemons took are not missing here.
            if events[0].n == self._last + 1 or (self._is_whole and events[0].n > self._last):
                self._write(events)
            elif self._is_shared:
                self._held += events

    async def recover(self, events: EventStore, store: StoreIdentity | None = None) -> int:
        """At start: cut what a crash left unfinished, find the last line, write what is missing; return how many.

        From then on every line says which store it is of.
        """
        self._store = "" if store is None else str(store)
        self._is_found = self._is_whole = False
        return await self.catch_up(events)

    async def catch_up(self, events: EventStore) -> int:
        """Write the lines that are missing, also those that were taken away; return how many. Cheap when none."""
        await anyio.to_thread.run_sync(self._notice_touched)
        if not self._is_found and not await self._find_last(events):
            return 0
        written = 0
        while missing := await events.own_after(self._last, _REPAIR_BATCH):
            before = self._last
            await anyio.to_thread.run_sync(self._write_missing, missing)
            written += sum(before < event.n <= self._last for event in missing)
            if self._problem or self._last == before:
                return written
        if self._is_shared and not self._is_whole:
            await anyio.to_thread.run_sync(self._be_whole)
        return written

    def _be_whole(self) -> None:
        """Write what was held back: nothing was missing before it."""
        with self._lock:
            self._is_whole, self._problem = True, ""
            held, self._held = [event for event in self._held if event.n > self._last], []
            if held:
                self._write(held)

    def sync(self) -> None:
        """Let the lines that were written survive a power cut. Blocks, and does not hold up other writers."""
        with self._lock:
            if self._is_synced or self._file < 0:
                return
            self._is_synced = True
            file = os.dup(self._file)
        try:
            self._sync_file(file)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the file, with all its lines on disk."""
        with self._lock:
            self._close_file()

    async def _find_last(self, events: EventStore) -> bool:
        """Learn from the files where the journal ends; return whether they could be read."""
        newest = await events.last()
        try:
            last = await anyio.to_thread.run_sync(_last_number, self._folder)
        except OSError as exc:
            self._report(exc)
            return False
        self._last = last
        if last > newest:
            # After a power cut the database may lack its last offers, and one that was replaced counts from the
            # start. A number stands for one event for ever, so the store goes on above ours.
            _log.warning("the journal ends with event %d, the database with %d", last, newest)
            await events.continue_after(last)
        self._is_found = True
        if self._last == newest:
            self._problem = ""
        return True

    def _write_missing(self, events: Sequence[Event]) -> None:
        with self._lock:
            # `observe` may have written some of them since they were read.
            if missing := [event for event in events if event.n > self._last]:
                self._write(missing)

    def _write(self, events: Sequence[Event]) -> None:
        try:
            # The events of a commit share its time, so they go to one file, in one write.
            written = _Stamps().__getitem__
            for day, group in groupby(events, key=lambda event: written(event.at)[:10]):
                lines = list(group)
                self._open_file(day)
                self._append(day, b"".join([line(event, written, self._store) for event in lines]))
                self._last = lines[-1].n
        except OSError as exc:
            self._close_file()
            self._report(exc)
            return
        if self._problem:
            _log.info("the journal is complete again")
            self._problem = ""

    def _append(self, day: str, data: bytes) -> None:
        size = self._end
        # Whole lines of a write that failed half-way would be written a second time: the file is cut back first.
        self._cut = day, size
        self._is_synced = False
        self._end += len(data)
        while data:
            data = data[os.write(self._file, data) :]
        self._cut = None

    def _open_file(self, day: str) -> None:
        if day == self._day and self._file >= 0:
            self._refuse_touched(is_sure=time.monotonic() >= self._looked_at + self._look_seconds)
            return
        path = self._folder / f"{day}.jsonl"
        self._close_file()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._cut is not None and self._cut[0] == day and path.exists() and path.stat().st_size > self._cut[1]:
            os.truncate(path, self._cut[1])
        self._cut = None
        if path.exists():
            _cut_unfinished(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = os.fstat(self._file).st_size
        self._day, self._path = day, path

    def _notice_touched(self) -> None:
        with self._lock:
            try:
                self._refuse_touched()
            except OSError as exc:
                self._close_file()
                self._report(exc)

    def _refuse_touched(self, *, is_sure: bool = True) -> None:
        """Raise `OSError` when the open file is not as we left it, and let the end of the journal be found anew.

        Unless it is to be sure, its name is not looked at: lines that are written to a file which was moved away are
        written again, but those that were cut off would not be missed once another follows them.
        """
        if self._file < 0:
            return
        if is_sure:
            self._looked_at = time.monotonic()
        if os.fstat(self._file).st_size == self._end and not (is_sure and not _is_same_file(self._path, self._file)):
            return
        # Lines may be gone that were there: which ones, the files and the store say together.
        self._is_found, self._cut = False, None
        raise OSError(errno.ESTALE, "its file was moved, deleted or changed")

    def _close_file(self) -> None:
        if self._file >= 0:
            if not self._is_synced:
                self._sync_file(self._file)
                self._is_synced = True
            os.close(self._file)
            self._file = -1

    def _sync_file(self, file: int) -> None:
        # The database has been synced long ago: a copy that cannot be is worth a word, and no more.
        try:
            self._sync(file)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                self._sync(folder)  # a new day's file has a new name there
            finally:
                os.close(folder)
        except OSError as exc:
            _log.warning("the journal cannot be synced to disk (%s)", exc.strerror)

    def _report(self, error: OSError) -> None:
        if not self._problem:
            _log.warning("the journal cannot be written (%s); delivery goes on, lines follow later", error.strerror)
        self._is_whole, self._held = False, []
        self._problem = f"journal cannot be written: {error.strerror}"


def _is_same_file(path: Path, file: int) -> bool:
    """Whether the open file is still the one with this name: lines for a file that was moved away would be lost."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def last_line(path: Path) -> tuple[int, bytes]:
    """Return the last line of ours in a file, with its number; 0 and nothing when there is none. Changes nothing."""
    with path.open("rb") as file:
        end, number = _sound_end(file, file.seek(0, os.SEEK_END))
        return (number, _line_before(file, end)) if number else (0, b"")


def _last_number(folder: Path) -> int:
    return max(map(_cut_unfinished, folder.glob(DAY_FILES)), default=0)


def _cut_unfinished(path: Path) -> int:
    """Remove what is no line of ours at the end, and return the number of the last line, 0 when there is none.

    A crash or a full disk leaves such ends; the events are still in the store and are written again.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end, number = _sound_end(file, size)
    if end < size:
        os.truncate(path, end)
        _log.warning("removed an unfinished line at the end of %s", path.name)
    return number


def _sound_end(file: BinaryIO, size: int) -> tuple[int, int]:
    """Return where the last line of ours ends, and its number."""
    end = size
    for _ in range(_MAX_BAD_LINES):
        if end == 0:
            return 0, 0
        text = _line_before(file, end)
        number = _number(text) if text.endswith(b"\n") else 0
        if number:
            return end, number
        end -= len(text)
    return size, 0


def _line_before(file: BinaryIO, end: int) -> bytes:
    """Return the line that ends at a position, with its newline if it has one."""
    size = _CHUNK_BYTES
    while True:
        start = max(0, end - size)
        file.seek(start)
        chunk = file.read(end - start)
        newline = chunk.rfind(b"\n", 0, len(chunk) - 1)
        if newline >= 0 or start == 0:
            return chunk[newline + 1 :]
        size *= 4


def _number(text: bytes) -> int:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    number = value.get("n") if isinstance(value, dict) else None
    return number if isinstance(number, int) and number > 0 else 0


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
