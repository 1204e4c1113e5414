"""Gemini CLI, the real one: connected by `harken connect`, reached at every moment it has, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards. Gemini cannot be
woken, and what Harken says about that is tested too.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Final

import pytest

from harken.hosts.connect.command import UNASKED
from harken.trial.exchange import ModelAnswer, ModelRequest, Script, in_order, side
from tests.hosts.stage import Stage
from tests.hosts.story import (
    arrived,
    assert_once,
    eventually,
    is_seen,
    line_of,
    marker,
    places,
    send,
    sessions,
    so_far,
    tree,
)

pytestmark = pytest.mark.parametrize("host", ["gemini-cli"], indirect=True)

READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 40.0
BROKEN_SECONDS: Final = 5.0


@pytest.fixture
def connected(stage: Stage) -> Stage:
    """Gemini CLI, connected the way people connect it."""
    stage.harken("connect", "gemini", "--yes")
    return stage


def commands(stage: Stage) -> list[str]:
    """Return the commands of all hooks that `connect` wrote."""
    settings = json.loads((stage.user / ".gemini" / "settings.json").read_text(encoding="utf-8"))
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
    (place,) = places(second, body)
    assert (place.role, "<hook_context>" in place.text) == ("tool", True)
    assert_once(connected, body)
    line = eventually(connected, message, is_seen)
    assert line["surface"] == "hook: tool"


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
    assert connected.model.conversation[0].count(body) == 1
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


def test_stranger_at_the_end_of_a_turn_never_speaks_with_the_voice_of_the_user(connected: Stage) -> None:
    """What keeps a turn going is the user's word to the model: it only says that something waits.

    Gemini then runs the prompt's hook again, and that one brings the words themselves, marked as context.
    """
    body = marker()
    connected.harken("allow", "ann")
    with connected.model.hold(lambda asked: not asked.is_side) as hold, connected.headless("one question") as running:
        hold.wait(STEP_SECONDS)
        message = send(connected, body, "--from", "ann")
        hold.release()
        assert running.finish().returncode == 0
    _first, second = connected.model.conversation
    said = "\n".join(turn.text for turn in second.turns if turn.role == "user")
    plain, _, wrapped = said.rpartition("<hook_context>")
    assert "call inbox_pull" in plain
    assert (plain.count(body), wrapped.count(body)) == (0, 1)
    assert_once(connected, body)
    assert eventually(connected, message, is_seen)["surface"] == "hook: prompt"


def test_idle_session_is_told_with_the_next_prompt_and_harken_says_so(connected: Stage) -> None:
    """Gemini cannot be woken: whoever sends must know that, and the message must not get lost over it."""
    asked, body, later = marker(), marker(), marker()
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(connected, asked)
        tmux.wait_quiet()
        before = so_far(connected)
        sent = json.loads(connected.harken("send", "--json", "--", body))
        assert sent["state"] == "queued"
        assert sent["forecast"]["outlook"] == "prompt"
        tmux.wait_quiet()
        assert so_far(connected) == before, "something asked the model although nobody had typed"
        tmux.submit(later)
        told = arrived(connected, body, after=before)
        assert told.count(later) == 1
        assert eventually(connected, sent["id"], is_seen)["surface"] == "hook: prompt"
    assert_once(connected, body)


def test_message_while_a_subagent_works_goes_to_the_agent(connected: Stage) -> None:
    """A subagent runs the same hooks, but what it is told never reaches the agent that could answer."""
    prompt, errand, body = marker(), marker(), marker()

    def in_conversation(gate: str) -> Script:
        own = in_order(ModelAnswer.call("invoke_agent", {"agent_name": "generalist", "prompt": errand}))
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
            message = send(connected, body)
            gate.open()
            assert running.finish().returncode == 0
    its_own = [asked for asked in connected.model.conversation if prompt not in asked.text]
    assert len(its_own) >= 2
    assert sum(asked.count(body) for asked in its_own) == 0
    told = arrived(connected, body)
    assert told.count(prompt) == 1
    assert eventually(connected, message, is_seen)["surface"] == "hook: tool"


def test_message_is_not_spent_on_a_tool_that_the_person_interrupted(connected: Stage) -> None:
    """After Esc Gemini still runs the hook of the tool, but what that says never reaches the model."""
    body, later = marker(), marker()
    with connected.gate() as gate, connected.screen() as screen:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command)))
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit("work")
        gate.wait(STEP_SECONDS)
        message = send(connected, body)
        screen.press("escape")
        screen.wait_for("Request cancelled", STEP_SECONDS)
        screen.wait_quiet()
        assert line_of(connected, message).get("state") == "queued"
        screen.submit(later)
        told = arrived(connected, later)
        assert told.count(body) == 1
        assert eventually(connected, message, is_seen)["offers"] == 1


def test_cleared_conversation_is_the_same_session(connected: Stage) -> None:
    """After /clear the host has another id for it and the same process; the next prompt still brings what waits."""
    asked, body, later = marker(), marker(), marker()
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit(asked)
        arrived(connected, asked)
        screen.wait_quiet()
        (before,) = sessions(connected)
        screen.submit("/clear")
        screen.wait_for(lambda shown: asked not in shown, STEP_SECONDS)
        screen.wait_quiet()
        send(connected, body)
        screen.submit(later)
        told = arrived(connected, body)
        assert (told.count(asked), told.count(later)) == (0, 1)
        (now,) = sessions(connected)
        assert now["pid"] == before["pid"]


def test_session_that_ended_is_gone(connected: Stage) -> None:
    """A message for a session that is not there must wait visibly, and not be sent into nothing."""
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit("/quit")
        end = time.monotonic() + STEP_SECONDS
        while sessions(connected):
            assert time.monotonic() < end


def test_model_knows_the_inbox_and_may_read_it_where_nobody_can_be_asked(connected: Stage) -> None:
    """A headless run must be able to read its mail, and must not write to people unless somebody allowed it."""
    connected.model.follow(in_order(ModelAnswer.call("inbox_pull")))
    argv = (str(connected.program), "--model", "gemini-2.5-flash", "-p", "look")
    connected.run(argv, connected.environment)
    first, second = connected.model.conversation
    assert first.holding("instructions provided by the tool server 'harken'")
    offered = {tool.name.removeprefix("mcp_harken_") for tool in first.tools if tool.name.startswith("mcp_harken_")}
    assert offered == set(UNASKED)
    assert "messages" in second.turns[-1].text


def test_broken_input_is_harmless(connected: Stage) -> None:
    """Whatever a host does to a hook, the hook ends well, prints nothing and holds up nobody."""
    for line in commands(connected):
        for said in (b"", b"{", b"[1,2]", b'{"hook_event_name":"Nonsense","session_id":"x"}', b"x" * (1 << 20)):
            done = subprocess.run(
                ["/bin/sh", "-c", line], input=said, capture_output=True, timeout=BROKEN_SECONDS, check=False
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), (line, said[:40])


def test_gemini_works_on_when_harken_is_gone(connected: Stage) -> None:
    """Somebody who removes Harken's home must not find an agent that complains."""
    connected.harken("down")
    (connected.harken_home / "run" / "address").unlink(missing_ok=True)
    done = connected.ask("hello")
    assert "hook" not in done.stderr.lower()
    assert connected.model.conversation


def test_disconnect_leaves_the_home_as_it_was(stage: Stage) -> None:
    """Trying Harken out must cost nothing: where the host did not run in between, not one byte differs."""
    before = tree(stage.user)
    shown = stage.harken("connect", "gemini", "--yes")
    assert "no way to be woken" in shown
    assert tree(stage.user) != before
    assert "Nothing to change" in stage.harken("connect", "gemini", "--yes")
    stage.harken("disconnect", "gemini", "--yes")
    assert tree(stage.user) == before


def test_disconnect_after_use_leaves_nothing_of_ours(connected: Stage) -> None:
    """Gemini writes into its own folder when it runs; what is left there must be Gemini's."""
    connected.ask("hello")
    connected.harken("disconnect", "gemini", "--yes")
    settings = (connected.user / ".gemini" / "settings.json").read_text(encoding="utf-8")
    assert "harken" not in settings
    assert not (connected.user / ".gemini" / "policies" / "harken.toml").exists()
