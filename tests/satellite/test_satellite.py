"""A satellite: agents, hooks and commands there use the inbox of the main daemon, and nothing is kept on the way."""

from __future__ import annotations

from tests.loss.rig import agent_of, texts, until
from tests.satellite.rig import Pair


def test_command_on_a_satellite_is_done_by_the_main_daemon(pair: Pair) -> None:
    """One store: what is sent here is read there."""
    sent = pair.satellite.call("send", text="from the satellite")
    assert sent["state"] == "queued"
    assert texts(pair.main.served.call("list")["messages"]) == ["from the satellite"]
    assert not (pair.satellite.home / "harken.db").exists()


def test_agent_on_a_satellite_reads_and_is_shown_with_its_machine(pair: Pair) -> None:
    """People see where each session runs."""
    pair.main.served.call("send", text="for whoever is there")
    with agent_of(pair.satellite.home) as agent:
        assert texts(agent.tool("inbox_pull")["messages"]) == ["for whoever is there"]
        (session,) = pair.main.served.call("status")["sessions"]
    assert session["machine"] == "buildbox"
    until(lambda: not pair.main.served.call("status")["sessions"], "the session is gone with its edge")


def test_machines_are_listed(pair: Pair) -> None:
    """Who is joined, and whether it is here."""
    (machine,) = pair.main.served.call("machines")["machines"]
    assert (machine["name"], machine["state"], machine["address"]) == ("buildbox", "here", "127.0.0.1")
    assert pair.satellite.call("machines")["machines"] == [machine]
    pair.satellite.stop()
    until(lambda: pair.main.served.call("machines")["machines"][0]["state"] == "away", "it is away")
