"""An editor's agent, which has an inbox beside the editor: the verb `acp`. What passes through is `acp/proxy.py`'s.

It starts the agent below a reaper, in the editor's folder and with its environment, and ends with it. The daemon is
looked for as long as it runs, and started if there is none; the editor never waits for it, and learns on standard
error why the inbox is not there. Standard output is the editor's alone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketStream

from harken.acp.connection import HUNG_UP, decoded
from harken.acp.protocol import McpServer, fields, text
from harken.acp.proxy import AcpProxy
from harken.config.home import Home
from harken.control.client import PROTOCOL, NoDaemon, dial
from harken.control.start import start
from harken.errors import HarkenError, UserError
from harken.hosts.connect.command import SERVER, mcp_command
from harken.hosts.connect.plan import local_place
from harken.hosts.host import host_of_program
from harken.hosts.registry import acp_command, host_marks, host_words
from harken.hosts.registry import host_name as named_host
from harken.runs.process import started
from harken.runs.sandbox import SandboxCommand

CHUNK_BYTES: Final = 1 << 16
WRITE_BYTES: Final = 4_096  # what a pipe takes at once when it takes anything
END_SECONDS: Final = 10.0  # for an agent whose editor has hung up
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0
ENDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve(home: Home, command: tuple[str, ...]) -> int:
    """Be an editor's agent until the editor or the agent ends; return the agent's exit code."""
    if sys.platform == "win32":
        raise UserError("Editors are not served on this system.", "Use Linux or macOS.")
    name, argv = _agent_of(command)
    return anyio.run(_serve, home, name, SandboxCommand(argv=argv, env=dict(os.environ)))


def _agent_of(command: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return what an agent is called, and the command that starts it."""
    if len(command) == 1 and command[0] in host_words():
        name = named_host(command[0])
        return name, acp_command(name, os.environ)
    program = Path(command[0]).name
    return host_of_program(command, host_marks()) or program, command


async def _serve(home: Home, name: str, command: SandboxCommand) -> int:
    """Run an agent for the editor at our standard streams; return its exit code."""
    server_command, *arguments = mcp_command(local_place(home.path))
    server = McpServer(name=SERVER, command=server_command, args=tuple(arguments))
    code = 0
    async with started(command, Path.cwd()) as child, anyio.create_task_group() as tasks:
        proxy = AcpProxy(
            (_StandardInput(), _StandardOutput()), (child.incoming, child.outgoing), server=server, pid=child.pid
        )

        async def run() -> None:
            nonlocal code
            async with anyio.create_task_group() as passing:
                passing.start_soon(_end_with_editor, proxy, passing.cancel_scope)
                await proxy.run()
                passing.cancel_scope.cancel()
            with anyio.move_on_after(END_SECONDS):
                await over.wait()
            tasks.cancel_scope.cancel()

        async def see_through() -> None:
            nonlocal code
            code = await child.see_through(_complain)
            over.set()

        over = anyio.Event()
        tasks.start_soon(_end_when_told, tasks.cancel_scope)
        tasks.start_soon(see_through)
        tasks.start_soon(_attend, proxy, home, name)
        tasks.start_soon(run)
    return code


async def _end_with_editor(proxy: AcpProxy, scope: anyio.CancelScope) -> None:
    """An agent gets a while to end when its editor has hung up."""
    await proxy.editor_left.wait()
    await anyio.sleep(END_SECONDS)
    scope.cancel()


async def _end_when_told(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*ENDED) as signals:
        async for _ in signals:
            scope.cancel()


def _complain(line: bytes) -> None:
    """Pass on what the agent says on standard error."""
    with suppress(OSError):
        os.write(2, line + b"\n")


# -- the daemon --------------------------------------------------------------------------------------------------


async def _attend(proxy: AcpProxy, home: Home, name: str) -> None:
    """Serve the daemon of a home whenever there is one."""
    wait, last = FIRST_WAIT, ""
    while True:
        problem = ""
        try:
            stream, token = await anyio.to_thread.run_sync(_dialled, home, abandon_on_cancel=True)
            async with await SocketStream.from_socket(stream) as link:
                await link.send(_hello(name, token))
                said = _DaemonWords(link)
                await proxy.attend(said, link)
                problem = said.refusal
        except NoDaemon as exc:
            problem = exc.message
            with suppress(HarkenError, OSError):
                await anyio.to_thread.run_sync(_start, home, abandon_on_cancel=True)
        except (*HUNG_UP, OSError, HarkenError) as exc:
            problem = exc.message if isinstance(exc, HarkenError) else str(exc)
        if problem and problem != last:
            _complain(f"harken: the inbox is not here: {problem}".encode())
        wait = min(wait * 2, LONGEST_WAIT) if problem else FIRST_WAIT
        last = problem
        await anyio.sleep(wait)


def _dialled(home: Home) -> tuple[socket.socket, str]:
    found, token = dial(home.path)
    return socket.socket(fileno=found.detach()), token


def _start(home: Home) -> None:
    """Start a daemon, unless you have stopped Harken."""
    if not home.down_file.exists():
        start(home)


def _hello(name: str, token: str) -> bytes:
    said = {"harken": PROTOCOL, "kind": "acp", "pid": os.getpid(), "cwd": str(Path.cwd()), "host": name}
    return json.dumps(said | ({"token": token} if token else {})).encode() + b"\n"


class _DaemonWords(ByteReceiveStream):
    """What a daemon says, and why it has refused us if it has."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream
        self._is_first = True
        self.refusal = ""

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """Return the next bytes."""
        found = await self._stream.receive(max_bytes)
        if self._is_first:
            self._is_first = False
            first: Mapping[str, object] = decoded(found.partition(b"\n")[0]) or {}
            self.refusal = text(fields(first, "error"), "message") if "harken" in first else ""
        return found

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


# -- the editor --------------------------------------------------------------------------------------------------


class _StandardInput(ByteReceiveStream):
    """What the editor says."""

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """Return the next bytes."""
        await anyio.wait_readable(0)
        if not (found := os.read(0, max_bytes)):
            raise anyio.EndOfStream
        return found

    async def aclose(self) -> None:
        """Leave it open: it is the process's."""


class _StandardOutput(ByteSendStream):
    """What the editor is told."""

    async def send(self, item: bytes) -> None:
        """Write all of it."""
        left = memoryview(item)
        while left:
            await anyio.wait_writable(1)
            left = left[os.write(1, left[:WRITE_BYTES]) :]

    async def aclose(self) -> None:
        """Leave it open: it is the process's."""
