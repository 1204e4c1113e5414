"""The links over HTTP. Streamable HTTP: a session and its GET stream, as in 2025, or the streams of 2026.

The 2025 era comes first, because only there can a server push without being asked. A session with events that have ids
can be taken up again where it was left, also after a restart of the daemon: the checkpoint holds it, and it is
therefore not deleted on the way out, unless nothing will be heard in it. `ModernSession` is for servers that know only
2026: requests that are answered by streams. `LegacySse` is HTTP+SSE, as it was before 2025: one stream without a
session or positions on which everything arrives, and an address on it for what we say; what is announced while it is
down is missed, and counted as a gap. Above is `source.py`, below is `web.py`.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import anyio
import httpx2

from harken.sources.mcp import protocol
from harken.sources.mcp.link import (
    NOT_FOR_US,
    POLL,
    POST,
    SILENT_SECONDS,
    STREAM,
    EventDoor,
    EventPositions,
    EventSubscription,
    IdleTimer,
    LinkClosed,
    LinkLost,
    LinkReceiver,
    LinkTrouble,
    PollResult,
    PushUnsupported,
    ServerReplies,
    SessionGone,
    list_events,
    poll_events,
    post_events,
    watched,
)
from harken.sources.mcp.protocol import (
    Announcement,
    McpCheckpoint,
    RpcAnswer,
    RpcRequest,
)
from harken.sources.mcp.settings import McpSettings
from harken.sources.mcp.web import McpWeb, SseStream, is_event_stream, read_answer

GOODBYE_SECONDS: Final = 2.0
NO_PUSH: Final = frozenset({404, 405, 501})
SESSION_GONE: Final = frozenset({400, 404, 405, 501})
OTHER_ERA: Final = frozenset({400, 404, 405, 406, 415, 422, 501})  # how servers refuse a handshake they do not know
BROKEN: Final = frozenset({409, 410, 500})
TRIES_OF_A_SESSION: Final = 3

_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")
# As a header may be: without blanks around it, which would be refused each time it is sent.
_SENDABLE_ID: Final = re.compile(r"(?=\S)[^\x00-\x1f\x7f]{1,1024}(?<=\S)")
_NO_CONTENT: Final = 204
_OK: Final = 200
_ERRORS: Final = 400

SUBSCRIBE: Final = "subscriptions/listen"
SESSION_STREAM: Final = 0  # requests are numbered from 1

# 404 is not among them: unlike with Streamable HTTP, nothing has shown yet that the address is right.
LEGACY_NO_PUSH: Final = frozenset({405, 501})
MAX_ENDPOINT_CHARS: Final = 4_096

_log = logging.getLogger("harken.sources.mcp")


class StreamableHttp:
    """The link to one server over Streamable HTTP. `checkpoint` is where an earlier one stopped."""

    def __init__(self, settings: McpSettings, checkpoint: str = "", door: EventDoor | None = None) -> None:
        self._settings = settings
        self._web = McpWeb(settings)
        self._numbers = itertools.count(1)
        self._positions = EventPositions(settings.url, checkpoint, can_be_posted=door is not None)
        self._place = self._positions.place
        self._is_begun = self._place is not None
        self._modern = ModernSession(settings, self._web, self._numbers, self._positions, door)
        self._streams = HttpStreams(
            self._web, self._numbers, self._positions, protocol.request, lambda _: self._headers()
        )
        self._streams.door = door
        self._streams.in_session = True
        self._offers_events = False
        self._is_modern = False
        self._failures = 0  # of the stream, since it last opened
        self._version = self._place.version if self._place else protocol.HANDSHAKE
        self._session = self._place.session if self._place else ""
        self._last_id = self._place.last_id if self._place else ""
        self._stream = self._session
        self._server = self._place.server if self._place else ""
        self._replies = ServerReplies(settings.name, self._tell)
        self._opened = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._web.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        with anyio.CancelScope(shield=True):
            if self._session and not self._last_id:
                await self._delete()
            await self._web.__aexit__(*details)

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Connect, or take up the session again, and hand over what is announced until the stream ends."""
        if self._is_modern:
            return await self._modern.listen(desk)
        is_fresh = not self._is_begun
        try:
            return await self._listen_in_session(desk, is_fresh=is_fresh)
        except SessionGone as gone:
            self._forget()
            if is_fresh:
                raise LinkLost(gone.reason) from gone
        try:
            return await self._listen_in_session(desk, is_fresh=True)
        except SessionGone as gone:
            self._forget()
            raise LinkLost(gone.reason) from gone

    async def _listen_in_session(self, desk: LinkReceiver, *, is_fresh: bool) -> LinkClosed:
        try:
            if is_fresh and not await self._begin(desk):
                self._is_modern = True
                return await self._modern.listen(desk)
            desk.met(self._server)
            self._replies = ServerReplies(self._settings.name, self._tell)
            self._opened = anyio.Event()
            streams = await self._subscriptions(desk)
            return await watched(
                lambda pulse: self._hear_all(streams, desk, pulse, is_fresh=is_fresh),
                lambda: self._probe(desk),
                lambda: self._settings.idle,
                self._replies.run,
                *([lambda: self._ask_for_resources(desk)] if is_fresh else []),
            )
        except LinkLost:
            if not self._session:
                # Without one, nothing ties the next stream to this one: ids may begin anew.
                self._forget()
            raise
        except PushUnsupported as silent:
            await self._delete()
            self._forget()
            return await self._modern_or(desk, silent)

    async def _begin(self, desk: LinkReceiver) -> bool:
        """Begin a session; returns whether the server knows that era."""
        self._forget()
        number = next(self._numbers)
        body = protocol.initialize(number)
        refusal, answer, session = "", RpcAnswer(number), ""
        async with self._web.ask(self._web.url, self._headers(), body, "initialize") as response:
            if response.status_code in OTHER_ERA:
                hint = "check its url, or set transport to sse for an older server"
                refusal = f"the server answers {response.status_code} on initialize: {hint}"
            elif response.status_code != _OK:
                raise self._web.refusal(response, "initialize")
            else:
                # Nothing is heard yet that answers could keep waiting, and the server may wait for them.
                answer = await read_answer(response, number, desk, stream=self._stream, reply=self._reply)
                session = response.headers.get("mcp-session-id", "")
        if answer.error_code is not None:
            refusal = f"the server refuses to begin (error {answer.error_code})"
        if refusal:
            if await self._modern.discover(desk) is None:
                raise LinkLost(refusal)
            return False
        version = answer.result.get("protocolVersion")
        self._version = version if isinstance(version, str) and _SESSION_ID.fullmatch(version) else protocol.HANDSHAKE
        self._session = session if _SESSION_ID.fullmatch(session) else ""
        # Where there is no session, ids are unique among the streams of one beginning at most.
        self._stream = self._session or secrets.token_hex(8)
        self._last_id = ""
        self._server = protocol.server_name(answer)
        self._offers_events = protocol.offers_events(answer.result.get("capabilities"))
        await self._tell(protocol.notification("notifications/initialized"))
        self._is_begun = True
        return True

    async def _subscriptions(self, desk: LinkReceiver) -> list[_HttpStream]:
        """Return the events of a session; a server of that version may have some without saying so in this era."""
        if self._offers_events or self._positions.cursors:
            return await self._streams.subscriptions(desk)
        if self._version == protocol.HANDSHAKE:
            # It promised none, so an answer that cannot be read is no trouble: the stream shows whether it is there.
            with suppress(LinkLost):
                return await self._streams.subscriptions(desk)
        return []

    async def _hear_all(
        self, streams: list[_HttpStream], desk: LinkReceiver, pulse: IdleTimer, *, is_fresh: bool
    ) -> LinkClosed:
        self._streams.expect(streams, has_stream=True)
        desk.waits("waiting for the server to open the stream")

        async def hear() -> LinkClosed:
            try:
                return await self._hear(desk, pulse, is_fresh=is_fresh, has_events=bool(streams))
            except PushUnsupported:
                if not streams:
                    raise
            # Its events are all that it has to say.
            self._streams.confirm(SESSION_STREAM, desk)
            await anyio.sleep_forever()
            raise AssertionError

        return await self._streams.hear_all(streams, desk, pulse, hear)

    async def _hear(self, desk: LinkReceiver, pulse: IdleTimer, *, is_fresh: bool, has_events: bool) -> LinkClosed:
        headers = self._headers(accept="text/event-stream")
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        async with self._web.call("GET", self._web.url, headers) as response:
            self._check_stream(response, is_fresh=is_fresh)
            pulse.beat()
            self._failures = 0
            self._streams.confirm(SESSION_STREAM, desk, is_resumed=bool(self._last_id))
            self._opened.set()
            hearing = SseStream(desk, stream=self._stream, last_id=self._last_id, is_subscription=has_events)
            async for chunk in response.aiter_bytes():
                pulse.beat()
                heard = await hearing.hear(chunk, self._move)
                self._replies.add(heard.requests)
                pulse.beat()
        retry_ms = hearing.parser.retry_ms
        return LinkClosed(None if retry_ms is None else retry_ms / 1000)

    def _check_stream(self, response: httpx2.Response, *, is_fresh: bool) -> None:
        status = response.status_code
        if status in SESSION_GONE and not is_fresh:
            raise SessionGone(f"the server does not know the session any more ({status})")
        if status in NO_PUSH or status == _NO_CONTENT:
            raise PushUnsupported(f"server does not support push: {status} on GET")
        if status in BROKEN and not is_fresh:
            # Perhaps only the old session is: its place is worth a few tries, not all of them.
            self._failures += 1
            if self._failures >= TRIES_OF_A_SESSION:
                raise SessionGone(f"the server answers {status} on GET")
        if status != _OK:
            raise self._web.refusal(response, "GET")
        if not is_event_stream(response):
            raise LinkLost("the server answers GET with something that is no event stream: check its url")

    def _move(self, last_id: str, _cursor: str) -> str | None:
        """Take note of the position in the stream; returns the checkpoint if there is a new one."""
        if last_id == self._last_id or not _SENDABLE_ID.fullmatch(last_id):
            return None
        self._last_id = last_id
        if not self._session:
            return None
        self._positions.place = McpCheckpoint(self._session, last_id, self._version, self._server)
        return self._positions.checkpoint()

    async def _modern_or(self, desk: LinkReceiver, silent: PushUnsupported) -> LinkClosed:
        """Subscribe, if the server knows the 2026 era too; else it is as silent as it was."""
        try:
            is_known = await self._modern.discover(desk) is not None
        except LinkTrouble:
            is_known = False
        if not is_known:
            raise silent
        self._is_modern = True
        return await self._modern.listen(desk)

    async def _ask_for_resources(self, desk: LinkReceiver) -> None:
        """Ask to be told of changes, once the stream stands on which they are told."""
        await self._opened.wait()
        for uri in self._settings.resources:
            number = next(self._numbers)
            body = protocol.request(number, "resources/subscribe", {"uri": uri})
            try:
                async with self._web.ask(self._web.url, self._headers(), body, "resources/subscribe") as response:
                    is_accepted = response.status_code == _OK
                    is_accepted = is_accepted and (await self._answer(response, number, desk)).error_code is None
            except LinkLost:
                is_accepted = False
            if not is_accepted:
                _log.warning("%s: the server does not tell of changes to a resource", self._settings.name)

    async def _probe(self, desk: LinkReceiver) -> str:
        """Return why the server seems lost, or nothing if it answers."""
        number = next(self._numbers)
        body = protocol.request(number, "ping")
        try:
            async with self._web.ask(self._web.url, self._headers(), body, "ping") as got:
                if got.status_code in SESSION_GONE:
                    return f"the server does not know the session any more ({got.status_code})"
                if got.status_code >= _ERRORS:
                    return self._web.refusal(got, "ping").reason
                if got.status_code == _OK:  # else the answer comes on the stream, if at all: it is there
                    await self._answer(got, number, desk)
        except LinkTrouble as exc:
            return exc.reason
        return ""

    async def _answer(self, response: httpx2.Response, number: int, desk: LinkReceiver) -> RpcAnswer:
        return await read_answer(response, number, desk, stream=self._stream, reply=self._reply_soon)

    async def _reply(self, requests: list[RpcRequest]) -> None:
        for request in requests:
            with suppress(LinkTrouble):
                await self._tell(protocol.reply(request))

    async def _reply_soon(self, requests: list[RpcRequest]) -> None:
        self._replies.add(requests)

    async def _tell(self, body: bytes) -> None:
        async with self._web.ask(self._web.url, self._headers(), body, "POST") as response:
            if response.status_code in SESSION_GONE and self._is_begun:
                raise SessionGone(f"the server does not know the session any more ({response.status_code})")
            if response.status_code >= _ERRORS:
                raise self._web.refusal(response, "POST")

    async def _delete(self) -> None:
        if not self._session:
            return
        with anyio.move_on_after(GOODBYE_SECONDS):
            try:
                async with self._web.call("DELETE", self._web.url, self._headers()):
                    pass
            except LinkLost:
                return  # it ends by itself after a while

    def _forget(self) -> None:
        self._is_begun = False
        self._failures = 0
        self._session = self._last_id = self._stream = ""
        self._positions.place = None
        self._version = protocol.HANDSHAKE

    def _headers(self, accept: str = "application/json, text/event-stream") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": "application/json"}
        if self._is_begun or self._session:
            headers["MCP-Protocol-Version"] = self._version
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        return headers


@dataclass(frozen=True, slots=True)
class _HttpStream:
    """One request that is answered by a stream, or an event that is polled; `event` is None for the subscription."""

    number: int
    method: str
    body: bytes = b""
    event: EventSubscription | None = None


Frame = Callable[[int, str, Mapping[str, object]], bytes]
HeadersFor = Callable[[str], Mapping[str, str]]


class HttpStreams:
    """The streams of one conversation, in the era of its `frame` and `headers`; all of them end when one does."""

    def __init__(
        self, web: McpWeb, numbers: Iterator[int], positions: EventPositions, frame: Frame, headers: HeadersFor
    ) -> None:
        self._web = web
        self._numbers = numbers
        self._positions = positions
        self._frame = frame
        self._headers = headers
        self.in_session = False  # then a status may say that the session is gone
        self.door: EventDoor | None = None  # where events are posted to us
        self._unconfirmed = set[int]()
        self._is_resumed = False
        self._is_open = False

    async def ask(self, method: str, params: Mapping[str, object], desk: LinkReceiver) -> RpcAnswer | None:
        """Return the server's answer, or nothing where it has none."""
        number = next(self._numbers)
        body = self._frame(number, method, params)
        async with self._web.ask(self._web.url, self._headers(method), body, method) as response:
            if response.status_code != _OK:
                return None
            return await read_answer(response, number, desk)

    async def subscriptions(self, desk: LinkReceiver) -> list[_HttpStream]:
        """Return a stream for each event that can be had."""

        async def ask(method: str, params: Mapping[str, object]) -> RpcAnswer | None:
            return await self.ask(method, params, desk)

        streams: list[_HttpStream] = []
        for each in await list_events(self._positions, ask):
            number = next(self._numbers)
            asked = each.asked(self._positions.cursors.get(each.name, ""))
            body = self._frame(number, STREAM, asked) if each.is_pushed else b""
            way = STREAM if each.is_pushed else POST if each.is_posted else POLL
            streams.append(_HttpStream(number, way, body, each))
        return streams

    def expect(self, streams: Sequence[_HttpStream], *, has_stream: bool = False) -> None:
        """Begin to wait until all of them stand; with `has_stream`, also one that the session itself has."""
        self._unconfirmed = {stream.number for stream in streams} | ({SESSION_STREAM} if has_stream else set())
        # Where an event is, its cursor says; what a subscription without one has missed, nobody knows.
        self._is_resumed = all(each.event and each.event.name in self._positions.cursors for each in streams)
        self._is_open = False

    def confirm(self, number: int, desk: LinkReceiver, *, is_resumed: bool = True) -> None:
        """Take note that a stream stands, or that the server has skipped something in it."""
        if self._is_open:
            if not is_resumed:
                desk.missed()
            return
        self._is_resumed = self._is_resumed and is_resumed
        self._unconfirmed.discard(number)
        if not self._unconfirmed:
            self._is_open = True
            desk.opened(is_resumed=self._is_resumed)

    async def hear_all(
        self,
        streams: Sequence[_HttpStream],
        desk: LinkReceiver,
        pulse: IdleTimer,
        *beside: Callable[[], Awaitable[LinkClosed]],
    ) -> LinkClosed:
        """Hand over what all of them bring until one ends; raises the `LinkTrouble` of the first that fails."""
        closed: list[LinkClosed] = []
        failed: list[LinkTrouble] = []

        async def run(listen: Callable[[], Awaitable[LinkClosed]]) -> None:
            try:
                closed.append(await listen())
            except PushUnsupported as silent:
                # One that cannot be had must not stand in the way of the others.
                failed.append(silent if len(streams) + len(beside) == 1 else LinkLost(silent.reason))
            except LinkTrouble as exc:
                failed.append(exc)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for stream in streams:
                group.start_soon(run, partial(self._hear, stream, desk, pulse))
            for listen in beside:
                group.start_soon(run, listen)
        if failed:
            raise failed[0]
        return closed[0]

    async def _hear(self, stream: _HttpStream, desk: LinkReceiver, pulse: IdleTimer) -> LinkClosed:
        if stream.event is not None and stream.event.is_posted and self.door is not None:
            await self._be_posted(stream, stream.event, desk, self.door)
        if stream.event is not None and not stream.event.is_pushed:
            await self._poll(stream, stream.event, desk, pulse)
        async with self._web.call("POST", self._web.url, self._headers(stream.method), stream.body) as response:
            self._check(stream, response)
            if not is_event_stream(response):
                return self._end(stream, await read_answer(response, stream.number, desk))
            hearing = SseStream(desk, is_subscription=True)
            chunks = response.aiter_bytes()
            has_heartbeat = False
            while (chunk := await _next(chunks, SILENT_SECONDS if has_heartbeat else None)) is not None:
                pulse.beat()
                heard = await hearing.hear(chunk, lambda _, cursor: self._move(stream, cursor))
                for each in heard.about_link:
                    has_heartbeat = has_heartbeat or each.about_link == protocol.HEARTBEAT
                    self._note(stream, each, desk)
                for answer in heard.answers:
                    if answer.id == stream.number:
                        return self._end(stream, answer)
                pulse.beat()
        return LinkClosed()

    async def _poll(self, stream: _HttpStream, event: EventSubscription, desk: LinkReceiver, pulse: IdleTimer) -> None:
        async def ask(method: str, params: Mapping[str, object]) -> RpcAnswer | None:
            answer = await self.ask(method, params, desk)
            pulse.beat()
            return answer

        def confirm(told: PollResult) -> None:
            self.confirm(stream.number, desk, is_resumed=not told.is_truncated)

        await poll_events(event, self._positions, ask, desk, confirm)

    async def _be_posted(
        self, stream: _HttpStream, event: EventSubscription, desk: LinkReceiver, door: EventDoor
    ) -> None:
        async def ask(method: str, params: Mapping[str, object]) -> RpcAnswer | None:
            return await self.ask(method, params, desk)

        def confirm(told: RpcAnswer) -> None:
            self.confirm(stream.number, desk, is_resumed=told.result.get("truncated") is not True)

        await post_events(event, self._positions, ask, desk, door=door, confirm=confirm)

    def _check(self, stream: _HttpStream, response: httpx2.Response) -> None:
        status = response.status_code
        if self.in_session and status in SESSION_GONE:
            raise SessionGone(f"the server does not know the session any more ({status})")
        if status in NO_PUSH:
            self._refuse(stream, protocol.METHOD_NOT_FOUND)
            raise PushUnsupported(f"server does not support push: {status} on {stream.method}")
        if status != _OK:
            raise self._web.refusal(response, stream.method)

    def _note(self, stream: _HttpStream, said: Announcement, desk: LinkReceiver) -> None:
        if said.about_link in (protocol.ACTIVE, protocol.ACKNOWLEDGED):
            self.confirm(stream.number, desk, is_resumed=not said.is_truncated)
        elif said.about_link == protocol.TERMINATED:
            self._refuse(stream, 0)
            name = stream.event.name if stream.event else stream.method
            raise PushUnsupported(f"the server ended the subscription of {name} (error {said.error_code})")
        elif said.about_link == protocol.EVENT_ERROR:
            _log.info("the server has trouble with %s (error %s)", stream.method, said.error_code)

    def _move(self, stream: _HttpStream, cursor: str) -> str | None:
        return self._positions.move(stream.event.name, cursor) if stream.event else None

    def _refuse(self, stream: _HttpStream, code: int) -> None:
        # An empty name is the subscription.
        self._positions.refuse(stream.event or EventSubscription("", is_pushed=False), code)

    def _end(self, stream: _HttpStream, answer: RpcAnswer) -> LinkClosed:
        if answer.error_code is None:
            return LinkClosed()
        if answer.error_code in NOT_FOR_US:
            self._refuse(stream, answer.error_code)
            raise PushUnsupported(f"server does not support push: error {answer.error_code} on {stream.method}")
        raise LinkLost(f"the server ended {stream.method} (error {answer.error_code})")


async def _next(chunks: AsyncIterator[bytes], seconds: float | None) -> bytes | None:
    """Return the next bytes of a stream, or nothing at its end; raises `LinkLost` when none come in time."""
    try:
        with anyio.fail_after(seconds):
            return await anext(chunks, None)
    except TimeoutError as exc:
        raise LinkLost("a stream of the server has fallen silent") from exc


class ModernSession:
    """What is announced by one server of the 2026 era."""

    def __init__(
        self,
        settings: McpSettings,
        web: McpWeb,
        numbers: Iterator[int],
        positions: EventPositions,
        door: EventDoor | None = None,
    ) -> None:
        self._settings = settings
        self._numbers = numbers
        self._positions = positions
        self._streams = HttpStreams(web, numbers, positions, protocol.modern, _headers)
        self._streams.door = door
        self._discovered: RpcAnswer | None = None

    async def discover(self, desk: LinkReceiver) -> RpcAnswer | None:
        """Return what the server can do, or nothing if it is not of this era."""
        found = await self._streams.ask("server/discover", {}, desk)
        is_known = found is not None and found.error_code is None and "supportedVersions" in found.result
        self._discovered = found if is_known else None
        return self._discovered

    async def listen(self, desk: LinkReceiver) -> LinkClosed:
        """Open every stream there is and hand over what is announced until one of them ends."""
        while True:
            given_up = self._positions.given_up
            try:
                return await self._listen_once(desk)
            except PushUnsupported:
                # What cannot be had in one way is asked for in the next.
                if self._positions.given_up == given_up:
                    raise

    async def _listen_once(self, desk: LinkReceiver) -> LinkClosed:
        found = self._discovered or await self.discover(desk)
        self._discovered = None
        if found is None:
            raise LinkLost("the server does not answer server/discover")
        desk.met(protocol.server_name(found))
        streams = await self._all(found, desk)
        if not streams:
            raise PushUnsupported("server does not support push: it offers nothing to subscribe to")
        self._streams.expect(streams)
        desk.waits("waiting for the server to confirm the subscription")
        return await watched(
            lambda pulse: self._streams.hear_all(streams, desk, pulse),
            lambda: self._probe(desk),
            lambda: self._settings.idle,
        )

    async def _all(self, found: RpcAnswer, desk: LinkReceiver) -> list[_HttpStream]:
        capabilities = found.result.get("capabilities")
        number = next(self._numbers)
        body = protocol.subscription(number, capabilities, self._settings.resources)
        is_wanted = body is not None and not self._positions.is_refused("")
        streams = [_HttpStream(number, SUBSCRIBE, body)] if body is not None and is_wanted else []
        if protocol.offers_events(capabilities):
            streams.extend(await self._streams.subscriptions(desk))
        return streams

    async def _probe(self, desk: LinkReceiver) -> str:
        """Return why the server seems lost, or nothing if it answers."""
        try:
            found = await self._streams.ask("server/discover", {}, desk)
        except LinkTrouble as exc:
            return exc.reason
        return "the server does not answer any more" if found is None or found.error_code is not None else ""


def _headers(method: str) -> dict[str, str]:
    return {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": protocol.MODERN,
        "Mcp-Method": method,
    }


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
            if response.status_code in LEGACY_NO_PUSH:
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
