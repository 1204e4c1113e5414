"""Trying a source, for `source test`: the same connection as the daemon's, for a few seconds, with nothing stored.

A kind either listens, as `listen` does, or asks its service once with `ask_once`. What is found is told in words and
numbers, never in what people wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import anyio

from harken.errors import HarkenError, Unavailable
from harken.model import timestamp
from harken.sources.source import Feed, Source, SourceHealth, SourceState

LOOK_SECONDS: Final = 0.05
MIN_SECONDS: Final = 30.0  # one answer of a service may take as long


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSources:
    """What the running daemon says: where it is posted to, and how each source is doing (its state, and why)."""

    hooks_url: str = ""
    states: Mapping[str, tuple[SourceState, str]] = field(default_factory=dict[str, tuple[SourceState, str]])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What a check may use: how long, the running daemon, and where others post to a path."""

    seconds: float
    running: Callable[[], RunningSources]
    post_address: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """How a check went. `found` says in words what is there; None: it only listened."""

    state: SourceState
    address: str
    reason: str = ""
    server: str = ""
    found: str | None = None
    shell_line: str | None = None  # a line for a shell that posts something that is taken
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    too_long: int = 0
    last_message_at: datetime | None = None

    def as_json(self, name: str, kind: str) -> dict[str, Any]:
        """Return it as a program is told."""
        return {
            "name": name,
            "kind": kind,
            "address": self.address,
            "state": self.state.value,
            "reason": self.reason,
            "server": self.server,
            **({} if self.found is None else {"found": self.found}),
            **({} if self.shell_line is None else {"curl": self.shell_line}),
            "messages": sum(self.counts.values()),
            "counts": dict(self.counts),
            "dropped": dict(self.dropped),
            "too_long": self.too_long,
            "last_message_at": None if self.last_message_at is None else timestamp(self.last_message_at),
        }


def ask_once(address: str, ask: Callable[[], Awaitable[CheckReport]], seconds: float, *, late: str) -> CheckReport:
    """Ask a service, within some seconds; what goes wrong is the report. `late` says who did not answer in time."""
    return anyio.run(_ask_once, address, ask, max(seconds, MIN_SECONDS), late)


async def _ask_once(address: str, ask: Callable[[], Awaitable[CheckReport]], seconds: float, late: str) -> CheckReport:
    failed = CheckReport(state=SourceState.RETRYING, address=address, reason=late, found="")
    try:
        with anyio.fail_after(seconds):
            return await ask()
    except TimeoutError:
        return failed
    except HarkenError as exc:
        state = SourceState.RETRYING if isinstance(exc, Unavailable) else SourceState.NEEDS_PERSON
        return replace(failed, state=state, reason=" ".join(filter(None, (exc.message, sentence(exc.hint)))))


def sentence(text: str) -> str:
    """Return a hint as a sentence."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) or not text else '.'}"


def listen(source: Source, seconds: float) -> CheckReport:
    """Listen to a source for some seconds."""
    return anyio.run(_listen, source, seconds)


async def _listen(source: Source, seconds: float) -> CheckReport:
    heard = Counter[str]()
    health = source.health()

    async def follow(feed: Feed) -> None:
        async with aclosing(feed.follow("")) as batches:
            async for batch in batches:
                heard.update(draft.channel for draft in batch.drafts)

    async def watch() -> None:
        nonlocal health
        while True:
            # Kept while it runs: one that was stopped says nothing else.
            health = _latest(health, source.health())
            await anyio.sleep(LOOK_SECONDS)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as watching:
            watching.start_soon(watch)
            async with anyio.create_task_group() as following:
                for feed in source.feeds():
                    following.start_soon(follow, feed)
            # None can push: there is nothing to wait for.
            health = _latest(health, source.health())
            watching.cancel_scope.cancel()
    with anyio.CancelScope(shield=True):
        await source.aclose()
    return CheckReport(
        state=health.state,
        address=source.address,
        reason=health.reason,
        server=health.server,
        counts=dict(sorted(heard.items())),
        dropped=dict(sorted(health.dropped.items())),
        too_long=health.too_long,
        last_message_at=health.last_message_at,
    )


def _latest(before: SourceHealth, now: SourceHealth) -> SourceHealth:
    return before if now.state is SourceState.STOPPED else now
