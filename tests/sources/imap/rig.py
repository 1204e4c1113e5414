"""A mail account at a Dovecot of the test, followed while the test looks at what it yields."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from email.utils import format_datetime
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from harken.clock import SystemClock
from harken.model import Draft, OutgoingReply
from harken.sources.feed import FeedTiming
from harken.sources.imap.connection import Credentials
from harken.sources.imap.settings import ImapSettings, read_settings
from harken.sources.imap.source import ImapFolderFeed, ImapSource
from harken.sources.source import Batch
from tests.mailserver.dovecot import PASSWORD, USER, Dovecot
from tests.mailserver.sink import Sink
from tests.sources.messages_rig import stored_message

SECONDS = 20.0
NAME = "post"
VOUCHED = "Authentication-Results: mx.example.org; dmarc=pass header.from=example.net"


def entry_of(server: Dovecot, sink: Sink | None = None, **more: object) -> dict[str, object]:
    """Return the settings of an account that only ever learns of mail because the server says so."""
    entry: dict[str, object] = {
        "kind": "imap",
        "host": "127.0.0.1",
        "port": server.port,
        "security": "none",
        "user": USER,
        "password": "env:MAIL_PASSWORD",
        "poll": 86_400,
    }
    if sink is not None:
        entry |= {"smtp_host": "127.0.0.1", "smtp_port": sink.port, "smtp_security": "none"}
    return {**entry, **more}


def settings_of(server: Dovecot, sink: Sink | None = None, **more: object) -> ImapSettings:
    """Return them as they are read."""
    return read_settings(NAME, entry_of(server, sink, **more))


def credentials(look_up: Callable[[], str] = lambda: PASSWORD) -> Credentials:
    """Return who signs in."""
    return Credentials(source=NAME, user=USER, look_up=look_up)


def source_of(settings: ImapSettings, who: Credentials | None = None, timing: FeedTiming | None = None) -> ImapSource:
    """Return the account, which does not wait before it connects again."""
    at_once = timing or FeedTiming(chance=lambda: 0.0)
    return ImapSource(settings, who or credentials(), SystemClock(), at_once)


def keep_password(home: Path) -> None:
    """Put the password where the daemon and the commands look for it."""
    file = home / "env"
    file.touch(mode=0o600)
    file.write_text(f"MAIL_PASSWORD={PASSWORD}\n")


@dataclass(slots=True)
class Following:
    """A feed that is followed, what it yielded, and where it is."""

    feed: ImapFolderFeed
    batches: MemoryObjectReceiveStream[Batch]
    checkpoint: str = ""
    drafts: list[Draft] = field(default_factory=list[Draft])

    async def next(self) -> Batch:
        """Return the next batch, as if it had been stored."""
        with anyio.fail_after(SECONDS):
            batch = await self.batches.receive()
        self.checkpoint = batch.checkpoint or self.checkpoint
        self.drafts += batch.drafts
        return batch

    async def draft(self) -> Draft:
        """Return the first draft of the next batch that has one."""
        while not (batch := await self.next()).drafts:
            pass
        return batch.drafts[0]


@asynccontextmanager
async def following(feed: ImapFolderFeed, checkpoint: str = "") -> AsyncIterator[Following]:
    """Follow a feed for the time of the block, as the daemon does."""
    send, receive = anyio.create_memory_object_stream[Batch]()

    async def follow() -> None:
        async with aclosing(feed.follow(checkpoint)) as batches, send:
            async for batch in batches:
                await send.send(batch)

    async with anyio.create_task_group() as group, receive:
        group.start_soon(follow)
        yield Following(feed, receive, checkpoint)
        group.cancel_scope.cancel()


_NUMBERS = itertools.count(1)


def mail(text: str = "Hello.", *headers: str, subject: str = "A word", sender: str = "Bob <bob@example.net>") -> bytes:
    """Return a plain mail with an id of its own."""
    now = format_datetime(SystemClock().now())
    head = [f"From: {sender}", f"To: {USER}", f"Subject: {subject}", f"Date: {now}"]
    if not any(header.lower().startswith("message-id:") for header in headers):
        head.append(f"Message-ID: <{next(_NUMBERS)}@example.net>")
    return "\r\n".join([*head, *headers, "", text, ""]).encode("utf-8", "surrogateescape")


def reply_to(draft: Draft, body: str = "Thank **you**.", key: str = "o1") -> OutgoingReply:
    """Return an answer on its way out."""
    return OutgoingReply(key=key, to=stored_message(draft), body=body, author="agent")


CORPUS = Path(__file__).parent / "corpus"
