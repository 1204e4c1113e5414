"""What the token service knows: apps, agents, sign-ins under way, tokens given out, and what a person answers.

It issues and judges; the routes of `sign_in` and `agents` read requests and word answers. Access tokens are real signed
tokens, but the service looks them up: a test can end one, all, or a whole sign-in.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.graph.certificate import Signer
from tests.graph.world import Json, Person, World

ACCESS_LIFE: Final = timedelta(minutes=65)
CODE_LIFE: Final = timedelta(minutes=10)
DEVICE_LIFE: Final = timedelta(minutes=15)
SKEW: Final = timedelta(minutes=5)
GRAPH_RESOURCES: Final = ("https://graph.microsoft.com/", "00000003-0000-0000-c000-000000000000/")
SIGN_IN_SCOPES: Final = frozenset({"openid", "profile", "email", "offline_access"})
KNOWN_SCOPES: Final = frozenset(
    {
        "User.Read",
        "Chat.ReadBasic",
        "Chat.Read",
        "Chat.ReadWrite",
        "ChatMessage.Send",
        "Mail.ReadBasic",
        "Mail.Read",
        "Mail.ReadWrite",
        "Mail.Send",
    }
)


class Answer(StrEnum):
    """What the person at the browser does."""

    APPROVES = "approves"
    DECLINES = "declines"
    WAITS = "waits"


class TokenRefusal(Exception):
    """The token service says no: the OAuth error, the number in the description, and what else the body holds."""

    def __init__(self, error: str, number: int, message: str, *, status: int = 400, **more: str) -> None:
        super().__init__(message)
        self.error = error
        self.number = number
        self.message = message
        self.status = status
        self.more = more


@dataclass(frozen=True, slots=True)
class Grant:
    """What an access token allows."""

    user: Person
    client_id: str
    scopes: frozenset[str]
    expires: datetime
    is_application: bool = False
    claims: str = ""  # that were asked for with it


@dataclass(frozen=True, slots=True)
class Agent:
    """A registered agent: its blueprint, its identity, its user."""

    blueprint_id: str
    identity_id: str
    user: Person
    signer: Signer


@dataclass(slots=True)
class SignIn:
    """A device code or an authorization code that waits to be redeemed."""

    client_id: str
    scopes: frozenset[str]
    started: datetime
    user_code: str = ""
    redirect_uri: str = ""
    challenge: str = ""
    nonce: str = ""
    last_poll: datetime | None = None


@dataclass(slots=True)
class TokenState:
    """Everything that a test can turn, with the defaults of a tenant in good order."""

    answer: Answer = Answer.APPROVES
    device_interval: int = 5
    consented: set[str] = field(default_factory=lambda: set(KNOWN_SCOPES))
    needs_second_factor: bool = False
    challenges_claims: bool = False
    ends_used_refresh_tokens: bool = False


class Tokens:
    """Issues tokens and judges them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lock = threading.RLock()
        self.state = TokenState()
        self.client_id = world.new_id()
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key_id = world.new_id()
        self.origin = ""
        self.agents: dict[str, Agent] = {}
        self.codes: dict[str, SignIn] = {}
        self.devices: dict[str, SignIn] = {}
        self.access: dict[str, Grant] = {}
        self.refresh: dict[str, Grant] = {}
        self.revoked: set[str] = set()

    @property
    def issuer(self) -> str:
        """Who signs."""
        return f"{self.origin}/{self.world.tenant}/v2.0"

    @property
    def token_endpoints(self) -> frozenset[str]:
        """The addresses that an assertion may be meant for."""
        return frozenset({f"{self.origin}/{name}/oauth2/v2.0/token" for name in (self.world.tenant, "common")})

    def sign(self, claims: Json, life: timedelta = ACCESS_LIFE) -> str:
        """A token of this service."""
        now = self.world.clock.now()
        times = {"iat": int(now.timestamp()), "nbf": int(now.timestamp()), "exp": int((now + life).timestamp())}
        whole = {"iss": self.issuer, "tid": self.world.tenant, "jti": self.world.new_id(), **times, **claims}
        return jwt.encode(whole, self.key, algorithm="RS256", headers={"kid": self.key_id})

    def resolve_scopes(self, asked: str) -> frozenset[str]:
        """The scopes a request asks for, by their short names; `.default` is all that was consented to."""
        found: set[str] = set()
        for name in asked.split():
            short = name
            for resource in GRAPH_RESOURCES:
                short = short.removeprefix(resource)
            if short == ".default":
                found |= self.state.consented
            elif short in SIGN_IN_SCOPES or short in KNOWN_SCOPES:
                found.add(short)
            else:
                raise TokenRefusal("invalid_scope", 70011, f"The provided value for the input 'scope' has {name!r}.")
        return frozenset(found)

    def check_policy(self, scopes: Iterable[str], *, is_interactive: bool) -> None:
        """Refuse what was not consented to, and what needs a second factor that nobody has shown."""
        if set(scopes) - SIGN_IN_SCOPES - self.state.consented:
            message = f"The user or administrator has not consented to use the application with ID '{self.client_id}'."
            raise TokenRefusal("invalid_grant", 65001, message, suberror="consent_required")
        if self.state.needs_second_factor and not is_interactive:
            claims = json.dumps({"access_token": {"capolids": {"essential": True, "values": [self.world.tenant]}}})
            message = (
                "Due to a configuration change made by your administrator, you must use multi-factor authentication."
            )
            raise TokenRefusal("interaction_required", 50076, message, suberror="basic_action", claims=claims)

    def issue(self, grant: Grant, *, nonce: str = "", wants_client_info: bool = False) -> Json:
        """The body of a successful answer: access token, and refresh and id token where asked for."""
        granted = replace(grant, scopes=grant.scopes - SIGN_IN_SCOPES, expires=self.world.clock.now() + ACCESS_LIFE)
        claims: Json = {"aud": GRAPH_RESOURCES[0], "oid": grant.user.id, "appid": grant.client_id}
        claims |= {"scp": " ".join(sorted(granted.scopes))}
        token = self.sign(claims)
        with self.lock:
            self.access[token] = granted
        body: Json = {
            "token_type": "Bearer",
            "scope": " ".join(f"{GRAPH_RESOURCES[0]}{name}" for name in sorted(granted.scopes)),
            "expires_in": int(ACCESS_LIFE.total_seconds()),
            "ext_expires_in": int(ACCESS_LIFE.total_seconds()),
            "access_token": token,
        }
        if "offline_access" in grant.scopes:
            body["refresh_token"] = self._remember(grant)
        if "openid" in grant.scopes:
            body["id_token"] = self._id_token(grant, nonce)
        if wants_client_info:
            info = json.dumps({"uid": grant.user.id, "utid": self.world.tenant}).encode()
            body["client_info"] = base64.urlsafe_b64encode(info).decode().rstrip("=")
        return body

    def _remember(self, grant: Grant) -> str:
        token = f"1.{self.world.new_id()}{self.world.new_id()}"
        with self.lock:
            self.refresh[token] = grant
        return token

    def _id_token(self, grant: Grant, nonce: str) -> str:
        claims: Json = {"aud": grant.client_id, "sub": f"sub-{grant.user.id}", "oid": grant.user.id, "ver": "2.0"}
        claims |= {"name": grant.user.name, "preferred_username": grant.user.address}
        return self.sign({**claims, "nonce": nonce} if nonce else claims)

    def grant_for(self, scopes: Iterable[str], *, user: Person | None = None, is_application: bool = False) -> Grant:
        """A grant for someone who signed in."""
        now = self.world.clock.now()
        return Grant(user or self.world.me, self.client_id, frozenset(scopes), now, is_application)

    def expire_access(self) -> None:
        """Let every access token given out so far be too old."""
        with self.lock:
            past = self.world.clock.now() - SKEW - SKEW
            self.access = {token: replace(grant, expires=past) for token, grant in self.access.items()}

    def revoke(self) -> None:
        """End every sign-in so far: refresh tokens and access tokens."""
        with self.lock:
            self.revoked.update(self.refresh)
        self.expire_access()
