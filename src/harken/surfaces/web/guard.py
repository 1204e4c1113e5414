"""Who may speak HTTP to the daemon: the right Host, no foreign Origin, the token.

Host and Origin stop web pages the person happens to visit (also through DNS rebinding); the token, which only the
same user can read, stops everyone else.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from harken.errors import HarkenError, Refused

UNAUTHORIZED, FORBIDDEN = 401, 403
OPEN_PATHS = frozenset({"/healthz"})


class Guard:
    """ASGI middleware that lets only the person's own programs through."""

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        problem = self._problem(scope["path"], headers)
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await answer(send, FORBIDDEN if b"authorization" in headers else UNAUTHORIZED, problem)

    def _problem(self, path: str, headers: dict[bytes, bytes]) -> HarkenError | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in self._hosts:
            return Refused("This host name is not served.", "Use the address that `harken status` shows.")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1") not in {f"http://{name}" for name in self._hosts}:
            return Refused("Requests from other pages are not served.", "Use the address that `harken status` shows.")
        if path in OPEN_PATHS:
            return None
        given = headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            return Refused("A token is needed.", "Send the content of HOME/token as a bearer token.")
        return None


async def answer(send: Send, status: int, error: HarkenError) -> None:
    """Answer with an error, leaking nothing."""
    body = msgspec.json.encode({"error": error.as_dict()})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
