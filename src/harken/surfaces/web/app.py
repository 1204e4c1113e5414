"""The HTTP application: `GET /healthz`, and `POST /api/<verb>` with the verb's arguments as a JSON object."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from harken import __version__
from harken.errors import HarkenError, Unavailable, UserError
from harken.surfaces.calls import LONG_VERBS, Desk, call
from harken.surfaces.web.guard import Guard

MAX_BODY = 1024 * 1024
TOO_LARGE = 413


def create_app(desk: Callable[[], Desk], token: str, hosts: Collection[str]) -> ASGIApp:
    """Return the application; `hosts` are the Host headers it answers to."""

    async def verb(request: Request) -> Response:
        try:
            arguments = await _body(request)
            if arguments is None:
                return _error(UserError("The body is too large.", f"At most {MAX_BODY} bytes."), TOO_LARGE)
            name = request.path_params["verb"]
            # Only a wait is long enough to be given up by its client.
            do = partial(_until_gone, request) if name in LONG_VERBS else call
            result = await do(desk(), name, arguments)
        except HarkenError as exc:
            return _error(exc, exc.http_status)
        except ClientDisconnect:
            return Response(status_code=499)
        return _json(result)

    async def health(_request: Request) -> Response:
        return _json({"status": "ok", "version": __version__})

    routes = [Route("/healthz", health), Route("/api/{verb}", verb, methods=["POST"])]
    return Guard(Starlette(routes=routes), token, hosts)


async def _until_gone(request: Request, desk: Desk, verb: str, arguments: object) -> object:
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


async def _body(request: Request) -> object | None:
    """Return the arguments, or None when the body is too large."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            return None
    try:
        arguments: object = msgspec.json.decode(bytes(data) or b"{}")
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UserError("The body is not JSON.", "Send the arguments as a JSON object.") from exc
    if not isinstance(arguments, dict):
        raise UserError("The body is not a JSON object.", "Send the arguments as a JSON object.")
    return arguments


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _error(error: HarkenError, status: int) -> Response:
    headers = {"Retry-After": str(int(error.retry_after))} if isinstance(error, Unavailable) else None
    body = msgspec.json.encode({"error": error.as_dict()})
    return Response(body, status_code=status, headers=headers, media_type="application/json")
