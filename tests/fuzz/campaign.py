"""A bounded search for a case that breaks a target: so many cases or so many seconds, whichever ends first.

What is found is made as small as it can be before it is told, because the smallest case is the one that explains
itself. A case that takes long is a finding too: whoever sends it could stop everything else.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from tests.fuzz.mutating import Mutator
from tests.fuzz.target import Judge, Target

MAX_CASE_SECONDS: Final = 5.0  # of the processor, not of the clock: others use this machine too
MAX_TRIES: Final = 2_000  # to make a finding smaller


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that broke a target, and how."""

    data: bytes
    kind: str
    told: str

    def __str__(self) -> str:
        return f"{self.kind} for {self.data!r}\n{self.told}"


@dataclass(slots=True)
class Outcome:
    """What a search came to. `ends` counts how cases ended."""

    target: str
    cases: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter[str])
    finding: Finding | None = None


class _Seen:
    """Lets nothing through and remembers it: that something unforeseen was raised is what is looked for."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        del kind, trace
        self.error = error
        return isinstance(error, Exception)


def search(target: Target, cases: int, seconds: float, *, first: int = 0) -> Outcome:
    """Run cases by their numbers, from `first` on, until one breaks the target."""
    mutator = Mutator(target.seeds(), target.tokens, target.most_bytes)
    outcome = Outcome(target.name)
    begin = time.monotonic()
    with target.opened() as judge:
        for number in range(first, first + cases):
            data = mutator.case(number)
            outcome.cases += 1
            error, word = tried(judge, data)
            if error is not None:
                outcome.finding = _smallest(judge, data, error)
                break
            outcome.ends[word] += 1
            if time.monotonic() - begin > seconds:
                break
    outcome.seconds = time.monotonic() - begin
    return outcome


def tried(judge: Judge, data: bytes) -> tuple[BaseException | None, str]:
    """Run one case; return what was wrong with it, and else how it ended."""
    begin, word = time.process_time(), ""
    with _Seen() as seen:
        word = judge(data)
    used = time.process_time() - begin
    if seen.error is None and used > MAX_CASE_SECONDS:
        return TimeoutError(f"{used:.1f} s for {len(data)} bytes"), word
    return seen.error, word


def _smallest(judge: Judge, data: bytes, error: BaseException) -> Finding:
    """Return a case as small as can be that fails in the same way."""
    kind, left = type(error), MAX_TRIES

    def fails(smaller: bytes) -> bool:
        nonlocal error, left
        left -= 1
        found, _ = tried(judge, smaller)
        if type(found) is not kind:
            return False
        error = found
        return True

    data = shrunk(data, lambda smaller: left > 0 and fails(smaller))
    return Finding(data, kind.__name__, "".join(traceback.format_exception(error, limit=-6)))


def shrunk(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Return the bytes without every piece that they still fail without, from large pieces to single bytes."""
    size = len(data)
    while size:
        start = 0
        while start < len(data):
            smaller = data[:start] + data[start + size :]
            if fails(smaller):
                data = smaller
            else:
                start += size
        size //= 2
    return data
