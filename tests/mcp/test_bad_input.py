"""What does not make sense gets a clear error under its own id, and the connection lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harken.testing import DaemonProcess, EdgeClient
from tests.mcp.rig import SOON, send, until

ID = 7_001
"""An id that the agent itself does not come to."""


@pytest.fixture(scope="module")
def agent(daemon: DaemonProcess) -> Iterator[EdgeClient]:
    """One agent for all of it: whatever was wrong before, the next call works."""
    with EdgeClient(daemon.edge_command(), name="clumsy") as clumsy:
        yield clumsy


@pytest.fixture(autouse=True)
def alive(agent: EdgeClient, daemon: DaemonProcess) -> Iterator[None]:
    """After every test the same connection serves a tool, and it is still the same daemon."""
    pid = daemon.facts["pid"]
    yield
    assert agent.result(agent.ask_tool("inbound_queue_stats"), SOON)["dropped_total"] == 0
    assert daemon.call("status")["daemon"]["pid"] == pid == daemon.pid


def said(agent: EdgeClient, line: bytes) -> dict[str, Any]:
    """Return the next line after a line."""
    agent.write(line + b"\n")
    return agent.line(SOON)


def call(tool: object, arguments: object) -> bytes:
    """Return a tool call, well formed or not."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params}).encode()


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("nope", {}, "There is no tool 'nope'."),
        ("", {}, "There is no tool ''."),
        ("inbox_pull", {"limit": "3"}, "inbox_pull: 'limit' must be a whole number, not text."),
        ("inbox_pull", {"limit": 0}, "inbox_pull: 'limit' must be at least 1."),
        ("inbox_pull", {"limit": True}, "inbox_pull: 'limit' must be a whole number, not true or false."),
        ("inbox_pull", {"limit": None}, "inbox_pull: 'limit' must be a whole number, not null."),
        ("inbox_pull", {"mark_consumed": "no"}, "inbox_pull: 'mark_consumed' must be true or false, not text."),
        ("inbox_pull", {"count": 3}, "inbox_pull: it has no argument 'count'."),
        (
            "wait_for_inbound_message",
            {"timeout_s": -1},
            "wait_for_inbound_message: 'timeout_s' must be at least 0.",
        ),
        (
            "wait_for_inbound_message",
            {"timeout_s": "soon"},
            "wait_for_inbound_message: 'timeout_s' must be a number, not text.",
        ),
        (
            "inbound_queue_stats",
            {"verbose": True},
            "inbound_queue_stats: it has no argument 'verbose'.",
        ),
        ("inbox_read", {}, "inbox_read: the argument 'message_id' is missing."),
        ("inbox_read", {"message_id": "m-1", "offset": -1}, "inbox_read: 'offset' must be at least 0."),
        ("ack", {}, "ack: the argument 'ids' is missing."),
        ("ack", {"ids": "m-1"}, "ack: 'ids' must be a list, not text."),
        ("ack", {"ids": ["m-1"] * 201}, "ack: 'ids' must have at most 200 entries."),
        ("channels", {"action": "clear"}, "channels: 'action' must be 'ack', 'list' or 'unread', not 'clear'."),
        ("ack", {"ids": [1]}, "ack: 'ids[0]' must be text, not a whole number."),
        ("reply", {"message_id": "m-1"}, "reply: the argument 'body' is missing."),
        ("reply", {"message_id": "m-1", "body": " \n "}, "A reply needs a text."),
        ("inbox_search", {"query": ""}, "inbox_search: 'query' must not be empty."),
    ],
)
def test_wrong_arguments_are_named(agent: EdgeClient, tool: str, arguments: object, message: str) -> None:
    """The model can only correct what it is told."""
    answer = said(agent, call(tool, arguments))
    assert (answer["id"], answer["result"]["isError"]) == (ID, True)
    error = json.loads(answer["result"]["content"][0]["text"])
    assert (error["code"], error["message"]) == ("user_error", message)
    assert error["hint"]


def test_an_error_tells_the_arguments_there_are(agent: EdgeClient) -> None:
    """So that the second try is the last."""
    answer = said(agent, call("inbox_pull", {"count": 3}))
    hint = json.loads(answer["result"]["content"][0]["text"])["hint"]
    assert hint == "Its arguments are: since_id, limit, mark_consumed, channel."


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"jsonrpc":"2.0","id":7001,"method":"tools/call","params":{"name":"ack","arguments":[1]}}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"tools/call","params":{"name":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"tools/call"}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"tools/call","params":[1]}', -32600),
        (b'{"jsonrpc":"1.0","id":7001,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":7001,"method":"no/such/method","params":{}}', -32601),
        (b'{"jsonrpc":"2.0","id":7001,"method":"no/such"}', -32601),
        (b'{"jsonrpc":"2.0","id":7001,"method":"initialize","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"logging/setLevel","params":{"level":"loud"}}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"resources/subscribe","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":7001,"method":"ping","params":{"a":' + b"[" * 300 + b"]" * 300 + b"}}", -32700),
        (b'{"jsonrpc":"2.0","id":7001,"method":"ping","params":{"a":"\\ud800"}}', -32700),
    ],
)
def test_a_malformed_request_is_answered_under_its_id(agent: EdgeClient, line: bytes, code: int) -> None:
    """Whoever sent it waits for exactly that id, for ever if need be."""
    answer = said(agent, line)
    assert (answer["id"], answer["error"]["code"]) == (ID, code)
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b"\x00", -32700),
        (b'{"jsonrpc":"2.0","id":7001,"method":"pi\x00ng"}', -32700),
        (b'{"jsonrpc":"2.0","id":7001,"method":"\xff\xfe"}', -32700),
        (b'{"jsonrpc":"2.0","id":7001,"method":"ping","params":{"a":NaN}}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":7001,"method":"ping"}]', -32600),
        (b"17", -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}', -32600),
    ],
)
def test_what_is_no_request_is_answered_without_an_id(agent: EdgeClient, line: bytes, code: int) -> None:
    """There is nobody to address, but silence would leave the other side guessing."""
    answer = said(agent, line)
    assert (answer["id"], answer["error"]["code"]) == (None, code)
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b'{"jsonrpc":"2.0","method":"notifications/no-such","params":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e300}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"no"}}',
    ],
)
def test_what_needs_no_answer_gets_none(agent: EdgeClient, line: bytes) -> None:
    """JSON-RPC forbids answers to notifications; the next request is answered as ever."""
    agent.write(line + b"\n")
    ping = agent.ask("ping", {})
    assert agent.line(SOON) == {"jsonrpc": "2.0", "id": ping, "result": {}}


def test_a_reply_of_ten_megabytes_is_refused(agent: EdgeClient) -> None:
    """The model is told the limit; nobody is sent a book."""
    answer = said(agent, call("reply", {"message_id": "m-1", "body": "x" * 10_000_000}))
    assert json.loads(answer["result"]["content"][0]["text"]) == {
        "code": "too_long",
        "message": "A reply has at most 64,000 characters, and this has 10,000,000.",
        "hint": "Shorten it, or answer in parts.",
        "length": 10_000_000,
        "limit": 64_000,
        "can_be_file": False,
    }


def test_a_line_beyond_the_bound_is_refused(agent: EdgeClient) -> None:
    """Sixteen megabytes are read, more are not kept in memory."""
    answer = said(agent, call("reply", {"message_id": "m-1", "body": "x" * (17 << 20)}))
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


def test_numbers_beyond_all_reason_are_bounded(agent: EdgeClient) -> None:
    """A model may write any number; the server's own limits hold."""
    enormous = 10**30
    assert isinstance(agent.tool("inbox_pull", limit=enormous, mark_consumed=False)["messages"], list)
    line = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % enormous
    assert said(agent, line) == {"jsonrpc": "2.0", "id": enormous, "result": {}}


def test_control_characters_in_a_reply_do_not_reach_the_person(agent: EdgeClient, daemon: DaemonProcess) -> None:
    """An agent's text is as hostile as any: it is cleaned like everything that is stored."""
    message = send(daemon)
    assert agent.tool("reply", message_id=message, body="a\x00b\x1b[31mred\u202e")["state"] == "queued"

    def texts() -> list[str]:
        replies = daemon.call("list", mailbox="replies")["messages"]
        return [each["content_text_sanitized"] for each in replies if each["refers_to"] == message]

    until(lambda: len(texts()) == 1)
    assert not {"\x00", "\x1b", "\u202e"} & set(texts()[0])
    assert "red" in texts()[0]
