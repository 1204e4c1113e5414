"""Addresses behind which nobody reads: machines say so in the name. Pure; for every source that brings mail.

Nobody waits for an answer there. Whether a mail says otherwise that a machine sent it, its source knows.
"""

from __future__ import annotations

import re
from typing import Final

_NOBODY: Final = re.compile(
    r"(?:.*[._+-])?(?:no|not|do[._-]?not)[._-]?reply(?:[._+-].*)?"
    r"|(?:mailer-daemon|postmaster|bounces?|notifications?|alerts?|newsletters?)(?:[._+-].*)?"
)
MOST_CHARS: Final = 64  # what a name before the @ may have


def is_unattended(address: str) -> bool:
    """Whether an address says by its name that nobody reads what is sent to it."""
    name, at, _ = address.strip().lower().rpartition("@")
    return bool(at) and (len(name) > MOST_CHARS or _NOBODY.fullmatch(name) is not None)
