"""Qwen Code, the real one: connected by `harken connect`, reached while it works, woken when idle, and left.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Final

import pytest

from harken.trial.exchange import ModelAnswer, ModelRequest, Script, in_order, side
from tests.hosts.stage import Stage
from tests.hosts.story import (
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
    tree,
)

pytestmark = pytest.mark.parametrize("host", ["qwen-code"], indirect=True)

READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 40.0
BROKEN_SECONDS: Final = 5.0


@pytest.fixture
def connected(stage: Stage) -> Stage:
    """Qwen Code, connected the way people connect it."""
    stage.harken("connect", "qwen", "--yes")
    return stage


def commands(stage: Stage) -> list[str]:
    """Return the commands of all hooks that `connect` wrote."""
    settings = json.loads((stage.user / ".qwen" / "settings.json").read_text(encoding="utf-8"))
    return [hook["command"] for groups in settings["hooks"].values() for group in groups for hook in group["hooks"]]


def test_message_sent_while_a_tool_runs_is_in_the_next_request(connected: Stage) -> None:
    """A working agent that does not think of its inbox must still get what cannot wait."""
    body = marker()
    with connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command), ModelAnswer.shell("true")))
        with connected.headless("work") as running:
            gate.wait(STEP_SECONDS)
            message = send(connected, f"<b>{body}</b>")
            gate.open()
            assert running.finish().returncode == 0
    first, second, _third = connected.model.conversation
    assert (first.count(body), second.count(body)) == (0, 1)
    assert "<qwen:user-prompt-submit-context>" in places(second, body)[0].text
    assert_once(connected, body)
    line = eventually(connected, message, is_seen)
    assert line["surface"] == "hook: tool"


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


def test_message_comes_once_when_tools_run_side_by_side(connected: Stage) -> None:
    """Each of them may run the same hook at the same moment."""
    body = marker()
    with connected.gate("one") as one, connected.gate("two") as two:
        both = ModelAnswer.shell(one.command).beside(ModelAnswer.shell(two.command))
        connected.model.follow(in_order(both, ModelAnswer.shell("true")))
        with connected.headless("work") as running:
            one.wait(STEP_SECONDS)
            message = send(connected, body)
            one.open()
            two.wait(STEP_SECONDS)
            two.open()
            assert running.finish().returncode == 0
    assert connected.model.conversation[1].count(body) == 1
    assert_once(connected, body)
    eventually(connected, message, is_seen)


def test_long_message_arrives_whole(connected: Stage) -> None:
    """What a host cuts off without a word would be lost, and the ledger would say that it was seen."""
    first, last = marker(), marker()
    send(connected, "\n".join((first, *["line of a long message"] * 260, last)))
    connected.ask("good morning")
    (place,) = places(connected.model.conversation[0], first)
    assert place.text.count("line of a long message") == 260
    assert last in place.text


def test_message_that_waits_goes_with_the_next_prompt(connected: Stage) -> None:
    """Whoever starts an agent in the morning should not have to tell it to look."""
    body = marker()
    message = send(connected, body)
    connected.ask("good morning")
    first = connected.model.conversation[0]
    assert [turn.role for turn in places(first, body)] == ["user"], "never as part of the system prompt"
    assert_once(connected, body)
    line = eventually(connected, message, is_seen)
    assert line["surface"] == "hook: prompt"


def test_message_at_the_end_of_a_turn_keeps_the_agent_going(connected: Stage) -> None:
    """Otherwise it would wait for the person, who may be away, although the agent is still there."""
    body, last = marker(), marker()
    connected.model.follow(in_order(ModelAnswer.text("first"), then=last))
    with connected.model.hold(lambda asked: not asked.is_side) as hold, connected.headless("one question") as running:
        hold.wait(STEP_SECONDS)
        message = send(connected, body)
        hold.release()
        done = running.finish()
    first, second = connected.model.conversation
    assert (first.count(body), second.count(body)) == (0, 1)
    assert last in done.stdout
    assert_once(connected, body)
    line = eventually(connected, message, is_seen)
    assert line["surface"] == "hook: stop"


def test_idle_session_in_tmux_is_woken_and_told_once(connected: Stage) -> None:
    """A message to an idle agent starts its next turn, marked as not the user's, and does not come a second time."""
    asked, body, later = marker(), marker(), marker()
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(connected, asked)
        tmux.wait_quiet()
        message = send(connected, body)
        woken = arrived(connected, body)
        assert 'origin="own-process"' in places(woken, body)[0].text
        line = eventually(connected, message, is_seen)
        assert line["surface"] == "wake: peer inbox"
        tmux.submit(later)
        arrived(connected, later)
    assert_once(connected, body)


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


def test_cleared_conversation_is_still_woken(connected: Stage) -> None:
    """After /clear the host has another id for it and drops what is meant for the old one."""
    asked, body = marker(), marker()
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit(asked)
        arrived(connected, asked)
        screen.wait_quiet()
        (before,) = sessions(connected)
        screen.submit("/clear")
        screen.wait_for(lambda shown: asked not in shown, STEP_SECONDS)
        screen.wait_quiet()
        after = so_far(connected)
        message = send(connected, body)
        woken = arrived(connected, body, after=after)
        assert woken.count(asked) == 0
        assert eventually(connected, message, is_seen)["surface"] == "wake: peer inbox"
        (now,) = sessions(connected)
        assert now["pid"] == before["pid"]


def test_helper_of_the_agent_gets_nothing(connected: Stage) -> None:
    """What a subagent is told never reaches the agent that could answer."""
    prompt, errand, body = marker(), marker(), marker()

    def in_conversation(gate: str) -> Script:
        task = {"description": "an errand", "prompt": errand, "subagent_type": "general-purpose"}
        own = in_order(ModelAnswer.call("agent", task))
        its = in_order(ModelAnswer.shell(gate), ModelAnswer.shell("true"))

        def script(asked: ModelRequest) -> ModelAnswer:
            if asked.is_side:
                return side(asked)
            return (own if prompt in asked.text else its)(asked)

        return script

    with connected.gate() as gate:
        connected.model.follow(in_conversation(gate.command))
        with connected.headless(prompt) as running:
            gate.wait(STEP_SECONDS)
            send(connected, body)
            gate.open()
            assert running.finish().returncode == 0
    its_own = [asked for asked in connected.model.conversation if prompt not in asked.text]
    assert len(its_own) >= 2
    assert sum(asked.count(body) for asked in its_own) == 0


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


def test_session_that_ended_is_gone(connected: Stage) -> None:
    """A message for a session that is not there must wait visibly, and not be sent into nothing."""
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit("/quit")
        end = time.monotonic() + STEP_SECONDS
        while sessions(connected):
            assert time.monotonic() < end


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


def test_broken_input_is_harmless(connected: Stage) -> None:
    """Whatever a host does to a hook, the hook ends well, prints nothing and holds up nobody."""
    for line in commands(connected):
        for said in (b"", b"{", b"[1,2]", b'{"hook_event_name":"Nonsense","session_id":"x"}', b"x" * (1 << 20)):
            done = subprocess.run(
                ["/bin/sh", "-c", line], input=said, capture_output=True, timeout=BROKEN_SECONDS, check=False
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), (line, said[:40])


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


def test_qwen_works_on_when_harken_is_gone(connected: Stage) -> None:
    """Somebody who removes Harken's home must not find an agent that complains."""
    connected.harken("down")
    (connected.harken_home / "run" / "address").unlink(missing_ok=True)
    done = connected.ask("hello")
    assert "hook" not in done.stderr.lower()
    assert connected.model.conversation


def test_disconnect_leaves_the_home_as_it_was(stage: Stage) -> None:
    """Trying Harken out must cost nothing: where the host did not run in between, not one byte differs."""
    before = tree(stage.user)
    stage.harken("connect", "qwen", "--yes")
    assert tree(stage.user) != before
    assert "Nothing to change" in stage.harken("connect", "qwen", "--yes")
    stage.harken("disconnect", "qwen", "--yes")
    assert tree(stage.user) == before


def test_disconnect_after_use_leaves_nothing_of_ours(connected: Stage) -> None:
    """Qwen writes into its own folder when it runs; what is left there must be Qwen's."""
    connected.ask("hello")
    connected.harken("disconnect", "qwen", "--yes")
    assert "harken" not in (connected.user / ".qwen" / "settings.json").read_text(encoding="utf-8")
