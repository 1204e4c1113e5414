"""What a refusal of Microsoft's sign-in service means, in plain words: what a person must do, or that later helps.

A refusal is a dict with `error`, `error_description` and, at Entra, `error_codes` (the numbers after AADSTS) and
`suberror`. Only those numbers and words we know become part of an error: the description may name people, and could
say anything. Pure. Above are `delegated.py` and `agent_user.py`, below are only the errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlencode

from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.sources.microsoft.settings import SHARED_TENANTS

SKEW_SECONDS: Final = 240.0  # Entra allows 5 minutes
LATER_SECONDS: Final = 30.0
MAX_CODES: Final = 8

_NUMBER: Final = re.compile(r"AADSTS(\d{4,9})")
_WORD: Final = re.compile(r"[a-z_]{1,60}")


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
    """Who asked: what an error needs to say whose sign-in it is and where to go."""

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
            "Nothing needs to be done: it is tried again.",
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
    """Return what to raise when nobody is signed in."""
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
