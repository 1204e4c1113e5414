"""Tasks over a real store, joined as the daemon joins them, with sessions that a test lets come and go.

Folders are real, because links between them count. This module tests nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from harken.config.home import Home, ensure
from harken.config.settings import Settings
from harken.daemon.compose import Daemon, compose
from harken.dispatch.outbox import Outbox
from harken.inbox.caller import Caller, Role
from harken.inbox.inbox import Inbox
from harken.inbox.results import LedgerEntry, TaskProgress
from harken.inbox.tasks import NewTask, Tasks
from harken.model import LOCAL, Consumer, Draft, Mailbox, Message, Offer, SessionKey, Task
from harken.sessions.session import Session
from harken.sources.local import LocalSender
from harken.store.contract import Store
from harken.testing import FakeClock
from tests.builders import a_session
from tests.inbox.rig import Quiet

OWNER: Final = Caller(role=Role.OWNER)


@dataclass(slots=True)
class Workshop:
    """Everything one test needs."""

    daemon: Daemon
    clock: FakeClock
    root: Path
    numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def tasks(self) -> Tasks:
        """The use cases of tasks."""
        return self.daemon.tasks

    @property
    def inbox(self) -> Inbox:
        """The use cases of messages."""
        return self.daemon.inbox

    @property
    def store(self) -> Store:
        """Where it all is."""
        return self.daemon.store

    def folder(self, name: str) -> str:
        """Return a folder that is there."""
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    async def new(self, name: str, *links: str, prompt: str = "", folder: str = "") -> Task:
        """Make a task whose id is its title."""
        asked = NewTask(title=name, id=name, dir=folder or self.folder(name), links=links, prompt=prompt)
        return (await self.tasks.new(OWNER, asked)).task

    def session(self, cwd: str, agent: str = "claude-code") -> Session:
        """Let a session come that runs in a folder, as its edge would say."""
        now, reading = self.clock.advance(1), self.daemon.reading_of(cwd, Consumer(agent))
        number = next(self.numbers)
        session = a_session(
            at=now,
            key=SessionKey(f"{agent}:{number}"),
            agent=Consumer(agent),
            consumer=reading.consumer,
            host="generic",
            client=agent,
            cwd=cwd,
            pid=0,
            mailboxes=reading.mailboxes,
        )
        return self.inbox.sessions.open(session, f"edge {number}", Quiet())

    async def leave(self, session: Session) -> None:
        """Let a session go, as its edge does when it ends."""
        self.inbox.sessions.end(session.key)
        await self.inbox.proofs.release(session.key)

    async def check(self, session: Session, name: str = "", *, consume: bool = True) -> list[str]:
        """Return the texts that `check_inbox` gives a session; a later call of it proves them."""
        offers = await self.offers(session, name, consume=consume)
        return [offer.message.text for offer in offers]

    async def offers(self, session: Session, name: str = "", *, consume: bool = True) -> Sequence[Offer]:
        """Return what `check_inbox` gives a session."""
        _, pulled = await self.tasks.check(
            says(session), name, session=session.key, carrier=f"call {next(self.numbers)}", consume=consume
        )
        return pulled.offers

    async def read(self, session: Session) -> list[str]:
        """Check, and prove it: the model had it."""
        offers = await self.offers(session)
        await self.inbox.proofs.prove([offer.delivery_id for offer in offers], "later call")
        return [offer.message.text for offer in offers]

    async def pull(self, session: Session) -> list[str]:
        """Return what `inbox_pull` gives a session."""
        pulled = await self.inbox.pull(session.reader, surface="inbox_pull", carrier=f"call {next(self.numbers)}")
        return [offer.message.text for offer in pulled.offers]

    async def mail(self, task: Task | str) -> Sequence[Message]:
        """Return every message of a mailbox, the oldest first."""
        name = task if isinstance(task, str) else task.mailbox
        return await self.inbox.list(mailbox=Mailbox(name), limit=100)

    async def ledger(self, message: Message, task: Task) -> LedgerEntry:
        """Return the line of a task in the ledger of a message."""
        (line,) = [each for each in (await self.inbox.read(message.id)).ledger if each.consumer == task.consumer]
        return line

    async def standing(self, task: Task) -> TaskProgress:
        """Return how a task stands."""
        return await self.tasks.show(task.id)

    async def send_replies(self) -> None:
        """Let replies leave."""

        async def post(draft: Draft) -> str:
            return (await self.daemon.intake.accept([draft]))[0].message.id

        await Outbox(self.store, {LOCAL: LocalSender(post)}, self.clock).send_due(LOCAL)

    async def until_waiting(self, session: Session) -> None:
        """Return when a session is in a long poll that has looked once: whatever is written now comes after it."""
        while not session.is_waiting:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        await self.store.events.record("marker", {})

    async def everything(self) -> tuple[int, list[Message]]:
        """Return what changes when anything does: how many events and which messages there are."""
        return await self.store.events.last(), list(await self.inbox.list(limit=1000))


def says(session: Session) -> Caller:
    """Return a session as the one who asks."""
    return Caller(role=Role.AGENT, consumer=session.consumer, session=session.key)


@asynccontextmanager
async def open_workshop(folder: Path) -> AsyncIterator[Workshop]:
    """Join a daemon's parts, without its sockets."""
    home, clock = Home(folder / "home"), FakeClock()
    ensure(home)
    root = folder / "w"
    root.mkdir(exist_ok=True)
    async with compose(home, Settings(), clock) as daemon:
        yield Workshop(daemon, clock, root)
