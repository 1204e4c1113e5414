"""Where a run took place: facts to read its numbers by."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.disk import sync_time

MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})


def facts(folder: Path) -> Mapping[str, object]:
    """Return what kind of machine this is and how busy it was."""
    synced = sync_time(folder)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "file_system": file_system(folder),
        "fdatasync_us": {"usual": round(synced.median * 1e6, 1), "best": round(synced.minimum * 1e6, 1)},
    }


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on, from the longest mount point above it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def disk_folder(wanted: Path) -> Path:
    """Return a folder on a real disk: in memory, nothing durable costs anything."""
    return Path("/var/tmp") if file_system(wanted) in MEMORY_FILE_SYSTEMS else wanted
