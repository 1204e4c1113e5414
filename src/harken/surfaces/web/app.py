"""The HTTP application: probes, the verbs, the stream of events, signing in, and the page, behind one guard.

A verb is `POST /api/<verb>` with its arguments as a JSON object. What it does is in `verbs/`; who may call is decided
before, in `guard.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from harken import __version__
from harken.errors import HarkenError, NotFound, UserError
from harken.memory import json_bytes, out_of_memory
from harken.surfaces.web.answers import TOO_LARGE, error_answer, json_answer, wants_page
from harken.surfaces.web.exposition import MEDIA_TYPE
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.guard import ClientCheck, HttpGuard, too_large
from harken.surfaces.web.page.automation import automation_routes
from harken.surfaces.web.page.new_task import new_task_routes
from harken.surfaces.web.page.panels import panel_routes
from harken.surfaces.web.page.static_files import static_files
from harken.surfaces.web.page.timelines import page_routes, waiting_routes
from harken.surfaces.web.shell import PageShell
from harken.surfaces.web.signin import entry_routes
from harken.surfaces.web.stream import event_routes
from harken.verbs.table import LONG_VERBS, call
from harken.verbs.verb import CallContext

NOT_FOUND = 404
STYLE = "plain.css"


def create_app(
    front: WebContext, token: str, hosts: Collection[str], *, refuse_client: ClientCheck | None = None
) -> ASGIApp:
    """Return the application; `hosts` are the Host headers it answers to, `refuse_client` tells by the program."""
    files = static_files()
    style = files[STYLE].url
    shell = PageShell(files, front.sign_ins.tickets)
    routes = [
        *probe_routes(front),
        *api_routes(front.desk),
        *event_routes(front.ticker),
        *entry_routes(front.sign_ins, shell),
        *page_routes(front),
        *panel_routes(front),
        *automation_routes(front),
        *waiting_routes(front),
        *new_task_routes(front),
    ]
    handlers = {HTTPException: partial(_refused, style), HarkenError: partial(_failed, style)}
    app = Starlette(routes=routes, exception_handlers=handlers)
    return HttpGuard(
        app,
        token=token,
        hosts=hosts,
        sign_ins=front.sign_ins,
        shell=shell,
        style=style,
        refuse_client=refuse_client,
    )


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
        nothing = NotFound("There is nothing at this address.", "Begin at the start page: /")
        return error_answer(nothing, as_page=_is_shown(request), style=style)
    return error_answer(
        UserError("This cannot be asked here.", "See the reference of the HTTP API."), error.status_code
    )


def _is_shown(request: Request) -> bool:
    return wants_page(request.headers.get("accept", ""))


GONE = 499  # nobody reads this: the client has hung up


def api_routes(desk: Callable[[], CallContext]) -> list[Route]:
    """Return the route of the verbs; `desk` makes the one for a request."""
    return [Route("/api/{verb}", partial(_verb, desk), methods=["POST"])]


async def _verb(desk: Callable[[], CallContext], request: Request) -> Response:
    try:
        arguments = await _arguments(request)
        name = request.path_params["verb"]
        # Only a wait is long enough to be given up by its client.
        do = partial(_until_gone, request) if name in LONG_VERBS else call
        return json_answer(await do(desk(), name, arguments))
    except HarkenError as exc:
        return error_answer(exc)
    except MemoryError:
        return error_answer(out_of_memory())
    except ClientDisconnect:
        return Response(status_code=GONE)


async def _until_gone(request: Request, desk: CallContext, verb: str, arguments: object) -> object:
    """Do what a verb says, unless the client goes away first: a wait that nobody reads consumes nothing."""
    result: object = None
    failure: HarkenError | None = None

    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            result = await call(desk, verb, arguments)
        except HarkenError as exc:
            failure = exc  # raised inside, it would leave the task group as an error group
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


async def _arguments(request: Request) -> object:
    data = await request.body()
    try:
        arguments: object = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UserError("The body is not JSON.", "Send the arguments as a JSON object.") from exc
    if not isinstance(arguments, dict):
        raise UserError("The body is not a JSON object.", "Send the arguments as a JSON object.")
    return arguments


RETRY_SECONDS: Final = 5
UNAVAILABLE: Final = 503


def probe_routes(front: WebContext) -> list[Route]:
    """Return the routes."""
    return [
        Route("/healthz", _health),
        Route("/readyz", partial(_readiness, front)),
        Route("/metrics", partial(_metrics, front)),
    ]


async def _health(_request: Request) -> Response:
    return json_answer({"status": "ok", "version": __version__})


async def _readiness(front: WebContext, _request: Request) -> Response:
    reason = await front.unready()
    if not reason:
        return json_answer({"status": "ready"})
    body = json_bytes({"status": "not ready", "reason": reason})
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return Response(body, status_code=UNAVAILABLE, media_type="application/json", headers=headers)


async def _metrics(front: WebContext, _request: Request) -> Response:
    return Response(await front.metrics(), headers={"content-type": MEDIA_TYPE})
