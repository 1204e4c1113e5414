"""`harken mcp --url`: a host that only starts programs speaks to a Harken elsewhere, also over its restart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation

from harken.testing import EdgeClient
from tests.loss.rig import WAIT_SECONDS, until
from tests.remote.rig import Mode, PublicDaemon, tool

EDGE: Final = Path(__file__).parents[2] / "src" / "harken" / "edge" / "mcp.py"


@pytest.fixture
def command(public: PublicDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a host starts; whom to trust is said as for any program that uses OpenSSL."""
    monkeypatch.setenv("SSL_CERT_FILE", str(public.main.authority))
    file = tmp_path / "secret"
    file.write_text(public.token() + "\n")
    return [sys.executable, "-I", "-S", str(EDGE), "--url", f"{public.url}/mcp", "--token-file", str(file)]


@contextmanager
def host(command: list[str]) -> Iterator[EdgeClient]:
    """A host of 2025 on the other side of stdio."""
    client = EdgeClient(command, name="a-host", environment={"SSL_CERT_FILE": os.environ["SSL_CERT_FILE"]})
    try:
        client.handshake()
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_host_of_either_era_has_the_tools(
    public: PublicDaemon, command: list[str], mode: Mode, protocol: str
) -> None:
    """The bridge understands no tool: what the host says and hears is what the other side does."""
    sent = public.call("send", text="hello", sender="ci-bot")["id"]
    program, *arguments = command
    environment = {"SSL_CERT_FILE": str(public.main.authority)}
    edge = stdio_client(StdioServerParameters(command=program, args=arguments, env=environment))
    with anyio.fail_after(WAIT_SECONDS * 2):
        async with Client(edge, mode=mode, client_info=Implementation(name="sdk", version="1")) as client:
            assert client.protocol_version == protocol
            assert [each["id"] for each in (await tool(client, "inbox_pull"))["messages"]] == [sent]
            assert (await tool(client, "reply", message_id=sent, body="yes"))["message_id"] == sent


def test_session_goes_on_when_the_daemon_was_restarted(public: PublicDaemon, command: list[str]) -> None:
    """The other side has forgotten the session: it is begun anew, and the host hears nothing of that."""
    with host(command) as client:
        assert client.tool("inbound_queue_stats")["depth"] == 0
        public.main.served.kill()
        public.main.start()
        sent = public.call("send", text="after", sender="ci-bot")["id"]
        assert [each["id"] for each in client.tool("inbox_pull")["messages"]] == [sent]


def test_without_the_other_side_calls_say_so(public: PublicDaemon, command: list[str]) -> None:
    """An error at once, with the address; never silence."""
    with host(command) as client:
        public.main.served.kill()
        answer = client.request("tools/call", {"name": "inbox_pull", "arguments": {}})
        assert "does not answer" in answer["error"]["message"]
        assert f"localhost:{public.main.port}" in answer["error"]["message"]


def test_revoked_token_is_said(public: PublicDaemon, command: list[str]) -> None:
    """The host's person learns what to do."""
    with host(command) as client:
        public.call("token_revoke", name="elsewhere")
        answer = client.request("tools/call", {"name": "inbox_pull", "arguments": {}})
        assert "not known" in answer["error"]["message"] or "revoked" in answer["error"]["message"]


def test_session_ends_with_the_host(public: PublicDaemon, command: list[str]) -> None:
    """It says goodbye, so that what it had not seen goes to the next."""
    with host(command) as client:
        client.tool("inbound_queue_stats")
        assert len(public.call("status")["sessions"]) == 1
    until(lambda: public.call("status")["sessions"] == [], "the session is gone")


def test_token_is_in_no_list_of_processes(command: list[str]) -> None:
    """Others can see the arguments of a program; so it gets the name of a file."""
    secret = Path(command[-1]).read_text().strip()
    with host(command) as client:
        listed = [str(each.info) for each in psutil.process_iter(["cmdline", "environ"])]
        assert client.tool("inbound_queue_stats")["depth"] == 0
    assert [each for each in listed if command[-1] in each]
    assert not [each for each in listed if secret in each]


@pytest.mark.parametrize("url", ["http://harken.example.org/mcp", "ftp://localhost/mcp", ""])
def test_token_is_not_sent_without_tls(url: str, tmp_path: Path) -> None:
    """To another machine only by TLS; nothing is tried."""
    command = [sys.executable, "-I", "-S", str(EDGE), "--url", url, "--token-file", str(tmp_path / "none")]
    done = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=WAIT_SECONDS)
    assert (done.returncode, b"https://" in done.stderr) == (2, True)


def test_line_that_is_no_json_is_answered(command: list[str]) -> None:
    """Under no id, as everywhere."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(b"nonsense\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["error"]["code"] == -32700
        process.stdin.close()


def asked_of(command: list[str], method: str, **params: object) -> dict[str, object]:
    """Return what a host of 2026 is answered."""
    keys = ("protocolVersion", "clientCapabilities", "clientInfo")
    values: tuple[object, ...] = ("2026-07-28", {}, {"name": "a-host", "version": "1"})
    params["_meta"] = {f"io.modelcontextprotocol/{key}": value for key, value in zip(keys, values, strict=True)}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process, ThreadPoolExecutor(1) as reading:
        try:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            return dict(json.loads(reading.submit(process.stdout.readline).result(WAIT_SECONDS)))
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["\u5de5\u5177", "a\nb", " spaced ", "=?base64?eA==?="])
def test_name_that_no_header_can_carry_is_answered(command: list[str], name: str) -> None:
    """A host waits for its answer, whatever its model calls."""
    answer = asked_of(command, "tools/call", name=name, arguments={})
    assert "There is no tool" in str(answer)


def test_token_file_with_more_than_a_token_is_said(command: list[str]) -> None:
    """It cannot be sent; a host that heard nothing would wait for ever."""
    Path(command[-1]).write_text("harken_one\nharken_two\n")
    assert command[-1] in str(asked_of(command, "tools/list"))
