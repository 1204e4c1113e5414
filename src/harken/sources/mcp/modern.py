"""Streamable HTTP of the 2026 era: no session and no GET, but requests whose answers are streams.

`subscriptions/listen` for what every server may announce, which cannot be resumed, and `events/stream` for each kind of
event of servers that have the events extension, which goes on at its cursor. One stream that ends ends them all: they
are opened again together. Above is `http.py`, which asks for this era only where the other one cannot push.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import anyio

from harken.sources.mcp import protocol
from harken.sources.mcp.checkpoint import cursors_checkpoint
from harken.sources.mcp.event_stream import SseStream, read_answer
from harken.sources.mcp.link import IdleTimer, LinkClosed, LinkLost, LinkReceiver, LinkTrouble, PushUnsupported, watched
from harken.sources.mcp.routing import Announcement, RpcAnswer
from harken.sources.mcp.settings import McpSettings
from harken.sources.mcp.web import McpWeb, is_event_stream

NO_PUSH: Final = frozenset({404, 405, 501})
SUBSCRIBE: Final = "subscriptions/listen"
STREAM: Final = "events/stream"
# Unknown method or params, and "not found" and "forbidden" of the events extension in its two numberings.
NOT_FOR_US: Final = frozenset({protocol.METHOD_NOT_FOUND, -32602, -32011, -32012, -32014, -32023, -32024, -32026})

_OK: Final = 200


@dataclass(frozen=True, slots=True)
class _ModernStream:
    """One request whose answer is a stream; `event` is the name of the events it brings, if it brings those."""

    number: int
    method: str
    body: bytes
    event: str = ""


class ModernSession:
    """What is announced by one server of the 2026 era. `cursors` say where its streams of events were left."""

    def __init__(self, settings: McpSettings, web: McpWeb, numbers: Iterator[int], cursors: Mapping[str, str]) -> None:
        self._settings = settings
        self._web = web
        self._numbers = numbers
        self._cursors = dict(cursors)
        self._ended = set[str]()  # events whose stream cannot be had; the empty name is the subscription
        self._discovered: RpcAnswer | None = None
        self._unconfirmed = set[int]()
        self._is_resumed = False

    async def discover(self, desk: LinkReceiver) -> RpcAnswer | None:
        """Return what the server can do, or nothing if it is not of this era."""
        found = await self._ask("server/discover", desk)
        self._discovered = found if found is not None and "supportedVersions" in found.result else None
        return self._discovered

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Open every stream there is and hand over what is announced until one of them ends."""
        found = self._discovered or await self.discover(desk)
        self._discovered = None
        if found is None:
            raise LinkLost("the server does not answer server/discover")
        desk.met(protocol.server_name(found))
        streams = await self._streams(found, desk)
        if not streams:
            raise PushUnsupported("server does not support push: it offers nothing to subscribe to")
        self._unconfirmed = {stream.number for stream in streams}
        self._is_resumed = all(stream.event in self._cursors for stream in streams)
        desk.waits("waiting for the server to confirm the subscription")
        return await watched(
            lambda pulse: self._hear_all(streams, desk, pulse), lambda: self._probe(desk), lambda: self._settings.idle
        )

    async def _streams(self, found: RpcAnswer, desk: LinkReceiver) -> list[_ModernStream]:
        capabilities = found.result.get("capabilities")
        number = next(self._numbers)
        body = protocol.subscription(number, capabilities, self._settings.resources)
        streams = [_ModernStream(number, SUBSCRIBE, body)] if body is not None and "" not in self._ended else []
        listed = await self._ask("events/list", desk) if protocol.offers_events(capabilities) else None
        for name in protocol.pushed_events(listed) if listed is not None else []:
            if name not in self._ended:
                number = next(self._numbers)
                asked = protocol.event_stream(number, name, self._cursors.get(name, ""))
                streams.append(_ModernStream(number, STREAM, asked, name))
        return streams

    async def _hear_all(self, streams: list[_ModernStream], desk: LinkReceiver, pulse: IdleTimer) -> LinkClosed:
        closed: list[LinkClosed] = []
        failed: list[LinkTrouble] = []

        async def run(stream: _ModernStream) -> None:
            try:
                closed.append(await self._hear(stream, desk, pulse))
            except PushUnsupported as silent:
                # One that cannot be had must not stand in the way of the others.
                self._ended.add(stream.event)
                self._cursors.pop(stream.event, None)
                failed.append(silent if len(streams) == 1 else LinkLost(silent.reason))
            except LinkTrouble as exc:
                failed.append(exc)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for stream in streams:
                group.start_soon(run, stream)
        if failed:
            raise failed[0]
        return closed[0]

    async def _hear(self, stream: _ModernStream, desk: LinkReceiver, pulse: IdleTimer) -> LinkClosed:
        async with self._web.call("POST", self._web.url, _headers(stream.method), stream.body) as response:
            if response.status_code in NO_PUSH:
                raise PushUnsupported(f"server does not support push: {response.status_code} on {stream.method}")
            if response.status_code != _OK:
                raise self._web.refusal(response, stream.method)
            if not is_event_stream(response):
                return _end(stream, await read_answer(response, stream.number, desk))
            hearing = SseStream(desk, own=protocol.OWN_CHANNELS)
            async for chunk in response.aiter_bytes():
                pulse.beat()
                heard = await hearing.hear(chunk, lambda _, cursor: self._move(stream, cursor))
                for each in heard.about_link:
                    self._confirm(stream, each, desk)
                for answer in heard.answers:
                    if answer.id == stream.number:
                        return _end(stream, answer)
                pulse.beat()
        return LinkClosed()

    def _confirm(self, stream: _ModernStream, said: Announcement, desk: LinkReceiver) -> None:
        if said.channel == protocol.HEARTBEAT:
            return
        if '"truncated":true' in said.content:
            self._is_resumed = False  # the server kept less than was missed
        self._unconfirmed.discard(stream.number)
        if not self._unconfirmed:
            desk.opened(is_resumed=self._is_resumed)

    def _move(self, stream: _ModernStream, cursor: str) -> str | None:
        """Take note of the cursor of a stream; returns the checkpoint if there is a new one."""
        if not stream.event or not cursor or self._cursors.get(stream.event) == cursor:
            return None
        self._cursors[stream.event] = cursor
        return cursors_checkpoint(self._cursors, self._settings.url)

    async def _probe(self, desk: LinkReceiver) -> str:
        """Return why the server seems lost, or nothing if it answers."""
        try:
            found = await self._ask("server/discover", desk)
        except LinkTrouble as exc:
            return exc.reason
        return "the server does not answer any more" if found is None else ""

    async def _ask(self, method: str, desk: LinkReceiver) -> RpcAnswer | None:
        """Return the server's answer, or nothing where it has none."""
        number = next(self._numbers)
        body = protocol.modern(number, method)
        async with self._web.ask(self._web.url, _headers(method), body, method) as response:
            if response.status_code != _OK:
                return None
            answer = await read_answer(response, number, desk)
        return answer if answer.error_code is None else None


def _end(stream: _ModernStream, answer: RpcAnswer) -> LinkClosed:
    if answer.error_code is None:
        return LinkClosed()
    if answer.error_code in NOT_FOR_US:
        raise PushUnsupported(f"server does not support push: error {answer.error_code} on {stream.method}")
    raise LinkLost(f"the server ended {stream.method} (error {answer.error_code})")


def _headers(method: str) -> dict[str, str]:
    return {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": protocol.MODERN,
        "Mcp-Method": method,
    }
