"""One process of a run, or an agent that is talked to: started in a group of its own, ended with everything it started.

It knows nothing of agents: bytes in, lines out. What it started ends with it. One without a mark is no run: nothing in
it says so to the daemon, and what it started is found by its group, its reaper and by descent. On Linux a
reaper stands between (`reaper.py`), from which nothing gets away. Where there is none, and where it was killed, what is
left is found by its group, by descent and by the marks of the run (`mark.py`).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import psutil
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from harken.errors import UserError
from harken.processes import lock_limit
from harken.runs.mark import MARK, limit_of
from harken.runs.sandbox import SandboxCommand

if sys.platform == "linux":
    from harken.runs.reaper import kill_all

MAX_LINE_BYTES: Final = 8_000_000  # an answer is one line; quoted, it is longer than it reads
MAX_STDERR_BYTES: Final = 16_000
GRACE_SECONDS: Final = 8.0  # longer than a reaper takes to end what can be ended
LAST_WORDS_SECONDS: Final = 5.0
BEGIN_SECONDS: Final = 10.0
AWAKE_SECONDS: Final = 3.0
MAX_ROUNDS: Final = 20  # of ending what is left
ROUND_SECONDS: Final = 0.5
NO_LIMIT: Final = -1  # of a process that is no run

_REAPER: Final = Path(__file__).with_name("reaper.py")


class ChildProcess:
    """A started process."""

    def __init__(self, process: Process, mark: str, log_line: str = "") -> None:
        self._process = process
        self._mark = mark
        self._log_line = re.compile(log_line.encode()) if log_line else None
        self._stderr = bytearray()
        self._is_over = False  # and nothing of it is left
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
            code = await self._exit_code()
            # Somebody it left behind may hold its output open for ever, and go on in its name.
            await self._end_rest(())
            with anyio.move_on_after(LAST_WORDS_SECONDS):
                await self._stdout_over.wait()
                await self._stderr_over.wait()
            talks.cancel_scope.cancel()
        return code

    @property
    def incoming(self) -> ByteReceiveStream:
        """Its standard output, for a caller that reads it itself."""
        if self._process.stdout is None:
            raise RuntimeError("It has no standard output.")
        return self._process.stdout

    @property
    def outgoing(self) -> ByteSendStream:
        """Its standard input, for a caller that goes on talking to it."""
        if self._process.stdin is None:
            raise RuntimeError("It has no standard input.")
        return self._process.stdin

    async def see_through(self, take_error: Callable[[bytes], None] | None = None) -> int:
        """Return its exit code, once it has one; keep what it says on standard error, in place of `converse`."""
        async with anyio.create_task_group() as talks:
            talks.start_soon(self._keep_stderr, take_error or _nobody)
            code = await self._exit_code()
            with anyio.move_on_after(LAST_WORDS_SECONDS):
                await self._stderr_over.wait()
            talks.cancel_scope.cancel()
        return code

    async def end(self) -> None:
        """End it and what it started: asked first, made to after a while."""
        if self._is_over:
            return
        with anyio.CancelScope(shield=True):
            left = descendants(self.pid)
            _signal_group(self._leader, signal.SIGTERM)
            if sys.platform != "win32":
                _signal_group(self._leader, signal.SIGCONT)  # it may have stopped the one who is to end it
            with anyio.move_on_after(GRACE_SECONDS):
                await self._process.wait()
            await self._end_rest(left)
            with anyio.move_on_after(GRACE_SECONDS):
                await self._process.wait()

    async def _exit_code(self) -> int:
        while True:
            with anyio.move_on_after(AWAKE_SECONDS):
                return await self._process.wait()
            if sys.platform == "linux":
                # A run may stop its reaper, which then does not see that the program has ended.
                _signal_group(self.pid, signal.SIGCONT)

    @property
    def _leader(self) -> int:
        """The leader of the group; none when that was a reaper, which has no other in it, and is gone."""
        return 0 if sys.platform == "linux" and self._process.returncode is not None else self.pid

    async def _end_rest(self, left: Sequence[psutil.Process]) -> None:
        await anyio.to_thread.run_sync(end_group, self._leader, self._mark, left)
        self._is_over = self._process.returncode is not None

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
                take(line)
                if self._log_line is None or not self._log_line.match(line):
                    self._stderr += line[:MAX_STDERR_BYTES] + b"\n"
                    del self._stderr[:-MAX_STDERR_BYTES]
        self._stderr_over.set()


@asynccontextmanager
async def started(command: SandboxCommand, workdir: Path, mark: str = "") -> AsyncIterator[ChildProcess]:
    """Start a command's program in a folder; it has ended when the context is left. Without a mark it is no run."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = await _opened(command, workdir, mark, theirs)
        child = ChildProcess(process, mark, command.log_line)
        try:
            if sys.platform == "linux" and (error := await _error_of(ours)):
                raise _not_started(command, os.strerror(error))
            yield child
        finally:
            await child.end()
            with anyio.CancelScope(shield=True):
                await process.aclose()


async def _opened(command: SandboxCommand, workdir: Path, mark: str, line: socket.socket) -> Process:
    env = {**command.env, MARK: mark} if mark else command.env
    limit = limit_of(mark) if mark else NO_LIMIT
    reaper = (sys.executable, "-I", "-S", str(_REAPER), str(line.fileno()), str(limit))
    argv = (*reaper, *command.argv) if sys.platform == "linux" else command.argv
    passed = [line.fileno()] if sys.platform == "linux" else []
    try:
        return await anyio.open_process(argv, cwd=workdir, env=env, start_new_session=True, pass_fds=passed)
    except OSError as exc:
        raise _not_started(command, exc.strerror or str(exc)) from exc


async def _error_of(line: socket.socket) -> int:
    """Return the number of the error for which a reaper could not start its program; 0 when it could."""
    line.settimeout(0)
    with anyio.move_on_after(BEGIN_SECONDS):
        await anyio.wait_readable(line)
        with suppress(OSError, ValueError):
            return int(line.recv(16))
    return 0  # it was killed, or the machine is very slow: how it ends tells


def _not_started(command: SandboxCommand, reason: str) -> UserError:
    return UserError(f"{command.argv[0]} could not be started: {reason}.", "Is it installed?")


def descendants(pid: int) -> Sequence[psutil.Process]:
    """Return what a process started, and what that started."""
    if pid <= 1:
        return ()
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return ()


def marked(mark: str) -> Sequence[psutil.Process]:
    """Return the processes that carry the mark of a run, wherever they are now, and are more than a number."""
    # Not ourselves: somebody may have started this daemon from inside a run.
    return (
        []
        if not mark
        else [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_marked(each, mark)]
    )


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        has_limit = lock_limit(process.pid) == limit_of(mark)
        if not has_limit and process.environ().get(MARK, "") != mark:
            return False
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except (psutil.Error, OSError):
        return False


def end_group(pid: int, mark: str, left: Sequence[psutil.Process]) -> None:
    """End a group at once, and what may have left it; without a leader (0) only that."""
    if sys.platform == "linux":
        kill_all(lambda: [each.pid for each in marked(mark)])
    _signal_group(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    for _ in range(MAX_ROUNDS):
        # What is found may have been started while others were ended.
        found = [*left, *marked(mark)]
        if not found:
            return
        for process in found:
            # psutil knows a process by its time of birth too: another one that got the number is left alone.
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, ROUND_SECONDS)
        left = ()


def _signal_group(pid: int, number: signal.Signals) -> None:
    if pid <= 1:  # 0 would mean our own
        return
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)


def _nobody(_line: bytes) -> None:
    """Take a line that is not read."""


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Yield lines; of one that is too long, its beginning."""
    line, is_cut = bytearray(), False
    while (chunk := await _received(stream)) is not None:
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            line += part
            yield bytes(line[:MAX_LINE_BYTES])
            line, is_cut = bytearray(), False
        if not is_cut:
            line += rest
            is_cut = len(line) > MAX_LINE_BYTES
            del line[MAX_LINE_BYTES:]
    if line:
        yield bytes(line)


async def _received(stream: ByteReceiveStream) -> bytes | None:
    """Return the next bytes, or nothing when there are no more."""
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return None
