"""Memory that is bounded, as by `ulimit -v`: what is done so that running out of it is an error and not a crash.

Allocators reserve address space that is never used, and libraries in C do not all survive an allocation that fails. It
decides nothing about messages. Everything that makes JSON is above; there are only the errors below.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import msgspec

from harken.errors import Unavailable, UserError

MAX_ARENAS: Final = 2
MIN_BYTES: Final = 256 << 20  # with less the daemon cannot do its work
AMPLE_BYTES: Final = 1 << 30  # with less, libraries are used that fail with an error instead of ending the process
RETRY_SECONDS: Final = 5.0

_M_ARENA_MAX: Final = -8  # of glibc's malloc.h
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # of a letter that is written in two; its other half may be missing


def json_bytes(value: object) -> bytes:
    """Return a value as JSON; raises `MemoryError` if there is no room.

    `msgspec.json.encode` ends the process then: it goes on with the buffer that could not be made larger.
    """
    buffer = bytearray()
    msgspec.json.Encoder().encode_into(value, buffer)
    return bytes(buffer)


def sound_json(data: bytes) -> bytes:
    """Return JSON in which every text has UTF-8: in place of half a surrogate pair stands a question mark.

    JavaScript writes such halves when it cuts a text, and strict readers then refuse the whole. What is not JSON at all
    comes back as it is.
    """
    if not _HALF.search(data):
        return data
    try:
        return json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return data


def bound_arenas() -> None:
    """Let the allocator reserve room for a few threads only: each costs 64 MB of address space, used or not."""
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # others than glibc have none
        if set_option is not None:
            set_option(_M_ARENA_MAX, MAX_ARENAS)


def allowed_bytes() -> int | None:
    """Return how much memory this process may use, None if no bound is set."""
    if find_spec("resource") is None:
        return None  # as on Windows
    resource = import_module("resource")
    allowed: int = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if allowed == resource.RLIM_INFINITY else allowed


def refuse_too_little(allowed: int | None) -> None:
    """Raise `UserError` if a daemon could not work with that much."""
    if allowed is not None and allowed < MIN_BYTES:
        raise UserError(
            f"Harken may use {allowed >> 20} MB of memory, and needs {MIN_BYTES >> 20} MB.",
            "Raise the limit: ulimit -v unlimited",
        )


def out_of_memory() -> Unavailable:
    """Return the error for what there was no memory for."""
    return Unavailable(
        "There is not enough memory for this.",
        "Ask for less at once, or let Harken use more: ulimit -v, then harken down and up.",
        retry_after=RETRY_SECONDS,
    )
