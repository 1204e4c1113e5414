"""The official Python SDK as a client, in both eras: it lists and calls every tool through the edge."""

from __future__ import annotations

import json
from typing import Literal

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation, TextContent

from harken.testing import DaemonProcess
from harken.testing.agent import Json

SOON = 30.0
TOOLS = (
    *("inbox_pull", "inbox_read", "wait_for_inbound_message", "inbound_queue_stats", "ack", "reply", "inbox_search"),
    *("channels", "check_inbox", "send_to_task", "inbox_status", "send_to_peer"),
)


async def call(client: Client, tool: str, **arguments: object) -> Json:
    """Return the JSON of a result's first block."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error is False
    block = result.content[0]
    assert isinstance(block, TextContent)
    return json.loads(block.text)


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_sdk_lists_and_calls_every_tool(
    daemon: DaemonProcess, mode: Literal["legacy", "auto"], protocol: str
) -> None:
    """Results, schemas and errors pass the checks of those who wrote the protocol."""
    command, *arguments = daemon.edge_command()
    edge = stdio_client(StdioServerParameters(command=command, args=arguments))
    info = Implementation(name=f"sdk-{mode}", version="1")
    with anyio.fail_after(SOON):
        async with Client(edge, mode=mode, client_info=info) as client:
            assert client.protocol_version == protocol
            assert "At the end of a substantive turn, call wait_for_inbound_message" in (client.instructions or "")
            tools = (await client.list_tools()).tools
            assert tuple(tool.name for tool in tools) == TOOLS
            told = [tool.name for tool in tools if "at the end of a substantive turn" in (tool.description or "")]
            assert told == ["wait_for_inbound_message"]
            assert (await call(client, "inbound_queue_stats"))["depth"] == 0

            first = daemon.call("send", text=f"first for {mode}", sender="ci-bot")["id"]
            second = daemon.call("send", text="second", sender="ci-bot")["id"]
            pulled = await call(client, "inbox_pull", limit=1)
            assert ([each["id"] for each in pulled["messages"]], pulled["unread_remaining"]) == ([first], 1)
            waited = await call(client, "wait_for_inbound_message", timeout_s=5)
            assert [each["message_id"] for each in waited] == [second]

            assert await call(client, "ack", ids=[first]) == {"acknowledged": []}
            assert (await call(client, "reply", message_id=second, body="on it"))["message_id"] == second
            found = await call(client, "inbox_search", query=f"first {mode}")
            assert [each["id"] for each in found["messages"]] == [first]

            refused = await client.call_tool("nope", {})
            assert refused.is_error is True
            (resource,) = (await client.list_resources()).resources
            assert str(resource.uri) == "harken://inbox"
