"""What makes a draft the same as one that was stored before, and what it refers to.

Keys are short hashes that outlive the messages themselves. Only what the source says counts, never the sender's words
about it. The store decides what to do with a key it knows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from harken.model import Draft, Kind

_DOMAIN = "harken dedup 1"
_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class DraftIdentity:
    """A draft's own key (None: always new), the key of what it refers to, and its thread."""

    dedup_key: bytes | None
    refers_key: bytes | None
    thread: str


def dedup_key(source: str, upstream_id: str) -> bytes:
    """Return the key of the original message with this upstream id."""
    return _key("message", source, upstream_id)


def identify(draft: Draft) -> DraftIdentity:
    """Return what a draft is and what it refers to."""
    return DraftIdentity(
        dedup_key=_own_key(draft) if draft.upstream_id else None,
        refers_key=_refers_key(draft),
        thread=draft.thread or draft.conversation or draft.upstream_id,
    )


def _own_key(draft: Draft) -> bytes:
    if draft.kind is Kind.EDIT:
        # With its time, where there is one: going back to an earlier wording is an edit too.
        at = draft.sent_at.isoformat() if draft.sent_at else ""
        return _key("edit", draft.source, draft.upstream_id, draft.text, at)
    if draft.kind is Kind.DELETION:
        return _key("deleted", draft.source, draft.upstream_id)
    return dedup_key(draft.source, draft.upstream_id)


def _refers_key(draft: Draft) -> bytes | None:
    original = draft.refers_to
    if not original and draft.kind is not Kind.MESSAGE:
        original = draft.upstream_id
    return dedup_key(draft.source, original) if original else None


def _key(*parts: str) -> bytes:
    encoded = [part.encode("utf-8", "surrogatepass") for part in (_DOMAIN, *parts)]
    # With its length before it, no part can run into the next.
    framed = b"".join([len(part).to_bytes(8, "big") + part for part in encoded])
    return hashlib.sha256(framed).digest()[:_KEY_BYTES]
