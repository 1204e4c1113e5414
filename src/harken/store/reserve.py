"""Space that is kept free for the worst moment: a file of a certain size, which is given up when the disk is full.

What agents are given, and the proof that they have it, is written into that space, and a daemon can start in it. New
mail is refused until the space can be kept again.
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
