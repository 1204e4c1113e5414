"""Keeps a record of each live session in a file, so that a restarted daemon knows who is here and at work.

One small file per session, written when the session changes and removed when it is gone. They are not synced: what a
power cut would take, it takes together with the sessions. A file that cannot be read or written costs the memory of
one session, never a message.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from harken.memory import json_bytes
from harken.model import SessionKey
from harken.sessions.registry import Sessions
from harken.sessions.session import SessionRecord

_log = logging.getLogger("harken.daemon")

_SUFFIX = ".json"


class SessionFiles:
    """The records of one home."""

    def __init__(self, folder: Path, sessions: Sessions) -> None:
        self._folder = folder
        self._sessions = sessions

    def read(self) -> Sequence[SessionRecord]:
        """Return what an earlier daemon left. What cannot be understood is left out and removed."""
        found = list[SessionRecord]()
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            # Whatever else has such a name is not opened: it may never end.
            if not path.is_file() or path.is_symlink():
                continue
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=SessionRecord))
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                _log.warning("what %s says of a session cannot be read", path.name)
                with suppress(OSError):
                    path.unlink()
        return found

    def begin(self) -> None:
        """Keep the records true from now on."""
        self._sessions.observe(self._note_change)

    def _note_change(self) -> None:
        """Write the records of the sessions that changed, remove those of sessions that are gone."""
        for key in self._sessions.take_changed():
            session, path = self._sessions.get(key), self._path(key)
            try:
                if session is None:
                    path.unlink(missing_ok=True)
                else:
                    _replace(path, json_bytes(session.record))
            except OSError as exc:
                _log.warning("what session %s is doing could not be noted: %s", key, exc)

    def _path(self, key: SessionKey) -> Path:
        return self._folder / (hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32] + _SUFFIX)


def _replace(path: Path, data: bytes) -> None:
    """Put a file into place at once: a reader sees the old one or the new one."""
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        is_whole = os.write(descriptor, data) == len(data)
    finally:
        os.close(descriptor)
    if is_whole:  # else the disk is full, and the last one that was is better
        temporary.replace(path)
