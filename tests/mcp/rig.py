"""What the tests of the MCP surface share: agents that start with an empty inbox, and a look into the ledger.

The daemon of the folder is shared, so every test uses names of its own. This module tests nothing.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self, TypeAlias

from harken.testing import DaemonProcess, EdgeClient
from tests.loss import rig as waiting

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""

SOON: Final = 15.0
"""Seconds that anything may take which does not wait for something else."""

TOOLS: Final = (
    "inbox_pull",
    "inbox_read",
    "wait_for_inbound_message",
    "inbound_queue_stats",
    "ack",
    "reply",
    "inbox_search",
    "channels",
    "check_inbox",
    "send_to_task",
    "inbox_status",
    "send_to_peer",
)


class Connect(Protocol):
    """Starts an edge and does the handshake."""

    def __call__(
        self,
        name: str = "",
        *,
        environment: Mapping[str, str] | None = None,
        has_own_host: bool = False,
        is_drained: bool = True,
    ) -> EdgeClient:
        """Return the agent, its inbox empty; with `has_own_host` its edge has a parent process of its own."""
        ...


class RawEdge:
    """A client on the daemon's socket that says of itself what the test wants."""

    def __init__(self, daemon: DaemonProcess, client: str, **hello: object) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(SOON)
        self._socket.connect(daemon.socket)
        self._file = self._socket.makefile("rwb")
        self._write({"harken": 1, "kind": "mcp", **hello})
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
        self._write({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": info})
        self._answer("hello")
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, request: object, tool: str, **arguments: object) -> None:
        """Call a tool under a JSON-RPC id, and leave the answer unread."""
        params = {"name": tool, "arguments": arguments}
        self._write({"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params})

    def tool(self, request: object, tool: str, **arguments: object) -> Json:
        """Call a tool under a JSON-RPC id; return the JSON of its first content block."""
        self.ask(request, tool, **arguments)
        return json.loads(self._answer(request)["result"]["content"][0]["text"])

    def drain(self) -> None:
        """Take what earlier tests left, and prove it."""
        request = 1_000
        while left := ids(self.tool(request, "inbox_pull", limit=100)["messages"]):
            self.tool(request + 1, "ack", ids=left)
            request += 2

    def _write(self, message: Mapping[str, object]) -> None:
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def _answer(self, request: object) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = json.loads(self._file.readline())
            if message.get("id") == request:
                return message


def fresh_name(prefix: str = "agent") -> str:
    """Return a clientInfo name that no other test uses."""
    return f"{prefix}-{secrets.token_hex(4)}"


def drain(agent: EdgeClient) -> None:
    """Take what earlier tests left, also what is too long to be taken, and prove it."""
    while left := ids(agent.tool("inbox_pull", limit=100)["messages"]):
        agent.tool("ack", ids=left)


def send(daemon: DaemonProcess, text: str = "the build is red", **more: object) -> str:
    """Put a message into the inbox; return its id."""
    sent = daemon.call("send", **{"text": text, "sender": "ci-bot", "channel": "ci", **more})
    return str(sent["id"])


def entry(daemon: DaemonProcess, message: str, consumer: str) -> dict[str, Any]:
    """Return one consumer's line in a message's ledger."""
    ledger = daemon.call("read", ref=message)["ledger"]
    found: list[dict[str, Any]] = [line for line in ledger if line["consumer"] == consumer]
    assert len(found) == 1
    return found[0]


def standing(daemon: DaemonProcess, message: str, consumer: str) -> tuple[str, str]:
    """Return state and evidence of a message for a consumer."""
    line = entry(daemon, message, consumer)
    return line["state"], line.get("evidence", "")


def sessions(daemon: DaemonProcess, consumer: str) -> list[dict[str, Any]]:
    """Return the live sessions of a consumer, the last active first."""
    return [each for each in daemon.call("status")["sessions"] if each["consumer"] == consumer]


def until(condition: Callable[[], bool]) -> None:
    """Ask again until something holds. Each question is a round trip to the daemon."""
    waiting.until(condition, "it has happened", SOON)


def until_waiting(daemon: DaemonProcess, consumer: str, count: int = 1) -> None:
    """Return when so many sessions of a consumer are in a long poll."""
    until(lambda: [each["presence"] for each in sessions(daemon, consumer)].count("waiting") == count)


def ids(messages: list[dict[str, Any]]) -> list[str]:
    """Return the ids of what a tool gave."""
    return [each.get("id") or each["message_id"] for each in messages]


def error_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON-RPC error of an answer."""
    error: dict[str, Any] = answer["error"]
    return error
