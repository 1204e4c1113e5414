"""The loopback token service keeps the documented rules: each flow works as described, each wrong step is refused."""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections.abc import Iterator, Mapping
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest

from tests.graph.agents import ASSERTION, EXCHANGE
from tests.graph.certificate import Signer, make_signer
from tests.graph.service import Graph
from tests.graph.tokens import Agent, Answer

SCOPE = "https://graph.microsoft.com/Chat.Read https://graph.microsoft.com/User.Read openid profile offline_access"
VERIFIER = "v" * 60
REDIRECT = "http://localhost:8400"


@pytest.fixture
def service(graph: Graph, trust: ssl.SSLContext) -> Iterator[httpx2.Client]:
    """A plain client at the tenant's OAuth addresses."""
    with httpx2.Client(verify=trust, base_url=f"{graph.authority}/oauth2/v2.0", timeout=10) as plain:
        yield plain


def _refusal(service: httpx2.Client, asked: Mapping[str, str]) -> tuple[int, str, int, str]:
    response = service.post("/token", data=dict(asked))
    body = response.json()
    assert body["error_description"].startswith(f"AADSTS{body['error_codes'][0]}: ")
    return response.status_code, body["error"], body["error_codes"][0], body.get("suberror", "")


def _bearer(body: Mapping[str, str]) -> dict[str, str]:
    return {"Authorization": f"Bearer {body['access_token']}"}


def _authorize(graph: Graph, service: httpx2.Client, **more: str) -> httpx2.Response:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
    asked = {"client_id": graph.client_id, "response_type": "code", "redirect_uri": REDIRECT, "scope": SCOPE}
    asked |= {"state": "mine", "code_challenge": challenge, "code_challenge_method": "S256"}
    return service.get("/authorize", params=asked | more)


def _returned(response: httpx2.Response) -> dict[str, str]:
    assert response.status_code == 302
    return {name: values[0] for name, values in parse_qs(urlsplit(response.headers["location"]).query).items()}


def test_a_code_is_redeemed_once_and_with_its_verifier(graph: Graph, service: httpx2.Client) -> None:
    """PKCE binds the code to whoever asked for it."""
    given = _returned(_authorize(graph, service))
    asked = {"grant_type": "authorization_code", "client_id": graph.client_id, "code": given["code"]}
    asked |= {"redirect_uri": REDIRECT, "code_verifier": VERIFIER}

    assert given["state"] == "mine"
    assert service.post("/token", data=asked).status_code == 200
    assert _refusal(service, asked)[:3] == (400, "invalid_grant", 54005)
    again = asked | {"code": _returned(_authorize(graph, service))["code"]}
    assert _refusal(service, again | {"code_verifier": "w" * 60})[2] == 501481
    late = asked | {"code": _returned(_authorize(graph, service))["code"]}
    graph.clock.advance(11 * 60)
    assert _refusal(service, late)[2] == 70008


def test_what_cannot_be_authorized_is_refused(graph: Graph, service: httpx2.Client) -> None:
    """Without PKCE, with another address, when the person declines, or without consent there is no code."""
    assert "AADSTS9002325" in _returned(_authorize(graph, service, code_challenge_method="plain"))["error_description"]
    assert _authorize(graph, service, redirect_uri="https://evil.example").status_code == 400
    graph.sign_in.answer = Answer.DECLINES
    assert _returned(_authorize(graph, service))["error"] == "access_denied"
    graph.sign_in.answer = Answer.APPROVES
    graph.sign_in.consented.discard("Chat.Read")
    assert "AADSTS65001" in _returned(_authorize(graph, service))["error_description"]


def test_a_used_refresh_token_can_end(graph: Graph, service: httpx2.Client) -> None:
    """A client that forgets to keep the new one is found out."""
    graph.sign_in.ends_used_refresh_tokens = True
    started = service.post("/devicecode", data={"client_id": graph.client_id, "scope": SCOPE}).json()
    kind = "urn:ietf:params:oauth:grant-type:device_code"
    begun = {"grant_type": kind, "client_id": graph.client_id, "device_code": started["device_code"]}
    asked = {"grant_type": "refresh_token", "client_id": graph.client_id}
    asked |= {"refresh_token": service.post("/token", data=begun).json()["refresh_token"]}
    newer = asked | {"refresh_token": service.post("/token", data=asked).json()["refresh_token"]}

    assert _refusal(service, asked)[2] == 50173
    assert service.post("/token", data=newer).status_code == 200


def test_unknown_tenants_clients_and_scopes_are_refused(graph: Graph, service: httpx2.Client) -> None:
    """Mistakes of a set-up get the numbers that people search for."""
    wrong = f"{graph.tokens.origin}/nowhere/v2.0/.well-known/openid-configuration"
    assert (service.get(wrong).status_code, service.get(wrong).json()["error_codes"]) == (400, [90002])
    assert service.post("/devicecode", data={"client_id": "x", "scope": SCOPE}).json()["error_codes"] == [700016]
    asked = {"client_id": graph.client_id, "scope": "Chat.Raed"}
    assert service.post("/devicecode", data=asked).json()["error_codes"] == [70011]


def _assertion(graph: Graph, agent: Agent, signer: Signer, **changes: object) -> str:
    now = graph.clock.now()
    claims: dict[str, object] = {"aud": f"{graph.authority}/oauth2/v2.0/token", "jti": "one", "nbf": now, "iat": now}
    claims |= {"iss": agent.blueprint_id, "sub": agent.blueprint_id, "exp": now + timedelta(seconds=600)}
    thumbprint = base64.urlsafe_b64encode(signer.thumbprint).decode().rstrip("=")
    return jwt.encode(claims | changes, signer.key, "RS256", headers={"x5t#S256": thumbprint})


def _hop(agent: Agent, assertion: str, **more: str) -> dict[str, str]:
    asked = {"client_id": agent.identity_id, "client_assertion_type": ASSERTION, "client_assertion": assertion}
    asked |= {"grant_type": "client_credentials", "scope": f"{EXCHANGE}/.default"}
    return asked | more


def _first(agent: Agent, assertion: str) -> dict[str, str]:
    return _hop(agent, assertion, client_id=agent.blueprint_id, fmi_path=agent.identity_id)


def test_an_agent_user_gets_its_token_in_three_hops(graph: Graph, service: httpx2.Client) -> None:
    """Certificate, identity, user: each hop needs the one before."""
    agent = graph.register_agent()
    one = service.post("/token", data=_first(agent, _assertion(graph, agent, agent.signer))).json()["access_token"]
    two = service.post("/token", data=_hop(agent, one)).json()["access_token"]
    last = {"grant_type": "user_fic", "scope": "https://graph.microsoft.com/.default"}
    last |= {"user_federated_identity_credential": two, "requested_token_use": "on_behalf_of", "user_id": agent.user.id}

    body = service.post("/token", data=_hop(agent, one) | last).json()

    assert service.get(f"{graph.url}/me", headers=_bearer(body)).json()["id"] == agent.user.id
    assert _refusal(service, _hop(agent, two))[2] == 700021
    assert _refusal(service, _hop(agent, one) | last | {"user_federated_identity_credential": one})[2] == 700021
    assert _refusal(service, _hop(agent, one) | last | {"user_id": graph.me.id})[2] == 50034
    graph.clock.advance(2 * 3600)
    assert _refusal(service, _hop(agent, one))[2] == 700024


def test_an_assertion_is_checked_and_not_believed(graph: Graph, service: httpx2.Client) -> None:
    """Thumbprint, signature, audience, issuer and time: each alone is enough to refuse it."""
    agent, other = graph.register_agent(), make_signer("other")
    now = graph.clock.now()
    forged = Signer(other.key, agent.signer.certificate)
    wrong = [
        (_assertion(graph, agent, other), 700027),
        (_assertion(graph, agent, forged), 700027),
        (_assertion(graph, agent, Signer(agent.signer.key, other.certificate)), 700027),
        (_assertion(graph, agent, agent.signer, aud="https://elsewhere.example"), 700023),
        (_assertion(graph, agent, agent.signer, iss="someone"), 700021),
        (_assertion(graph, agent, agent.signer, exp=now - timedelta(minutes=6)), 700024),
        (_assertion(graph, agent, agent.signer, nbf=now + timedelta(minutes=6)), 700024),
        ("no token", 50027),
    ]

    assert [_refusal(service, _first(agent, assertion))[2] for assertion, _ in wrong] == [code for _, code in wrong]
    elsewhere = _first(agent, _assertion(graph, agent, agent.signer)) | {"fmi_path": "nobody"}
    assert _refusal(service, elsewhere)[2] == 82001
