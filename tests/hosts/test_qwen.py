"""Qwen Code, the real one: connected by `harken connect`, reached while it works, woken when idle, and left.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Final

import pytest

from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.stage import Stage
from tests.hosts.story import (
    READY_SECONDS,
    STEP_SECONDS,
    arrived,
    assert_once,
    eventually,
    is_seen,
    ledger,
    marker,
    places,
    send,
    sessions,
    so_far,
)

pytestmark = pytest.mark.parametrize("host", ["qwen-code"], indirect=True)

BROKEN_SECONDS: Final = 5.0


def commands(stage: Stage) -> list[str]:
    """Return the commands of all hooks that `connect` wrote."""
    settings = json.loads((stage.user / ".qwen" / "settings.json").read_text(encoding="utf-8"))
    return [hook["command"] for groups in settings["hooks"].values() for group in groups for hook in group["hooks"]]


def test_message_comes_after_a_tool_that_failed_too(connected: Stage) -> None:
    """An agent that gets one error after the other is the one that most needs a word."""
    body = marker()
    with connected.gate() as gate:
        failing = ModelAnswer.call("read_file", {"file_path": str(connected.project / "missing")})
        connected.model.follow(in_order(ModelAnswer.shell(gate.command), failing, failing))
        with connected.headless("work") as running:
            gate.wait(STEP_SECONDS)
            gate.open()
            arrived(connected, "not found")
            message = send(connected, body)
            assert running.finish().returncode == 0
    assert_once(connected, body)
    assert is_seen(eventually(connected, message, is_seen))


def test_session_that_was_never_asked_anything_is_woken(connected: Stage) -> None:
    """An agent that somebody left open in the morning is there from its start on."""
    body = marker()
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.wait_quiet()
        message = send(connected, body)
        arrived(connected, body)
        assert eventually(connected, message, is_seen)["surface"] == "wake: peer inbox"


def test_interrupted_session_is_woken_again(connected: Stage) -> None:
    """After Esc no end of a turn is told; the session must not be taken for busy for ever."""
    body = marker()
    with connected.gate() as gate, connected.tmux() as tmux:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command)))
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit("work")
        gate.wait(STEP_SECONDS)
        tmux.press("escape")
        tmux.wait_for("Request cancelled", STEP_SECONDS)
        end = time.monotonic() + STEP_SECONDS
        while sessions(connected)[0]["presence"] != "idle":
            assert time.monotonic() < end, "it is still taken for busy"
        message = send(connected, body)
        arrived(connected, body)
        eventually(connected, message, is_seen)


def test_session_without_its_own_inbox_is_woken_by_its_input_file(connected: Stage) -> None:
    """The way for those who turned Qwen's inbox off. It speaks as the user, so strangers are only announced."""
    body, strange = marker(), marker()
    path = connected.user / ".qwen" / "settings.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "agents": {"crossSessionMessaging": False}}), encoding="utf-8")
    connected.harken("allow", "ann")
    with connected.screen("--input-file", "prompts.jsonl") as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.wait_quiet()
        message = send(connected, body)
        arrived(connected, body)
        assert eventually(connected, message, is_seen)["surface"] == "wake: input file"
        screen.wait_quiet()
        after = so_far(connected)
        send(connected, strange, "--from", "ann")
        told = arrived(connected, "call inbox_pull", after=after)
        plain = [part for part in places(told, strange) if "<qwen:user-prompt-submit-context>" not in part.text]
        assert plain == []
    assert_once(connected, body)


def test_model_knows_the_inbox_and_may_read_it_where_nobody_can_be_asked(connected: Stage) -> None:
    """A headless run must be able to read its mail, not hidden behind a search, and not to write to people."""
    message = send(connected, "hello")
    answer = ModelAnswer.call("reply", {"message_id": message, "body": "hi"})
    connected.model.follow(in_order(ModelAnswer.call("inbox_pull"), answer))
    # Without this, Qwen would first ask the model whether the call looks harmless.
    asking = ("--approval-mode", "default")
    argv = (str(connected.program), "--auth-type", "openai", "--model", "mock-model", *asking, "-p", "look")
    connected.run(argv, connected.environment)
    first, second, third = connected.model.conversation
    assert first.tool("inbox_pull")
    assert first.holding("Harken")
    assert "messages" in second.turns[-1].text
    assert "permission" in third.turns[-1].text.lower()
    assert ledger(connected, message)["replies"] == []


def test_hook_of_a_continued_turn_asks_nobody_while_no_bell_rings(connected: Stage) -> None:
    """It runs before every request of a turn, so with nothing waiting it must not start an interpreter."""
    (line,) = (each for each in commands(connected) if each.startswith("[ -s "))
    traced = f"set -x; {line}"
    quiet = b'{"session_id":"x","hook_event_name":"UserPromptSubmit","prompt_id":"1","prompt":""}'
    prompt = b'{"session_id":"x","hook_event_name":"UserPromptSubmit","prompt":"$(id) `id`","submitted_prompt":"a"}'
    runs = {
        said: subprocess.run(
            ["/bin/sh", "-c", traced], input=said, capture_output=True, timeout=BROKEN_SECONDS, check=False
        )
        for said in (quiet, prompt)
    }
    assert b"exec" not in runs[quiet].stderr
    assert b"exec" in runs[prompt].stderr
    assert b"uid=" not in runs[prompt].stdout + runs[prompt].stderr
