"""Clients of the handshake era get the same answers from Harken's own server as from the official SDK's.

The SDK is the oracle: it serves the same methods of the same daemon, line by line. Where it says of wrong params only
that they are wrong, Harken says what is wrong with them; the numbers of the errors are the same.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import pytest
from anyio.abc import SocketStream, TaskGroup
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from harken.daemon.compose import Daemon
from harken.hosts.hook import Hello
from harken.processes import LocalOrigin
from harken.sessions.proof import CallLog
from harken.surfaces.mcp.sdk import SocketServer
from harken.surfaces.mcp.server import AgentServer, Outlet
from harken.surfaces.mcp.services import HANDSHAKE_VERSIONS
from harken.surfaces.wire import LineReader
from tests.mcp.asking_rig import SOON, Room, open_room
from tests.mcp.rig import Json

INITIALIZED: Final = {"method": "notifications/initialized"}
META: Final = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
IN_OTHER_WORDS: Final = (-32600, -32602)

Serve: TypeAlias = Callable[[Daemon, SocketStream, LineReader], Coroutine[Any, Any, None]]


def hello(version: str = "2025-11-25", name: str = "editor", **more: object) -> dict[str, object]:
    """Return the greeting of a client."""
    info = {"name": name, "version": "1"}
    return {
        "id": "hello",
        "method": "initialize",
        "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": info, **more},
    }


def asks(method: str, *params: object) -> dict[str, object]:
    """Return a request; without params when none are given."""
    return {"id": 1, "method": method, **({"params": params[0]} if params else {})}


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """The parts of a daemon."""
    async with open_room(tmp_path / "home") as opened:
        yield opened


class _Hears:
    """What a session of the SDK's server could push to: nothing is pushed here."""

    def push(self, note: object) -> None:
        """Let it be."""
        del note

    def notify(self, method: str, params: object) -> bool:
        """Say that it was not sent."""
        del method, params
        return False

    def settle(self, turn: str = "") -> Sequence[Any]:
        """Nothing was carried."""
        del turn
        return ()

    def abandon(self, but_of: str = "") -> Sequence[str]:
        """Nothing was carried."""
        del but_of
        return ()


async def serve_with_sdk(daemon: Daemon, stream: SocketStream, lines: LineReader) -> None:
    """Serve a client with the SDK's server, whatever its era."""

    def ignore(_: object) -> None:
        return

    calls = CallLog("sdk")
    agent = AgentServer(
        hello=Hello(edge="sdk"), means=daemon.agent_services(), calls=calls, pusher=_Hears(), greeted=ignore
    )
    outlet = Outlet(stream, calls.answer, ignore)
    server = SocketServer(agent, outlet)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outlet.run)
            tasks.start_soon(server.serve)
            while (line := await lines.read()) is not None and await server.take(line):
                pass
            tasks.cancel_scope.cancel()
    finally:
        outlet.close()
        with anyio.CancelScope(shield=True):
            await agent.leave()


async def serve_ourselves(daemon: Daemon, stream: SocketStream, lines: LineReader) -> None:
    """Serve a client as the daemon does."""
    await daemon.serve_mcp(stream, lines, Hello(edge="own", ppid=4_000_001, cwd="/"), LocalOrigin())


@asynccontextmanager
async def connected(serve: Serve, daemon: Daemon, tasks: TaskGroup) -> AsyncIterator[tuple[SocketStream, LineReader]]:
    """A client's end of a connection."""
    ours, theirs = [await SocketStream.from_socket(each) for each in socket.socketpair()]
    async with ours, theirs:
        tasks.start_soon(serve, daemon, theirs, LineReader(theirs))
        yield ours, LineReader(ours)


async def played(serve: Serve, room: Room, messages: Sequence[Json]) -> list[Json]:
    """Return what is answered to some messages, one after the other; what needs no answer is followed by a ping."""
    answers: list[Json] = []
    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks, connected(serve, room.daemon, tasks) as (stream, lines):
            for each in messages:
                await stream.send(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
                if "id" not in each or "method" not in each:
                    await stream.send(b'{"jsonrpc":"2.0","id":"ping","method":"ping"}\n')
                answers.append(json.loads(await lines.read() or b""))
            tasks.cancel_scope.cancel()
    return answers


def comparable(answer: Json) -> Json:
    """Return an answer without what only Harken says, and what the SDK was not told of."""
    if (code := answer.get("error", {}).get("code")) in IN_OTHER_WORDS:
        return {**answer, "error": {"code": code}}
    if "capabilities" in answer.get("result", {}):
        answer["result"]["capabilities"].pop("experimental", None)
    return answer


async def same(room: Room, *messages: Json) -> list[Json]:
    """Return the answers, which are the same from both."""
    own = [comparable(each) for each in await played(serve_ourselves, room, messages)]
    sdk = [comparable(each) for each in await played(serve_with_sdk, room, messages)]
    assert own == sdk
    return own


def test_the_eras_begin_and_end_where_they_do_for_the_sdk() -> None:
    """A version that both know must be of one era for both."""
    assert tuple(HANDSHAKE_PROTOCOL_VERSIONS) == HANDSHAKE_VERSIONS


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2026-07-28", "1999-01-01", ""])
async def test_every_version_gets_the_same_greeting_and_lists(room: Room, version: str) -> None:
    """A client that asks for what nobody knows is offered the newest version that begins with a handshake."""
    answers = await same(
        room,
        hello(version),
        INITIALIZED,
        *map(asks, ("tools/list", "resources/list", "prompts/list", "resources/templates/list", "events/list")),
    )
    known = version in HANDSHAKE_VERSIONS
    assert answers[0]["result"]["protocolVersion"] == (version if known else HANDSHAKE_VERSIONS[-1])


@pytest.mark.parametrize("client", ["claude-code", "codex-mcp-client", "gemini-cli-mcp-client", "opencode", ""])
async def test_every_host_gets_the_same(room: Room, client: str) -> None:
    """Instructions, tools and prompts depend on who asks."""
    await same(room, hello(name=client), INITIALIZED, asks("tools/list"), asks("prompts/list"))


@pytest.mark.parametrize(
    "message",
    [
        asks("ping"),
        asks("ping", {}),
        asks("ping", {"_meta": 5}),
        asks("ping", {"_meta": None}),
        asks("ping", {"_meta": {"progressToken": []}}),
        asks("ping", {"_meta": {"progressToken": "p", "other": 1}}),
        asks("no/such"),
        asks("server/discover"),
        asks("subscriptions/listen", {}),
        asks("sampling/createMessage", {}),
        asks("initialize"),
        asks("initialize", {}),
        asks("tools/list", {"cursor": 5}),
        asks("tools/list", {"cursor": "x"}),
        asks("tools/list", {"_meta": META}),
        asks("tools/call"),
        asks("tools/call", {"name": 7}),
        asks("tools/call", {"name": "nope"}),
        asks("tools/call", {"name": "inbound_queue_stats"}),
        asks("tools/call", {"name": "inbound_queue_stats", "arguments": None}),
        asks("tools/call", {"name": "inbound_queue_stats", "arguments": []}),
        asks("tools/call", {"name": "inbound_queue_stats", "arguments": {"no": 1}}),
        asks("tools/call", {"name": "inbound_queue_stats", "task": 5}),
        asks("prompts/get", {}),
        asks("prompts/get", {"name": "nope"}),
        asks("prompts/get", {"name": "inbox"}),
        asks("prompts/get", {"name": "channel", "arguments": {"name": "ci"}}),
        asks("prompts/get", {"name": "channel", "arguments": {"name": 5}}),
        asks("resources/read", {"uri": "harken://inbox"}),
        asks("resources/read", {"uri": "file:///etc/passwd"}),
        asks("resources/read", {"uri": 5}),
        asks("resources/subscribe", {"uri": "harken://inbox"}),
        asks("resources/subscribe", {}),
        asks("resources/unsubscribe", {"uri": "harken://inbox"}),
        asks("logging/setLevel", {"level": "error"}),
        asks("logging/setLevel", {"level": "ERROR"}),
        asks("events/poll", {}),
        asks("events/poll", {"name": "nope"}),
        asks("events/poll", {"name": "message.received", "_meta": 5}),
        asks("events/subscribe", {"name": "message.received"}),
        {"id": "", "method": "ping"},
        {"id": "7", "method": "ping"},
        {"id": -7, "method": "ping"},
        {"id": 10**30, "method": "ping"},
        {"id": 5, "method": "ping", "more": 1},
        {"id": 5, "method": "ping", "params": None},
        {"id": 99, "result": {}},
        {"id": 99, "error": {"code": 1, "message": "no"}},
        {"method": "notifications/no-such"},
        {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        {"method": "notifications/cancelled", "params": {"requestId": [1]}},
    ],
    ids=lambda message: json.dumps(message)[:60],
)
async def test_every_message_is_answered_the_same(room: Room, message: Json) -> None:
    """Also what makes no sense: a client tells its own mistakes by the numbers."""
    await same(room, hello(), INITIALIZED, message, asks("ping"))


@pytest.mark.parametrize(
    "first", [asks("tools/list"), asks("tools/call", {"name": "ack"}), asks("no/such"), INITIALIZED]
)
async def test_what_comes_before_the_greeting_is_answered_the_same(room: Room, first: Json) -> None:
    """Some clients say that they are initialised without having asked to be."""
    await same(room, asks("ping"), first, asks("resources/templates/list"), hello(), asks("tools/list"))


@pytest.mark.parametrize(
    "capabilities",
    [
        {"elicitation": {}},
        {"elicitation": 5},
        {"elicitation": {"form": 5}},
        {"extensions": {"x": {}}},
        {"roots": 5},
        None,
    ],
)
async def test_capabilities_are_checked_the_same(room: Room, capabilities: object) -> None:
    """A client that names what it can do in another form than the protocol's would be taken for another."""
    await same(room, hello(capabilities=capabilities), asks("ping"))


@pytest.mark.parametrize("named", [8, "8"], ids=["by its number", "by its number as text"])
async def test_cancelled_request_gets_no_answer(room: Room, named: object) -> None:
    """The protocol forbids one, and the next answer must not be taken for it."""
    waits = {"name": "wait_for_inbound_message", "arguments": {"timeout_s": 40}}
    begun, given_up = {"id": 8, "method": "tools/call", "params": waits}, {"requestId": named}
    frames: list[Json] = [
        hello(),
        begun,
        {"method": "notifications/cancelled", "params": given_up},
        {"id": 9, "method": "ping"},
    ]
    for serve in (serve_ourselves, serve_with_sdk):
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as tasks, connected(serve, room.daemon, tasks) as (stream, lines):
                await stream.send(b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in frames))
                heard = [json.loads(await lines.read() or b"")["id"] for _ in range(2)]
                tasks.cancel_scope.cancel()
        assert heard == ["hello", 9]
