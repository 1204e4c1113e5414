"""Everything a server announces finds its channel; nothing is lost because it is odd."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.sources.mcp.protocol import (
    Announcement,
    RpcAnswer,
    RpcFrame,
    RpcRequest,
    identified,
    is_allowed,
    read_frame,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def said(method: str, params: object = None, **more: object) -> str:
    """Return a notification as it is written."""
    return json.dumps({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more})


@pytest.mark.parametrize(
    ("text", "channel", "content"),
    [
        (said("notifications/ci-pipeline", {"build": 7}), "ci-pipeline", '{"build":7}'),
        (said("notifications/alerts/critical", {"a": [1, "é"]}), "alerts/critical", '{"a":[1,"é"]}'),
        (said("notifications/message", {"level": "info", "data": "up"}), "message", '{"level":"info","data":"up"}'),
        (said("notifications/tools/list_changed"), "tools/list_changed", "notifications/tools/list_changed"),
        (said("notifications/tools/list_changed", {}), "tools/list_changed", "notifications/tools/list_changed"),
        (said("notifications/initialized"), "initialized", "notifications/initialized"),
        (said("message", {"channel": " ops ", "content": "down"}), "ops", "down"),
        (said("channel/message", {"channel": "ci", "text": "red", "message": "no"}), "ci", "red"),
        (said("channel/message", {"content": "", "text": None, "message": "last"}), "default", "last"),
        (said("message", {"channel": 7, "content": {"a": 1}}), "default", '{"a":1}'),
        (said("message", {"channel": "x", "other": 1}), "x", '{"channel":"x","other":1}'),
        (said("message", ["a", 1]), "default", '["a",1]'),
        (said("message"), "default", "message"),
        (said("notifications/list", [1, {"b": 2}]), "list", '[1,{"b":2}]'),
        (said("deploy/finished", {"ok": True}), "deploy/finished", '{"ok":true}'),
        (said("notifications/"), "notifications/", "notifications/"),
        (said("notifications/x", "just text"), "x", "just text"),
        (said("notifications/x", 0), "x", "0"),
        (said("notifications/x", None, id=None), "x", "notifications/x"),
        ('{"method": "notifications/no-version", "params": {"a": NaN}}', "no-version", '{"a":null}'),
        ("plain words", "raw", "plain words"),
        ('"a json text"', "raw", '"a json text"'),
        ('{"broken": ', "raw", '{"broken": '),
        ("[1, 2]", "raw", "[1, 2]"),
        ("[]", "raw", "[]"),
        ('{"no": "method"}', "raw", '{"no": "method"}'),
        ('{"method": 7}', "raw", '{"method": 7}'),
        ("[" * 100_000, "raw", "[" * 100_000),
    ],
)
def test_each_kind_of_text_goes_to_its_channel(text: str, channel: str, content: str) -> None:
    """The routing that people write rules and allow-lists for."""
    (announcement,) = read_frame(text).announcements
    assert (announcement.channel, announcement.content) == (channel, content)


@pytest.mark.parametrize(
    ("data", "channel", "content"),
    [
        (said("notifications/x", {"a": 1}), "x", '{"a":1}'),
        ('{"state": "done"}', "deploy", '{"state": "done"}'),
        ("v1.2 is out", "raw", "v1.2 is out"),
    ],
)
def test_events_of_other_names_are_captured_too(data: str, channel: str, content: str) -> None:
    """A method decides if there is one; the name of the event is kept in any case."""
    (announcement,) = read_frame(data, "deploy").announcements
    assert (announcement.channel, announcement.content) == (channel, content)
    assert announcement.metadata["event"] == "deploy"


def test_requests_and_answers_are_no_announcements() -> None:
    """They belong to the conversation, also inside a batch; id 0 is an id."""
    batch = [
        {"id": 0, "method": "ping"},
        {"method": "notifications/a"},
        {"id": 3, "result": {"x": 1}},
        {"id": "s", "error": {"code": -32601, "message": "no"}},
        17,
    ]
    frame = read_frame(json.dumps(batch))
    assert [each.channel for each in frame.announcements] == ["a", "raw"]
    assert (frame.requests, frame.answers) == (
        [RpcRequest(0, "ping")],
        [RpcAnswer(3, {"x": 1}), RpcAnswer("s", error_code=-32601)],
    )
    assert read_frame("  \n") == RpcFrame()


def test_half_a_letter_of_javascript_is_still_a_notification() -> None:
    """Texts that were cut in the middle of an emoji are common, and not JSON to a strict reader."""
    (announcement,) = read_frame(
        '{"method":"channel/message","params":{"channel":"c","text":"cut \\ud83d"}}'
    ).announcements
    assert (announcement.channel, announcement.content) == ("c", "cut \ufffd")


def test_what_only_the_protocol_needs_is_not_said() -> None:
    """The same change reads the same in both eras; other meta data of the server stays."""
    mine = {"io.modelcontextprotocol/subscriptionId": "1"}
    params = {"uri": "file:///a", "_meta": mine}
    assert read_frame(said("notifications/resources/updated", params)).announcements[0].content == '{"uri":"file:///a"}'
    params = {"uri": "u", "_meta": {**mine, "vendor/x": 1}}
    assert read_frame(said("notifications/r", params)).announcements[0].content == '{"uri":"u","_meta":{"vendor/x":1}}'
    assert read_frame(said("notifications/r", {"_meta": mine})).announcements[0].content == "notifications/r"


def test_meta_data_thread_and_time_come_along() -> None:
    """For people and rules; only plain values."""
    params = {"channel": "ci", "content": "red", "id": 7, "level": "error", "thread": "build-7"}
    params |= {"timestamp": "2026-03-01T10:00:00+01:00", "meta": {"branch": "main", "deep": {"no": 1}}}
    assert read_frame(said("channel/message", params)).announcements == [
        Announcement(
            channel="ci",
            content="red",
            metadata={"method": "channel/message", "id": "7", "level": "error", "branch": "main"},
            upstream_id=read_frame(said("channel/message", params)).announcements[0].upstream_id,
            thread="build-7",
            sent_at=datetime(2026, 3, 1, 9, tzinfo=UTC),
        )
    ]


@pytest.mark.parametrize("moment", [1772355600, 1772355600000, "2026-03-01T09:00:00Z", "2026-03-01T09:00:00"])
def test_times_are_read_in_the_usual_ways(moment: object) -> None:
    """Seconds, milliseconds, and ISO 8601 with or without a zone."""
    (announcement,) = read_frame(said("notifications/x", {"ts": moment})).announcements
    assert announcement.sent_at == datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize("moment", ["soon", 1e300, -5, True, None, {}, "9999999-01-01"])
def test_a_time_that_is_none_is_none(moment: object) -> None:
    """A wrong clock or a wrong format costs the time, never the message."""
    (announcement,) = read_frame(said("notifications/x", {"ts": moment})).announcements
    assert announcement.sent_at is None


def upstream_id(**params: object) -> str:
    """Return the id that an announcement with these params gets."""
    return read_frame(said("channel/message", params)).announcements[0].upstream_id


def test_only_what_is_really_unique_is_an_id() -> None:
    """An alert that fires every day under one id, in the same words, must arrive every day."""
    assert upstream_id(id="cpu-high", content="CPU is high") == ""
    assert upstream_id(content="x", timestamp=5) == ""
    assert upstream_id(id="a", content="x", timestamp=5) == upstream_id(id="a", content="x", timestamp=5) != ""
    assert upstream_id(id="a", content="x", timestamp=5) != upstream_id(id="a", content="x", timestamp=6)
    assert upstream_id(id="a", content="x", timestamp=5) != upstream_id(id="a", content="y", timestamp=5)
    assert upstream_id(eventId="e1", content="x") == upstream_id(eventId="e1", content="x") != ""
    assert upstream_id(eventId="e1", content="moved") != upstream_id(eventId="e1", content="cancelled")


def test_an_event_id_identifies_within_its_stream_together_with_what_it_says() -> None:
    """A server that counts from 1 again, or uses an id twice, loses nothing; a repeat is told."""
    frame = read_frame("[" + said("notifications/a") + "," + said("notifications/a") + "]")

    def ids(stream: str, event_id: str, data: str) -> list[str]:
        return [each.upstream_id for each in identified(frame.announcements, stream, event_id, data)]

    assert len(set(ids("s", "1", "d"))) == 2
    assert ids("s", "1", "d") == ids("s", "1", "d")
    others = [ids("t", "1", "d"), ids("s", "2", "d"), ids("s", "1", "e"), ids("s1", "", "d")]
    assert all(not set(ids("s", "1", "d")) & set(other) for other in others)


@pytest.mark.parametrize(
    ("channels", "channel", "expected"),
    [
        (set(), "anything", True),
        ({"*"}, "anything", True),
        ({"*", "a"}, "b", True),
        ({"alerts"}, "alerts", True),
        ({"alerts"}, "alerts/critical", False),
        ({"alerts/critical"}, "alerts", False),
        ({"Alerts"}, "alerts", False),
    ],
)
def test_the_allow_list_takes_exact_names(channels: set[str], channel: str, *, expected: bool) -> None:
    """Somebody who allows alerts did not allow what is below it."""
    assert is_allowed(channels, channel) is expected


@given(value=JSON)
def test_whatever_json_a_server_sends_every_part_is_accounted_for(value: object) -> None:
    """Nothing raises, nothing is empty, and each element of a batch becomes exactly one thing."""
    frame = read_frame(json.dumps(value))
    is_batch = isinstance(value, list) and any(isinstance(each, dict) for each in value)
    parts = len(frame.announcements) + len(frame.requests) + len(frame.answers)
    assert parts == (len(value) if is_batch and isinstance(value, list) else 1)
    for each in frame.announcements:
        assert each.channel
        assert each.content
        each.content.encode()


@given(text=st.text(min_size=1))
def test_any_text_is_something(text: str) -> None:
    """Garbage is shown as it came."""
    assert bool(read_frame(text).announcements) == bool(text.strip())


@given(params=JSON, method=st.sampled_from(["message", "channel/message", "notifications/x", "y"]))
def test_whatever_params_come_the_announcement_is_one(params: object, method: str) -> None:
    """Params of any shape are content."""
    (announcement,) = read_frame(said(method, params)).announcements
    assert announcement.channel
    assert announcement.content


def test_a_list_that_is_no_batch_is_one_text() -> None:
    """Half a million announcements in one event would hold up everything else; nobody sends such a batch."""
    text = "[" + ",".join(['{"method":"a"}'] * 1_001) + "]"
    (only,) = read_frame(text).announcements
    assert (only.channel, only.content) == ("raw", text)
    assert len(read_frame("[" + ",".join(['{"method":"a"}'] * 1_000) + "]").announcements) == 1_000
