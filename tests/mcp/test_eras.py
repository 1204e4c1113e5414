"""Both eras of the protocol, and which hosts are kept in the older one so that they can be pushed to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import Implementation

from harken.testing import DaemonProcess, EdgeClient
from tests.mcp.rig import SOON, Connect, fresh_name, ids, send, sessions, until

MODERN = "2026-07-28"


def meta(name: str) -> dict[str, Any]:
    """Return what every modern request carries."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": name, "version": "3"},
    }


def log_lines(daemon: DaemonProcess, about: str) -> list[str]:
    """Return the lines of the daemon's log that mention something."""
    return [line for line in (daemon.home / "logs" / "daemon.log").read_text().splitlines() if about in line]


@pytest.mark.parametrize("host", ["claude-code", "copilot-cli"])
def test_a_host_that_is_pushed_to_is_sent_back_to_the_handshake(daemon: DaemonProcess, host: str) -> None:
    """It probes for the new era first; a connection that negotiated it could never be pushed to."""
    agent = EdgeClient(daemon.edge_command(), name=host)
    try:
        declined = agent.request("server/discover", {"_meta": meta(host)})
        assert declined["error"] == {"code": -32601, "message": "Method not found"}
        assert agent.handshake()["protocolVersion"] == "2025-11-25"
        assert agent.tool("inbound_queue_stats")["dropped_total"] == 0
    finally:
        assert agent.close() == 0


def test_any_other_client_may_use_the_new_era(daemon: DaemonProcess) -> None:
    """Declining it for everyone would cut off clients that speak nothing else."""
    name = fresh_name()
    agent = EdgeClient(daemon.edge_command(), name=name)
    try:
        said = agent.request("server/discover", {"_meta": meta(name)})["result"]
        assert MODERN in said["supportedVersions"]
        # As in the other era: a client that expects news of the lists would wait for what never comes.
        flags = {name: each["listChanged"] for name, each in said["capabilities"].items() if "listChanged" in each}
        assert flags == {"events": False, "prompts": False, "resources": False, "tools": False}
        params = {"name": "inbound_queue_stats", "arguments": {}, "_meta": meta(name)}
        assert agent.request("tools/call", params)["result"]["isError"] is False
        (session,) = sessions(daemon, name)
        assert session["surfaces"] == ["tool", "resource"]
    finally:
        assert agent.close() == 0


def test_a_modern_client_that_listens_hears_that_the_inbox_grew(daemon: DaemonProcess) -> None:
    """`subscriptions/listen` is the only way to reach it between its requests."""
    name = fresh_name()
    agent = EdgeClient(daemon.edge_command(), name=name)
    try:
        agent.request("server/discover", {"_meta": meta(name)})
        wanted = {"resourceSubscriptions": ["harken://inbox"]}
        listening = agent.ask("subscriptions/listen", {"notifications": wanted, "_meta": meta(name)})
        agent.notification("notifications/subscriptions/acknowledged", SOON)
        send(daemon)

        hint = agent.notification("notifications/resources/updated", SOON)
        assert hint["params"]["uri"] == "harken://inbox"
        assert hint["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == listening
        assert not [each for each in agent.notifications if each["method"] == "notifications/message"]
    finally:
        assert agent.close() == 0


async def test_the_sdk_listens_in_the_new_era(daemon: DaemonProcess) -> None:
    """Our reading of the protocol is checked by those who wrote it."""
    command, *arguments = daemon.edge_command()
    edge = stdio_client(StdioServerParameters(command=command, args=arguments))
    info = Implementation(name=fresh_name("sdk"), version="1")
    with anyio.fail_after(SOON):
        async with Client(edge, mode="auto", client_info=info) as client:
            assert client.protocol_version == MODERN
            async with client.listen(resource_subscriptions=["harken://inbox"]) as events:
                send(daemon)
                event = await anext(aiter(events))
    assert event == ResourceUpdated(uri="harken://inbox")


def test_evidence_works_in_the_new_era(daemon: DaemonProcess) -> None:
    """Later calls prove there too, and the consumer is the one that clientInfo names."""
    name = fresh_name()
    agent = EdgeClient(daemon.edge_command(), name=name)

    def call(tool: str, **arguments: object) -> int:
        return agent.ask("tools/call", {"name": tool, "arguments": arguments, "_meta": meta(name)})

    try:
        while left := ids(agent.result(call("inbox_pull", limit=100))["messages"]):
            agent.result(call("ack", ids=left))
        message = send(daemon)
        assert ids(agent.result(call("inbox_pull"))["messages"]) == [message]
        agent.result(call("inbound_queue_stats"))
        (line,) = [each for each in daemon.call("read", ref=message)["ledger"] if each["consumer"] == name]
        assert (line["state"], line["evidence"]) == ("seen", "later call")
    finally:
        assert agent.close() == 0


@pytest.mark.parametrize(
    ("client", "host", "consumer"),
    [
        ("claude-code", "claude-code", "claude-code"),
        ("copilot-cli", "copilot-cli", "copilot-cli"),
        ("codex-mcp-client", "codex", "codex"),
        ("gemini-cli-mcp-client", "gemini-cli", "gemini-cli"),
        ("opencode", "opencode", "opencode"),
        ("qwen-cli-mcp-client-harken", "qwen-code", "qwen-code"),
        ("Some Editor", "generic", "some-editor"),
    ],
)
def test_the_log_says_which_surfaces_are_on_for_which_host(
    daemon: DaemonProcess, connect: Connect, client: str, host: str, consumer: str
) -> None:
    """When an agent hears nothing, this line is where a person looks first."""
    connect(client, is_drained=False).tool("inbound_queue_stats")
    (session,) = sessions(daemon, consumer)
    assert (session["host"], session["client"]) == (host, client)

    assert log_lines(daemon, f"session {session['session']}: host")[-1].endswith(
        f"host {host} ({client} 1, protocol 2025-11-25), consumer {consumer}, reads inbox, "
        "surfaces: tool, log ping, resource"
    )


def test_a_session_that_ends_is_logged_and_gone(daemon: DaemonProcess, connect: Connect) -> None:
    """`status` must not show windows that were closed."""
    agent = connect(name := fresh_name())
    (session,) = sessions(daemon, name)
    agent.close()
    until(lambda: not sessions(daemon, name))
    until(lambda: bool(log_lines(daemon, f"session {session['session']} is gone")))


def test_a_session_of_claude_code_is_its_process(daemon: DaemonProcess, connect: Connect) -> None:
    """Its session id changes on /clear, the process stays: what was offered stays with the window."""
    for _ in range(2):
        connect("claude-code", has_own_host=True, environment={"CLAUDE_CODE_SESSION_ID": "one"})

    found = sessions(daemon, "claude-code")
    assert len(found) == 2
    for session in found:
        assert session["session"] == f"claude-code:{session['pid']}"
        assert "host" in Path(f"/proc/{session['pid']}/cmdline").read_text()


def test_two_edges_of_one_claude_code_are_one_session(daemon: DaemonProcess, connect: Connect) -> None:
    """Harken configured twice, for the user and the project, must not offer everything to both."""
    first, second = connect("claude-code"), connect("claude-code")
    assert len(sessions(daemon, "claude-code")) == 1
    first.close()
    second.tool("inbound_queue_stats")
    assert len(sessions(daemon, "claude-code")) == 1


def test_a_session_of_copilot_cli_is_the_uuid_in_its_environment(daemon: DaemonProcess, connect: Connect) -> None:
    """The uuid survives a resume, the process does not: what was offered is not offered to a stranger."""
    uuid = "0b7f0c5e-6f0e-4ad5-9c6e-3b1d3f3a4c55"
    connect("copilot-cli", environment={"COPILOT_AGENT_SESSION_ID": uuid})
    assert [each["session"] for each in sessions(daemon, "copilot-cli")] == [f"copilot-cli:{uuid}"]


def test_a_client_without_a_session_of_its_own_is_its_connection(daemon: DaemonProcess, connect: Connect) -> None:
    """Two windows of an editor are two sessions, though they read as one consumer."""
    name = fresh_name()
    connect(name)
    connect(name)
    keys = [each["session"] for each in sessions(daemon, name)]
    assert len(set(keys)) == 2
    assert all(key.startswith("edge:") for key in keys)


def test_the_consumer_can_be_named_on_the_command(daemon: DaemonProcess) -> None:
    """A person who runs the same host twice, for two purposes, gives each its own cursor."""
    consumer = fresh_name("reviewer")
    with EdgeClient(daemon.edge_command(consumer), name=fresh_name()) as agent:
        agent.tool("inbound_queue_stats")
        assert len(sessions(daemon, consumer)) == 1
