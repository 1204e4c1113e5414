"""Hints that something arrived: log ping and resource update, to whom, and what they never say."""

from __future__ import annotations

import json

import pytest

from harken.testing import DaemonProcess, EdgeClient
from tests.mcp.rig import SOON, Connect, fresh_name, send, standing, until

BODY = "the party is at eight"
PING = "notifications/message"
UPDATED = "notifications/resources/updated"


def silent_until(agent: EdgeClient, daemon: DaemonProcess) -> str:
    """Send a message that pings for sure; its ping is the next one: what came before it made no noise."""
    marker = send(daemon, "audible", channel=fresh_name("marker"))
    assert agent.notification(PING, SOON)["params"]["data"]["id"] == marker
    return marker


def test_a_log_ping_says_who_and_where_and_nothing_else(daemon: DaemonProcess, connect: Connect) -> None:
    """It lands in logs and status lines, so the body has no business in it."""
    agent = connect()
    send(daemon, "before")
    agent.notification(PING, SOON)
    message = send(daemon, BODY, sender="ann", channel="teams")

    assert agent.notification(PING, SOON) == {
        "jsonrpc": "2.0",
        "method": PING,
        "params": {
            "level": "info",
            "logger": "harken.inbox",
            "data": {
                "channel": "teams",
                "from": "ann",
                "summary": "new message from ann on teams",
                "unread": 2,
                "id": message,
            },
        },
    }


def test_hints_leave_the_message_queued(daemon: DaemonProcess, connect: Connect) -> None:
    """Many hosts show them to nobody: that one was sent, and that the resource was read, says nothing of the text."""
    agent = connect(name := fresh_name())
    agent.request("resources/subscribe", {"uri": "harken://inbox"})
    message = send(daemon)
    agent.notification(PING, SOON)
    agent.notification(UPDATED, SOON)
    agent.request("resources/read", {"uri": "harken://inbox"})
    assert standing(daemon, message, name) == ("queued", "")


def test_every_message_of_a_burst_is_hinted_at(daemon: DaemonProcess, connect: Connect) -> None:
    """In the order of arrival: the last one has the newest count."""
    agent = connect()
    messages = [send(daemon, f"number {number}") for number in range(5)]
    assert [agent.notification(PING, SOON)["params"]["data"]["id"] for _ in messages] == messages


def test_who_connects_is_not_told_of_what_came_before(daemon: DaemonProcess, connect: Connect) -> None:
    """A ping means 'new': yesterday's messages, each with its ping, would teach people to look away."""
    before = [send(daemon, f"while nobody was here {number}") for number in range(3)]
    until(lambda: not daemon.call("status")["sessions"])
    agent = connect(is_drained=False)
    agent.request("tools/list", {})

    assert silent_until(agent, daemon) not in before


@pytest.mark.parametrize("level", ["notice", "warning", "error", "emergency"])
def test_a_host_that_wants_less_gets_no_ping(daemon: DaemonProcess, connect: Connect, level: str) -> None:
    """Pings are of level info; `logging/setLevel` is the host's own switch for them."""
    agent = connect()
    agent.request("resources/subscribe", {"uri": "harken://inbox"})
    assert agent.request("logging/setLevel", {"level": level})["result"] == {}
    send(daemon, "not to be heard")
    # For each message the ping comes before the update.
    agent.notification(UPDATED, SOON)
    assert PING not in [each["method"] for each in agent.notifications]


def test_an_unknown_sender_does_not_ping(daemon: DaemonProcess, connect: Connect) -> None:
    """Strangers are counted: their message waits, and nobody is disturbed."""
    agent = connect()
    stranger = fresh_name("stranger")
    daemon.call("deny", sender=stranger)
    message = send(daemon, "buy now", sender=stranger)

    silent_until(agent, daemon)
    assert message in [each["id"] for each in agent.tool("inbox_pull")["messages"]]


@pytest.mark.parametrize("kind", ["channel", "sender"])
def test_what_is_muted_does_not_ping(daemon: DaemonProcess, connect: Connect, kind: str) -> None:
    """The person wants quiet from a channel or from someone; the message waits all the same."""
    agent = connect()
    names = {"channel": fresh_name("channel"), "sender": fresh_name("sender")}
    daemon.call("mute", kind=kind, name=names[kind])
    message = send(daemon, "psst", **names)

    silent_until(agent, daemon)
    assert message in [each["id"] for each in agent.tool("inbox_pull")["messages"]]


def test_a_muted_session_is_not_pinged(daemon: DaemonProcess, connect: Connect) -> None:
    """All others are: the person wants quiet in one window only."""
    name = fresh_name()
    muted, other = connect(name), connect()
    daemon.call("mute", kind="session", name=name)
    for text in ("one", "two"):  # when the second is announced, the first has been to everyone
        message = send(daemon, text)
        assert other.notification(PING, SOON)["params"]["data"]["id"] == message
    muted.request("ping", {})
    assert PING not in [each["method"] for each in muted.notifications]


def test_a_subscriber_hears_that_the_inbox_grew(daemon: DaemonProcess, connect: Connect) -> None:
    """And after unsubscribing no more."""
    agent = connect()
    uri = {"uri": "harken://inbox"}
    assert agent.request("resources/subscribe", uri)["result"] == {}
    send(daemon)
    assert agent.notification(UPDATED, SOON) == {"jsonrpc": "2.0", "method": UPDATED, "params": uri}

    assert agent.request("resources/unsubscribe", uri)["result"] == {}
    send(daemon)
    agent.notification(PING, SOON)
    agent.notification(PING, SOON)
    agent.request("ping", {})
    assert UPDATED not in [each["method"] for each in agent.notifications]


def test_without_a_subscription_there_is_no_update(daemon: DaemonProcess, connect: Connect) -> None:
    """The protocol forbids unasked updates."""
    agent = connect()
    send(daemon)
    agent.notification(PING, SOON)
    agent.request("ping", {})
    assert UPDATED not in [each["method"] for each in agent.notifications]


def test_the_resource_shows_counts_and_headers_without_bodies(daemon: DaemonProcess, connect: Connect) -> None:
    """A host may show it to anyone at any time."""
    agent = connect()
    listed = agent.request("resources/list", {})["result"]["resources"]
    assert [each["uri"] for each in listed] == ["harken://inbox"]
    assert agent.request("resources/templates/list", {})["result"]["resourceTemplates"] == []
    refused = agent.request("resources/read", {"uri": "harken://other"})["error"]
    assert (refused["code"], refused["data"]) == (-32602, {"uri": "harken://other"})
    message = send(daemon, BODY, sender="ann", channel="teams")

    (content,) = agent.request("resources/read", {"uri": "harken://inbox"})["result"]["contents"]
    state = json.loads(content["text"])
    assert (content["mimeType"], state["unread"], state["last_id"]) == ("application/json", 1, message)
    received = daemon.call("read", ref=message)["message"]["received_at"]
    assert state["newest"][-1] == {
        "id": message,
        "channel": "teams",
        "from": "ann",
        "trust": "known",
        "ts": received,
    }
    assert len(state["newest"]) <= 5
    assert BODY not in content["text"]


def test_a_client_that_does_not_read_its_pings_holds_up_nobody(daemon: DaemonProcess, connect: Connect) -> None:
    """Hints to it are dropped when it does not keep up; everybody else, and its own messages, go on."""
    slow, other = connect(), connect()
    last = ""
    for number in range(300):
        last = send(daemon, f"number {number}")
        assert other.notification(PING, SOON)["params"]["data"]["id"] == last
    assert slow.tool("inbound_queue_stats")["depth"] == 300
