"""Who asks on a satellite: it is looked at there, and decided here; an agent there is not the person."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from harken.testing import CallFailed
from tests.loss.rig import WAIT_SECONDS, Json, Wire, agent_of, until
from tests.satellite.rig import Pair

ASK = """
import json, os, socket, sys
path, method, params = sys.argv[1:4]
sock = socket.socket(socket.AF_UNIX)
sock.connect(path)
file = sock.makefile("rwb")
call = {"id": 1, "method": method, "params": json.loads(params)}
file.write(b'{"harken":1,"kind":"call"}\\n' + json.dumps(call).encode() + b"\\n")
file.flush()
print(file.readline().decode())
"""


def answer(pair: Pair, method: str, marks: Mapping[str, str], **params: object) -> Json:
    """What the daemon of the satellite answers to a program with these marks in its environment."""
    command = [sys.executable, "-I", "-c", ASK, pair.satellite.socket, method, json.dumps(params)]
    environ = {"PATH": os.defpath, **marks}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True)
    return json.loads(done.stdout)


def test_person_on_a_satellite_is_the_person(pair: Pair) -> None:
    """A program without marks that descends from no agent."""
    assert answer(pair, "whoami", {})["result"]["role"] == "owner"


def test_program_with_the_mark_of_a_host_is_an_agent(pair: Pair) -> None:
    """It may not do what only the person may."""
    marks = {"CLAUDECODE": "1"}
    assert answer(pair, "whoami", marks)["result"] == {"role": "agent", "consumer": "claude-code"}
    assert answer(pair, "allow", marks, sender="x")["error"]["code"] == "refused"


def test_program_of_a_run_is_the_runs(pair: Pair) -> None:
    """A run has left its mark: it is nobody else, on any machine."""
    said = answer(pair, "whoami", {"HARKEN_RUN": "r-1"})["result"]
    assert (said["role"], said["consumer"]) == ("agent", "rules")


def test_child_of_an_agents_process_is_the_agent(pair: Pair) -> None:
    """The hook of a session names its process; what that starts is the session's, without any mark."""
    payload = json.dumps({"session_id": "s-1", "hook_event_name": "SessionStart", "source": "startup"}).encode()
    hello = {"harken": 1, "kind": "hook", "host": "claude-code", "moment": "start", "payload": len(payload)}
    hello |= {"ppid": os.getpid(), "cwd": "/w", "env": {"CLAUDECODE": "1", "CLAUDE_PID": str(os.getpid())}}
    with Wire(pair.satellite.socket, hello) as wire:
        wire.say(payload)
        wire.line()
        wire.say(b"+")
    (session,) = until(lambda: pair.main.served.call("status")["sessions"], "the session is known")
    assert (session["session"], session["machine"]) == (f"claude-code:{os.getpid()}@buildbox", "buildbox")
    assert answer(pair, "whoami", {})["result"] == {"role": "agent", "consumer": "claude-code"}
    # The same number on the main machine is another process: it is the person's.
    assert pair.main.served.call("whoami")["role"] == "owner"


def test_satellite_makes_no_tokens_and_signs_in_to_no_page(pair: Pair) -> None:
    """What lets others in is decided on the main machine."""
    for method, params in (("token_new", {"name": "other"}), ("token_revoke", {"name": "buildbox"}), ("sign_in", {})):
        with pytest.raises(CallFailed) as caught:
            pair.satellite.call(method, **params)
        assert (caught.value.error["code"], caught.value.error["hint"]) == ("refused", "Do it on the main machine.")
    assert [each["name"] for each in pair.main.served.call("token_list")["tokens"]] == ["buildbox"]


def test_agent_on_a_satellite_reads_no_task_by_its_folder(pair: Pair) -> None:
    """The folder of a task is on the main machine; the same path elsewhere is another folder."""
    pair.main.served.call("task_new", title="paint the roof", id="roof", dir=str(Path.cwd()))
    with agent_of(pair.satellite.home) as agent:
        agent.tool("inbox_pull")
        (session,) = pair.main.served.call("status")["sessions"]
    assert session["mailboxes"] == ["inbox"]
