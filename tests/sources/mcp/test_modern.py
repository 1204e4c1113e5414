"""Servers of the 2026 era, which have no stream to listen on but a subscription."""

from __future__ import annotations

import json

from harken.sources.source import SourceState
from tests.sources.mcp.rig import Handler, Server, Visit, answers, following, serving

CHANGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
ACKNOWLEDGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}})


def discovers(capabilities: object) -> Handler:
    """Return a handler that says what the server can do."""

    async def handle(visit: Visit) -> None:
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "2"}}
        result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": meta}
        await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": result})

    return handle


def modern(*listens: Handler, capabilities: object = None) -> Server:
    """Return a server that knows only the 2026 era."""
    offered = {"tools": {"listChanged": True}} if capabilities is None else capabilities
    posts = {"initialize": [answers(400)], "server/discover": [discovers(offered)]}
    return Server([answers(405)], {**posts, "subscriptions/listen": list(listens)})


async def subscribed(visit: Visit) -> None:
    """Confirm, announce one change, and hold the stream."""
    await visit.begin_stream()
    await visit.event(ACKNOWLEDGED)
    await visit.event(CHANGED)
    await visit.hold()


async def test_a_modern_server_is_subscribed_to() -> None:
    """For everything it offers; that the subscription stands is no news to people."""
    server = modern(subscribed)
    async with serving(server), following({"url": server.url, "resources": ["file:///a"]}) as ear:
        await ear.hear(1)
        health = ear.source.health()
    assert [(draft.channel, draft.text) for draft in ear.drafts] == [
        ("tools/list_changed", "notifications/tools/list_changed")
    ]
    assert (health.state, health.server) == (SourceState.LISTENING, "modern 2")
    listen = server.seen("POST")[-1]
    params = listen.json["params"]
    assert isinstance(params, dict)
    assert params["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
    assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert listen.headers["mcp-protocol-version"] == "2026-07-28"
    assert listen.headers["mcp-method"] == "subscriptions/listen"
    assert server.seen("GET") == []


async def test_a_subscription_that_ends_is_made_again_and_is_a_gap() -> None:
    """That era has no way to resume."""

    async def ends(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.event(ACKNOWLEDGED)
        await visit.event(json.dumps({"jsonrpc": "2.0", "id": visit.json["id"], "result": {}}))
        await visit.hold()

    server = modern(ends, subscribed)
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(1)
        health = ear.source.health()
    assert (health.gaps, health.reconnects) == (1, 1)
    assert server.told().count("initialize") == 1


async def test_a_server_of_both_eras_without_push_in_the_first_is_subscribed_to() -> None:
    """405 on GET is not the last word if there is another way."""
    server = modern(subscribed)
    del server.posts["initialize"]
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(1)).drafts[0].channel == "tools/list_changed"


async def test_a_modern_server_that_offers_nothing_is_silent() -> None:
    """Nothing will ever arrive: people are told, and it is left alone."""
    server = modern(capabilities={"tools": {}})
    async with serving(server), following({"url": server.url}) as ear:
        health = await ear.end()
        assert (health.state, health.reason) == (
            SourceState.SILENT,
            "server does not support push: it offers nothing to subscribe to",
        )


async def test_a_wrong_address_is_tried_again_with_a_hint() -> None:
    """404 on the handshake may be a server that is just being deployed."""
    server = Server([answers(404)], {"initialize": [answers(404)], "server/discover": [answers(404)]})
    async with serving(server), following({"url": server.url}, passing=0) as ear:
        reason = (await ear.waits.next())[1].reason
    hint = "check its url, or set transport to sse for an older server"
    assert reason == f"the server answers 404 on initialize: {hint}"
