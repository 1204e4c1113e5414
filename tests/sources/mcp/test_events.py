"""Streams of events, which servers of the 2026 era may have: resumed at their cursor, each event once."""

from __future__ import annotations

import json

from harken.sources.source import SourceState
from tests.sources.mcp.rig import Handler, Server, Visit, answers, following, serving
from tests.sources.mcp.test_modern import discovers, subscribed

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
    assert [json.loads(text)["data"]["build"] for text in ear.texts] == [1, 2, 2, 3]
    ids = [draft.upstream_id for draft in ear.drafts]
    assert (ids[1] == ids[2], len(set(ids))) == (True, 3)
    assert {draft.channel for draft in ear.drafts} == {"events/event"}
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
        assert {draft.channel for draft in ear.drafts} == {"events/event", "tools/list_changed"}
        assert ear.source.health().state is SourceState.LISTENING
