"""Who is told to wait for messages: a client that nothing is handed to, by its instructions and by the tool itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from harken.hosts.registry import hosts
from harken.testing import DaemonProcess, EdgeClient, edge_command
from tests.mcp.rig import Connect, fresh_name
from tests.mcp.test_eras import meta
from tests.process_check import end_all_naming

LISTEN: Final = (
    "At the end of a substantive turn, call wait_for_inbound_message: nothing arrives by itself. If it returns "
    "nothing, end the turn."
)
WAITING: Final = "wait_for_inbound_message"


@pytest.fixture
def fresh_home() -> Iterator[Path]:
    """A home that nobody has started a daemon for; whoever does, it is ended."""
    with tempfile.TemporaryDirectory(prefix="harken-", ignore_cleanup_errors=True) as name:
        yield Path(name)
        end_all_naming(Path(name))


def descriptions(agent: EdgeClient) -> dict[str, str]:
    """Return what each tool says about itself."""
    return {tool["name"]: tool["description"] for tool in agent.request("tools/list", {})["result"]["tools"]}


def test_client_without_hooks_is_told_to_wait_at_the_end_of_a_turn(connect: Connect) -> None:
    """Nothing else makes its agent look: who is not told hears of a message when it happens to call a tool."""
    agent = connect()
    assert agent.handshake()["instructions"].endswith(LISTEN)
    assert descriptions(agent)[WAITING].endswith(
        "Call it at the end of a substantive turn; if it returns nothing, end the turn."
    )


@pytest.mark.parametrize("name", [host.client_names[0] for host in hosts().values()])
def test_host_with_hooks_is_not_told_to_wait(connect: Connect, name: str) -> None:
    """What waits reaches it anyway, and a wait would hold its turn for a minute."""
    agent = connect(name, is_drained=False)
    assert WAITING not in agent.handshake()["instructions"]
    assert not [text for text in descriptions(agent).values() if "end of a substantive turn" in text]


@pytest.mark.parametrize("name", ["", "codex-mcp-client"])
def test_every_client_is_told_how_a_long_message_is_read(connect: Connect, name: str) -> None:
    """A list of first words looks like the whole to an agent that does not know better."""
    assert "inbox_read" in connect(name, is_drained=False).handshake()["instructions"]


@pytest.mark.parametrize("name", ["some-editor", "gemini-cli-mcp-client"])
def test_both_eras_give_the_same_instructions(daemon: DaemonProcess, connect: Connect, name: str) -> None:
    """A client that speaks the newer protocol says who it is with the question, not before."""
    with_handshake = connect(name, is_drained=False).handshake()["instructions"]
    modern = EdgeClient(daemon.edge_command(), name=name)
    try:
        assert modern.request("server/discover", {"_meta": meta(name)})["result"]["instructions"] == with_handshake
    finally:
        assert modern.close() == 0


def test_daemon_that_the_client_starts_gives_the_same_instructions(connect: Connect, fresh_home: Path) -> None:
    """The first agent of the day starts it, and gets no other answer than the second."""
    running = connect().handshake()
    with EdgeClient(edge_command(fresh_home), name=fresh_name()) as first:
        assert first.handshake() == running


def test_who_does_not_say_its_name_is_told_to_wait(daemon: DaemonProcess) -> None:
    """A program that is not known has no hooks of ours."""
    agent = EdgeClient(daemon.edge_command())
    try:
        unnamed = {key: value for key, value in meta("").items() if not key.endswith("clientInfo")}
        said = agent.request("server/discover", {"_meta": unnamed})
        assert said["result"]["instructions"].endswith(LISTEN)
    finally:
        assert agent.close() == 0
