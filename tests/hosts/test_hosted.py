"""Tasks that the daemon hosts, with real agents over the Agent Client Protocol: woken, told, asked and stopped.

There is no terminal. What arrived is read on the model's wire, what Harken believes in its ledger, what ran on the
disk.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from harken.testing import DaemonProcess
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.stage import Stage
from tests.hosts.story import ARRIVAL_SECONDS, STEP_SECONDS, arrived, ledger, marker
from tests.loss.rig import until
from tests.workspaces.repos import commit

hosted_ones = pytest.mark.parametrize("host", ["gemini-cli", "opencode", "qwen-code", "copilot-cli"], indirect=True)
WORKTREE: Final = "project.worktrees"


@pytest.fixture
def hosting(bare_stage: Stage) -> Iterator[Stage]:
    """The host, and a daemon with the person's environment, so that it finds what they would find."""
    stage = bare_stage
    env = shutil.which("env")
    assert env
    given = [f"{name}={value}" for name, value in stage.environment.items()]
    serve = (sys.executable, "-I", "-m", "harken", "serve", "--home", str(stage.harken_home))
    daemon = DaemonProcess(stage.harken_home, (env, "-i", *given, *serve)).start()
    commit(stage.project, "README.md")
    # The host is told to trust the folder of the task, as a person would tell it.
    stage.recipe.prepare(stage.user, folder(stage), stage.model.url)
    (stage.user / ".npmrc").write_text("offline=true\n")
    if stage.host.name == "opencode":
        file = stage.user / ".config" / "opencode" / "opencode.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "permission": {"bash": "ask"}}))
    try:
        yield stage
    finally:
        daemon.stop()


def folder(stage: Stage) -> Path:
    """Return the folder of the task."""
    return stage.folder / WORKTREE / "one"


def host_task(stage: Stage) -> Json:
    """Make the task, with its agent hosted; return it once the agent is there."""
    made = json.loads(stage.harken("task", "new", "One", "--agent", stage.host.name, "--hosted", "--json", seconds=120))
    assert made["hosted"]["state"] == "idle", made["hosted"]
    return made


def told(stage: Stage, text: str, *options: str) -> str:
    """Write to the task as its user; return the message's id."""
    return str(json.loads(stage.harken("send-to-task", "one", text, "--json", *options))["id"])


def line(stage: Stage, message: str) -> Json:
    """Return the ledger's line of a message for the task."""
    lines = [each for each in ledger(stage, message)["ledger"] if each["consumer"] == "task:one"]
    return lines[0] if lines else {}


def is_seen(stage: Stage, message: str) -> bool:
    """Whether a message is proven to have arrived."""
    return bool(line(stage, message).get("state") == "seen")


def state(stage: Stage) -> str:
    """Return what the hosted agent does."""
    return str(json.loads(stage.harken("task", "show", "one", "--json"))["hosted"]["state"])


@hosted_ones
def test_idle_agent_is_woken_by_a_message_of_yours(hosting: Stage) -> None:
    """Also Gemini CLI, which in a terminal cannot be woken."""
    host_task(hosting)
    word = marker()
    message = told(hosting, f"The word is {word}.")
    arrived(hosting, word)
    until(lambda: is_seen(hosting, message), "it is proven", ARRIVAL_SECONDS)
    until(lambda: state(hosting) == "idle", "its turn ends", STEP_SECONDS)
    again = marker()
    second = told(hosting, f"The word is {again}.")
    asked = arrived(hosting, again)
    assert asked.count(word), "another conversation was begun"
    until(lambda: is_seen(hosting, second), "it is proven, too", ARRIVAL_SECONDS)


@hosted_ones
def test_words_of_others_come_by_the_tool(hosting: Stage) -> None:
    """The prompt has your voice; Harken's own tools are there in the session, and their result is proven."""
    host_task(hosting)
    word = marker()
    hosting.harken("allow", "ann")
    hosting.model.follow(in_order(ModelAnswer.call("inbox_pull")))
    sent = hosting.harken("send", "--from", "ann", "--to", "task:one", "--json", f"The word is {word}.")
    message = json.loads(sent)["id"]
    until(lambda: is_seen_when_allowed(hosting, message), "it is given, and proven", ARRIVAL_SECONDS)
    assert hosting.model.conversation[0].count(word) == 0


def is_seen_when_allowed(stage: Stage, message: str) -> bool:
    """Whether a message is proven; what is asked meanwhile is allowed: a host may ask before it uses any tool."""
    for each in json.loads(stage.harken("approve", "--json"))["approvals"]:
        stage.try_harken("approve", each["id"], "once")
    return is_seen(stage, message)


@hosted_ones
@pytest.mark.parametrize("choice", ["once", "no"])
def test_what_it_asks_you_answer_elsewhere(hosting: Stage, choice: str) -> None:
    """There is no other place to answer it, and the agent does what was answered."""
    host_task(hosting)
    hosting.model.follow(in_order(ModelAnswer.shell("touch made")))
    told(hosting, "Make it.")

    def asked() -> Json:
        return json.loads(hosting.harken("approve", "--json"))["approvals"]

    approval = until(asked, "it asks", ARRIVAL_SECONDS)[0]
    assert "touch made" in json.dumps(approval["arguments"])
    assert not (folder(hosting) / "made").exists()
    hosting.harken("approve", approval["id"], choice)
    until(lambda: state(hosting) == "idle", "its turn ends", ARRIVAL_SECONDS)
    assert (folder(hosting) / "made").exists() is (choice == "once")
