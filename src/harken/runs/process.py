"""One process of a run: started in a group of its own, read line by line, ended with everything it started.

It knows nothing of agents: bytes in, lines out. Whatever it started ends with it: its group, those that descend from
it, and those that left both but carry the mark of the run in their environment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import psutil
from anyio.abc import ByteReceiveStream, Process

from harken.errors import UserError
from harken.runs.jail import Cell
from harken.runs.mark import MARK

MOST_LINE_BYTES: Final = 1_000_000
MOST_STDERR_BYTES: Final = 16_000
GRACE_SECONDS: Final = 5.0
LAST_WORDS_SECONDS: Final = 5.0


class Child:
    """A started process."""

    def __init__(self, process: Process, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._stderr = bytearray()
        self._stdout_over = anyio.Event()
        self._stderr_over = anyio.Event()

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        return self._process.pid

    @property
    def stderr(self) -> str:
        """The end of what it said on standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def converse(self, given: bytes, take: Callable[[bytes], None], *, has_errors: bool = False) -> int:
        """Hand over the input, take each line of output (and of standard error, if wanted), return the exit code."""
        async with anyio.create_task_group() as talks:
            talks.start_soon(self._give, given)
            talks.start_soon(self._keep_stderr, take if has_errors else _nobody)
            talks.start_soon(self._take_stdout, take)
            code = await self._process.wait()
            # Somebody it left behind may hold its output open for ever.
            with anyio.move_on_after(LAST_WORDS_SECONDS):
                await self._stdout_over.wait()
                await self._stderr_over.wait()
            talks.cancel_scope.cancel()
        return code

    async def end(self) -> None:
        """End it and what it started: asked first, made to after a while."""
        with anyio.CancelScope(shield=True):
            left = descendants(self.pid)
            _signal_group(self.pid, signal.SIGTERM)
            with anyio.move_on_after(GRACE_SECONDS):
                await self._process.wait()
            await anyio.to_thread.run_sync(end_group, self.pid, self._mark, left)
            with anyio.move_on_after(GRACE_SECONDS):
                await self._process.wait()

    async def _give(self, given: bytes) -> None:
        if self._process.stdin is None:
            return
        # A program that does not read what it is given is not at fault for that.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            if given:
                await self._process.stdin.send(given)
            await self._process.stdin.aclose()

    async def _take_stdout(self, take: Callable[[bytes], None]) -> None:
        if self._process.stdout is not None:
            async for line in _lines(self._process.stdout):
                take(line)
        self._stdout_over.set()

    async def _keep_stderr(self, take: Callable[[bytes], None]) -> None:
        if self._process.stderr is not None:
            async for line in _lines(self._process.stderr):
                self._stderr += line[:MOST_STDERR_BYTES] + b"\n"
                del self._stderr[:-MOST_STDERR_BYTES]
                take(line)
        self._stderr_over.set()


@asynccontextmanager
async def started(cell: Cell, workdir: Path, mark: str) -> AsyncIterator[Child]:
    """Start a cell's program in a folder; whatever happens, it has ended when the context is left."""
    env = {**cell.env, MARK: mark}
    try:
        process = await anyio.open_process(cell.argv, cwd=workdir, env=env, start_new_session=True)
    except OSError as exc:
        raise UserError(f"{cell.argv[0]} could not be started: {exc.strerror}.", "Is it installed?") from exc
    child = Child(process, mark)
    try:
        yield child
    finally:
        await child.end()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def descendants(pid: int) -> Sequence[psutil.Process]:
    """Return what a process started, and what that started."""
    if pid <= 1:
        return ()
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return ()


def marked(mark: str) -> Sequence[psutil.Process]:
    """Return the processes that carry the mark of a run, wherever they are now."""
    # Not ourselves: somebody may have started this daemon from inside a run.
    return [each for each in psutil.process_iter() if each.pid != os.getpid() and mark_of(each) == mark]


def mark_of(process: psutil.Process) -> str:
    """Return the mark of the run that a process was started in; empty for any other, and for what we may not see."""
    try:
        return process.environ().get(MARK, "")
    except (psutil.Error, OSError):
        return ""


def end_group(pid: int, mark: str, left: Sequence[psutil.Process]) -> None:
    """End a group at once, and what may have left it; without a leader (0) only that."""
    _signal_group(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    for process in [*left, *marked(mark)]:
        # psutil knows a process by its time of birth too: another one that got the number is left alone.
        with suppress(psutil.Error):
            process.kill()


def _signal_group(pid: int, number: signal.Signals) -> None:
    if pid <= 1:  # 0 would mean our own
        return
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)


def _nobody(_line: bytes) -> None:
    """Take a line that nobody reads."""


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Yield lines; of one that is too long, its beginning."""
    line, is_cut = bytearray(), False
    while (chunk := await _received(stream)) is not None:
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            line += part
            yield bytes(line[:MOST_LINE_BYTES])
            line, is_cut = bytearray(), False
        if not is_cut:
            line += rest
            is_cut = len(line) > MOST_LINE_BYTES
            del line[MOST_LINE_BYTES:]
    if line:
        yield bytes(line)


async def _received(stream: ByteReceiveStream) -> bytes | None:
    """Return the next bytes, or nothing when there are no more."""
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None
