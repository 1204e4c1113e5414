"""The files of a home on a disk that fills up, and under hands that move them.

`DiskReserve` keeps space free for the worst moment: a file that is given up when the disk is full. What agents are
given, and the proof that they have it, is written into that space, and a daemon can start in it; new mail is refused
until the space can be kept again. `OpenFiles` knows whether names still lead to the files that were opened or locked by
them: what is written to one that was moved away is lost to the next opener of the name, and a lock on it keeps no
process out.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

RESERVE_BYTES: Final = 1 << 20
START_BYTES: Final = 256 << 10  # what a daemon writes until it serves
_CHUNK: Final = bytes(1 << 16)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DiskReserve:
    """The file. `is_used` while its space is given up."""

    def __init__(self, path: Path, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._size = size
        self.is_used = False

    def begin(self) -> None:
        """At start: keep the space, or give it up when a daemon could not start without."""
        if self._is_kept() and _free_bytes(self._path.parent) < START_BYTES:
            self.release()
        else:
            self.keep()

    def keep(self) -> bool:
        """Keep the space, again if it was given up; return whether there is room for it.

        A disk that cannot say so in any other way than by an error of its own has no reserve, and is not called full.
        """
        if self._is_kept():
            self.is_used = False
            return True
        if _free_bytes(self._path.parent) < self._size:
            self.is_used = True
            return False
        try:
            self._write()
        except OSError as exc:
            with suppress(OSError):
                self._path.unlink()
            self.is_used = exc.errno in _FULL
            return not self.is_used
        self.is_used = False
        return True

    def release(self) -> bool:
        """Give the space up; return whether there was any."""
        was_kept = self._is_kept()
        with suppress(OSError):
            self._path.unlink()
        self.is_used = True
        return was_kept

    def _is_kept(self) -> bool:
        try:
            return self._path.stat().st_size >= self._size
        except OSError:
            return False

    def _write(self) -> None:
        # Under another name until it is whole: half of it must not be taken for all of it.
        draft = self._path.with_name(self._path.name + ".new")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written = 0
            while written < self._size:
                written += os.write(file, _CHUNK[: self._size - written])
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
        finally:
            os.close(file)
        draft.replace(self._path)


def _free_bytes(folder: Path) -> int:
    if not hasattr(os, "statvfs"):
        return RESERVE_BYTES
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


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
