"""Tests of the supervisor: a fault in one loop ends no other, and what it says of loops that failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from harken.daemon.supervisor import GOOD_AFTER_SECONDS, PARKED_AFTER, Supervisor, contain


class FailingLoop:
    """A loop that fails a number of times, and then runs until it is ended."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self._left = failures
        self._error = error or ValueError("a fault of the loop")
        self.runs_well = anyio.Event()

    async def run(self) -> None:
        """Fail, or go on for ever."""
        self._left -= 1
        if self._left >= 0:
            raise self._error
        self.runs_well.set()
        await anyio.sleep_forever()


class SteppedTime:
    """A time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the seconds so far."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let that time pass at once."""
        self.now += seconds
        await anyio.lowlevel.checkpoint()


def leaked() -> BaseException:
    """Return what awaiting something that was cancelled raises, though nobody has cancelled who awaits it."""
    return anyio.get_cancelled_exc_class()()


@pytest.mark.parametrize("error", [leaked, partial(SystemExit, 3)])
async def test_loop_that_ends_as_if_the_daemon_did_is_tried_again(error: Callable[[], BaseException]) -> None:
    """The code of a source may leak the cancellation of its own tasks, or call `sys.exit`; all else goes on."""
    time, loop, other = SteppedTime(), FailingLoop(1, error()), FailingLoop(0)
    left: list[str] = []
    async with anyio.create_task_group() as tasks:
        supervisor = Supervisor(tasks, sleep=time.sleep, monotonic=time.monotonic)
        supervisor.start("feed", loop.run)
        supervisor.start("other", other.run)
        with anyio.fail_after(5):
            await loop.runs_well.wait()
            await other.runs_well.wait()
            await supervisor.stop("feed")  # a cancellation of ours still ends it
        left = list(supervisor.health)
        tasks.cancel_scope.cancel()
    assert left == ["other"]


@pytest.mark.parametrize("error", [leaked, partial(SystemExit, 3)])
async def test_connection_that_ends_as_if_the_daemon_did_ends_alone(error: Callable[[], BaseException]) -> None:
    """A waker of a host is other people's code too, and is run for one session."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(contain, "waking", FailingLoop(1, error()).run())
        tasks.start_soon(anyio.sleep, 0)
    assert not tasks.cancel_scope.cancel_called


async def test_loop_that_has_recovered_is_not_said_to_keep_failing() -> None:
    """`status` shows what is wrong now; what was wrong an hour ago is in the log."""
    time, loop = SteppedTime(), FailingLoop(PARKED_AFTER)
    async with anyio.create_task_group() as tasks:
        supervisor = Supervisor(tasks, sleep=time.sleep, monotonic=time.monotonic)
        supervisor.start("feed", loop.run)
        with anyio.fail_after(5):
            await loop.runs_well.wait()
        health = supervisor.health["feed"]
        assert (health.is_parked, health.error) == (True, "ValueError: a fault of the loop")  # until it has lasted
        time.now += GOOD_AFTER_SECONDS + 1
        assert not health.is_parked
        tasks.cancel_scope.cancel()
