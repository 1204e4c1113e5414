"""Who may speak HTTP to the daemon: the right Host, no foreign Origin, the token or the proof of a signed-in page.

Host and Origin stop web pages the person happens to visit (also through DNS rebinding); the token and the proofs, which
only the same user's programs can have or make, stop everyone else. Nothing that a browser sends by itself counts: a
browser that only goes to an address gets the shell of the page, which holds no data. Where the system tells which
program asks, one of another account or of a run is refused in spite of any proof; only probes are for everyone. Every
answer leaves with headers that keep a page from loading or running anything of others, and others from embedding it.

A browser that asks for the script of a service worker gets one that ends itself: it belongs to a program that had this
address while Harken was away. Only where Harken holds the certificate of the public address, so that no other program
can have that, there is one that shows notifications.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Self

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.errors import Forbidden, HarkenError, UserError
from harken.surfaces.web import page_sessions
from harken.surfaces.web.page_sessions import SignedRequest
from harken.surfaces.web.shell import FORBIDDEN, TOO_LARGE, UNAUTHORIZED, PageShell, error_answer, wants_page
from harken.surfaces.web.signin import VISIT, PageVisit, SignIns
from harken.surfaces.wire import Answering, WholeRequests

MAX_BODY = 4 * 1024 * 1024  # a text that becomes a file may be long
PROBES = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = frozenset({*PROBES, "/sign-in"})
OPEN_FOLDER = "/static/"
SAFE_METHODS = frozenset({"GET", "HEAD"})
OK = 200
REDIRECTS = frozenset({301, 302, 303, 307, 308})
OWN_SITES = frozenset({"", "same-origin", "none"})  # not sent, our own page, typed or opened by the person
ONCE = ("host", "origin", "authorization", "content-length", page_sessions.PROOF_HEADER)
IS_OPEN = "is_page_session_open"  # in the state of a request: tells whether its session has not ended meanwhile

ClientCheck = Callable[[Scope], Forbidden | None]
"""Says why a request is refused because of the program that it comes from, whatever it carries."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        # Not no-referrer: with that a browser says `Origin: null` when it sends a form of our own page.
        "referrer-policy": "same-origin",
    }
)


_DRESS: Final = tuple(
    (name.encode(), value.encode()) for name, value in (*HEADERS.items(), ("cache-control", "no-store"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """Why a request is not let through."""

    status: int
    error: HarkenError


@dataclass(frozen=True, slots=True, kw_only=True)
class _GuardedRequest:
    """The part of a request that decides."""

    method: str
    path: str
    target: str
    headers: Mapping[str, str]
    is_ambiguous: bool

    @classmethod
    def of(cls, scope: Scope) -> Self:
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        names = [name for name, _ in pairs]
        query = scope["query_string"].decode("latin-1")
        return cls(
            method=scope["method"],
            path=scope["path"],
            target=scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            headers=dict(pairs),
            is_ambiguous=any(names.count(name) > 1 for name in ONCE),
        )

    def get(self, name: str) -> str:
        return self.headers.get(name, "")

    @property
    def is_open(self) -> bool:
        return self.path in OPEN_PATHS or self.path.startswith(OPEN_FOLDER)

    @property
    def is_worker(self) -> bool:
        """Whether a browser asks for the script of a service worker."""
        return self.get("service-worker") == "script"

    @property
    def is_bare(self) -> bool:
        """Whether it has nothing that could let it through."""
        return "authorization" not in self.headers and page_sessions.PROOF_HEADER not in self.headers

    @property
    def is_shown(self) -> bool:
        """Whether a browser would show the answer to a person."""
        return self.method in SAFE_METHODS and wants_page(self.get("accept"))


class HttpGuard:
    """ASGI middleware that lets only the person's own programs and pages through.

    Without a token no program is let through: there are only pages. `scheme` is that of the page's address.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Collection[str],
        sign_ins: SignIns,
        shell: PageShell,
        scheme: str = "http",
        refuse_client: ClientCheck | None = None,
        calls: WholeRequests | None = None,
    ) -> None:
        self._app = app
        self._calls = calls
        self._refuse_client = refuse_client
        self._token = token.encode()
        self._scheme = scheme
        self._hosts = frozenset(hosts)
        self._sign_ins = sign_ins
        self._shell = shell
        self._style = shell.style

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            return
        asked = _GuardedRequest.of(scope)
        dressed = _dressed(send)
        refusal = self._stranger(scope) or self._refusal(asked)
        if refusal is not None:
            await self._answer(asked, refusal)(scope, receive, dressed)
        elif asked.is_worker:
            await self._shell.worker(asked.path)(scope, receive, dressed)
        elif asked.is_open or "authorization" in asked.headers:
            await self._app(scope, bounded_body(receive), dressed)
        elif asked.is_bare:
            await self._shell.page()(scope, receive, dressed)
        else:
            await self._visit(asked, scope, receive, dressed)

    def begin(self, scope: Scope, body: bytes) -> Answering | None:
        """Return what answers a call of a program that has the token; all else is left to the steps of ASGI."""
        if self._calls is None or scope["type"] != "http" or scope["method"] != "POST":
            return None
        asked = _GuardedRequest.of(scope)
        is_plain = "authorization" in asked.headers and "upgrade" not in asked.headers and not asked.is_worker
        if not is_plain or len(body) > MAX_BODY or asked.is_open or self._stranger(scope) or self._refusal(asked):
            return None
        return self._calls.begin(scope, body)

    async def _visit(self, asked: _GuardedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what a signed-in page asks, once what it sent is what it proved."""
        asking = SignedRequest(method=asked.method, host=asked.get("host"), target=asked.target)
        visit = self._sign_ins.check(asked.get(page_sessions.PROOF_HEADER), asking)
        if visit is not None and asked.get(page_sessions.HERE_HEADER):
            self._sign_ins.sessions.note_here()
        if visit is None:
            await self._answer(asked, self._signed_out())(scope, receive, send)
            return
        answered = _proven(send, visit)
        body = await _whole(receive)
        if isinstance(body, _Refusal):
            await self._answer(asked, body)(scope, receive, answered)
        elif page_sessions.is_same(visit.proof.body, page_sessions.body_hash(body)):
            name = visit.session.id
            scope["state"] = {
                **scope.get("state", {}),
                VISIT: visit,
                IS_OPEN: partial(self._sign_ins.sessions.is_open, name),
            }
            await self._app(scope, _again(body, receive), answered)
        else:
            await self._answer(asked, self._signed_out())(scope, receive, send)

    def _answer(self, asked: _GuardedRequest, refusal: _Refusal) -> ASGIApp:
        answer = error_answer(refusal.error, refusal.status, as_page=asked.is_shown, style=self._style)
        if refusal.status == UNAUTHORIZED:
            # With it a page that was open while the daemon restarted goes on.
            answer.headers[page_sessions.TICKET_HEADER] = self._sign_ins.tickets.issue()
        return answer

    def _stranger(self, scope: Scope) -> _Refusal | None:
        if self._refuse_client is None or scope["path"] in PROBES:
            return None
        error = self._refuse_client(scope)
        return _Refusal(status=FORBIDDEN, error=error) if error is not None else None

    def _refusal(self, asked: _GuardedRequest) -> _Refusal | None:
        host, origin = asked.get("host"), asked.headers.get("origin")
        if asked.is_ambiguous:
            return _Refusal(status=FORBIDDEN, error=Forbidden("A header is sent twice.", "Send each header once."))
        if host not in self._hosts:
            hint = "Use the address that `harken status` shows."
            return _Refusal(status=FORBIDDEN, error=Forbidden("This host name is not served.", hint))
        if origin is not None and origin != f"{self._scheme}://{host}":
            return _foreign()
        if not (asked.is_open or asked.is_worker) and (refusal := self._unknown(asked)) is not None:
            return refusal
        length = asked.get("content-length")
        if length and not (length.isdecimal() and int(length[:20]) <= MAX_BODY):
            return _Refusal(status=TOO_LARGE, error=too_large())
        return None

    def _signed_out(self) -> _Refusal:
        error = Forbidden("You are not signed in.", f"In a terminal: {self._shell.command}")
        return _Refusal(status=UNAUTHORIZED, error=error)

    def _unknown(self, asked: _GuardedRequest) -> _Refusal | None:
        """Return why a request is refused, or None; a proof is looked at later."""
        if "authorization" in asked.headers:
            scheme, _, given = asked.get("authorization").partition(" ")
            is_right = hmac.compare_digest(given.strip().encode("latin-1"), self._token)
            if self._token and scheme.lower() == "bearer" and is_right:
                return None
            return _Refusal(status=FORBIDDEN, error=_no_token())
        if asked.is_bare:
            return None if asked.is_shown else self._signed_out() if not self._token else _unnamed()
        is_own = asked.get("sec-fetch-site") in OWN_SITES and (
            asked.method in SAFE_METHODS or "origin" in asked.headers
        )
        return None if is_own else _foreign()  # Origin was compared before, if it is there


def too_large() -> UserError:
    """Return the error of a body that is too large."""
    return UserError("The body is too large.", f"At most {MAX_BODY} bytes.")


def _foreign() -> _Refusal:
    error = Forbidden("Requests from other pages are not served.", "Use the address that `harken status` shows.")
    return _Refusal(status=FORBIDDEN, error=error)


def _unnamed() -> _Refusal:
    return _Refusal(status=UNAUTHORIZED, error=_no_token())


def _no_token() -> Forbidden:
    return Forbidden("A token is needed.", "Send the content of HOME/token as a bearer token.")


def bounded_body(receive: Receive) -> Receive:
    """Return how a body is received: with an error when it is longer than it may be or than it said."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(TOO_LARGE)
        return message

    return bounded


async def _whole(receive: Receive) -> bytes | _Refusal:
    """Return a body as a whole; it is looked at before it is acted on."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return _Refusal(status=TOO_LARGE, error=too_large())
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return how a body is received that was received before."""
    is_told = False

    async def again() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _proven(send: Send, visit: PageVisit) -> Send:
    """Return how an answer to a page is sent: with the proof that it is ours.

    Where to go next is told in a header: a browser that went there by itself would repeat the proof, which counts once.
    """

    async def proven(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if message["status"] in REDIRECTS and "location" in headers:
                message["status"] = OK
                headers["hx-redirect"] = headers["location"]
                del headers["location"]
            headers[page_sessions.ANSWER_HEADER] = page_sessions.answer_of(visit.key, visit.proof, message["status"])
        await send(message)

    return proven


def dressed(*headers: tuple[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of an answer, with those that every answer has."""
    return (*headers, *_DRESS)


def _dressed(send: Send) -> Send:
    """Return how an answer is sent: with the headers that every answer has."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return dressed
