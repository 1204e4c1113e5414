"""What the tests of Teams share: the service, a client and a source in one time, and a store that is only a dict.

Time runs faster than the machine's and is the service's too. The source does not wait at all: when it rests, time
leaps. A test lets it go round a number of times, so that also "nothing more comes" is a finite test.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

import anyio
import anyio.lowlevel
import pytest

from harken.ingest.prepare import identify
from harken.model import (
    INBOX,
    Attention,
    Draft,
    Message,
    MessageId,
    MessageKind,
    OutgoingReply,
    Sender,
    Trust,
)
from harken.sources.microsoft.client import GraphClient, GraphTiming
from harken.sources.microsoft.sent import SentMessages
from harken.sources.source import Batch
from harken.sources.teams.settings import TeamsSettings
from harken.sources.teams.source import TeamsSender, TeamsSource
from tests.graph.service import Graph, serving
from tests.graph.world import Chat, ChatMessage

SECONDS: Final = 100
SPEED: Final = 20
LOOK_SECONDS: Final = 0.002
LOOKS: Final = 5_000
NAME: Final = "work"
ANN: Final = Sender("a", "Ann")
POLL: Final = 8.0


class Enough(Exception):
    """The source went round as often as it was asked to."""


class LeapingTime:
    """Time that client, source and service share. The service learns it whenever somebody looks."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._leapt = 0.0
        self.rounds_left = 0
        self.at_leaps: list[Callable[[], None]] = []
        self._shown = self._present()

    def _present(self) -> float:
        return anyio.current_time() * SPEED + self._leapt

    def monotonic(self) -> float:
        """Return the present, and let the service know."""
        now = self._present()
        self._graph.clock.advance(now - self._shown)
        self._shown = now
        return now

    async def wait(self, seconds: float) -> None:
        """Wait as long as that is here."""
        await anyio.sleep(seconds / SPEED)

    async def leap(self, seconds: float) -> None:
        """Be there at once; the last time, end the source."""
        for look in self.at_leaps:
            look()
        self.pass_by(seconds)
        self.rounds_left -= 1
        if self.rounds_left <= 0:
            raise Enough
        await anyio.lowlevel.checkpoint()

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._leapt += seconds
        self.monotonic()


@dataclass
class Keys:
    """Tokens of the service, without the trouble of signing in."""

    graph: Graph
    scopes: tuple[str, ...] = ()
    held: str = ""
    tries_left: int = -1  # so many requests are made, and the next never begins; below 0: no end
    granted: int = 0
    is_stuck: anyio.Event = field(default_factory=anyio.Event)

    def end_after(self, tries: int) -> None:
        """Let so many more requests be made, or any number if it is below 0."""
        self.tries_left = tries
        self.is_stuck = anyio.Event()

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return the token that is held, or a fresh one."""
        if self.tries_left == 0:
            self.is_stuck.set()
            await anyio.sleep_forever()
        self.tries_left -= 1
        self.granted += 1
        if is_fresh or not self.held:
            self.held = self.graph.token(*self.scopes)
        return self.held


@dataclass
class Kept:
    """What was stored: drafts once, in order, and the checkpoint."""

    drafts: list[Draft] = field(default_factory=list)
    checkpoint: str = ""
    keys: set[bytes] = field(default_factory=set)

    def take(self, batch: Batch) -> list[Draft]:
        """Store a batch as the store does: drafts it does not know, with the checkpoint."""
        new: list[Draft] = []
        for draft in batch.drafts:
            key = identify(draft).dedup_key
            assert key is not None
            if key not in self.keys:
                self.keys.add(key)
                new.append(draft)
        self.drafts += new
        self.checkpoint = batch.checkpoint if batch.checkpoint is not None else self.checkpoint
        return new

    def said(self, chat_id: str = "") -> list[tuple[str, str]]:
        """Return kind and text of what was stored, of one chat or of all."""
        return [(each.kind.value, each.text) for each in self.drafts if chat_id in {"", each.conversation}]

    def texts(self, chat_id: str = "") -> list[str]:
        """Return the texts of new messages."""
        return [text for kind, text in self.said(chat_id) if kind == MessageKind.MESSAGE]


@dataclass
class Rig:
    """A source at work."""

    graph: Graph
    client: GraphClient
    settings: TeamsSettings
    time: LeapingTime
    sent: SentMessages
    keys: Keys
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything but what was stored and sent."""
        timing = GraphTiming(wait=self.time.leap, monotonic=self.time.monotonic)
        self.source = TeamsSource(
            self.settings, self.client, self.graph.clock, self.sent, lambda: self.graph.me.id, timing=timing
        )

    def sender(self) -> TeamsSender:
        """Return what sends replies."""
        return TeamsSender(self.settings, self.client, self.sent, lambda: self.graph.me.id, self.graph.clock)

    async def go_round(self, times: int = 1) -> list[Draft]:
        """Follow the chats from what was stored, so many times round, and return what was new."""
        (feed,) = self.source.feeds()
        self.time.rounds_left = times
        new: list[Draft] = []
        try:
            async with aclosing(feed.follow(self.kept.checkpoint)) as batches:
                async for batch in batches:
                    stored = self.kept.take(batch)
                    feed.stored(stored, known=len(batch.drafts) - len(stored))
                    new += stored
        except Enough:
            pass
        return new

    async def until_stuck(self) -> None:
        """Return when no request will begin any more, and all that had begun have ended."""
        granted, answered = self._counts()
        await self.keys.is_stuck.wait()
        for _ in range(LOOKS):
            now = self._counts()
            if now[0] - granted == now[1] - answered:
                return
            await anyio.sleep(LOOK_SECONDS)
        pytest.fail("requests did not end")

    def _counts(self) -> tuple[int, int]:
        return self.keys.granted, len(self.graph.requests)


@contextmanager
def standing_service(seed: int = 7) -> Iterator[Graph]:
    """Run a service whose clock stands until somebody moves it."""
    with serving(seed=seed) as graph:
        graph.clock.freeze()
        yield graph


@asynccontextmanager
async def rigged(
    graph: Graph,
    *,
    sign_in: Literal["delegated", "agent"] = "delegated",
    watched: tuple[str, ...] = (),
    muted: tuple[str, ...] = (),
    scopes: tuple[str, ...] = (),
) -> AsyncIterator[Rig]:
    """Make a source for the service, a second after what is there was said."""
    time = LeapingTime(graph)
    verify = ssl.create_default_context(cafile=str(graph.ca))
    settings = TeamsSettings(name=NAME, sign_in=sign_in, poll=POLL, watched=watched, muted=muted)
    timing = GraphTiming(
        wait=time.wait,
        monotonic=time.monotonic,
        patience_seconds=SECONDS * SPEED,
        request_seconds=SECONDS,  # of the wall clock, as the next: a busy machine is no slow service
        chat_seconds=SECONDS,
    )
    keys = Keys(graph, scopes)
    with anyio.fail_after(SECONDS):
        async with GraphClient(
            keys, graph.clock, name=NAME, base_url=graph.url, verify=verify, timing=timing
        ) as client:
            time.pass_by(1)
            yield Rig(graph, client, settings, time, SentMessages(), keys)


@asynccontextmanager
async def begun(
    graph: Graph,
    *,
    sign_in: Literal["delegated", "agent"] = "delegated",
    watched: tuple[str, ...] = (),
    muted: tuple[str, ...] = (),
    seconds: float = 1,
) -> AsyncIterator[Rig]:
    """Make a source that has looked for the first time, a second or some more ago."""
    async with rigged(graph, sign_in=sign_in, watched=watched, muted=muted) as rig:
        await rig.go_round(1)
        rig.time.pass_by(seconds)
        yield rig


def stored(
    chat_id: str, at: datetime, message_id: str = "1", *, sender: Sender = ANN, source: str = NAME, kind: str = ""
) -> Message:
    """Return what somebody said as it is stored."""
    return Message(
        id=MessageId("m1"),
        mailbox=INBOX,
        seq=1,
        received_at=at,
        source=source,
        sender=sender,
        text="hi",
        trust=Trust.KNOWN,
        attention=Attention.WAKE,
        conversation=chat_id,
        upstream_id=f"{chat_id}/{message_id}",
        sent_at=at,
        meta={"chat_type": kind} if kind else {},
    )


def asked_in(graph: Graph, *, topic: str | None = None, name: str = "") -> tuple[Chat, Message]:
    """Let Ann ask something: in a chat with her, or in a group that has a topic."""
    ann = graph.person("Ann")
    chat = graph.chat(ann, topic=topic)
    said = graph.say(chat, ann, "<p>done?</p>")
    return chat, stored(chat.id, said.created, said.id, sender=Sender(ann.id, name or ann.name), kind=chat.kind)


def reply(to: Message, body: str = "It is done.", key: str = "o-1") -> OutgoingReply:
    """Return a reply on its way out."""
    return OutgoingReply(key=key, to=to, body=body, author="claude-code")


def said_by_us(graph: Graph, chat: Chat) -> list[ChatMessage]:
    """Return what the account itself said in a chat."""
    return [message for message in chat.messages.values() if message.sender == graph.me]
