"""A place in what a server announces, as the checkpoint that is stored with the messages before it.

Pure. A place is of use only at the server it was made for: the address is part of it as a hash, because it may hold
secrets. What is stored may be older than this code, so whatever does not fit is no place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from harken.sources.checkpoint import checkpoint_of, read_checkpoint

_HASH_CHARS: Final = 16


class _McpRecord(msgspec.Struct, frozen=True):
    at: str
    session: str
    last_id: str
    version: str
    server: str


class McpCheckpoint(msgspec.Struct, frozen=True):
    """Where to go on: the session, the last event in it, the version agreed on, and who the server was."""

    session: str
    last_id: str
    version: str
    server: str = ""

    def checkpoint(self, url: str) -> str:
        """Return it as a checkpoint for the server at this address."""
        record = _McpRecord(_hash(url), self.session, self.last_id, self.version, self.server)
        return checkpoint_of(record)


def parse_place(checkpoint: str, url: str) -> McpCheckpoint | None:
    """Return the place a checkpoint names, if it is one at this address."""
    record = read_checkpoint(checkpoint, _McpRecord)
    if record is None or record.at != _hash(url) or not record.session or not record.last_id:
        return None
    return McpCheckpoint(record.session, record.last_id, record.version, record.server)


class _CursorsRecord(msgspec.Struct, frozen=True):
    at: str
    cursors: dict[str, str]


def cursors_checkpoint(cursors: Mapping[str, str], url: str) -> str:
    """Return where each stream of events is, as a checkpoint for the server at this address."""
    return checkpoint_of(_CursorsRecord(_hash(url), dict(cursors)))


def parse_cursors(checkpoint: str, url: str) -> dict[str, str]:
    """Return where each stream of events was, if the checkpoint says so of this address."""
    record = read_checkpoint(checkpoint, _CursorsRecord)
    return record.cursors if record is not None and record.at == _hash(url) else {}


class _MarkRecord(msgspec.Struct, frozen=True):
    at: str


def mark_checkpoint(url: str) -> str:
    """Return a checkpoint that names no place, only that something was heard from the server at this address."""
    return checkpoint_of(_MarkRecord(_hash(url)))


def was_heard(checkpoint: str, url: str) -> bool:
    """Whether a checkpoint of any kind is of the server at this address."""
    record = read_checkpoint(checkpoint, _MarkRecord)
    return record is not None and record.at == _hash(url)


def _hash(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
