"""An Agent User's tokens: three requests with exactly the documented claims, and a certificate that ends."""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from harken.errors import HarkenError, NeedsPerson, Unavailable, UserError
from harken.sources.microsoft.account import AgentUser
from harken.sources.microsoft.settings import AgentUserSettings
from harken.sources.microsoft.sign_in import SignedInPerson, SignInStatus
from harken.sources.microsoft.sign_in_service import SignInService
from harken.testing import FakeClock
from tests.graph.certificate import Signer, make_signer
from tests.sources.microsoft.signing import HUSH, SECONDS, TENANT, USER, Entra, Said, logged, refused, serving

BLUEPRINT = "10000000-0000-0000-0000-000000000001"
AGENT = "20000000-0000-0000-0000-000000000002"
JWT_BEARER = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
EXCHANGE = "api://AzureADTokenExchange/.default"


def pem(signer: Signer, certificate_of: Signer | None = None) -> str:
    """The key and a certificate, as a person keeps them in one file."""
    key = signer.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = (certificate_of or signer).certificate.public_bytes(serialization.Encoding.PEM)
    return (key + certificate).decode()


@pytest.fixture(scope="module")
def signer() -> Signer:
    """The blueprint's key and certificate; making one takes a while."""
    return make_signer()


@dataclass
class Desk:
    """An Agent User and the service that lets it in."""

    entra: Entra
    trust: ssl.SSLContext
    clock: FakeClock
    signer: Signer

    def agent(self, certificate: str = "") -> AgentUser:
        """The Agent User as a process of its own has it."""
        settings = AgentUserSettings(
            name="bot",
            tenant=TENANT,
            blueprint_id=BLUEPRINT,
            agent_id=AGENT,
            user_id=USER,
            certificate=certificate or pem(self.signer),
            authority=self.entra.origin,
        )
        assert "PRIVATE KEY" not in repr(settings)
        return AgentUser(settings, SignInService(self.clock, trust=self.trust), self.clock)


@pytest.fixture
def desk(tmp_path: Path, caplog: pytest.LogCaptureFixture, signer: Signer) -> Iterator[Desk]:
    """A sign-in service of our own. Whatever happens in a test, no secret of it may have been logged."""
    caplog.set_level(logging.DEBUG)
    now = datetime.now(UTC).replace(microsecond=0)
    with serving(tmp_path) as (entra, trust):
        yield Desk(entra, trust, FakeClock(now), signer)
    assert HUSH not in logged(caplog)
    assert "PRIVATE KEY" not in logged(caplog)


def shown(exc: HarkenError) -> str:
    """Everything that anybody could be shown of an error."""
    return f"{exc!r} {exc} {exc.as_dict()}"


async def test_three_requests_bring_a_token_for_the_user(desk: Desk) -> None:
    """One claim too few or another word, and Entra refuses: the requests are exactly the documented ones."""
    agent = desk.agent()

    with anyio.fail_after(SECONDS):
        token = await agent.token()

    assertion = desk.entra.forms[0].pop("client_assertion")
    first, second = f"access-{HUSH}-1", f"access-{HUSH}-2"
    assert token == f"access-{HUSH}-3"
    assert desk.entra.forms == [
        {
            "client_id": BLUEPRINT,
            "scope": EXCHANGE,
            "fmi_path": AGENT,
            "grant_type": "client_credentials",
            "client_assertion_type": JWT_BEARER,
        },
        {
            "client_id": AGENT,
            "scope": EXCHANGE,
            "grant_type": "client_credentials",
            "client_assertion_type": JWT_BEARER,
            "client_assertion": first,
        },
        {
            "client_id": AGENT,
            "scope": "https://graph.microsoft.com/.default",
            "grant_type": "user_fic",
            "client_assertion_type": JWT_BEARER,
            "client_assertion": first,
            "user_federated_identity_credential": second,
            "user_id": USER,
            "requested_token_use": "on_behalf_of",
        },
    ]
    url = f"{desk.entra.origin}/{TENANT}/oauth2/v2.0/token"
    claims = jwt.decode(assertion, desk.signer.key.public_key(), ["RS256"], audience=url)
    at = int(desk.clock.now().timestamp())
    assert len(claims.pop("jti")) == 36
    assert claims == {"aud": url, "iss": BLUEPRINT, "sub": BLUEPRINT, "nbf": at, "iat": at, "exp": at + 600}
    thumbprint = base64.urlsafe_b64encode(desk.signer.thumbprint).decode().rstrip("=")
    assert jwt.get_unverified_header(assertion) == {"alg": "RS256", "typ": "JWT", "x5t#S256": thumbprint}


async def test_the_chain_is_renewed_at_55_minutes_and_once_on_demand(desk: Desk) -> None:
    """All three tokens last an hour: the whole chain is made anew, and no more often than needed."""
    agent = desk.agent()

    first = await agent.token()
    desk.clock.advance(54 * 60)
    assert await agent.token() == first
    desk.clock.advance(61)
    second = await agent.token()
    third = await agent.token(is_fresh=True)

    assert len({first, second, third}) == 3
    assert len(desk.entra.forms) == 9


async def test_it_is_known_as_whom_the_agent_speaks(desk: Desk) -> None:
    """People are told who is signed in; before the first token nobody is."""
    agent = desk.agent()
    assert await agent.standing() == SignInStatus()

    await agent.token()

    sign_in = (await agent.standing()).sign_in
    assert sign_in is not None
    assert sign_in.person == SignedInPerson(name="Ann Lee", upn="ann@example.com", tenant_id=TENANT, user_id=USER)
    assert sign_in.expires_at == desk.clock.now() + timedelta(hours=1)


@pytest.mark.parametrize("minutes", [4, -4])
async def test_since_when_it_speaks_is_told_by_the_services_clock(desk: Desk, minutes: int) -> None:
    """A feed begins there: by a clock that is ahead, what is said in the first minutes would be too old."""
    theirs = desk.clock.now()
    desk.clock = FakeClock(theirs + timedelta(minutes=minutes))
    agent = desk.agent()
    await agent.token()
    sign_in = (await agent.standing()).sign_in
    assert sign_in is not None
    assert abs(sign_in.since - theirs) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ([refused("invalid_client", 700027)], "check that sources.bot.certificate is the one"),
        ([refused("unauthorized_client", 700016)], "check sources.bot.blueprint_id and sources.bot.agent_id"),
        ([Said({"access_token": "t1"}), refused("invalid_request", 82001)], "sources.bot.user_id"),
        ([Said({"access_token": "t1"}), Said({"access_token": "t2"}), refused("invalid_grant", 65001)], "adminconsent"),
    ],
)
async def test_a_refusal_at_any_of_the_three_says_what_to_do(desk: Desk, said: list[Said], action: str) -> None:
    """Each request fails for reasons of its own; nobody signs in here, so the remedy is in settings and in Entra."""
    desk.entra.next = said
    agent = desk.agent()

    with pytest.raises(NeedsPerson) as caught:
        await agent.token()

    assert action in caught.value.action
    assert "harken source login" not in shown(caught.value)
    assert HUSH not in shown(caught.value)
    assert (await agent.standing()).action == caught.value.action


async def test_an_answer_without_a_token_is_asked_for_again_later(desk: Desk) -> None:
    """A gap in the chain must not become a request with an empty token."""
    desk.entra.next = [Said({"token_type": "Bearer"})]

    with pytest.raises(Unavailable, match="unexpected answer"):
        await desk.agent().token()

    assert len(desk.entra.forms) == 1


async def test_a_certificate_that_has_ended_is_said_before_anybody_is_asked(desk: Desk) -> None:
    """It ends on a day that is known, and only a person can put in a new one."""
    desk.clock.advance(timedelta(days=3).total_seconds())

    with pytest.raises(NeedsPerson, match="bot: the certificate ended on") as caught:
        await desk.agent().token()

    assert caught.value.action.startswith("put a new certificate on the blueprint's page")
    assert desk.entra.forms == []


async def test_a_certificate_that_cannot_be_used_waits_for_the_person(desk: Desk) -> None:
    """Half a file, or somebody else's certificate: the error names the setting and shows nothing of the key."""
    whole = pem(desk.signer)
    for wrong in (whole[:200], "no certificate", pem(desk.signer, make_signer())):
        with pytest.raises(NeedsPerson, match="The certificate of the source bot") as caught:
            await desk.agent(wrong).token()

        assert caught.value.action.startswith("Set sources.bot.certificate")
        assert caught.value.__cause__ is None
        assert whole.splitlines()[1] not in shown(caught.value)


def test_an_agent_needs_a_tenant_of_its_own() -> None:
    """Where the blueprint lives cannot be guessed."""
    with pytest.raises(UserError, match="does not say which tenant"):
        AgentUserSettings(
            name="bot", tenant="common", blueprint_id=BLUEPRINT, agent_id=AGENT, user_id=USER, certificate=""
        )
