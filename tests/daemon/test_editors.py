"""`harken acp`: an editor of our own, the program between, an agent of our own, and a real daemon.

The agent stands where Gemini CLI would be and notes what it is told. What the editor is told is read here, line by
line. Clients that others wrote are in tests/interop, real agents in tests/hosts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harken.testing import DaemonProcess
from tests.daemon.test_hosted import AGENT, served
from tests.loss.rig import Json, until

BOUND_SECONDS = 60.0


class Editor:
    """An editor: it says lines to its agent, and keeps what it hears."""

    def __init__(self, daemon: DaemonProcess, folder: Path, *words: str, **environ: str) -> None:
        root = folder.parent
        path = os.pathsep.join((str(root / "bin"), "/usr/bin", "/bin"))
        given = {"HOME": str(root), "PATH": path, "HARKEN_HOME": str(daemon.home), "AGENT_SPEAKS": "1"} | environ
        command = [sys.executable, "-I", "-m", "harken", "acp", *(words or ("gemini",))]
        self.process = subprocess.Popen(
            command, cwd=folder, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.daemon, self.folder = daemon, folder
        self.heard: list[Json] = []
        self.complaints: list[str] = []
        self.session = ""
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for each in self._readers:
            each.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.heard.append(json.loads(line))

    def _read_errors(self) -> None:
        for line in self.process.stderr or ():
            self.complaints.append(line.decode())

    def say(self, said: Mapping[str, object]) -> None:
        """Say something to the agent."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **said}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, number: object) -> Json:
        """Return the answer to a request, once it is there."""
        return until(lambda: [each for each in self.heard if each.get("id") == number and "method" not in each])[0]

    def ask(self, number: object, method: str, **params: object) -> Json:
        """Ask the agent, and return its answer."""
        self.say({"id": number, "method": method, "params": params})
        return self.answer(number)

    def begin(self) -> None:
        """Greet the agent, and begin a conversation that the daemon knows of."""
        self.ask(0, "initialize", protocolVersion=1, clientCapabilities={})
        self.session = self.ask("new", "session/new", cwd=str(self.folder), mcpServers=[])["result"]["sessionId"]
        until(lambda: self.known, "the daemon knows it")

    def prompt(self, number: object, text: str) -> None:
        """Prompt the agent."""
        prompt = [{"type": "text", "text": text}]
        self.say({"id": number, "method": "session/prompt", "params": {"sessionId": self.session, "prompt": prompt}})

    @property
    def known(self) -> list[Json]:
        """The session, as the daemon knows it."""
        return [each for each in self.daemon.call("status")["sessions"] if each["is_hosted"]]

    def until_presence(self, presence: str) -> None:
        """Return when the session is idle, or busy and its agent has the prompt."""
        until(lambda: [each["presence"] for each in self.known] == [presence], f"it is {presence}: {self.known}")
        until(lambda: self.prompts or presence != "busy", "the agent has the prompt")

    def told(self, kind: str) -> list[Json]:
        """Return the updates of a kind that it was told."""
        updates = [each["params"]["update"] for each in self.heard if each.get("method") == "session/update"]
        return [each for each in updates if each["sessionUpdate"] == kind]

    @property
    def questions(self) -> list[Json]:
        """What it was asked."""
        return [each for each in self.heard if each.get("method") == "session/request_permission"]

    @property
    def agent_heard(self) -> list[Json]:
        """What the agent was told."""
        notes = self.folder / "heard.jsonl"
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    @property
    def prompts(self) -> list[str]:
        """What the agent was prompted."""
        said = [each for each in self.agent_heard if each.get("method") == "session/prompt"]
        return [each["params"]["prompt"][0]["text"] for each in said]

    @property
    def agent(self) -> psutil.Process:
        """The process of the agent."""
        below = {each.pid for each in psutil.Process(self.process.pid).children(recursive=True)}
        found = [each for each in psutil.process_iter(["pid", "cmdline"]) if each.info["pid"] in below]
        ours = [each for each in found if str(AGENT) in (each.info["cmdline"] or [])]
        return next(each for each in ours if "reaper.py" not in " ".join(each.info["cmdline"]))

    def send(self, text: str) -> str:
        """Send the agent a message, as you."""
        return str(self.daemon.call("send", text=text, priority="high")["id"])

    def state(self, message: str) -> str:
        """What became of a message for the agent."""
        lines = self.daemon.call("read", ref=message)["ledger"]
        return next((str(each["state"]) for each in lines if each["consumer"] == "gemini-cli"), "")

    def close(self) -> None:
        """End it, and all that it has started."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND_SECONDS)
        for each in self._readers:
            each.join(BOUND_SECONDS)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


@contextmanager
def editing(root: Path, *words: str, **environ: str) -> Iterator[Editor]:
    """An editor with an open conversation."""
    folder = root / "project"
    folder.mkdir()
    os.mkfifo(folder / "go")
    with served(root) as daemon:
        editor = Editor(daemon, folder, *words, **environ)
        try:
            editor.begin()
            yield editor
        finally:
            editor.close()


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    """The same, in version 1 of the protocol."""
    with editing(tmp_path) as running:
        yield running


def go(editor: Editor) -> None:
    """Let the agent end the turn that it holds."""
    (editor.folder / "go").write_text("\n")


def test_everything_passes_through_as_it_is(editor: Editor) -> None:
    """Also what no version of the protocol knows: an editor and its agent are not in each other's way."""
    thing = {"jsonrpc": "2.0", "method": "_vendor/thing", "params": {"é": ["\u2028", 1.0, None]}, "extra": True}
    editor.say(thing)
    editor.prompt("p-1", "Look at it.")
    assert editor.answer("p-1") == {"jsonrpc": "2.0", "id": "p-1", "result": {"stopReason": "end_turn"}}
    said = until(lambda: [each for each in editor.agent_heard if each.get("method") == "_vendor/thing"])
    assert said == [
        {"jsonrpc": "2.0", "method": "_vendor/thing", "params": {"é": ["\u2028", 1.0, None]}, "extra": True}
    ]
    assert [each["content"]["text"] for each in editor.told("agent_message_chunk")] == ["I have ", "read it."]
    assert editor.prompts == ["Look at it."]


def test_conversation_gets_the_tools_of_the_inbox(editor: Editor) -> None:
    """Outsiders' words come through a tool; a server of that name that the editor has given already is left alone."""
    (new,) = [each["params"] for each in editor.agent_heard if each.get("method") == "session/new"]
    (server,) = new["mcpServers"]
    assert server["name"] == "harken"
    assert server["args"][-1] == str(editor.daemon.home)


def test_idle_agent_is_told_and_the_editor_shows_it(editor: Editor) -> None:
    """The message starts a turn; the editor is told what was said, as if it had been typed there."""
    message = editor.send("Look at the login page.")
    until(lambda: editor.state(message) == "seen", "it is proven")
    assert len(editor.prompts) == 1
    assert "Look at the login page." in editor.prompts[0]
    assert [each["content"]["text"] for each in editor.told("user_message_chunk")] == editor.prompts
    assert [each for each in editor.heard if str(each.get("id", "")).startswith("harken")] == []


def test_busy_agent_is_told_when_the_turn_of_the_editor_is_over(editor: Editor) -> None:
    """Most agents cancel the tool that runs when they are prompted again."""
    editor.prompt(1, "HOLD this.")
    editor.until_presence("busy")
    message = editor.send("Second thought.")
    assert editor.prompts == ["HOLD this."]
    go(editor)
    until(lambda: editor.state(message) == "seen", "it follows")
    assert editor.answer(1)["result"]["stopReason"] == "end_turn"
    assert len(editor.prompts) == 2


def test_prompt_of_the_editor_waits_for_the_turn_of_a_message(editor: Editor) -> None:
    """The agent never gets a second prompt into a turn, and the editor's is the next one."""
    editor.send("HOLD this.")
    editor.until_presence("busy")
    editor.prompt(1, "And this.")
    other = editor.send("Later.")
    assert editor.ask(2, "session/close", sessionId="another")["result"] == {}  # only prompts wait
    assert len(editor.prompts) == 1
    go(editor)
    assert editor.answer(1)["result"]["stopReason"] == "end_turn"
    until(lambda: editor.state(other) == "seen", "the message comes after it")
    assert editor.prompts[1] == "And this."


def test_cancelled_turn_of_a_message_also_cancels_the_prompt_that_waits(editor: Editor) -> None:
    """Stop means stop for whoever looks at the editor: what was typed meanwhile is not begun either."""
    editor.send("HOLD this.")
    editor.until_presence("busy")
    editor.prompt(1, "And this.")
    editor.say({"method": "session/cancel", "params": {"sessionId": editor.session}})
    assert editor.answer(1)["result"] == {"stopReason": "cancelled"}
    editor.until_presence("idle")
    assert len(editor.prompts) == 1


def test_question_is_answered_elsewhere_first(editor: Editor) -> None:
    """The editor is told that it is called off, and its late answer does not reach the agent."""
    editor.prompt(1, "ASK me.")
    asked = until(lambda: editor.daemon.call("approvals")["approvals"], "it asks")[0]
    assert asked["arguments"]["command"] == "touch made"
    (question,) = until(lambda: editor.questions)
    editor.daemon.call("approve", approval=asked["id"], choice="once", digest=asked["digest"])
    assert editor.answer(1)["result"]["stopReason"] == "end_turn"
    off = until(lambda: [each for each in editor.heard if each.get("method") == "$/cancel_request"])
    assert off[0]["params"] == {"requestId": question["id"]}
    outcome = {"outcome": {"outcome": "selected", "optionId": "no"}}
    editor.say({"id": question["id"], "result": outcome})
    editor.prompt(2, "Go on.")
    editor.answer(2)
    answers = [each for each in editor.agent_heard if each.get("id") == question["id"] and "method" not in each]
    assert [each["result"]["outcome"]["optionId"] for each in answers] == ["yes"]
    assert (editor.folder / "made").exists()


def test_question_is_answered_in_the_editor_first(editor: Editor) -> None:
    """Elsewhere it is withdrawn at once, and says what was answered where."""
    editor.prompt(1, "ASK me.")
    asked = until(lambda: editor.daemon.call("approvals")["approvals"], "it asks")[0]
    (question,) = until(lambda: editor.questions)
    editor.say({"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "no"}}})
    editor.answer(1)
    found = until(lambda: [each for each in editor.daemon.call("approvals", all=True)["approvals"] if each["ended_at"]])
    assert (found[0]["id"], found[0]["state"]) == (asked["id"], "withdrawn")
    assert "answered in the editor: Reject" in json.dumps(found[0])
    assert not (editor.folder / "made").exists()


def test_killed_daemon_costs_the_editor_nothing_and_the_next_one_is_asked_again(editor: Editor) -> None:
    """While there is none, everything passes through; nothing is allowed, and the question stays in the editor."""
    editor.prompt(1, "ASK me.")
    asked = until(lambda: editor.daemon.call("approvals")["approvals"], "it asks")[0]
    editor.daemon.kill()
    editor.daemon.start()
    again = until(lambda: editor.daemon.call("approvals")["approvals"], "it asks again")[0]
    assert again["id"] != asked["id"]
    assert not (editor.folder / "made").exists()
    editor.until_presence("busy")
    editor.daemon.call("approve", approval=again["id"], choice="once", digest=again["digest"])
    assert editor.answer(1)["result"]["stopReason"] == "end_turn"
    message = editor.send("Go on.")
    until(lambda: editor.state(message) == "seen", "it is prompted again")


@pytest.mark.parametrize("said", ["", "HOLD this.", "ASK me."])
def test_killed_agent_ends_the_program_between(editor: Editor, said: str) -> None:
    """The editor sees that its agent is gone, and nothing waits for it elsewhere."""
    if said:
        editor.prompt(1, said)
        editor.until_presence("busy")
    editor.agent.kill()
    assert editor.process.wait(BOUND_SECONDS) != 0
    until(lambda: not editor.known and not editor.daemon.call("approvals")["approvals"], "nothing is left")


@pytest.mark.parametrize("said", ["", "HOLD this.", "ASK me."])
def test_killed_program_between_leaves_no_agent(editor: Editor, said: str) -> None:
    """What it started ends with it, and what was asked is withdrawn."""
    if said:
        editor.prompt(1, said)
        editor.until_presence("busy")
    agent = editor.agent
    editor.process.kill()
    until(lambda: not agent.is_running() or agent.status() == psutil.STATUS_ZOMBIE, "the agent ends")
    until(lambda: not editor.known and not editor.daemon.call("approvals")["approvals"], "nothing is left")
    assert not (editor.folder / "made").exists()


@pytest.mark.parametrize("step", ["", "HOLD this.", "own"])
def test_killed_daemon_comes_back_to_the_turn_that_goes_on(editor: Editor, step: str) -> None:
    """Whoever began the turn, the next daemon waits for its end, and nothing is lost."""
    first = ""
    if step == "own":
        first = editor.send("HOLD this.")
        editor.until_presence("busy")
    elif step:
        editor.prompt(1, step)
        editor.until_presence("busy")
    editor.daemon.kill()
    editor.daemon.start()
    editor.until_presence("busy" if step else "idle")
    message = editor.send("Second thought.")
    if step:
        assert len(editor.prompts) == 1
        go(editor)
    until(lambda: editor.state(message) == "seen", "it follows")
    if first:
        until(lambda: editor.state(first) == "seen", "so is the first")


def test_editor_that_hangs_up_ends_its_agent(editor: Editor) -> None:
    """Nothing is left of it, and the exit code is the agent's."""
    agent = editor.agent
    assert editor.process.stdin
    editor.process.stdin.close()
    assert editor.process.wait(BOUND_SECONDS) == 0
    assert not agent.is_running()
    until(lambda: not editor.known, "the daemon knows it no more")


def test_terminated_program_ends_its_agent(editor: Editor) -> None:
    """Editors end what they have started with a signal."""
    agent = editor.agent
    editor.process.send_signal(signal.SIGTERM)
    editor.process.wait(BOUND_SECONDS)
    assert not agent.is_running()


def test_version_2_is_passed_on_and_proven_by_the_id_of_the_message(tmp_path: Path) -> None:
    """The agent reports what was said where it has put it, to the editor too: nothing is added there."""
    with editing(tmp_path, AGENT_SPEAKS="2") as editor:
        message = editor.send("HOLD this, SILENT.")
        until(lambda: editor.state(message) == "seen", "it is proven")
        editor.until_presence("busy")
        editor.prompt(1, "And this.")
        go(editor)
        editor.answer(1)
        assert editor.told("user_message_chunk") == []
        assert len(editor.told("user_message")) == 2
        editor.until_presence("idle")


def test_any_command_is_an_agent(tmp_path: Path) -> None:
    """One that no host declares reads as what its program is called."""
    with editing(tmp_path, "--", sys.executable, str(AGENT)) as editor:
        (known,) = editor.known
        assert known["host"] == "generic"
        assert known["consumer"].startswith("python")


def test_stopped_harken_is_not_started_and_the_editor_works(editor: Editor) -> None:
    """The inbox is what the editor can do without."""
    editor.daemon.stop()
    until(lambda: any("the inbox is not here" in each for each in editor.complaints), "it says so")
    editor.prompt(1, "Look at it.")
    assert editor.answer(1)["result"]["stopReason"] == "end_turn"
