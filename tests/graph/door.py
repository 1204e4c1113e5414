"""The door of the service: every request passes it, is logged, meets its fault, and shows its token.

Above the routes and below the server. It adds what every answer carries (ids, compression), turns refusals into the
documented error body, and does what no route can: reset, stay silent, break off.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import struct
import threading
from asyncio import Transport
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import Final

import anyio
import anyio.to_thread
import uvicorn
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.graph.faults import Fault, Faults
from tests.graph.sign_in import serve_tokens
from tests.graph.tokens import Grant, Tokens
from tests.graph.wire import Call, Refusal, Route, answer
from tests.graph.world import World

PREFIX: Final = "/v1.0"
GZIP_BYTES: Final = 500
HOLD_SECONDS: Final = 20
_GRAPH_APP: Final = "00000003-0000-0000-c000-000000000000"
_ERRORS: Final[Mapping[Fault, tuple[int, str]]] = {
    Fault.SERVER_ERROR: (500, "InternalServerError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.GATEWAY_TIMEOUT: (504, "GatewayTimeout"),
    Fault.THROTTLED: (429, "TooManyRequests"),
}
_DONE_FIRST: Final = frozenset({Fault.GATEWAY_TIMEOUT, Fault.LOST, Fault.DELAYED, Fault.TRUNCATED})
_IN_LISTS: Final = frozenset({Fault.REORDERED, Fault.DUPLICATED})


class Protocol(HttpToolsProtocol):
    """The server's protocol, which lets the door have the connection."""

    def on_message_begin(self) -> None:
        """Put the connection where the door finds it."""
        super().on_message_begin()
        self.scope["extensions"] = {"harken.connection": {"transport": self.transport}}


class Server(uvicorn.Server):
    """A server that ends at once, whoever still holds a connection."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut every connection first: a client that keeps its own open would be waited for."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, Protocol) and connection.transport is not None:
                connection.transport.abort()
        await super().shutdown(sockets)


@dataclass(slots=True)
class Asked:
    """One request in the log; the token is left out. Status 0: nobody got an answer."""

    at: datetime
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    status: int = 0
    fault: Fault | None = None


@dataclass(slots=True)
class Holds:
    """Requests that a test keeps inside the service for a while."""

    paths: list[tuple[str, threading.Event]] = field(default_factory=list)
    inside: int = 0

    async def wait(self, path: str) -> None:
        """Stay while a test holds this path."""
        for text, event in list(self.paths):
            if text in path:
                self.inside += 1
                await anyio.to_thread.run_sync(event.wait, HOLD_SECONDS, abandon_on_cancel=True)
                self.inside -= 1


class Door:
    """The application that the server runs."""

    def __init__(self, world: World, tokens: Tokens, faults: Faults, routes: list[Route]) -> None:
        self._world = world
        self._tokens = tokens
        self._faults = faults
        self._routes = routes
        self.log: list[Asked] = []
        self.holds = Holds()
        self.stall_seconds = 30.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or have it go wrong."""
        request = Request(scope, receive)
        body = await request.body()
        path = request.url.path
        headers = {name: value for name, value in request.headers.items() if name != "authorization"}
        asked = Asked(self._world.clock.now(), request.method, path, request.url.query, headers, body)
        asked.fault = self._faults.draw(request.method, path)
        self.log.append(asked)
        scope["fault"], scope["hold"] = asked.fault, self._holder(path)
        if asked.fault is Fault.STALLED:
            await self._stay_silent(receive)
        if asked.fault in {Fault.RESET, Fault.STALLED}:
            await _reset(scope, receive)
            return
        request_id = self._world.new_id()
        response = await self._answer(request, body, asked.fault, request_id)
        if asked.fault in {Fault.LOST, Fault.DELAYED}:
            await _reset(scope, receive)
            return
        asked.status = response.status_code
        response.headers["date"] = format_datetime(self._world.clock.now(), usegmt=True)
        response.headers["request-id"] = request_id
        response.headers["client-request-id"] = request.headers.get("client-request-id", request_id)
        if "gzip" in request.headers.get("accept-encoding", "") and len(response.body) > GZIP_BYTES:
            response = _compressed(response)
        sent = _cut(send) if asked.fault is Fault.TRUNCATED else send
        await response(scope, receive, sent)
        if asked.fault is Fault.TRUNCATED:
            asked.status = 0
            await _reset(scope, receive, is_hard=False)

    def _holder(self, path: str) -> Callable[[], Awaitable[None]]:
        return lambda: self.holds.wait(path)

    async def _stay_silent(self, receive: Receive) -> None:
        with anyio.move_on_after(self.stall_seconds):
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _answer(self, request: Request, body: bytes, fault: Fault | None, request_id: str) -> Response:
        try:
            if fault and fault not in _DONE_FIRST | _IN_LISTS:
                return self._wrong(fault)
            if not request.url.path.startswith(f"{PREFIX}/"):
                return await serve_tokens(self._tokens, request)
            response = await self._serve(request, body)
        except Refusal as refusal:
            return self._refused(request, refusal, request_id)
        if fault is Fault.GATEWAY_TIMEOUT:
            return self._refused(request, Refusal(*_ERRORS[fault], "The service took too long."), request_id)
        return response

    def _wrong(self, fault: Fault) -> Response:
        if fault is Fault.BAD_GATEWAY:
            return HTMLResponse("<html><body><h1>502 Bad Gateway</h1></body></html>", 502)
        status, code = _ERRORS[fault]
        states_wait = fault is Fault.UNAVAILABLE and self._world.dice.fraction("wait", len(self.log)) < 1 / 2
        raise Refusal(status, code, "The service cannot answer now.", {"Retry-After": "1"} if states_wait else None)

    def _refused(self, request: Request, refusal: Refusal, request_id: str) -> Response:
        inner = {
            "date": f"{self._world.clock.now():%Y-%m-%dT%H:%M:%S}",
            "request-id": request_id,
            "client-request-id": request.headers.get("client-request-id", request_id),
        }
        error = {"code": refusal.code, "message": refusal.message, "innerError": inner}
        return answer({"error": error}, refusal.status, refusal.headers)

    async def _serve(self, request: Request, body: bytes) -> Response:
        path = request.url.path.removeprefix(PREFIX)
        grant = self._judge_token(request)
        matched = [(route, parts) for route in self._routes if (parts := route.match(path)) is not None]
        if not matched:
            raise Refusal(400, "BadRequest", f"Resource not found for the segment '{path.split('/')[1]}'.")
        for route, parts in matched:
            if route.method == request.method:
                self._judge_scopes(route, grant)
                return await route.handle(Call(request, grant, tuple(part for part in parts if part), body))
        raise Refusal(405, "MethodNotAllowed", "The method is not allowed for this resource.")

    def _judge_token(self, request: Request) -> Grant:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        challenge = f'Bearer realm="", authorization_uri="{self._tokens.origin}/common/oauth2/v2.0/authorize"'
        challenge += f', client_id="{_GRAPH_APP}"'
        if kind.lower() != "bearer" or not token:
            headers = {"WWW-Authenticate": challenge}
            raise Refusal(401, "InvalidAuthenticationToken", "Access token is empty.", headers)
        grant = self._tokens.access.get(token)
        if grant is None:
            headers = {"WWW-Authenticate": challenge}
            raise Refusal(401, "InvalidAuthenticationToken", "CompactToken parsing failed.", headers)
        if grant.expires <= self._world.clock.now():
            headers = {"WWW-Authenticate": f'{challenge}, error="invalid_token"'}
            raise Refusal(
                401, "InvalidAuthenticationToken", "Lifetime validation failed, the token is expired.", headers
            )
        # A token that was had with the claims of such a challenge is what was asked for.
        if self._tokens.state.challenges_claims and '"nbf"' not in grant.claims:
            claims = base64.b64encode(json.dumps({"access_token": {"nbf": {"essential": True}}}).encode()).decode()
            headers = {"WWW-Authenticate": f'{challenge}, error="insufficient_claims", claims="{claims}"'}
            raise Refusal(
                401, "InvalidAuthenticationToken", "Continuous access evaluation asks for a new token.", headers
            )
        return grant

    def _judge_scopes(self, route: Route, grant: Grant) -> None:
        if not route.scopes or not grant.scopes.isdisjoint(route.scopes):
            return
        if any(scope.startswith("Mail") for scope in route.scopes):
            raise Refusal(403, "ErrorAccessDenied", "Access is denied. Check credentials and try again.")
        needed, held = ", ".join(route.scopes), ", ".join(sorted(grant.scopes))
        message = f"Missing scope permissions on the request. API requires one of '{needed}'."
        raise Refusal(403, "Forbidden", f"{message} Scopes on the request '{held}'")


def _compressed(response: Response) -> Response:
    made = Response(gzip.compress(bytes(response.body), 1), response.status_code)
    for name, value in response.headers.items():
        if name != "content-length":
            made.headers[name] = value
    made.headers["content-encoding"] = "gzip"
    return made


def _cut(send: Send) -> Send:
    async def half(message: Message) -> None:
        if message["type"] == "http.response.body":
            body = message["body"]
            message = {"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True}
        await send(message)

    return half


async def _reset(scope: Scope, receive: Receive, *, is_hard: bool = True) -> None:
    transport = scope["extensions"]["harken.connection"]["transport"]
    if not isinstance(transport, Transport):
        return
    if is_hard and (connection := transport.get_extra_info("socket")):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
    with anyio.move_on_after(1):
        while (await receive())["type"] != "http.disconnect":
            pass
