"""The loopback token service keeps the documented rules: each flow works as described, each wrong step is refused."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Protocol
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


class Library(Protocol):
    """What these tests use of msal, which has no types of its own."""

    def initiate_device_flow(self, scopes: list[str]) -> dict[str, Any]:
        """Ask for a device code."""

    def acquire_token_by_device_flow(self, flow: dict[str, Any]) -> dict[str, Any]:
        """Wait until the person is done."""

    def initiate_auth_code_flow(self, scopes: list[str], **more: str) -> dict[str, Any]:
        """Make the address for the browser."""

    def acquire_token_by_auth_code_flow(self, flow: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
        """Redeem what the browser brought."""

    def get_accounts(self) -> list[dict[str, Any]]:
        """Who is signed in."""

    def acquire_token_silent_with_error(self, scopes: list[str], account: object, **more: bool) -> dict[str, Any]:
        """Refresh."""


@pytest.fixture
def app(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The library that people sign in with, on the service's own certificate."""
    # Its HTTP client believes these rather than what it is told.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    made: Library = pytest.importorskip("msal").PublicClientApplication(
        graph.client_id, authority=graph.authority, instance_discovery=False, verify=str(graph.ca)
    )
    return made


def _begin(graph: Graph, service: httpx2.Client) -> dict[str, str]:
    started = service.post("/devicecode", data={"client_id": graph.client_id, "scope": SCOPE}).json()
    kind = "urn:ietf:params:oauth:grant-type:device_code"
    return {"grant_type": kind, "client_id": graph.client_id, "device_code": started["device_code"]}


def _refusal(service: httpx2.Client, asked: Mapping[str, str]) -> tuple[int, str, int, str]:
    response = service.post("/token", data=dict(asked))
    body = response.json()
    assert body["error_description"].startswith(f"AADSTS{body['error_codes'][0]}: ")
    return response.status_code, body["error"], body["error_codes"][0], body.get("suberror", "")


def _bearer(body: Mapping[str, str]) -> dict[str, str]:
    return {"Authorization": f"Bearer {body['access_token']}"}


def test_a_device_code_waits_for_the_person(graph: Graph, service: httpx2.Client) -> None:
    """Pending until the person is done, slow_down when asked too quickly, then a token that Graph takes."""
    graph.clock.freeze()
    graph.sign_in.answer = Answer.WAITS
    asked = _begin(graph, service)

    assert _refusal(service, asked)[1:3] == ("authorization_pending", 70016)
    assert _refusal(service, asked)[1] == "slow_down"
    graph.sign_in.answer = Answer.APPROVES
    graph.clock.advance(5)
    body = service.post("/token", data=asked).json()

    assert {"access_token", "refresh_token", "id_token"} <= set(body)
    assert service.get(f"{graph.url}/me", headers=_bearer(body)).json()["id"] == graph.me.id
    assert _refusal(service, asked)[1] == "bad_verification_code"


def test_a_device_code_is_declined_or_expires(graph: Graph, service: httpx2.Client) -> None:
    """Both ends are final, and are told apart."""
    graph.clock.freeze()
    graph.sign_in.answer = Answer.DECLINES
    assert _refusal(service, _begin(graph, service))[1] == "authorization_declined"

    asked = _begin(graph, service)
    graph.clock.advance(16 * 60)

    assert _refusal(service, asked)[1:3] == ("expired_token", 70020)


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


def _signed_in(graph: Graph, service: httpx2.Client) -> dict[str, str]:
    body = service.post("/token", data=_begin(graph, service)).json()
    return {"grant_type": "refresh_token", "client_id": graph.client_id, "refresh_token": body["refresh_token"]}


def test_a_refresh_gives_new_tokens_until_it_is_revoked(graph: Graph, service: httpx2.Client) -> None:
    """A revoked sign-in needs the person, and says so."""
    asked = _signed_in(graph, service)
    body = service.post("/token", data=asked).json()
    assert body["refresh_token"] != asked["refresh_token"]

    graph.revoke_sign_in()

    assert _refusal(service, asked) == (400, "invalid_grant", 50173, "bad_token")
    assert service.get(f"{graph.url}/me", headers=_bearer(body)).status_code == 401


def test_a_used_refresh_token_can_end(graph: Graph, service: httpx2.Client) -> None:
    """A client that forgets to keep the new one is found out."""
    graph.sign_in.ends_used_refresh_tokens = True
    asked = _signed_in(graph, service)
    newer = asked | {"refresh_token": service.post("/token", data=asked).json()["refresh_token"]}

    assert _refusal(service, asked)[2] == 50173
    assert service.post("/token", data=newer).status_code == 200


def test_consent_and_second_factor_are_asked_for(graph: Graph, service: httpx2.Client) -> None:
    """Both are refused with what a client needs to tell the person; a new sign-in passes the second factor."""
    asked = _signed_in(graph, service)
    graph.sign_in.needs_second_factor = True
    assert _refusal(service, asked) == (400, "interaction_required", 50076, "basic_action")
    assert "capolids" in service.post("/token", data=asked).json()["claims"]
    assert service.post("/token", data=_begin(graph, service)).status_code == 200

    graph.sign_in.needs_second_factor = False
    graph.sign_in.consented.discard("Chat.Read")
    assert _refusal(service, asked) == (400, "invalid_grant", 65001, "consent_required")


def test_graph_can_ask_for_a_newer_token(graph: Graph, client: httpx2.Client) -> None:
    """Continuous access evaluation: 401 with the claims that the next token must have."""
    assert client.get("/me").status_code == 200

    graph.sign_in.challenges_claims = True

    assert 'error="insufficient_claims", claims="' in client.get("/me").headers["www-authenticate"]


def test_unknown_tenants_clients_and_scopes_are_refused(graph: Graph, service: httpx2.Client) -> None:
    """Mistakes of a set-up get the numbers that people search for."""
    wrong = f"{graph.tokens.origin}/nowhere/v2.0/.well-known/openid-configuration"
    assert (service.get(wrong).status_code, service.get(wrong).json()["error_codes"]) == (400, [90002])
    assert service.post("/devicecode", data={"client_id": "x", "scope": SCOPE}).json()["error_codes"] == [700016]
    asked = {"client_id": graph.client_id, "scope": "Chat.Raed"}
    assert service.post("/devicecode", data=asked).json()["error_codes"] == [70011]


def test_an_authority_is_known_to_its_instance(graph: Graph, service: httpx2.Client) -> None:
    """A library may ask first whether it can trust an authority, and is told where its configuration is."""
    asked = {"authorization_endpoint": f"{graph.authority}/oauth2/v2.0/authorize", "api-version": "1.1"}

    place = service.get(graph.instance_discovery, params=asked).json()["tenant_discovery_endpoint"]

    assert service.get(place).json()["token_endpoint"] == f"{graph.authority}/oauth2/v2.0/token"


def test_msal_signs_in_by_device_code_and_refreshes(graph: Graph, app: Library) -> None:
    """The library that people use agrees with this service, discovery and cache included."""
    flow = app.initiate_device_flow(["Chat.Read"])
    assert flow["user_code"] in flow["message"]
    result = app.acquire_token_by_device_flow(flow)
    account = app.get_accounts()[0]
    assert (account["username"], result["id_token_claims"]["name"]) == (graph.me.address, graph.me.name)

    silent = app.acquire_token_silent_with_error(["Chat.Read"], account, force_refresh=True)

    assert silent["access_token"] != result["access_token"]
    graph.revoke_sign_in()
    refused = app.acquire_token_silent_with_error(["Chat.Read"], account, force_refresh=True)
    assert (refused["error"], refused["suberror"]) == ("invalid_grant", "bad_token")


def test_msal_redeems_a_code(graph: Graph, app: Library) -> None:
    """The library's own PKCE, state and nonce pass."""
    flow = app.initiate_auth_code_flow(["Chat.Read"], redirect_uri=REDIRECT, response_mode="form_post")
    with httpx2.Client(verify=ssl.create_default_context(cafile=str(graph.ca))) as browser:
        page = browser.get(flow["auth_uri"]).text

    given = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page))
    assert f'action="{REDIRECT}"' in page
    assert "access_token" in app.acquire_token_by_auth_code_flow(flow, given)


class Landing(BaseHTTPRequestHandler):
    """Where a browser lands after a sign-in: keeps what it was sent."""

    def do_POST(self) -> None:
        """Take a posted form."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.__dict__["landed"] = {name: values[0] for name, values in parse_qs(body).items()}
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_browser_posts_what_the_page_holds(graph: Graph, service: httpx2.Client) -> None:
    """The library's interactive sign-in accepts a posted form only; whoever plays the browser must post it."""
    with HTTPServer(("127.0.0.1", 0), Landing) as landing:
        thread = threading.Thread(target=landing.handle_request, daemon=True)
        thread.start()
        redirect = f"http://localhost:{landing.server_port}"
        address = _authorize(graph, service, redirect_uri=redirect, response_mode="form_post").url

        assert graph.browse(str(address)).status_code == 204
        thread.join(5)
        assert landing.__dict__["landed"]["state"] == "mine"


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


def test_a_clock_that_is_wrong_by_minutes_is_borne_and_by_more_is_not(graph: Graph, service: httpx2.Client) -> None:
    """The client's clock is its own: five minutes are allowed."""
    agent = graph.register_agent()
    asked = _first(agent, _assertion(graph, agent, agent.signer))

    graph.clock.advance(-4 * 60)
    assert service.post("/token", data=asked).status_code == 200
    graph.clock.advance(-4 * 60)
    assert _refusal(service, asked)[2] == 700024


def test_keys_are_published(graph: Graph, service: httpx2.Client) -> None:
    """A token of the service can be verified by anyone with the keys it names."""
    found = jwt.PyJWKSet.from_dict(service.get(f"{graph.authority}/discovery/v2.0/keys").json())
    token = graph.token()
    kid = jwt.get_unverified_header(token)["kid"]

    claims = jwt.decode(token, found[kid].key, ["RS256"], audience="https://graph.microsoft.com/")

    assert claims["oid"] == graph.me.id
