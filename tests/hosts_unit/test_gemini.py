"""Gemini CLI without Gemini CLI: what its payloads mean, what is printed for it, and what is written into its files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from harken.errors import UserError
from harken.hosts.connect.plan import ConnectOptions, FileEdit
from harken.hosts.gemini.connect import CONNECTOR, RULES
from harken.hosts.gemini.hooks import EVENTS, HOOKS, recorded
from harken.hosts.hook import Hello
from harken.sessions.turns import HookMoment
from tests.hosts_unit.rig import place_of

HELLO = Hello(cwd="/from/the/hook")
FILE = Path("settings.json")
BASE = {"session_id": "s-1", "cwd": "/work", "transcript_path": "/t.jsonl", "timestamp": "2026-01-05T09:00:00Z"}


def payload(event: str, **more: object) -> dict[str, object]:
    """Return a payload as Gemini 0.61 makes it."""
    return {**BASE, "hook_event_name": event, **more}


def test_each_event_is_its_moment() -> None:
    """The command says the moment, the payload the event; both have to fit, or a copied entry would lie."""
    for moment, event in EVENTS.items():
        found = HOOKS.event(moment, payload(event), HELLO)
        assert found is not None
        assert (found.moment, found.native, found.cwd, found.transcript) == (moment, "s-1", "/work", "/t.jsonl")
        others = [other for other in EVENTS if other is not moment]
        assert all(HOOKS.event(other, payload(event), HELLO) is None for other in others)


def test_tool_that_the_person_cancelled_ends_the_turn() -> None:
    """After Esc the tool's hook is the last thing that runs: what it would be told is not read."""
    said = "<untrusted_context>\nCommand was cancelled by user before it could complete. There was no output."
    found = HOOKS.event(HookMoment.TOOL, payload("AfterTool", tool_response={"llmContent": said}), HELLO)
    assert found is not None
    assert (found.moment, found.is_interrupted) == (HookMoment.STOP, True)


def test_tool_whose_output_only_speaks_of_a_cancel_is_a_tool() -> None:
    """Otherwise any file with these words in it would keep messages away."""
    for said in ("log: Command was cancelled by user", ["Command was cancelled by user"], None, 7):
        found = HOOKS.event(HookMoment.TOOL, payload("AfterTool", tool_response={"llmContent": said}), HELLO)
        assert found is not None
        assert (found.moment, found.is_interrupted) == (HookMoment.TOOL, False)


def test_cleared_conversation_keeps_its_process() -> None:
    """After /clear the same process goes on with another id; after anything else it is over."""
    for reason, keeps in (("clear", True), ("exit", False), ("", False)):
        found = HOOKS.event(HookMoment.END, payload("SessionEnd", reason=reason), HELLO)
        assert found is not None
        assert found.keeps_running is keeps


SETTINGS = b"""{
  // mine
  "ui": { "theme": "Default" },
  "mcpServers": { "other": { "command": "x" } },
  "hooks": { "AfterTool": [ { "hooks": [ { "type": "command", "command": "mine" } ] } ] }
}
"""


@pytest.mark.parametrize("before", [None, b"", b"{}\n", SETTINGS, b'{"a":1}'])
def test_what_was_put_in_comes_out_again(before: bytes | None, tmp_path: Path) -> None:
    """Somebody's settings with comments, or none at all, are afterwards what they were."""
    here = place_of(tmp_path)
    once = CONNECTOR.with_entries(before, here, file=FILE)
    assert CONNECTOR.with_entries(once, here, file=FILE) == once
    after = CONNECTOR.without_entries(once, file=FILE)
    assert after is not None
    assert b"harken" not in after
    if before == SETTINGS:
        assert after == SETTINGS


def test_other_entries_and_choices_of_the_person_stay(tmp_path: Path) -> None:
    """A timeout, or a variable for our server, is the person's business, also when they connect again."""
    first = CONNECTOR.with_entries(SETTINGS, place_of(tmp_path), file=FILE)
    chosen = first.replace(b'"timeout": 90000', b'"timeout": 5, "env": {"A": "b"}')
    again = CONNECTOR.with_entries(chosen, place_of(tmp_path / "moved"), file=FILE)
    assert b'"timeout": 5' in again
    assert b'"A": "b"' in again
    assert again.count(b'"command": "mine"') == 1
    assert str(tmp_path / "moved").encode() in again
    assert b"// mine" in again


def test_rules_allow_reading_and_not_writing_to_people() -> None:
    """An answer to a person leaves the machine: that stays the user's word."""
    assert b'"inbox_pull"' in RULES
    assert b'"reply"' not in RULES
    assert b'decision = "allow"' in RULES


def test_obstacles_are_found() -> None:
    """Settings that keep ours from working are the person's: they are told, not overruled."""
    data = b'{"hooksConfig":{"enabled":false,"disabled":["harken"]},"mcp":{"allowed":["x"],"excluded":["harken"]}}'
    assert len(list(CONNECTOR.obstacles(data, file=FILE))) == 4
    assert not list(CONNECTOR.obstacles(b'{"mcp":{"allowed":["harken"]}}', file=FILE))
    assert not list(CONNECTOR.obstacles(None, file=FILE))


def test_it_cannot_be_asked_to_wake(tmp_path: Path) -> None:
    """Somebody who asks for it must be told, not be left waiting."""
    assert CONNECTOR.wakes == {}
    with pytest.raises(UserError, match="no way to be woken"):
        CONNECTOR.plan(place_of(tmp_path), ConnectOptions(wake="anything"))
    assert "no way to be woken" in " ".join(CONNECTOR.plan(place_of(tmp_path), ConnectOptions()).notes)


def test_project_is_connected_in_its_own_folder_and_never_twice(tmp_path: Path) -> None:
    """Two sets of the same hooks would tell everything twice."""
    project = tmp_path / "project"
    plan = CONNECTOR.plan(place_of(tmp_path, project), ConnectOptions())
    paths = [step.path for step in plan.steps if isinstance(step, FileEdit)]
    own = tmp_path / "user" / ".gemini"
    settings = project / ".gemini" / "settings.json"
    assert paths == [settings, own / "policies" / "harken.toml", project / "GEMINI.md"]
    own.mkdir(parents=True)
    (own / "settings.json").write_bytes(CONNECTOR.with_entries(None, place_of(tmp_path), file=FILE))
    assert CONNECTOR.plan(place_of(tmp_path, project), ConnectOptions()).steps == ()


def run(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a hook as Gemini does."""
    return subprocess.run(["/bin/sh", "-c", line], input=b"{}", capture_output=True, timeout=10, check=False)


def test_hook_stays_silent_while_subagents_work(tmp_path: Path) -> None:
    """Nothing in a payload tells whose tool it was; what a subagent is told is lost for the agent."""
    here = place_of(tmp_path)
    edge = tmp_path / "edge"
    edge.mkdir()
    (edge / "hook.py").write_text("print('asked')\n", encoding="utf-8")
    bells = here.harken / "run" / "bells"
    bells.mkdir(parents=True)
    (bells / "gemini-cli").write_text("1", encoding="utf-8")
    lines = {(hook.event, hook.name): hook.line for hook in CONNECTOR.hooks(here)}
    begins, ends = lines["BeforeTool", "harken subagent"], lines["AfterTool", "harken subagent"]
    tool, prompt = lines["AfterTool", "harken"], lines["BeforeAgent", "harken"]
    asked, silent = b"asked\n", b""
    assert run(tool).stdout == asked
    assert run(begins).stdout == silent
    assert run(begins).stdout == silent
    assert run(tool).stdout == silent
    assert run(ends).stdout == silent, "one of two still works"
    assert run(ends).stdout == asked
    assert run(tool).stdout == asked
    assert run(begins).stdout == silent
    assert run(prompt).stdout == asked
    assert run(tool).stdout == asked, "what Esc left behind goes with the next prompt"


def test_hooks_of_a_home_that_is_gone_do_nothing(tmp_path: Path) -> None:
    """Somebody may delete Harken without disconnecting: no hook may fail, and none may make folders again."""
    for hook in CONNECTOR.hooks(place_of(tmp_path)):
        done = run(hook.line)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (tmp_path / "harken home").exists()


def test_record_proves_what_stands_before_a_new_answer() -> None:
    """Gemini writes an answer again when its tools are done, with what hooks added: that one was given before it."""
    call = json.dumps({"id": "a1", "type": "gemini", "content": ""}).encode()
    done = json.dumps({"id": "a1", "type": "gemini", "toolCalls": ["--- d-1 begins x --- d-1 ends"]}).encode()
    result = json.dumps({"id": "u1", "type": "user", "content": ["--- d-1 begins x --- d-1 ends"]}).encode()
    answer = json.dumps({"id": "a2", "type": "gemini", "content": "ok"}).encode()
    assert recorded([call, done, result], ["d-1"]) == set()
    assert recorded([call, done, result, done], ["d-1"]) == set()
    assert recorded([call, done, result, answer], ["d-1", "d-2"]) == {"d-1"}
    assert recorded([b"{", b"[1]", answer], ["d-1"]) == set()


def test_record_of_a_conversation_that_was_taken_back_proves_nothing_of_what_was_dropped() -> None:
    """The file goes on after the rewind; the answer below it is to another prompt."""
    result = json.dumps({"id": "u1", "type": "user", "content": ["--- d-1 begins x --- d-1 ends"]}).encode()
    other = json.dumps({"id": "u2", "type": "user", "content": ["--- d-2 begins x --- d-2 ends"]}).encode()
    answer = json.dumps({"id": "a2", "type": "gemini", "content": "ok"}).encode()
    for place in ("u1", "unknown"):
        rewind = json.dumps({"$rewindTo": place}).encode()
        assert recorded([result, rewind, other, answer], ["d-1", "d-2"]) == {"d-2"}
    later = json.dumps({"$rewindTo": "u2"}).encode()
    assert recorded([result, other, later, answer], ["d-1", "d-2"]) == {"d-1"}
