"""Who an agent is: its own name, its own session, its own requests and deliveries, and nobody else's."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

import pytest

from harken.testing import DaemonProcess, EdgeClient
from tests.mcp.rig import Connect, RawEdge, drain, entry, fresh_name, ids, send, sessions, standing, until


def error_code(answer: Mapping[str, Any]) -> str:
    """Return the code of a tool's error."""
    assert answer["result"]["isError"] is True
    return str(json.loads(answer["result"]["content"][0]["text"])["code"])


@pytest.mark.parametrize("name", ["watch", "rules"])
def test_a_client_with_a_reserved_name_does_not_read_as_that(
    daemon: DaemonProcess, connect: Connect, name: str
) -> None:
    """A program may call itself what it likes; the person's mail is still there afterwards."""
    agent = connect(name)
    message = send(daemon)
    assert message in ids(agent.tool("inbox_pull")["messages"])
    agent.tool("inbound_queue_stats")
    assert standing(daemon, message, f"{name}-agent") == ("seen", "later call")
    assert standing(daemon, message, "watch") == ("queued", "")
    assert sessions(daemon, name) == []


def test_edges_of_one_process_with_different_names_are_two_sessions(daemon: DaemonProcess) -> None:
    """Each reads under the name it was given, also where the host's process is the session."""
    names = [fresh_name("one"), fresh_name("two")]
    with (
        EdgeClient(daemon.edge_command(names[0]), name="claude-code") as first,
        EdgeClient(daemon.edge_command(names[1]), name="claude-code") as second,
    ):
        drain(first)
        drain(second)
        message = send(daemon)
        assert ids(first.tool("inbox_pull")["messages"]) == [message]
        assert ids(second.tool("inbox_pull")["messages"]) == [message]
        keys = [each["session"] for name in names for each in sessions(daemon, name)]
        assert len(set(keys)) == 2


def test_clients_that_give_no_edge_id_are_apart(daemon: DaemonProcess) -> None:
    """Two strangers must not share a session: each would take what the other was given."""
    names = [fresh_name("one"), fresh_name("two")]
    with RawEdge(daemon, names[0]) as first, RawEdge(daemon, names[1]) as second:
        for edge in (first, second):
            edge.drain()
        message = send(daemon)
        assert ids(first.tool(3, "inbox_pull")["messages"]) == [message]
        assert ids(second.tool(3, "inbox_pull")["messages"]) == [message]
        keys = [each["session"] for name in names for each in sessions(daemon, name)]
        assert len(set(keys)) == 2


def test_an_edge_that_comes_back_answers_only_for_itself(daemon: DaemonProcess) -> None:
    """Its later calls prove what it carried; what another edge of the session carried may never have arrived."""
    thread, mine, other = secrets.token_hex(4), fresh_name("edge"), fresh_name("edge")
    environment = {"CODEX_THREAD_ID": thread}
    with RawEdge(daemon, "codex-mcp-client", edge=mine, env=environment) as first:
        first.drain()
        message = send(daemon)
        first.ask(3, "inbox_pull")
        until(lambda: entry(daemon, message, "codex")["state"] == "offered")
        with RawEdge(daemon, "codex-mcp-client", edge=other, env=environment, resumed=True) as second:
            second.tool(1, "inbound_queue_stats")
            second.tool(2, "inbound_queue_stats")
            assert standing(daemon, message, "codex") == ("offered", "")
            with RawEdge(daemon, "codex-mcp-client", edge=mine, env=environment, resumed=True, resent=[3]) as again:
                assert ids(again.tool(3, "inbox_pull")["messages"]) == [message]


def test_each_reply_under_one_request_id_exists(daemon: DaemonProcess, connect: Connect) -> None:
    """Some clients begin to count anew; only the very same reply is one that was sent again."""
    agent = connect()
    asked = [send(daemon, "first question"), send(daemon, "second question")]

    def reply(message: str, body: str) -> str:
        params = {"name": "reply", "arguments": {"message_id": message, "body": body}}
        agent.send({"jsonrpc": "2.0", "id": 7_777, "method": "tools/call", "params": params})
        return str(agent.result(7_777)["reply_id"])

    first = reply(asked[0], "yes")
    assert reply(asked[0], "yes") == first
    others = [reply(asked[0], "no"), reply(asked[1], "yes")]
    assert len({first, *others}) == 3
    replies = [[each["body"] for each in daemon.call("read", ref=message)["replies"]] for message in asked]
    assert replies == [["yes", "no"], ["yes"]]


def test_what_an_agent_does_not_read_it_cannot_answer(daemon: DaemonProcess, connect: Connect) -> None:
    """Numbers are easy to guess; a mailbox is for those who read it."""
    agent = connect(fresh_name())
    message = send(daemon, to="project:secret")
    number = daemon.call("read", ref=message)["message"]["seq"]
    for ref in (message, f"project:secret#{number}"):
        assert error_code(agent.answer(agent.ask_tool("reply", message_id=ref, body="hi"))) == "not_found"
        assert error_code(agent.answer(agent.ask_tool("ack", ids=[ref]))) == "not_found"
    found = daemon.call("read", ref=message)
    assert (found["replies"], [line["consumer"] for line in found["ledger"]]) == ([], ["watch"])


def test_a_denied_sender_and_a_muted_channel_do_not_end_a_wait(daemon: DaemonProcess, connect: Connect) -> None:
    """The person decided that they wake nobody; they are still there for whoever pulls."""
    name, stranger, noise = fresh_name(), fresh_name("spam"), fresh_name("noise")
    agent = connect(name)
    daemon.call("deny", sender=stranger)
    daemon.call("mute", kind="channel", name=noise)
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until(lambda: [each["presence"] for each in sessions(daemon, name)] == ["waiting"])
    quiet = [send(daemon, "buy", sender=stranger), send(daemon, "beep", channel=noise)]
    loud = send(daemon, "the build is red")
    assert ids(agent.result(waiting)) == [loud]
    assert ids(agent.tool("inbox_pull")["messages"]) == quiet
