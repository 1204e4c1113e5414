"""Signing in: a link that works once makes a browser hold a key that never leaves it.

`harken open` asks for the link. Its secret stands behind the `#`, which no browser sends: the page shows that it has
it, the daemon shows the same, and only then gives the page its key, hidden under the secret. Another program that
listens at this port gets nothing of worth, and cannot pass for the daemon. A link lasts two minutes, works once and is
held in memory only. Each request then proves that its sender holds the key (`proofs.py`); what is refused besides is in
`guard.py`. The routes are `/sign-in`, `/renew-key` and `/sign-out`. The page of a link holds no data; what it does is
in `page/static/signin.js`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.clock import Clock
from harken.errors import Forbidden
from harken.inbox.access import TokenRequest
from harken.surfaces.web.page_sessions import (
    NumberState,
    PageSession,
    PageSessions,
    Proof,
    SignedRequest,
    TicketBook,
    encoded,
    is_same,
    masked,
    tagged,
)
from harken.surfaces.web.shell import FORBIDDEN, PageShell, error_answer, json_answer

LINK_SECONDS: Final = 120
PHONE_LINK_SECONDS: Final = 300  # a phone has to be found, unlocked and held up
MAX_LINKS: Final = 8
_SECRET_BYTES: Final = 32
_MAX_NONCE: Final = 64
MAX_SIGN_IN: Final = 4_096  # bytes: this is read of everyone


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says to get its next key: a text that it made up."""

    nonce: str


class SignInRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says to sign in: which link, a text that it made up, and what only the link's secret can make."""

    link: str
    nonce: str
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInAnswer:
    """What the daemon says: the session, its key hidden under the link's secret, and that it knows that secret."""

    session: str
    key: str
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    """A link that is open. `phone` is the token that its phone gets; None for a browser of this machine."""

    secret: bytes
    until: float
    phone: TokenRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVisit:
    """A request with a good proof, and the key that made it."""

    session: PageSession
    proof: Proof
    key: bytes
    generation: int


class SignIns:
    """The links that are open now, the sessions they become, and the proofs of those."""

    def __init__(self, sessions: PageSessions, clock: Clock, *, seconds: float = LINK_SECONDS) -> None:
        self.sessions = sessions
        self.seconds = seconds  # how long a link is good
        self.tickets = TicketBook(clock)
        self._clock = clock
        self._open: dict[str, SignInLink] = {}  # by what the page calls it

    @property
    def open_links(self) -> Sequence[SignInLink]:
        """The links that are good now."""
        return [each for each in self._open.values() if self._is_good(each)]

    def link(self, base_url: str, phone: TokenRequest | None = None) -> str:
        """Return an address that signs one browser in, once; the oldest goes when there are too many."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        link = SignInLink(secret=secret, until=self._now() + self.seconds, phone=phone)
        self._open = dict([*self._open.items(), (tagged(secret, "harken link 1"), link)][-MAX_LINKS:])
        return f"{base_url}/sign-in#{encoded(secret)}"

    def redeem(self, asked: SignInRequest, host: str, browser: str) -> SignInAnswer | None:
        """Use a link up, and return what signs its browser in; None when it is not good."""
        link = self.take(asked, host)
        return None if link is None else self.answer(link, asked, self.sessions.begin(host, browser))

    def take(self, asked: SignInRequest, host: str) -> SignInLink | None:
        """Use a link up; return it, or None when it is not good."""
        link = self._open.get(asked.link)
        if link is None or not 0 < len(asked.nonce) <= _MAX_NONCE or "\n" in asked.nonce:
            return None
        if not is_same(asked.proof, tagged(link.secret, "harken page 1", asked.nonce, host)):
            return None
        others = {name: each for name, each in self._open.items() if name != asked.link}
        self._open = {name: each for name, each in others.items() if self._is_good(each)}
        return link if self._is_good(link) else None

    def answer(self, link: SignInLink, asked: SignInRequest, session: PageSession) -> SignInAnswer:
        """Return what signs the browser of a link in to its session."""
        pad = tagged(link.secret, "harken key 1", asked.nonce, session.id, session.host)
        key = encoded(masked(self.sessions.key(session), pad))
        proof = tagged(link.secret, "harken daemon 1", asked.nonce, session.id, session.host, key)
        return SignInAnswer(session=session.id, key=key, proof=proof)

    def check(self, header: str, asking: SignedRequest) -> PageVisit | None:
        """Return the session of a request; None when its proof is not good, or is good no longer."""
        proof = Proof.parse(header)
        session = self.sessions.find(proof.session, asking.host) if proof is not None else None
        if proof is None or session is None:
            return None
        keys = {generation: self.sessions.key(session, generation) for generation in self.sessions.generations(session)}
        generation = next((each for each, key in keys.items() if proof.is_signed(key, asking)), None)
        if generation is None or self.tickets.take(session.id, proof.ticket, proof.number) is not NumberState.NEW:
            return None
        self.sessions.use(session.id, generation)
        return PageVisit(session=session, proof=proof, key=keys[generation], generation=generation)

    def renew(self, visit: PageVisit, nonce: str) -> str | None:
        """Return the next key of a session, hidden under the one that its page has."""
        if not 0 < len(nonce) <= _MAX_NONCE or "\n" in nonce:
            return None
        key = self.sessions.renew(visit.session.id, visit.generation)
        return None if key is None else encoded(masked(key, tagged(visit.key, "harken next key 1", nonce)))

    def _is_good(self, link: SignInLink) -> bool:
        # A clock that was set back must not make a link last longer than it was made for.
        return self._now() < link.until <= self._now() + self.seconds

    def _now(self) -> float:
        return self._clock.now().timestamp()


UNKNOWN: Final = "a browser"

# The order matters: each of them also calls itself what comes after it.
_BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_name(agent: str) -> str:
    """Return the name and version of a browser and its system, as far as its User-Agent says."""
    for mark, name in _BROWSERS:
        if (found := re.search(rf"{re.escape(mark)}(\d{{1,4}})", agent)) is not None:
            system = next((f" on {title}" for sign, title in _SYSTEMS if sign in agent), "")
            return f"{name} {found[1]}{system}"
    return UNKNOWN


NO_CONTENT = 204
VISIT = "visit"  # in the state of a request: what it proved


def entry_routes(sign_ins: SignIns, shell: PageShell) -> list[Route]:
    """Return the routes."""
    return [
        Route("/sign-in", partial(_sign_in_page, shell), methods=["GET"]),
        Route("/sign-in", partial(_sign_in, sign_ins), methods=["POST"]),
        Route("/sign-out", partial(_sign_out, sign_ins), methods=["POST"]),
        renewal_route(sign_ins),
    ]


def renewal_route(sign_ins: SignIns) -> Route:
    """Return the route by which a page gets its next key."""
    return Route("/renew-key", partial(_renew, sign_ins), methods=["POST"])


async def sign_in_request(request: Request) -> SignInRequest | None:
    """Return what a page says to sign in; None for a body that is nothing of the kind, or that is longer."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_SIGN_IN:
            return None
    try:
        return msgspec.json.decode(bytes(body), type=SignInRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def used_up(command: str) -> Response:
    """Return the answer to a link that is not good."""
    return error_answer(Forbidden("This link does not work any more.", f"For a new one: {command}"), FORBIDDEN)


async def _sign_in_page(shell: PageShell, _request: Request) -> Response:
    return shell.sign_in()


async def _sign_in(sign_ins: SignIns, request: Request) -> Response:
    asked, browser = await sign_in_request(request), browser_name(request.headers.get("user-agent", ""))
    answer = None if asked is None else sign_ins.redeem(asked, request.headers["host"], browser)
    return used_up("harken open") if answer is None else json_answer(answer)


async def _renew(sign_ins: SignIns, request: Request) -> Response:
    refused = error_answer(Forbidden("There is no key to renew.", "Load the page again."), FORBIDDEN)
    visit: PageVisit | None = getattr(request.state, VISIT, None)
    try:
        asked = msgspec.json.decode(await request.body(), type=RenewRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refused
    key = sign_ins.renew(visit, asked.nonce) if visit is not None else None
    return refused if key is None else json_answer({"key": key})


async def _sign_out(sign_ins: SignIns, request: Request) -> Response:
    visit: PageVisit | None = getattr(request.state, VISIT, None)
    if visit is not None:
        sign_ins.sessions.end(visit.session.id)
    return Response(status_code=NO_CONTENT)
