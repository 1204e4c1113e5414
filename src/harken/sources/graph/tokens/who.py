"""Who is signed in, as values: the person, since when, and how that is written down beside the tokens.

A `Kept` is what the cache holds; its tokens are in no `repr`. What an id token claims is text from outside: it is cut
and cleaned before anybody is shown it. Pure: nothing here reads a file or a clock. Above is the rest of the package.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

VERSION: Final = 1
MAX_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who signed in. `upn` is the name they sign in with, which may look like a mail address."""

    name: str = ""
    upn: str = ""
    tenant_id: str = ""
    user_id: str = ""

    @property
    def title(self) -> str:
        """How people are told who it is."""
        if self.name and self.upn:
            return f"{self.name} ({self.upn})"
        return self.name or self.upn or self.user_id or "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in that stands: whose, since when, and until when the present access lasts before it is renewed."""

    person: Person
    since: datetime  # by the clock of the service, as far as it is known
    renewed_at: datetime
    expires_at: datetime
    scopes: tuple[str, ...] = ()  # what was granted


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What people are told about a sign-in; `action` says what a person must do, if anything."""

    sign_in: SignIn | None = None
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the cache holds: the sign-in, its present access token, and msal's own cache as it wants it."""

    sign_in: SignIn
    client_id: str
    access: str = field(repr=False)
    tokens: str = field(repr=False)

    def dump(self) -> str:
        """Return it as text for the cache."""
        sign_in = self.sign_in
        person = sign_in.person
        return json.dumps(
            {
                "version": VERSION,
                "client_id": self.client_id,
                "person": [person.name, person.upn, person.tenant_id, person.user_id],
                "times": [at.isoformat() for at in (sign_in.since, sign_in.renewed_at, sign_in.expires_at)],
                "scopes": list(sign_in.scopes),
                "access": self.access,
                "tokens": self.tokens,
            }
        )


def load_kept(text: str | None) -> Kept | None:
    """Return what the cache held; nothing for what is damaged or was written by a later version."""
    try:
        got = json.loads(text or "")
        if got["version"] != VERSION:
            return None
        name, upn, tenant_id, user_id = map(str, got["person"])
        since, renewed_at, expires_at = (datetime.fromisoformat(at).astimezone(UTC) for at in got["times"])
        return Kept(
            sign_in=SignIn(
                person=Person(name=name, upn=upn, tenant_id=tenant_id, user_id=user_id),
                since=since,
                renewed_at=renewed_at,
                expires_at=expires_at,
                scopes=tuple(map(str, got["scopes"])),
            ),
            client_id=str(got["client_id"]),
            access=str(got["access"]),
            tokens=str(got["tokens"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def person_of(claims: object) -> Person:
    """Return who the claims of an id token are about."""
    if not isinstance(claims, Mapping):
        return Person()
    upn = _plain(claims.get("preferred_username")) or _plain(claims.get("upn"))
    return Person(
        name=_plain(claims.get("name")),
        upn=upn,
        tenant_id=_plain(claims.get("tid")),
        user_id=_plain(claims.get("oid")),
    )


def claims_of(id_token: object) -> Mapping[str, object]:
    """Return what an id token says. It came straight from the sign-in service, so nobody else can have written it."""
    try:
        payload = str(id_token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_CHARS]
