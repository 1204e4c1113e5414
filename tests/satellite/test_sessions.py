"""What the main daemon knows of sessions on a satellite: who died, who may have gone on unheard, and who is meant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.loss.rig import until
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
    with main.knock(token) as socket, main.knock(token) as again:
        former = RawLink(socket)
        former.open(hook_lines("prompt", {"session_id": "s-1", **PROMPT}, 4711), pids=[4711])
        (session,) = until(lambda: main.served.call("status")["sessions"], "the session is known")
        until(lambda: main.served.call("status")["sessions"][0]["presence"] == "busy", "it is busy")
        RawLink(again)
        assert former.end()[0] == 4002
        until(lambda: main.served.call("status")["sessions"][0]["presence"] == "connected", "that is not known now")
        assert main.served.call("status")["sessions"][0]["session"] == session["session"]
