"""The targets of MCP servers: event streams, lines and what is in them.

However the bytes are cut on their way, the events are the same; without a limit in the way they are those that a plain
reading of the whole stream finds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import httpx2

from harken.model import Draft, Sender
from harken.sources.mcp import protocol
from harken.sources.mcp.link import EventPositions, read_poll
from harken.sources.mcp.protocol import RpcAnswer, RpcFrame, identified, read_frame
from harken.sources.mcp.stdio import LineSplitter
from harken.sources.mcp.web import MAX_EVENT_BYTES, MAX_ID_CHARS, EventParser, SseEvent, retry_after
from tests.fuzz.source_targets import stored
from tests.fuzz.target import Target, letter, must, plain

LIMITS: Final = (MAX_EVENT_BYTES, 8, 40)
CUTS: Final = (1, 2, 3, 7, 64)
MAX_LOOKED_AT: Final = 5  # of the events of a case: many small ones say nothing new
WAITED: Final = ("retry-after", "date")
_BOM: Final = b"\xef\xbb\xbf"
_ENDS: Final = re.compile(rb"\r\n|\r|\n")


def _stream(data: bytes) -> str:
    most = LIMITS[data[0] % len(LIMITS)] if data else MAX_EVENT_BYTES
    size = CUTS[data[1] % len(CUTS)] if len(data) > 1 else 1
    raw = data[2:]
    whole, cut = EventParser(max_bytes=most), EventParser(max_bytes=most)
    events = whole.feed(raw)
    pieces = [event for start in range(0, len(raw), size) for event in cut.feed(raw[start : start + size])]
    must(events == pieces, "events depend on how bytes are cut", events, pieces)
    must((whole.last_id, whole.retry_ms) == (cut.last_id, cut.retry_ms), "what was said last differs", raw)
    must(whole.dropped == cut.dropped, "what was given up differs", whole.dropped, cut.dropped)
    must(sum(map(len, cut.kept)) <= most + 1, "more is kept than allowed", cut.kept)
    if most == MAX_EVENT_BYTES:
        must(events == _read_plainly(raw), "not the events that are there", events, _read_plainly(raw))
    for event in events[:MAX_LOOKED_AT]:
        must(len(event.data.encode()) <= 3 * most, "an event above the limit", len(event.data))
        _said(event.data, event.name, event.id)
    return f"{'given up' if whole.dropped else 'events' if events else 'nothing'}"


def _read_plainly(raw: bytes) -> Sequence[SseEvent]:
    """Return the events of a stream as its specification reads, with nothing kept in mind between lines but fields."""
    *lines, _unfinished = _ENDS.split(raw.removeprefix(_BOM))
    events: list[SseEvent] = []
    data: list[str] = []
    name, own_id = "", ""
    for line in lines:
        if not line:
            events += [SseEvent("\n".join(data), name or "message", own_id)] if data else []
            data, name, own_id = [], "", ""
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data" if line:
                data.append(value)
            case "event":
                name = value
            case "id" if "\0" not in value and len(value) <= MAX_ID_CHARS:
                own_id = value
    return events


def _lines(data: bytes) -> str:
    most = LIMITS[data[0] % len(LIMITS)] if data else MAX_EVENT_BYTES
    size = CUTS[data[1] % len(CUTS)] if len(data) > 1 else 1
    raw = data[2:]
    whole, cut = LineSplitter(most), LineSplitter(most)
    lines = whole.feed(raw)
    pieces = [line for start in range(0, len(raw), size) for line in cut.feed(raw[start : start + size])]
    must(lines == pieces and whole.dropped == cut.dropped, "lines depend on how bytes are cut", lines, pieces)
    for line in lines[:MAX_LOOKED_AT]:
        _said(line, "message", "")
    return f"{'given up' if whole.dropped else 'lines' if lines else 'nothing'}"


def _frame(data: bytes) -> str:
    said = letter(data)
    frame = _said(said.body.decode("utf-8", "replace"), said.word or "message", "e1")
    waited = [(name.encode(), said.headers[name].encode("latin-1")) for name in WAITED if name in said.headers]
    if waited:
        seconds = retry_after(httpx2.Response(503, headers=waited))
        must(seconds is None or seconds >= 0, "a wait that is none", seconds)
    ends = {"announced": frame.announcements, "asked": frame.requests, "answered": frame.answers}
    return " ".join(end for end, found in ends.items() if found) or "nothing"


def _said(text: str, event: str, event_id: str) -> RpcFrame:
    frame = read_frame(text, event)
    for each in identified(frame.announcements, "stream", event_id, text) if event_id else frame.announcements:
        stored(
            Draft(
                source="mcp",
                sender=Sender("server", "Server"),
                text=each.content,
                upstream_id=each.upstream_id,
                channel=each.channel,
                thread=each.thread,
                sent_at=each.sent_at,
                meta=each.metadata,
            )
        )
    for asked in frame.requests:
        protocol.reply(asked)
    for answer in frame.answers:
        _greeting(answer)
    return frame


def _greeting(answer: RpcAnswer) -> None:
    """Look at an answer as the one to our first question."""
    name = protocol.server_name(answer)
    must(name.isprintable() and len(name) <= protocol.MAX_NAME_CHARS, "a name that acts", name)
    capabilities = answer.result.get("capabilities")
    protocol.subscription(1, capabilities, ())
    protocol.offers_events(capabilities)
    for each in EventPositions("", "").wanted(answer):
        protocol.modern(2, "events/stream", each.asked(read_poll(answer, "").cursor))


TOKENS: Final = (
    *(
        b"data: ",
        b"data:",
        b"\ndata",
        b"event: x\n",
        b"id: 1\n",
        b"id:\n",
        b"retry: 5\n",
        b":\n",
        b"\r",
        b"\r\n",
        b"\n\n",
    ),
    *(b"\xef\xbb\xbf", b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}', b'"id":', b"[{}]"),
    *(b"retry-after: Mon, 05 Jan 2026 10:00:00 +9999\n", b"date: Mon, 05 Jan 2026 09:00:00 GMT\n", b"99999999999"),
    *(b'"channel":', b'"content":', b'"eventId":"1"', b'"ts":1e999', b"NaN", b"-Infinity", b'"_meta":{', b'"cursor":'),
)
TARGETS: Final = (
    Target(
        name="sse",
        opened=plain(_stream),
        reaches=frozenset({"events", "given up", "nothing"}),
        tokens=TOKENS,
        most_bytes=1_024,
    ),
    Target(
        name="lines", opened=plain(_lines), reaches=frozenset({"lines", "given up"}), tokens=TOKENS, most_bytes=1_024
    ),
    Target(name="frame", opened=plain(_frame), reaches=frozenset({"announced", "asked", "answered"}), tokens=TOKENS),
)
