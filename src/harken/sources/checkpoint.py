"""The one way in which a feed writes where it is, and reads it again: a record as JSON.

What is stored may be older than this code, or of something else: whatever does not fit is no record. What a record
means, and whether it is still good, is each source's own.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from harken.memory import json_bytes

_Record = TypeVar("_Record", bound=msgspec.Struct)


def checkpoint_of(record: msgspec.Struct) -> str:
    """Return a record as a checkpoint."""
    return json_bytes(record).decode()


def read_checkpoint(checkpoint: str, kind: type[_Record]) -> _Record | None:
    """Return the record that a checkpoint is, or None if it is none of that kind."""
    try:
        return msgspec.json.decode(checkpoint.encode("utf-8", "replace"), type=kind)
    except msgspec.MsgspecError:
        return None
