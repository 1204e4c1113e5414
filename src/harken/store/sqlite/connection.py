"""Opening the database file: created whole or not at all, refused when damaged or newer than we are; errors as ours.

A fresh database is built under another name and renamed when complete, so a file with the real name always has a
schema: one that is empty or shorter than its header says was damaged, and is never "repaired" by starting over.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

from harken.errors import HarkenError, Unavailable, UserError
from harken.memory import out_of_memory
from harken.store.identity import RECOVER
from harken.store.sql.transaction import RETRY_SECONDS, full, unstorable_text

Connect = Callable[[str], sqlite3.Connection]
"""Opens a file; tests pass one that stops the process at a chosen commit."""

_HEADER_BYTES = 100
_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
MAX_STATEMENTS = 512  # kept ready: some of ours are there once for every number of rows
_MAGIC = b"SQLite format 3\x00"


def connect(path: str) -> sqlite3.Connection:
    """Open a connection in autocommit mode: transactions are begun by name, never implicitly."""
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=5.0, cached_statements=MAX_STATEMENTS
    )


def migrations() -> list[tuple[int, str]]:
    """Return the numbered migrations, in order."""
    folder = resources.files("harken.store.sqlite") / "migrations"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.split("_", 1)[0]), (folder / name).read_text()) for name in files]


def prepare_file(path: Path) -> None:
    """Make sure a usable database is at `path`: create it, bring it up to date, or refuse it untouched."""
    if not path.exists():
        _create(path)
        return
    refuse_damaged(path)
    connection = connect(str(path))
    try:
        _migrate(connection)
    finally:
        connection.close()


def open_writer(path: Path, opener: Connect) -> sqlite3.Connection:
    """Open the one connection that writes."""
    return _set_up(
        opener(str(path)),
        "PRAGMA journal_mode = WAL",
        # FULL: an accepted message survives a power cut, not only a crash of ours.
        "PRAGMA synchronous = FULL",
        "PRAGMA cache_size = -16000",
        # What a statement or a savepoint would undo: else each of them makes a file of its own and removes it again.
        "PRAGMA temp_store = MEMORY",
        # From here on the log and its index are there beside the file, so that it can be seen when they go.
        "SELECT 1 FROM sqlite_master LIMIT 1",
    )


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    return _set_up(connect(f"{path}"), "PRAGMA query_only = ON", "PRAGMA cache_size = -4000")


def _set_up(connection: sqlite3.Connection, *statements: str) -> sqlite3.Connection:
    try:
        for statement in statements:
            connection.execute(statement)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def log_of(path: Path) -> Path:
    """Return where SQLite keeps what is not in the database file yet."""
    return path.with_name(path.name + "-wal")


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that belong together: the database, its log, and the index of that."""
    return path, log_of(path), path.with_name(path.name + "-shm")


def _create(path: Path) -> None:
    if log_of(path).exists() and log_of(path).stat().st_size:
        # SQLite would apply the log of another database to the new one.
        raise UserError(
            f"{path.name} is missing, but its log {log_of(path).name} is there; nothing was changed.", RECOVER
        )
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, draft.with_name(draft.name + "-wal"), draft.with_name(draft.name + "-shm")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    # Nothing to go back to and nothing to sync before the whole is there: a draft that fails is begun anew.
    connection = _set_up(connect(str(draft)), "PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF")
    try:
        _migrate(connection)
    finally:
        connection.close()
    put_in_place(draft, path)


def put_in_place(draft: Path, path: Path) -> None:
    """Let a file that is whole have a name, in place of another file if there is one; after a power cut too."""
    with draft.open("rb") as built:
        os.fsync(built.fileno())
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def refuse_damaged(path: Path) -> None:
    """Raise `UserError` for a file that is no whole database, without opening it as one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise damaged(f"{path.name} is not a complete database file")
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    pages = int.from_bytes(header[28:32], "big")
    if size >= pages * page_size:
        return
    # A kill while SQLite copies its log into the file leaves the file short and the log whole: no damage.
    missing = range(size // page_size + 1, pages + 1)
    if not _pages_in(log_of(path)).issuperset(missing):
        raise damaged(f"{path.name} has {size} bytes where its header says {pages * page_size}")


def refuse_damage_inside(path: Path) -> None:
    """Raise `UserError` for a file that is damaged anywhere. Reads all of it, beside a daemon or without; no change."""
    refuse_damaged(path)
    with translated(), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        [said] = connection.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise damaged(" ".join(str(said).split()))


def _pages_in(log: Path) -> set[int]:
    """Return the numbers of the pages that a write-ahead log holds; of what it held before it began anew, none."""
    found = set[int]()
    if not log.exists():
        return found
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER_BYTES)
        page_size = int.from_bytes(header[8:12], "big")
        while len(frame := file.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES and frame[8:16] == header[16:24]:
            found.add(int.from_bytes(frame[:4], "big"))
            file.seek(page_size, os.SEEK_CUR)
    return found


def refuse_newer_schema(path: Path) -> None:
    """Raise `UserError` when a later version has written the database."""
    with closing(open_reader(path)) as connection:
        _known_schema(connection)


def refuse_other_schema(path: Path) -> None:
    """Raise `UserError` for a database that another version has written."""
    with closing(open_reader(path)) as connection:
        current, newest = _known_schema(connection), migrations()[-1][0]
    if current < newest:
        raise UserError(
            f"{path.name} has schema {current}, this Harken knows {newest}; nothing was changed.",
            "Let this version open it once: harken up, then harken down. If it is not in use, move it away.",
        )


def _known_schema(connection: sqlite3.Connection) -> int:
    current: int = connection.execute("PRAGMA user_version").fetchone()[0]
    newest = migrations()[-1][0]
    if current > newest:
        raise UserError(
            f"The database has schema {current}, this Harken supports {newest}.",
            "Install the newer Harken again, or use another home (--home).",
        )
    return current


def _migrate(connection: sqlite3.Connection) -> None:
    current = _known_schema(connection)
    for number, script in migrations():
        if number > current:
            # executescript would commit an open transaction, so the script brings its own.
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})


def translate(error: Exception) -> HarkenError:
    """Return the error that tells the caller what to do next."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if any(name.startswith(damaged) for damaged in _DAMAGED):
        return damaged(str(error))
    if is_full(error):
        return full()
    if name.startswith("SQLITE_READONLY"):
        return Unavailable(
            "The database cannot be written.", "Check the permissions of Harken's home.", retry_after=RETRY_SECONDS
        )
    return Unavailable(
        f"The database does not answer ({error}).",
        "Try again; if it persists, see logs/daemon.log.",
        retry_after=RETRY_SECONDS,
    )


def is_full(error: BaseException) -> bool:
    """Whether a write failed because there is no room; the index of the log can only fail for that."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}


def damaged(detail: str) -> UserError:
    """Return the error for a database file that must not be touched further."""
    return UserError(
        f"The database is damaged ({detail}); nothing was changed.",
        "Rebuild it from the rest of the file and the journal: harken recover",
    )


def moved(path: Path) -> Unavailable:
    """Return the error for a file that was taken away from under the store."""
    return Unavailable(
        f"{path.name} was moved, deleted or replaced while Harken had it open; nothing was stored.",
        "Put the file back where it was, or stop Harken and rebuild the database: harken down, then harken recover",
        retry_after=RETRY_SECONDS,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Turn SQLite's exceptions into ours."""
    try:
        yield
    except sqlite3.Error as exc:
        raise translate(exc) from exc
    except UnicodeEncodeError as exc:
        raise unstorable_text() from exc
    except MemoryError as exc:
        raise out_of_memory() from exc
    except OSError as exc:
        message = f"The database file cannot be used ({exc.strerror})."
        raise Unavailable(message, "Check Harken's home and its permissions.", retry_after=RETRY_SECONDS) from exc
