"""Reads the end of a host's own record of a conversation, to look for delivery ids in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence

import anyio.to_thread

from harken.hosts.host import RecordReader
from harken.hosts.registry import host_named
from harken.sessions.session import Session

TAIL_BYTES = 4 << 20


async def proven_by(reader: RecordReader, path: str, ids: Collection[str]) -> Collection[str]:
    """Return which of some ids the record at a path proves. Off the loop: a record may be large."""
    return await anyio.to_thread.run_sync(lambda: reader(_tail(path), ids)) if path else ()


def _tail(path: str) -> Sequence[bytes]:
    """Return the last lines of a record, none when there is no such file of ours."""
    try:
        # The path came with a hook's payload: whatever else it names is not opened, and never waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError):
        return ()
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return ()
        is_cut = status.st_size > TAIL_BYTES
        file.seek(max(0, status.st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).splitlines()
    return lines[1:] if is_cut else lines


async def read_record(session: Session) -> Collection[str]:
    """Return what a session's host has recorded of what it was told and has not proven."""
    reader = host_named(session.host).transcript
    if reader is None or not session.unproven:
        return ()
    return await proven_by(reader(), session.transcript, session.unproven)
