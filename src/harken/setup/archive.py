"""A backup as a file: what is packed, in which order, and how it is unpacked without trusting it.

Only what is named here goes in, so that a token, a sign-in or a secret cannot: the database as it was at one moment,
the journal up to the last event of that, what runs told, settings and rules. Unpacking takes the same names and nothing
else. It asks nothing and moves nothing into a home: that is `backup.py`, above; the copy of the database is a file of
SQLite, wherever the store is, so that it comes back without the server that it was in.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import IO, Final

import msgspec

from harken import __version__
from harken.config.home import Home
from harken.errors import UserError
from harken.memory import json_bytes
from harken.model import timestamp
from harken.store.journal import every_line, number_of
from harken.store.sqlite.snapshot import examine, last_event, refuse_foreign

FORMAT: Final = 1
ABOUT: Final = "harken-backup.json"
END: Final = "harken-backup.end"
DATABASE: Final = "harken.db"
JOURNAL: Final = "journal"
MAX_ABOUT_BYTES: Final = 10_000
COPY_BYTES: Final = 1 << 20
PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700

_PACKED: Final = re.compile(
    r"config\.toml|triggers\.json|harken\.db|journal/\d{4}-\d\d-\d\d\.jsonl|runs/[A-Za-z0-9-]{1,80}\.jsonl"
)
_NUMBER: Final = re.compile(rb'\{"n":(\d{1,18}),')


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupHeader:
    """What a backup says of itself."""

    format: int
    version: str
    created_at: str
    schema: int
    last_event: int


StoreCopier = Callable[[Path], int]
"""Copies a store as it is at one moment into a new file of SQLite, and returns the number of the last event in it."""


def pack(home: Home, stream: IO[bytes], work: Path, take: StoreCopier) -> tuple[BackupHeader, int]:
    """Write a backup to a stream; `work` is a private folder with room for the database. Returns how many files too."""
    copy = work / DATABASE
    newest = take(copy)
    about = BackupHeader(
        format=FORMAT,
        version=__version__,
        created_at=timestamp(datetime.now(UTC)),
        schema=examine(copy),
        last_event=newest,
    )
    count = 0
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add_data(archive, ABOUT, json_bytes(about) + b"\n")
        for name, path in _wanted(home, copy):
            count += _add(archive, name, path, newest)
        _add_data(archive, END, _end(count))
    return about, count


def unpack(stream: IO[bytes], folder: Path) -> tuple[BackupHeader, int]:
    """Write the files of a backup into an empty private folder, and check them; raises `UserError` when it is none."""
    try:
        with gzip.GzipFile(fileobj=stream, mode="rb") as plain, tarfile.open(fileobj=plain, mode="r|") as archive:
            about, count = _extract(archive, folder)
            while plain.read(COPY_BYTES):  # to its end, where the checksum is
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as exc:
        raise not_whole() from exc
    refuse_foreign(folder / DATABASE)
    schema, newest = examine(folder / DATABASE), last_event(folder / DATABASE)
    is_ahead = any(number_of(line) > newest for line in every_line(folder / JOURNAL))
    if (schema, newest) != (about.schema, about.last_event) or is_ahead:
        raise not_whole()
    return about, count


def not_whole() -> UserError:
    """Return the error of a file that is no backup, or not all of one."""
    return UserError("This is not a complete backup of Harken.", "Take another one; nothing was changed.")


def _wanted(home: Home, copy: Path) -> Iterator[tuple[str, Path]]:
    yield "config.toml", home.config_file
    yield "triggers.json", home.triggers_file
    yield DATABASE, copy
    # After the copy: a line is written right after its commit, so nearly all lines of the copy are there by now.
    for folder in (home.journal_dir, home.runs_dir):
        for path in sorted(folder.glob("*.jsonl")):
            yield f"{folder.name}/{path.name}", path


def _add(archive: tarfile.TarFile, name: str, path: Path, newest: int) -> int:
    """Add a file as it is now, if it is there; return how many that were."""
    if not _PACKED.fullmatch(name):
        return 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not S_ISREG(status.st_mode):
            return 0
        size = _end_of(file, newest) if name.startswith("journal/") else status.st_size
        entry = _entry(name, size)
        entry.mtime = int(status.st_mtime)
        archive.addfile(entry, file)
        return 1
    return 0


def _end_of(file: IO[bytes], newest: int) -> int:
    """Return where the lines end that belong to the copy of the database: what came later is not in it."""
    end = 0
    for line in file:
        found = _NUMBER.match(line)
        if not line.endswith(b"\n") or (found and int(found[1]) > newest):
            break
        end += len(line)
    file.seek(0)
    return end


def _end(count: int) -> bytes:
    return json_bytes({"files": count}) + b"\n"


def _add_data(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_entry(name, len(data)), io.BytesIO(data))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, PRIVATE_FILE
    return entry


def _extract(archive: tarfile.TarFile, folder: Path) -> tuple[BackupHeader, int]:
    entries = iter(archive)
    about = _about(_text(archive, next(entries, None), ABOUT))
    for count, entry in enumerate(entries):
        if entry.name == END:
            is_all = _text(archive, entry, END) == _end(count)
            if not is_all or not (folder / DATABASE).exists():
                raise not_whole()
            return about, count
        source = archive.extractfile(entry)
        if not entry.isreg() or source is None or not _PACKED.fullmatch(entry.name):
            raise not_whole()
        _write(folder / PurePosixPath(entry.name), source)
    raise not_whole()


def _text(archive: tarfile.TarFile, entry: tarfile.TarInfo | None, name: str) -> bytes:
    source = archive.extractfile(entry) if entry and entry.isreg() and entry.name == name else None
    if entry is None or source is None or entry.size > MAX_ABOUT_BYTES:
        raise not_whole()
    return source.read()


def _about(data: bytes) -> BackupHeader:
    try:
        about = msgspec.json.decode(data, type=BackupHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise not_whole() from exc
    if about.format > FORMAT:
        raise UserError(f"The backup was written by Harken {about.version[:20]}, which is newer.", "Use that version.")
    return about


def _write(path: Path, source: IO[bytes]) -> None:
    path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    except FileExistsError as exc:
        raise not_whole() from exc
    with os.fdopen(descriptor, "wb") as file:
        while data := source.read(COPY_BYTES):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
