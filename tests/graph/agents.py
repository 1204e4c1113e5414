"""The three hops of an Agent User: blueprint certificate, agent identity, user; each token is checked, not believed.

Judges what the documentation says a client assertion must hold: the certificate's thumbprint, who it is for, who made
it, from when until when, and the signature.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import jwt

from tests.graph.tokens import SKEW, Agent, Grant, TokenRefusal, Tokens
from tests.graph.world import Json

EXCHANGE: Final = "api://AzureADTokenExchange"
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ROLE: Final = "harken_test_role"
_LONGEST_SECONDS: Final = 24 * 3600


def _refuse(number: int, message: str) -> TokenRefusal:
    return TokenRefusal("invalid_client", number, message, status=401)


def exchange(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    """Answer one of the three hops; which one it is follows from what it brings."""
    if asked.get("client_assertion_type") != ASSERTION:
        raise _refuse(7000218, "The request body must contain 'client_assertion' and its type.")
    if asked["grant_type"] == "user_fic":
        return _third(tokens, asked)
    if asked.get("scope") != f"{EXCHANGE}/.default":
        raise TokenRefusal("invalid_scope", 70011, "The provided value for the input 'scope' is not valid.")
    return _first(tokens, asked) if "fmi_path" in asked else _second(tokens, asked)


def _bearer(tokens: Tokens, claims: Json) -> Json:
    token = tokens.sign({"aud": EXCHANGE, **claims})
    return {"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": token}


def _first(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    found = [agent for agent in tokens.agents.values() if agent.blueprint_id == asked.get("client_id")]
    if not found:
        raise TokenRefusal("unauthorized_client", 700016, "Application was not found in the directory.")
    _check_assertion(tokens, found[0], asked.get("client_assertion", ""))
    agent = tokens.agents.get(asked["fmi_path"])
    if agent not in found:
        raise TokenRefusal("invalid_request", 82001, "The fmi_path names no agent identity of this blueprint.")
    return _bearer(tokens, {"sub": agent.identity_id, "appid": agent.blueprint_id, _ROLE: "first"})


def _check_assertion(tokens: Tokens, agent: Agent, assertion: str) -> None:
    try:
        header = jwt.get_unverified_header(assertion)
    except jwt.InvalidTokenError as exc:
        raise _refuse(50027, "JWT token is invalid or malformed.") from exc
    thumbprint = base64.urlsafe_b64encode(agent.signer.thumbprint).decode().rstrip("=")
    if header.get("x5t#S256") != thumbprint:
        raise _refuse(700027, "The certificate with identifier used to sign the client assertion is not registered.")
    public = agent.signer.key.public_key()
    try:
        claims = jwt.decode(
            assertion,
            public,
            ["RS256", "PS256"],
            options={
                "verify_aud": False,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "require": ["aud", "iss", "sub", "jti", "nbf", "exp"],
            },
        )
    except jwt.InvalidTokenError as exc:
        raise _refuse(700027, "Client assertion failed signature validation.") from exc
    if claims["iss"] != agent.blueprint_id or claims["sub"] != agent.blueprint_id:
        raise _refuse(700021, "Client assertion application identifier doesn't match 'client_id' parameter.")
    if claims["aud"] not in tokens.token_endpoints:
        raise _refuse(700023, "Client assertion audience claim does not match the token endpoint.")
    now, skew = tokens.world.clock.now().timestamp(), SKEW.total_seconds()
    if not claims["nbf"] - skew <= now <= claims["exp"] + skew or claims["exp"] - claims["nbf"] > _LONGEST_SECONDS:
        raise _refuse(700024, "Client assertion is not within its valid time range.")


def _own(tokens: Tokens, token: str, role: str, identity: str) -> None:
    try:
        claims = jwt.decode(
            token,
            tokens.key.public_key(),
            ["RS256"],
            audience=EXCHANGE,
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.InvalidTokenError as exc:
        raise _refuse(50013, "Assertion failed signature validation.") from exc
    if claims["exp"] < tokens.world.clock.now().timestamp():
        raise _refuse(700024, "Client assertion is not within its valid time range.")
    if claims.get(_ROLE) != role or claims["sub"] != identity:
        raise _refuse(700021, "Client assertion application identifier doesn't match 'client_id' parameter.")


def _second(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    identity = asked.get("client_id", "")
    _own(tokens, asked.get("client_assertion", ""), "first", identity)
    return _bearer(tokens, {"sub": identity, "appid": identity, _ROLE: "second"})


def _third(tokens: Tokens, asked: Mapping[str, str]) -> Json:
    identity = asked.get("client_id", "")
    _own(tokens, asked.get("client_assertion", ""), "first", identity)
    _own(tokens, asked.get("user_federated_identity_credential", ""), "second", identity)
    if asked.get("requested_token_use") != "on_behalf_of":
        raise TokenRefusal("invalid_request", 900144, "The request body must contain 'requested_token_use'.")
    agent = tokens.agents[identity]
    if asked.get("user_id") != agent.user.id and asked.get("username") != agent.user.address:
        raise TokenRefusal("invalid_grant", 50034, "The user account does not exist in the directory.")
    scopes = tokens.resolve_scopes(asked.get("scope", ""))
    tokens.check_policy(scopes, is_interactive=True)
    return tokens.issue(Grant(agent.user, identity, scopes, tokens.world.clock.now()))
