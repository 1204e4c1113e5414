"""Where SQLite's exceptions become ours. Nothing above this package imports sqlite3's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harken.errors import HarkenError, Unavailable, UserError
from harken.memory import out_of_memory

RETRY_SECONDS = 5.0

_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})


def translate(error: sqlite3.Error) -> HarkenError:
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
        "Try again; see logs/daemon.log if it stays so.",
        retry_after=RETRY_SECONDS,
    )


def is_full(error: BaseException) -> bool:
    """Whether a write failed because there is no room; the index of the log can only fail for that."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}


def full() -> Unavailable:
    """Return the error for a disk without room."""
    return Unavailable(
        "The disk is full.", "Free some space; what was not accepted can be sent again.", retry_after=RETRY_SECONDS
    )


def unspeakable() -> UserError:
    """Return the error for text that is not text: half of a surrogate pair has no UTF-8."""
    return UserError("The text has a character that cannot be stored.", "Leave out the half surrogate pairs (U+D800…).")


def damaged(detail: str) -> UserError:
    """Return the error for a database file that must not be touched further."""
    return UserError(
        f"The database is damaged ({detail}); nothing was changed.",
        "Build it anew from what is left and from the journal: harken recover",
    )


def moved(path: Path) -> Unavailable:
    """Return the error for a file that was taken away from under the store."""
    return Unavailable(
        f"{path.name} was moved, deleted or replaced while Harken had it open; nothing was stored.",
        "Put the file back where it was, or stop Harken and build the database anew: harken down, then harken recover",
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
        raise unspeakable() from exc
    except MemoryError as exc:
        raise out_of_memory() from exc
    except OSError as exc:
        message = f"The database file cannot be used ({exc.strerror})."
        raise Unavailable(message, "Check Harken's home and its permissions.", retry_after=RETRY_SECONDS) from exc
