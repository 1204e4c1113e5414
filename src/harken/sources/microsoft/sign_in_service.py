"""HTTP to the sign-in service, for msal and for the Agent User: every failure as one of our errors, and nothing logged.

msal is given a `SignInService` as its HTTP client. It lets nothing through but JSON: msal would write an answer that is
cut in half into the log, with the tokens in it. It also notes how far our clock is from the service's. It blocks, and
is called in threads; each request is bounded in time and size. `refusal` says in plain words what a person must do:
only numbers and words that we know become part of it, because a description may name people.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from time import monotonic
from typing import Final, Protocol
from urllib.parse import urlencode

import httpx2

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.sources.feed import asked_seconds, http_date
from harken.sources.http import seconds_of
from harken.sources.microsoft.settings import SHARED_TENANTS, DelegatedSettings

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

INTERVAL_SECONDS: Final = 5.0  # between two questions, where the service does not say

# What msal raises on answers it did not expect. Their text may hold the answer: it goes no further.
_SURPRISES: Final = (ValueError, KeyError, TypeError, AttributeError, AssertionError, RuntimeError)

SKEW_SECONDS: Final = 240.0  # Entra allows 5 minutes
LATER_SECONDS: Final = 30.0
MAX_CODES: Final = 8

_NUMBER: Final = re.compile(r"AADSTS(\d{4,9})")
_WORD: Final = re.compile(r"[a-z_]{1,60}")


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
    """Talks to a sign-in service. `trust` are the certificates that are believed; True: those the system believes."""

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
                "Nothing needs to be done: Harken tries again.",
                retry_after=self._retry_after(reply),
            )
        try:
            is_readable = status not in _MOVED and isinstance(json.loads(reply.text), dict)
        except ValueError:
            is_readable = False
        if not is_readable:
            raise Unavailable(
                f"The sign-in service sent an unreadable answer ({status}).",
                "Check whether this network has a sign-in page of its own.",
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
        theirs = http_date(date)
        if theirs is not None:
            self.skew_seconds = (self._clock.now() - theirs).total_seconds()

    def _retry_after(self, reply: SignInReply) -> float:
        asked = asked_seconds(reply.headers, self._clock.now(), MAX_RETRY_SECONDS)
        return RETRY_SECONDS if asked is None else max(asked, 1.0)


def _pairs(values: object) -> dict[str, str]:
    """Return what msal gives as parameters, form or headers, without what it left open."""
    items = values.items() if isinstance(values, Mapping) else ()
    return {str(name): str(value) for name, value in items if value is not None}


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
        """Get a new token without the person, with some claims if asked; returns nothing if no account is signed in."""
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
        "The sign-in service sent an unexpected answer.",
        "Try again; if it persists, check the tenant and the authority.",
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


class RefusalCause(StrEnum):
    """Why a sign-in was refused."""

    CONSENT = "consent"
    ADMIN_CONSENT = "admin consent"
    POLICY = "conditional access"
    DECLINED = "declined"
    EXPIRED_CODE = "expired code"
    REVOKED = "revoked"
    TENANT = "tenant"
    CLIENT = "client id"
    PUBLIC_CLIENT = "public client"
    REDIRECT = "redirect address"
    SCOPE = "scope"
    ACCOUNT = "account"
    CLOCK = "clock"
    CERTIFICATE = "certificate"
    FEDERATION = "agent identity"
    LATER = "later"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalContext:
    """The account that asked: what an error needs to name the sign-in and where to go."""

    name: str  # of the source
    tenant: str
    client_id: str
    authority: str
    skew_seconds: float | None = None  # how far our clock is ahead
    is_agent: bool = False  # nobody signs in: there is a certificate

    @property
    def consent_url(self) -> str:
        """Where an administrator gives consent for the whole organisation."""
        tenant = "organizations" if self.tenant in SHARED_TENANTS else self.tenant
        return f"{self.authority}/{tenant}/adminconsent?{urlencode({'client_id': self.client_id})}"


# Microsoft may change numbers at any time: what OAuth's own words say plainly comes first, numbers refine the rest.
_PLAIN: Final[Mapping[str, RefusalCause]] = {
    "consent_required": RefusalCause.CONSENT,
    "authorization_declined": RefusalCause.DECLINED,
    "expired_token": RefusalCause.EXPIRED_CODE,
    "code_expired": RefusalCause.EXPIRED_CODE,
    "bad_verification_code": RefusalCause.EXPIRED_CODE,
    "invalid_tenant": RefusalCause.TENANT,
    "user_password_expired": RefusalCause.ACCOUNT,
    "temporarily_unavailable": RefusalCause.LATER,
    "server_error": RefusalCause.LATER,
}
_CODES: Final[Mapping[RefusalCause, frozenset[int]]] = {
    RefusalCause.ADMIN_CONSENT: frozenset({90093, 90094, 90095}),
    RefusalCause.CONSENT: frozenset({65001}),
    RefusalCause.DECLINED: frozenset({65004}),
    RefusalCause.POLICY: frozenset(
        {50005, 50072, 50074, 50076, 50078, 50079, 50097, 50125, 50129, 50131, 50155, 50158, 50187}
        | {53000, 53001, 53002, 53003, 53004, 53008, 53009, 53010, 53011, 530002, 530003, 530034, 530035, 530036}
    ),
    RefusalCause.EXPIRED_CODE: frozenset({70018, 70019, 70020}),
    RefusalCause.REVOKED: frozenset(
        {50085, 50089, 50132, 50133, 50173, 54005, 70000, 70008, 70043, 70044, 700003, 700081, 700082, 700084}
    ),
    RefusalCause.TENANT: frozenset(
        {50020, 50059, 50128, 50194, 51004, 90002, 90019, 90038, 90072, 700023, 900021, 900023}
    ),
    RefusalCause.CLIENT: frozenset({70001, 700016, 700038, 7000112}),
    RefusalCause.PUBLIC_CLIENT: frozenset({700025, 7000216, 7000218}),
    RefusalCause.REDIRECT: frozenset({50011, 500113, 9002325, 9002326}),
    RefusalCause.SCOPE: frozenset({28002, 28003, 65005, 70011, 500011, 650052, 650053, 650056, 650057}),
    RefusalCause.ACCOUNT: frozenset({50034, 50053, 50055, 50056, 50057, 50105, 50126, 50135, 50144, 530032}),
    RefusalCause.CLOCK: frozenset({500133, 700024}),
    RefusalCause.CERTIFICATE: frozenset({50006, 50012, 50013, 50027, 50032, 50048, 70002, 700027, 7000215, 7000222}),
    RefusalCause.FEDERATION: frozenset({70021, 70022, 82001, 700021, 700022, 700211, 700212, 700213}),
    RefusalCause.LATER: frozenset({50033, 50196, 90006, 90012, 90024, 90033, 90055, 90090, 90091}),
}
_COARSE: Final[Mapping[str, RefusalCause]] = {
    "access_denied": RefusalCause.DECLINED,
    "interaction_required": RefusalCause.POLICY,
    "basic_action": RefusalCause.POLICY,
    "additional_action": RefusalCause.POLICY,
    "message_only": RefusalCause.POLICY,
    "protection_policy_required": RefusalCause.POLICY,
    "device_authentication_failed": RefusalCause.POLICY,
    "bad_token": RefusalCause.REVOKED,
    "token_expired": RefusalCause.REVOKED,
    "login_required": RefusalCause.REVOKED,
    "invalid_grant": RefusalCause.REVOKED,
    "unauthorized_client": RefusalCause.CLIENT,
    "invalid_scope": RefusalCause.SCOPE,
    "invalid_resource": RefusalCause.SCOPE,
}


def cause_of(answer: Mapping[str, object]) -> RefusalCause:
    """Return why a sign-in was refused."""
    numbers = codes_of(answer)
    said = [word for key in ("suberror", "error") if isinstance(word := answer.get(key), str)]
    if not _CODES[RefusalCause.ADMIN_CONSENT].isdisjoint(numbers):
        return RefusalCause.ADMIN_CONSENT  # the word is the same whoever must consent
    by_word = [_PLAIN[word] for word in said if word in _PLAIN]
    by_number = [cause for number in numbers for cause, known in _CODES.items() if number in known]
    coarse = [_COARSE[word] for word in said if word in _COARSE]
    return next(iter([*by_word, *by_number, *coarse]), RefusalCause.UNKNOWN)


def codes_of(answer: Mapping[str, object]) -> tuple[int, ...]:
    """Return the numbers of a refusal, the ones in its list first."""
    listed = answer.get("error_codes")
    numbers = [number for number in listed if isinstance(number, int)] if isinstance(listed, list) else []
    text = answer.get("error_description")
    numbers += [int(number) for number in _NUMBER.findall(text if isinstance(text, str) else "")]
    return tuple(dict.fromkeys(numbers))[:MAX_CODES]


def refusal(answer: Mapping[str, object], asker: RefusalContext) -> HarkenError:
    """Return what to raise for a refusal: `Unavailable` where later helps, else `NeedsPerson` with what to do."""
    cause = cause_of(answer)
    label = _label(answer)
    if cause is RefusalCause.LATER:
        return Unavailable(
            f"The sign-in service cannot answer now{label}.",
            "Nothing needs to be done: Harken tries again.",
            retry_after=LATER_SECONDS,
        )
    is_off = asker.skew_seconds is not None and abs(asker.skew_seconds) > SKEW_SECONDS
    if cause is RefusalCause.CLOCK or (cause is RefusalCause.CERTIFICATE and is_off):
        return clock_is_off(asker, label)
    sentence, action = _words(cause, asker)
    hint = f"{action[:1].upper()}{action[1:]}."
    if cause is RefusalCause.UNKNOWN and (numbers := codes_of(answer)):
        hint += f" What it means: https://login.microsoftonline.com/error?code={numbers[0]}"
    return NeedsPerson(f"{asker.name}: {sentence}{label}.", hint, action=action)


def clock_is_off(asker: RefusalContext, label: str = "") -> NeedsPerson:
    """Return what to raise when our time is not the service's."""
    off = asker.skew_seconds
    sentence = "the sign-in service does not believe the time of this machine"
    if off is not None and abs(off) >= 1:
        sentence = f"your clock is {_span(abs(off))} {'ahead' if off > 0 else 'behind'}"
    action = "set the clock of this machine, best by turning on automatic time"
    return NeedsPerson(f"{asker.name}: {sentence}{label}.", f"{action[:1].upper()}{action[1:]}.", action=action)


def not_signed_in(asker: RefusalContext) -> NeedsPerson:
    """Return what to raise when no account is signed in."""
    action = f"sign in with: harken source login {asker.name}"
    return NeedsPerson(f"{asker.name}: nobody is signed in.", f"{action[:1].upper()}{action[1:]}", action=action)


def _span(seconds: float) -> str:
    for unit, length in (("hour", 3600), ("minute", 60), ("second", 1)):
        count = round(seconds / length)
        if seconds >= length:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a second"


def _label(answer: Mapping[str, object]) -> str:
    """Return what an administrator can look up: the number, or the service's own word where there is none."""
    numbers = codes_of(answer)
    if numbers:
        return f" (AADSTS{numbers[0]})"
    word = answer.get("error")
    return f" ({word})" if isinstance(word, str) and _WORD.fullmatch(word) else ""


def _words(cause: RefusalCause, asker: RefusalContext) -> tuple[str, str]:
    """Return what happened and what a person must do."""
    verb = "check it again with: harken source test" if asker.is_agent else "sign in again with: harken source login"
    again = f"{verb} {asker.name}"
    prefix = f"sources.{asker.name}"
    ids = f"{prefix}.blueprint_id and {prefix}.agent_id" if asker.is_agent else f"{prefix}.client_id"
    consent = f"have an administrator of your organisation open {asker.consent_url} and accept, then {again}"
    known: Mapping[RefusalCause, tuple[str, str]] = {
        RefusalCause.ADMIN_CONSENT: ("an administrator must allow the app to read for you", consent),
        RefusalCause.CONSENT: (
            "nobody has allowed the app to read for you",
            f"{again}, and accept what it asks for; if you may not, {consent}",
        ),
        RefusalCause.POLICY: (
            "your organisation asks for more before it lets you in, such as a second factor or a managed device",
            f"{again}, in the browser of a device it manages; if it still refuses, ask its administrator",
        ),
        RefusalCause.DECLINED: ("the sign-in was declined", f"{again}, and accept what it asks for"),
        RefusalCause.EXPIRED_CODE: (
            "the code was not entered in time",
            f"get a new code with: harken source login {asker.name}",
        ),
        RefusalCause.REVOKED: ("the sign-in has ended: it was revoked, or not used for too long", again),
        RefusalCause.TENANT: (
            f"the tenant {asker.tenant} does not exist, or the app or the account is not in it",
            f"check {prefix}.tenant, and which account you sign in with",
        ),
        RefusalCause.CLIENT: (
            f"the app {asker.client_id} is not known in the tenant {asker.tenant}, or is disabled there",
            f"check {ids} and {prefix}.tenant with the app's page in Entra",
        ),
        RefusalCause.PUBLIC_CLIENT: (
            "the app does not allow sign-in from a program on a person's machine",
            "have the owner of the app turn on 'Allow public client flows' on its Authentication page",
        ),
        RefusalCause.REDIRECT: (
            "the app does not allow sign-in in the browser of this machine",
            "have the owner of the app add the redirect address http://localhost for mobile and desktop programs",
        ),
        RefusalCause.SCOPE: ("a permission that is asked for does not exist", f"check {prefix}.scopes"),
        RefusalCause.ACCOUNT: (
            "the account cannot sign in: it is locked, disabled, not assigned to the app, or its password has ended",
            f"sign in at https://myaccount.microsoft.com to see why, then {again}",
        ),
        RefusalCause.CERTIFICATE: (
            "the certificate is not accepted",
            f"check that {prefix}.certificate is the one on the app's page in Entra, and has not ended",
        ),
        RefusalCause.FEDERATION: (
            "the agent identity may not speak as that user",
            f"check {prefix}.blueprint_id, {prefix}.agent_id and {prefix}.user_id with the agent's page in Entra",
        ),
    }
    return known.get(cause, ("the sign-in service refuses", again))
