"""The reference for waking: each line of the first connection is written to every connection. A script.

`python -I -S relay.py SOCKET COUNT` prints `ready` when it listens and ends with the first connection.
"""

from __future__ import annotations

import socket
import sys


def main(path: str, count: int) -> None:
    """Accept, then relay until the first connection ends."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(count)
        print("ready", flush=True)
        streams = [listener.accept()[0] for _ in range(count)]
    while data := streams[0].recv(65_536):
        for stream in streams:
            stream.sendall(data)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
