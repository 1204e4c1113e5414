"""Commands in the shell of an agent are that agent's, whatever they say; and what `down` means to its edge."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from harken.config.home import is_locked
from harken.testing import EdgeClient, edge_command
from tests.cli.rig import Json, Rig
from tests.loss.rig import until

REFUSED = 7
SECONDS = 15.0
PYTHON = (sys.executable, "-I", "-S", "-c")
# A child that makes one call and prints the answer: there is no command for it.
CALL = """
import socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.settimeout(20)
stream.connect(sys.argv[1])
stream.sendall(b'{"harken":1,"kind":"call"}\\n' + sys.argv[2].encode() + b"\\n")
print(stream.makefile().readline())
"""


@contextmanager
def hosting(rig: Rig, name: str = "claude-code", prefix: Sequence[str] = ()) -> Iterator[EdgeClient]:
    """Be the host of an agent for the time of the block: commands that the test runs are then in its shell."""
    with EdgeClient([*prefix, *edge_command(rig.home)], name=name) as agent:
        agent.tool("inbound_queue_stats")
        yield agent
    until(lambda: not _is_hosting(rig), "the session is gone", SECONDS)


def _is_hosting(rig: Rig) -> bool:
    """Whether this process still counts as an agent: whatever runs next would be in its shell."""
    said = rig.run("status", "--json")
    return said.code == 0 and any(each["pid"] == os.getpid() for each in json.loads(said.out)["sessions"])


def ledger(rig: Rig, message: str) -> dict[str, str]:
    """Return the state of a message for each consumer."""
    return {line["consumer"]: line["state"] for line in rig.json("read", message)["ledger"]}


def texts(pulled: Json) -> list[str]:
    """Return what was pulled."""
    return [each["content_text_sanitized"] for each in pulled["messages"]]


def test_pull_in_an_agents_shell_reads_as_the_agent(rig: Rig) -> None:
    """A careless agent takes nothing away from the person, and what it was shown is its own."""
    message = rig.json("send", "sign the lease", "--from", "ann")["id"]
    with hosting(rig, "claude-code") as agent:
        assert texts(rig.json("pull")) == ["sign the lease"]
        assert rig.json("stats")["consumer"] == "claude-code"
        assert ledger(rig, message) == {"claude-code": "seen", "watch": "queued"}
        assert agent.tool("inbox_pull")["messages"] == []
    assert "sign the lease" in texts(rig.json("pull"))


@pytest.mark.parametrize(
    "words",
    [
        ("pull", "--consumer", "other"),
        ("pull", "--consumer", "watch"),
        ("stats", "--consumer", "watch"),
        ("wait", "--consumer", "watch", "--timeout", "0"),
        ("ack", "#1", "--consumer", "watch"),
        ("allow", "eve"),
        ("allow", "eve", "--as-owner"),
        ("deny", "amy"),
        ("pair",),
        ("mute", "channel", "ci"),
        ("send", "do it", "--from", "owner"),
        ("send", "do it", "--from", " You "),
    ],
    ids=" ".join,
)
def test_an_agents_shell_is_refused_what_is_the_persons(rig: Rig, words: tuple[str, ...]) -> None:
    """A message that talks a model into running it must fail there."""
    rig.ok("send", "something")
    with hosting(rig):
        before = rig.json("status")
        done = rig.run(*words)
        assert (done.code, done.out) == (REFUSED, "")
        assert done.err.startswith("harken: An agent may not ")
        after = rig.json("status")
    assert {name: after[name] for name in ("consumers", "senders", "mutes")} == {
        name: before[name] for name in ("consumers", "senders", "mutes")
    }


def test_what_an_agents_shell_sends_has_the_agents_id(rig: Rig) -> None:
    """It may say for whom it reports; whose word it is can be seen."""
    with hosting(rig):
        sent = rig.json("send", "wire the money", "--from", "boss", "--id", "build-9")["id"]
    message = rig.json("read", sent)["message"]
    assert (message["from"], message["sender_id"], message["trust"]) == ("boss", "agent:claude-code", "known")
    # Its ids are its own as well: the person's message of the same id is another one.
    assert rig.json("send", "the real one", "--id", "build-9")["state"] == "queued"


def test_an_agent_proves_only_its_own(rig: Rig) -> None:
    """An id that it read in a ledger does not let it mark somebody else's mail as seen."""
    message = rig.json("send", "for both")["id"]
    with hosting(rig, "one-reader") as reader:
        theirs = next(m for m in reader.tool("inbox_pull")["messages"] if m["id"] == message)["delivery_id"]
    with hosting(rig, "codex-mcp-client"):
        asked = {"id": 1, "method": "prove", "params": {"deliveries": [theirs]}}
        address = (rig.home / "run" / "address").read_text().strip().removeprefix("unix:")
        done = rig.run(address, json.dumps(asked), prefix=(*PYTHON, CALL))
        assert json.loads(done.out) == {"id": 1, "result": {"seen": []}}
    assert ledger(rig, message)["one-reader"] == "offered"


def test_what_another_client_started_is_the_persons(rig: Rig) -> None:
    """An editor speaks MCP too, and the person's own terminal may run inside of it."""
    with hosting(rig, "some-editor"):
        assert rig.json("stats")["consumer"] == "watch"


@pytest.mark.parametrize(
    ("host", "begun", "ended"),
    [
        ("codex", {"session_id": "h1", "hook_event_name": "UserPromptSubmit"}, "SessionEnd"),
        ("gemini-cli", {"session_id": "h1", "hook_event_name": "BeforeAgent"}, "SessionEnd"),
        ("qwen-code", {"session_id": "h1", "hook_event_name": "UserPromptSubmit"}, "SessionEnd"),
        ("copilot-cli", {"sessionId": "h1", "prompt": "hi"}, ""),
    ],
)
def test_hook_that_is_run_by_hand_makes_no_agent_of_the_shell(rig: Rig, host: str, begun: Json, ended: str) -> None:
    """Whoever tries what a hook says would be refused in their own terminal for as long as it is open."""
    rig.ok("hook", host, "prompt", stdin=json.dumps({"prompt": "hi", "cwd": "/", **begun}))
    assert [each["host"] for each in rig.json("status")["sessions"]] == [host]
    assert rig.json("stats")["consumer"] == "watch"
    rig.ok("hook", host, "end", stdin=json.dumps({**begun, "hook_event_name": ended, "reason": "other"}))


def test_an_open_edge_respects_down_and_works_again_after_up(fresh: Rig) -> None:
    """Whoever stopped Harken wants it stopped; the agent is told, and needs no restart of its own afterwards."""
    fresh.ok("up")
    # With a shell as its parent the edge has a host of its own, and the commands here are the person's.
    own_host = ("/bin/sh", "-c", '"$@"; exit $?', "host")
    with hosting(fresh, prefix=own_host) as agent:
        fresh.ok("down")
        for _ in range(2):
            error = agent.answer(agent.ask_tool("inbound_queue_stats"))["error"]
            assert "Harken was stopped with `harken down`" in error["message"]
        assert not is_locked(fresh.home / "run" / "lock")
        fresh.ok("up")
        sent = fresh.json("send", "back again")["id"]
        assert [each["id"] for each in agent.tool("inbox_pull")["messages"]] == [sent]
