"""A rule's question in the real hosts: shown to the person at once, answered by their keys, unknown to the model.

Only the two hosts that are asked. What the others did: Gemini CLI, opencode and Qwen Code have no forms; Codex shows
one and does not take it away when it was answered elsewhere, so it is not asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from harken.daemon.confirmations import MIN_READING
from harken.testing import DaemonProcess
from tests.hosts.stage import Stage
from tests.hosts.story import assert_never, marker, send, sessions
from tests.hosts.terminal import Terminal
from tests.loss.rig import until

pytestmark = pytest.mark.parametrize("host", ["claude-code", "copilot-cli"], indirect=True)

READY_SECONDS: Final = 90.0
SHOWN_SECONDS: Final = 40.0
ASKED: Final = "Tools: read_file"
RULE: Final = {
    "name": "incident",
    "channel": "ci",
    "mode": "confirm",
    "prompt": "Say what this is about.",
    "tools": ["read_file"],
    "agent": "gemini-cli",
}
RIGHT: Final = "\x1b[C"
TITLES: Final = {"claude-code": "Claude Code", "copilot-cli": "Copilot CLI"}


@pytest.fixture(autouse=True)
def program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Gemini CLI that does nothing, for the rule to run: the daemon that starts later finds it."""
    stub = folder / "bin" / "gemini"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o700)
    monkeypatch.setenv("PATH", f"{stub.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def ruled(stage: Stage) -> Stage:
    """The host, connected, and a rule that asks."""
    triggers = stage.harken_home / "triggers.json"
    triggers.write_text(json.dumps({"rules": [RULE]}))
    triggers.chmod(0o600)
    stage.harken("rules", "reload")
    stage.harken("connect", stage.host.name, "--yes")
    return stage


@contextmanager
def used(stage: Stage) -> Iterator[Terminal]:
    """The host in tmux, idle after a turn."""
    with stage.tmux() as terminal:
        terminal.wait_for(stage.recipe.ready, READY_SECONDS)
        terminal.wait_quiet()
        terminal.submit("hello")
        until(lambda: [each["presence"] for each in sessions(stage)] == ["idle"], "an idle session", READY_SECONDS)
        yield terminal


def say_yes(stage: Stage, terminal: Terminal) -> None:
    """Press what a person presses for the second of three choices, after the time that reading takes."""
    terminal.wait_quiet(quiet_seconds=2 * MIN_READING.total_seconds())
    if stage.host.name == "claude-code":
        terminal.type(RIGHT)
        terminal.wait_for("decide later", SHOWN_SECONDS)
    terminal.press("down")
    terminal.wait_quiet()
    terminal.press("enter")
    if stage.host.name == "claude-code":
        terminal.wait_for("Answer: yes, run it", SHOWN_SECONDS)
        terminal.wait_quiet()
        terminal.press("enter")
    terminal.wait_for(lambda text: ASKED not in text, SHOWN_SECONDS)


def test_question_is_shown_and_answered_by_keys(ruled: Stage, daemon: DaemonProcess) -> None:
    """The person answers where they are; the model neither sees the question nor can answer it."""
    body = marker()
    with used(ruled) as terminal:
        send(ruled, body, "--from", "ci-bot", "--channel", "ci")
        shown = terminal.wait_for(ASKED, SHOWN_SECONDS)
        (action,) = daemon.call("actions")["actions"]
        wanted = (f"Run gemini-cli? Rule incident, {action['id']}", "Folder: a folder of its own", f"“ci”: “{body}”")
        assert [line for line in wanted if line not in shown] == []
        say_yes(ruled, terminal)
        until(lambda: daemon.call("actions", state="waiting")["actions"] == [], "answer", READY_SECONDS)
        (action,) = daemon.call("actions")["actions"]
        assert action["decided_by"] == f"you, in {TITLES[ruled.host.name]}"
        assert action["state"] in ("queued", "started")
    assert_never(ruled, "Rule incident")


def test_answer_elsewhere_takes_the_question_away_and_leaves_what_was_typed(
    ruled: Stage, daemon: DaemonProcess
) -> None:
    """A form that came unasked must not stay in the way, nor cost a prompt that is half written."""
    draft = marker()
    with used(ruled) as terminal:
        terminal.wait_quiet()
        terminal.type(draft)
        terminal.wait_for(draft, SHOWN_SECONDS)
        send(ruled, "red", "--from", "ci-bot", "--channel", "ci")
        terminal.wait_for(ASKED, SHOWN_SECONDS)
        (action,) = daemon.call("actions")["actions"]
        daemon.call("confirm", action=action["id"], yes=False)
        terminal.wait_for(lambda text: ASKED not in text and draft in text, SHOWN_SECONDS)


def test_headless_session_is_not_asked(ruled: Stage, daemon: DaemonProcess) -> None:
    """Nobody sits before it."""
    with ruled.model.hold(lambda asked: not asked.is_side) as hold, ruled.headless("hello") as running:
        hold.wait(READY_SECONDS)
        send(ruled, "red", "--from", "ci-bot", "--channel", "ci")
        until(lambda: len(daemon.call("actions", state="waiting")["actions"]) == 1, "question", READY_SECONDS)
        hold.release()
        assert running.finish().returncode == 0
    (action,) = daemon.call("actions")["actions"]
    assert (action["state"], action["decided_by"]) == ("waiting", "")
