"""Clients that go away in the middle of something leave nothing behind: no session, no lease, no stuck connection."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

import pytest

from harken.testing import DaemonProcess
from tests.mcp.rig import Connect, fresh_name, ids, send, sessions, until, until_waiting

BLOCKED_SECONDS = 0.5
ROUNDS = 100
"""Of a hundred lines each: twice what blocked a daemon that nobody reads from."""


def lines(*messages: dict[str, object]) -> bytes:
    """Return messages as they go over the wire."""
    return b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)


@pytest.mark.parametrize("flood", [b"nonsense\n", lines({"id": 9, "method": "ping"})], ids=["malformed", "requests"])
def test_a_client_that_never_reads_and_goes_leaves_no_session(daemon: DaemonProcess, flood: bytes) -> None:
    """Its answers fill every buffer on the way, so everyone who has one to hand over is waiting when it goes."""
    name = fresh_name("flood")
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(daemon.socket)
        client.sendall(json.dumps({"harken": 1, "kind": "mcp", "edge": name}).encode() + b"\n")
        client.sendall(lines({"id": 1, "method": "initialize", "params": info}))
        client.sendall(lines({"method": "notifications/initialized"}, {"id": 2, "method": "tools/list", "params": {}}))
        until(lambda: len(sessions(daemon, name)) == 1)
        client.settimeout(BLOCKED_SECONDS)
        with suppress(TimeoutError):
            for _ in range(ROUNDS):
                client.sendall(flood * 100)
    until(lambda: not sessions(daemon, name))


def test_a_client_that_is_killed_while_it_waits_takes_nothing_with_it(daemon: DaemonProcess, connect: Connect) -> None:
    """A host that crashes does not say goodbye; what arrives afterwards is for its next session, and new to it."""
    agent = connect(name := fresh_name())
    agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name)
    agent.kill()
    until(lambda: not sessions(daemon, name))
    message = send(daemon)

    given = connect(name, is_drained=False).tool("inbox_pull")["messages"]
    assert ids(given) == [message]
    assert "repeat" not in given[0]
