"""Taking a backup into a file, restoring one into an empty home, and putting a recovered database in its place.

A backup may come from anywhere. Its messages are data; its settings are not: a source can be a program. So what they
would let happen is shown before they take effect, and without a yes they are parked beside the home's own files.

Only what is named here goes into the file, so that a token, a sign-in or a secret cannot: the database as it was at one
moment, the journal up to the last event of that, what runs told, settings and rules. Unpacking takes the same names and
nothing else. The copy of the database is a file of SQLite, wherever the store is, so that it comes back without the
server that it was in. Nothing here asks.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from tempfile import TemporaryDirectory, mkdtemp, mkstemp
from typing import IO, Any, Final

import msgspec

from harken import __version__
from harken.config.home import Home, disk_error, ensure, single_instance, write_private
from harken.config.settings import Settings, StoreSettings
from harken.config.values import without_password
from harken.errors import Conflict, UserError
from harken.hosts.connect.edits import toml_remove, toml_set
from harken.hosts.connect.files import read
from harken.memory import json_bytes
from harken.model import timestamp
from harken.rules.fault import InvalidRules
from harken.rules.load import load
from harken.store.identity import identity_text
from harken.store.journal import every_line, number_of
from harken.store.sqlite.connection import files_of
from harken.store.sqlite.recovery import RecoveryResult
from harken.store.sqlite.snapshot import (
    HeldWork,
    StoredDecisions,
    begin_epoch,
    decided_in,
    disown,
    examine,
    forget_decisions,
    hold,
    last_event,
    refuse_foreign,
)

FORMAT: Final = 1
ABOUT: Final = "harken-backup.json"
END: Final = "harken-backup.end"
JOURNAL: Final = "journal"
MAX_ABOUT_BYTES: Final = 10_000
COPY_BYTES: Final = 1 << 20
PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_PACKED: Final = re.compile(
    r"config\.toml|triggers\.json|harken\.db|journal/\d{4}-\d\d-\d\d\.jsonl|runs/[A-Za-z0-9-]{1,80}\.jsonl"
)
_NUMBER: Final = re.compile(rb'\{"n":(\d{1,18}),')
WORKING: Final = ".restore-"
DATABASE: Final = "harken.db"
MAY_BE_THERE: Final = frozenset({"run", "logs", "reserve"})  # what a daemon leaves, and nobody would miss
CONFIG: Final = "config.toml"
RULES: Final = "triggers.json"
PARKED: Final = "parked-{}"  # by the name of the file
DECISIONS: Final = "decisions.json"
UNREADABLE: Final = "cannot be read, so what it would do is not known"
_PLACES: Final = ("url", "host", "imap_host", "smtp_host", "base", "service_url")
_FILE: Final = 0o600
Power = tuple[str, str]
"""What would happen (`run`, `open`, `connect to`, `trust`, or `?`), and with what."""
WORK_PREFIX: Final = ".recover-"
STORE_SETTINGS: Final = ("url", "schema", "password")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What a backup was about, and what became of what could act."""

    about: BackupHeader
    files: int
    held: HeldWork
    powers: Sequence[Power]
    parked: Sequence[str]
    was_in: str  # the PostgreSQL that its store was in, as words of `store move`; empty: it was in a file


@contextmanager
def backup_target(path: Path | None) -> Iterator[tuple[IO[bytes], Path]]:
    """Open stdout, or a private file that appears under its name only when it is complete; and a folder to work in."""
    if path is None:
        with TemporaryDirectory(prefix="harken-backup-") as work:
            yield sys.stdout.buffer, Path(work)
            sys.stdout.buffer.flush()
        return
    try:
        with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as work:
            descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporary = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    yield stream, Path(work)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(path)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise disk_error("write", path, exc) from exc


def restore(home: Home, stream: IO[bytes], takes: Callable[[Sequence[Power]], bool]) -> RestoreReport:
    """Unpack a backup into an empty home; `takes` says whether its settings that could act are put in force."""
    ensure(home)
    with single_instance(home.lock_file):
        refuse_used(home)
        work = Path(mkdtemp(prefix=WORKING, dir=home.path))
        try:
            about, count = unpack(stream, work)
            held = hold(work / DATABASE)
            was_in = be_embedded(work / CONFIG)
            powers = powers_in(work, DATABASE)
            parked = [] if not powers or takes(powers) else park(work, DATABASE)
            disown(work / DATABASE, Home(work).journal_dir)
            write_private(Home(work).identity_file, identity_text(begin_epoch(work / DATABASE)))
            _move(work, home)
        except OSError as exc:
            raise disk_error("write", home.path, exc) from exc
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return RestoreReport(about=about, files=count, held=held, powers=powers, parked=parked, was_in=was_in)


def refuse_used(home: Home) -> None:
    """Refuse a home in which anything is: a backup never mixes with it."""
    try:
        found = sorted(home.path.iterdir())
    except FileNotFoundError:
        return
    except OSError as exc:
        raise disk_error("read", home.path, exc) from exc
    used = [path for path in found if path.name not in MAY_BE_THERE and not _is_bare(path)]
    if used:
        raise Conflict(
            f"{home.path} is not empty: {used[0].name} is there.",
            "Restore into a new home with --home, or move this one away.",
        )


def _is_bare(path: Path) -> bool:
    """Whether there is nothing in it: an empty folder, or what a restore that was killed had not moved yet."""
    return path.is_dir() and not path.is_symlink() and (path.name.startswith(WORKING) or not any(path.iterdir()))


def _move(work: Path, home: Home) -> None:
    """Let the files be the home's. The database comes last: a home without it is seen to be incomplete."""
    for path in sorted(work.iterdir(), key=lambda each: each.name == DATABASE):
        place = home.path / path.name
        if path.is_dir() and place.is_dir():
            place.rmdir()  # empty: that was looked at
        path.rename(place)


def be_embedded(config: Path) -> str:
    """Let settings name the file of the home as the store; return what they named, as words of `store move`."""
    try:
        found = _table(tomllib.loads(config.read_bytes().decode("utf-8-sig")), "store")
    except (FileNotFoundError, ValueError, RecursionError):
        return ""
    usual = StoreSettings()
    url, schema, password = (str(found.get(name, getattr(usual, name))) for name in STORE_SETTINGS)
    named = StoreSettings(url=url, schema=schema, password=password)
    if named.url == usual.url:
        return ""
    write_private(config, name_store(config, usual).decode())
    return words_for(named)


def name_store(config: Path, wanted: StoreSettings) -> bytes:
    """Return config.toml as it is when it names a store, and nothing else is changed."""
    usual = StoreSettings()
    data: bytes | None = toml_set(read(config), ["store", "url"], wanted.url, file=config)
    for name in STORE_SETTINGS[1:]:
        value = getattr(wanted, name)
        if value != getattr(usual, name) and wanted.url != usual.url:
            data = toml_set(data, ["store", name], value, file=config)
        else:
            data = toml_remove(data, ["store", name], file=config)
    return data or b""


def words_for(settings: StoreSettings) -> str:
    """Return settings as the words of `store move`."""
    usual, words = StoreSettings(), [without_password(settings.url)]
    for name in STORE_SETTINGS[1:]:
        if (value := getattr(settings, name)) != getattr(usual, name):
            words += [f"--{name}", value]
    return shlex.join(words)


def powers_in(folder: Path, database: str) -> list[Power]:
    """Return what the settings, the rules and the decisions of an unpacked backup would let happen."""
    decided = decided_in(folder / database)
    return [*_of_config(folder / CONFIG), *_of_decisions(decided), *_of_rules(folder / RULES, decided.rules)]


def park(folder: Path, database: str) -> list[str]:
    """Put the settings of an unpacked backup where nothing reads them; return the names of the files."""
    parked = []
    decided = forget_decisions(folder / database)
    if decided.senders or decided.rules:
        rules = json.loads(decided.rules) if decided.rules else None
        senders = [
            {"source": each.source, "sender": each.sender, "trust": each.trust.value} for each in decided.senders
        ]
        text = json.dumps({"senders": senders, "rules": rules}, ensure_ascii=False, indent=2)
        target = folder / PARKED.format(DECISIONS)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        parked.append(target.name)
    for name in (CONFIG, RULES):
        if (folder / name).exists():
            (folder / name).rename(folder / PARKED.format(name))
            parked.append(PARKED.format(name))
    return parked


def _of_config(path: Path) -> Iterator[Power]:
    try:
        tree = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return
    except (ValueError, RecursionError):
        yield ("?", f"{CONFIG} {UNREADABLE}")
        return
    for name, entry in _table(tree, "sources").items():
        yield from _of_source(name, entry if isinstance(entry, dict) else {})
    usual = Settings()
    yield from _of_listener("http", _table(tree, "http"), usual.http.host)
    yield from _of_listener("hooks", _table(tree, "hooks"), usual.hooks.host)
    if phone := _table(tree, "waiting").get("phone"):
        yield ("connect to", f"your phone by {phone}")
    yield from _of_trust(_table(tree, "trust"), usual.trust.default.value)


def _of_listener(name: str, table: Mapping[str, Any], usual: str) -> Iterator[Power]:
    if table.get("allow_remote") or table.get("host", usual) != usual:
        yield ("open", f"{name} on {table.get('host', usual)}, for other machines")
    if url := table.get("public_url"):
        yield ("open", f"{name} to the public as {url}")
    if place := table.get("public_listen"):
        yield ("open", f"the link of satellites on {place}, for other machines")


def _of_trust(table: Mapping[str, Any], usual: str) -> Iterator[Power]:
    for who in ("owner", "known"):
        yield from (("trust", f"{sender} as {who}") for sender in _list(table.get(who)))
    if table.get("default", usual) != usual:
        yield ("trust", f"everyone as {table['default']}")


def _of_source(name: str, entry: Mapping[str, Any]) -> Iterator[Power]:
    if command := entry.get("command"):
        words = " ".join(map(str, [command, *_list(entry.get("args"))]))
        yield ("run", f"{words} (source {name})")
        return
    kind = str(entry.get("kind", "mcp"))
    place = next((str(entry[key]) for key in _PLACES if entry.get(key)), "")
    yield ("connect to", f"{place or kind} (source {name}, {kind})")


def _of_decisions(decided: StoredDecisions) -> Iterator[Power]:
    for each in decided.senders:
        yield ("trust", f"{each.sender} as {each.trust.value}" + (f" on {each.source}" if each.source != "*" else ""))


def _of_rules(path: Path, in_force: str) -> Iterator[Power]:
    """Yield what the rules in force would run; a daemon that has none reads the file when it starts."""
    try:
        rules = load(in_force.encode() or path.read_bytes()).rules
    except FileNotFoundError:
        return
    except InvalidRules:
        yield ("?", f"{RULES} {UNREADABLE}")
        return
    for rule in rules:
        if rule.is_run:
            tools = ", ".join(rule.allowed)
            yield ("run", f"{rule.agent or 'an agent'} with {tools} (rule {rule.name}, {rule.mode.value})")


def _table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Keep daemons away."""
    with ExitStack() as held:
        try:
            held.enter_context(single_instance(home.lock_file))
        except Conflict as exc:
            raise Conflict("A daemon serves this home.", "Stop it first: harken down") from exc
        yield


@contextmanager
def work_folder(home: Home) -> Iterator[Path]:
    """Make a private folder on the same disk, gone at the end."""
    try:
        work = Path(mkdtemp(prefix=WORK_PREFIX, dir=home.path))
    except OSError as exc:
        raise disk_error("write", home.path, exc) from exc
    try:
        yield work
    except OSError as exc:
        raise disk_error("write", work, exc) from exc
    finally:
        shutil.rmtree(work, ignore_errors=True)


def exchange(home: Home, new: Path, done: RecoveryResult, kept: str) -> Sequence[Callable[[], object]]:
    """Return the steps that put the new database in place, and the old files aside, together.

    After a stop between two of them the old database or the new one is under the name, and it can begin again.
    """
    (old, aside), *beside = zip(files_of(home.database), files_of(home.path / kept), strict=True)
    # The log before the database: a new one under the old log would be taken for the old one.
    return [
        partial(_give_second_name, old, aside),
        *(partial(_put_aside, path, place) for path, place in beside),
        partial(new.replace, home.database),
        # Last: a database of a later epoch opens in a home that does not know it yet, and not the other way round.
        partial(write_private, home.identity_file, identity_text(done.identity)),
    ]


def _give_second_name(path: Path, name: Path) -> None:
    """Let a file have another name too; where a disk has no such thing, copy it."""
    if not path.exists() or name.exists():
        return
    try:
        name.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, name)


def _put_aside(path: Path, name: Path) -> None:
    if path.exists():
        path.rename(name)
