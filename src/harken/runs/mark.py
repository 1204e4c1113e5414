"""What marks a process as one of a run, however far it went from it: a variable, and on Linux a limit.

Any process can take the variable away. The limit stays: every process inherits those of its parent, and the system lets
no process raise a hard one again, also one with another environment, session or parent. The one that is used has had no
effect since Linux 2.4: how many locks on files a process may hold. Its value says which run it is of.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "HARKEN_RUN"  # which run a process is of
PREFIX: Final = "r-"  # how the id of a run begins
LETTERS: Final = 6  # that follow in it

LOCKS: Final = 10  # RLIMIT_LOCKS: Python has no name for it
_BITS: Final = 8 * LETTERS
_OURS: Final = int.from_bytes(b"HR", "big") << _BITS  # more locks than anybody has, and a number that nobody chooses


def limit_of(run: str) -> int:
    """Return the limit that marks what a run has started."""
    letters = run.removeprefix(PREFIX).encode("ascii", "replace")[:LETTERS]
    return _OURS | int.from_bytes(letters.ljust(LETTERS, b"-"), "big")


def run_of_limit(limit: int) -> str:
    """Return the run that a limit marks; empty when it marks none."""
    if limit >> _BITS != _OURS >> _BITS:
        return ""
    return PREFIX + (limit ^ _OURS).to_bytes(LETTERS, "big").decode("ascii", "replace")
