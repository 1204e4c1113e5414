"""The floor of everything durable: a bare write and fdatasync, into a file whose blocks exist already."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.samples import Samples, samples

FILE_BYTES: Final = 8 * 1024 * 1024
MESSAGE_BYTES: Final = 600
TRIALS: Final = 50


class Disk:
    """Writes bytes one after the other, each durable before the next."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._offset = 0

    def write(self, data: bytes) -> float:
        """Write and sync; return the seconds it took."""
        if self._offset + len(data) > FILE_BYTES:
            self._offset = 0
        began = time.perf_counter()
        os.pwrite(self._file, data, self._offset)
        os.fdatasync(self._file)
        took = time.perf_counter() - began
        self._offset += len(data)
        return took


@contextmanager
def open_disk(folder: Path) -> Iterator[Disk]:
    """A preallocated file in a folder."""
    path = folder / "floor.bin"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Written, not only reserved: the first write into a reserved block also changes metadata.
        os.pwrite(file, bytes(FILE_BYTES), 0)
        os.fsync(file)
        yield Disk(file)
    finally:
        os.close(file)
        path.unlink()


def sync_time(folder: Path, trials: int = TRIALS) -> Samples:
    """Return how long a durable write of a message takes here."""
    with open_disk(folder) as disk:
        return samples(disk.write(bytes(MESSAGE_BYTES)) for _ in range(trials))
