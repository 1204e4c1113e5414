"""Signing in at a token service that was built from the documentation, and using what it gives at its Graph.

It enforces what we might have got wrong: proof keys, codes that work once, refresh tokens that end when used, and every
claim of the three requests of an Agent User.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives import serialization

from harken.clock import SystemClock
from harken.errors import NeedsPerson
from harken.sources.microsoft.agent_user import AgentUser
from harken.sources.microsoft.client import GraphClient
from harken.sources.microsoft.settings import AgentUserSettings, DelegatedSettings
from harken.sources.microsoft.sign_in import DelegatedSignIn, TokenCache
from harken.sources.microsoft.sign_in_service import SignInReply, SignInService
from tests.graph.service import Graph, serving
from tests.graph.tokens import Answer
from tests.sources.microsoft.signing import logged

SECONDS = 30


@dataclass
class Desk:
    """The service, and a source that signs in there."""

    graph: Graph
    trust: ssl.SSLContext
    folder: Path

    def place(
        self,
        *,
        scopes: tuple[str, ...] = ("Chat.Read", "User.Read"),
        tenant: str = "",
        service: SignInService | None = None,
    ) -> DelegatedSignIn:
        """The sign-in as a process of its own has it."""
        clock = SystemClock()
        settings = DelegatedSettings(
            name="work",
            client_id=self.graph.client_id,
            scopes=scopes,
            tenant=tenant or self.graph.tenant,
            authority=self.graph.tokens.origin,
        )
        return DelegatedSignIn(
            settings, TokenCache(self.folder, "work"), service or SignInService(clock, trust=self.trust), clock
        )

    async def signed_in(self) -> DelegatedSignIn:
        """A sign-in that stands."""
        place = self.place()
        await place.sign_in_in_browser(lambda _: None, open_page=self.graph.browse)
        return place

    def client(self, tokens: DelegatedSignIn | AgentUser) -> GraphClient:
        """A client that uses the sign-in."""
        return GraphClient(tokens, SystemClock(), name="work", base_url=self.graph.url, verify=self.trust)

    def agent(self) -> AgentUser:
        """An Agent User that the service knows."""
        known = self.graph.register_agent()
        key = known.signer.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        settings = AgentUserSettings(
            name="bot",
            tenant=self.graph.tenant,
            blueprint_id=known.blueprint_id,
            agent_id=known.identity_id,
            user_id=known.user.id,
            certificate=(key + known.signer.certificate.public_bytes(serialization.Encoding.PEM)).decode(),
            authority=self.graph.tokens.origin,
        )
        clock = SystemClock()
        return AgentUser(settings, SignInService(clock, trust=self.trust), clock)


@pytest.fixture
def desk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    """The service; whatever happens in a test, no token that it gave out may have been logged."""
    caplog.set_level(logging.DEBUG)
    with serving(seed=7) as graph:
        graph.limits.is_on = False
        graph.sign_in.device_interval = 1
        yield Desk(graph, ssl.create_default_context(cafile=str(graph.ca)), tmp_path / "tokens")
        secrets = [*graph.tokens.access, *graph.tokens.refresh, *graph.tokens.codes, *graph.tokens.devices]
    assert [secret for secret in secrets if secret in logged(caplog)] == []


async def test_a_browser_sign_in_opens_graph(desk: Desk) -> None:
    """The whole way: proof key, code, tokens, and Graph says who we are; the same person as the sign-in says."""
    with anyio.fail_after(SECONDS):
        place = await desk.signed_in()
        async with desk.client(place) as client:
            me = await client.get("/me")

    sign_in = (await place.standing()).sign_in
    assert sign_in is not None
    assert me["id"] == sign_in.person.user_id == desk.graph.me.id
    assert sign_in.person.upn == desk.graph.me.address
    assert sign_in.person.tenant_id == desk.graph.tenant


async def test_a_code_sign_in_opens_graph_once_the_person_has_approved(desk: Desk) -> None:
    """The person takes a while: until then the service says 'pending', and is not asked too often."""
    desk.graph.sign_in.answer = Answer.WAITS
    statuses: list[int] = []

    class Approving(SignInService):
        """The person approves once we have asked in vain."""

        def post(self, url: str, **request: object) -> SignInReply:
            reply = super().post(url, **request)
            statuses.append(reply.status_code)
            if reply.status_code == 400:
                desk.graph.sign_in.answer = Answer.APPROVES
            return reply

    place = desk.place(service=Approving(SystemClock(), trust=desk.trust))
    with anyio.fail_after(SECONDS):
        sign_in = await place.sign_in_by_code(lambda _: None)
        async with desk.client(place) as client:
            assert (await client.get("/me"))["id"] == sign_in.person.user_id

    assert statuses == [200, 400, 200]


async def test_a_token_that_ended_early_is_replaced_within_the_request(desk: Desk) -> None:
    """Graph answers 401, the client asks for a fresh token once, and nobody notices."""
    with anyio.fail_after(SECONDS):
        place = await desk.signed_in()
        await place.token()
        desk.graph.expire_tokens()
        async with desk.client(place) as client:
            assert (await client.get("/me"))["id"] == desk.graph.me.id


async def test_a_revoked_sign_in_needs_the_person_and_nothing_else(desk: Desk) -> None:
    """A changed password ends everything: the client's error is the one that tells the person what to do."""
    with anyio.fail_after(SECONDS):
        place = await desk.signed_in()
        await place.token()
        desk.graph.revoke_sign_in()
        async with desk.client(place) as client:
            with pytest.raises(NeedsPerson) as caught:
                await client.get("/me")
            assert caught.value.action == "sign in again with: harken source login work"
            await desk.signed_in()
            assert (await client.get("/me"))["id"] == desk.graph.me.id


async def test_processes_that_renew_at_once_do_not_end_each_others_sign_in(desk: Desk) -> None:
    """Where a refresh token works once, two who use the same one would lose the sign-in for both."""
    with anyio.fail_after(SECONDS):
        await desk.signed_in()
        desk.graph.sign_in.ends_used_refresh_tokens = True
        got: list[str] = []

        async def renew() -> None:
            got.append(await desk.place().token(is_fresh=True))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(renew)

    assert len(set(got)) == 4


async def test_declining_is_told_apart_from_waiting_too_long(desk: Desk) -> None:
    """Both end without a sign-in; one is a decision and the other is not."""
    with anyio.fail_after(SECONDS):
        desk.graph.sign_in.answer = Answer.DECLINES
        with pytest.raises(NeedsPerson, match="the sign-in was declined"):
            await desk.place().sign_in_in_browser(lambda _: None, open_page=desk.graph.browse)
        with pytest.raises(NeedsPerson, match="the sign-in was declined"):
            await desk.place().sign_in_by_code(lambda _: None)
        desk.graph.sign_in.answer = Answer.WAITS
        with pytest.raises(NeedsPerson, match="the code was not entered in time"):
            await desk.place().sign_in_by_code(lambda _: desk.graph.clock.advance(3_600))


async def test_missing_consent_names_who_must_consent_and_where(desk: Desk) -> None:
    """Most organisations let only an administrator allow this: the person needs an address to send them."""
    desk.graph.sign_in.consented.discard("Chat.Read")
    place = f"{desk.graph.authority}/adminconsent?client_id={desk.graph.client_id}"

    with anyio.fail_after(SECONDS):
        for sign_in in (
            desk.place().sign_in_in_browser(lambda _: None, open_page=desk.graph.browse),
            desk.place().sign_in_by_code(lambda _: None),
        ):
            with pytest.raises(NeedsPerson, match="nobody has allowed the app") as caught:
                await sign_in
            assert place in caught.value.action


async def test_a_new_policy_of_the_organisation_asks_for_the_person(desk: Desk) -> None:
    """A second factor can only be shown by signing in again; then everything goes on."""
    with anyio.fail_after(SECONDS):
        place = await desk.signed_in()
        desk.graph.sign_in.needs_second_factor = True
        with pytest.raises(NeedsPerson, match="such as a second factor"):
            await place.token(is_fresh=True)
        await desk.signed_in()
        assert await place.token()


async def test_a_wrong_tenant_and_a_wrong_permission_are_named(desk: Desk) -> None:
    """What is wrong in the settings is said with the name of the setting."""
    with anyio.fail_after(SECONDS):
        with pytest.raises(NeedsPerson) as caught:
            await desk.place(tenant="contoso.example").sign_in_by_code(lambda _: None)
        assert caught.value.action.startswith("check sources.work.tenant")
        with pytest.raises(NeedsPerson) as caught:
            await desk.place(scopes=("Chat.Red",)).sign_in_by_code(lambda _: None)
        assert caught.value.action == "check sources.work.scopes"


async def test_an_agent_user_opens_graph_with_its_certificate(desk: Desk) -> None:
    """The service checks thumbprint, signature, audience, issuer and times of what we signed, and both exchanges."""
    with anyio.fail_after(SECONDS):
        agent = desk.agent()
        async with desk.client(agent) as client:
            first = await client.get("/me")
            desk.graph.expire_tokens()
            second = await client.get("/me")

    sign_in = (await agent.standing()).sign_in
    assert sign_in is not None
    assert first["id"] == second["id"] == sign_in.person.user_id


async def test_an_agent_user_with_a_wrong_clock_is_told_so(desk: Desk) -> None:
    """The service's time moves away from ours by half an hour, which is what a wrong clock looks like from here."""
    desk.graph.clock.advance(1_800)

    with anyio.fail_after(SECONDS), pytest.raises(NeedsPerson) as caught:
        await desk.agent().token()

    assert caught.value.action.startswith("set the clock of this machine")


async def test_what_graph_asks_a_token_to_have_is_asked_for_once(desk: Desk) -> None:
    """A challenge names claims; a token that was had with them is accepted, and nobody has to do anything."""
    with anyio.fail_after(SECONDS):
        place = await desk.signed_in()
        desk.graph.sign_in.challenges_claims = True
        async with desk.client(place) as client:
            me = await client.get("/me")
            await client.get("/me")
    assert me["id"] == desk.graph.me.id
    assert [each.status for each in desk.graph.asked("/me")] == [401, 200, 200]


async def test_claims_that_only_a_person_can_bring_are_said_to_the_person(desk: Desk) -> None:
    """The token service refuses without a second factor: that is what the person is told, and not asked again."""
    with anyio.fail_after(SECONDS):
        place = await desk.signed_in()
        desk.graph.sign_in.challenges_claims = True
        desk.graph.sign_in.needs_second_factor = True
        async with desk.client(place) as client:
            with pytest.raises(NeedsPerson) as refused:
                await client.get("/me")
    assert "harken source login work" in refused.value.action
    assert [each.status for each in desk.graph.asked("/me")] == [401]
