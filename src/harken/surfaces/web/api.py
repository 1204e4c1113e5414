"""The verbs over HTTP: `POST /api/<verb>` with the verb's arguments as a JSON object.

What a verb does is in `verbs/`; who may call is decided before, in `guard.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import HarkenError, UserError
from harken.memory import out_of_memory
from harken.surfaces.web.answers import error_answer, json_answer
from harken.verbs.table import LONG_VERBS, call
from harken.verbs.verb import CallContext

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
