"""A server that goes away between handing over and counting: what was handed over is told of, or is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from harken.testing import EdgeClient, edge_command
from tests.hooks.rig import CLAUDE, CONFIG, DaemonFixture
from tests.loss.rig import Json, Served
from tests.postgres.conftest import Machines
from tests.postgres.proxy import BadWay
from tests.store.postgres_server import PostgresServer

OFFERED: Final = b"INSERT INTO deliveries"
READING: Final = b"READ ONLY"
TOOLS: Final = [("inbox_pull", {"limit": 1}), ("wait_for_inbound_message", {"max_items": 1})]


@pytest.fixture
def way(server: PostgresServer) -> Iterator[BadWay]:
    """A way to the server."""
    with BadWay(server.folder / ".s.PGSQL.5432") as way:
        yield way


@pytest.fixture
def here(machines: Machines, way: BadWay) -> Iterator[Served]:
    """A daemon that goes this way."""
    machines.more = CONFIG
    machines.url = f"postgresql://harken@127.0.0.1:{way.port}/postgres?sslmode=disable"
    yield machines.start("here")
    machines.close()


@contextmanager
def nothing_read(way: BadWay) -> Iterator[None]:
    """Let nothing be read any more as soon as something was handed over."""
    way.cut_at(READING, after=OFFERED)
    yield
    way.cut_at(b"")


@pytest.fixture
def agent(here: Served) -> Iterator[EdgeClient]:
    """An agent that has read everything."""
    with EdgeClient([*edge_command(here.home), "--spawn", "/bin/true"], name="reader") as agent:
        agent.tool("inbox_pull")
        yield agent


def result_of(agent: EdgeClient, way: BadWay, tool: str, **arguments: object) -> Json:
    """Return what a tool answers."""
    with nothing_read(way):
        return agent.answer(agent.ask_tool(tool, **arguments))["result"]


def standing(daemon: Served, message: str, consumer: str) -> list[tuple[str, str]]:
    """Return the state of a message for a consumer, with its evidence."""
    lines = daemon.call("read", ref=message)["ledger"]
    return [(each["state"], each.get("evidence", "")) for each in lines if each["consumer"] == consumer]


@pytest.mark.parametrize(("tool", "bound"), TOOLS, ids=["pull", "wait"])
def test_messages_are_given_though_nobody_can_count_the_rest(
    here: Served, way: BadWay, agent: EdgeClient, tool: str, bound: dict[str, object]
) -> None:
    """An error would keep them back for as long as the lease lasts, and newer ones would come before them."""
    said = [here.call("send", text=f"number {number}")["id"] for number in range(2)]
    assert "number 0" in str(result_of(agent, way, tool, **bound))
    assert "number 1" in str(agent.tool("inbox_pull"))
    assert standing(here, said[0], "reader") == [("seen", "later call")]


def test_a_message_that_was_read_by_its_name_is_shown(here: Served, way: BadWay, agent: EdgeClient) -> None:
    """The next call proves what the answer to this one carried: an error must not stand in its place."""
    said = here.call("send", text="number 0")["id"]
    assert "number 0" in str(result_of(agent, way, "inbox_read", message_id=said))
    agent.tool("inbound_queue_stats")
    assert standing(here, said, "reader") == [("seen", "later call")]


def test_what_was_to_go_with_a_prompt_goes_with_the_next(here: Served, way: BadWay) -> None:
    """A hook says nothing while the store is away: what it had taken would wait for as long as the lease lasts."""
    rig = DaemonFixture(here)
    guest = rig.session(CLAUDE)
    guest.prompt()  # what comes from now on is for it
    guest.stop()
    message = rig.send("build 17 failed", sender="ci-bot", channel="ci")
    with nothing_read(way):
        assert guest.prompt(turn="t2") == ""
    assert standing(here, message, CLAUDE.name) == [("queued", "")]
    assert "build 17 failed" in guest.prompt(turn="t3")
