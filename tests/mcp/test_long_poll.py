"""`wait_for_inbound_message`: gets what comes, keeps nobody from working, and consumes nothing when it is given up."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.testing import DaemonProcess, EdgeClient, running_daemon
from tests.mcp.rig import SOON, Connect, fresh_name, ids, send, standing, until_waiting


@pytest.fixture(scope="module")
def impatient() -> Iterator[DaemonProcess]:
    """A daemon whose owner wants no wait longer than a second."""
    with tempfile.TemporaryDirectory(prefix="harken-") as folder:
        home = Path(folder)
        (home / "config.toml").write_text("[limits]\nmax_wait_seconds = 1\n")
        with running_daemon(home) as running:
            yield running


def test_a_wait_that_began_before_the_message_returns_it(daemon: DaemonProcess, connect: Connect) -> None:
    """An agent without hooks has no other way to hear of something while it is idle."""
    agent = connect(name := fresh_name())

    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name)
    message = send(daemon)

    assert ids(agent.result(waiting, SOON)) == [message]


def test_what_arrived_while_the_agent_was_busy_is_returned_at_once(daemon: DaemonProcess, connect: Connect) -> None:
    """Nothing rings twice for a message: a wait that only listened for new ones would never give it."""
    agent = connect()
    messages = [send(daemon, text) for text in ("one", "two", "three")]

    first = agent.ask_tool("wait_for_inbound_message", timeout_s=50, max_items=2)
    assert ids(agent.result(first, SOON)) == messages[:2]
    second = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    assert ids(agent.result(second, SOON)) == messages[2:]


def test_a_wait_without_messages_ends_with_an_empty_list(connect: Connect) -> None:
    """An agent that asks for one second has to go on after one second."""
    agent = connect()

    begun = time.monotonic()
    assert agent.result(agent.ask_tool("wait_for_inbound_message", timeout_s=0.3), SOON) == []
    assert time.monotonic() - begun >= 0.3


def test_no_wait_is_longer_than_the_configured_cap(impatient: DaemonProcess) -> None:
    """Hosts give up a call after about a minute: an hour would be a failed call, and a lost answer."""
    with EdgeClient(impatient.edge_command()) as agent:
        begun = time.monotonic()
        assert agent.result(agent.ask_tool("wait_for_inbound_message", timeout_s=3600), SOON) == []
        assert 1.0 <= time.monotonic() - begun < SOON


def test_a_cancelled_wait_consumes_nothing(daemon: DaemonProcess, connect: Connect) -> None:
    """The person pressed Esc: what comes afterwards is new to the model, not a repeat."""
    agent = connect(name := fresh_name())
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name)

    agent.notify("notifications/cancelled", {"requestId": waiting, "reason": "Esc"})
    until_waiting(daemon, name, 0)
    message = send(daemon)
    assert standing(daemon, message, name) == ("queued", "")

    (given,) = agent.tool("inbox_pull")["messages"]
    assert given["id"] == message
    assert "repeat" not in given


def test_a_message_that_meets_a_cancellation_is_not_lost(daemon: DaemonProcess, connect: Connect) -> None:
    """Both race here: either the answer with the message was on its way, or the next wait gets it as if new."""
    agent = connect(name := fresh_name())
    for number in range(12):
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        until_waiting(daemon, name)
        with daemon.caller() as caller:
            caller.ask("send", text=f"race {number}", sender="ci-bot", channel="ci")
            agent.notify("notifications/cancelled", {"requestId": waiting})
            message = caller.answer()["id"]
        if carried(agent, waiting) == [message]:
            agent.tool("ack", ids=[message])
            continue
        (given,) = agent.result(agent.ask_tool("wait_for_inbound_message", timeout_s=50), SOON)
        assert (given["message_id"], "repeat" in given) == (message, False)


def test_other_calls_are_answered_while_one_waits(daemon: DaemonProcess, connect: Connect) -> None:
    """A host runs calls side by side: a minute of waiting must not be a minute of silence."""
    agent = connect(name := fresh_name())
    waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name)

    assert agent.result(agent.ask_tool("inbound_queue_stats"), SOON)["depth"] == 0
    assert agent.answer(agent.ask("ping", {}), SOON)["result"] == {}

    message = send(daemon)
    assert ids(agent.result(waiting, SOON)) == [message]


def test_many_waiting_agents_do_not_keep_another_from_its_message(daemon: DaemonProcess, connect: Connect) -> None:
    """Waiters of one kind stand aside for each other, never for another consumer."""
    name = fresh_name("crowd")
    crowd = [connect(name) for _ in range(4)]
    for each in crowd:
        each.ask_tool("wait_for_inbound_message", timeout_s=50)
    until_waiting(daemon, name, len(crowd))
    other = connect()

    message = send(daemon)
    assert ids(other.result(other.ask_tool("wait_for_inbound_message", timeout_s=50), SOON)) == [message]


def carried(agent: EdgeClient, cancelled: int) -> list[str]:
    """Return what the answer to a cancelled wait carried, if there was one before the cancellation was read."""
    agent.request("ping", {})
    try:
        result = agent.answer(cancelled, 0.0).get("result")
    except TimeoutError:
        return []
    return [] if result is None else ids(json.loads(result["content"][0]["text"]))


@pytest.mark.slow
def test_a_wait_of_an_hour_returns_within_fifty_six_seconds(connect: Connect) -> None:
    """Hosts give up a call after a minute: the answer, even an empty one, has to be there before."""
    agent = connect()
    begun = time.monotonic()
    assert agent.result(agent.ask_tool("wait_for_inbound_message", timeout_s=3600)) == []
    assert 55.0 <= time.monotonic() - begun < 56.0
