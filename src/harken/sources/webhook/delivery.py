"""What tells one delivery from all others, so that the same one is stored once and none hides another. Pure.

Many services name a delivery in a header that they do not sign: whoever saw one signed body could post it under any
name, or have another one taken for known. Where the body says when something happened it is its own name: a repeat has
the same bytes, and nothing else has. Elsewhere the name counts only together with the body.
"""

from __future__ import annotations

import hashlib
from typing import Final

from harken.sources.door import Posted

MAX_ID: Final = 200
MARK_CHARS: Final = 32


def signed_id(found: str) -> str:
    """Return an id that is signed like the rest. One that is too long is not cut: two might become one."""
    return found if len(found) <= MAX_ID else f"sha256:{hashlib.sha256(found.encode()).hexdigest()}"


def body_id(posted: Posted) -> str:
    """Return an id that nobody but who signed the body can change: the body itself."""
    return f"sha256:{hashlib.sha256(posted.body).hexdigest()}"


def unsigned_id(posted: Posted, header: str) -> str:
    """Return an id that anybody may have written, with a mark of the body that it came with; empty without one."""
    found = posted.headers.get(header, "")
    if not found:
        return ""
    mark = hashlib.sha256(posted.body).hexdigest()[:MARK_CHARS]
    return f"{signed_id(found)}/{mark}"
