"""A load generator of its own process: keep-alive connections that each ask, wait for the answer, and ask again.

`python -I load.py PORT CONNECTIONS SECONDS [STATUS] < REQUEST` sends the bytes of one HTTP request over and over, and
prints JSON: how many were answered with STATUS (200), in how many seconds, and the latencies. Where the request holds
`SLOT`, each one has a number of its own there. Raw sockets, so that both servers that are compared meet the same,
cheap client. A script.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import cast

import uvloop

LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
END = b"\r\n\r\n"
SLOT = b"@@@@@@@@@@@@@@@@@@@@"


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, until: float, numbers: Iterator[int], status: bytes) -> None:
        self._request = request.split(SLOT)
        self._until = until
        self._numbers = numbers
        self._good = b"HTTP/1.1 " + status
        self._buffer = b""
        self._asked_at = 0.0
        self._transport: asyncio.WriteTransport | None = None
        self.latencies: list[float] = []
        self.failure = ""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # A cast, because uvloop's transports only look like asyncio's.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Take an answer, whole or in parts."""
        self._buffer += data
        head = self._buffer.find(END)
        if head < 0:
            return
        length = LENGTH.search(self._buffer, 0, head + 2)
        if len(self._buffer) < head + len(END) + (int(length[1]) if length else 0):
            return
        now = time.perf_counter()
        self.latencies.append(now - self._asked_at)
        if not self._buffer.startswith(self._good):
            self._end(self._buffer[:300].decode("latin-1"))
        elif now >= self._until:
            self._end("")
        else:
            self._buffer = b""
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        self._end("" if self.done.done() else f"the connection was closed ({exc})")

    def _ask(self) -> None:
        if self._transport is not None:
            self._asked_at = time.perf_counter()
            number = b"%020d" % next(self._numbers) if len(self._request) > 1 else b""
            self._transport.write(number.join(self._request))

    def _end(self, failure: str) -> None:
        if not self.done.done():
            self.failure = failure
            self.done.set_result(None)
            if self._transport is not None:
                self._transport.close()


async def run(port: int, connections: int, seconds: float, request: bytes, status: bytes) -> dict[str, object]:
    """Load the server at a port of this machine; return what came back."""
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    numbers = itertools.count(time.time_ns())
    pairs = [
        await loop.create_connection(lambda: Client(request, began + seconds, numbers, status), "127.0.0.1", port)
        for _ in range(connections)
    ]
    clients = [client for _, client in pairs]
    await asyncio.gather(*(client.done for client in clients))
    took = time.perf_counter() - began
    latencies = sorted(latency for client in clients for latency in client.latencies)
    return {
        "answered": len(latencies),
        "seconds": took,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
        "failure": next((client.failure for client in clients if client.failure), ""),
    }


if __name__ == "__main__":
    PORT, CONNECTIONS, SECONDS = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    STATUS = sys.argv[4].encode() if len(sys.argv) > 4 else b"200"
    print(json.dumps(uvloop.run(run(PORT, CONNECTIONS, SECONDS, sys.stdin.buffer.read(), STATUS))))
