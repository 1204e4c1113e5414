"""The HTTP application: probes, the verbs, the stream of events, signing in, and the page, behind one guard."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from harken.errors import HarkenError, NotFound, UserError
from harken.surfaces.web.answers import TOO_LARGE, error_answer, wants_page
from harken.surfaces.web.api import api_routes
from harken.surfaces.web.front import WebContext
from harken.surfaces.web.guard import ClientCheck, HttpGuard, too_large
from harken.surfaces.web.page.automation import automation_routes
from harken.surfaces.web.page.new_task import new_task_routes
from harken.surfaces.web.page.panels import panel_routes
from harken.surfaces.web.page.static_files import static_files
from harken.surfaces.web.page.timelines import page_routes
from harken.surfaces.web.page.waiting import waiting_routes
from harken.surfaces.web.probes import probe_routes
from harken.surfaces.web.shell import PageShell
from harken.surfaces.web.signin import entry_routes
from harken.surfaces.web.stream import event_routes

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
