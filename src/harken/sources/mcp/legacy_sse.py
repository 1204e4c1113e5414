"""HTTP+SSE, as it was before 2025: one stream on which everything arrives, and an address on it for what we say.

The stream has no session and no positions, so what is announced while it is down is missed, and counted as a gap. Above
is `source.py`, below is `web.py`.
"""

from __future__ import annotations

import itertools
import logging
from typing import Final, Self

import anyio
import httpx2

from harken.sources.mcp import protocol
from harken.sources.mcp.link import (
    IdleTimer,
    LinkClosed,
    LinkLost,
    LinkReceiver,
    LinkTrouble,
    PushUnsupported,
    ServerReplies,
    watched,
)
from harken.sources.mcp.routing import RpcAnswer
from harken.sources.mcp.settings import McpSettings
from harken.sources.mcp.web import McpWeb, SseStream, is_event_stream

# 404 is not among them: unlike with Streamable HTTP, nothing has shown yet that the address is right.
NO_PUSH: Final = frozenset({405, 501})
MAX_ENDPOINT_CHARS: Final = 4_096

_OK: Final = 200
_ERRORS: Final = 400

_log = logging.getLogger("harken.sources.mcp")


class LegacySse:
    """The link to one server over HTTP+SSE."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._web = McpWeb(settings)
        self._numbers = itertools.count(1)
        self._endpoint: httpx2.URL | None = None
        self._beginning = 0  # the number of the handshake that waits for its answer
        self._replies = ServerReplies(settings.name, self._reply)
        self._opened = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._web.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._web.__aexit__(*details)

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Open the stream, introduce ourselves, and hand over what is announced until the stream ends."""
        self._endpoint = None
        self._beginning = 0
        self._replies = ServerReplies(self._settings.name, self._reply)
        self._opened = anyio.Event()
        return await watched(
            lambda pulse: self._hear(desk, pulse),
            self._probe,
            self._idle_seconds,
            self._replies.run,
            self._ask_for_resources,
        )

    def _idle_seconds(self) -> float:
        is_begun = self._endpoint is not None and not self._beginning
        return self._settings.idle if is_begun else self._settings.timeout

    async def _hear(self, desk: LinkReceiver, pulse: IdleTimer) -> LinkClosed:
        desk.waits("waiting for the server to open the stream")
        async with self._web.call("GET", self._web.url, {"Accept": "text/event-stream"}) as response:
            if response.status_code in NO_PUSH:
                raise PushUnsupported(f"server does not support push: {response.status_code} on GET")
            if response.status_code != _OK:
                raise self._web.refusal(response, "GET")
            if not is_event_stream(response):
                raise LinkLost("the server answers GET with something that is no event stream: check its url")
            hearing = SseStream(desk)
            async for chunk in response.aiter_bytes():
                pulse.beat()
                heard = await hearing.hear(chunk)
                if heard.endpoint is not None:
                    await self._introduce(heard.endpoint)
                self._replies.add(heard.requests)
                for answer in heard.answers:
                    await self._settle(answer, desk)
                pulse.beat()
        if self._beginning:
            raise LinkLost("the server ended the stream before it answered")
        retry_ms = hearing.parser.retry_ms
        return LinkClosed(None if retry_ms is None else retry_ms / 1000)

    async def _introduce(self, endpoint: str) -> None:
        """Begin at the address that the server names; it must be the server's own, for our headers go there."""
        here = self._web.url
        try:
            target = here.join(endpoint.strip()[:MAX_ENDPOINT_CHARS])
        except (httpx2.InvalidURL, UnicodeError, ValueError) as exc:
            raise LinkLost("the server names an address that cannot be") from exc
        if (target.scheme, target.host, target.port) != (here.scheme, here.host, here.port):
            raise LinkLost("the server wants to be answered at another server: that is refused")
        self._endpoint = target.copy_with(username="", password="", fragment=None)
        self._beginning = next(self._numbers)
        await self._tell(protocol.initialize(self._beginning), "initialize")

    async def _settle(self, answer: RpcAnswer, desk: LinkReceiver) -> None:
        if not self._beginning or answer.id != self._beginning:
            return
        if answer.error_code is not None:
            raise LinkLost(f"the server refuses to begin (error {answer.error_code})")
        self._beginning = 0
        desk.met(protocol.server_name(answer))
        desk.opened(is_resumed=False)
        await self._tell(protocol.notification("notifications/initialized"), "initialized")
        self._opened.set()

    async def _ask_for_resources(self) -> None:
        """Ask to be told of changes, beside the reading: a server need not know of that, nor answer."""
        await self._opened.wait()
        for uri in self._settings.resources:
            asked = protocol.request(next(self._numbers), "resources/subscribe", {"uri": uri})
            try:
                await self._tell(asked, "resources/subscribe")
            except LinkLost:
                _log.warning("%s: the server does not tell of changes to a resource", self._settings.name)

    async def _reply(self, body: bytes) -> None:
        await self._tell(body, "its request")

    async def _probe(self) -> str:
        """Return why the server seems lost, or nothing. Whether it takes our ping is enough: no answer is awaited."""
        if self._endpoint is None or self._beginning:
            return "the server does not answer initialize"
        try:
            await self._tell(protocol.request(next(self._numbers), "ping"), "ping")
        except LinkTrouble as exc:
            return exc.reason
        return ""

    async def _tell(self, body: bytes, doing: str) -> None:
        if self._endpoint is None:
            raise LinkLost("the server asks before it says where to answer")
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        async with self._web.ask(self._endpoint, headers, body, doing) as response:
            if response.status_code >= _ERRORS:
                raise self._web.refusal(response, doing)
