"""Who of this machine is at the other end of a loopback connection, where the system tells it: account, and run.

A loopback port is open to every account, and to runs, which can read our token. Linux says whose the client's socket is
(`sock_diag`, one question of some microseconds; `/proc/net/tcp` says the same and takes milliseconds). Elsewhere nobody
knows, and what a request carries must do. Above is `compose.py`, which hands it to the guard of HTTP; `peers.py` is the
same for unix sockets.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from starlette.types import Scope

from harken.errors import Forbidden

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


class ClientSocket(NamedTuple):
    """The socket at the other end."""

    owner: int  # an account's number
    inode: int


_UNTOLD: Final = ClientSocket(NOBODY, 0)


def client_check(
    is_of_run: Callable[[int], bool | None], *, any_account: bool = False
) -> Callable[[Scope], Forbidden | None]:
    """Return what says why a request is not for us to answer: it is another account's, unless any may ask, or a run's.

    `is_of_run` tells it of the inode of a socket, None while there is no run. Where the system does not tell whose a
    socket is, nothing is refused.
    """
    if not is_told():
        return lambda _scope: None

    def check(scope: Scope) -> Forbidden | None:
        noted: dict[str, Any] = scope.get("extensions", {}).get(CONNECTION, {})
        try:
            asking = noted.get("client") or noted.setdefault("client", _asking(scope))
        except OSError:
            asking = _UNTOLD  # it was told when we began: taken for ours now, a stranger would only have to wear us out
        if not any_account and asking.owner not in (os.geteuid(), ROOT):
            return Forbidden("This daemon belongs to another user.", "Each account has its own daemon: harken up")
        if noted.get("is_of_run") is None:
            try:
                noted["is_of_run"] = is_of_run(asking.inode)
            except OSError:
                return Forbidden("Nobody can tell who is asking.", "Close some agents, or try again.")
        if noted["is_of_run"]:
            return Forbidden("A run does not use HTTP.", "What it is about stands in its prompt.")
        return None

    return check


def _asking(scope: Scope) -> ClientSocket:
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return _UNTOLD
    return client_socket((client[0], client[1]), (server[0], server[1]))


def client_socket(client: Place, server: Place) -> ClientSocket:
    """Return the socket at the client's end of a connection; raises `OSError` when nobody tells."""
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
        return _UNTOLD
    *_others, owner, inode = _TOLD.unpack_from(answer, _HEADER.size)
    # One that was closed is told as root's.
    return ClientSocket(owner, inode) if inode else _UNTOLD


def is_told() -> bool:
    """Whether the system tells whose a connection is, tried on one of our own."""
    if sys.platform != "linux":
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            socket.create_connection(listening.getsockname(), ANSWER_SECONDS) as client,
        ):
            return client_socket(client.getsockname(), listening.getsockname()).owner == os.geteuid()
    except OSError:
        return False
