"""A daemon that notes each address that it binds, connects or sends to, or looks up; started by path.

It runs on the event loop of the standard library: the other one opens its sockets where Python does not see it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from harken.config.home import ensure, find_home, single_instance
from harken.config.load import load
from harken.daemon.compose import serve

SOCKET_EVENTS = ("socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg")
NAME_EVENTS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


def main(folder: str, notes: str) -> None:
    """Be the daemon of a home until it is ended."""
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in SOCKET_EVENTS + NAME_EVENTS:
            address = arguments[1 if event in SOCKET_EVENTS else 0]
            host = address[0] if isinstance(address, tuple) else f"unix:{address!r}"
            os.write(descriptor, f"{event} {host}\n".encode())

    sys.addaudithook(note)
    home = find_home(folder, {})
    ensure(home)
    with single_instance(home.lock_file):
        asyncio.run(serve(home, load(home, {}, {}).settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
