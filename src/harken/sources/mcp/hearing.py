"""From the bytes of an event stream to the desk: what all HTTP links do with what they read.

It gives events the identity that their ids promise, hands over what one chunk brought at once, and returns what the
server asks or answers. Where the bytes come from and where answers go is the link's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import httpx2

from harken.sources.mcp.link import Desk, Lost
from harken.sources.mcp.routing import Announcement, Answer, Frame, Request, identified, read_frame
from harken.sources.mcp.sse import Event, EventParser
from harken.sources.mcp.web import content_type, is_event_stream, read_body

Position = Callable[[str, str], str | None]
"""Makes a checkpoint of the last event id and the newest cursor, or nothing."""


AT_ONCE: Final = 1_000


@dataclass(slots=True)
class Heard:
    """What one chunk brought besides announcements."""

    requests: list[Request] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    endpoint: str | None = None
    about_link: list[Announcement] = field(default_factory=list)


def no_position(_last_id: str, _cursor: str) -> str | None:
    """Make no checkpoint."""
    return None


class Hearing:
    """One event stream. `stream` names where event ids are unique; `own` are channels that speak of the link itself."""

    def __init__(self, desk: Desk, *, stream: str = "", last_id: str = "", own: Collection[str] = ()) -> None:
        self.parser = EventParser(last_id=last_id)
        self._desk = desk
        self._stream = stream
        self._own = own
        self._dropped = 0

    async def hear(self, chunk: bytes, position: Position = no_position) -> Heard:
        """Hand what a chunk announces to the desk and return the rest."""
        said: list[Announcement] = []
        heard = Heard()
        cursor = ""
        for event in self.parser.feed(chunk):
            if event.name == "endpoint":
                heard.endpoint = event.data
                continue
            frame = self._read(event)
            for each in frame.announcements:
                cursor = each.cursor or cursor
                (heard.about_link if each.channel in self._own else said).append(each)
            heard.requests.extend(frame.requests)
            heard.answers.extend(frame.answers)
            if len(said) >= AT_ONCE:
                # A chunk of a compressed stream may hold any number: what is taken is bounded there, not here.
                await self._desk.take(said)
                said = []
        if self.parser.dropped > self._dropped:
            self._desk.gave_up(self.parser.dropped - self._dropped)
            self._dropped = self.parser.dropped
        checkpoint = position(self.parser.last_id, cursor)
        if said or checkpoint is not None:
            await self._desk.take(said, checkpoint)
        return heard

    def _read(self, event: Event) -> Frame:
        frame = read_frame(event.data, event.name)
        if not event.id or not self._stream:
            return frame
        known = identified(frame.announcements, self._stream, event.id, event.data)
        return Frame(known, frame.requests, frame.answers)


async def read_answer(
    response: httpx2.Response,
    number: int,
    desk: Desk,
    *,
    stream: str = "",
    reply: Callable[[list[Request]], Awaitable[None]] | None = None,
) -> Answer:
    """Return the answer to our request; what the server announces before it is handed over."""
    if not is_event_stream(response):
        frame = read_frame(await read_body(response)) if content_type(response) == "application/json" else Frame()
        if frame.announcements and frame.answers:
            await desk.take(frame.announcements)
        for answer in frame.answers:
            if answer.id == number:
                return answer
        raise Lost("the server's answer is no MCP: check its url")
    hearing = Hearing(desk, stream=stream)
    async for chunk in response.aiter_bytes():
        heard = await hearing.hear(chunk)
        if reply is not None:
            await reply(heard.requests)
        for answer in heard.answers:
            if answer.id == number:
                return answer
    raise Lost("the server ended its answer too early")
