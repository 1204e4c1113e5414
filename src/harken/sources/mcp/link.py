"""What a link to an MCP server is on any transport, how it ends, and what it reports.

A link is one conversation at a time; `source.py` opens it again and again and decides when. It hands what it hears to
a `LinkReceiver` and waits there when too much is waiting to be stored: a fast server is read no faster than we store.
`ServerReplies` answers what a server asks, beside the reading and never in its way.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

import anyio

from harken.sources.mcp import protocol
from harken.sources.mcp.protocol import Announcement, RpcRequest

Ended = TypeVar("Ended")

MAX_WAITING: Final = 64

_log = logging.getLogger("harken.sources.mcp")


class LinkTrouble(Exception):
    """Why a link cannot go on. `reason` is a sentence for people, without anything secret."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LinkLost(LinkTrouble):
    """The connection failed or ended; trying again may help, after `retry_after` seconds if the server said so."""

    def __init__(self, reason: str, *, retry_after: float | None = None, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.is_refused = is_refused


class PushUnsupported(LinkTrouble):
    """The server is there and will never announce anything."""


class SessionGone(LinkTrouble):
    """The server does not know our session any more; a new one may begin at once."""


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The server ended the stream properly, perhaps saying when to come back."""

    retry_after: float | None = None


class LinkReceiver(Protocol):
    """Who is told what a link hears."""

    def met(self, server: str) -> None:
        """Take note of what the server calls itself."""
        ...

    def opened(self, *, is_resumed: bool) -> None:
        """Take note that announcements arrive from now on; resumed: nothing was missed since the last time."""
        ...

    def missed(self) -> None:
        """Take note that the server has skipped something, though the connection stands."""
        ...

    def waits(self, reason: str) -> None:
        """Take note why nothing arrives yet."""
        ...

    def gave_up(self, count: int) -> None:
        """Take note of announcements that were too long to be read."""
        ...

    async def take(self, announcements: Sequence[Announcement], checkpoint: str | None = None) -> None:
        """Keep announcements, and the position after them, until they are stored; wait while too many are waiting."""
        ...


class Link(Protocol):
    """A way to one server. It is entered before use, and left to end it politely."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *details: object) -> None: ...

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Connect and hand everything announced to the desk until the connection ends; raises `LinkTrouble`."""
        ...


class IdleTimer:
    """When the last byte came."""

    def __init__(self) -> None:
        self.at = anyio.current_time()

    def beat(self) -> None:
        """Note that a byte came."""
        self.at = anyio.current_time()


@contextmanager
def bounded(seconds: float, doing: str) -> Iterator[None]:
    """Raise `LinkLost` when what is done in the block takes too long."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as exc:
        raise LinkLost(f"the server does not answer {doing} within {seconds:g} seconds") from exc


async def watched(
    read: Callable[[IdleTimer], Awaitable[Ended]],
    probe: Callable[[], Awaitable[str]],
    idle: Callable[[], float],
    *beside: Callable[[], Coroutine[Any, Any, None]],
) -> Ended:
    """Return what `read` returns; when no byte came for `idle` seconds, `probe` says why the server is lost.

    What is done `beside` it raises nothing, and is cancelled with it.
    """
    pulse = IdleTimer()
    ended: list[Ended] = []
    failed: list[LinkTrouble] = []

    async def run() -> None:
        try:
            ended.append(await read(pulse))
        except LinkTrouble as exc:
            failed.append(exc)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        for work in beside:
            group.start_soon(work)
        while True:
            await anyio.sleep_until(pulse.at + idle())
            if anyio.current_time() < pulse.at + idle():
                continue
            reason = await probe()
            if reason:
                failed.append(LinkLost(reason))
                group.cancel_scope.cancel()
            pulse.beat()
    if ended:
        return ended[0]
    raise failed[0]


class ServerReplies:
    """The answers of one conversation with the source `name`; `tell` sends one, and ends within the time-out."""

    def __init__(self, name: str, tell: Callable[[bytes], Awaitable[None]]) -> None:
        self._name = name
        self._tell = tell
        self._waiting: list[RpcRequest] = []
        self._unanswered = 0
        self._asked = anyio.Event()

    def add(self, requests: Sequence[RpcRequest]) -> None:
        """Let requests be answered soon. Never waits."""
        room = MAX_WAITING - len(self._waiting)
        self._waiting.extend(requests[:room])
        if self._waiting:
            self._asked.set()
        if len(requests) > room:
            if not self._unanswered:
                _log.warning("%s: the server asks faster than it takes answers: some get none", self._name)
            self._unanswered += len(requests) - room

    async def run(self) -> None:
        """Send the answers, until cancelled."""
        try:
            while True:
                await self._asked.wait()
                self._asked = anyio.Event()
                while self._waiting:
                    # Should it fail, the stream itself will tell what is wrong.
                    with suppress(LinkTrouble):
                        await self._tell(protocol.reply(self._waiting[0]))
                    del self._waiting[0]
        finally:
            if self._unanswered:
                _log.info("%s: %d requests of the server got no answer", self._name, self._unanswered)
