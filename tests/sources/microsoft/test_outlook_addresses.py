"""Whose address a mail is written to: what the service tells of the account, what is configured, and nothing forged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.sources.feed import FeedTiming
from harken.sources.microsoft.client import GraphClient
from harken.sources.microsoft.sent import SentMessages
from harken.sources.microsoft.settings import MAX_ADDRESSES, mail_address
from harken.sources.outlook import source as outlook
from harken.sources.outlook.settings import OutlookSettings, read_settings
from harken.sources.outlook.source import KEPT, TROUBLED, OwnAddresses, addresses_in
from harken.sources.teams.settings import read_settings as read_teams
from tests.graph.service import Graph, serving
from tests.graph.world import Person
from tests.sources.microsoft.loopback import Calling, Reply, Visit, refused, told
from tests.sources.microsoft.loopback import calling as far_calling
from tests.sources.microsoft.outlook_rig import NAME, Keys, Listener, at_once, calling, settings

UPN: Final = "r1234@corp.example.test"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
ENTRY: Final = {"kind": "outlook", "client_id": "1b730954-1685-4b74-9bfd-dac224a7b894"}


@pytest.fixture
def graph() -> Iterator[Graph]:
    """A service whose clock stands, and a person who signs in by another name than their address."""
    with serving(seed=5) as service:
        service.limits.is_on = False
        service.clock.freeze()
        proxies = ("SMTP:robin.owner@example.test", "smtp:Robin@Example.Test", "SIP:sip-only@example.test")
        service.world.me = replace(service.me, upn=UPN, proxies=proxies)
        yield service


@dataclass
class Desk:
    """The inbox of an account, and who asked in it."""

    graph: Graph
    client: GraphClient
    settings: OutlookSettings
    listener: Listener = field(default_factory=Listener)
    since: datetime = START

    def __post_init__(self) -> None:
        self.source = outlook.OutlookSource(
            self.settings,
            self.client,
            self.graph.clock,
            SentMessages(),
            lambda: self.graph.me.id,
            upn=lambda: UPN,
            since=lambda: self.since,
            timing=FeedTiming(wait=at_once),
        )

    async def look(self) -> None:
        """Look once."""
        self.graph.clock.advance(60)
        await self.listener.look(self.source.feeds()[0])

    async def asked(self, *addresses: str) -> list[bool]:
        """Let a mail come to each of these addresses, and return of each whether it asks."""
        await self.look()
        heard = len(self.listener.heard)
        for address in addresses:
            self.graph.mail(self.graph.person("Ann"), "x", f"<p>{address}</p>", to=[Person("x", "You", address)])
        await self.look()
        return [draft.is_question for draft in self.listener.heard[heard:]]

    @property
    def profile(self) -> list[str]:
        """What was asked of the account itself."""
        return [each.path for each in self.graph.requests if each.path.endswith("/me")]


async def test_every_address_that_the_service_tells_is_the_accounts_own(graph: Graph) -> None:
    """People write to an alias as well as to the address; the name of the sign-in is often neither."""
    async with calling(graph) as client:
        desk = Desk(graph, client, settings(graph))
        addresses = (
            "Robin.Owner@example.test",
            "robin@example.test",
            UPN,
            "sip-only@example.test",
            "else@example.test",
        )
        assert await desk.asked(*addresses) == [True, True, True, False, False]
        assert await desk.asked("robin@example.test") == [True]
        assert len(desk.profile) == 1


async def test_a_mail_to_an_agent_user_asks(graph: Graph) -> None:
    """Its sign-in names no address at all, so only the service can tell."""
    agent = graph.register_agent().user
    async with calling(graph, Keys(graph, ("User.Read",), graph.token("User.Read", user=agent))) as client:
        own = OwnAddresses(
            settings(graph, mode="agent"), client, graph.clock, me=lambda: agent.id, since=lambda: None, upn=str
        )
        assert own.read() == frozenset()
        await own.learn()
        assert own.read() == {agent.address}


async def test_what_is_configured_counts_where_the_service_does_not_tell(
    graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the permission mail is read all the same, and the log says once why some of it does not ask."""
    caplog.set_level(logging.INFO, "harken.sources.microsoft")
    async with calling(graph, Keys(graph, ("Mail.Read",))) as client:
        desk = Desk(graph, client, msgspec.structs.replace(settings(graph), addresses=("team@example.test",)))
        for _ in range(2):
            assert await desk.asked("team@example.test", UPN, "robin@example.test") == [True, True, False]
        assert len(desk.profile) == 1
    assert sum("does not tell the addresses" in record.message for record in caplog.records) == 1


async def test_a_new_sign_in_is_asked_anew(graph: Graph) -> None:
    """Somebody else may be signed in: their addresses count then, and those of before no more."""
    keys = Keys(graph)
    async with calling(graph, keys) as client:
        desk = Desk(graph, client, settings(graph))
        assert await desk.asked("robin@example.test") == [True]
        graph.world.me = replace(graph.me, proxies=("smtp:new@example.test",))
        desk.since += timedelta(seconds=1)
        keys.held = ""
        assert await desk.asked("robin@example.test", "new@example.test") == [False, True]
        assert len(desk.profile) == 2


def own_of(far: Calling, who: list[str]) -> OwnAddresses:
    """Return the addresses of whoever is signed in."""
    wanted = OutlookSettings(name=NAME)
    return OwnAddresses(wanted, far.client, far.time.clock, me=lambda: who[0], since=lambda: None, upn=str)


async def test_what_is_told_while_somebody_else_signs_in_is_nobodys() -> None:
    """Else mail to the one would ask the other's agent, at the latest when the one is back."""
    who = ["ann"]

    def judge(_visit: Visit) -> Reply:
        who[0] = "bob"
        return told({"mail": "bob@example.test"})

    async with far_calling(judge) as far:
        own = own_of(far, who)
        await own.learn()
        assert own.read() == frozenset()
        who[0] = "ann"
        assert own.read() == frozenset()
        who[0] = "bob"
        await own.learn()
        assert own.read() == {"bob@example.test"}


async def test_an_account_without_such_a_property_is_asked_for_less() -> None:
    """A personal account refuses the question for its aliases, and still has an address."""

    def judge(visit: Visit) -> Reply:
        return refused(400, "BadRequest") if "proxyAddresses" in visit.target else told({"mail": "ann@example.test"})

    async with far_calling(judge) as far:
        own = own_of(far, ["ann"])
        await own.learn()
        assert own.read() == {"ann@example.test"}


@pytest.mark.parametrize(("status", "pause"), [(403, KEPT), (404, TROUBLED), (503, TROUBLED)])
async def test_what_was_known_stays_while_the_service_does_not_tell(status: int, pause: timedelta) -> None:
    """An outage of the directory must not turn questions into notes, nor be asked about at every mail."""
    answers = [told({"mail": "ann@example.test"})]
    async with far_calling(lambda _: answers[0]) as far:
        own = own_of(far, ["ann"])
        await own.learn()
        answers[0] = refused(status, "Failed")
        far.time.clock.advance(KEPT.total_seconds())
        await own.learn()
        asked = len(far.service.visits)
        far.time.clock.advance(pause.total_seconds() - 1)
        await own.learn()
        assert own.read() == {"ann@example.test"}
        assert len(far.service.visits) == asked
        answers[0] = told({"mail": "new@example.test"})
        far.time.clock.advance(1)
        await own.learn()
        assert own.read() == {"new@example.test"}


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON, st.lists(JSON | st.text().map(lambda text: f"smtp:{text}")) | JSON)
def test_whatever_the_service_says_only_addresses_are_taken(mail: object, upn: object, proxies: object) -> None:
    """What it tells is compared with mail from strangers: an empty text or a star must match nobody."""
    for found in addresses_in({"mail": mail, "userPrincipalName": upn, "proxyAddresses": proxies}):
        assert found == mail_address(found)
        assert found.count("@") == 1
        assert found.isprintable()


def test_more_addresses_than_an_account_can_have_are_not_kept() -> None:
    """An answer without an end must not fill the memory."""
    many = [f"smtp:{number}@example.test" for number in range(MAX_ADDRESSES * 2)]
    assert len(addresses_in({"proxyAddresses": many})) == MAX_ADDRESSES


@pytest.mark.parametrize("wrong", ["team@example.test", ["nobody"], ["a@b@c"], ["a b@c"], [""], [1], ["@"]])
def test_what_is_no_address_is_refused_by_its_key(wrong: object) -> None:
    """A slip would let a mailbox's mail never ask, and nobody would know why."""
    with pytest.raises(UserError, match=r"sources\.mail\.addresses"):
        read_settings("mail", {**ENTRY, "addresses": wrong})


@pytest.mark.parametrize(
    ("given_", "kept"), [([], ()), (["Team@Example.Test ", "team@example.test"], ("team@example.test",))]
)
def test_addresses_are_kept_as_they_are_compared(given_: Sequence[str], kept: tuple[str, ...]) -> None:
    """Upper and lower case are the same mailbox."""
    assert read_settings("mail", {**ENTRY, "addresses": given_}).addresses == kept
    with pytest.raises(UserError, match="addresses"):
        read_teams("chats", {**ENTRY, "kind": "teams", "addresses": given_})
