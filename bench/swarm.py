"""Hundreds of MCP sessions in one process, as raw as possible: real edges would measure the client instead.

Each session is a connection to the daemon's socket with an edge's hello line and the 2025 handshake.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

CHUNK: Final = 65_536
ANSWER_SECONDS: Final = 60.0
# How the SDK writes an answer; notifications have a method first.
ANSWER: Final = b'{"jsonrpc":"2.0","id":'


class Session:
    """One connection."""

    def __init__(self, path: str, number: int, consumer: str, cwd: str = "/") -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.connect(path)
        self._buffer = b""
        self._next = 0
        self.is_waiting = False
        self.answered_at = 0.0
        hello = {"harken": 1, "kind": "mcp", "edge": f"bench{number}", "cwd": cwd, "consumer": consumer}
        info = {"name": "bench", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self._send(hello, self._request("initialize", params), _message("notifications/initialized", {}))

    def wait(self, seconds: float) -> None:
        """Begin a long poll."""
        arguments = {"timeout_s": seconds}
        self.is_waiting = True
        self._send(self._request("tools/call", {"name": "wait_for_inbound_message", "arguments": arguments}))

    def answers(self) -> list[bytes]:
        """Return the answers that have arrived, without waiting."""
        data = self.socket.recv(CHUNK)
        if not data:
            raise ConnectionResetError("the daemon closed a connection")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found = [line for line in lines if line.startswith(ANSWER)]
        if found:
            self.is_waiting, self.answered_at = False, time.perf_counter()
        return found

    def _request(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        self._next += 1
        return {**_message(method, params), "id": self._next}

    def _send(self, *messages: Mapping[str, object]) -> None:
        self.socket.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))


def _message(method: str, params: Mapping[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


class Swarm:
    """Many sessions, read together."""

    def __init__(self, path: str, consumers: Sequence[str]) -> None:
        self._selector = selectors.DefaultSelector()
        self.sessions: list[Session] = []
        for consumer in consumers:
            self.add(path, consumer)

    def add(self, path: str, consumer: str, cwd: str = "/") -> None:
        """Let one more session come."""
        session = Session(path, len(self.sessions), consumer, cwd)
        self.sessions.append(session)
        self._selector.register(session.socket, selectors.EVENT_READ, session)
        self.gather(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._selector.close()
        for session in self.sessions:
            session.socket.close()

    def drain(self) -> None:
        """Take the answers that have arrived: of polls that ended without a message."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                key.data.answers()

    def gather(self, count: int) -> list[tuple[Session, bytes]]:
        """Return the next answers of all sessions, as soon as there are that many."""
        found: list[tuple[Session, bytes]] = []
        end = time.monotonic() + ANSWER_SECONDS
        while len(found) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(found)} of {count} sessions were answered")
            for key, _ in self._selector.select(1.0):
                session: Session = key.data
                found += [(session, line) for line in session.answers()]
        return found


def carried(line: bytes) -> list[dict[str, object]]:
    """Return the messages that an answer carries."""
    messages: list[dict[str, object]] = json.loads(json.loads(line)["result"]["content"][0]["text"])
    return messages
