"""Reading one message in pieces: each fits and has its reader, and only all of them together prove the message."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harken.errors import NotFound
from harken.hosts.host import GENERIC, Host
from harken.hosts.registry import hosts
from harken.model import SessionKey
from harken.sessions.proof import CallLog
from harken.sessions.session import Coverage, Session
from harken.testing import DaemonProcess, EdgeClient
from harken.testing.agent import Json
from harken.verbs.table import find_tool
from harken.verbs.verb import ToolCall, result_of
from tests.inbox.rig import Quiet
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop
from tests.mcp.call_rig import called
from tests.mcp.rig import Connect, RawEdge, fresh_name, ids, send, standing

ALPHABETS = {"plain": "the build is red ", "cjk": "今天构建失败了", "escaped": '"\\\n', "emoji": "😀"}
# A host only sets the limit, so that every host has one alphabet, and one host all of them.
ROWS = [(host, "escaped") for host in (*hosts().values(), GENERIC)]
ROWS += [(GENERIC, alphabet) for alphabet in ALPHABETS if alphabet != "escaped"]


def body(length: int, alphabet: str = "plain") -> str:
    """Return a text of so many characters, all pieces of which are different."""
    letters = ALPHABETS[alphabet]
    lines = "".join(f"{number}{letters * 5}" for number in range(length // len(letters * 5) + 1))
    return lines[: length - 1] + "."


def blocks(agent: EdgeClient, **arguments: object) -> list[str]:
    """Return the texts of a result of `inbox_read`."""
    result = agent.answer(agent.ask_tool("inbox_read", **arguments))["result"]
    assert result["isError"] is False
    return [block["text"] for block in result["content"]]


def read(agent: EdgeClient, message: str, start: int = 0, *, pieces: int = 10_000) -> list[dict[str, Any]]:
    """Read a message from a character on, at most so many pieces of it."""
    found: list[dict[str, Any]] = []
    offset: int | None = start
    while offset is not None and len(found) < pieces:
        found.append(agent.tool("inbox_read", message_id=message, offset=offset))
        offset = found[-1]["next_offset"]
    return found


def text_of(pieces: list[dict[str, Any]]) -> str:
    """Return what was read."""
    return "".join(piece["text"] for piece in pieces)


@pytest.fixture
def name() -> str:
    """The consumer of a test."""
    return fresh_name()


@pytest.fixture
def agent(connect: Connect, name: str) -> EdgeClient:
    """An agent whose inbox is empty."""
    return connect(name)


@pytest.mark.parametrize(("host", "alphabet"), ROWS, ids=lambda value: getattr(value, "name", value))
def test_pieces_fit_and_are_the_whole_text(daemon: DaemonProcess, connect: Connect, host: Host, alphabet: str) -> None:
    """To the character, and each result within what the host shows."""
    agent = connect(host.client_names[0] if host.client_names else "")
    text = body(60_000, alphabet)
    message = send(daemon, text)
    stored = daemon.call("read", ref=message)["message"]["content_text_sanitized"]
    given, offset = "", 0
    while True:
        texts = blocks(agent, message_id=message, offset=offset)
        size = sum(len(each.encode()) for each in texts)
        assert size <= host.result_bytes
        piece = json.loads(texts[0])
        assert (piece["offset"], piece["length"]) == (len(given), len(stored))
        given += piece["text"]
        if piece["next_offset"] is None:
            break
        # Nearly all of the room is used: else there would be more pieces than needed.
        assert size > host.result_bytes * 0.85
        offset = piece["next_offset"]
    assert given == stored
    consumer = host.name if host is not GENERIC else None
    agent.tool("inbound_queue_stats")
    lines = [line for line in daemon.call("read", ref=message)["ledger"] if line["state"] == "seen"]
    assert [line["surface"] for line in lines] == ["inbox_read"]
    assert consumer is None or lines[0]["consumer"] == consumer


def test_piece_says_whose_word_it_is_and_how_to_read_on(daemon: DaemonProcess, agent: EdgeClient) -> None:
    """The first block is exactly the JSON; the second says what to do next."""
    text = body(20_000)
    message = send(daemon, text, conversation="run-7")
    first, note = blocks(agent, message_id=message)
    piece = json.loads(first)
    stored = daemon.call("read", ref=message)["message"]
    end = piece["next_offset"]
    assert piece == {
        "message_id": message,
        "sender": "ci-bot",
        "source": "local",
        "channel": "ci",
        "chat_id": "run-7",
        "received_at": stored["received_at"],
        "timestamp": stored["ts"],
        "trust": "known",
        "treat_as": "request from someone your user knows; your user's instructions come first",
        "offset": 0,
        "length": 20_000,
        "next_offset": end,
        "unread_from": end,
        "text": text[:end],
    }
    assert note == f"The text goes on: inbox_read with offset {end} gives the next piece."


def test_piece_says_that_messages_wait_only_if_others_do(daemon: DaemonProcess, agent: EdgeClient) -> None:
    """An agent that is told of a message it is reading asks for it again."""
    message = send(daemon, body(20_000))
    assert "wait" not in blocks(agent, message_id=message)[1]
    send(daemon, "another one")
    assert "2 messages wait in Harken" in blocks(agent, message_id=message)[1]


def test_all_pieces_prove_the_message_with_the_next_call(daemon: DaemonProcess, agent: EdgeClient, name: str) -> None:
    """As with any result: the last piece is proven by the call after it, and no piece before that proves anything."""
    message = send(daemon, body(30_000))
    *earlier, last = read(agent, message)
    assert len(earlier) >= 2
    assert all("delivery_id" not in piece for piece in earlier)
    assert last["unread_from"] is None
    assert last["delivery_id"].startswith("d-")
    assert standing(daemon, message, name) == ("offered", "")
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")
    assert agent.tool("inbox_pull")["messages"] == []


def test_the_last_piece_alone_proves_nothing(daemon: DaemonProcess, agent: EdgeClient, name: str) -> None:
    """The agent is told from where on it has not read; having read that, it has read all."""
    text = body(30_000)
    message = send(daemon, text)
    (last,) = read(agent, message, 29_000)
    assert (last["next_offset"], last["unread_from"]) == (None, 0)
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("queued", "")
    _, note = blocks(agent, message_id=message, offset=29_500)
    assert note.splitlines()[0] == (
        "The text ends here. It counts as read when all of it was: inbox_read with offset 0 goes on."
    )
    completing = [piece for piece in read(agent, message) if piece["unread_from"] is None]
    assert completing[0]["offset"] + len(completing[0]["text"]) >= 29_000
    assert "delivery_id" in completing[0]
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_pieces_read_in_parallel_prove_nothing_before_they_are_written(
    daemon: DaemonProcess, agent: EdgeClient, name: str
) -> None:
    """They belong to one step; asked for once more, any piece completes the message."""
    message = send(daemon, body(30_000))
    (first,) = read(agent, message, pieces=1)
    size = first["next_offset"]
    # They overlap a little: a later number of the offset takes more room.
    requests = [agent.ask_tool("inbox_read", message_id=message, offset=at) for at in range(0, 30_000, size - 100)]
    for request in requests:
        agent.result(request)
    assert standing(daemon, message, name)[0] in ("queued", "offered")
    assert agent.tool("inbox_read", message_id=message, offset=29_000)["unread_from"] is None
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_short_message_is_read_in_one_piece(daemon: DaemonProcess, agent: EdgeClient, name: str) -> None:
    """Whoever knows its id may read it like this, too."""
    message = send(daemon, "the build is red")
    (only,) = read(agent, message)
    assert (only["text"], only["next_offset"], only["unread_from"]) == ("the build is red", None, None)
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, name) == ("seen", "later call")


def test_message_that_was_seen_is_read_again_and_changes_nothing(
    daemon: DaemonProcess, agent: EdgeClient, name: str
) -> None:
    """A model may have forgotten what it said."""
    message = send(daemon, body(12_000))
    agent.tool("ack", ids=[message])
    pieces = read(agent, message)
    assert text_of(pieces) == body(12_000)
    assert all("delivery_id" not in piece for piece in pieces)
    assert standing(daemon, message, name) == ("seen", "ack")


def test_session_reads_what_another_one_of_its_consumer_was_offered(daemon: DaemonProcess, name: str) -> None:
    """It is that session's to prove: the other reads, and is offered nothing."""
    with (
        RawEdge(daemon, name, edge=fresh_name("edge")) as first,
        RawEdge(daemon, name, edge=fresh_name("edge")) as second,
    ):
        first.drain()
        message = send(daemon, "the build is red")
        assert ids(first.tool(1, "inbox_pull")["messages"]) == [message]
        piece = second.tool(1, "inbox_read", message_id=message)
        assert (piece["text"], "delivery_id" in piece) == ("the build is red", False)
        second.tool(2, "inbound_queue_stats")
        assert standing(daemon, message, name) == ("offered", "")
        first.tool(2, "inbound_queue_stats")
        assert standing(daemon, message, name) == ("seen", "later call")


def test_each_session_has_to_read_all_of_it(daemon: DaemonProcess, name: str) -> None:
    """Half here and half there is in front of no model."""
    message = ""
    with (
        RawEdge(daemon, name, edge=fresh_name("edge")) as first,
        RawEdge(daemon, name, edge=fresh_name("edge")) as second,
    ):
        first.drain()
        message = send(daemon, body(12_000))
        begun = first.tool(1, "inbox_read", message_id=message)
        ended = second.tool(1, "inbox_read", message_id=message, offset=begun["next_offset"])
        assert (ended["next_offset"], ended["unread_from"]) == (None, 0)
        assert standing(daemon, message, name) == ("queued", "")
        first.tool(9, "ack", ids=[message])


def test_what_is_not_there_or_not_for_this_agent_is_a_clear_error(daemon: DaemonProcess, agent: EdgeClient) -> None:
    """Each says what to do instead."""

    def error(**arguments: object) -> dict[str, Any]:
        result = agent.answer(agent.ask_tool("inbox_read", **arguments))["result"]
        assert result["isError"] is True
        said: dict[str, Any] = json.loads(result["content"][0]["text"])
        return said

    message, other = send(daemon, "four"), send(daemon, "elsewhere", to="project:elsewhere")
    assert error(message_id="m-none")["code"] == "not_found"
    assert error(message_id=other)["code"] == "not_found"
    assert error(message_id=message, offset=4) == {
        "code": "user_error",
        "message": f"The text of {message} has 4 characters.",
        "hint": "Give an offset below 4.",
    }
    assert error(message_id=message, offset=-1)["code"] == "user_error"


BYTES = 10_000


def arrived(shop: Workshop, session: Session, log: CallLog, request: str, *, result_bytes: int) -> ToolCall:
    """Return a call that has just arrived, and has proven what it could."""
    call = called(shop, session, log, request, result_bytes=result_bytes)
    log.proven_by(request)
    return call


async def read_on(shop: Workshop, session: Session, log: CallLog, message: str) -> Json:
    """Read a message to its end, each piece written before the next is asked for; return the last one."""
    offset, number = 0, 0
    while True:
        number += 1
        call = arrived(shop, session, log, str(number), result_bytes=BYTES)
        text, *_ = await result_of(find_tool("inbox_read"), call, {"message_id": message, "offset": offset})
        log.answer(str(number))
        piece = json.loads(text)
        if piece["next_offset"] is None:
            return piece
        offset = piece["next_offset"]


async def test_pieces_that_may_be_of_two_conversations_prove_nothing(tmp_path: Path) -> None:
    """Opencode has one connection for all: half may have gone to the one and half to the other, until it is alone."""
    async with open_workshop(tmp_path) as shop:
        here, beside = (shop.session(shop.folder(name)) for name in ("one", "two"))
        for session in (here, beside):
            session.shares_connection, session.pid = True, 4_000_000
        message = (await shop.inbox.send(OWNER, "x" * 20_000)).message.id
        last = await read_on(shop, here, CallLog("edge"), message)
        assert (last["unread_from"], "delivery_id" in last) == (0, False)
        await shop.leave(beside)
        last = await read_on(shop, here, CallLog("edge"), message)
        assert (last["unread_from"], "delivery_id" in last) == (None, True)


@pytest.mark.parametrize("how", ["its cancellation crossed the answer", "its turn was interrupted"])
async def test_piece_that_may_not_have_arrived_leaves_a_hole(tmp_path: Path, how: str) -> None:
    """The text would be called seen, and nobody had all of it; the next piece says what is missing."""
    async with open_workshop(tmp_path) as shop:
        session = shop.session(shop.folder("one"))
        message = (await shop.inbox.send(OWNER, "x" * 30_000)).message.id
        log, pieces = CallLog("edge"), list[Json]()
        while not pieces or pieces[-1]["next_offset"] is not None:
            number = str(len(pieces))
            call = arrived(shop, session, log, number, result_bytes=BYTES)
            asked = {"message_id": message, "offset": pieces[-1]["next_offset"] if pieces else 0}
            text, *_ = await result_of(find_tool("inbox_read"), call, asked)
            pieces.append(json.loads(text))
            log.answer(number)
            if len(pieces) == 1:
                assert (
                    log.discard(number)
                    if how.startswith("its cancellation")
                    else list(log.abandon()) == [log.carrier(number)]
                )
        assert (pieces[-1]["unread_from"], "delivery_id" in pieces[-1]) == (0, False)


async def test_connection_without_a_name_is_the_one_conversation_that_speaks_through_it(tmp_path: Path) -> None:
    """Opencode's first call comes by the connection, the next by the conversation that hooks told of."""
    async with open_workshop(tmp_path) as shop:
        named, nameless = (shop.session(shop.folder("one")) for _ in range(2))
        shop.inbox.sessions.end(nameless.key)
        nameless = replace(nameless, key=SessionKey("edge:1"), coverage=Coverage())
        shop.inbox.sessions.open(nameless, "edge 9", Quiet())
        for session in (named, nameless):
            session.shares_connection, session.pid = True, 4_000_000
        message = (await shop.inbox.send(OWNER, "x" * 12_000)).message.id
        log, pieces = CallLog("edge"), list[Json]()
        for number, session in enumerate((nameless, named)):
            call = arrived(shop, session, log, str(number), result_bytes=BYTES)
            asked = {"message_id": message, "offset": pieces[-1]["next_offset"] if pieces else 0}
            text, *_ = await result_of(find_tool("inbox_read"), call, asked)
            log.answer(str(number))
            pieces.append(json.loads(text))
        assert [(each["unread_from"] is None, "delivery_id" in each) for each in pieces] == [
            (False, False),
            (True, True),
        ]


async def test_long_mail_of_a_task_is_read_by_its_own_session_only(tmp_path: Path) -> None:
    """`check_inbox` lists it to nobody else, so nobody else can read it; also while the task has no session."""
    async with open_workshop(tmp_path) as shop:
        task, other = await shop.new("api"), await shop.new("web")
        message = (await shop.tasks.send(OWNER, task.id, "x" * 20_000)).message
        for other_session in (shop.session(shop.folder("elsewhere")), shop.session(other.dir)):
            call = arrived(shop, other_session, CallLog("edge"), "1", result_bytes=BYTES)
            with pytest.raises(NotFound, match="for you"):
                await result_of(find_tool("inbox_read"), call, {"message_id": message.id})
        last = await read_on(shop, shop.session(task.dir), CallLog("edge"), message.id)
        assert "delivery_id" in last
        line = await shop.ledger(message, task)
        assert (line.state.value, line.consumer) == ("offered", task.consumer)
