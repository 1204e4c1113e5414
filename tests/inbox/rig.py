"""The use cases over a real SQLite store, with a clock that the test moves. This module tests nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from harken.inbox.access import Access
from harken.inbox.caller import Bounds, Caller, Role
from harken.inbox.inbox import Inbox
from harken.inbox.taskbook import TaskBook
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import IngestPolicy
from harken.model import (
    INBOX,
    Attention,
    Consumer,
    DeliveryId,
    Draft,
    Mailbox,
    Offer,
    Reader,
    Sender,
    SenderRule,
    SessionKey,
    Trust,
)
from harken.sessions.registry import Sessions
from harken.sessions.session import Note, Session
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.testing import FakeClock
from tests.builders import a_session

OWNER: Final = Caller(role=Role.OWNER)
CLAUDE: Final = Consumer("claude-code")
AGENT: Final = Caller(role=Role.AGENT, consumer=CLAUDE, session=SessionKey("s1"))
FIRST: Final = Reader(consumer=CLAUDE, session=SessionKey("s1"))
SECOND: Final = Reader(consumer=CLAUDE, session=SessionKey("s2"))
OTHER: Final = Reader(consumer=Consumer("copilot-cli"), session=SessionKey("o1"))
WAIT_SECONDS: Final = 20.0


class Quiet:
    """A connection that needs no hints."""

    def push(self, note: Note) -> None:
        """Ignore it."""

    def notify(self, method: str, params: Mapping[str, object]) -> bool:
        """Nothing is sent here."""
        del method, params
        return False

    def abandon(self, but_of: str = "") -> Sequence[str]:
        """Return that no answer is unproven."""
        del but_of
        return ()

    def settle(self, turn: str = "") -> Sequence[DeliveryId]:
        """Nothing was answered here."""
        del turn
        return ()


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything one test needs."""

    inbox: Inbox
    access: Access
    intake: Intake
    store: Store
    clock: FakeClock

    async def send(self, text: str = "the build is red", **more: str) -> str:
        """Send a message as the CI; return its id."""
        return (await self.inbox.send(OWNER, text, **{"sender": "ci-bot", "channel": "ci", **more})).message.id

    async def pull(self, reader: Reader = FIRST, limit: int = 20) -> Sequence[Offer]:
        """Take what waits."""
        return (await self.inbox.pull(reader, limit=limit, surface="pull", carrier="c1")).offers

    async def wait(self, reader: Reader = FIRST, seconds: float = WAIT_SECONDS, max_items: int = 10) -> Sequence[Offer]:
        """Wait for something."""
        waited = await self.inbox.wait(
            reader, timeout_seconds=seconds, max_items=max_items, surface="wait", carrier=f"wait/{reader.session}"
        )
        return waited.offers

    def connect(self, reader: Reader) -> Session:
        """Let a reader's session be here, active now."""
        now = self.clock.advance(1)
        session = a_session(
            at=now,
            key=reader.session,
            agent=reader.consumer,
            consumer=reader.consumer,
            host="generic",
            client="test",
            pid=0,
            mailboxes=reader.mailboxes,
        )
        return self.inbox.sessions.open(session, f"edge of {reader.session}", Quiet())


@asynccontextmanager
async def open_bench(folder: Path, bounds: Bounds) -> AsyncIterator[Bench]:
    """Join the use cases over a new store."""
    clock = FakeClock()
    policy = IngestPolicy(
        sender_rules=(SenderRule("local", "owner", Trust.OWNER),),
        default_trust={"local": Trust.KNOWN, "teams": Trust.UNKNOWN},
        default_attention={"local": Attention.WAKE, "teams": Attention.WAKE},
    )
    async with open_store(folder / "harken.db", clock) as store:
        pairings = Pairings(clock)
        policies = PolicyBook(store.people, store.tokens, policy)
        intake = Intake(store, policies, pairings)
        inbox = Inbox(store, intake, policies, Sessions(), clock, bounds=bounds, tasks=TaskBook(store.tasks))
        yield Bench(inbox, Access(store.people, policies, pairings, clock), intake, store, clock)


def ids(offers: Sequence[Offer]) -> list[str]:
    """Return which messages were handed out."""
    return [offer.message.id for offer in offers]


def reads(reader: Reader, *mailboxes: str) -> Reader:
    """Return a reader that also reads other mailboxes."""
    names = (INBOX, *(Mailbox(name) for name in mailboxes))
    return Reader(consumer=reader.consumer, session=reader.session, mailboxes=names)


def from_teams(text: str, sender: str = "ann") -> Draft:
    """Return what someone outside wrote."""
    return Draft(source="teams", sender=Sender(sender, sender.title()), text=text, channel="teams")


LEASE: Final = timedelta(minutes=15)
