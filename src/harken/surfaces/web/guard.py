"""Who may speak HTTP to the daemon: the right Host, no foreign Origin, the token or a signed-in browser.

Host and Origin stop web pages the person happens to visit (also through DNS rebinding); the token and the cookie,
which only the same user has, stop everyone else. Where the system tells whose program asks, that of another account is
refused whatever it has; only probes are for everyone. A browser sends the cookie also when another page makes it
ask, so with the cookie a request must show that it comes from our own page. Every answer leaves with headers that keep
a page from loading or running anything of others, and others from embedding it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harken.errors import HarkenError, Refused, UserError
from harken.surfaces.web.answers import FORBIDDEN, TOO_LARGE, UNAUTHORIZED, error_answer, plain_page, wants_page
from harken.surfaces.web.signin import SignIns

MAX_BODY = 1024 * 1024
PROBES = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = frozenset({*PROBES, "/sign-in"})
OPEN_FOLDER = "/static/"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"", "same-origin", "none"})  # not sent, our own page, typed or opened by the person
ONCE = ("host", "origin", "authorization", "content-length")

AccountCheck = Callable[[Scope], bool]
"""Tells whether a request comes from a program of our own account."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """Why a request is not let through."""

    status: int
    error: HarkenError
    again: bool = False  # whether a person who follows a link of the answer may get further


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The part of a request that decides."""

    method: str
    path: str
    headers: Mapping[str, str]
    is_ambiguous: bool

    @classmethod
    def of(cls, scope: Scope) -> Self:
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        names = [name for name, _ in pairs]
        headers: dict[str, str] = {}
        for name, value in pairs:
            # A browser may send its cookies in several headers.
            headers[name] = f"{headers[name]}; {value}" if name == "cookie" and name in headers else value
        return cls(
            method=scope["method"],
            path=scope["path"],
            headers=headers,
            is_ambiguous=any(names.count(name) > 1 for name in ONCE),
        )

    def get(self, name: str) -> str:
        return self.headers.get(name, "")

    @property
    def is_open(self) -> bool:
        return self.path in OPEN_PATHS or self.path.startswith(OPEN_FOLDER)

    @property
    def is_navigation(self) -> bool:
        """Whether the person's own window goes there, rather than a frame or something inside another page."""
        return self.get("sec-fetch-mode") == "navigate" and self.get("sec-fetch-dest") == "document"


class Guard:
    """ASGI middleware that lets only the person's own programs and browsers through."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Collection[str],
        sign_ins: SignIns,
        style: str = "",
        is_ours: AccountCheck | None = None,
    ) -> None:
        self._app = app
        self._is_ours = is_ours
        self._token = token.encode()
        self._hosts = frozenset(hosts)
        self._sign_ins = sign_ins
        self._style = style

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            return
        asked = _Asked.of(scope)
        refusal = self._stranger(scope) or self._refusal(asked)
        dressed = _dressed(send)
        if refusal is None:
            await self._app(scope, _bounded(receive), dressed)
        else:
            await self._answer(asked, refusal)(scope, receive, dressed)

    def _answer(self, asked: _Asked, refusal: _Refusal) -> ASGIApp:
        is_page = wants_page(asked.get("accept"))
        if is_page and refusal.again:
            title, hint = "You are not signed in.", "Run this in a terminal. It opens this page again, signed in."
            command, style = "harken open", self._style
            return plain_page(title, hint, status=refusal.status, style=style, command=command, again="/")
        return error_answer(refusal.error, refusal.status, as_page=is_page, style=self._style)

    def _stranger(self, scope: Scope) -> _Refusal | None:
        if self._is_ours is None or scope["path"] in PROBES or self._is_ours(scope):
            return None
        hint = "Each account has its own daemon: harken up"
        return _Refusal(status=FORBIDDEN, error=Refused("This daemon belongs to another user.", hint))

    def _refusal(self, asked: _Asked) -> _Refusal | None:
        host, origin = asked.get("host"), asked.headers.get("origin")
        if asked.is_ambiguous:
            return _Refusal(status=FORBIDDEN, error=Refused("A header is there twice.", "Send each header once."))
        if host not in self._hosts:
            hint = "Use the address that `harken status` shows."
            return _Refusal(status=FORBIDDEN, error=Refused("This host name is not served.", hint))
        if origin is not None and origin != f"http://{host}":
            return _foreign()
        if not asked.is_open and (refusal := self._unknown(asked, host)) is not None:
            return refusal
        length = asked.get("content-length")
        if length and not (length.isdecimal() and int(length[:20]) <= MAX_BODY):
            return _Refusal(status=TOO_LARGE, error=too_large())
        return None

    def _unknown(self, asked: _Asked, host: str) -> _Refusal | None:
        """Return why whoever asks is not the person, or None."""
        if "authorization" in asked.headers:
            scheme, _, given = asked.get("authorization").partition(" ")
            is_right = hmac.compare_digest(given.strip().encode("latin-1"), self._token)
            if scheme.lower() == "bearer" and is_right:
                return None
            return _Refusal(status=FORBIDDEN, error=_no_token())
        if not self._sign_ins.is_signed_in(asked.get("cookie"), host):
            return _Refusal(status=UNAUTHORIZED, error=_no_token(), again=True)
        is_own = asked.get("sec-fetch-site") in OWN_SITES
        if asked.method not in SAFE_METHODS:
            # Origin was compared before, if it is there.
            return None if is_own and "origin" in asked.headers else _foreign()
        return None if is_own or asked.is_navigation else _foreign()


def too_large() -> UserError:
    """Return the error of a body that is too large."""
    return UserError("The body is too large.", f"At most {MAX_BODY} bytes.")


def _foreign() -> _Refusal:
    error = Refused("Requests from other pages are not served.", "Use the address that `harken status` shows.")
    return _Refusal(status=FORBIDDEN, error=error)


def _no_token() -> Refused:
    return Refused("A token is needed.", "Send the content of HOME/token as a bearer token.")


def _bounded(receive: Receive) -> Receive:
    """Return how a body is received that ends in an error when it is longer than it may be, whatever it said."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(TOO_LARGE)
        return message

    return bounded


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
