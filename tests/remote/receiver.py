"""A receiver of webhooks for the tests: it answers challenges; the vendor's library judges signatures."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeAlias

from standardwebhooks import Webhook

from tests.loss.rig import WAIT_SECONDS, until

Json: TypeAlias = Any
SECRET: Final = f"whsec_{b64encode(bytes(range(32))).decode()}"
OTHER_SECRET: Final = f"whsec_{b64encode(bytes(range(1, 33))).decode()}"


@dataclass(frozen=True, slots=True)
class Posted:
    """One post, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Json:
        """Its JSON."""
        return json.loads(self.body)

    @property
    def id(self) -> str:
        """Its id, the same each time."""
        return self.headers["webhook-id"]

    @property
    def is_event(self) -> bool:
        """Whether it is about something that happened."""
        return "type" not in self.said

    def judge(self, secret: str = SECRET) -> None:
        """Raise unless the vendor's library takes it."""
        Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """What was posted, and how it is answered."""

    scheme: str = "http"
    port: int = 0
    posts: list[Posted] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # of the next events; then 204
    status: int = 204
    is_willing: bool = True
    verdict: bytes | None = None  # what is answered to a challenge instead
    location: str = ""
    held: Event | None = None  # an event is not answered before
    is_holding: Event = field(default_factory=Event)

    def url(self, path: str = "/hooks") -> str:
        """Its address."""
        return f"{self.scheme}://localhost:{self.port}{path}"

    def answer(self, posted: Posted) -> tuple[int, bytes]:
        """Return the status and the body for a post."""
        self.posts.append(posted)
        if self.location:
            return 302, b""
        if posted.said.get("type") == "verification":
            challenge = posted.said["challenge"] if self.is_willing else "another"
            return 200, json.dumps({"challenge": challenge}).encode() if self.verdict is None else self.verdict
        if self.held is not None:
            self.is_holding.set()
            self.held.wait(WAIT_SECONDS)
        return (self.statuses.pop(0) if self.statuses else self.status), b""

    @property
    def events(self) -> list[Posted]:
        """The posts about what happened."""
        return [each for each in self.posts if each.is_event]

    def of(self, kind: str) -> list[Posted]:
        """Return the posts of a kind that are about the subscription."""
        return [each for each in self.posts if each.said.get("type") == kind]

    def wait_for(self, *messages: str) -> list[Posted]:
        """Return all events, as soon as there is one about each message."""
        until(lambda: {*messages} <= {each.said["data"]["message_id"] for each in self.events}, "the events are posted")
        return self.events


@contextmanager
def receiving(certificate: Path | None = None) -> Iterator[Receiver]:
    """Receive until the block ends; with a certificate, by TLS."""
    receiver = Receiver("https" if certificate else "http")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, said = receiver.answer(Posted(self.path, headers, body))
            self.send_response(status)
            if receiver.location:
                self.send_header("location", receiver.location)
            self.send_header("content-length", str(len(said)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.held is not None:
            receiver.held.set()
        server.shutdown()
        server.server_close()
        thread.join(WAIT_SECONDS)
