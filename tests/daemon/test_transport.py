"""The other transport, for systems without unix sockets: a loopback port with a token, the same protocol."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.testing import EdgeClient, edge_command

SECONDS = 30.0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose daemon listens on a port; it is stopped at the end."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[daemon]\ntransport = "tcp"\n')
    yield home
    facts = home / "run" / "daemon.json"
    if facts.exists():
        os.kill(json.loads(facts.read_text())["pid"], signal.SIGTERM)


def harken(home: Path, *arguments: str) -> str:
    """Run the command line and return what it prints."""
    command = [sys.executable, "-m", "harken", "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def test_everything_works_over_a_port(home: Path) -> None:
    """The command line starts it, the edge finds it, and only people who can read the address file have its token."""
    harken(home, "send", "over a port", "--from", "ci-bot")
    address = home / "run" / "address"
    assert address.read_text().startswith("tcp:127.0.0.1:")
    assert stat.S_IMODE(address.stat().st_mode) == 0o600
    with EdgeClient([*edge_command(home), "--transport", "tcp"]) as agent:
        (message,) = agent.tool("inbox_pull")["messages"]
        assert message["content_text_sanitized"] == "over a port"
        agent.tool("reply", message_id=message["id"], body="read over a port")
        assert "read over a port" in harken(home, "wait", "--timeout", "20")
    assert "stopped" in harken(home, "down")


def test_a_wrong_token_is_refused(home: Path) -> None:
    """Every account of the machine can reach the port."""
    harken(home, "up")
    _, host, port, _ = (home / "run" / "address").read_text().split(":")
    for token in ("", "wrong"):
        with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
            connection.sendall(json.dumps({"harken": 1, "kind": "call", "token": token}).encode() + b"\n")
            with connection.makefile() as answers:
                assert json.loads(answers.readline())["error"]["code"] == "refused"
                assert answers.readline() == ""
