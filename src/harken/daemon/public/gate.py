"""What programs elsewhere reach with a token: the verbs at `/api`, MCP at `/mcp`, and `/healthz` without one.

`TokenGate` stands before both. It looks at the token first, and at nothing of a body before that; an address that shows
wrong ones is soon not listened to, while tokens that are known go on. What is open ends when its token is revoked or
runs out. Your own API, the page and everything else are not here.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from types import ModuleType
from typing import Final, Protocol

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.clock import Clock
from harken.daemon.public.listener import WRONG_SECONDS, Slowdown, plain_address, without_port
from harken.errors import Forbidden, HarkenError, Unavailable
from harken.inbox.access import AGENT_TOKEN, Tokens, holder_of
from harken.inbox.caller import Caller
from harken.memory import json_bytes
from harken.store.contract.tokens import Token
from harken.surfaces.mcp.services import AgentServices
from harken.surfaces.web.guard import HEADERS, bounded_body, too_large
from harken.surfaces.wire import HOLDER
from harken.verbs.verb import CallContext

_log = logging.getLogger("harken.public")

MCP_PATH: Final = "/mcp"
METADATA: Final = "/.well-known/oauth-protected-resource"
MAX_OPEN: Final = 64  # requests of one token at once, streams too
MAX_LOOKS: Final = 8  # at tokens at once: the store is for others, too
BURST: Final = 200  # requests of one token that may come at once
RATE: Final = 50.0  # a second, after that
MAX_SECRET: Final = 4_096
MAX_VOUCHED: Final = 10_000
SHUT_SECONDS: Final = 60.0
UNAUTHORIZED: Final = 401
TOO_MANY: Final = 429
TOO_LARGE: Final = 413
ONCE: Final = ("host", "origin", "authorization", "content-length", "mcp-session-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSubject:
    """Who a JWT is about, and for how long it is good."""

    name: str
    seconds: float


class JwtIssuer(Protocol):
    """Checks the JWTs of an issuer."""

    @property
    def name(self) -> str:
        """The issuer."""
        ...

    @property
    def resource(self) -> str:
        """The address that its tokens have to be made for."""
        ...

    async def check(self, raw: str) -> JwtSubject:
        """Return the subject of a JWT; raises `Forbidden` for one that is not good here."""
        ...


class RequestRate:
    """How many requests a token may make now: a bucket that fills again."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> bool:
        """Take one; return whether there was one."""
        at = self._now()
        left, since = self._left.get(name, (float(BURST), at))
        left = min(float(BURST), left + (at - since) * RATE)
        self._left[name] = (max(0.0, left - 1.0), at)
        return left >= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMemory:
    """What all gates of a listener remember together: a limit of a token or an address is no limit of each path."""

    slowdown: Slowdown = field(default_factory=Slowdown)
    rate: RequestRate = field(default_factory=RequestRate)
    looks: anyio.Semaphore = field(default_factory=partial(anyio.Semaphore, MAX_LOOKS))
    vouched: dict[bytes, float] = field(default_factory=dict[bytes, float])  # hashes of good JWTs, until when
    open: defaultdict[str, set[anyio.CancelScope]] = field(default_factory=partial(defaultdict, set))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """What a gate has to know of the listener before it."""

    hosts: Callable[[], Collection[str]]  # the Host headers that mean it; none: any
    proxies: Collection[str] = ()
    issuer: JwtIssuer | None = None
    memory: GateMemory = field(default_factory=GateMemory)


class TokenGate:
    """ASGI middleware that lets only requests with a token through, and ends them with it."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        clock: Clock,
        settings: GateSettings,
        *,
        kinds: Collection[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._clock = clock
        self._hosts = settings.hosts
        self._proxies = frozenset(settings.proxies)
        self._issuer = settings.issuer
        self._kinds = kinds  # of tokens that are let through; empty: all that have a scope
        memory = settings.memory
        self._slowdown, self._rate, self._looks = memory.slowdown, memory.rate, memory.looks
        self._vouched, self._open = memory.vouched, memory.open
        tokens.observe(self._revoked)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or say why not."""
        if scope["type"] != "http":
            return
        answer = _Answer(send, metadata_url(self._issuer))
        try:
            token, seconds = await self._admitted(scope)
            await self._serve(token, seconds, scope, receive, answer)
        except HarkenError as exc:
            await answer.refuse(exc)
        except HTTPException as exc:
            if exc.status_code != TOO_LARGE:
                raise
            await answer.refuse(too_large(), TOO_LARGE)

    async def _admitted(self, scope: Scope) -> tuple[Token, float]:
        """Return the token that came, and for how long what came is good; raises `HarkenError`."""
        headers = Headers(scope=scope)
        self._check_headers(headers)
        address = address_of(scope, self._proxies)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        secret = given.strip()
        if scheme.lower() != "bearer" or not secret or len(secret) > MAX_SECRET:
            raise _UnknownTokenError("A token is needed.", "Send it as a bearer token.")
        if self._slowdown.is_shut_out(address) and not self._is_known(secret):
            # Not at once either: an address has so many connections, and each asks no more than once a second.
            await anyio.sleep(WRONG_SECONDS)
            raise Unavailable("Too many wrong tokens came from here.", "Wait a minute.", retry_after=SHUT_SECONDS)
        seconds = math.inf
        try:
            if self._issuer is not None and secret.startswith("ey"):
                # It may wait for the issuer: tokens that it has nothing to do with must not.
                subject = await self._issuer.check(secret)
                secret, seconds = self._tokens.secret_of(subject.name), subject.seconds
            async with self._looks:
                token = await self._tokens.hold(secret, address)
        except Forbidden as exc:
            await self._slowdown.hold_up(address)
            raise _RefusedTokenError(exc.message, exc.hint) from exc
        if math.isfinite(seconds):
            self._note_vouched(given.strip(), seconds)
        if self._kinds and token.kind not in self._kinds:
            raise Forbidden(f"A token for {token.kind} is not good here.", "Make one: harken token new NAME")
        if not self._rate.take(token.id) or len(self._open[token.id]) >= MAX_OPEN:
            raise Unavailable("This token asks too often.", "Wait a moment, and close what is open.")
        if token.expires_at is not None:
            seconds = min(seconds, (token.expires_at - self._clock.now()).total_seconds())
        return token, max(0.0, seconds)

    def _is_known(self, secret: str) -> bool:
        """Whether what came was good a moment ago. Costs next to nothing."""
        until = self._vouched.get(sha256(secret.encode("utf-8", "replace")).digest(), 0.0)
        return until > anyio.current_time() or self._tokens.is_known(secret)

    def _note_vouched(self, raw: str, seconds: float) -> None:
        if len(self._vouched) >= MAX_VOUCHED:
            self._vouched.clear()
        until = anyio.current_time() + min(seconds, SHUT_SECONDS)
        self._vouched[sha256(raw.encode("utf-8", "replace")).digest()] = until

    def _check_headers(self, headers: Headers) -> None:
        """Refuse what another parser would read otherwise, another name for this address, and pages of others."""
        if doubled := next((name for name in ONCE if len(headers.getlist(name)) > 1), ""):
            raise Forbidden(f"The header {doubled} is sent twice.", "Send each header once.")
        if (hosts := self._hosts()) and headers.get("host", "") not in hosts:
            raise Forbidden("This host name is not served.", "Use the address in http.public_url.")
        if (origin := headers.get("origin")) and origin.partition("://")[2] not in hosts:
            raise Forbidden("Pages of others are not served.", "Use a program, or a page of the same address.")

    async def _serve(self, token: Token, seconds: float, scope: Scope, receive: Receive, answer: _Answer) -> None:
        scope["state"] = {**scope.get("state", {}), HOLDER: holder_of(token)}
        until = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._open[token.id].add(until)
        try:
            with until:
                await self._app(scope, bounded_body(receive), answer.send)
        finally:
            self._open[token.id].discard(until)
            if not self._open[token.id]:
                del self._open[token.id]
        if until.cancelled_caught:
            await answer.end(_UnknownTokenError("This token has ended.", "Ask who made it for a new one."))

    def _revoked(self, token: Token) -> None:
        for scope in tuple(self._open.get(token.id, ())):
            scope.cancel()


class _UnknownTokenError(Forbidden):
    """There is no token, or none that is good: another one would help."""

    http_status = UNAUTHORIZED


class _RefusedTokenError(_UnknownTokenError):
    """The token that came is not good."""


class _Answer:
    """An answer that can be refused until it has begun, and ended after that."""

    def __init__(self, send: Send, metadata: str = "") -> None:
        self._send = send
        self._metadata = metadata
        self._has_begun = False
        self._is_over = False

    async def send(self, message: Message) -> None:
        """Send a part of it, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self._has_begun = True
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            taken = {name for name, _ in own}
            given = [(name, value) for name, value in message.get("headers", []) if name.lower() not in taken]
            message = {**message, "headers": [*given, *own]}
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_over = True
        await self._send(message)

    async def refuse(self, error: HarkenError, status: int = 0) -> None:
        """Say why not."""
        if self._has_begun:
            await self.end(error)
            return
        is_busy = isinstance(error, Unavailable)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        if error.http_status == UNAUTHORIZED:
            headers.append((b"www-authenticate", self._challenge(error).encode("latin-1")))
        if isinstance(error, Unavailable):
            headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
        code = status or (TOO_MANY if is_busy else error.http_status)
        await self.send({"type": "http.response.start", "status": code, "headers": headers})
        await self.send({"type": "http.response.body", "body": json_bytes({"error": error.as_dict()})})

    def _challenge(self, error: HarkenError) -> str:
        said = [f'resource_metadata="{self._metadata}"'] if self._metadata else []
        said += ['error="invalid_token"'] if isinstance(error, _RefusedTokenError) else []
        return " ".join(["Bearer", ", ".join(said)]).rstrip()

    async def end(self, error: HarkenError) -> None:
        """End it: what was begun is cut off, and nothing else has gone."""
        if not self._has_begun:
            await self.refuse(error)
        elif not self._is_over:
            await self.send({"type": "http.response.body", "body": b""})


def address_of(scope: Scope, proxies: Collection[str]) -> str:
    """Return where a request came from: of a named proxy, the last address in its headers that is no proxy's.

    Some proxies add a header of their own below the one that the client has sent.
    """
    client = scope.get("client")
    address = plain_address(str(client[0])) if client else ""
    if address not in proxies:
        return address
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for"))
    named = [without_port(each.strip()) for each in forwarded.split(",") if each.strip()]
    return next((each[:64] for each in reversed(named) if each not in proxies), address)


class RemoteDoor:
    """The routes for programs elsewhere."""

    def __init__(
        self,
        tokens: Tokens,
        clock: Clock,
        *,
        gate: GateSettings,
        api_routes: Callable[[Callable[[Request], CallContext]], Sequence[Route]],
        call_context: Callable[[Caller], CallContext],
        means: AgentServices,
        load: Callable[[], Awaitable[ModuleType]],
    ) -> None:
        self._gate = gate
        self._issuer = gate.issuer
        self._tokens = tokens
        self._clock = clock
        self._api_routes = api_routes
        self._call_context = call_context
        self._means = means
        self._load = load  # imports the SDK, and what it serves
        self._agents: ASGIApp | None = None
        self._starting = anyio.Lock()
        self._wanted = anyio.Event()
        self._running = anyio.Event()

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        gate = partial(TokenGate, tokens=self._tokens, clock=self._clock, settings=self._gate)
        told = [Route(place, self._told) for place in (METADATA, f"{METADATA}{MCP_PATH}")] if self._issuer else []
        api = [Route(each.path, gate(each.app), methods=["POST"]) for each in self._api_routes(self._context_of)]
        return [*api, *told, Route(MCP_PATH, gate(self._mcp, kinds=(AGENT_TOKEN,))), Route("/healthz", _health)]

    async def run(self) -> None:
        """Serve MCP from the first request on: importing the SDK takes long, and most daemons need no part of this."""
        await self._wanted.wait()
        agents = (await self._load()).RemoteAgents(self._means)

        def revoked(token: Token) -> None:
            agents.end(token.name)

        self._tokens.observe(revoked)
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(agents.run)
                self._agents = agents
                self._running.set()
        finally:
            self._agents, self._running = None, anyio.Event()

    async def _told(self, _request: Request) -> Response:
        """Tell clients who issues tokens for this address (RFC 9728)."""
        said: dict[str, object] = {}
        if self._issuer is not None:
            said = {
                "resource": self._issuer.resource,
                "authorization_servers": [self._issuer.name],
                "bearer_methods_supported": ["header"],
                "resource_name": "Harken",
            }
        return Response(json_bytes(said), media_type="application/json", headers=dict(HEADERS))

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._wanted.set()
        await self._running.wait()
        if self._agents is None:
            raise Unavailable("The daemon is stopping.", "Try again in a moment.")
        await self._agents(scope, receive, send)

    def _context_of(self, request: Request) -> CallContext:
        return self._call_context(request.scope["state"][HOLDER])


def metadata_url(issuer: JwtIssuer | None) -> str:
    """Return where clients learn who issues tokens; empty without an issuer."""
    return "" if issuer is None else f"{issuer.resource.removesuffix(MCP_PATH)}{METADATA}{MCP_PATH}"


async def _health(_request: Request) -> Response:
    return Response(json_bytes({"status": "ok"}), media_type="application/json", headers=dict(HEADERS))
