"""A small MCP client over stdio, as raw as it gets: lines out, lines in. It plays the agent in tests and the demo."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeAlias

ANSWER_SECONDS = 70.0

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""


class EdgeClient:
    """Starts an edge, says hello in the 2025 way, and calls tools. Blocking; one thing at a time or many in flight."""

    def __init__(
        self, command: Sequence[str], *, name: str = "test-agent", environment: dict[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.defpath, **(environment or {})}
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the edge was started without pipes")
        self._stdin, self._stdout = stdin, stdout
        self._out = self._stdout.fileno()
        self._buffer = b""
        self._next = 0
        self._name = name
        self._answers: dict[int, dict[str, Any]] = {}
        self.notifications: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self.handshake()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the edge."""
        return self._process.pid

    def handshake(self) -> dict[str, Any]:
        """Do the 2025 handshake; return what the server said."""
        info = {"name": self._name, "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        result: dict[str, Any] = self.request("initialize", params)["result"]
        self.notify("notifications/initialized", {})
        return result

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the whole answer to a request."""
        return self.answer(self.ask(method, params))

    def ask(self, method: str, params: dict[str, Any]) -> int:
        """Send a request and return its id."""
        self._next += 1
        self.send({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        return self._next

    def ask_tool(self, tool: str, **arguments: object) -> int:
        """Send a tool call and return its id."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def tool(self, name: str, **arguments: object) -> Json:
        """Return the JSON of a tool's first content block."""
        return self.result(self.ask_tool(name, **arguments))

    def result(self, request: int, seconds: float = ANSWER_SECONDS) -> Json:
        """Return the JSON of the first content block of an answer."""
        return json.loads(self.answer(request, seconds)["result"]["content"][0]["text"])

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: object) -> None:
        """Send one line of JSON."""
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._stdin.write(data)
        self._stdin.flush()

    def answer(self, request: int, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Return the answer to a request, keeping what arrives meanwhile."""
        end = time.monotonic() + seconds
        while request not in self._answers:
            self._keep(self.line(end - time.monotonic()))
        return self._answers.pop(request)

    def notification(self, method: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Return the next notification of a method."""
        end = time.monotonic() + seconds
        while True:
            for index, seen in enumerate(self.notifications):
                if seen["method"] == method:
                    return self.notifications.pop(index)
            self._keep(self.line(end - time.monotonic()))

    def line(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Return the next line."""
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._out], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the edge did not answer in time")
            data = os.read(self._out, 1 << 16)
            if not data:
                raise EOFError("the edge closed its output")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(text)
        return message

    def close(self) -> int:
        """Close its input, as a host does; return the exit code."""
        with suppress(BrokenPipeError):  # what it was killed before it took
            self._stdin.close()
        code = self._process.wait(10)
        self._stdout.close()
        return code

    def kill(self) -> None:
        """End the edge with SIGKILL."""
        self._process.kill()
        self._process.wait(10)

    def _keep(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.notifications.append(message)
        elif message.get("id") is not None:
            self._answers[message["id"]] = message
