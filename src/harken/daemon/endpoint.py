"""Where agents and the command line find the daemon: a unix socket, or a loopback port with a token.

The seam between systems with unix sockets and those without. Both speak the same protocol; the address file says
which it is, so nobody else needs to know.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream

from harken.config.home import Home, socket_path
from harken.store.files import FileKey, file_key

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A listening endpoint: its address line, and the token that a hello must carry (empty: none)."""

    listener: Listener[SocketStream]
    address: str
    token: str = ""
    files: tuple[Path, ...] = ()  # by which others find it


@asynccontextmanager
async def open_endpoint(home: Home, transport: str) -> AsyncIterator[Endpoint]:
    """Listen while the context is open. The caller holds the home's lock."""
    if transport == "tcp" or (transport == "auto" and sys.platform == "win32"):
        async with await anyio.create_tcp_listener(local_host=LOOPBACK) as listener:
            port = listener.extra(SocketAttribute.local_port)
            token = secrets.token_urlsafe(32)
            yield Endpoint(listener=listener, address=f"tcp:{LOOPBACK}:{port}:{token}", token=token)
        return
    path = anyio.Path(socket_path(home, os.environ))
    own: FileKey | None = None
    # We hold the lock, so a socket file that is here was left by a daemon that is gone.
    await path.unlink(missing_ok=True)
    try:
        async with await anyio.create_unix_listener(path, mode=0o600) as unix:
            own = file_key(Path(path))
            yield Endpoint(listener=unix, address=f"unix:{path}", files=(Path(path),))
    finally:
        with anyio.CancelScope(shield=True):
            if own is None or file_key(Path(path)) == own:  # else another daemon has made its own there
                await path.unlink(missing_ok=True)
