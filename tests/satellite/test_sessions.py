"""What the main daemon knows of sessions on a satellite: who died, who may have gone on unheard, and who is meant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.loss.rig import Wire, until
from tests.satellite.rig import MainDaemon, Pair, RawLink, hook_lines
from tests.satellite.test_cuts import hook

START = {"hook_event_name": "SessionStart", "source": "startup"}
PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "go on"}


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a host."""
    with subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.kill()


def said(payload: dict[str, str], session: str) -> bytes:
    """The payload of a hook."""
    return json.dumps({"session_id": session, **payload}).encode()


def test_session_that_follows_a_killed_one_is_told_at_its_first_prompt(pair: Pair) -> None:
    """The machine says that a process is gone before the next session speaks, however seldom it looks."""
    with process() as former, process() as later:
        hook(pair, "start", said(START, "s-1"), pid=former.pid)
        pair.main.served.call("send", text="mind the gap")
        assert "mind the gap" in hook(pair, "prompt", said(PROMPT, "s-1"), pid=former.pid)
        former.kill()
        former.wait()
        hook(pair, "start", said(START, "s-2"), pid=later.pid)
        again = hook(pair, "prompt", said(PROMPT, "s-2"), pid=later.pid)
        assert "mind the gap" in again
        assert "offered before" in again
        (session,) = pair.main.served.call("status")["sessions"]
        assert session["session"] == f"claude-code:{later.pid}@buildbox"


def test_session_of_a_link_that_was_replaced_may_have_ended_its_turn(main: MainDaemon) -> None:
    """A satellite that connects anew was unheard for a time: what its sessions were doing is not known any more."""
    token = main.start().token("buildbox")
    with main.knock(token) as socket, ExitStack() as stack:
        former = RawLink(socket)
        former.open(hook_lines("prompt", {"session_id": "s-1", **PROMPT}, 4711), pids=[4711])
        (session,) = until(lambda: main.served.call("status")["sessions"], "the session is known")
        until(lambda: main.served.call("status")["sessions"][0]["presence"] == "busy", "it is busy")
        RawLink(stack.enter_context(main.knock(token)))
        assert former.end()[0] == 4002
        until(lambda: main.served.call("status")["sessions"][0]["presence"] == "connected", "that is not known now")
        assert main.served.call("status")["sessions"][0]["session"] == session["session"]


def agent_lines(edge: str) -> bytes:
    """What an edge says that gives itself this name, for an agent that pulls."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "strange", "version": "1"}}
    said: list[dict[str, object]] = [
        {"harken": 1, "kind": "mcp", "edge": edge, "cwd": "/w"},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "inbox_pull", "arguments": {}}},
    ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in said)


def test_edge_of_a_satellite_is_never_taken_for_one_of_another_machine(main: MainDaemon) -> None:
    """An edge gives itself its name: what another machine's agent was given is not its to prove, or to have."""
    token = main.start().token("buildbox")
    with Wire(main.served.socket) as here, main.knock(token) as socket:
        here.say(agent_lines("a1b2c3d4e5f6"))
        until(lambda: len(main.served.call("status")["sessions"]) == 1, "the agent here is known")
        RawLink(socket).open(agent_lines("a1b2c3d4e5f6"), pids=[4711])
        sessions = until(
            lambda: len(found := main.served.call("status")["sessions"]) == 2 and found, "both agents are known"
        )
    assert sorted(each["machine"] == "buildbox" for each in sessions) == [False, True]
