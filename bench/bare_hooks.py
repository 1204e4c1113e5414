"""The reference for webhooks: a Starlette application that says ok, on the daemon's own server. A script.

`python bare_hooks.py FOLDER` prints its port when it listens, and ends on SIGTERM. With the same server and the same
kind of socket, what is left between the two is what a webhook does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from harken.daemon import http


async def _ok(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


async def _serve(folder: Path) -> None:
    server = http.make_server(Starlette(routes=[Route("/hooks/ci", _ok, methods=["POST"])]))
    sock = http.bind("127.0.0.1", 0, folder / "port", "port")
    print(sock.getsockname()[1], flush=True)
    await server.serve(sockets=[sock])


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
