"""Whose the pieces are that a call reads: of which conversation, and of whose mail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harken.errors import NotFound
from harken.model import SessionKey
from harken.sessions.proof import CallLog
from harken.sessions.session import Session
from harken.sessions.turns import Coverage
from harken.testing.agent import Json
from harken.verbs.table import find_tool
from harken.verbs.verb import ToolCall, result_of
from tests.inbox.rig import Quiet
from tests.inbox.tasks_rig import OWNER, Workshop, open_workshop
from tests.mcp.call_rig import called

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
