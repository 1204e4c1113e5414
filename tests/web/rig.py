"""A browser without a screen, and readers of the event stream: they send exactly what a test wants them to."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from tests.loss.rig import WAIT_SECONDS, Json, Served

NAVIGATION = {"Accept": "text/html,application/xhtml+xml", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Web:
    """The HTTP side of a daemon."""

    def __init__(self, daemon: Served) -> None:
        self.daemon = daemon
        self.address: str = daemon.facts["url"].removeprefix("http://")
        self.origin = f"http://{self.address}"
        self.token = (daemon.home / "token").read_text().strip()

    @property
    def bearer(self) -> dict[str, str]:
        """The header of a program."""
        return {"Authorization": f"Bearer {self.token}"}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Ask, with these headers and no others that matter; the body of a stream is not read."""
        with closing(http.client.HTTPConnection(self.address, timeout=WAIT_SECONDS)) as connection:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            # A stream that was opened by mistake has no end.
            is_endless = found.get("content-type", "").startswith("text/event-stream") and method != "HEAD"
            return Answer(answer.status, found, b"" if is_endless else answer.read())

    def link(self) -> str:
        """Return path and query of a new sign-in link."""
        parts = urlsplit(self.daemon.call("sign_in")["url"])
        assert parts.netloc == self.address
        return f"{parts.path}?{parts.query}"

    def signed_in(self) -> dict[str, str]:
        """Sign in; return the header with the cookie."""
        answer = self.ask("GET", self.link(), NAVIGATION)
        assert answer.status == 303, answer
        return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}

    def stream(self, query: str = "", headers: Mapping[str, str] | None = None) -> Stream:
        """Open the event stream as a program."""
        return Stream(self.address, f"/events{query}", {**self.bearer, **(headers or {})})


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One server-sent event. `id` is the last one given, as a browser keeps it."""

    name: str
    data: Any
    id: str


class Stream:
    """A reader of the event stream."""

    def __init__(self, address: str, path: str, headers: Mapping[str, str], receive_bytes: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.socket()
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(WAIT_SECONDS)
        self.sock.connect((host, int(port)))
        lines = [f"GET {path} HTTP/1.1", f"Host: {address}", *(f"{name}: {value}" for name, value in headers.items())]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode())
        self._answer = http.client.HTTPResponse(self.sock)
        self.last_id = ""

    def begin(self) -> Self:
        """Read the head of the answer and the place the stream begins at."""
        self._answer.begin()
        assert self._answer.status == 200, self._answer.read()
        assert (self._answer.getheader("content-type") or "").startswith("text/event-stream")
        retry, place, end = self.line(), self.line(), self.line()
        assert (retry, place[:4], end) == ("retry: 1000", "id: ", "")
        self.last_id = place[4:]
        return self

    def next(self) -> SentEvent:
        """Return the next event; signs of life do not count."""
        end = time.monotonic() + WAIT_SECONDS
        for event in self:
            if event is not None:
                return event
            assert time.monotonic() < end, "no event came"
        raise AssertionError("the stream has ended")

    def take(self, count: int) -> list[SentEvent]:
        """Return the next events."""
        return [self.next() for _ in range(count)]

    def __iter__(self) -> Iterator[SentEvent | None]:
        """Yield events until the stream ends, and None for what is no event."""
        fields: dict[str, str] = {}
        while (line := self.line()) is not None:
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            self.last_id = fields.get("id", self.last_id)
            got, fields = fields, {}
            yield SentEvent(got["event"], json.loads(got["data"]), self.last_id) if "data" in got else None

    def rest(self) -> Iterator[SentEvent | None]:
        """Yield what is left of a stream that was cut off."""
        with suppress(http.client.HTTPException, ConnectionError):
            yield from self

    def is_ended(self) -> bool:
        """Whether the other side ends the stream, whatever it says before."""
        try:
            while self._answer.readline():
                pass
        except (http.client.HTTPException, ConnectionError):
            return True
        return True

    def close(self) -> None:
        """Hang up."""
        self._answer.close()
        self.sock.close()

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def line(self) -> Json:
        """Return the next line, or None at the end."""
        line = self._answer.readline()
        return line.decode().removesuffix("\n") if line else None
