"""The variable that marks what a run has started, however far it went from it."""

from __future__ import annotations

from typing import Final

MARK: Final = "HARKEN_RUN"  # which run a process is of
