"""Streamable HTTP: a session, its stream, and how both are found again; nothing twice, nothing lost unseen."""

from __future__ import annotations

import json

import pytest

from harken.sources.mcp.protocol import parse_place
from harken.sources.source import SourceState
from tests.sources.mcp.rig import SESSION, Server, Visit, answers, following, said, serving, streams


async def test_what_a_server_announces_arrives_in_its_channel() -> None:
    """The whole way: handshake, session and version echoed, stream, draft, health."""
    async with serving(Server([streams(said("red", "ci"), said("again", "ci"))])) as server:
        async with following({"url": server.url, "headers": {"X-Key": "k"}}) as ear:
            await ear.hear(2)
            health = ear.source.health()
            assert ear.texts == ["red", "again"]
        posted, got, deleted = server.seen("POST"), server.seen("GET"), server.seen("DELETE")
    assert (health.state, health.server, health.counts) == (SourceState.LISTENING, "odd 1", {"ci": 2})
    assert (health.reason, health.reconnects, health.gaps) == ("", 0, 0)
    assert server.told() == ["initialize", "notifications/initialized"]
    assert "mcp-session-id" not in posted[0].headers
    for visit in [posted[1], *got, *deleted]:
        named = [visit.headers.get(name) for name in ("mcp-session-id", "mcp-protocol-version", "x-key")]
        assert named == [SESSION, "2025-06-18", "k"]
    assert got[0].headers["accept"] == "text/event-stream"
    assert len(deleted) == 1


async def test_announcements_in_answers_to_posts_arrive_too() -> None:
    """A server may say something before it answers the handshake."""

    async def initialize(visit: Visit) -> None:
        await visit.begin_stream({"Mcp-Session-Id": "s"})
        await visit.event(said("early"))
        await visit.event(json.dumps({"jsonrpc": "2.0", "id": visit.json["id"], "result": {}}))
        await visit.end()

    server = Server([streams(said("late"))], {"initialize": [initialize]})
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(2)).texts == ["early", "late"]


async def test_requests_of_the_server_are_answered() -> None:
    """A server that pings and hears nothing back closes the connection."""
    asked = [{"jsonrpc": "2.0", "id": 0, "method": "ping"}, {"jsonrpc": "2.0", "id": "r", "method": "roots/list"}]
    server = Server([streams(*map(json.dumps, asked), said("after"))])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(1)).texts == ["after"]
        replies = await server.replies(2)
    assert [(each["id"], each.get("result"), "error" in each) for each in replies] == [
        (0, {}, False),
        ("r", None, True),
    ]


async def test_a_beginning_that_failed_half_way_begins_anew() -> None:
    """A session that never began is not named in the next handshake."""
    server = Server([streams(said("in"))], {"notifications/initialized": [answers(500), answers(202)]})
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(1)
        begun = [visit for visit in server.seen("POST") if visit.json.get("method") == "initialize"]
    assert [visit.headers.get("mcp-session-id") for visit in begun] == [None, None]


async def test_a_stream_that_breaks_off_goes_on_where_it_was() -> None:
    """With event ids, the broken event comes again, nothing twice, and there is no gap."""

    async def breaks(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.event(said("one"), "1")
        await visit.write(b"id: 2\ndata: " + said("two").encode()[:20])
        await visit.wire.aclose()

    server = Server([breaks, streams(said("two"), said("three"), first_id=2)])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(3)).texts == ["one", "two", "three"]
        health = ear.source.health()
        wait, while_down = await ear.waits.next()
    assert [visit.headers.get("last-event-id") for visit in server.seen("GET")] == [None, "1"]
    assert (wait, while_down.state, while_down.reason) == (0.5, SourceState.RETRYING, "the connection broke off")
    assert (health.state, health.gaps, health.reconnects) == (SourceState.LISTENING, 0, 1)
    assert len(server.told()) == 2
    # The session can be taken up again, so it was left alone.
    assert server.seen("DELETE") == []


async def test_a_repeated_event_has_the_id_of_the_first() -> None:
    """A server that replays too much must not be heard twice; the store drops what it knows."""
    server = Server([streams(said("one"), first_id=1, held=False), streams(said("one"), said("two"), first_id=1)])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(3)
        health = ear.source.health()
        ids = [draft.upstream_id for draft in ear.drafts]
    assert ids[0] == ids[1] != ids[2]
    assert all(ids)
    assert (health.counts, health.known) == ({"news": 2}, 1)


async def test_a_reconnect_that_cannot_resume_is_a_gap() -> None:
    """Without ids nobody knows what was said in between: people are told that something may be missing."""
    server = Server([streams(said("one"), held=False), streams(said("one"))])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
        health = ear.source.health()
        _, while_down = await ear.waits.next()
    assert (health.gaps, health.reconnects) == (1, 1)
    assert [draft.upstream_id for draft in ear.drafts] == ["", ""]
    assert while_down.reason == "the server ended the stream"


async def test_the_server_says_when_to_come_back_to_a_stream() -> None:
    """`retry:` is the server's own polling interval."""

    async def polls(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.write(b"retry: 7000\n\n")
        await visit.event(said("one"))
        await visit.end()

    server = Server([polls, streams(said("two"))])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
        assert (await ear.waits.next())[0] == 7.0


@pytest.mark.parametrize("status", [404, 400])
async def test_a_server_that_forgot_the_session_gets_a_new_one(status: int) -> None:
    """A restarted server knows nobody: we begin anew at once, and the gap is shown."""

    async def forgets(visit: Visit) -> None:
        server.session = "session-2"
        await visit.reply(status)

    server = Server([streams(said("one"), first_id=1, held=False), forgets, streams(said("one"), first_id=1)])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
        health = ear.source.health()
        checkpoint = json.loads(ear.checkpoint)
    sessions = [visit.headers["mcp-session-id"] for visit in server.seen("GET")]
    assert sessions == [SESSION, SESSION, "session-2"]
    assert server.told().count("initialize") == 2
    assert (health.gaps, checkpoint["session"]) == (1, "session-2")
    # The new session counts from 1 again and says the same: that is news, not a repeat.
    assert len({draft.upstream_id for draft in ear.drafts}) == 2


async def test_a_restarted_server_is_found_again() -> None:
    """Refused connections are tried without end."""
    server = Server([streams(said("before"))])
    async with serving(server):
        pass
    async with following({"url": server.url}, passing=0) as ear:
        waits = []
        for _ in range(8):
            waits.append(await ear.waits.next())
            ear.waits.let_pass()
        async with serving(server):
            ear.waits.let_pass()
            assert (await ear.hear(1)).texts == ["before"]
    assert [seconds for seconds, _ in waits] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert waits[0][1].reason == f"http://127.0.0.1:{server.port} cannot be reached"
    next_try = waits[0][1].next_try
    assert next_try is not None
    assert (next_try - ear.clock.now()).total_seconds() == 0.5


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_that_cannot_push_is_silent_and_says_so(status: int) -> None:
    """It is not asked again, its session is ended, and people see the reason."""
    server = Server([answers(status)], {"server/discover": [answers(404)]})
    async with serving(server), following({"url": server.url}) as ear:
        health = await ear.end()
        assert (health.state, health.reason) == (
            SourceState.SILENT,
            f"server does not support push: {status} on GET",
        )
    assert (len(server.seen("GET")), len(server.seen("DELETE"))) == (1, 1)


async def test_a_refused_sign_in_is_tried_slowly_and_recovers() -> None:
    """A person must act, sees what to do, and need not restart anything afterwards."""
    no = answers(401)
    server = Server([streams(said("in"))])
    server.posts["initialize"] = [no, no, no, server.initialize]
    async with serving(server), following({"url": server.url, "headers": {"Authorization": "Bearer s3cret"}}) as ear:
        waits = [await ear.waits.next() for _ in range(3)]
        await ear.hear(1)
        assert ear.source.health().state is SourceState.LISTENING
    states = [health.state for _, health in waits]
    assert states == [SourceState.RETRYING, SourceState.RETRYING, SourceState.NEEDS_PERSON]
    assert [seconds for seconds, _ in waits] == [0.5, 1, 62]
    assert waits[2][1].reason == "the server refuses us (401 on initialize): check sources.odd.headers"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "17"}, 17.0),
        ({"Retry-After": "99999"}, 300.0),
        # The server's clock is years away from ours; only the difference counts.
        ({"Retry-After": "Mon, 01 Jan 2001 00:00:20 GMT", "Date": "Mon, 01 Jan 2001 00:00:00 GMT"}, 20.0),
        ({"Retry-After": "whenever"}, 0.5),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_is_busy_is_left_alone_for_as_long_as_it_asks(
    status: int, headers: dict[str, str], seconds: float
) -> None:
    """Up to a limit, and by the server's own clock."""
    server = Server([answers(status, headers), streams(said("in"))])
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(1)
        wait, health = await ear.waits.next()
    assert (wait, health.reason) == (seconds, f"the server answers {status} on GET")


async def test_an_old_session_that_is_broken_for_good_is_given_up() -> None:
    """Its place is worth a few tries; after that a new session, and a gap that can be seen."""
    no = answers(500)
    server = Server([streams(said("one"), first_id=1, held=False), no, no, no, streams(said("two"), first_id=2)])
    async with serving(server), following({"url": server.url}) as ear:
        assert (await ear.hear(2)).texts == ["one", "two"]
        assert ear.source.health().gaps == 1
    assert server.told().count("initialize") == 2


async def test_a_checkpoint_takes_the_session_up_again_after_a_restart() -> None:
    """What was announced while the daemon was down arrives, where the server kept it."""
    server = Server([streams(said("one"), first_id=1), streams(said("two"), first_id=2)])
    async with serving(server):
        async with following({"url": server.url}) as first:
            await first.hear(1)
        async with following({"url": server.url}, checkpoint=first.checkpoint) as second:
            await second.hear(1)
            health = second.source.health()
    assert second.texts == ["two"]
    assert (health.gaps, health.server) == (0, "odd 1")
    assert server.told().count("initialize") == 1
    assert server.seen("GET")[1].headers["last-event-id"] == "1"


async def test_a_checkpoint_of_a_forgotten_session_is_a_gap() -> None:
    """The daemon was down for longer than the server remembers: shown, and listening again."""
    server = Server([streams(said("one"), first_id=1), answers(404), streams(said("two"), first_id=1)])
    async with serving(server):
        async with following({"url": server.url}) as first:
            await first.hear(1)
        async with following({"url": server.url}, checkpoint=first.checkpoint) as second:
            await second.hear(1)
            assert second.source.health().gaps == 1


async def test_without_a_session_ids_of_one_beginning_do_not_meet_those_of_another() -> None:
    """Such a server counts from 1 whenever it starts; the same words are news then."""

    async def breaks(visit: Visit) -> None:
        await visit.begin_stream()
        await visit.event(said("up"), "1")
        await visit.wire.aclose()

    server = Server([breaks, streams(said("up"), first_id=1)], session="")
    async with serving(server), following({"url": server.url}) as ear:
        await ear.hear(2)
    assert len({draft.upstream_id for draft in ear.drafts}) == 2
    assert parse_place(ear.checkpoint, server.url) is None


async def test_the_allow_list_leaves_out_and_counts() -> None:
    """What was left out can be seen, by channel."""
    events = [said("a", "alerts"), said("b", "alerts/critical"), said("c", "ci"), said("d", "ci")]
    server = Server([streams(*events)])
    async with serving(server), following({"url": server.url, "channels": ["ci", " alerts "]}) as ear:
        await ear.hear(3)
        health = ear.source.health()
    assert ear.texts == ["a", "c", "d"]
    assert (health.counts, health.dropped) == ({"alerts": 1, "ci": 2}, {"alerts/critical": 1})
