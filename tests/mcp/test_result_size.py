"""A result proves only what its host shows: it has no more bytes than that, and what is cut in it is not handed out.

The sizes are those of the hosts' table. That the hosts really show so much is tested with the hosts themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.errors import Unavailable
from harken.hosts.host import GENERIC, Host
from harken.hosts.registry import host_named, hosts
from harken.sessions.proof import CallLog
from harken.testing import DaemonProcess, EdgeClient
from harken.verbs.verb import AgentTool, Arguments, CallContext, ToolAnswer, ToolCall, Verb, result_of
from tests.inbox.tasks_rig import OWNER, open_workshop
from tests.mcp.call_rig import called
from tests.mcp.rig import Connect, fresh_name, ids, send, standing, until_waiting

COPILOT = host_named("copilot-cli")
# Letters of one byte and of three, such as JSON escapes, and many lines.
ALPHABETS = {"plain": "the build is red ", "cjk": "今天构建失败了", "escaped": '"\\\n', "emoji": "😀"}
# A host only sets the limit, so that every host has one alphabet, and one host all of them.
ROWS = [(host, "escaped") for host in (*hosts().values(), GENERIC)]
ROWS += [(GENERIC, alphabet) for alphabet in ALPHABETS if alphabet != "escaped"]


def blocks(agent: EdgeClient, tool: str, **arguments: object) -> list[str]:
    """Return the texts of a result."""
    result = agent.answer(agent.ask_tool(tool, **arguments))["result"]
    assert result["isError"] is False
    return [block["text"] for block in result["content"]]


def size(texts: list[str]) -> int:
    """Return how many bytes a host has to show."""
    return sum(len(text.encode()) for text in texts)


def body(length: int, alphabet: str = "plain") -> str:
    """Return a text of so many characters."""
    letters = ALPHABETS[alphabet]
    return (letters * (length // len(letters) + 1))[: length - 1] + "."


def whole(messages: list[dict[str, Any]]) -> list[str]:
    """Return the ids of those that a result has whole."""
    return ids([each for each in messages if "truncated" not in each])


def test_ten_messages_of_two_thousand_characters_are_not_seen_before_copilot_showed_them(
    daemon: DaemonProcess, connect: Connect
) -> None:
    """It shows 500 characters of a result above 20,480 bytes: all ten would count as seen with the next call."""
    agent = connect(COPILOT.client_names[0])
    sent = [send(daemon, body(2_000)) for _ in range(10)]
    first, note = blocks(agent, "inbox_pull")
    assert size([first, note]) <= COPILOT.result_bytes
    pulled = json.loads(first)
    given = whole(pulled["messages"])
    assert given == sent[: len(given)]
    assert 5 <= len(given) < 10
    assert pulled["unread_remaining"] == 10 - len(given)
    agent.tool("inbound_queue_stats")
    states = [standing(daemon, message, COPILOT.name)[0] for message in sent]
    assert states == ["seen"] * len(given) + ["queued"] * (10 - len(given))
    assert whole(agent.tool("inbox_pull")["messages"]) == sent[len(given) :]


@pytest.mark.parametrize(("host", "alphabet"), ROWS, ids=lambda value: getattr(value, "name", value))
def test_no_result_is_longer_than_the_host_shows(
    daemon: DaemonProcess, connect: Connect, host: Host, alphabet: str
) -> None:
    """In bytes, whatever the letters are: some hosts count those, some characters, some tokens."""
    agent = connect(host.client_names[0] if host.client_names else "")
    word = fresh_name("word").replace("-", "")
    lengths = (900, 60_000, 2_500, 100, 9_000, 3_000)
    sent = [send(daemon, f"{word} {body(length, alphabet)}") for length in lengths]
    found = blocks(agent, "inbox_search", query=word)
    assert size(found) <= host.result_bytes
    looked = blocks(agent, "inbox_pull", mark_consumed=False)
    assert size(looked) <= host.result_bytes
    given: list[str] = []
    while True:
        texts = blocks(agent, "inbox_pull")
        assert size(texts) <= host.result_bytes
        pulled = json.loads(texts[0])
        if not whole(pulled["messages"]):
            break
        given += whole(pulled["messages"])
    left = [message for message in sent if message not in given]
    assert given == [message for message in sent if message not in left]
    assert pulled["unread_remaining"] == len(left)
    listed = ids(pulled["messages"])
    assert listed
    assert listed == left[: len(listed)]
    agent.tool("ack", ids=left)


def test_message_that_is_too_long_is_listed_and_stays(daemon: DaemonProcess, connect: Connect) -> None:
    """Its first words are no proof of the rest: it stays queued, also for another session of the same reader."""
    agent = connect(name := fresh_name())
    text = body(50_000)
    long, short = send(daemon, text, conversation="run-7"), send(daemon, "still red")
    for _ in range(2):
        first, note = blocks(agent, "inbox_pull", limit=1)
        pulled = json.loads(first)
        entry = next(each for each in pulled["messages"] if each["id"] == long)
        assert entry["truncated"] is True
        assert entry["length"] == len(text)
        assert text.startswith(entry["content_text_sanitized"])
        assert (entry["chat_id"], entry["treat_as"][:7]) == ("run-7", "request")
        assert "delivery_id" not in entry
        assert pulled["unread_remaining"] == 1
        assert note == "1 message above is cut: inbox_read gives the text of one in pieces."
    assert standing(daemon, short, name) == ("seen", "later call")
    assert standing(daemon, long, name) == ("queued", "")
    assert [each["id"] for each in connect(name, is_drained=False).tool("inbox_pull")["messages"]] == [long]
    agent.tool("ack", ids=[long])


def test_what_comes_with_the_next_result_is_listed_too(daemon: DaemonProcess, connect: Connect) -> None:
    """An agent should know what waits before it goes on with something else."""
    agent = connect()
    sent = [send(daemon, body(3_500)) for _ in range(3)]
    first, note = blocks(agent, "inbox_pull")
    messages = json.loads(first)["messages"]
    assert (whole(messages), ids(messages)) == (sent[:2], sent)
    assert note.splitlines() == [
        "1 message above is cut: inbox_read gives the text of one in pieces, inbox_pull the next that fit.",
        "1 message waits in Harken: call inbox_pull to read.",
    ]
    assert whole(agent.tool("inbox_pull")["messages"]) == sent[2:]


def test_search_says_how_much_more_was_found(daemon: DaemonProcess, connect: Connect) -> None:
    """What it leaves out must not look as if it were not there."""
    agent = connect()
    word = fresh_name("word").replace("-", "")
    for _ in range(30):
        send(daemon, f"{word} {body(700)}")
    first, note = blocks(agent, "inbox_search", query=word, limit=30)
    messages = json.loads(first)["messages"]
    assert 5 < len(messages) < 30
    left = 30 - len(messages)
    assert f"{left} more were found and do not fit here: more words, or a channel, find fewer." in note.splitlines()


def test_wait_gives_what_fits_and_lists_the_rest(daemon: DaemonProcess, connect: Connect) -> None:
    """The long poll is a result like any other."""
    agent = connect(name := fresh_name())
    sent = [send(daemon, body(length)) for length in (3_000, 3_000, 3_000, 40_000)]
    texts = blocks(agent, "wait_for_inbound_message")
    assert size(texts) <= GENERIC.result_bytes
    messages = json.loads(texts[0])
    assert whole(messages) == sent[:2]
    long = next(each for each in messages if each["message_id"] == sent[3])
    assert (long["truncated"], long["length"], "delivery_id" in long) == (True, 40_000, False)
    assert body(40_000).startswith(long["content"])
    assert whole(agent.tool("wait_for_inbound_message")) == sent[2:3]
    agent.tool("inbound_queue_stats")
    states = [standing(daemon, message, name)[0] for message in sent]
    assert states == ["seen", "seen", "seen", "queued"]
    agent.tool("ack", ids=sent[3:])


def test_wait_is_ended_once_by_what_is_too_long(daemon: DaemonProcess, connect: Connect) -> None:
    """An agent that only waits would spin; but it is told how much waits, and hears of what comes next."""
    agent = connect(name := fresh_name())
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=30)
    until_waiting(daemon, name)
    first = send(daemon, body(40_000))
    assert ids(agent.result(waiting)) == [first]
    empty, note = blocks(agent, "wait_for_inbound_message", timeout_s=0)
    assert (empty, note) == ("[]", "1 message waits in Harken: call inbox_pull to read.")
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=30)
    until_waiting(daemon, name)
    second = send(daemon, body(50_000))
    assert ids(agent.result(waiting)) == [second]
    assert ids(agent.tool("inbox_pull")["messages"]) == [first, second]
    third = send(daemon, "short")
    assert ids(agent.tool("wait_for_inbound_message")) == [third]
    agent.tool("ack", ids=[first, second])


BYTES = 1_000


class Nothing(msgspec.Struct):
    """Arguments of a tool that needs none."""


async def _everything(call: ToolCall, _arguments: Nothing) -> ToolAnswer:
    """Give all that waits, however long it is: what no tool of ours does."""
    pulled = await call.inbox.pull(call.reader, surface="everything", carrier=call.carrier)
    call.note(pulled.offers)
    return ToolAnswer([offer.message.text for offer in pulled.offers], pulled.remaining)


async def _as_verb(_context: CallContext, _arguments: Arguments) -> object:
    """Nobody calls it so."""
    raise AssertionError


TOOL = AgentTool(name="everything", title="", description="", arguments=Nothing, run=_everything)
EVERYTHING = Verb("everything", Arguments, _as_verb, TOOL)


async def test_result_that_is_too_large_is_refused_and_taken_back(tmp_path: Path) -> None:
    """Should a size ever be misjudged, the agent is told; it must not cost a message."""
    log = CallLog("edge")
    async with open_workshop(tmp_path) as shop:
        session = shop.session(shop.folder("elsewhere"))
        for text in ("x" * BYTES, "still red"):
            await shop.inbox.send(OWNER, text)
        with pytest.raises(Unavailable, match="too large for this host"):
            await result_of(EVERYTHING, called(shop, session, log, "1", result_bytes=BYTES), {})
        log.answer("1")
        called(shop, session, log, "2", result_bytes=BYTES)
        assert list(log.proven_by("2")) == []
        again = await shop.inbox.pull(session.reader, surface="pull", carrier="edge/2")
        assert [(offer.message.text[:5], offer.is_repeat) for offer in again.offers] == [
            ("xxxxx", False),
            ("still", False),
        ]


async def test_result_that_fits_is_given(tmp_path: Path) -> None:
    """To the byte."""
    log = CallLog("edge")
    async with open_workshop(tmp_path) as shop:
        session = shop.session(shop.folder("elsewhere"))
        await shop.inbox.send(OWNER, "x" * (BYTES - len('[""]')))
        (text,) = await result_of(EVERYTHING, called(shop, session, log, "1", result_bytes=BYTES), {})
        assert len(text) == BYTES
        log.answer("1")
        called(shop, session, log, "2", result_bytes=BYTES)
        assert len(log.proven_by("2")) == 1
