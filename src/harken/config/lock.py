"""One daemon per home: an advisory lock on a file, held for life and freed by the kernel with the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harken.errors import Conflict

if sys.platform == "win32":  # pragma: no cover - the other half of the seam
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def single_instance(path: Path) -> Iterator[None]:
    """Hold the lock while the context is open; raises `Conflict` when another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            _lock(file)
        except OSError as exc:
            raise Conflict("Another daemon serves this home.", "See it with: harken status") from exc
        yield
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock."""
    if not path.exists():
        return False
    try:
        with single_instance(path):
            return False
    except Conflict:
        return True
