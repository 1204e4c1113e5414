"""Says once, on stderr, what is taking so long: to a person who watches, and only if it does."""

from __future__ import annotations

import sys
from math import inf
from time import monotonic
from typing import Final

from harken.display import visible

QUIET_SECONDS: Final = 1.0


class SlowNotice:
    """One remark about one wait."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._quiet_until = monotonic() + QUIET_SECONDS if sys.stderr.isatty() else inf

    def check(self) -> None:
        """Say it when it is time."""
        if monotonic() > self._quiet_until:
            self._quiet_until = inf
            sys.stdout.flush()
            sys.stderr.write(f"{visible(self._text)}\n")
            sys.stderr.flush()
