"""HTTP for other programs that post messages: nothing but the doors of the sources, each at its own path.

It stands on a listener of its own, so that a tunnel or a reverse proxy can show it to the world while the page and the
API stay private. Nothing here trusts the request: its size, its time and how many there are at once are bounded before
a door looks at it. What a door says becomes a short answer that tells nothing about the daemon. Plain ASGI, because it
is the one place where requests come by the thousand; one that is here as a whole is answered in one step.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.types import Receive, Scope, Send

from harken.errors import Forbidden, HarkenError, Unavailable
from harken.memory import json_bytes
from harken.sources.source import Accept, Door, DoorAnswer, PostedRequest
from harken.surfaces.wire import Answering, WholeAnswer

_log = logging.getLogger("harken.doors")

MAX_AT_ONCE: Final = 64  # per door
MAX_HELD: Final = 64 << 20  # bytes of all bodies that are on their way: anybody can begin one
MAX_DISCARDED: Final = 64 << 20  # bytes of a body that is too large, read so that its client hears why
BODY_SECONDS: Final = 15.0
BUSY_SECONDS: Final = 1
MAX_QUERY: Final = 4_096
WHOLE_BODY: Final = "harken.whole_body"
"""An extension of the request's scope: the server has all of the body, so that nobody has to wait for it."""

POST: Final = "POST"
EVENT_DOORS: Final = "/events/"  # how the paths begin that the public listener shows
NOT_PLAIN, UNAUTHORIZED, NOT_FOUND, NOT_ALLOWED, TOO_SLOW, TOO_LARGE, UNREADABLE, TOO_MANY, AWAY = (
    400,
    401,
    404,
    405,
    408,
    413,
    422,
    429,
    503,
)


class _NotTakenError(Exception):
    """An answer before any door was asked."""

    def __init__(self, status: int, says: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(says)
        self.answer = _said(status, says)
        self.headers = headers


def create_doors(doors: Sequence[Door], accept: Accept, *, body_seconds: float = BODY_SECONDS) -> DoorsApp:
    """Return the application over these doors."""
    return DoorsApp({door.path: door for door in doors}, accept, body_seconds)


class DoorsApp:
    """The application: which doors there are may change while it serves."""

    def __init__(self, doors: Mapping[str, Door], accept: Accept, body_seconds: float) -> None:
        self._doors = doors
        self._accept = accept
        self._body_seconds = body_seconds
        self._inside = Counter[str]()
        self._held = 0  # bytes of bodies that nobody has judged yet

    def show(self, doors: Sequence[Door]) -> None:
        """Take posts at these doors and no others from now on."""
        self._doors = {door.path: door for door in doors}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            door = self._door(scope)
            headers = _headers(door, scope)
            if WHOLE_BODY in scope.get("extensions", ()):
                # A time-out costs more than all else here, and this one could not come.
                body = await self._body(receive, door.max_bytes)
            else:
                body = await self._body_in_time(receive, door.max_bytes)
            answer = await self._ask(door, scope, headers, body)
        except _NotTakenError as reason:
            if reason.answer.status == TOO_LARGE and not _is_asking_first(scope):
                await self._discard(receive)
            # What is still to come of a body that was not waited for would keep the connection.
            rest = () if WHOLE_BODY in scope.get("extensions", ()) else ((b"connection", b"close"),)
            await _send(send, reason.answer, (*reason.headers, *rest))
        else:
            await _send(send, answer, ())

    def begin(self, scope: Scope, body: bytes) -> Answering | None:
        """Return what answers a request that is here as a whole."""
        return partial(self._answer, scope, body) if scope["type"] == "http" else None

    async def _answer(self, scope: Scope, body: bytes) -> WholeAnswer:
        try:
            door = self._door(scope)
            headers = _headers(door, scope)
            if len(body) > door.max_bytes:
                raise _too_large(door.max_bytes)
            if self._held + len(body) > MAX_HELD:
                raise _too_much()
            return _whole(await self._ask(door, scope, headers, body), ())
        except _NotTakenError as reason:
            return _whole(reason.answer, reason.headers)

    def _door(self, scope: Scope) -> Door:
        door = self._doors.get(scope["path"])
        if door is None:
            raise _NotTakenError(NOT_FOUND, "There is nothing at this address.")
        if scope["method"] != POST:
            raise _NotTakenError(NOT_ALLOWED, "Only POST is taken here.", (b"allow", POST.encode()))
        return door

    async def _ask(self, door: Door, scope: Scope, headers: Mapping[str, str], body: bytes) -> DoorAnswer:
        # Only now: whoever is slow to say something takes nobody's place.
        path = door.path
        if self._inside[path] >= MAX_AT_ONCE:
            raise _NotTakenError(TOO_MANY, "Too many at once. Try again soon.", _after(BUSY_SECONDS))
        self._inside[path] += 1
        try:
            return await self._take(
                door, PostedRequest(query=_query(scope["query_string"]), headers=headers, body=body)
            )
        finally:
            self._inside[path] -= 1

    async def _take(self, door: Door, posted: PostedRequest) -> DoorAnswer:
        try:
            return await door.take(posted, self._accept)
        except Unavailable as exc:
            raise _NotTakenError(
                AWAY, "It cannot be stored now. Try again later.", _after(int(exc.retry_after))
            ) from exc
        except Forbidden as exc:
            # Not a warning: whoever knows the address could fill the log with them. The source counts them.
            _log.debug("%s refused a post: %s", door.path, exc.message)
            raise _NotTakenError(UNAUTHORIZED, "This cannot be shown to be genuine.") from exc
        except HarkenError as exc:
            _log.debug("%s could not use a post: %s", door.path, exc.message)
            raise _NotTakenError(UNREADABLE, "This is not what is expected here.") from exc

    async def _discard(self, receive: Receive) -> None:
        """Read the rest of what is too large: a client that still sends when the line is closed gets no answer.

        Nothing of it is kept. What takes too long, or has no end, is closed all the same.
        """
        size = 0
        with anyio.move_on_after(self._body_seconds):
            while size < MAX_DISCARDED:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body"):
                    return

    async def _body_in_time(self, receive: Receive, most: int) -> bytes:
        with anyio.move_on_after(self._body_seconds):
            return await self._body(receive, most)
        raise _NotTakenError(TOO_SLOW, "The body took too long.")

    async def _body(self, receive: Receive, most: int) -> bytes:
        """Return the whole body; the first part is often all of it."""
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    # Whoever posts has gone: half a body is not what was meant, and nobody hears the answer.
                    raise _NotTakenError(UNREADABLE, "The body is not complete.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                self._held += len(parts[-1])
                if size > most:
                    raise _too_large(most)
                if self._held > MAX_HELD:
                    raise _too_much()
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._held -= size


def _headers(door: Door, scope: Scope) -> Mapping[str, str]:
    """Return the headers of a request, once they say that it may be taken."""
    headers: dict[str, str] = {}
    for raw_name, value in scope["headers"]:
        name = raw_name.decode("latin-1")
        # Of two that disagree the one that was checked might not be the one that is used.
        headers[name] = "" if name in headers else value.decode("latin-1")
    length = headers.get("content-length", "")
    if length and not (length.isdecimal() and int(length[:20]) <= door.max_bytes):
        raise _too_large(door.max_bytes)
    if "upgrade" in headers:
        # The server leaves out the body of such a request.
        raise _NotTakenError(NOT_PLAIN, "Only plain HTTP/1.1 is taken here, without an Upgrade header.")
    return headers


def _too_large(most: int) -> _NotTakenError:
    return _NotTakenError(TOO_LARGE, f"The body is too large. At most {most} bytes are taken.")


def _too_much() -> _NotTakenError:
    return _NotTakenError(TOO_MANY, "Too much at once. Try again soon.", _after(BUSY_SECONDS))


def _is_asking_first(scope: Scope) -> bool:
    """Whether the client waits to be told before it sends the body."""
    return any(name == b"expect" for name, _ in scope["headers"])


def _query(raw: bytes) -> dict[str, str]:
    return dict(parse_qsl(raw[:MAX_QUERY].decode("latin-1"), keep_blank_values=True)) if raw else {}


def _said(status: int, says: str) -> DoorAnswer:
    return DoorAnswer(status=status, body=json_bytes({"error": says}))


def _after(seconds: int) -> tuple[bytes, bytes]:
    return b"retry-after", str(max(1, seconds)).encode()


def _whole(answer: DoorAnswer, headers: Sequence[tuple[bytes, bytes]]) -> WholeAnswer:
    fixed = (b"content-type", answer.media_type.encode()), (b"x-content-type-options", b"nosniff")
    return WholeAnswer(answer.status, (*fixed, *headers), answer.body)


async def _send(send: Send, answer: DoorAnswer, headers: Sequence[tuple[bytes, bytes]]) -> None:
    fixed = [
        (b"content-type", answer.media_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": answer.body})
