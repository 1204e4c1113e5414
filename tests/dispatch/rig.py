"""The parts that ring and wake, joined as the daemon joins them, over a real store and a clock that the test moves.

Sessions are put into the registry by hand; the ways to wake them are the real ones, with a pipe that the test holds at
their end. This module tests nothing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from anyio.abc import UNIXSocketStream

from harken.daemon.session_wiring import SessionWiring
from harken.dispatch.bells import Bells
from harken.hosts.hook import Hello
from harken.inbox.access import Access
from harken.inbox.caller import Bounds
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Approvals, Questions
from harken.inbox.taskbook import TaskBook
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.pairing import Pairings
from harken.ingest.policy import IngestPolicy
from harken.model import (
    INBOX,
    Attention,
    Delivery,
    Draft,
    Mailbox,
    Message,
    Priority,
    Sender,
    SenderRule,
    SessionKey,
    Trust,
    WakeResult,
)
from harken.processes import LocalOrigin
from harken.sessions.registry import Sessions
from harken.sessions.session import MailScope, Session
from harken.store.contract import Store
from harken.store.sqlite import open_store
from harken.surfaces.composer import HookComposer, HookText
from harken.surfaces.hooks import TextWaker
from harken.surfaces.wire import LineReader
from harken.testing import FakeClock
from tests.builders import a_session
from tests.inbox.rig import Quiet

POLICY: Final = IngestPolicy(
    sender_rules=(SenderRule("local", "owner", Trust.OWNER),),
    default_trust={"local": Trust.KNOWN, "teams": Trust.KNOWN, "webhook": Trust.KNOWN},
    default_attention={"local": Attention.WAKE, "teams": Attention.WAKE, "webhook": Attention.PROMPT},
)


@dataclass(slots=True)
class Pipe:
    """Takes the texts of a wake, as a program beside a host does; or refuses them."""

    is_taking: bool = True
    texts: list[str] = field(default_factory=list[str])

    async def send(self, told: HookText) -> bool:
        """Take a text."""
        self.texts.append(told.text)
        return self.is_taking


@dataclass(slots=True)
class FakeWaker:
    """A way that carries nothing, as a bell does: it counts how often it was pulled."""

    name: str = "wake: bell"
    wakes: int = 0

    async def wake(self) -> WakeResult:
        """Count."""
        self.wakes += 1
        return WakeResult.TAKEN


@dataclass(frozen=True, slots=True)
class DispatchFixture:
    """Everything one test needs."""

    folder: Path
    clock: FakeClock
    store: Store
    intake: Intake
    inbox: Inbox
    access: Access
    policies: PolicyBook
    bells: Bells
    wiring: SessionWiring

    @property
    def sessions(self) -> Sessions:
        """Who is here."""
        return self.inbox.sessions

    async def say(
        self,
        text: str = "is it done?",
        *,
        source: str = "teams",
        sender: str = "ann",
        mailbox: Mailbox = INBOX,
        priority: Priority = Priority.NORMAL,
        channel: str = "teams",
    ) -> Message:
        """Let somebody say something; return what was stored."""
        draft = Draft(
            source=source, sender=Sender(sender), text=text, mailbox=mailbox, priority=priority, channel=channel
        )
        (appended,) = await self.intake.accept([draft])
        return appended.message

    def come(self, host: str = "claude-code", number: int = 1, *, mailboxes: tuple[Mailbox, ...] = (INBOX,)) -> Session:
        """Let a session come that hooks have told of and that is connected."""
        now = self.clock.advance(1)
        session = a_session(
            host,
            key=SessionKey(f"{host}:{number}"),
            pid=number,
            mailboxes=mailboxes,
            opened_at=now - timedelta(minutes=1),
            last_active=now,
            native=f"n{number}",
            moments={"prompt"},
            is_busy=False,
        )
        return self.sessions.open(session, f"edge-{host}-{number}", Quiet())

    def go(self, session: Session) -> None:
        """Let a session end."""
        self.sessions.end(session.key)

    def pipe(self, session: Session, name: str = "wake: line", *, is_taking: bool = True) -> Pipe:
        """Give a session a way to be woken that carries the text."""
        pipe = Pipe(is_taking)
        session.wakers[name] = TextWaker(
            name=name,
            session=session,
            composer=HookComposer(self.inbox, Questions(self.store, self.clock)),
            send=pipe.send,
            most_chars=8_000,
            speaks_as_user=False,
        )
        self.sessions.note_change()
        return pipe

    def waker(self, session: Session, name: str = "wake: bell") -> FakeWaker:
        """Give a session a way to be woken that carries nothing."""
        waker = FakeWaker(name)
        session.wakers[name] = waker
        self.sessions.note_change()
        return waker

    async def prompt(self, session: Session, text: str) -> str:
        """Let the prompt hook of a Claude Code session run; return what it prints."""
        return await self._hook(session, "prompt", {"hook_event_name": "UserPromptSubmit", "prompt": text})

    async def tool(self, session: Session) -> str:
        """Let the hook run that follows a tool; return what it prints."""
        return await self._hook(session, "tool", {"hook_event_name": "PostToolBatch"})

    async def _hook(self, session: Session, moment: str, said: Mapping[str, str]) -> str:
        payload = json.dumps({"session_id": session.native, **said}).encode()
        hello = Hello(host="claude-code", moment=moment, payload=len(payload), env={"CLAUDE_PID": str(session.pid)})
        ours, theirs = socket.socketpair()
        with theirs:
            # It says beforehand that it has printed: nobody here fails to.
            theirs.sendall(payload + b"+")
            async with await UNIXSocketStream.from_socket(ours) as stream:
                await self.wiring.serve_hook(stream, LineReader(stream), hello, LocalOrigin())
            return theirs.recv(1 << 16).decode()

    def bell(self, host: str = "claude-code") -> str:
        """What a host's hooks find in its bell; empty when there is none."""
        path = self.folder / host
        return path.read_text() if path.exists() else ""

    async def ledger(self, message: Message) -> Collection[Delivery]:
        """What became of a message."""
        return await self.store.deliveries.ledger(message.id)

    async def look(self) -> None:
        """Let the bells be looked at, as their loop does."""
        await self.wiring.ringer.look()

    async def wake(self) -> None:
        """Let whoever should be woken be so, as the loop does."""
        await self.wiring.wakes.look()


@asynccontextmanager
async def open_dispatch_fixture(folder: Path) -> AsyncIterator[DispatchFixture]:
    """Join the parts over a new store."""
    clock = FakeClock()
    bells_folder = folder / "bells"
    bells_folder.mkdir()
    bells = Bells(bells_folder)
    database, before, after = folder / "harken.db", bells.before_commit, bells.after_commit
    async with open_store(database, clock, before_commit=before, after_commit=after) as store:
        pairings = Pairings(clock)
        policies = PolicyBook(store.people, store.tokens, POLICY)
        intake = Intake(store, policies, pairings)
        inbox = Inbox(store, intake, policies, Sessions(), clock, bounds=Bounds(), tasks=TaskBook(store.tasks))
        wiring = SessionWiring(
            inbox,
            store,
            clock,
            bells,
            lambda _cwd, agent, _named=None, **_: MailScope(agent),
            questions=Questions(store, clock),
            approvals=Approvals(store, clock),
            naming=lambda *_: None,
        )
        yield DispatchFixture(
            folder=bells_folder,
            clock=clock,
            store=store,
            intake=intake,
            inbox=inbox,
            access=Access(store.people, policies, pairings, clock),
            policies=policies,
            bells=bells,
            wiring=wiring,
        )
