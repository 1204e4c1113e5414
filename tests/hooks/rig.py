"""How each host runs its hooks, and a daemon to ask. Payloads have the fields that the real programs were seen to send.

A `Conversation` is one session of a host: it runs the real script for each moment and understands what it prints as the
host would. This module tests nothing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from harken.hosts.hook import Voice
from harken.hosts.registry import hook_host, host_named
from harken.sessions.turns import HookMoment
from harken.testing import EdgeClient, edge_command
from tests.loss.rig import Served, until

Json: TypeAlias = Any
"""Whatever the JSON says: tests look into it."""

CONFIG: Final = """
[[attention_rules]]
channel = "ci"
attention = "prompt"

[[attention_rules]]
channel = "desk"
attention = "boundary"

[projects.shop]
dirs = ["/code/shop"]
"""
SCRIPT: Final = Path(__file__).parents[2] / "src" / "harken" / "edge" / "hook.py"
HOOK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """What happens in a host: everything that any of them puts into a payload."""

    native: str
    turn: str
    prompt: str = ""
    is_held: bool = False
    is_interrupted: bool = False  # of the end of a turn
    results: Sequence[str] = ()  # the deliveries in a result of Harken's own tools
    agent: str = ""  # of a helper of the agent
    reason: str = "other"
    cwd: str = "/"


Words = Callable[[HookMoment, Say], Mapping[str, object]]


def _claude(moment: HookMoment, say: Say) -> Mapping[str, object]:
    events: Mapping[HookMoment, tuple[str, Mapping[str, object]]] = {
        HookMoment.START: ("SessionStart", {"source": "startup", "model": "m"}),
        HookMoment.PROMPT: ("UserPromptSubmit", {"prompt": say.prompt, "prompt_id": say.turn}),
        HookMoment.TOOL: ("PostToolBatch", {"tool_calls": [{"tool_name": "Bash"}], "prompt_id": say.turn}),
        HookMoment.STOP: ("Stop", {"stop_hook_active": say.is_held, "prompt_id": say.turn}),
        HookMoment.END: ("SessionEnd", {"reason": say.reason}),
        HookMoment.BELL: ("FileChanged", {"file_path": "bell", "event": "change"}),
    }
    event, more = events[moment]
    helper = {"agent_id": say.agent, "agent_type": "general"} if say.agent else {}
    return {
        "session_id": say.native, "transcript_path": "/nowhere/t.jsonl", "cwd": say.cwd, "hook_event_name": event,
        **more, **helper,
    }  # fmt: skip


def _copilot(moment: HookMoment, say: Say) -> Mapping[str, object]:
    more: Mapping[HookMoment, Mapping[str, object]] = {
        HookMoment.START: {"source": "new", "initialPrompt": say.prompt},
        HookMoment.PROMPT: {"prompt": say.prompt},
        HookMoment.TOOL: {"toolName": "bash", "toolResult": {"resultType": "success", "textResultForLlm": "x"}},
        HookMoment.STOP: {
            "transcriptPath": "/nowhere/e.jsonl",
            "stopReason": "end_turn",
            "stop_hook_active": say.is_held,
        },
        HookMoment.END: {"reason": "user_exit"},
    }
    helper = {"agentId": say.agent, "agentType": "task", "parentAgentId": say.native} if say.agent else {}
    native = say.agent or say.native
    return {"sessionId": native, "timestamp": 1794767098475, "cwd": say.cwd, **more[moment], **helper}


def _codex(moment: HookMoment, say: Say) -> Mapping[str, object]:
    events: Mapping[HookMoment, tuple[str, Mapping[str, object]]] = {
        HookMoment.START: ("Interrupt", {}),
        HookMoment.PROMPT: ("UserPromptSubmit", {"prompt": say.prompt}),
        HookMoment.TOOL: (
            "PostToolUse",
            {"tool_name": "Bash", "tool_input": {}, "tool_response": "x", "tool_use_id": "1"},
        ),
        HookMoment.STOP: ("Stop", {"stop_hook_active": say.is_held, "last_assistant_message": "done"}),
        HookMoment.END: ("SessionEnd", {"reason": "other"}),
    }
    event, more = events[moment]
    helper = {"agent_id": say.agent} if say.agent else {}
    return {
        "session_id": say.native, "turn_id": say.turn, "transcript_path": None, "cwd": say.cwd, "model": "m",
        "hook_event_name": event, "permission_mode": "default", **more, **helper,
    }  # fmt: skip


def _gemini(moment: HookMoment, say: Say) -> Mapping[str, object]:
    events: Mapping[HookMoment, tuple[str, Mapping[str, object]]] = {
        HookMoment.START: ("SessionStart", {"source": "startup"}),
        HookMoment.PROMPT: ("BeforeAgent", {"prompt": say.prompt}),
        HookMoment.TOOL: ("AfterTool", {"tool_name": "shell", "tool_input": {}, "tool_response": {"llmContent": "x"}}),
        HookMoment.STOP: ("AfterAgent", {"prompt": "p", "prompt_response": "r", "stop_hook_active": say.is_held}),
        HookMoment.END: ("SessionEnd", {"reason": say.reason}),
    }
    event, more = events[moment]
    return {
        "session_id": say.native, "transcript_path": "/nowhere/t.json", "cwd": say.cwd, "hook_event_name": event,
        "timestamp": "2026-11-15T18:19:36.766Z", **more,
    }  # fmt: skip


def _qwen(moment: HookMoment, say: Say) -> Mapping[str, object]:
    events: Mapping[HookMoment, tuple[str, Mapping[str, object]]] = {
        HookMoment.START: ("SessionStart", {"source": "startup"}),
        HookMoment.PROMPT: ("UserPromptSubmit", {"prompt": say.prompt, "submitted_prompt": say.prompt}),
        HookMoment.TOOL: ("UserPromptSubmit", {"prompt": ""}),
        HookMoment.STOP: ("Stop", {"stop_hook_active": say.is_held, "last_assistant_message": "done"}),
        HookMoment.END: ("SessionEnd", {"reason": say.reason}),
    }
    event, more = events[moment]
    if say.is_interrupted:
        event, more = "Notification", {"message": "waiting for your input", "notification_type": "idle_prompt"}
    helper = {"agent_id": say.agent} if say.agent else {}
    return {
        "session_id": say.native, "transcript_path": "/nowhere/t.jsonl", "cwd": say.cwd, "hook_event_name": event,
        "prompt_id": say.turn, **more, **helper,
    }  # fmt: skip


def _opencode(moment: HookMoment, say: Say) -> Mapping[str, object]:
    more: Mapping[HookMoment, Mapping[str, object]] = {
        HookMoment.PROMPT: {"prompt": say.prompt},
        HookMoment.TOOL: {"tool": "harken_inbox_pull" if say.results else "bash", "is_step": True},
        HookMoment.STOP: {"is_interrupted": say.is_interrupted},
        HookMoment.END: {},
    }
    return {"cwd": say.cwd, "session_id": say.native, "turn": say.turn, "results": list(say.results), **more[moment]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of host."""

    name: str
    client: str
    words: Words
    variable: str = ""  # that names the session to its MCP server
    names_turns: bool = True
    is_once_per_step: bool = False
    has_helpers: bool = True

    def speaks_as_user(self, moment: HookMoment) -> bool:
        """Whether the model takes what it is told at a moment for its user's word."""
        return hook_host(self.name).voices.get(moment, Voice.USER) is Voice.USER

    def most_chars(self, moment: HookMoment) -> int:
        """How much a moment can carry."""
        return hook_host(self.name).most_chars[moment]

    @property
    def most_stops(self) -> int:
        """How often in a row the end of its turn may be held up."""
        return hook_host(self.name).most_stops


CLAUDE: Final = Kind(name="claude-code", client="claude-code", words=_claude, is_once_per_step=True)
COPILOT: Final = Kind(
    name="copilot-cli", client="copilot-cli", words=_copilot, variable="COPILOT_AGENT_SESSION_ID", names_turns=False
)
CODEX: Final = Kind(name="codex", client="codex-mcp-client", words=_codex)
GEMINI: Final = Kind(
    name="gemini-cli", client="gemini-cli-mcp-client", words=_gemini, names_turns=False, has_helpers=False
)
QWEN: Final = Kind(
    name="qwen-code",
    client="qwen-cli-mcp-client-harken",
    words=_qwen,
    variable="QWEN_CODE_SESSION_ID",
    is_once_per_step=True,
)
# Its plugin is told plain text and puts it into place: there is no JSON to be understood, only what was printed.
OPENCODE: Final = Kind(name="opencode", client="opencode", words=_opencode, is_once_per_step=True)
KINDS: Final = (CLAUDE, COPILOT, CODEX, GEMINI, QWEN)


@dataclass(frozen=True, slots=True)
class Printed:
    """What a hook left behind."""

    code: int
    out: str
    err: str

    @property
    def is_silent(self) -> bool:
        """Whether it said nothing at all."""
        return (self.code, self.out, self.err) == (0, "", "")

    @property
    def text(self) -> str:
        """What the host passes on to its model: the one string that all of the JSON is about."""
        if self.code:
            return self.err
        if not self.out:
            return ""
        said = json.loads(self.out)
        said = said.get("hookSpecificOutput", said)
        return str(said.get("additionalContext") or said.get("reason") or "")


def hook_process(
    home: Path,
    host: str,
    moment: str,
    *options: str,
    env: Mapping[str, str] | None = None,
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start the script as a host does, its input still open."""
    command = [sys.executable, "-I", "-S", str(SCRIPT), "--home", str(home), host, moment, *options]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath, **(env or {})},
        cwd="/",
    )


def run_hook(
    home: Path, host: str, moment: str, payload: bytes, *options: str, env: Mapping[str, str] | None = None
) -> Printed:
    """Run the script to its end."""
    with hook_process(home, host, moment, *options, env=env) as process:
        out, err = process.communicate(payload, HOOK_SECONDS)
    return Printed(process.returncode, out.decode(), err.decode())


@dataclass(slots=True, kw_only=True)
class Conversation:
    """One session of a host."""

    kind: Kind
    home: Path
    native: str = "0b6f-1"
    turn: str = "t1"
    pid: int = field(default_factory=os.getpid)
    cwd: str = "/"
    options: Sequence[str] = ()  # what else the commands of its hooks say

    @property
    def key(self) -> str:
        """What Harken calls it."""
        return f"{self.kind.name}:{self.pid if self.kind is CLAUDE else self.native}"

    @property
    def env(self) -> dict[str, str]:
        """What its hooks find in their environment: a mark of the host, without which somebody has run them by hand."""
        if self.kind is CLAUDE:
            return {"CLAUDE_PID": str(self.pid)}
        marks = host_named(self.kind.name).marks
        return {marks.session or marks.process: self.native if marks.session else str(self.pid)}

    def payload(self, moment: HookMoment, **more: Json) -> bytes:
        """Return what the host writes to a hook."""
        return json.dumps(
            self.kind.words(moment, Say(native=self.native, turn=self.turn, cwd=self.cwd, **more))
        ).encode()

    def run(self, moment: HookMoment, **more: Json) -> Printed:
        """Run a hook; what is there to print must be printed without complaint."""
        payload = self.payload(moment, **more)
        printed = run_hook(self.home, self.kind.name, self.argument(moment), payload, *self.options, env=self.env)
        assert printed.code == 0 or (moment is HookMoment.BELL and printed.code == 2)
        assert not printed.err or moment is HookMoment.BELL
        return printed

    def argument(self, moment: HookMoment) -> str:
        """Which moment the command of a hook names: Qwen has no hook of its own between two tools."""
        return "prompt" if self.kind is QWEN and moment is HookMoment.TOOL else moment.value

    def prompt(self, text: str = "go on", *, turn: str = "") -> str:
        """Submit a prompt, in a turn of its own if that is named; return what goes with it."""
        self.turn = turn or self.turn
        return self.run(HookMoment.PROMPT, prompt=text).text

    def tool(self) -> str:
        """Run a tool; return what the model is told."""
        return self.run(HookMoment.TOOL).text

    def stop(self, *, is_held: bool = False) -> str:
        """End the turn; return what keeps it going."""
        return self.run(HookMoment.STOP, is_held=is_held).text

    def interrupt(self) -> None:
        """Let the person stop the turn, on a host that says so."""
        moment = HookMoment.START if self.kind is CODEX else HookMoment.STOP
        assert self.run(moment, is_interrupted=True).is_silent

    def agent(self) -> EdgeClient:
        """Start its MCP server; it is ready when the context is entered."""
        env = {self.kind.variable: self.native} if self.kind.variable else {}
        return EdgeClient([*edge_command(self.home), "--spawn", "/bin/true"], name=self.kind.client, environment=env)


@dataclass(frozen=True, slots=True)
class DaemonFixture:
    """A daemon, and the sessions of hosts that its hooks are run for."""

    daemon: Served

    def session(self, kind: Kind, native: str = "0b6f-1", **more: Json) -> Conversation:
        """Return a conversation of a host."""
        return Conversation(kind=kind, home=self.daemon.home, native=native, **more)

    def send(self, text: str, **more: str) -> str:
        """Send as the owner, or as somebody they know; return the message's id."""
        return str(self.daemon.call("send", text=text, **more)["id"])

    def ledger(self, message: str, consumer: str) -> Json:
        """Return one consumer's line of a message's ledger."""
        (line,) = [each for each in self.daemon.call("read", ref=message)["ledger"] if each["consumer"] == consumer]
        return line

    def state(self, message: str, consumer: str) -> str:
        """Return how far a message got with a consumer."""
        return str(self.ledger(message, consumer)["state"])

    def sessions(self) -> Sequence[Json]:
        """Return who is here."""
        return list(self.daemon.call("status")["sessions"])

    def presence(self, guest: Conversation) -> str:
        """Return what a conversation is doing; empty when it is not here."""
        return next((str(each["presence"]) for each in self.sessions() if each["session"] == guest.key), "")

    def bell(self, host: str) -> Path:
        """Return the path of a host's bell."""
        return self.daemon.home / "run" / "bells" / host

    def is_ringing(self, host: str) -> bool:
        """Whether a host's after-tool hooks would ask."""
        bell = self.bell(host)
        return bell.exists() and bell.stat().st_size > 0

    def wait_bell(self, host: str, *, is_on: bool) -> None:
        """Return when a bell is as it should be."""
        until(lambda: self.is_ringing(host) == is_on, f"the bell of {host} {'rings' if is_on else 'is silent'}", 10)


class RawHook:
    """A hook that a test controls byte by byte, to be killed at any point."""

    def __init__(self, guest: Conversation, path: str) -> None:
        self._guest = guest
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)

    def ask(self, moment: HookMoment, **more: Json) -> bytes:
        """Send the question; return the whole answer, of which nothing was printed."""
        payload = self._guest.payload(moment, **more)
        hello = {
            "harken": 1, "kind": "hook", "host": self._guest.kind.name, "moment": self._guest.argument(moment),
            "payload": len(payload), "pid": 0, "ppid": os.getpid(), "cwd": "/", "env": self._guest.env, "token": "",
        }  # fmt: skip
        self._socket.sendall(json.dumps(hello).encode() + b"\n" + payload)
        answer = b""
        while b"\n" not in answer:
            answer += self._receive()
        head, _, rest = answer.partition(b"\n")
        _code, out, err = (int(number) for number in head.split(b" "))
        while len(rest) < out + err:
            rest += self._receive()
        return rest

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError
        return data

    def die(self) -> None:
        """Go away without having printed."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.die()
