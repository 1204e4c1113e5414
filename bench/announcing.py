"""An MCP server that announces much at once, as a program of its own.

`python -m bench.announcing COUNT` prints its port.
`/mcp` speaks Streamable HTTP and announces everything on its stream; `/bare` gives the same bytes and ends.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator

import anyio
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

CHUNK = 64


def announcements(count: int) -> list[bytes]:
    """Return the events, some at a time."""
    events = [
        b"id: %d\ndata: %s\n\n"
        % (
            number,
            msgspec.json.encode(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/ci",
                    "params": {"build": number, "state": "green", "log": "x" * 200},
                }
            ),
        )
        for number in range(count)
    ]
    return [b"".join(events[begin : begin + CHUNK]) for begin in range(0, count, CHUNK)]


def create(count: int) -> Starlette:
    """Return the server."""
    chunks = announcements(count)

    async def stream(*, is_open: bool) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        while is_open:
            await anyio.sleep(5)
            yield b": here\n\n"

    async def mcp(request: Request) -> Response:
        if request.method == "GET":
            return StreamingResponse(stream(is_open=True), media_type="text/event-stream")
        asked = msgspec.json.decode(await request.body())
        if "id" not in asked:
            return Response(status_code=202)
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "bench", "version": "1"}}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": info}
        return JSONResponse(answer, headers={"Mcp-Session-Id": "bench"})

    async def bare(_request: Request) -> Response:
        return StreamingResponse(stream(is_open=False), media_type="text/event-stream")

    return Starlette(routes=[Route("/mcp", mcp, methods=["GET", "POST", "DELETE"]), Route("/bare", bare)])


def main() -> None:
    """Serve on a free port until ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(create(int(sys.argv[1])), log_config=None, lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
