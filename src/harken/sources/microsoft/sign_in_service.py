"""HTTP to the sign-in service, for msal and for the Agent User: every failure as one of our errors, and nothing logged.

msal is given a `SignInService` as its HTTP client. It lets nothing through but JSON: msal would write an answer that is
cut in half into the log, with the tokens in it. It also notes how far our clock is from the service's. It blocks, and
is called in threads; each request is bounded in time and size. Below are httpx2, the clock and the errors.
"""

from __future__ import annotations

import importlib
import json
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final, Protocol

import httpx2

from harken.clock import Clock
from harken.errors import Unavailable
from harken.sources.http import seconds_of
from harken.sources.microsoft.settings import DelegatedSettings
from harken.sources.microsoft.sign_in_errors import LATER_SECONDS

STEP_SECONDS: Final = 10.0  # to connect, or for the next byte
REQUEST_SECONDS: Final = 20.0
MAX_BYTES: Final = 1_000_000
RETRY_SECONDS: Final = 30.0
MAX_RETRY_SECONDS: Final = 3_600.0
AGREED_SECONDS: Final = 1.5  # clocks that differ by no more than can be told

_OK: Final = 200
_BUSY: Final = 429
_BROKEN: Final = 500
_MOVED: Final = range(300, 400)


class AuthorityNotFound(Exception):
    """There is no sign-in at that address; `answer` is what the service says about it."""

    def __init__(self, answer: Mapping[str, object]) -> None:
        super().__init__("there is no sign-in at that address")
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInReply:
    """An answer, as msal reads them. Its text may hold tokens."""

    status_code: int
    text: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def raise_for_status(self) -> None:
        """Do nothing: what fails was raised before this was made."""

    @property
    def body(self) -> dict[str, object]:
        """What the answer says."""
        got = json.loads(self.text)
        return got if isinstance(got, dict) else {}


class SignInService:
    """Talks to a sign-in service. `trust` is whose certificates are believed; True: those the system believes."""

    def __init__(self, clock: Clock, *, trust: ssl.SSLContext | bool = True) -> None:
        self._clock = clock
        self._trust = trust
        self.skew_seconds: float | None = None  # how far our clock is ahead; None: nobody said yet

    def their_time(self, moment: datetime) -> datetime:
        """Return a moment of our clock by theirs, as far as it is known: they tell whole seconds."""
        skew = self.skew_seconds or 0.0
        return moment if 0 <= skew <= AGREED_SECONDS else moment - timedelta(seconds=skew)

    def post(self, url: str, **request: object) -> SignInReply:
        """Post a form and return the answer, a refusal included; raises `Unavailable`."""
        return self._ask("POST", url, request)

    def get(self, url: str, **request: object) -> SignInReply:
        """Return what is at an address; raises `AuthorityNotFound` and `Unavailable`."""
        reply = self._ask("GET", url, request)
        if reply.status_code != _OK:
            raise AuthorityNotFound(reply.body)
        return reply

    def close(self) -> None:
        """Do nothing: a connection lasts for one request, because there are few."""

    def _ask(self, method: str, url: str, request: Mapping[str, object]) -> SignInReply:
        if not url.lower().startswith("https://"):
            raise Unavailable("The sign-in service names an address that is not https.", "Check the authority.")
        try:
            reply = self._reply(method, url, request)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as exc:
            raise _unreachable(exc) from None  # its text may hold the address with its parameters
        status = reply.status_code
        if status == _BUSY or status >= _BROKEN:
            raise Unavailable(
                f"The sign-in service is busy or broken ({status}).",
                "Nothing needs to be done: it is tried again.",
                retry_after=self._retry_after(reply),
            )
        try:
            is_readable = status not in _MOVED and isinstance(json.loads(reply.text), dict)
        except ValueError:
            is_readable = False
        if not is_readable:
            raise Unavailable(
                f"The sign-in service answers with something unreadable ({status}).",
                "Check whether this network asks you to sign in to itself first.",
                retry_after=RETRY_SECONDS,
            )
        return reply

    def _reply(self, method: str, url: str, request: Mapping[str, object]) -> SignInReply:
        end = monotonic() + REQUEST_SECONDS
        with (
            httpx2.Client(verify=self._trust, timeout=STEP_SECONDS, follow_redirects=False) as client,
            client.stream(
                method,
                url,
                params=_pairs(request.get("params")) or None,
                data=_pairs(request.get("data")) or None,
                headers={"Accept": "application/json", **_pairs(request.get("headers"))},
            ) as response,
        ):
            self._note_time(response.headers.get("date", ""))
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES or monotonic() > end:
                    raise httpx2.ReadTimeout("the answer has no end")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return SignInReply(status_code=response.status_code, text=body.decode("utf-8", "replace"), headers=headers)

    def _note_time(self, date: str) -> None:
        theirs = _moment(date)
        if theirs is not None:
            self.skew_seconds = (self._clock.now() - theirs).total_seconds()

    def _retry_after(self, reply: SignInReply) -> float:
        text = reply.headers.get("retry-after", "").strip()
        moment = _moment(text)
        if text.isascii() and text.isdigit():
            seconds = float(text[:9])
        elif moment is not None:
            seconds = (moment - self._clock.now()).total_seconds()
        else:
            seconds = RETRY_SECONDS
        return min(max(seconds, 1.0), MAX_RETRY_SECONDS)


def _pairs(values: object) -> dict[str, str]:
    """Return what msal gives as parameters, form or headers, without what it left open."""
    items = values.items() if isinstance(values, Mapping) else ()
    return {str(name): str(value) for name, value in items if value is not None}


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None


def _unreachable(exc: Exception) -> Unavailable:
    if isinstance(exc, httpx2.TimeoutException):
        return Unavailable("The sign-in service does not answer.", "Check the network.", retry_after=RETRY_SECONDS)
    if isinstance(exc.__cause__, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(exc):
        return Unavailable(
            "The certificate of the sign-in service is not trusted here.",
            "Check the clock, the authority, and whether something reads this network's traffic.",
            retry_after=RETRY_SECONDS,
        )
    return Unavailable("The sign-in service cannot be reached.", "Check the network.", retry_after=RETRY_SECONDS)


INTERVAL_SECONDS: Final = 5.0  # between two questions, where the service does not say

# What msal raises on answers it did not expect. Their text may hold the answer: it goes no further.
_SURPRISES: Final = (ValueError, KeyError, TypeError, AttributeError, AssertionError, RuntimeError)


class _Tokens(Protocol):
    def serialize(self) -> str: ...

    def deserialize(self, state: str) -> None: ...


class _MsalClient(Protocol):
    def initiate_device_flow(self, scopes: list[str]) -> dict[str, object]: ...

    def acquire_token_by_device_flow(
        self, flow: dict[str, object], *, exit_condition: Callable[[object], bool]
    ) -> dict[str, object]: ...

    def initiate_auth_code_flow(
        self, scopes: list[str], redirect_uri: str, state: str, *, prompt: str, response_mode: str
    ) -> dict[str, object]: ...

    def acquire_token_by_auth_code_flow(
        self, auth_code_flow: dict[str, object], auth_response: dict[str, str]
    ) -> dict[str, object]: ...

    def get_accounts(self) -> Sequence[object]: ...

    def acquire_token_silent_with_error(
        self, scopes: list[str], account: object, *, force_refresh: bool, claims_challenge: str | None
    ) -> dict[str, object] | None: ...


class SignInApp:
    """One conversation with the sign-in service, and the tokens that came of it. Made by `open_app`."""

    def __init__(self, client: _MsalClient, tokens: _Tokens, scopes: Sequence[str]) -> None:
        self._client = client
        self._tokens = tokens
        self._scopes = list(scopes)

    def tokens(self) -> str:
        """Return the tokens as text, for the cache only."""
        return self._tokens.serialize()

    def begin_code(self) -> dict[str, object]:
        """Ask for a code to show; the answer is also what `ask_code` wants."""
        with _no_surprises():
            flow = self._client.initiate_device_flow(self._scopes)
        # Of an interval of 0 msal makes a loop that never rests.
        return {**flow, "interval": max(int(seconds_of(flow.get("interval"), INTERVAL_SECONDS)), 1)}

    def ask_code(self, flow: dict[str, object]) -> Mapping[str, object]:
        """Ask once whether the code was entered."""
        with _no_surprises():
            return self._client.acquire_token_by_device_flow(flow, exit_condition=lambda _: True)

    def begin_browser(self, address: str, state: str) -> dict[str, object]:
        """Make the page that the person is to open, which answers to `address`; it is also what `end_browser` wants."""
        with _no_surprises():
            return self._client.initiate_auth_code_flow(
                self._scopes, address, state, prompt="select_account", response_mode="form_post"
            )

    def end_browser(self, flow: dict[str, object], given: Mapping[str, str]) -> Mapping[str, object]:
        """Get the tokens for what the browser brought back."""
        with _no_surprises():
            return self._client.acquire_token_by_auth_code_flow(flow, dict(given))

    def renew(self, claims: str = "") -> Mapping[str, object] | None:
        """Get a new token without the person, with some claims if asked; returns nothing if nobody is signed in."""
        with _no_surprises():
            accounts = self._client.get_accounts()
            account = accounts[0] if accounts else None
            return self._client.acquire_token_silent_with_error(
                self._scopes, account, force_refresh=True, claims_challenge=claims or None
            )


def open_app(settings: DelegatedSettings, service: SignInService, tokens: str = "") -> SignInApp:
    """Begin a conversation, with tokens of an earlier one; raises `AuthorityNotFound` and `Unavailable`."""
    msal = importlib.import_module("msal")
    # It logs addresses with their parameters, and whole answers that it cannot read.
    logging.getLogger("msal").setLevel(logging.CRITICAL)
    kept: _Tokens = msal.SerializableTokenCache()
    with _no_surprises():
        kept.deserialize(tokens)
        client: _MsalClient = msal.PublicClientApplication(
            settings.client_id,
            authority=f"{settings.authority}/{settings.tenant}",
            token_cache=kept,
            http_client=service,
            instance_discovery=False,  # whom to ask is the person's choice; it saves asking yet another place
        )
    return SignInApp(client, kept, settings.scopes)


def surprise() -> Unavailable:
    """Return what to raise for an answer that is not understood."""
    return Unavailable(
        "The sign-in service answers in a way that is not understood.",
        "Try again; if it stays, check the tenant and the authority.",
        retry_after=LATER_SECONDS,
    )


@contextmanager
def _no_surprises() -> Iterator[None]:
    try:
        yield
    except AuthorityNotFound:
        raise
    except _SURPRISES:
        raise surprise() from None
