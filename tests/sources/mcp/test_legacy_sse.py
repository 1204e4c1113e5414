"""HTTP+SSE: everything arrives on one stream, and what we say goes where the stream says."""

from __future__ import annotations

import json

import anyio
import pytest

from harken.sources.source import SourceState
from tests.sources.mcp.rig import Handler, Server, Visit, answers, following, said, serving


class Old:
    """An old server: it answers posts on its stream, and then says what the test wants."""

    def __init__(self, *texts: str, endpoint: str = "/messages?session=1", stays: bool = True) -> None:
        self._texts = texts
        self._endpoint = endpoint
        self._stays = stays
        self._sender, self._receiver = anyio.create_memory_object_stream[str](10)

    async def post(self, visit: Visit) -> None:
        """Take a request; its answer goes to the stream."""
        await visit.reply(202)
        result = {"protocolVersion": "2024-11-05", "serverInfo": {"name": "old", "version": "0"}}
        await self._sender.send(json.dumps({"jsonrpc": "2.0", "id": visit.json["id"], "result": result}))

    async def stream(self, visit: Visit) -> None:
        """Name the endpoint, answer, announce."""
        async with self._sender, self._receiver:
            await visit.begin_stream()
            await visit.event(self._endpoint, name="endpoint")
            await visit.event(await self._receiver.receive())
            for text in self._texts:
                await visit.event(text)
            if self._stays:
                await visit.hold()
            await visit.end()


def entry(server: Server, **more: object) -> dict[str, object]:
    """Return the settings of the server."""
    return {"url": server.url, "transport": "sse", **more}


async def test_announcements_of_an_old_server_arrive() -> None:
    """Endpoint, handshake, stream."""
    old = Old(said("red", "ci"), "not json")
    server = Server([old.stream], {"initialize": [old.post]})
    async with serving(server), following(entry(server)) as ear:
        await ear.hear(2)
        health = ear.source.health()
    assert [(draft.channel, draft.text) for draft in ear.drafts] == [("ci", "red"), ("raw", "not json")]
    assert (health.state, health.server) == (SourceState.LISTENING, "old 0")
    assert [visit.path for visit in server.seen("POST")] == ["/messages?session=1"] * 2
    assert server.told() == ["initialize", "notifications/initialized"]


async def test_a_stream_that_ends_is_opened_again_and_is_a_gap() -> None:
    """There is no way to resume, so people are told that something may be missing."""
    first, second = Old(said("one"), stays=False), Old(said("two"))
    server = Server([first.stream, second.stream], {"initialize": [first.post, second.post]})
    async with serving(server), following(entry(server)) as ear:
        assert (await ear.hear(2)).texts == ["one", "two"]
        assert (ear.source.health().gaps, ear.source.health().reconnects) == (1, 1)


async def test_requests_of_an_old_server_are_answered() -> None:
    """As on every other link."""
    old = Old(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "ping"}), said("after"))
    server = Server([old.stream], {"initialize": [old.post]})
    async with serving(server), following(entry(server)) as ear:
        await ear.hear(1)
        assert await server.replies(1) == [{"jsonrpc": "2.0", "id": 5, "result": {}}]


async def test_an_endpoint_elsewhere_is_refused() -> None:
    """Our headers would go to a stranger."""
    old = Old(endpoint="http://elsewhere.invalid/messages")
    server = Server([old.stream])
    async with serving(server), following(entry(server), passing=0) as ear:
        reason = (await ear.waits.next())[1].reason
    assert reason == "the server wants to be answered at another server: that is refused"
    assert server.seen("POST") == []


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (answers(500), "the server answers 500 on GET"),
        (answers(404), "the server answers 404 on GET"),
        (answers(200, {"Content-Type": "text/html"}, b"<html>"), "the server answers GET with something that is no"),
        (answers(401), "the server refuses us (401 on GET): check sources.odd.headers"),
    ],
)
async def test_an_old_server_that_fails_is_tried_again(handler: Handler, reason: str) -> None:
    """Each with its reason."""
    async with serving(Server([handler])) as server, following(entry(server), passing=0) as ear:
        assert (await ear.waits.next())[1].reason.startswith(reason)


@pytest.mark.parametrize("status", [405, 501])
async def test_an_old_server_without_a_stream_is_silent(status: int) -> None:
    """There is nothing to wait for."""
    async with serving(Server([answers(status)])) as server, following(entry(server)) as ear:
        health = await ear.end()
        assert (health.state, health.reason) == (
            SourceState.SILENT,
            f"server does not support push: {status} on GET",
        )


async def test_an_old_server_that_never_names_its_endpoint_is_lost() -> None:
    """Bounded by the time-out, not by the much longer idle time."""

    async def mute(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.hold()

    async with serving(Server([mute])) as server, following(entry(server, timeout=1), passing=0) as ear:
        assert (await ear.waits.next())[1].reason == "the server does not answer initialize"
