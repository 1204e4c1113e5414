"""Gemini CLI, the real one: connected by `harken connect`, reached at every moment it has, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards. Gemini cannot be
woken, and what Harken says about that is tested too.
"""

from __future__ import annotations

import json

import pytest

from harken.hosts.connect.command import UNASKED
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.stage import Stage
from tests.hosts.story import (
    READY_SECONDS,
    STEP_SECONDS,
    arrived,
    assert_once,
    eventually,
    is_seen,
    line_of,
    marker,
    send,
    so_far,
)

pytestmark = pytest.mark.parametrize("host", ["gemini-cli"], indirect=True)


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
