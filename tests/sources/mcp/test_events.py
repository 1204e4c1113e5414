"""Streams of events, which servers of the 2026 era may have: resumed at their cursor, each event once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from harken.sources.source import SourceState
from tests.sources.mcp.rig import Ear, Handler, Server, Visit, answers, following, serving
from tests.sources.mcp.test_modern import discovers, subscribed

PROGRAM: Final = Path(__file__).parent / "event_server.py"
PUSHED = {"name": "build.failed", "delivery": ["poll", "push"]}


def lists(*events: object) -> Handler:
    """Return a handler that lists these kinds of events."""

    async def handle(visit: Visit) -> None:
        await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": {"events": events}})

    return handle


def occurs(*numbers: int, held: bool = True, truncated: bool = False) -> Handler:
    """Return a handler that confirms a stream, sends occurrences and a heartbeat, and then holds it or breaks off."""

    async def handle(visit: Visit) -> None:
        async def say(what: str, **params: object) -> None:
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": visit.json["id"]}}
            message = {"jsonrpc": "2.0", "method": f"notifications/events/{what}", "params": {**params, **meta}}
            await visit.event(json.dumps(message))

        await visit.begin_stream()
        await say("active", cursor=f"c{numbers[0] - 1}", truncated=truncated)
        for number in numbers:
            data = {"build": number}
            await say("event", eventId=f"e{number}", name="build.failed", data=data, cursor=f"c{number}")
        await say("heartbeat", cursor=f"c{numbers[-1]}")
        if held:
            await visit.hold()
        await visit.wire.aclose()

    return handle


def server_with(*streams: Handler, listed: Handler | None = None, capabilities: object = None) -> Server:
    """Return a modern server with the events extension."""
    offered = {"extensions": {"io.modelcontextprotocol/events": {}}} if capabilities is None else capabilities
    posts = {"initialize": [answers(400)], "server/discover": [discovers(offered)]}
    listing = lists(PUSHED) if listed is None else listed
    return Server([answers(405)], {**posts, "events/list": [listing], "events/stream": list(streams)})


def cursors(server: Server) -> list[object]:
    """Return the cursors that streams were asked from."""
    params = [visit.json["params"] for visit in server.seen("POST") if visit.json["method"] == "events/stream"]
    return [each["cursor"] for each in params if isinstance(each, dict)]


async def test_events_arrive_and_a_broken_stream_goes_on_at_its_cursor() -> None:
    """Nothing is missed, what comes twice has the same id, and heartbeats are no news."""
    server = server_with(occurs(1, 2, held=False), occurs(2, 3))
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(4)
        health = ear.source.health()
    assert [json.loads(text) for text in ear.texts] == [{"build": number} for number in (1, 2, 2, 3)]
    ids = [draft.upstream_id for draft in ear.drafts]
    assert (ids[1] == ids[2], len(set(ids))) == (True, 3)
    assert {draft.channel for draft in ear.drafts} == {"build.failed"}
    assert cursors(server) == [None, "c2"]
    assert (health.state, health.gaps, health.reconnects) == (SourceState.LISTENING, 0, 1)


async def test_a_cursor_survives_a_restart() -> None:
    """It is the checkpoint that is stored with the events before it."""
    server = server_with(occurs(1), occurs(2))
    async with serving(server):
        async with following({"url": server.url}) as first:
            await first.hear(1)
        async with following({"url": server.url}, checkpoint=first.checkpoint) as second:
            await second.hear(1)
            assert second.source.health().gaps == 0
    assert cursors(server) == [None, "c1"]


async def test_a_server_that_kept_less_than_was_missed_shows_a_gap() -> None:
    """It says so itself."""
    server = server_with(occurs(1, held=False), occurs(9, truncated=True))
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
        assert ear.source.health().gaps == 1


async def test_events_that_cannot_be_had_do_not_stand_in_the_way() -> None:
    """Some need arguments that nobody gave, some are not pushed, some are forbidden: the others arrive."""
    needy = {"name": "needy", "delivery": ["push"], "inputSchema": {"required": ["repo"]}}
    hooked = {"name": "hooked", "delivery": ["webhook"]}

    async def forbids(visit: Visit) -> None:
        params = visit.json["params"]
        assert isinstance(params, dict)
        if params["name"] == "secret":
            await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "error": {"code": -32012}})
        else:
            await occurs(1)(visit)

    server = server_with(forbids, listed=lists(needy, hooked, {"name": "secret"}, PUSHED, 7, {"name": ""}))
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(1)
        _, refused = await ear.waits.next()
        asked = {str(visit.json["params"]) for visit in server.seen("POST") if visit.json["method"] == "events/stream"}
    assert refused.reason == "server does not support push: error -32012 on events/stream"
    assert not [params for params in asked if "needy" in params or "hooked" in params]


async def test_events_and_changes_are_heard_at_once() -> None:
    """Two streams of one server."""
    server = server_with(occurs(1), capabilities={"tools": {"listChanged": True}, "events": {}})
    server.posts["subscriptions/listen"] = [subscribed]
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
        assert {draft.channel for draft in ear.drafts} == {"build.failed", "tools/list_changed"}
        assert ear.source.health().state is SourceState.LISTENING


async def test_an_event_is_told_by_its_name_its_id_and_its_data() -> None:
    """Channel lists and rules can name it, also one that has the name of a word of the protocol."""
    odd = {"name": "events/heartbeat", "delivery": ["poll"]}

    async def polled(visit: Visit) -> None:
        event = {"eventId": "h-1", "name": "events/heartbeat", "timestamp": "2026-11-18T08:00:01Z", "data": {"a": 1}}
        asked = visit.json["params"]
        assert isinstance(asked, dict)
        told = [event, 7] if asked["cursor"] == "c0" else []
        result = {"events": told, "cursor": "c1" if told else "c0", "hasMore": not told, "truncated": bool(told)}
        await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": result})

    server = server_with(listed=lists(odd))
    server.posts["events/poll"] = [polled]
    async with serving(server), following({"url": server.url, "channels": ["events/heartbeat"]}) as ear:
        await ear.hear(1)
        health = ear.source.health()
    (draft,) = ear.drafts
    assert (draft.channel, draft.text, draft.upstream_id) == ("events/heartbeat", '{"a":1}', "events/heartbeat/h-1")
    assert draft.sent_at is not None
    assert draft.meta["eventId"] == "h-1"
    assert (health.state, health.gaps) == (SourceState.LISTENING, 1)


async def test_a_list_of_channels_that_was_written_before_lets_events_in() -> None:
    """Once all events were in one channel: whoever named that, in rules too, still finds them there."""
    server = server_with(occurs(1))
    async with serving(server), following({"url": server.url, "channels": ["events/event"]}) as ear:
        await ear.hear(1)
    assert [draft.channel for draft in ear.drafts] == ["events/event"]


async def test_a_server_of_2025_streams_its_events_in_its_session_beside_all_else() -> None:
    """Most servers know both eras, and say what they announce in the first; the cursor survives beside the session."""
    news = json.dumps({"jsonrpc": "2.0", "method": "notifications/news", "params": {"a": 1}})

    async def gets(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.event(news, "7")
        await visit.hold()

    async def initializes(visit: Visit) -> None:
        result = {"protocolVersion": "2025-11-25", "capabilities": {"events": {}}, "serverInfo": {"name": "both"}}
        await visit.reply_json(
            {"jsonrpc": "2.0", "id": visit.json["id"], "result": result}, {"Mcp-Session-Id": "session-1"}
        )

    streams = [occurs(1), occurs(2)]
    server = Server([gets], {"initialize": [initializes], "events/list": [lists(PUSHED)], "events/stream": streams})
    async with serving(server):
        async with following({"url": server.url}) as first:
            await first.hear(2)
        async with following({"url": server.url}, checkpoint=first.checkpoint) as second:
            await second.hear(2)
            assert second.source.health().gaps == 0
    assert {draft.channel for draft in first.drafts} == {"news", "build.failed"}
    assert cursors(server) == [None, "c1"]
    assert [visit.headers.get("last-event-id") for visit in server.seen("GET")] == [None, "7"]
    assert server.told().count("initialize") == 1


@pytest.mark.parametrize("dialect", ["sep", "sketch"])
@pytest.mark.parametrize("ways", ["push", "poll"])
async def test_a_program_that_is_killed_at_any_line_loses_no_event(tmp_path: Path, dialect: str, ways: str) -> None:
    """In either dialect: it goes on at the cursor that was stored with the events before it, and none comes twice."""

    async def hears(events: int, kill: int, checkpoint: str = "") -> Ear:
        words = ["-I", "-S", str(PROGRAM), dialect, ways, str(tmp_path / f"{kill}.log"), str(kill)]
        entry = {"command": sys.executable, "args": words, "env": {"EVENTS": str(events)}}
        async with following(entry, checkpoint=checkpoint) as ear:
            await ear.hear(1 if checkpoint else events)
            assert ear.source.health().gaps == 0 or not checkpoint
        return ear

    for kill in range(1, 12):
        ear = await hears(4, kill)
        assert [draft.upstream_id for draft in ear.drafts] == [f"incident.created/i-{n}" for n in (1, 2, 3, 4)], kill
    again = await hears(5, 1, (await hears(4, 1)).checkpoint)
    assert [(draft.channel, draft.text) for draft in again.drafts] == [("incident.created", '{"incident":5}')]
