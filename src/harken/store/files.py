"""Files that are held open or locked, as they were then: whether their names still lead to them.

A file that was moved away or deleted can still be written, and nobody is told. What is written there is lost to whoever
opens the name next; a lock on it keeps nobody out.
"""

from __future__ import annotations

from pathlib import Path

FileKey = tuple[int, int]


class OpenFiles:
    """Remembers which files they are. It opens nothing and closes nothing."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._keys = dict[Path, FileKey]()

    def remember(self) -> None:
        """Know the files that are there now; call it when they have been opened."""
        for path in self._paths:
            key = file_key(path)
            if key is not None:
                self._keys[path] = key

    def missing(self) -> Path | None:
        """Return the first name that does not lead to its file any more."""
        return next((path for path, key in self._keys.items() if file_key(path) != key), None)


def file_key(path: Path) -> FileKey | None:
    """Return what tells a file from every other one there is now; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
