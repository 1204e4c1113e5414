"""Event streams are read by the specification, however the network cuts them."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.sources.mcp.web import EventParser, SseEvent

PIECES = st.sampled_from(
    [
        *(b"data", b"event", b"id", b"retry", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"x", b"12"),
        *(b"\xef\xbb\xbf", b"\xc3\xa9", b"\xc3", b"\x00", b"\xf0\x9f\x98\x80"),
        *(b"data: a\n", b"id: 7\n", b"event: e\r", b": comment\n"),
    ]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def naive(stream: bytes) -> tuple[list[SseEvent], str, int | None]:
    """Return what the specification says about a whole stream, in the plainest way."""
    text = stream.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = re.split(r"\r\n|\n|\r", text)[:-1]
    events: list[SseEvent] = []
    data: list[str] = []
    name, own_id, last_id, retry = "", None, "", None
    for line in lines:
        if not line:
            last_id = last_id if own_id is None else own_id
            if data:
                events.append(SseEvent("\n".join(data), name or "message", own_id or ""))
            data, name, own_id = [], "", None
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            own_id = value
        elif field == "retry" and re.fullmatch(r"[0-9]+", value):
            retry = min(int(value), 10**9)
    return events, last_id, retry


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_any_cutting_gives_what_a_plain_reading_of_the_whole_gives(stream: bytes, cuts: list[int]) -> None:
    """A line end, a letter or the byte order mark may be cut in two; that must never change what was said."""
    parser = EventParser()
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    events = [event for begin, end in itertools.pairwise(places) for event in parser.feed(stream[begin:end])]
    assert (events, parser.last_id, parser.retry_ms) == naive(stream)


@given(stream=STREAMS)
def test_byte_by_byte_is_the_same_as_at_once(stream: bytes) -> None:
    """The hardest cutting there is."""
    whole, slow = EventParser(), EventParser()
    assert whole.feed(stream) == [event for byte in stream for event in slow.feed(bytes([byte]))]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [SseEvent("a")]),
        (b"data:a\r\rdata: b\r\n\r\n", [SseEvent("a"), SseEvent("b")]),
        (b"data:  two spaces\n\n", [SseEvent(" two spaces")]),
        (b"data: one\ndata\ndata:three\n\n", [SseEvent("one\n\nthree")]),
        (b":keep alive\n\n:again\ndata: x\n\n", [SseEvent("x")]),
        (b"event: deploy\ndata: x\n\ndata: y\n\n", [SseEvent("x", "deploy"), SseEvent("y")]),
        (b"event: nothing\n\n", []),
        (b"data\n\n", [SseEvent("")]),
        (b"\xef\xbb\xbfdata: x\n\n", [SseEvent("x")]),
        (b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [SseEvent("x")]),
        (b"id: 1\ndata: x\n\ndata: y\n\n", [SseEvent("x", id="1"), SseEvent("y")]),
        (b"unknown: x\ndata: y\n\n", [SseEvent("y")]),
        (b"data: \xff\xfe ok\n\n", [SseEvent("\ufffd\ufffd ok")]),
        (b"data: never ended", []),
    ],
)
def test_the_format_is_read_as_specified(stream: bytes, events: list[SseEvent]) -> None:
    """Each is a sentence of the specification that some server relies on."""
    assert EventParser().feed(stream) == events


def test_an_event_that_broke_off_does_not_move_the_position() -> None:
    """Else the server would not send it again after the reconnect, and it would be lost."""
    parser = EventParser()
    parser.feed(b"id: 1\ndata: whole\n\nid: 2\ndata: brok")
    assert parser.last_id == "1"


def test_a_position_without_data_counts() -> None:
    """Servers begin a stream with an empty event whose id is where to resume."""
    parser = EventParser()
    assert parser.feed(b"id: start\ndata:\n\nid: \x00bad\n\nretry: 1500\nretry: soon\n\n") == [SseEvent("", id="start")]
    assert (parser.last_id, parser.retry_ms) == ("start", 1500)


def test_an_event_above_the_limit_is_given_up_and_the_next_one_arrives() -> None:
    """One huge event must cost neither the memory nor what comes after it; a huge comment costs nothing at all."""
    parser = EventParser(max_bytes=100)
    heard = parser.feed(b"id: 1\ndata: " + b"x" * 60)
    for _ in range(1000):
        heard += parser.feed(b"x" * 100)
    assert sum(map(len, parser.kept)) <= 1
    heard += parser.feed(b"\ndata: more\n\ndata: " + b"y" * 90 + b"\n\n:" + b"c" * 500 + b"\ndata: z\n\n")
    assert heard == [SseEvent("y" * 90), SseEvent("z")]
    assert (parser.dropped, parser.last_id) == (1, "1")


def test_many_small_lines_above_the_limit_are_one_event_given_up() -> None:
    """The limit is for the event, not for the line."""
    parser = EventParser(max_bytes=100)
    assert parser.feed(b"data: 0123456789\n" * 20 + b"\ndata: ok\n\n") == [SseEvent("ok")]
    assert parser.dropped == 1
