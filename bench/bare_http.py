"""The reference for HTTP: a Starlette application that says ok, on an equal uvicorn. A script.

It prints its port when it listens, and ends on SIGTERM.
"""

from __future__ import annotations

import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def _ok(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


def main() -> None:
    """Serve on a free port of this machine."""
    app = Starlette(routes=[Route("/api/send", _ok, methods=["POST"])])
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
    )
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(512)
        print(sock.getsockname()[1], flush=True)
        uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
