"""`/sign-in` and `/sign-out`: where a browser gets its cookie, and where it gives it up.

What a code and a cookie are is in `signin.py`. A code is used up only by a browser that is really there: neither by a
look at the headers nor by one that fetches what the person may open next.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from harken.surfaces.web.answers import FORBIDDEN, plain_page
from harken.surfaces.web.signin import COOKIE_SECONDS, SignIns, cookie_name

SEE_OTHER = 303
HOME = "/"


def entry_routes(sign_ins: SignIns, style: str) -> list[Route]:
    """Return the routes; `style` is the address of a stylesheet."""
    return [
        Route("/sign-in", partial(_sign_in, sign_ins, style), methods=["GET"]),
        Route("/sign-out", partial(_sign_out, sign_ins), methods=["POST"]),
    ]


async def _sign_in(sign_ins: SignIns, style: str, request: Request) -> Response:
    is_there = request.method == "GET" and "sec-purpose" not in request.headers
    if not is_there or not sign_ins.redeem(request.query_params.get("code", "")):
        answer = plain_page(
            "This link does not work any more.",
            "Each link works once, for two minutes. Run this in a terminal for a new one.",
            status=FORBIDDEN,
            style=style,
            command="harken open",
        )
    else:
        answer = _home(request, sign_ins.cookie(), COOKIE_SECONDS)
    return answer


async def _sign_out(sign_ins: SignIns, request: Request) -> Response:
    sign_ins.sign_out(request.headers.get("cookie", ""), request.headers["host"])
    return _home(request, "", 0)


def _home(request: Request, cookie: str, seconds: int) -> Response:
    answer = RedirectResponse(HOME, SEE_OTHER)
    name = cookie_name(request.headers["host"])
    answer.set_cookie(name, cookie, max_age=seconds, path="/", httponly=True, samesite="strict")
    return answer
