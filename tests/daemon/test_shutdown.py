"""Stopping is part of working: the exit code is 0, nothing is left behind, and edges find the next daemon."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

import pytest

from harken.testing import CallFailed, DaemonProcess, EdgeClient, edge_command
from tests.loss.rig import WAIT_SECONDS, Served, Wire, agent_of, check_journal, export, received, texts, until


def test_daemon_that_is_stopped_as_soon_as_it_is_known_ends_cleanly(home: Path) -> None:
    """Between the moment when others know of it and the one when it listens to signals there must be nothing."""
    for _ in range(5):
        assert DaemonProcess(home).start().stop() == 0
        assert not [path.name for path in home.glob("harken.db-*")]


def test_stop_in_the_middle_of_traffic_loses_nothing(home: Path) -> None:
    """Whatever was answered is stored; whatever was not answered can be sent again."""
    daemon = DaemonProcess(home).start()
    accepted: list[str] = []

    def write() -> None:
        try:
            with daemon.caller() as caller:
                while True:
                    text = f"number {len(accepted)}"
                    caller.call("send", text=text, upstream_id=text)
                    accepted.append(text)
        except (OSError, CallFailed, ValueError):
            return

    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: len(accepted) > 50, "the traffic flows")
    assert daemon.stop() == 0
    writer.join(20)
    left = {path.name for path in (home / "run").iterdir()}
    assert left <= {"lock", "port", "bells", "down", "sessions"}
    daemon.start()
    try:
        stored = texts(export(daemon, "inbox"))
        # The last one may have been stored without its answer having left.
        assert stored[: len(accepted)] == accepted
        assert len(stored) <= len(accepted) + 1
        assert len(received(check_journal(daemon))) == len(stored)
    finally:
        assert daemon.stop() == 0


def test_stop_ends_long_polls_and_their_clients_go_on(daemon: Served) -> None:
    """An agent that waits over a planned restart notices nothing; a person at the terminal sees the end at once."""
    daemon.start()
    with agent_of(daemon.home) as agent, Wire(daemon.socket, {"harken": 1, "kind": "call"}) as person:
        waiting = agent.ask_tool("wait_for_inbound_message", timeout_s=50)
        person.say({"id": 1, "method": "wait", "params": {"timeout": 50}})
        until(lambda: {"watch", "loss-agent"} <= readers(daemon), "both wait")
        daemon.stop()
        assert person.is_closed()
        daemon.start()
        daemon.call("send", text="after the upgrade")
        (given,) = agent.result(waiting)
        assert (given["content"], given.get("repeat", False)) == ("after the upgrade", False)


def test_idle_edge_is_back_by_itself_after_a_restart(daemon: Served) -> None:
    """Upgrade by restart: an agent that says nothing must still be reached by what arrives."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        agent.tool("inbox_pull")
        agent.notifications.clear()
        daemon.stop()
        daemon.start()
        until(lambda: daemon.call("status")["sessions"], "the session is back", 5)
        daemon.call("send", text="hello")
        assert agent.notification("notifications/message", 10)["params"]["data"]["unread"] == 1


def test_edge_starts_a_daemon_when_its_own_was_killed(home: Path) -> None:
    """Nobody runs `harken up` after a crash: the agent's edge does."""
    first = DaemonProcess(home).start()
    with EdgeClient(edge_command(home), name="loss-agent") as agent:
        first.call("send", text="before")
        first.kill()
        assert texts(agent.tool("inbox_pull")["messages"]) == ["before"]
        second = DaemonProcess(home)
        assert second.facts["pid"] != 0
        until(lambda: second.call("status")["daemon"]["pid"], "it answers")
        stop(second.facts["pid"])


def stop(pid: int) -> None:
    """Stop a daemon that an edge started, to its end."""
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    ended, _, _ = select.select([handle], [], [], WAIT_SECONDS)
    os.close(handle)
    assert ended


def readers(daemon: Served) -> set[str]:
    """Who reads the inbox."""
    return {place["consumer"] for place in daemon.call("status")["consumers"]}


@pytest.mark.parametrize("times", [5])
def test_start_and_stop_leave_nothing_growing(daemon: Served, times: int) -> None:
    """Each start must find the state of the last stop, not add to it."""
    for _ in range(times):
        daemon.start()
        daemon.call("send", text="again", upstream_id="again")
        daemon.stop()
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["again"]
    assert len(received(check_journal(daemon))) == 1
