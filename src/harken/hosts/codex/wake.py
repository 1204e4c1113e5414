"""Waking an idle Codex session: a turn in the app server that terminals share, or the thread's own queue.

The text arrives as if the user had typed it, so the caller hands over no outsider's words. A terminal that runs by
itself looks into its queue every few seconds; after Esc it does not, and a message that stayed there would come as a
surprise after the next prompt. So what is not taken in time is taken back, and the wake has failed.

The shared server keeps a thread for about a minute after its terminal was closed. A turn started then would run with
the session's rights, unseen, so a thread is woken only when there is a terminal for each thread that a terminal can be
showing. Which one shows which is nowhere told. But a terminal touches a file of each thread when it first shows it,
also of one that it resumes: what was touched last before a terminal began is not what that one shows.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
import psutil

from harken.errors import Unavailable
from harken.hosts.codex.appserver import AppServer, Refusal, private_server, shared_server
from harken.hosts.wake import WakeTarget, WakeWay
from harken.processes import command_line, environment, has_terminal

TAKE_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.5
_SLACK_SECONDS: Final = 10.0
_ENVIRON: Final = ("HOME", "PATH", "CODEX_HOME", "LANG", "USER")
_TERMINAL: Final = "codex-tui"  # what a thread names as its originator that a terminal began
_SHOWN: Final = "tui-thread-reference-capabilities"  # below the home: a file for each thread that a terminal has shown
_ALONE: Final = frozenset({"--no-daemon", "exec", "app-server", "queue", "mcp-server"})  # not the shared server's

LEFT: Final = "no terminal shows its conversation any more"

_log = logging.getLogger("harken.hosts.codex")


class ThreadServer(Protocol):
    """A server that can be asked about its threads."""

    async def call(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        """Ask one thing and return the result; raises `Unavailable` when it is refused or does not come."""
        ...


class _NoWakeAnswer(Unavailable):
    """A text was handed over, and Codex did not say what became of it."""


@dataclass(frozen=True, slots=True)
class LoadedThread:
    """A thread that the shared server holds."""

    name: str
    shown_at: float | None  # when a terminal last began to show it, in seconds since 1970; None: not known


class CodexWaker:
    """Starts a turn in a session that is idle."""

    def __init__(
        self, *, take_seconds: float = TAKE_SECONDS, terminals: Callable[[Path], Sequence[float]] | None = None
    ) -> None:
        self._take_seconds = take_seconds
        self._terminals = terminals or terminal_starts
        # Of each home, whether a thread is one that a terminal should be showing: that never changes, and takes long.
        self._is_shown: dict[Path, Mapping[str, bool]] = {}

    def ways(self, target: WakeTarget) -> Sequence[WakeWay]:
        """Return the one way: by the app server."""
        # After a restart of the daemon no hook has told the environment yet.
        env = target.env or environment(target.pid)

        async def send(now: WakeTarget, text: str) -> bool | None:
            return await self.wake(replace(now, env=env), text)

        async def hindrance(now: WakeTarget) -> str:
            return await self.hindrance(replace(now, env=env))

        return [WakeWay(surface="wake: app server", send=send, hindrance=hindrance)]

    async def wake(self, target: WakeTarget, text: str) -> bool | None:
        """Hand a text to a thread; return whether it was taken, None when it may have been. Never raises."""
        try:
            with anyio.fail_after(self._take_seconds + _SLACK_SECONDS):
                if not await _started(target, text):
                    await self._queued(target, text)
        except (_NoWakeAnswer, TimeoutError) as exc:
            _log.info("the Codex thread %s may have been woken: %s", target.native, str(exc) or "it took too long")
            return None
        except Unavailable as exc:
            _log.info("the Codex thread %s was not woken: %s", target.native, exc)
            return False
        return True

    async def hindrance(self, target: WakeTarget) -> str:
        """Return why a thread cannot be woken now; empty when it can. Never raises."""
        if not _is_server(target.pid):
            return ""
        try:
            async with shared_server(home_of(target.env)) as server:
                return "" if server is None else await self._hindrance(server, target)
        except Unavailable as exc:
            return f"its app server cannot be asked: {exc}"

    async def _hindrance(self, server: AppServer, target: WakeTarget) -> str:
        """Say whether a terminal shows a thread that the server holds."""
        thread = _thread(await server.call("thread/read", {"threadId": target.native}))
        if thread.get("originator") != _TERMINAL:
            return ""  # of an editor or a desktop program, which may show many
        if _state(thread) == "active":
            return "it is at work"
        return await self._doubt(server, target.native, home_of(target.env))

    async def is_left(self, server: ThreadServer, name: str, home: Path) -> bool:
        """Whether no terminal shows a thread any more that a terminal began."""
        thread = _thread(await server.call("thread/read", {"threadId": name}))
        return thread.get("originator") == _TERMINAL and await self._doubt(server, name, home) == LEFT

    async def _doubt(self, server: ThreadServer, name: str, home: Path) -> str:
        # In this order: the thread of a terminal that begins meanwhile must not be missing beside its terminal.
        # Whoever sends a message does not wait for it: a process may be slow to say what it is.
        starts = await anyio.to_thread.run_sync(self._terminals, home, abandon_on_cancel=True)
        return doubt(name, await self._loaded_threads(server, home), starts)

    async def _loaded_threads(self, server: ThreadServer, home: Path) -> Sequence[LoadedThread]:
        """Return the threads that a terminal should be showing."""
        loaded = (await server.call("thread/loaded/list", {})).get("data")
        names = [name for name in loaded if isinstance(name, str)] if isinstance(loaded, list) else []
        known = self._is_shown.get(home, {})
        found = {name: known[name] if name in known else await _should_be_shown(server, name) for name in names}
        self._is_shown[home] = {name: is_shown for name, is_shown in found.items() if is_shown is not None}
        return [LoadedThread(name, _shown_at(home, name)) for name, is_shown in found.items() if is_shown]

    async def _queued(self, target: WakeTarget, text: str) -> None:
        """Put a text into the queue of a thread, and wait until it is taken from there."""
        async with private_server(_program(target), cwd="/", env=_environ(target.env)) as server:
            entry = await _added(server, target.native, text)
            try:
                is_taken = await self._was_taken(server, target.native, entry)
            except Unavailable as exc:
                raise _NoWakeAnswer(str(exc)) from exc
            if not is_taken:
                raise Unavailable("its queue is not read: it was interrupted, or no terminal shows it")

    async def _was_taken(self, server: AppServer, thread: str, entry: str) -> bool:
        """Wait until an entry is taken from its queue; take it back after a time, and return whether it was taken."""
        is_taken = False
        try:
            with anyio.move_on_after(self._take_seconds):
                while not is_taken:
                    await anyio.sleep(_LOOK_SECONDS)
                    is_taken = not await _is_queued(server, thread, entry)
        finally:
            if not is_taken:
                with anyio.CancelScope(shield=True):
                    is_taken = await _taken_meanwhile(server, thread, entry)
        return is_taken


async def _started(target: WakeTarget, text: str) -> bool:
    """Start a turn where terminals share an app server; return whether this thread lives there."""
    async with shared_server(home_of(target.env)) as server:
        if server is None:
            return False
        try:
            status = _state(_thread(await server.call("thread/read", {"threadId": target.native})))
        except Unavailable:
            return False
        if status == "active":
            raise Unavailable("it is at work: its hooks carry what waits")
        if status != "idle":
            return False
        try:
            await server.call("turn/start", {"threadId": target.native, "input": _input(text)})
        except Refusal:
            raise
        except Unavailable as exc:
            raise _NoWakeAnswer(str(exc)) from exc
        return True


def doubt(name: str, loaded: Sequence[LoadedThread], starts: Sequence[float]) -> str:
    """Say why it is not sure that a terminal shows a thread, from when each terminal began; empty when it is."""
    # Where it is not known of one, any terminal may show any of them.
    is_known = all(thread.shown_at is not None for thread in loaded)
    can_show = sorted(
        (sum(not is_known or start <= (thread.shown_at or 0.0) for start in starts), thread.name) for thread in loaded
    )
    # What no terminal can be showing was left, and takes no terminal from the others.
    left = [each for terminals, each in can_show if not terminals]
    if name in left or not starts:
        return LEFT
    is_enough = all(terminals >= place for place, (terminals, _) in enumerate(can_show[len(left) :], 1))
    return "" if is_enough else "it is not certain that a terminal still shows it"


async def _should_be_shown(server: ThreadServer, name: str) -> bool | None:
    """Whether a thread is one that a terminal began, for its person; None while it is not known which."""
    thread = _thread(await server.call("thread/read", {"threadId": name}))
    if thread.get("originator") is None:
        return None
    return thread.get("originator") == _TERMINAL and not thread.get("ephemeral") and not thread.get("parentThreadId")


def _shown_at(home: Path, thread: str) -> float | None:
    try:
        return (home / _SHOWN / thread).stat().st_mtime
    except (OSError, ValueError):
        return None


async def _added(server: AppServer, thread: str, text: str) -> str:
    """Put a text into the queue of a thread; return its entry there."""
    params = {"threadId": thread, "clientUserMessageId": str(uuid.uuid4()), "input": _input(text)}
    try:
        queued = (await server.call("thread/queue/add", params)).get("queuedSubmission")
    except Refusal:
        raise
    except Unavailable as exc:
        raise _NoWakeAnswer(str(exc)) from exc
    return str(queued.get("id")) if isinstance(queued, dict) else ""


async def _is_queued(server: AppServer, thread: str, entry: str) -> bool:
    listing = (await server.call("thread/queue/list", {"threadId": thread})).get("data")
    return isinstance(listing, list) and any(isinstance(item, dict) and item.get("id") == entry for item in listing)


async def _taken_meanwhile(server: AppServer, thread: str, entry: str) -> bool:
    """Take an entry back; return whether it was too late for that."""
    try:
        answer = await server.call("thread/queue/delete", {"threadId": thread, "queuedSubmissionId": entry})
    except Unavailable:
        return not await _is_queued(server, thread, entry)
    return answer.get("deleted") is False


def _input(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _thread(answer: Mapping[str, object]) -> Mapping[str, object]:
    thread = answer.get("thread")
    return thread if isinstance(thread, dict) else {}


def _state(thread: Mapping[str, object]) -> str:
    status = thread.get("status")
    return str(status.get("type", "")) if isinstance(status, dict) else ""


def terminal_starts(home: Path) -> Sequence[float]:
    """Return when each terminal began that shares the app server of a Codex home, in seconds since 1970.

    Never later than it was, at most a second earlier. Looks at every process: off the loop.
    """
    starts = (_terminal_start(process, home) for process in psutil.process_iter())
    return [start for start in starts if start is not None]


def _terminal_start(process: psutil.Process, home: Path) -> float | None:
    """Return when a process began that is a terminal of a Codex home; None: it is none, or gone."""
    try:
        if process.name() != "codex" or not has_terminal(process.pid):
            return None
        own = process.environ()
        words = process.cmdline()[1:]
        start = process.create_time()
        is_ours = not _ALONE.intersection(words) and codexhome_of(own).resolve() == home.resolve()
    except (psutil.Error, OSError, RuntimeError):  # the last: links that lead in a circle
        return None
    return start if is_ours else None


def _is_server(pid: int) -> bool:
    return "app-server" in command_line(pid)


def _environ(env: Mapping[str, str]) -> dict[str, str]:
    """Return what the program needs to find the same home as the session; nothing else of either environment."""
    whole = {**os.environ, **env}
    return {name: whole[name] for name in _ENVIRON if whole.get(name)}


def home_of(env: Mapping[str, str]) -> Path:
    """Return the folder in which a session with this environment, beside that of this process, keeps its state."""
    return codexhome_of(_environ(env))


def codexhome_of(env: Mapping[str, str]) -> Path:
    """Return the folder that Codex keeps its state in, for a process with this environment."""
    return Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else Path(env.get("HOME", "/")) / ".codex"


def _program(target: WakeTarget) -> str:
    """Return the very program that the session runs, or what its `codex` is."""
    try:
        program = psutil.Process(target.pid).exe() if target.pid > 1 else ""
    except (psutil.Error, OSError):
        program = ""
    if Path(program).name == "codex" and os.access(program, os.X_OK):
        return program
    found = shutil.which("codex", path=_environ(target.env).get("PATH"))
    if found is None:
        raise Unavailable("its program is not there any more")
    return found
