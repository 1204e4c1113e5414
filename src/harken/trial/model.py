"""A model of our own on the loopback: it speaks the four protocols that agent hosts use, and says what a script says.

Everything a host sends its model is recorded, except its headers, which hold keys. It listens on 127.0.0.1 only, and
answers anything it does not know with 404. It judges nothing: what should have arrived is for its user to say. A gate
holds a tool of the host: the command that the model asks for reads a named pipe, so its test knows when the tool has
begun and lets it end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

from harken.clock import Clock, SystemClock
from harken.trial import vendors
from harken.trial.exchange import OK, PLAIN_JSON, ModelAnswer, ModelRequest, Script, compact, in_order, resolve

MAX_BYTES: Final = 64 << 20
HOLD_SECONDS: Final = 120.0
LIMITED: Final = 429
POLL_SECONDS: Final = 0.05  # how soon the server notices that it should end
_MODELS: Final = ("mock-model",)
_GOOGLE_PATH: Final = re.compile(r"/v1(?:beta|alpha)?/models/([^/:]+):([A-Za-z]+)")

Predicate: TypeAlias = Callable[[ModelRequest], bool]
JOIN_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _ModelRoute:
    """How one path is answered."""

    asked: Callable[[Mapping[str, object]], ModelRequest]
    answer: Callable[[ModelAnswer, ModelRequest], tuple[str, bytes]]
    count: Callable[[ModelRequest], tuple[str, bytes]] | None = None  # set: it only counts tokens


_ROUTES: Final[Mapping[str, _ModelRoute]] = {
    "/v1/messages": _ModelRoute(vendors.anthropic_asked, vendors.anthropic_answer),
    "/v1/messages/count_tokens": _ModelRoute(
        vendors.anthropic_asked, vendors.anthropic_answer, vendors.anthropic_count
    ),
    "/v1/chat/completions": _ModelRoute(vendors.chat_asked, vendors.chat_answer),
    "/v1/responses": _ModelRoute(vendors.responses_asked, vendors.responses_answer),
}


class HeldRequests:
    """Requests that are kept waiting for their answer."""

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate
        self._reached = threading.Event()
        self._released = threading.Event()
        self._asked: ModelRequest | None = None

    def wait(self, seconds: float) -> ModelRequest:
        """Return the first request that is kept; raises `TimeoutError` when none comes."""
        if not self._reached.wait(seconds) or self._asked is None:
            raise TimeoutError("no such request reached the model in time")
        return self._asked

    def release(self) -> None:
        """Let them be answered, and all later ones."""
        self._released.set()

    def stop_at(self, asked: ModelRequest) -> None:
        """Keep a request back while it has to wait. Called by the model."""
        if self._released.is_set() or not self._predicate(asked):
            return
        self._asked = self._asked or asked
        self._reached.set()
        self._released.wait(HOLD_SECONDS)


class MockModel:
    """The server. Use it as a context manager; `url` is what hosts are told."""

    def __init__(self, script: Script | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._script = script or in_order(then="hello from the trial")
        self._changed = threading.Condition()
        self._requests: list[ModelRequest] = []
        self._strays: list[str] = []
        self._holds: list[HeldRequests] = []
        self._server = _ModelServer(("127.0.0.1", 0), partial(_ModelHandler, self), bind_and_activate=False)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name="trial-model", daemon=True
        )

    def __enter__(self) -> Self:
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._server.server_bind()
        self._server.server_activate()
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        for hold in self._holds:
            hold.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(HOLD_SECONDS)

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """Everything asked so far, in order of arrival."""
        with self._changed:
            return tuple(self._requests)

    @property
    def conversation(self) -> tuple[ModelRequest, ...]:
        """The same without side requests."""
        return tuple(asked for asked in self.requests if not asked.is_side)

    @property
    def strays(self) -> tuple[str, ...]:
        """Method and path of the requests that were answered with 404."""
        with self._changed:
            return tuple(self._strays)

    def follow(self, script: Script) -> None:
        """Answer by another script from now on."""
        with self._changed:
            self._script = script

    def wait_for(self, predicate: Predicate, seconds: float, *, after: int = 0) -> ModelRequest:
        """Return the first request, from number `after` on, that fits; raises `TimeoutError` with what came instead."""

        def found() -> ModelRequest | None:
            return next((asked for asked in self._requests[after:] if predicate(asked)), None)

        with self._changed:
            asked = self._changed.wait_for(found, seconds)
            if asked is None:
                raise TimeoutError(f"no such request within {seconds:g} s; {self._summary(after)}")
            return asked

    @contextmanager
    def hold(self, predicate: Predicate) -> Iterator[HeldRequests]:
        """Keep the answers to some requests back until they are released, at the latest at the end of the block."""
        hold = HeldRequests(predicate)
        with self._changed:
            self._holds.append(hold)
        try:
            yield hold
        finally:
            hold.release()
            with self._changed:
                self._holds.remove(hold)

    def take(self, method: str, target: str, data: bytes, initiator: str = "") -> tuple[int, str, bytes]:
        """Return status, content type and body for one HTTP request."""
        path = urlsplit(target).path
        if method in {"GET", "HEAD"} and path in {"/v1/models", "/models"}:
            return 200, PLAIN_JSON, _models()
        route, body = _route(path), _body(data)
        if method != "POST" or route is None or body is None:
            with self._changed:
                self._strays.append(f"{method} {path}")
            error = {"type": "not_found_error", "message": "the trial model does not know this request"}
            return 404, PLAIN_JSON, compact({"type": "error", "error": error}).encode()
        if route.count is not None:
            return 200, *route.count(route.asked(body))
        return self._answer(route, replace(route.asked(body), initiator=initiator))

    def _answer(self, route: _ModelRoute, asked: ModelRequest) -> tuple[int, str, bytes]:
        with self._changed:
            asked = replace(asked, number=len(self._requests), arrived_at=self._clock.now())
            self._requests.append(asked)
            script, holds = self._script, tuple(self._holds)
            self._changed.notify_all()
        for hold in holds:
            hold.stop_at(asked)
        say = resolve(script(asked), asked)
        if say.status != OK:
            error = {"type": "rate_limit_error" if say.status == LIMITED else "api_error", "message": say.words}
            return say.status, PLAIN_JSON, compact({"type": "error", "error": error}).encode()
        return OK, *route.answer(say, asked)

    def _summary(self, after: int) -> str:
        seen = [
            f"{asked.number}: {asked.protocol}{' (side)' if asked.is_side else ''}, last {asked.turns[-1:]!r:.300}"
            for asked in self._requests[after:]
        ]
        return "; ".join((f"{len(seen)} requests came", *seen[-5:], *(f"404: {stray}" for stray in self._strays[-5:])))


def _route(path: str) -> _ModelRoute | None:
    fixed = _ROUTES.get(path) or _ROUTES.get(f"/v1{path}")
    if fixed is not None:
        return fixed
    found = _GOOGLE_PATH.fullmatch(path)
    if found is None:
        return None
    model, verb = found.groups()
    match verb:
        case "generateContent" | "streamGenerateContent":
            is_stream = verb == "streamGenerateContent"
            return _ModelRoute(
                lambda body: vendors.google_asked(body, model, is_stream=is_stream), vendors.google_answer
            )
        case "countTokens":
            return _ModelRoute(
                lambda body: vendors.google_asked(body, model), vendors.google_answer, vendors.google_count
            )
        case _:
            return None


def _body(data: bytes) -> Mapping[str, object] | None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _models() -> bytes:
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "harken"} for name in _MODELS]
    return compact({"object": "list", "data": models, "models": []}).encode()


class _ModelServer(ThreadingHTTPServer):
    """The server, which does not complain about hosts that are ended in the middle of something."""

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Say what went wrong, unless it is only that a host has gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _ModelHandler(BaseHTTPRequestHandler):
    """One connection of a host."""

    protocol_version = "HTTP/1.1"

    def __init__(
        self, model: MockModel, request: socket.socket, address: object, server: socketserver.BaseServer
    ) -> None:
        self._model = model
        super().__init__(request, address, server)

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        try:
            data = self._read()
            status, kind, body = self._model.take(method, self.path, data, self.headers.get("x-initiator", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if method == "HEAD" else body)
        except (OSError, ValueError):
            # The host hung up, as it does when a person presses Esc, or what it sent is no HTTP.
            self.close_connection = True

    def _read(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return b"".join(self._chunks())
        length = self.headers.get("Content-Length", "0")
        return self.rfile.read(min(int(length), MAX_BYTES) if length.isdecimal() else 0)

    def _chunks(self) -> Iterator[bytes]:
        left = MAX_BYTES
        while left > 0:
            size = int(self.rfile.readline(64).split(b";")[0] or b"0", 16)
            if size <= 0:
                self.rfile.readline(64)
                return
            yield self.rfile.read(min(size, left))
            left -= size
            self.rfile.readline(64)

    def log_message(self, *_: object) -> None:
        """Stay silent: the requests are recorded."""


class RequestGate:
    """Use it as a context manager; at the end the gate is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = threading.Event()
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="trial-gate", daemon=True)

    def __enter__(self) -> Self:
        os.mkfifo(self._path, 0o600)
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.open()
        # A writer waits for a reader: be that reader when no tool ever came.
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        self._thread.join(JOIN_SECONDS)
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    @property
    def command(self) -> str:
        """The shell command that stays until the gate is opened."""
        return f"cat {shlex.quote(str(self._path))}"

    def wait(self, seconds: float) -> None:
        """Return when the tool has begun; raises `TimeoutError` when it does not."""
        if not self._begun.wait(seconds):
            raise TimeoutError(f"the tool did not begin within {seconds:g} s")

    def open(self) -> None:
        """Let the tool end, now or as soon as it begins."""
        self._opened.set()

    def _keep(self) -> None:
        with self._path.open("wb", buffering=0):
            self._begun.set()
            self._opened.wait()
