"""Answers to what a server asks: sent one after the other, beside the reading and never in its way.

A server that takes its time with our answer, or never takes it, must not keep us from hearing what it announces. At
most `MAX_WAITING` answers wait; what is asked beyond that gets none, and our log says so. Above are the links.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio

from harken.sources.mcp import protocol
from harken.sources.mcp.link import LinkTrouble
from harken.sources.mcp.routing import RpcRequest

MAX_WAITING: Final = 64

_log = logging.getLogger("harken.sources.mcp")


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
