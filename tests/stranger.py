"""A program of another account, started by path: it asks, listens and reads as that account, and says what came of it.

It is started by root, imports all it needs, and then is the account for good. Each line of its input is an order, each
line of its output the answer. It has nothing of Harken: it is what anybody on the machine could write.
"""

from __future__ import annotations

import http.client
import json
import os
import pwd
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

SECONDS: Final = 10
HELLO: Final = b'{"harken":1,"kind":"call"}\n{"id":1,"method":"list","params":{}}\n'

Json: TypeAlias = Any
"""Whatever the order says."""


class Stranger:
    """What the account does."""

    def __init__(self) -> None:
        self._server: ThreadingHTTPServer | None = None
        self._caught: list[Json] = []

    def ask(self, order: Json) -> Json:
        """Send a request over HTTP; return the status, and the first of what came."""
        with closing(http.client.HTTPConnection(order["address"], timeout=SECONDS)) as there:
            there.request(order["method"], order["path"], order["body"] or None, order["headers"])
            answer = there.getresponse()
            return {"status": answer.status, "body": answer.read(1000).decode(errors="replace")}

    def hurry(self, order: Json) -> Json:
        """Send a request and close this end before anybody could look at it."""
        host, _, port = order["address"].partition(":")
        lines = [f"{order['method']} {order['path']} HTTP/1.1", f"Host: {order['address']}"]
        lines += [f"{name}: {value}" for name, value in order["headers"].items()]
        body = order["body"]
        with socket.create_connection((host, int(port)), SECONDS) as sock:
            sock.sendall("\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode())
        return {}

    def dial(self, order: Json) -> Json:
        """Ask over a unix socket for the messages."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(SECONDS)
            sock.connect(order["path"])
            with suppress(BrokenPipeError):
                sock.sendall(HELLO)
            return {"answer": sock.makefile().readline()}

    def read(self, order: Json) -> Json:
        """Read a file, or the names in a folder."""
        path = Path(order["path"])
        return {"found": len(list(path.iterdir()) if path.is_dir() else path.read_bytes())}

    def write(self, order: Json) -> Json:
        """Add something to a file, or a file to a folder."""
        path = Path(order["path"])
        with (path / "planted" if path.is_dir() else path).open("ab") as file:
            file.write(b"x")
        return {"written": True}

    def listen(self, order: Json) -> Json:
        """Serve a port: answer everything with the same, and keep what was sent."""
        status, said, caught = order["status"], order["answer"].encode(), self._caught

        def take(self: BaseHTTPRequestHandler) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode("latin-1")
            headers = {name.lower(): value for name, value in self.headers.items()}
            caught.append({"method": self.command, "path": self.path, "headers": headers, "body": body})
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        quiet = {"log_message": lambda _self, *_words: None}
        handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": take, "do_POST": take, **quiet})
        self._server = ThreadingHTTPServer(("127.0.0.1", order["port"]), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return {"port": self._server.server_port}

    def caught(self, _order: Json) -> Json:
        """Return what was sent to the port so far."""
        return {"caught": self._caught}

    def leave(self, _order: Json) -> Json:
        """Give the port up."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None
        return {}


def become(name: str) -> None:
    """Be another account, for good."""
    entry = pwd.getpwnam(name)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.chdir("/")


def main() -> None:
    """Do what each line says, until there are no more."""
    import_module("encodings.idna")  # what the libraries import by themselves, later: by then nothing can be read
    become(sys.argv[1])
    stranger = Stranger()
    deeds: Mapping[str, Callable[[Json], Json]] = {
        deed.__name__: deed
        for deed in (
            *(stranger.ask, stranger.hurry, stranger.dial, stranger.read, stranger.write),
            *(stranger.listen, stranger.caught, stranger.leave),
        )
    }
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = deeds[order["do"]](order)
        except OSError as exc:
            answer = {"error": type(exc).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
