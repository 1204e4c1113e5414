"""Signing in at a token service that was built from the documentation, and using what it gives at its Graph.

It enforces what we might have got wrong: proof keys, codes that work once and refresh tokens that end when used. How
people sign in there, and what they are told of a refusal, is in `tests/cli`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from harken.clock import SystemClock
from harken.errors import NeedsPerson
from harken.sources.microsoft.client import GraphClient
from harken.sources.microsoft.settings import DelegatedSettings
from harken.sources.microsoft.sign_in import DelegatedSignIn, TokenCache
from harken.sources.microsoft.sign_in_service import SignInService
from tests.graph.service import Graph, serving
from tests.sources.microsoft.signing import logged

SECONDS = 30


@dataclass
class Desk:
    """The service, and a source that signs in there."""

    graph: Graph
    trust: ssl.SSLContext
    folder: Path

    def place(self) -> DelegatedSignIn:
        """The sign-in as a process of its own has it."""
        clock = SystemClock()
        settings = DelegatedSettings(
            name="work",
            client_id=self.graph.client_id,
            scopes=("Chat.Read", "User.Read"),
            tenant=self.graph.tenant,
            authority=self.graph.tokens.origin,
        )
        return DelegatedSignIn(settings, TokenCache(self.folder, "work"), SignInService(clock, trust=self.trust), clock)

    async def signed_in(self) -> DelegatedSignIn:
        """A sign-in that stands."""
        place = self.place()
        await place.sign_in_in_browser(lambda _: None, open_page=self.graph.browse)
        return place

    def client(self, tokens: DelegatedSignIn) -> GraphClient:
        """A client that uses the sign-in."""
        return GraphClient(tokens, SystemClock(), name="work", base_url=self.graph.url, verify=self.trust)


@pytest.fixture
def desk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    """The service; whatever happens in a test, no token that it gave out may have been logged."""
    caplog.set_level(logging.DEBUG)
    with serving(seed=7) as graph:
        graph.limits.is_on = False
        yield Desk(graph, ssl.create_default_context(cafile=str(graph.ca)), tmp_path / "tokens")
        secrets = [*graph.tokens.access, *graph.tokens.refresh, *graph.tokens.codes, *graph.tokens.devices]
    assert [secret for secret in secrets if secret in logged(caplog)] == []


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
