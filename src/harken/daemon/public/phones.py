"""The page at the public address, for your phones: signing one in, what it may do there, and its end.

A phone is signed in by a link that works once (`harken open --phone`). From then on it is a token of the kind `phone`,
listed and revoked like any other, and a session of the page that belongs to it; no secret of that token exists. The
guard is that of the page on this machine: each request carries a proof by a key that no script can read, so there is no
cookie that a browser would send by itself. `PAGES` says what there is and which verb each address needs; everything
else of the page does not exist here, and neither does the owner's API. Until you let the first phone in, nothing of
this is there at all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.clock import Clock
from harken.config.settings import HttpSettings
from harken.daemon.public.gate import SHUT_SECONDS, TOO_MANY, UNAUTHORIZED, RequestRate, address_of
from harken.daemon.public.listener import Slowdown
from harken.errors import Conflict, Forbidden, Unavailable, UserError
from harken.inbox.access import IN_FORCE, PHONE, TokenRequest, Tokens, holder_of
from harken.inbox.caller import EVERY_MAILBOX, Caller, Grant, Role
from harken.store.contract.tokens import Token
from harken.surfaces.web.context import WebContext
from harken.surfaces.web.guard import IS_OPEN, HttpGuard
from harken.surfaces.web.page_sessions import MAX_SESSIONS, PageSession
from harken.surfaces.web.shell import PASTE, TOO_LARGE, PageShell, error_answer, json_answer, static_files, static_route
from harken.surfaces.web.signin import (
    VISIT,
    PageVisit,
    SignInAnswer,
    SignInRequest,
    SignIns,
    browser_name,
    renewal_route,
    sign_in_request,
    used_up,
)
from harken.verbs.table import VERBS
from harken.verbs.verb import CallContext, PhoneLinkMade

COMMAND: Final = "harken open --phone"
LOOK_SECONDS: Final = 600.0  # between two looks for phones that were not used for long
USUAL_NAME: Final = "phone"
NOT_FOUND: Final = 404
NO_CONTENT: Final = 204
MAX_SUBSCRIPTION: Final = 4_096  # bytes

# What you say on the command line, and the words of a token's scope that it stands for.
WORDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "read": frozenset({Grant.READ.value}),
        "answer": frozenset({Grant.READ.value, Grant.REPLY.value, "question_done"}),
        "approve": frozenset({Grant.READ.value, Grant.APPROVE.value}),
        "send": frozenset({Grant.READ.value, Grant.SEND.value}),
        "sort": frozenset({Grant.READ.value, "done", "snooze", "reopen", "unread"}),
    }
)

# The addresses of the page that a phone can reach, and the verbs, of which it needs one.
_READ: Final = ("list",)
PAGES: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "/": _READ,
        "/m/{mailbox:path}": _READ,
        "/c/{source}/{channel:path}": _READ,
        "/conversation": _READ,
        "/conversations": _READ,
        "/message/{ref}": _READ,
        "/needs": _READ,
        "/waiting": _READ,
        "/search": ("search",),
        "/events": _READ,
        "/part/asks": _READ,
        "/part/conversations": _READ,
        "/part/forecast": _READ,
        "/part/item/{ref}": _READ,
        "/part/items": _READ,
        "/part/reply/{ref}/{reply}": _READ,
        "/part/scheduled": _READ,
        "/part/sent/{ref}": _READ,
        "/part/sidebar": _READ,
        "/part/task/{task}": _READ,
        "/part/text/{ref}": _READ,
        "/part/why-not": _READ,
        "/do/seen": ("ack",),
        "/do/send": ("reply", "send"),
        "/do/settle": ("question_done",),
        "/do/approve": ("approve",),
        "/do/answer": ("confirm",),
        "/do/triage": ("done", "snooze", "reopen", "unread"),
        "/do/undo": ("reopen",),
    }
)
_NEEDS: Final[Mapping[str, Grant]] = MappingProxyType({verb.name: verb.needs for verb in VERBS})
_OPEN_ENDED: Final = ("/m/", "/c/")


def phone_scope(words: Sequence[str]) -> Sequence[str]:
    """Return what a phone's token may do; raises `UserError` for a word that means nothing."""
    if unknown := sorted(set(words) - set(WORDS)):
        raise UserError(f"A phone cannot {unknown[0][:40]!r}.", f"Use {', '.join(WORDS)}.")
    return sorted(frozenset[str]().union(*(WORDS[word] for word in words or ["read"])))


def is_let(caller: Caller, what: str) -> bool:
    """Whether a phone may do a verb, or look at an address of the page."""
    if not what.startswith("/"):
        return caller.may(what, _NEEDS.get(what, Grant.NAMED))
    verbs = _READ if what.startswith(_OPEN_ENDED) else PAGES.get(what, ())
    return any(caller.may(verb, _NEEDS[verb]) for verb in verbs)


class PhoneNotifier(Protocol):
    """Tells phones what waits, while the page is not open."""

    @property
    def key(self) -> str:
        """The key with which browsers subscribe; empty while there is none."""
        ...

    async def subscribe(self, session: str, body: bytes) -> None:
        """Tell a session from now on; raises `HarkenError` for what is no subscription of a browser."""
        ...

    def forget(self, session: str) -> None:
        """Tell a session nothing any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PhonePages:
    """What the page of a phone is made of: its parts, the calls behind them, what answers errors and what notifies.

    `is_reached` tells whether the public address is served now.
    """

    web_context: Callable[[], WebContext]
    call_context: Callable[[Caller], CallContext]
    routes: Callable[[WebContext], Sequence[Route]]
    answering: Callable[[Sequence[BaseRoute], PageShell], ASGIApp]
    notifier: PhoneNotifier | None = None
    is_reached: Callable[[], bool] = lambda: True


class PhoneDoor:
    """The page for phones: an application of its own for each, whose caller is the phone."""

    def __init__(
        self,
        settings: HttpSettings,
        tokens: Tokens,
        clock: Clock,
        sign_ins: SignIns,
        *,
        hosts: Collection[str],
        pages: PhonePages,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._clock = clock
        self._sign_ins = sign_ins
        self._pages = pages
        self._slowdown = Slowdown()
        self._rate = RequestRate()
        self._notifier = notifier = pages.notifier
        push_key = (lambda: notifier.key) if notifier is not None else str
        self._shell = PageShell(static_files(), sign_ins.tickets, COMMAND, PASTE, push_key)
        self._apps: dict[str, tuple[Token, ASGIApp]] = {}
        self._open: defaultdict[str, set[anyio.CancelScope]] = defaultdict(set)
        self._guard = HttpGuard(
            self._serve,
            token="",
            hosts=hosts,
            sign_ins=sign_ins,
            shell=self._shell,
            scheme=urlsplit(settings.public_url).scheme,
        )
        entry = [
            Route("/sign-in", self._sign_in_page, methods=["GET"]),
            Route("/sign-in", self._sign_in, methods=["POST"]),
            static_route(static_files()),
        ]
        self._entry = pages.answering(entry, self._shell)
        tokens.observe(self._ended)
        self._is_used = sign_ins.sessions.was_used

    @property
    def route(self) -> Mount:
        """The route of everything that has no other."""
        return Mount("/", self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve phones and links; where there was never any there is nothing here."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        if not (self._is_used or self._sign_ins.open_links):
            raise HTTPException(NOT_FOUND)
        await self._guard(scope, receive, send)

    async def link(self, caller: Caller, asked: TokenRequest) -> PhoneLinkMade:
        """Make the link that signs a phone in."""
        if caller.scope is not None:
            raise caller.refusal("sign a phone in")
        check_address(self._settings)
        if not self._pages.is_reached():
            raise Unavailable(f"Nothing is served at {self._settings.public_url}.", "See why: harken doctor")
        if len(self._sign_ins.sessions.all()) + len(self._sign_ins.open_links) >= MAX_SESSIONS:
            raise UserError("There are too many phones.", "See them with harken token list, and revoke one.")
        taken = {each.token.name for each in await self._tokens.list(caller) if each.state == IN_FORCE}
        taken |= {each.phone.name for each in self._sign_ins.open_links if each.phone}
        if asked.name in taken:
            raise Conflict(f"There is a token {asked.name!r} already.", "Choose another name: --name my-phone")
        names = [asked.name] if asked.name else [USUAL_NAME, *(f"{USUAL_NAME}-{n}" for n in range(2, len(taken) + 3))]
        name = next(each for each in names if each not in taken)
        wish = replace(asked, name=name, kind=PHONE, may=phone_scope(asked.may), mailboxes=[EVERY_MAILBOX])
        self._tokens.check(caller, wish)
        url = self._sign_ins.link(self._settings.public_url, wish)
        return PhoneLinkMade(url=url, name=name, may=wish.may, seconds=self._sign_ins.seconds)

    async def holder(self, session: str) -> Caller | None:
        """Return the caller of a session, while it is good."""
        found = next((each for each in self._sign_ins.sessions.all() if each.id == session), None)
        return None if found is None else await self._tokens.holder(_secret(found))

    async def run(self) -> None:
        """End, for ever, the phones that were not used for long."""
        while True:
            await self.end_lapsed()
            await anyio.sleep(LOOK_SECONDS)

    async def end_lapsed(self) -> None:
        """End the phones that were not used for long."""
        for session in self._sign_ins.sessions.lapsed():
            await self._end(session)

    async def _sign_in_page(self, _request: Request) -> Response:
        return self._shell.sign_in()

    async def _sign_in(self, request: Request) -> Response:
        """Sign a phone in: its token is made now. An address that guesses waits, and then is not listened to."""
        address = address_of(request.scope, self._settings.proxy)
        if self._slowdown.is_shut_out(address):
            refused = Unavailable("Too many wrong links came from here.", "Wait a minute.", retry_after=SHUT_SECONDS)
            return error_answer(refused, TOO_MANY)
        asked, browser = await sign_in_request(request), browser_name(request.headers.get("user-agent", ""))
        answer = None if asked is None else await self.sign_in(asked, request.headers["host"], browser)
        if answer is None:
            await self._slowdown.hold_up(address)
            return used_up(COMMAND)
        return json_answer(answer)

    async def sign_in(self, asked: SignInRequest, host: str, browser: str) -> SignInAnswer | None:
        """Use a link up, and make the token of its phone; None when the link is not good."""
        link = self._sign_ins.take(asked, host)
        if link is None or link.phone is None:
            return None
        session = self._sign_ins.sessions.begin(host, browser, link.phone.name)
        self._is_used = True
        try:
            await self._tokens.make(Caller(role=Role.OWNER), link.phone, secret=_secret(session))
        except (Conflict, UserError):  # a token of this name was made meanwhile
            self._sign_ins.sessions.end(session.id)
            return None
        return self._sign_ins.answer(link, asked, session)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit: PageVisit | None = scope.get("state", {}).get(VISIT)
        if visit is None:
            await self._entry(scope, receive, send)
            return
        try:
            token = await self._tokens.hold(_secret(visit.session), address_of(scope, self._settings.proxy))
        except Forbidden as exc:
            self._close(visit.session)
            await error_answer(exc, UNAUTHORIZED)(scope, receive, send)
            return
        if not self._rate.take(token.id):
            busy = Unavailable("This phone asks too often.", "Wait a moment.")
            await error_answer(busy, TOO_MANY)(scope, receive, send)
            return
        app = await self._app_of(visit.session, token)
        scope["state"] = {**scope["state"], IS_OPEN: partial(self._tokens.is_in_force, token)}
        until = anyio.CancelScope(deadline=anyio.current_time() + self._left(token))
        answer = _Cuttable(send)
        self._open[token.id].add(until)
        try:
            with until:
                await app(scope, receive, answer.send)
        finally:
            self._open[token.id].discard(until)
            if not self._open[token.id]:
                del self._open[token.id]
        if until.cancelled_caught:
            await answer.end()

    def _left(self, token: Token) -> float:
        if token.expires_at is None:
            return math.inf
        return max(0.0, (token.expires_at - self._clock.now()).total_seconds())

    async def _app_of(self, session: PageSession, token: Token) -> ASGIApp:
        """Return the application of a phone, made when it is asked for first."""
        known, app = self._apps.get(session.id, (None, None))
        if known is None or app is None or known.scope != token.scope:
            # The first imports the page, which takes a while.
            routes = await anyio.to_thread.run_sync(self._routes, session, holder_of(token))
            app = self._pages.answering(routes, self._shell)
            self._apps[session.id] = (token, app)
        return app

    def _routes(self, session: PageSession, caller: Caller) -> Sequence[Route]:
        def call_context(verb: str = "") -> CallContext:
            doing = caller.doing(verb, _NEEDS.get(verb, Grant.NAMED)) if verb else caller
            return self._pages.call_context(doing)

        context = replace(self._pages.web_context(), call_context=call_context, can=partial(is_let, caller))
        shown = [route for route in self._pages.routes(context) if route.path in PAGES]
        reached = [route if is_let(caller, route.path) else _refused(route) for route in shown]
        own = [Route("/sign-out", partial(self._sign_out, session), methods=["POST"])]
        if self._notifier is not None:
            own += [
                Route("/push", partial(self._notify, self._notifier, session), methods=["POST"]),
                Route("/push-off", partial(self._notify_no_more, self._notifier, session), methods=["POST"]),
            ]
        return [*reached, renewal_route(self._sign_ins), *own]

    async def _notify(self, notifier: PhoneNotifier, session: PageSession, request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_SUBSCRIPTION:
                raise HTTPException(TOO_LARGE)
        await notifier.subscribe(session.id, bytes(body))
        return Response(status_code=NO_CONTENT)

    async def _notify_no_more(self, notifier: PhoneNotifier, session: PageSession, _request: Request) -> Response:
        notifier.forget(session.id)
        return Response(status_code=NO_CONTENT)

    async def _sign_out(self, session: PageSession, _request: Request) -> Response:
        await self._end(session)
        return Response(status_code=NO_CONTENT)

    async def _end(self, session: PageSession) -> None:
        """End a session, and the token that it belongs to."""
        self._close(session)
        token = await self._tokens.known(_secret(session))
        if token is not None and token.revoked_at is None:
            await self._tokens.revoke(Caller(role=Role.OWNER), token.name)

    def _close(self, session: PageSession) -> None:
        self._sign_ins.sessions.end(session.id)
        self._apps.pop(session.id, None)
        if self._notifier is not None:
            self._notifier.forget(session.id)

    def _ended(self, token: Token) -> None:
        """End what belongs to a token that is no more: its session at once, and what is open with it."""
        if token.kind != PHONE:
            return
        for session in self._sign_ins.sessions.all():
            if session.phone == token.name:
                self._close(session)
        for scope in tuple(self._open.get(token.id, ())):
            scope.cancel()


class _Cuttable:
    """An answer that can be cut off."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_over = False
        self._has_begun = False

    async def send(self, message: Message) -> None:
        """Send a part of it."""
        self._has_begun = True
        self._is_over = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """End it: nothing follows what has gone."""
        if not self._has_begun:
            await self._send({"type": "http.response.start", "status": UNAUTHORIZED, "headers": []})
        if not self._is_over:
            await self._send({"type": "http.response.body", "body": b""})


def check_address(settings: HttpSettings) -> None:
    """Raise what has to be set before a phone can reach the page."""
    needed = (
        'In config.toml, below [http], set public_listen = "0.0.0.0:8443", public_url = "https://NAME:8443", '
        "certificate and private_key; then: harken down, harken up"
    )
    if not settings.public_url:
        raise UserError("A phone has no way to the page: http.public_url is not set.", needed)
    if not settings.public_listen:
        raise UserError("A phone has no way to the page: http.public_listen is not set.", needed)
    parts = urlsplit(settings.public_url)
    if parts.scheme != "https" or parts.path:
        raise UserError(
            f"A phone cannot use the page at {settings.public_url}.",
            "http.public_url has to begin with https:// and to end with the name or the port.",
        )


def _secret(session: PageSession) -> str:
    """Return what stands for a session among the secrets of tokens. No header can carry it."""
    return f"page session\n{session.id}\n{session.began_at.isoformat()}"


def _refused(route: Route) -> Route:
    """Return a route that says that the phone may not do this."""

    async def refuse(_request: Request) -> Response:
        raise Forbidden("This phone may not do that.", f"To let it: {COMMAND} --may read,answer,approve")

    return Route(route.path, refuse, methods=sorted(route.methods or ()))
