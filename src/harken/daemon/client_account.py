"""Which account of this machine is at the other end of a loopback connection, where the system tells it.

A loopback port is open to every account. Linux says whose the client's socket is (`sock_diag`, one question of some
microseconds; `/proc/net/tcp` says the same and takes milliseconds). Elsewhere nobody knows, and what a request carries
must do. Above is `compose.py`, which hands it to the guard of HTTP; `peers.py` is the same for unix sockets.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Scope

NOBODY: Final = -1  # no open socket there, so nobody who could be asked
ROOT: Final = 0  # can read our token anyway
ANSWER_SECONDS: Final = 1.0

CONNECTION: Final = "harken.connection"
"""Names what is noted of a connection, in the extensions of a request's scope: it is asked once for each."""

_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_IS_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF
_ANSWER_BYTES: Final = 4096
_HEADER: Final = struct.Struct("=IHHII")
_ASKED: Final = struct.Struct("=BBBBI")
_PORTS: Final = struct.Struct("!HH")
_PLACE: Final = struct.Struct("=III")
_TOLD: Final = struct.Struct("=4B48xIIIII")  # state is the second, the owner the last but one, the inode the last

Place = tuple[str, int]


def account_check() -> Callable[[Scope], bool] | None:
    """Return what tells whether a request comes from our own account, or None where the system does not tell."""
    return _is_ours if _is_told() else None


def _is_ours(scope: Scope) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return False
    noted: dict[str, Any] = scope.get("extensions", {}).get(CONNECTION, {})
    try:
        if "account" not in noted:
            noted["account"] = client_account((client[0], client[1]), (server[0], server[1]))
    except OSError:
        return False  # it was told when we began: taken for ours now, a stranger would only have to wear us out
    return noted["account"] in (os.geteuid(), ROOT)


def client_account(client: Place, server: Place) -> int:
    """Return the account whose socket is at the client's end of a connection; raises `OSError` when nobody tells."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    packed = [socket.inet_pton(family, place[0]).ljust(16, b"\0") for place in (client, server)]
    wanted = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + _PORTS.pack(client[1], server[1])
    wanted += b"".join(packed) + _PLACE.pack(0, _NO_COOKIE, _NO_COOKIE)
    # Absent elsewhere, and asked for on Linux only.
    netlink: int = getattr(socket, "AF_NETLINK", 0)
    with socket.socket(netlink, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(ANSWER_SECONDS)
        asked.send(_HEADER.pack(_HEADER.size + len(wanted), _BY_FAMILY, _IS_REQUEST, 1, 0) + wanted)
        answer = asked.recv(_ANSWER_BYTES)
    _size, kind, *_rest = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY:
        return NOBODY
    *_others, owner, inode = _TOLD.unpack_from(answer, _HEADER.size)
    # One that was closed is told as root's.
    return int(owner) if inode else NOBODY


def _is_told() -> bool:
    """Whether the system tells it, tried on a connection of our own."""
    if sys.platform != "linux":
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.create_connection(listening.getsockname(), ANSWER_SECONDS) as client,
        ):
            return client_account(client.getsockname(), listening.getsockname()) == os.geteuid()
    except OSError:
        return False
