"""A browser without a screen, and readers of the event stream: they send exactly what a test wants them to.

What a page proves is computed here once more, with nothing of the daemon's own code.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import secrets
import socket
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from harken.testing import DaemonProcess
from tests.loss.rig import WAIT_SECONDS, Json

SESSION = "Harken-Session"
"""Stands for a session among a test's headers: the rig sends a proof in its place."""

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


def letters(data: bytes) -> str:
    """Return bytes as the page writes them."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def data_of(text: str) -> bytes:
    """Return the bytes of such letters."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def tag(key: bytes, *parts: str) -> str:
    """Return a keyed hash as the page makes it."""
    return letters(hmac.new(key, "\n".join(parts).encode(), hashlib.sha256).digest())


class Web:
    """The HTTP side of a daemon."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.address: str = daemon.facts["url"].removeprefix("http://")
        self.origin = f"http://{self.address}"
        self.token = (daemon.home / "token").read_text().strip()
        self.keys: dict[str, bytes] = {}  # of the sessions, by name
        self._ticket, self._number = "", 0

    @property
    def bearer(self) -> dict[str, str]:
        """The header of a program."""
        return {"Authorization": f"Bearer {self.token}"}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Ask, with these headers and no others that matter; the body of a stream is not read."""
        sent = dict(headers or {})
        if session := sent.pop(SESSION, ""):
            sent["Harken-Proof"] = self.proof(session, method, path, body or b"")
        with closing(self.connect()) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            status = answer.status
            if session and "hx-redirect" in found:  # the page's script goes there
                status, found["location"] = 303, found["hx-redirect"]
            # A stream that was opened by mistake has no end.
            is_endless = found.get("content-type", "").startswith("text/event-stream") and method != "HEAD"
            return Answer(status, found, b"" if is_endless else answer.read())

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection on which nothing was asked yet."""
        return http.client.HTTPConnection(self.address, timeout=WAIT_SECONDS)

    def link(self) -> str:
        """Return a new sign-in link."""
        return str(self.daemon.call("sign_in")["url"])

    def secret(self) -> bytes:
        """Return the secret of a new sign-in link."""
        parts = urlsplit(self.link())
        assert (parts.netloc, parts.path, parts.query) == (self.address, "/sign-in", "")
        return data_of(parts.fragment)

    def redeem(self, secret: bytes, nonce: str = "n", **changed: str) -> Answer:
        """Say what the page of a link says."""
        proof = tag(secret, "harken page 1", nonce, self.address)
        said = {"link": tag(secret, "harken link 1"), "nonce": nonce, "proof": proof, **changed}
        headers = {"Origin": self.origin, "Content-Type": "application/json"}
        return self.ask("POST", "/sign-in", headers, json.dumps(said).encode())

    def signed_in(self) -> dict[str, str]:
        """Sign in; return what stands for the session among the headers."""
        secret, nonce = self.secret(), secrets.token_hex(8)
        told = self.redeem(secret, nonce).json
        session, hidden = told["session"], told["key"]
        assert told["proof"] == tag(secret, "harken daemon 1", nonce, session, self.address, hidden)
        pad = data_of(tag(secret, "harken key 1", nonce, session, self.address))
        self.keys[session] = bytes(each ^ other for each, other in zip(data_of(hidden), pad, strict=True))
        return {SESSION: session}

    def renewed(self, session: str, nonce: str = "n") -> bytes:
        """Ask for the next key of a session; return it."""
        body = json.dumps({"nonce": nonce}).encode()
        told = self.ask("POST", "/renew-key", {SESSION: session, "Origin": self.origin}, body)
        assert told.status == 200, told
        pad = data_of(tag(self.keys[session], "harken next key 1", nonce))
        return bytes(each ^ other for each, other in zip(data_of(told.json["key"]), pad, strict=True))

    def ticket(self) -> str:
        """Return a new ticket, as the shell of a page holds it."""
        found = re.search(r'name="harken-ticket" content="([^"]+)"', self.ask("GET", "/", NAVIGATION).text)
        assert found
        self._number = 0
        return found[1]

    def proof(
        self, session: str, method: str, path: str, body: bytes = b"", *, ticket: str = "", number: int = 0
    ) -> str:
        """Return the proof of a request; without a ticket and a number with the next that is good."""
        if not ticket:
            self._ticket = ticket = self._ticket or self.ticket()
            self._number = number = self._number + 1
        path = path.partition("#")[0]  # what comes after it is not sent
        digest = letters(hashlib.sha256(body).digest())
        signed = (session, ticket, str(number), method, self.address, path, digest)
        signature = tag(self.keys[session], "harken proof 1", *signed)
        return f"{session} {ticket} {number} {digest} {signature}"

    def page_stream(self) -> Stream:
        """Open the event stream as the page does."""
        (session,) = self.signed_in().values()
        return self.opened("/events", {"Harken-Proof": self.proof(session, "GET", "/events")})

    def opened(self, path: str, headers: Mapping[str, str]) -> Stream:
        """Open a stream with headers of one's own."""
        return Stream(self.address, path, headers)

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
