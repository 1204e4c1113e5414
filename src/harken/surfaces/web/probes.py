"""What machines ask: whether the daemon is up, whether it can work, and its numbers.

`/healthz` and `/readyz` need no token, for supervisors and balancers; they say one word each. `/metrics` needs the
token like the API, because how much arrives from where is the person's business. What is asked is decided above.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken import __version__
from harken.memory import json_bytes
from harken.surfaces.web.answers import json_answer
from harken.surfaces.web.exposition import MEDIA_TYPE
from harken.surfaces.web.front import WebContext

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
