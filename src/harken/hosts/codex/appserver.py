"""A small client of Codex's app server: a private one over stdio, or the one that terminals share, over its socket.

Only what connecting and waking need: one request at a time, each with a bound. It decides nothing. An error of the
other side becomes `Unavailable`; its notifications are passed over.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Final, Protocol

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from harken.errors import Unavailable

CALL_SECONDS: Final = 10.0
END_SECONDS: Final = 2.0
MAX_BYTES: Final = 16 << 20
# It would look for plugins on the network while it starts.
ARGUMENTS: Final = ("--disable", "plugins", "app-server")
_SOCKET: Final = Path("app-server-control", "app-server-control.sock")

HUNG_UP: Final = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Channel(Protocol):
    """A way to send and receive whole texts, each one JSON value."""

    async def send(self, text: str) -> None:
        """Send one text."""
        ...

    async def receive(self) -> str:
        """Return the next text."""
        ...


class Refusal(Unavailable):
    """The other side answered, and it was a no."""


class AppServer:
    """The other side, once it was greeted."""

    def __init__(self, channel: Channel, *, after: int = 0) -> None:
        self._channel = channel
        self._last = after  # the number of the last request

    async def call(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        """Ask one thing and return the result; raises `Unavailable` when it is refused or does not come."""
        self._last += 1
        try:
            with anyio.fail_after(CALL_SECONDS):
                await self._channel.send(json.dumps({"id": self._last, "method": method, "params": params}))
                while True:
                    answer = fields_of(await self._channel.receive())
                    if answer.get("id") == self._last and "method" not in answer:
                        break
        except (*HUNG_UP, OSError) as exc:
            raise Unavailable(f"Codex did not answer {method}.") from exc
        except anyio.DelimiterNotFound as exc:
            raise Unavailable(f"Codex's answer to {method} is too long.") from exc
        return result_of(method, answer)

    async def greet(self) -> None:
        """Say who asks: nothing else is answered before that. Raises `Unavailable` when it does not listen."""
        client = {"name": "harken", "title": "Harken", "version": "1"}
        await self.call("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        try:
            await self._channel.send('{"method":"initialized"}')
        except (*HUNG_UP, OSError) as exc:
            raise Unavailable("Codex closed the connection during the handshake.") from exc


@asynccontextmanager
async def private_server(program: str, *, cwd: str, env: Mapping[str, str]) -> AsyncIterator[AppServer]:
    """Start an app server of our own, which ends with the context."""
    try:
        process = await anyio.open_process(
            [program, *ARGUMENTS], stderr=DEVNULL, cwd=cwd, env=env, start_new_session=True
        )
    except OSError as exc:
        raise Unavailable(f"{program} cannot be started: {exc.strerror}.") from exc
    try:
        server = AppServer(_Pipe(process))
        await server.greet()
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await _ended(process)


@asynccontextmanager
async def shared_channel(home: Path) -> AsyncIterator[Channel | None]:
    """Reach the app server that the terminals of one Codex home share, and greet it; None when none listens."""
    try:
        # What stands in the home is a link, and the path of a socket has to be short.
        socket = (home / _SOCKET).resolve(strict=True)
        if socket.stat().st_uid != os.getuid():
            raise Unavailable(f"{socket} is not a socket of this user.")
        stream = await anyio.connect_unix(socket)
    except OSError:
        yield None
        return
    from harken.hosts.codex.websocket import WebSocket

    async with stream:
        channel = WebSocket(stream, max_bytes=MAX_BYTES)
        await channel.open(CALL_SECONDS)
        await AppServer(channel).greet()
        yield channel


@asynccontextmanager
async def shared_server(home: Path) -> AsyncIterator[AppServer | None]:
    """Reach the shared app server, to ask it one thing after the other; None when none listens."""
    async with shared_channel(home) as channel:
        yield None if channel is None else AppServer(channel, after=1)


class _Pipe:
    """One JSON value a line, over the pipes of a process."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise Unavailable("Codex was started without pipes.")
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def send(self, text: str) -> None:
        """Send one text."""
        await self._stdin.send(text.encode() + b"\n")

    async def receive(self) -> str:
        """Return the next text."""
        return (await self._lines.receive_until(b"\n", MAX_BYTES)).decode("utf-8", "replace")


async def _ended(process: Process) -> None:
    """See a process off: politely, then with everything that it started."""
    if process.stdin is not None:
        with suppress(OSError, anyio.BrokenResourceError):
            await process.stdin.aclose()
    with anyio.move_on_after(END_SECONDS):
        await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


def fields_of(text: str) -> Mapping[str, object]:
    """Return the object that a text is in JSON; empty for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def result_of(method: str, answer: Mapping[str, object]) -> Mapping[str, object]:
    """Return the result in an answer; raises `Refusal` for an error."""
    error = answer.get("error")
    if isinstance(error, dict):
        raise Refusal(f"Codex refused {method}: {str(error.get('message'))[:200]}.")
    result = answer.get("result")
    return result if isinstance(result, dict) else {}


def hooks_of(listing: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """Return the hooks in the answer to `hooks/list`."""
    entries = listing.get("data")
    found = [entry.get("hooks") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [hook for hooks in found if isinstance(hooks, list) for hook in hooks if isinstance(hook, dict)]
