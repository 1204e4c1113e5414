"""`/sign-in`, `/renew-key` and `/sign-out`: where a browser gets its key, the next one, and where its session ends.

What is behind a link is in `signin.py`. The page of a link holds no data; what it does is in `page/static/signin.js`.
"""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.errors import Refused
from harken.surfaces.web.answers import FORBIDDEN, error_answer, json_answer
from harken.surfaces.web.browsers import browser_name
from harken.surfaces.web.shell import Shell
from harken.surfaces.web.signin import RenewRequest, SignInRequest, SignIns, Visit

NO_CONTENT = 204
VISIT = "visit"  # in the state of a request: what it proved


def entry_routes(sign_ins: SignIns, shell: Shell) -> list[Route]:
    """Return the routes."""
    return [
        Route("/sign-in", partial(_sign_in_page, shell), methods=["GET"]),
        Route("/sign-in", partial(_sign_in, sign_ins), methods=["POST"]),
        Route("/renew-key", partial(_renew, sign_ins), methods=["POST"]),
        Route("/sign-out", partial(_sign_out, sign_ins), methods=["POST"]),
    ]


async def _sign_in_page(shell: Shell, _request: Request) -> Response:
    return shell.sign_in()


async def _sign_in(sign_ins: SignIns, request: Request) -> Response:
    refused = error_answer(Refused("This link does not work any more.", "For a new one: harken open"), FORBIDDEN)
    try:
        asked = msgspec.json.decode(await request.body(), type=SignInRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refused
    answer = sign_ins.redeem(asked, request.headers["host"], browser_name(request.headers.get("user-agent", "")))
    return refused if answer is None else json_answer(answer)


async def _renew(sign_ins: SignIns, request: Request) -> Response:
    refused = error_answer(Refused("There is no key to renew.", "Load the page again."), FORBIDDEN)
    visit: Visit | None = getattr(request.state, VISIT, None)
    try:
        asked = msgspec.json.decode(await request.body(), type=RenewRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refused
    key = sign_ins.renew(visit, asked.nonce) if visit is not None else None
    return refused if key is None else json_answer({"key": key})


async def _sign_out(sign_ins: SignIns, request: Request) -> Response:
    visit: Visit | None = getattr(request.state, VISIT, None)
    if visit is not None:
        sign_ins.sessions.end(visit.session.id)
    return Response(status_code=NO_CONTENT)
