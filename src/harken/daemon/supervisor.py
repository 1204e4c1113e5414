"""Keeps loops running: the one place that catches everything, logs it under the loop's name, and backs off.

A fault in serving one connection ends that connection and nothing else.

A loop that keeps failing is shown as parked in `status`; it is still tried, slowly, because causes go away. One
that waits for a store that is away has no fault, and goes on soon after it is back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from harken.errors import Unavailable

_log = logging.getLogger("harken.supervisor")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
PARKED_AFTER = 5
GOOD_AFTER_SECONDS = 60.0
AWAY_PAUSE_SECONDS = 2.0


@dataclass(slots=True)
class Health:
    """How a loop is doing."""

    monotonic: Callable[[], float]
    failures: int = 0
    error: str = ""
    is_down: bool = False  # it has failed, and is not tried again yet
    began: float = 0.0  # when it was last started

    @property
    def has_recovered(self) -> bool:
        """Whether it has run long enough since its last failure."""
        return not self.is_down and self.monotonic() - self.began > GOOD_AFTER_SECONDS

    @property
    def is_parked(self) -> bool:
        """Whether it keeps failing."""
        return self.failures >= PARKED_AFTER and not self.has_recovered


async def contain(name: str, work: Awaitable[None]) -> None:
    """Await some work; a fault in it is logged and goes no further."""
    try:
        await work
    except (Exception, SystemExit):
        _log.exception("%s failed", name)
    except anyio.get_cancelled_exc_class():
        if _is_ended():
            raise
        _log.exception("%s failed", name)


def _is_ended() -> bool:
    """Whether the task that runs was cancelled itself, and did not await something that was: libraries leak that."""
    return anyio.get_current_task().has_pending_cancellation()


@dataclass(frozen=True, slots=True)
class _Loop:
    scope: anyio.CancelScope
    ended: anyio.Event


class Supervisor:
    """Runs named loops in a task group."""

    def __init__(
        self,
        tasks: TaskGroup,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        monotonic: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._tasks = tasks
        self._sleep = sleep
        self._monotonic = monotonic
        self._health: dict[str, Health] = {}
        self._loops: dict[str, _Loop] = {}

    @property
    def health(self) -> Mapping[str, Health]:
        """How each loop is doing, by name."""
        return self._health

    def start(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop until the task group ends."""
        self._health[name] = Health(self._monotonic)
        own = self._loops[name] = _Loop(anyio.CancelScope(), anyio.Event())
        self._tasks.start_soon(self._run, own, name, loop, name=f"harken-{name}")

    def has(self, name: str) -> bool:
        """Whether a loop of that name was started, and not stopped."""
        return name in self._loops

    async def stop(self, name: str) -> None:
        """End a loop, and return when it has ended; one that is not there has."""
        loop = self._loops.pop(name, None)
        if loop is not None:
            loop.scope.cancel()
            await loop.ended.wait()
            self._health.pop(name, None)

    async def _run(self, own: _Loop, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            with own.scope:
                await self._keep(name, loop)
        finally:
            own.ended.set()

    async def _keep(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        health = self._health[name]
        while True:
            health.is_down, health.began = False, self._monotonic()
            try:
                await loop()
            except Unavailable as exc:
                # What it needs is away, and no fault of its own: it goes on as soon as that is back.
                if self._monotonic() - health.began > AWAY_PAUSE_SECONDS or health.error != f"{exc}":
                    _log.warning("the loop %s waits: %s", name, exc)
                health.is_down, health.error = True, f"{exc}"
                await self._sleep(AWAY_PAUSE_SECONDS)
                continue
            except (Exception, SystemExit) as exc:
                self._note_failure(name, exc)
            except anyio.get_cancelled_exc_class() as exc:
                if _is_ended():
                    raise
                self._note_failure(name, exc)
            else:
                return
            await self._sleep(min(FIRST_PAUSE_SECONDS * 2 ** (health.failures - 1), LONGEST_PAUSE_SECONDS))

    def _note_failure(self, name: str, exc: BaseException) -> None:
        health = self._health[name]
        if health.has_recovered:
            health.failures = 0
        health.failures += 1
        health.is_down = True
        health.error = f"{type(exc).__name__}: {exc}"
        facts = {"loop": name, "failures": health.failures}
        _log.exception("the loop %s failed (%d in a row)", name, health.failures, extra=facts)
