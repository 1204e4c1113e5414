"""What servers and networks do wrong, over Streamable HTTP: each has its reason, and what comes after it arrives."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from harken.sources.source import SourceState
from tests.sources.mcp.rig import SECONDS, Handler, Server, Visit, answers, following, said, serving, streams


async def test_a_compressed_stream_is_read() -> None:
    """Proxies compress what they like."""

    async def squeezes(visit: Visit) -> None:
        await visit.begin_stream({"Content-Encoding": "gzip"})
        await visit.write(gzip.compress(f"data: {said('small')}\n\ndata: {said('too')}\n\n".encode()))
        await visit.hold()

    async with serving(Server([squeezes])) as server, following({"url": server.url}) as ear:
        assert (await ear.hear(2)).texts == ["small", "too"]


async def test_broken_compression_is_a_lost_connection() -> None:
    """Not a crash."""

    async def lies(visit: Visit) -> None:
        await visit.begin_stream({"Content-Encoding": "gzip"})
        await visit.write(b"this is not gzip at all")
        await visit.hold()

    async with serving(Server([lies])) as server, following({"url": server.url}, passing=0) as ear:
        assert (await ear.waits.next())[1].reason == "the server's compression is broken"


async def test_an_event_of_five_megabytes_arrives_and_one_of_nine_is_counted() -> None:
    """Large is fine, endless is not, and what comes after arrives."""
    large, larger = "x" * 5_000_000, "y" * 9_000_000
    server = Server([streams(said(large), said(larger), said("after"))])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
        assert [len(text) for text in ear.texts] == [5_000_000, 5]
        assert sum(batch.dropped for batch in ear.batches) == ear.source.health().too_long == 1


async def test_bad_letters_and_binary_garbage_are_shown_as_they_are() -> None:
    """Nothing stops the stream; what cannot be read goes to `raw`."""

    async def babbles(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.write(b"data: " + said("caf\xe9").encode().replace(b"\\u00e9", b"\xe9") + b"\n\n")
        await visit.write(bytes(range(256)) * 8 + b"\n\ndata: \x00\xff\xfe\n\n")
        await visit.event(said("after"))
        await visit.hold()

    async with serving(Server([babbles])) as server, following({"url": server.url}) as ear:
        await ear.hear(3)
    assert [(draft.channel, draft.text) for draft in ear.drafts] == [
        ("news", "caf\ufffd"),
        ("raw", "\x00\ufffd\ufffd"),
        ("news", "after"),
    ]


async def test_a_burst_arrives_whole_in_order_and_in_large_batches() -> None:
    """A hundred thousand at once: what arrives while a batch is stored is the next batch, and never too much."""
    count = 100_000

    async def bursts(visit: Visit) -> None:
        await visit.begin_stream()
        for begin in range(0, count, 100):
            await visit.write(b"".join(f"data: {said(str(n))}\n\n".encode() for n in range(begin, begin + 100)))
        await visit.hold()

    async with serving(Server([bursts])) as server, following({"url": server.url}) as ear:
        await ear.hear(count, seconds=60)
        assert ear.texts == [str(n) for n in range(count)]
        assert max(len(batch.drafts) for batch in ear.batches) < 3_000
        assert ear.source.health().counts == {"news": count}


async def test_a_certificate_that_is_not_trusted_is_named(untrusted: Server) -> None:
    """Nothing is sent to a server that cannot prove who it is."""
    url = untrusted.url.replace("http://127.0.0.1", "https://localhost")
    async with following({"url": url}, passing=0) as ear:
        reason = (await ear.waits.next())[1].reason
    assert reason.startswith(f"the certificate of https://localhost:{untrusted.port} is not accepted: ")
    assert untrusted.visits == []


async def test_https_to_a_server_without_it_is_named() -> None:
    """A common slip in an address."""

    async def answer(wire: SocketStream) -> None:
        async with wire:
            await wire.receive()
            await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    url = f"https://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        async with following({"url": url}, passing=0) as ear:
            assert "check whether it really speaks https" in (await ear.waits.next())[1].reason
        group.cancel_scope.cancel()


async def pong(visit: Visit) -> None:
    """Answer a ping."""
    await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": {}})


@pytest.mark.parametrize("answer", [pong, answers(202)], ids=["at once", "on the stream"])
async def test_a_quiet_stream_is_asked_about_and_kept(answer: Handler) -> None:
    """Most servers are silent for hours: that is no reason to lose what they say next.

    Some take a ping and answer it on the stream.
    """
    asked = anyio.Event()

    async def takes(visit: Visit) -> None:
        await answer(visit)
        asked.set()

    async def quiet(visit: Visit) -> None:
        await visit.begin_stream()
        await asked.wait()
        await visit.event(said("at last"))
        await visit.hold()

    server = Server([quiet], {"ping": [takes]})
    async with serving(server), following({"url": server.url}, idle=0.05) as ear:
        assert (await ear.hear(1)).texts == ["at last"]
        assert (len(server.seen("GET")), ear.source.health().reconnects) == (1, 0)


async def test_a_stream_that_begins_with_its_first_word_is_waited_for() -> None:
    """Some servers send nothing at all, not even a status, before they have something to say."""
    asked = anyio.Event()

    async def takes(visit: Visit) -> None:
        await pong(visit)
        asked.set()

    async def late(visit: Visit) -> None:
        await asked.wait()
        waiting.append(ear.source.health().reason)
        await visit.begin_stream()
        await visit.event(said("at last"))
        await visit.hold()

    waiting: list[str] = []
    server = Server([late], {"ping": [takes]})
    async with serving(server), following({"url": server.url}, idle=0.05) as ear:
        assert (await ear.hear(1)).texts == ["at last"]
        assert (len(server.seen("GET")), ear.source.health().reconnects) == (1, 0)
    assert waiting == ["waiting for the server to open the stream"]


async def test_a_refused_stream_of_a_good_session_is_opened_in_it_later() -> None:
    """A sign-in that failed for a moment: the session goes on, and with it the place in the stream."""
    server = Server([streams(said("one"), first_id=1, held=False), answers(401), streams(said("two"), first_id=2)])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(2)).texts == ["one", "two"]
        health = ear.source.health()
    assert (health.state, health.gaps, server.told().count("initialize")) == (SourceState.LISTENING, 0, 1)
    assert [visit.headers.get("last-event-id") for visit in server.seen("GET")] == [None, "1", "1"]


@pytest.mark.parametrize("year", [1971, 2999])
async def test_a_server_whose_clock_is_wrong_is_heard_in_order_and_by_our_clock(year: int) -> None:
    """What it says of the time is kept as what it said; when it came, we know better."""

    def at(hour: int, text: str) -> str:
        params = {"channel": "news", "content": text, "timestamp": f"{year}-01-01T{hour:02}:00:00Z"}
        return json.dumps({"jsonrpc": "2.0", "method": "channel/message", "params": params})

    server = Server([streams(at(9, "first"), at(8, "second"))])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(2)).texts == ["first", "second"]
        assert ear.source.health().last_message_at == ear.clock.now()
    assert [draft.sent_at for draft in ear.drafts] == [datetime(year, 1, 1, hour, tzinfo=UTC) for hour in (9, 8)]


async def test_a_dead_stream_is_found_by_asking() -> None:
    """A connection that a firewall forgot looks like a quiet one, until somebody asks."""
    server = Server([streams(), streams(said("alive"))], {"ping": [answers(404)]})
    async with serving(server), following({"url": server.url}, idle=0.05) as ear:
        assert (await ear.hear(1)).texts == ["alive"]
        assert "does not know the session" in (await ear.waits.next())[1].reason


async def test_a_server_that_does_not_answer_is_lost_after_the_time_out() -> None:
    """It accepts and says nothing: bounded, not for ever."""

    async def hangs(visit: Visit) -> None:
        await visit.hold()

    server = Server([hangs], {"initialize": [hangs]})
    async with serving(server), following({"url": server.url, "timeout": 1}, passing=0) as ear:
        assert (await ear.waits.next())[1].reason == "the server does not answer initialize within 1 seconds"


async def garbage(visit: Visit) -> None:
    """Answer with what is no HTTP."""
    await visit.wire.send(bytes(range(256)))
    await visit.wire.aclose()


async def ends_early(visit: Visit) -> None:
    """Begin an answer and end it without one."""
    await visit.begin_stream()
    await visit.event(said("half"))
    await visit.end()


async def refuses(visit: Visit) -> None:
    """Answer with an error, whose words may hold anything."""
    error = {"code": -32600, "message": "no <b>s3cret</b>"}
    await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "error": error})


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (garbage, "the connection broke off"),
        (ends_early, "the server ended its answer too early"),
        (refuses, "the server refuses to begin (error -32600)"),
        (answers(200, {"Content-Type": "text/html"}, b"<html>s3cret"), "the server's answer is no MCP: check its url"),
        (answers(200, JSON, b'{"jsonrpc": "2.0"'), "the server's answer is no MCP: check its url"),
        (answers(200, JSON, b'"' + b"x" * 9_000_000), "the server's answer is too long"),
        (answers(500, body=b"s3cret"), "the server answers 500 on initialize"),
        (answers(200, {"Content-Encoding": "gzip", **JSON}, b"not gzip"), "the server's compression is broken"),
    ],
)
async def test_a_handshake_that_goes_wrong_is_tried_again_with_its_reason(handler: Handler, reason: str) -> None:
    """In our own words: nothing that the server wrote is repeated."""
    server = Server([streams(said("in"))], {"server/discover": [answers(404)]})
    server.posts["initialize"] = [handler, server.initialize]
    async with serving(server), following({"url": server.url}) as ear:
        with anyio.fail_after(SECONDS):
            while "in" not in ear.texts:
                await ear.hear(ear.count + 1)
        _, health = await ear.waits.next()
    assert (health.state, health.reason) == (SourceState.RETRYING, reason)


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (garbage, "the connection broke off"),
        (answers(500), "the server answers 500 on GET"),
        (answers(200, {"Content-Type": "text/html"}, b"<html>"), "the server answers GET with something that is no"),
    ],
)
async def test_a_stream_that_cannot_be_opened_is_tried_again_with_its_reason(handler: Handler, reason: str) -> None:
    """Whatever stands where the stream should be."""
    server = Server([handler, streams(said("in"))])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(1)).texts == ["in"]
        assert (await ear.waits.next())[1].reason.startswith(reason)


async def test_redirects_are_followed_only_within_the_server() -> None:
    """Our headers are meant for one server; many servers redirect to the same path with a slash."""
    server = Server([answers(307, {"Location": "/mcp/"}), streams(said("moved"))])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(1)).texts == ["moved"]
    assert [visit.path for visit in server.seen("GET")] == ["/mcp", "/mcp/"]
    server = Server([answers(307, {"Location": "http://elsewhere.invalid/"})])
    async with serving(server), following({"url": server.url}, passing=0) as ear:
        reason = (await ear.waits.next())[1].reason
    assert reason == "the server redirects elsewhere: set sources.odd.url to its new address"


async def drops(visit: Visit) -> None:
    """Begin a stream and drop the connection."""
    await visit.begin_stream()
    await visit.wire.aclose()


async def test_a_server_accepting_and_dropping_at_once_is_not_hammered() -> None:
    """No busy loop: a connection that did not stand does not reset the waits."""
    async with serving(Server([drops])) as server, following({"url": server.url}) as ear:
        waits = [(await ear.waits.next())[0] for _ in range(8)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_a_connection_that_stood_for_a_while_makes_the_next_wait_short() -> None:
    """Yesterday's trouble is forgotten, however the connection ended today."""
    seconds = [0.0]

    async def stands(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.event(said("hello"))
        seconds[0] += 10.0
        await visit.wire.aclose()

    server = Server([drops, drops, drops, stands, drops])
    async with serving(server), following({"url": server.url}, monotonic=lambda: seconds[0]) as ear:
        waits = [(await ear.waits.next())[0] for _ in range(6)]
    assert waits == [0.5, 1, 2, 0.5, 1, 2]


async def test_nothing_secret_is_in_what_people_are_told() -> None:
    """Headers and addresses hold tokens; a server may even echo them as its name."""

    async def echoes(visit: Visit) -> None:
        info = {"serverInfo": {"name": f"you said {visit.headers['x-key']}"}}
        await visit.reply_json({"jsonrpc": "2.0", "id": visit.json["id"], "result": info})

    server = Server([answers(403)], {"initialize": [echoes]})
    async with serving(server):
        entry = {
            "url": server.url.replace("//", "//ann:passw0rd@") + "?token=t0kensecret",
            "headers": {"X-Key": "k3ysecret"},
        }
        async with following(entry, passing=0) as ear:
            shown = repr((await ear.waits.next())[1])
    assert not [secret for secret in ("passw0rd", "t0kensecret", "k3ysecret") if secret in shown]
    assert server.seen("GET")[0].headers["authorization"].startswith("Basic ")
