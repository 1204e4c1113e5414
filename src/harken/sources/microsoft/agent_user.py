"""Tokens for an Entra Agent User: three requests that a certificate begins, and no person in between.

The blueprint's certificate signs an assertion, which gets a token for the agent identity (1); with it the agent
identity gets one of its own (2); with both it gets the user's token for Graph (3). The claims are exactly those that
Microsoft documents, so the requests are written out here. Nothing is kept on disk: the certificate is enough to begin
again. Above is the Graph client; below are `sign_in_service.py`, PyJWT for the signature and
cryptography for the certificate.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import jwt
from anyio import to_thread
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from harken.clock import Clock
from harken.errors import NeedsPerson, UserError
from harken.sources.http import CachedToken, TokenHolder, held_until, needs_person, seconds_of
from harken.sources.microsoft import sign_in_service as refusals
from harken.sources.microsoft.settings import GRAPH_SCOPE, AgentUserSettings
from harken.sources.microsoft.sign_in import SignedInPerson, SignInRecord, SignInStatus, claims_of, person_of
from harken.sources.microsoft.sign_in_service import SignInService, surprise

ASSERTION_LIFE: Final = timedelta(seconds=600)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
EXCHANGE_SCOPE: Final = "api://AzureADTokenExchange/.default"
WARNING: Final = timedelta(days=14)  # before the certificate ends

_log = logging.getLogger("harken.sources.microsoft")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCertificate:
    """A certificate with its key, ready to sign."""

    key: RSAPrivateKey = field(repr=False)
    thumbprint: str  # SHA-256 of the certificate, base64url
    begins_at: datetime
    ends_at: datetime


class AgentUser:
    """The sign-in of one source as an Agent User."""

    def __init__(self, settings: AgentUserSettings, service: SignInService, clock: Clock) -> None:
        self._settings = settings
        self._service = service
        self._clock = clock
        self._holder = TokenHolder(clock, self._renew)
        self._sign_in: SignInRecord | None = None
        self._action = ""

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token, renewed where needed; raises `NeedsPerson` and `Unavailable`."""
        try:
            token = await self._holder.token(is_fresh=is_fresh)
        except (NeedsPerson, UserError) as exc:
            self._holder.forget()
            needed = needs_person(exc)
            self._action = needed.action
            raise needed from None
        self._action = ""
        return token

    async def standing(self) -> SignInStatus:
        """Return the account, if it is signed in yet, and what a person must do."""
        return SignInStatus(sign_in=self._sign_in, action=self._action)

    async def _renew(self, *, is_forced: bool) -> CachedToken:
        del is_forced  # there is nothing to take an old one from
        answer = await to_thread.run_sync(self._ask_thrice, abandon_on_cancel=True)
        now = self._clock.now()
        held = held_until(_token(answer), now, seconds_of(answer.get("expires_in")))
        person = person_of(claims_of(answer.get("id_token")))
        known = (
            person
            if person.user_id
            else SignedInPerson(user_id=self._settings.user_id, tenant_id=self._settings.tenant)
        )
        self._sign_in = SignInRecord(
            person=known,
            since=self._sign_in.since if self._sign_in else self._service.their_time(now),
            renewed_at=now,
            expires_at=held.expires_at,
            scopes=tuple(str(answer.get("scope", "")).split()),
        )
        return held

    def _ask_thrice(self) -> Mapping[str, object]:
        settings = self._settings
        blueprint = self._ask(
            {
                "client_id": settings.blueprint_id,
                "scope": EXCHANGE_SCOPE,
                "fmi_path": settings.agent_id,
                "grant_type": "client_credentials",
                "client_assertion": self._assertion(),
            }
        )
        agent = self._ask(
            {
                "client_id": settings.agent_id,
                "scope": EXCHANGE_SCOPE,
                "grant_type": "client_credentials",
                "client_assertion": _token(blueprint),
            }
        )
        return self._ask(
            {
                "client_id": settings.agent_id,
                "scope": GRAPH_SCOPE,
                "grant_type": "user_fic",
                "client_assertion": _token(blueprint),
                "user_federated_identity_credential": _token(agent),
                "user_id": settings.user_id,
                "requested_token_use": "on_behalf_of",
            }
        )

    def _ask(self, form: Mapping[str, str]) -> Mapping[str, object]:
        data = {"client_assertion_type": ASSERTION_TYPE, **form}
        answer = self._service.post(self._settings.token_url, data=data).body
        if "error" in answer:
            raise refusals.refusal(answer, self._asker(form["client_id"]))
        return answer

    def _assertion(self) -> str:
        certificate = read_certificate(self._settings.certificate, self._settings.name)
        now = self._clock.now()
        self._check_dates(certificate, now)
        at = int(now.timestamp())
        claims = {
            "aud": self._settings.token_url,
            "iss": self._settings.blueprint_id,
            "sub": self._settings.blueprint_id,
            "jti": str(uuid.uuid4()),
            "nbf": at,
            "iat": at,
            "exp": at + int(ASSERTION_LIFE.total_seconds()),
        }
        return jwt.encode(claims, certificate.key, algorithm="RS256", headers={"x5t#S256": certificate.thumbprint})

    def _check_dates(self, certificate: AgentCertificate, now: datetime) -> None:
        name = self._settings.name
        if certificate.begins_at <= now < certificate.ends_at:
            if now > certificate.ends_at - WARNING:
                _log.warning("%s: the certificate ends on %s", name, certificate.ends_at.date())
            return
        is_over = now >= certificate.ends_at
        when = f"ended on {certificate.ends_at.date()}" if is_over else f"begins on {certificate.begins_at.date()}"
        action = f"put a new certificate on the blueprint's page in Entra and into sources.{name}.certificate"
        raise NeedsPerson(
            f"{name}: the certificate {when}.",
            f"{action[:1].upper()}{action[1:]}; if the date is wrong, set the clock.",
            action=action,
        )

    def _asker(self, client_id: str) -> refusals.RefusalContext:
        return refusals.RefusalContext(
            name=self._settings.name,
            tenant=self._settings.tenant,
            client_id=client_id,
            authority=self._settings.authority,
            skew_seconds=self._service.skew_seconds,
            is_agent=True,
        )


def _pem_hint(name: str) -> str:
    return f"Set sources.{name}.certificate to a PEM file with an RSA private key and its certificate."


def read_certificate(pem: str, name: str) -> AgentCertificate:
    """Return the certificate and its key; raises `UserError`, which says nothing of what the text holds."""
    data = pem.encode("utf-8", "replace")
    try:
        key = load_pem_private_key(data, password=None)
        certificate = x509.load_pem_x509_certificate(data)
    except (ValueError, TypeError):
        raise UserError(f"The certificate of the source {name} cannot be read.", _pem_hint(name)) from None
    if not isinstance(key, RSAPrivateKey) or key.public_key() != certificate.public_key():
        raise UserError(f"The certificate of the source {name} does not belong to its RSA key.", _pem_hint(name))
    digest = certificate.fingerprint(hashes.SHA256())
    return AgentCertificate(
        key=key,
        thumbprint=base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        begins_at=certificate.not_valid_before_utc,
        ends_at=certificate.not_valid_after_utc,
    )


def _token(answer: Mapping[str, object]) -> str:
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise surprise()
    return token
