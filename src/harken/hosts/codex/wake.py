"""Waking an idle Codex session: a turn in the app server that terminals share, or the thread's own queue.

The text arrives as if the user had typed it, so the caller hands over no outsider's words. A terminal that runs by
itself looks into its queue every few seconds; after Esc it does not, and a message that stayed there would come as a
surprise after the next prompt. So what is not taken in time is taken back, and the wake has failed.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import psutil

from harken.errors import Unavailable
from harken.hosts.base import WakeTarget
from harken.hosts.codex.appserver import AppServer, private_server, shared_server

TAKE_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.5
_SLACK_SECONDS: Final = 10.0
_ENVIRON: Final = ("HOME", "PATH", "CODEX_HOME", "LANG", "USER")

_log = logging.getLogger("harken.hosts.codex")


class CodexWaker:
    """Starts a turn in a session that is idle."""

    def __init__(self, *, take_seconds: float = TAKE_SECONDS) -> None:
        self._take_seconds = take_seconds

    async def wake(self, target: WakeTarget, text: str) -> bool:
        """Hand a text to a thread; return whether it was taken. Never raises, and may take as long as a thread may."""
        try:
            with anyio.fail_after(self._take_seconds + _SLACK_SECONDS):
                if not await _started(target, text):
                    await self._queued(target, text)
        except (Unavailable, TimeoutError) as exc:
            _log.info("the Codex thread %s was not woken: %s", target.native, str(exc) or "it took too long")
            return False
        return True

    async def _queued(self, target: WakeTarget, text: str) -> None:
        """Put a text into the queue of a thread, and wait until it is taken from there."""
        params = {"threadId": target.native, "clientUserMessageId": str(uuid.uuid4()), "input": _input(text)}
        async with private_server(_program(target), cwd="/", env=_environ(target.env)) as server:
            queued = (await server.call("thread/queue/add", params)).get("queuedSubmission")
            entry = str(queued.get("id")) if isinstance(queued, dict) else ""
            is_taken = False
            try:
                with anyio.move_on_after(self._take_seconds):
                    while not is_taken:
                        await anyio.sleep(_LOOK_SECONDS)
                        is_taken = not await _is_queued(server, target.native, entry)
            finally:
                if not is_taken:
                    with anyio.CancelScope(shield=True):
                        is_taken = await _taken_meanwhile(server, target.native, entry)
            if not is_taken:
                raise Unavailable("its queue is not read: it was interrupted, or no terminal shows it")


async def _started(target: WakeTarget, text: str) -> bool:
    """Start a turn where terminals share an app server; return whether this thread lives there."""
    async with shared_server(_home(target.env)) as server:
        if server is None:
            return False
        try:
            status = _status(await server.call("thread/read", {"threadId": target.native}))
        except Unavailable:
            return False
        if status == "active":
            raise Unavailable("it is at work: its hooks carry what waits")
        if status != "idle":
            return False
        await server.call("turn/start", {"threadId": target.native, "input": _input(text)})
        return True


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


def _status(answer: Mapping[str, object]) -> str:
    thread = answer.get("thread")
    status = thread.get("status") if isinstance(thread, dict) else None
    return str(status.get("type", "")) if isinstance(status, dict) else ""


def _environ(env: Mapping[str, str]) -> dict[str, str]:
    """Return what the program needs to find the same home as the session; nothing else of either environment."""
    whole = {**os.environ, **env}
    return {name: whole[name] for name in _ENVIRON if whole.get(name)}


def _home(env: Mapping[str, str]) -> Path:
    known = _environ(env)
    return Path(known["CODEX_HOME"]) if "CODEX_HOME" in known else Path(known.get("HOME", "/")) / ".codex"


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
