"""Real agents in an editor on the protocol's own library, with `harken acp` between: told, asked, and left alone.

What arrived is read on the model's wire, what the editor saw in its own words, what ran on the disk.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator

import pytest

from harken.testing import DaemonProcess
from harken.testing.agent import Json
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.stage import Stage
from tests.hosts.story import ARRIVAL_SECONDS, STEP_SECONDS, arrived, ledger, marker
from tests.interop.test_editor import LibraryEditor, editing
from tests.loss.rig import until

hosted_ones = pytest.mark.parametrize("host", ["gemini-cli", "opencode", "qwen-code", "copilot-cli"], indirect=True)


@pytest.fixture
def edited(bare_stage: Stage) -> Iterator[tuple[Stage, LibraryEditor]]:
    """A daemon, and an editor with one conversation of the host."""
    stage = bare_stage
    env = shutil.which("env")
    assert env
    given = [f"{name}={value}" for name, value in stage.environment.items()]
    serve = (sys.executable, "-I", "-m", "harken", "serve", "--home", str(stage.harken_home))
    daemon = DaemonProcess(stage.harken_home, (env, "-i", *given, *serve)).start()
    stage.recipe.prepare(stage.user, stage.project, stage.model.url)
    (stage.user / ".npmrc").write_text("offline=true\n")
    if stage.host.name == "opencode":
        file = stage.user / ".config" / "opencode" / "opencode.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "permission": {"bash": "ask"}}))
    environment = {**stage.environment, "HARKEN_HOME": str(stage.harken_home)}
    try:
        with editing(stage.project, environment, stage.host.name) as editor:
            until(lambda: sessions(daemon), "the daemon knows it", ARRIVAL_SECONDS)
            yield stage, editor
    finally:
        daemon.stop()


def sessions(daemon: DaemonProcess) -> list[Json]:
    """Return the sessions that have no terminal."""
    return [each for each in daemon.call("status")["sessions"] if each["is_hosted"]]


def is_seen(stage: Stage, message: str) -> bool:
    """Whether it is proven that the agent has a message."""
    lines = ledger(stage, message)["ledger"]
    return any((each["consumer"], each["state"]) == (stage.host.name, "seen") for each in lines)


@hosted_ones
def test_message_starts_a_turn_that_the_editor_shows(edited: tuple[Stage, LibraryEditor]) -> None:
    """After it the conversation goes on as before, and the model has the whole of it."""
    stage, editor = edited
    word, again = marker(), marker()
    message = str(json.loads(stage.harken("send", f"The word is {word}.", "--priority", "high", "--json"))["id"])
    arrived(stage, word)
    until(lambda: is_seen(stage, message), "it is proven", ARRIVAL_SECONDS)
    assert word in editor.texts("user_message_chunk")
    editor.do(prompt=f"And {again}.")
    assert editor.until("stop", seconds=ARRIVAL_SECONDS) == ["end_turn"]
    assert arrived(stage, again).count(word), "another conversation was begun"


@hosted_ones
@pytest.mark.parametrize("where", ["editor", "elsewhere"])
def test_first_answer_counts(edited: tuple[Stage, LibraryEditor], where: str) -> None:
    """The editor and Harken both ask; whichever is first decides, and the agent does it."""
    stage, editor = edited
    stage.model.follow(in_order(ModelAnswer.shell("touch made")))
    editor.do(prompt="Make it.")

    def asked() -> list[Json]:
        return list(json.loads(stage.harken("approve", "--json"))["approvals"])

    approval = until(asked, "it asks", ARRIVAL_SECONDS)[0]
    assert "touch made" in json.dumps(approval["arguments"])
    editor.until("question")
    assert not (stage.project / "made").exists()
    if where == "editor":
        editor.do(answer="allow_once")
    else:
        stage.harken("approve", approval["id"], "once")
    assert editor.until("stop", seconds=ARRIVAL_SECONDS) == ["end_turn"]
    assert (stage.project / "made").exists()
    until(lambda: not asked(), "nothing is open", STEP_SECONDS)
    if where == "elsewhere":
        assert editor.until("withdrawn")
