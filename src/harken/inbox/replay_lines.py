"""A line of the journal, read back: what replay needs of it, and nothing of what else it says.

Pure. Lines come from files that people may have touched, so one that cannot be read is None and never an error. The
lines are written by `store/journal.py`; what they add up to is in `replay.py`.
"""

from __future__ import annotations

import msgspec


class ReplayLine(msgspec.Struct, kw_only=True):
    """One event. Fields that its kind does not have are empty."""

    n: int
    at: str
    kind: str
    consumer: str = ""
    mailbox: str = ""
    begins_after: int = 0
    session: str = ""
    deliveries: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    messages: list[str] = msgspec.field(default_factory=list[str])
    ids: list[str] = msgspec.field(default_factory=list[str])
    message_id: str = ""
    reply: str = ""
    author: str = ""
    upstream_id: str = ""
    deleted: int = 0
    events_lost: int = 0
    ranges: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict[str, list[tuple[int, int]]])
    message: msgspec.Raw = msgspec.Raw()


class ArrivedMessage(msgspec.Struct):
    """What replay keeps of every message."""

    id: str
    mailbox: str
    seq: int


class _LineHead(msgspec.Struct):
    n: int
    at: str
    kind: str


KINDS = frozenset(
    {
        "received",
        "consumer",
        "offered",
        "seen",
        "withdrawn",
        "answered",
        "expired",
        "refused",
        "replied",
        "pruned",
        "recovered",
    }
)
"""The kinds that change what a mailbox or a consumer looks like."""

_LINE = msgspec.json.Decoder(ReplayLine)
_HEAD = msgspec.json.Decoder(_LineHead)
_ARRIVED = msgspec.json.Decoder(ArrivedMessage)


def read_line(data: bytes) -> ReplayLine | None:
    """Return an event from a line of a file; None for what is no line of a journal."""
    try:
        return _LINE.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        head = _HEAD.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    # Kinds that replay does not ask for may use a name for something else.
    return None if head.kind in KINDS else ReplayLine(n=head.n, at=head.at, kind=head.kind)


def arrived(line: ReplayLine) -> ArrivedMessage | None:
    """Return what arrived; None when the line does not say it, because the message is no longer stored."""
    if not line.message:
        return None
    try:
        return _ARRIVED.decode(line.message)
    except (msgspec.DecodeError, RecursionError):
        return None
