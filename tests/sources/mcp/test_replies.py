"""Answering a server is done beside listening to it: whatever it does with our answers, what it announces arrives."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harken.sources.mcp.link import MAX_WAITING, LinkLost, ServerReplies
from harken.sources.mcp.protocol import RpcRequest
from tests.sources.mcp.rig import SECONDS, Handler, Server, Visit, answers, following, said, serving, streams
from tests.sources.mcp.test_legacy_sse import Old

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
CHILD = Path(__file__).parent / "child_server.py"
ANSWERS = "None"  # how the server names what is no request


def pings(count: int) -> list[RpcRequest]:
    """Return so many requests."""
    return [RpcRequest(id=number, method="ping") for number in range(count)]


async def hangs(visit: Visit) -> None:
    """Take a request and never answer it."""
    await visit.hold()


async def test_a_server_that_never_takes_our_answer_is_heard_all_the_same() -> None:
    """The time-out is half a minute: nothing that it announces may wait for that."""
    server = Server([streams(PING, said("one"), PING, said("two"))], {ANSWERS: [hangs]})
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(2)).texts == ["one", "two"]
        await server.replies(1)
        assert ear.source.health().reconnects == 0


async def test_an_old_server_that_never_takes_our_answer_is_heard_all_the_same() -> None:
    """As over Streamable HTTP."""
    old = Old(PING, said("one"), PING, said("two"))
    server = Server([old.stream], {"initialize": [old.post], ANSWERS: [hangs]})
    async with serving(server), following({"url": server.url, "transport": "sse"}) as ear:
        assert (await ear.hear(2)).texts == ["one", "two"]


async def test_a_program_that_never_reads_our_answers_is_heard_all_the_same() -> None:
    """The pipe to it is full soon; it is neither waited for nor started again because of that."""
    async with following({"command": sys.executable, "args": ["-I", "-S", str(CHILD), "deaf"]}) as ear:
        assert (await ear.hear(13)).texts[-1] == "after"
        assert ear.source.health().reconnects == 0


async def test_an_answer_that_is_refused_does_not_end_the_stream() -> None:
    """What is wrong with the server, its stream will tell; the next answer is sent."""
    server = Server([streams(PING, PING, said("after"))], {ANSWERS: [answers(500), answers(202)]})
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(1)
        assert len(await server.replies(2)) == 2
        assert ear.source.health().reconnects == 0


async def test_a_server_that_does_not_answer_about_a_resource_is_heard_all_the_same() -> None:
    """Asking for changes is a request like others, and there may be many."""
    server = Server([streams(said("one"))], {"resources/subscribe": [hangs]})
    async with serving(server), following({"url": server.url, "resources": ["file:///build.log"]}) as ear:
        assert (await ear.hear(1)).texts == ["one"]


@pytest.mark.parametrize("handler", [hangs, answers(400)])
async def test_an_old_server_that_knows_no_resources_is_heard_all_the_same(handler: Handler) -> None:
    """Silence and a refusal are the same here: nothing is told of the resource, and the rest goes on."""
    old = Old(said("one"), said("two"))
    server = Server([old.stream], {"initialize": [old.post], "resources/subscribe": [handler]})
    resources = ["file:///build.log"]
    async with serving(server), following({"url": server.url, "transport": "sse", "resources": resources}) as ear:
        await ear.hear(2)
        with anyio.fail_after(SECONDS):
            while "resources/subscribe" not in server.told():
                await anyio.lowlevel.checkpoint()
        assert (ear.texts, ear.source.health().reconnects) == (["one", "two"], 0)


async def test_more_requests_than_can_wait_get_no_answer_and_the_log_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that asks without end must not fill our memory, nor our log."""
    sent: list[bytes] = []
    is_sent, may_go = anyio.Event(), anyio.Event()

    async def tell(body: bytes) -> None:
        is_sent.set()
        await may_go.wait()
        sent.append(body)

    replies = ServerReplies("odd", tell)
    with caplog.at_level(logging.INFO, "harken.sources.mcp"), anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(replies.run)
            replies.add(pings(1))
            await is_sent.wait()
            replies.add(pings(MAX_WAITING + 5))
            replies.add(pings(4))
            may_go.set()
            await anyio.wait_all_tasks_blocked()
            assert len(sent) == MAX_WAITING
            replies.add(pings(1))
            await anyio.wait_all_tasks_blocked()
            assert len(sent) == MAX_WAITING + 1
            group.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "odd: the server asks faster than it takes answers: some get none",
        "odd: 10 requests of the server got no answer",  # the one under way has its place too
    ]


async def test_an_answer_that_fails_is_followed_by_the_next() -> None:
    """One lost answer is the server's affair."""
    tried: list[bytes] = []

    async def tell(body: bytes) -> None:
        tried.append(body)
        raise LinkLost("the connection broke off")

    replies = ServerReplies("odd", tell)
    replies.add(pings(3))
    async with anyio.create_task_group() as group:
        group.start_soon(replies.run)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert [json.loads(body)["id"] for body in tried] == [0, 1, 2]
