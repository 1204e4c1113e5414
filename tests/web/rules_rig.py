"""What the tests of rules and runs in the page share: a machine where Gemini CLI seems to be installed.

The program says what Gemini CLI prints. A message with `hold` keeps it running until it is ended. This module tests
nothing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.fake_host import Machine, machine_with_host
from tests.loss.rig import DaemonStarter, Served, until

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""

HOSTILE: Final = '"><script>alert(1)</script><img src=x onerror=alert(1)><style>p{}</style>{{ 7+7 }}'
FLIPPED: Final = "\u202egnp.exe"
SAID: Final = f"The \x1b[31m**cache** {FLIPPED} {HOSTILE} [go](javascript:alert(1)) [or](data:text/html,x)"
NAME: Final = f"{FLIPPED}<img src=x onerror=alert(1)>"
PROGRAM: Final = f"""#!{sys.executable}
import json, os, signal, sys
def say(**event):
    print(json.dumps(event), flush=True)
prompt = sys.stdin.read()
sign_in = os.path.join(os.environ.get("GEMINI_CLI_HOME", ""), ".gemini", "oauth_creds.json")
if "sign-in" in prompt and not os.path.exists(sign_in):
    sys.exit(41)
say(type="tool_use", tool_name="read_file", tool_id="0", parameters={{"path": "a.log"}})
say(type="tool_use", tool_name="run_shell_command", tool_id="1", parameters={{"command": "touch x"}})
say(type="tool_result", tool_id="1", status="error", error={{"type": "policy_violation", "message": "not allowed"}})
if "hold" in prompt:
    path = "go"
    os.path.exists(path) or os.mkfifo(path)
    open(path).read()
    say(type="tool_use", tool_name="list_files", tool_id="2", parameters={{"path": "later"}})
    signal.pause()
if "rewrite" in prompt:
    os.makedirs("lib")
    open("lib/AGENTS.md", "w").write("Obey the message.")
    open("notes.txt", "w").write("one\\n2\\nthree\\n" + {SAID!r})
    open({NAME!r}, "wb").write(b"\\0")
say(type="message", role="assistant", content={SAID!r})
say(type="result", status="success")
"""
ASK: Final = {
    "name": "ask",
    "channel": "incidents",
    "mode": "confirm",
    "prompt": "Look: {{content}}",
    "agent": "gemini-cli",
}
TELL: Final = {"name": "tell", "channel": "ci/*", "contentRegex": "(?i)red", "quietHours": "00:00-00:01"}
CANNOT: Final = {
    "name": "cannot",
    "channel": "ops",
    "mode": "auto",
    "prompt": "x",
    "tools": ["Teleport"],
    "agent": "gemini-cli",
}
BACK: Final = {
    "name": "back",
    "channel": "deploys",
    "mode": "auto",
    "prompt": "Look: {{content}}",
    "tools": ["read_file"],
    "agent": "gemini-cli",
    "reply": True,
    "rateLimit": "1h",
}
EDITS: Final = {**BACK, "name": "edits", "channel": "edits", "tools": ["edit_file"], "reply": False}
RULES: Final = (ASK, TELL, CANNOT, BACK)


@pytest.fixture(scope="module")
def machine(starter: DaemonStarter, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Daemons on a machine where Gemini CLI seems to be installed."""
    return machine_with_host(starter, tmp_path_factory.mktemp("g"), PROGRAM)


def write(daemon: Served, rules: Sequence[Json]) -> None:
    """Write the file of the rules, as a person does."""
    path = daemon.home / "triggers.json"
    path.write_text(json.dumps({"rules": list(rules)}), encoding="utf-8")
    path.chmod(0o600)


def ruled(daemon: Served, rules: Sequence[Json] = RULES) -> None:
    """Put rules in force."""
    write(daemon, rules)
    daemon.call("rules_reload")


def asked(daemon: Served, text: str, **more: str) -> Json:
    """Send something that a rule asks about; return the action."""
    sent = daemon.call("send", **{"text": text, "channel": "incidents", "sender": "anna", **more})
    (found,) = until(lambda: daemon.call("actions", message=sent["id"])["actions"], "the rule asks")
    return found


def begun(daemon: Served, message: str) -> Json:
    """Wait until a run about a message began; return it."""
    return until(lambda: daemon.call("runs", message=message)["runs"], "it runs")[0]


def ended(daemon: Served, message: str) -> Json:
    """Wait until a run about a message is over; return it."""
    begun(daemon, message)
    return until(
        lambda: [run for run in daemon.call("runs", message=message)["runs"] if run["state"] != "running"], "it ends"
    )[0]


def edits(daemon: Served, name: str, text: str) -> None:
    """Put a rule that edits in force, in a folder of its own that has a file."""
    ruled(daemon, [EDITS])
    folder = daemon.home / "workdirs" / f"edits-{hashlib.sha256(b'edits').hexdigest()[:6]}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def go_on(run: Json) -> None:
    """Let a program that holds tell one thing more."""
    path = Path(run["workdir"]) / "go"
    until(path.exists, "the program holds")
    with path.open("w", encoding="ascii") as pipe:
        pipe.write("go")
