"""`GET /events`: the ticker as server-sent events, for the page and for programs alike.

`id` is the number of the journal's event, given with the last of what that event became: whoever comes back with it
(`Last-Event-ID`, or `?after=`) has missed nothing. The number is sent at the start and with each sign of life too, so
that also a reader who was told nothing yet knows where it is. What is told is decided in `inbox/ticker.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from harken.errors import HarkenError, UserError
from harken.inbox.ticker import NAMES, RESET, Follower, Ticker, TickerStep
from harken.surfaces.web.answers import error_answer
from harken.surfaces.web.guard import IS_OPEN

_log = logging.getLogger("harken.http")

ALIVE_SECONDS = 15.0
RETRY_MILLISECONDS = 1000
LONGEST_SECONDS = 6 * 3600.0  # then the client comes again: no connection is for ever
_HIGHEST = (1 << 63) - 1

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What a client wants to be told: what follows a number (None: from now), of some names, of one mailbox."""

    after: int | None
    names: frozenset[str]
    mailbox: str


def event_routes(ticker: Ticker) -> list[Route]:
    """Return the route of the stream."""
    return [Route("/events", TickerStream(ticker), methods=["GET"])]


class TickerStream:
    """An ASGI application that tells until the client goes or the daemon stops."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one client."""
        try:
            wish = _wish(Request(scope))
        except UserError as exc:
            await error_answer(exc)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        is_open: Callable[[], bool] = scope.get("state", {}).get(IS_OPEN, lambda: True)
        with self._ticker.follow(wish.after, names=wish.names, mailbox=wish.mailbox) as follower:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch)
                with anyio.move_on_after(LONGEST_SECONDS):
                    await self._tell(follower, send, is_open)
                await send({"type": "http.response.body", "body": b""})
                tasks.cancel_scope.cancel()

    async def _tell(self, follower: Follower, send: Send, is_open: Callable[[], bool]) -> None:
        frame = b"retry: %d\n%s" % (RETRY_MILLISECONDS, _here(follower))
        while True:
            # Waits for a client that does not read; the server ends a connection on which that lasts.
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            try:
                steps = await follower.next(ALIVE_SECONDS)
            except HarkenError as exc:
                # It comes again, with the number it has.
                _log.info("an event stream ends: %s", exc.message)
                return
            if self._ticker.is_closed or not is_open():
                return
            frame = frames(steps) if steps else b": still here\n" + _here(follower)


def frames(steps: Iterable[TickerStep]) -> bytes:
    """Return steps as they are sent. Only the last event of a step has its number: half a step is told again."""
    parts: list[bytes] = []
    for step in steps:
        last = len(step.events) - 1
        for place, event in enumerate(step.events):
            number = b"id: %d\n" % step.n if place == last and (step.n or event.name == RESET) else b""
            parts.append(b"%sevent: %s\ndata: %s\n\n" % (number, event.name.encode(), event.data))
    return b"".join(parts)


def _here(follower: Follower) -> bytes:
    """Return the place of a client. Without data it is no event, and still becomes the client's Last-Event-ID."""
    return b"id: %d\n\n" % follower.position


def _wish(request: Request) -> StreamRequest:
    query = request.query_params
    names = frozenset(name.strip() for name in query.get("types", "").split(",") if name.strip())
    if unknown := sorted(names - set(NAMES)):
        raise UserError(f"There is no event {unknown[0][:40]!r}.", f"The events are: {', '.join(NAMES)}.")
    # A client that lost its connection says where it was; the address still says where it began.
    last = request.headers.get("last-event-id", "")
    after = last or query.get("after", "")
    number = _number(after)
    if last and number is None:
        number = _HIGHEST  # not of this store: like a number it has not reached, the client is told to look anew
    if after and number is None:
        raise UserError(f"{after[:40]!r} is no number of an event.", "Give the last `id` you got, or leave it away.")
    return StreamRequest(after=number, names=names, mailbox=query.get("mailbox", ""))


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_HIGHEST))
    return min(int(text), _HIGHEST) if is_number else None
