"""The database and the two files beside it, as they were opened: whether their names still lead to them.

SQLite writes to what it has open, also when that was moved away or deleted, and says nothing. What is written there is
lost to whoever opens the name next, so nobody is told that it was accepted.
"""

from __future__ import annotations

from pathlib import Path

from harken.errors import Unavailable

RETRY_SECONDS = 5.0

FileKey = tuple[int, int]


class OpenFiles:
    """Remembers which files they are. Those beside the database are there from the first transaction on."""

    def __init__(self, path: Path) -> None:
        self._paths = (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm"))
        self._keys = dict[Path, FileKey]()

    def remember(self) -> None:
        """Know the files that are there now; call it with the database open and something read from it."""
        for path in self._paths:
            key = _key(path)
            if key is not None:
                self._keys.setdefault(path, key)

    def check(self) -> None:
        """Raise `Unavailable` when one of them is not the one that was opened."""
        for path, key in self._keys.items():
            if _key(path) != key:
                raise moved(path)


def moved(path: Path) -> Unavailable:
    """Return the error for a file that was taken away from under the store."""
    return Unavailable(
        f"{path.name} was moved, deleted or replaced while Harken had it open; nothing was stored.",
        "Put the file back where it was, or stop Harken and build the database anew: harken down, then harken recover",
        retry_after=RETRY_SECONDS,
    )


def _key(path: Path) -> FileKey | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
