"""The HTTP application: probes, the verbs, the stream of events, signing in, and the page, behind one guard.

A verb is `POST /api/<verb>` with its arguments as a JSON object. What it does is in `verbs/`; who may call is decided
before, in `guard.py`. A call that is here as a whole is answered in one step (`VerbCalls`), the others by their route.

`GET /events` is the ticker as server-sent events, for the page and for programs. `id` is the number of the journal's
event, given with the last of what that event became: a client that comes back with it (`Last-Event-ID`, or `?after=`)
has missed nothing. The number is also sent at the start and with each sign of life, so that a client which got no event
yet knows its place. `inbox/ticker.py` decides which events there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from harken import __version__
from harken.errors import HarkenError, NotFound, UserError
from harken.inbox.ticker import NAMES, RESET, Follower, Ticker, TickerStep
from harken.memory import json_bytes, out_of_memory
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.guard import IS_OPEN, ClientCheck, HttpGuard, dressed, too_large
from harken.surfaces.web.shell import TOO_LARGE, PageShell, error_answer, json_answer, static_files, wants_page
from harken.surfaces.web.signin import entry_routes
from harken.surfaces.wire import Answering, WholeAnswer
from harken.verbs.table import LONG_VERBS, VERBS, call
from harken.verbs.verb import CallContext

OK, NOT_FOUND = 200, 404
_JSON_HEADERS: Final = dressed((b"content-type", b"application/json"))


def create_app(
    context: WebContext, token: str, hosts: Collection[str], *, refuse_client: ClientCheck | None = None
) -> ASGIApp:
    """Return the application; `hosts` are the Host headers it answers to, `refuse_client` tells by the program."""
    files = static_files()
    shell = PageShell(files, context.sign_ins.tickets)
    routes = [
        *probe_routes(context),
        *api_routes(lambda _request: context.call_context()),
        *event_routes(context.ticker),
        *entry_routes(context.sign_ins, shell),
    ]
    app = answering_app(routes, shell)
    app.router.default = PageOnUse(context)
    return HttpGuard(
        app,
        token=token,
        hosts=hosts,
        sign_ins=context.sign_ins,
        shell=shell,
        refuse_client=refuse_client,
        calls=VerbCalls(context.call_context),
    )


class PageOnUse:
    """The page's part of the application. It is imported when it is asked for first: that is a sixth of the start."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._router: Router | None = None
        self._importing = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what no other route serves."""
        router = self._router or await self._import_once()
        await router(scope, receive, send)

    async def _import_once(self) -> Router:
        # A page asks for several things at once: one thread imports, not all that there are.
        async with self._importing:
            router = self._router
            if router is None:
                router = self._router = await anyio.to_thread.run_sync(self._make)
            return router

    def _make(self) -> Router:
        from harken.surfaces.web.page.sessions import agent_routes
        from harken.surfaces.web.page.sources import source_routes
        from harken.surfaces.web.page.tasks import task_routes

        own = (*source_routes(self._context), *agent_routes(self._context), *task_routes(self._context))
        return Router(routes=[*shown_routes(self._context), *own])


def shown_routes(context: WebContext) -> list[Route]:
    """Return the routes of the page that have a part for phones, and the stream."""
    from harken.surfaces.web.page.automation import automation_routes
    from harken.surfaces.web.page.conversations import conversation_routes
    from harken.surfaces.web.page.needs import need_routes
    from harken.surfaces.web.page.panels import panel_routes
    from harken.surfaces.web.page.timelines import page_routes, waiting_routes

    return [
        *event_routes(context.ticker),
        *page_routes(context),
        *conversation_routes(context),
        *need_routes(context),
        *panel_routes(context),
        *automation_routes(context),
        *waiting_routes(context),
    ]


def answering_app(routes: Sequence[BaseRoute], shell: PageShell) -> Starlette:
    """Return the application of routes, which answers errors in the words of `shell`."""
    handlers = {HTTPException: partial(_refused, shell.style), HarkenError: partial(_failed, shell.style)}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _failed(style: str, request: Request, error: Exception) -> Response:
    """Answer what a use case said."""
    if not isinstance(error, HarkenError):
        raise error
    return error_answer(error, as_page=_is_shown(request), style=style)


async def _refused(style: str, request: Request, error: Exception) -> Response:
    """Answer what the routes said: no such path, no such method, a body that is too large."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == TOO_LARGE:
        return error_answer(too_large(), TOO_LARGE, as_page=_is_shown(request), style=style)
    if error.status_code == NOT_FOUND:
        nothing = NotFound("There is nothing at this address.", "Go to the start page: /")
        return error_answer(nothing, as_page=_is_shown(request), style=style)
    return error_answer(
        UserError("This method is not allowed here.", "See the reference of the HTTP API."), error.status_code
    )


def _is_shown(request: Request) -> bool:
    return wants_page(request.headers.get("accept", ""))


GONE = 499  # nobody reads this: the client has hung up


def api_routes(call_context: Callable[[Request], CallContext]) -> list[Route]:
    """Return the route of the verbs; `call_context` makes that of a request."""
    return [Route("/api/{verb}", partial(_verb, call_context), methods=["POST"])]


class VerbCalls:
    """Answers calls of verbs that are here as a whole; a wait, which its client may give up, is left to the routes."""

    def __init__(self, call_context: Callable[[], CallContext]) -> None:
        self._call_context = call_context
        self._names = frozenset(verb.name for verb in VERBS) - LONG_VERBS

    def begin(self, scope: Scope, body: bytes) -> Answering | None:
        """Return what answers a call, if it is one."""
        folder, _, name = scope["path"].rpartition("/")
        return partial(self._answer, name, body) if folder == "/api" and name in self._names else None

    async def _answer(self, name: str, body: bytes) -> WholeAnswer:
        try:
            result = await call(self._call_context(), name, _decoded(body))
            return WholeAnswer(OK, _JSON_HEADERS, json_bytes(result))
        except HarkenError as exc:
            return _whole(error_answer(exc))
        except MemoryError:
            return _whole(error_answer(out_of_memory()))


def _whole(answer: Response) -> WholeAnswer:
    headers = [header for header in answer.raw_headers if header[0] != b"content-length"]
    return WholeAnswer(answer.status_code, dressed(*headers), bytes(answer.body))


async def _verb(call_context: Callable[[Request], CallContext], request: Request) -> Response:
    try:
        arguments = await _arguments(request)
        name = request.path_params["verb"]
        # Only a wait is long enough to be given up by its client.
        do = partial(_until_gone, request) if name in LONG_VERBS else call
        return json_answer(await do(call_context(request), name, arguments))
    except HarkenError as exc:
        return error_answer(exc)
    except MemoryError:
        return error_answer(out_of_memory())
    except ClientDisconnect:
        return Response(status_code=GONE)


async def _until_gone(request: Request, context: CallContext, verb: str, arguments: object) -> object:
    """Do what a verb says, unless the client goes away first: then a wait consumes nothing."""
    result: object = None
    failure: HarkenError | None = None

    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            result = await call(context, verb, arguments)
        except HarkenError as exc:
            failure = exc  # raised inside, it would leave the task group as an error group
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


async def _arguments(request: Request) -> object:
    return _decoded(await request.body())


def _decoded(data: bytes) -> object:
    try:
        arguments: object = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UserError("The body is not JSON.", "Send the arguments as a JSON object.") from exc
    if not isinstance(arguments, dict):
        raise UserError("The body is not a JSON object.", "Send the arguments as a JSON object.")
    return arguments


RETRY_SECONDS: Final = 5
UNAVAILABLE: Final = 503
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def probe_routes(context: WebContext) -> list[Route]:
    """Return the routes."""
    return [
        Route("/healthz", _health),
        Route("/readyz", partial(_readiness, context)),
        Route("/metrics", partial(_metrics, context)),
    ]


async def _health(_request: Request) -> Response:
    return json_answer({"status": "ok", "version": __version__})


async def _readiness(context: WebContext, _request: Request) -> Response:
    reason = await context.unready()
    if not reason:
        return json_answer({"status": "ready"})
    body = json_bytes({"status": "not ready", "reason": reason})
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return Response(body, status_code=UNAVAILABLE, media_type="application/json", headers=headers)


async def _metrics(context: WebContext, _request: Request) -> Response:
    return Response(await context.metrics(), headers={"content-type": METRICS_TYPE})


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
        raise UserError(
            f"{after[:40]!r} is not the number of an event.", "Give the last `id` you got, or leave it out."
        )
    return StreamRequest(after=number, names=names, mailbox=query.get("mailbox", ""))


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_HIGHEST))
    return min(int(text), _HIGHEST) if is_number else None
