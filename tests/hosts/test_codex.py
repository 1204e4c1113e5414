"""Codex, the real one: connected by `harken connect`, reached at every moment, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards. A terminal is run
both ways: with the background server that Codex starts for all of them, and by itself.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from typing import Final

import pytest

from harken.testing.daemon import Json
from harken.trial.exchange import ModelAnswer, Script, in_order, side
from harken.trial.screen import TerminalProgram
from tests.hosts.stage import Stage
from tests.hosts.story import (
    arrived,
    assert_never,
    assert_once,
    eventually,
    is_seen,
    ledger,
    line_of,
    marker,
    places,
    send,
    sessions,
    so_far,
    tree,
)
from tests.loss.rig import until

pytestmark = pytest.mark.parametrize("host", ["codex"], indirect=True)

READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 40.0
GRACE_MILLISECONDS: Final = 30_000
# Codex offers tools differently to these: plainly, behind a search, and from inside a program that the model writes.
MODELS: Final = ("mock-model", "gpt-5.5", "gpt-6.1-sol")
TERMINALS: Final = {"shared": (), "alone": ("--no-daemon",)}


@pytest.fixture
def connected(stage: Stage) -> Stage:
    """Codex, connected the way people connect it."""
    stage.harken("connect", "codex", "--yes")
    return stage


def wait_idle(stage: Stage, count: int = 1) -> None:
    """Return when Harken knows so many sessions, and that they are idle."""
    end = time.monotonic() + STEP_SECONDS
    while True:
        found = sessions(stage)
        if [session["presence"] for session in found] == ["idle"] * count:
            return
        assert time.monotonic() < end, f"the sessions stay {found}"


@pytest.mark.parametrize("model_name", MODELS)
def test_message_sent_while_a_tool_runs_is_in_the_next_request(connected: Stage, model_name: str) -> None:
    """A working agent that does not think of its inbox must still get what cannot wait, whatever its model is."""
    body = marker()
    with connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command), ModelAnswer.shell("true")))
        with connected.headless("work", "--model", model_name) as running:
            gate.wait(STEP_SECONDS)
            message = send(connected, body)
            gate.open()
            assert running.finish().returncode == 0
    first, second, _third = connected.model.conversation
    assert (first.count(body), second.count(body)) == (0, 1)
    assert [turn.role for turn in places(second, body)] == ["developer"]
    assert_once(connected, body)
    line = line_of(connected, message)
    assert (line["state"], line["surface"]) == ("seen", "hook: tool")


def test_message_that_waits_goes_with_the_next_prompt(connected: Stage) -> None:
    """Whoever starts an agent in the morning should not have to tell it to look."""
    body = marker()
    message = send(connected, body)
    connected.ask("good morning")
    assert connected.model.conversation[0].count(body) == 1
    assert_once(connected, body)
    line = line_of(connected, message)
    assert (line["state"], line["surface"]) == ("seen", "hook: prompt")


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
    assert "<hook_prompt" in places(second, body)[0].text
    assert last in done.stdout
    line = line_of(connected, message)
    assert (line["state"], line["surface"]) == ("seen", "hook: stop")


@pytest.mark.parametrize("model_name", MODELS)
def test_other_peoples_words_are_announced_and_read_by_the_tool(connected: Stage, model_name: str) -> None:
    """A hook of Codex speaks as the developer: an outsider's words come as the result of a tool, which needs no asking.

    Codex runs with nobody to ask here, so this also shows that reading the inbox needs no approval.
    """
    body = marker()
    connected.harken("allow", "ann")
    with connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command), ModelAnswer.call("inbox_pull")))
        with connected.headless("work", "--model", model_name) as running:
            gate.wait(STEP_SECONDS)
            message = send(connected, body, "--from", "ann")
            gate.open()
            assert running.finish().returncode == 0
    _first, second, third = connected.model.conversation
    assert second.count(body) == 0
    assert [turn.role for turn in places(second, "call inbox_pull")] == ["developer"]
    assert [turn.role for turn in places(third, body)] == ["tool"]
    line = line_of(connected, message)
    assert (line["state"], line["surface"]) == ("seen", "inbox_pull")


@pytest.mark.parametrize("model_name", MODELS)
def test_model_is_told_what_the_inbox_is(connected: Stage, model_name: str) -> None:
    """Unless told otherwise, Codex hides tools of servers, and what these say of themselves, from current models."""
    # With no daemon the server starts one, and Codex does not wait for that with its first request.
    connected.ask("hello", "--model", model_name, "-c", f"mcp_optional_startup_grace_ms={GRACE_MILLISECONDS}")
    offered = json.dumps(connected.model.conversation[0].body)
    assert "Harken is this agent's inbox" in offered
    assert "inbox_pull" in offered


@pytest.mark.parametrize("terminal", list(TERMINALS))
def test_idle_session_in_tmux_is_woken_and_told_once(connected: Stage, terminal: str) -> None:
    """A message to an idle agent starts its next turn, and the hooks of that turn and the next do not repeat it."""
    asked, body, later = marker(), marker(), marker()
    with connected.tmux(*TERMINALS[terminal]) as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(connected, asked)
        wait_idle(connected)
        message = send(connected, body)
        woken = arrived(connected, body)
        assert [turn.role for turn in places(woken, body)] == ["user"]
        assert eventually(connected, message, is_seen)["surface"] == "wake: app server"
        tmux.wait_for(body, STEP_SECONDS)
        wait_idle(connected)
        tmux.submit(later)
        arrived(connected, later)
    assert_once(connected, body)


def test_session_is_woken_by_a_notice_when_somebody_else_wrote(connected: Stage) -> None:
    """A wake speaks as the user: it says that something waits, and the words come by the tool."""
    asked, body = marker(), marker()
    connected.harken("allow", "ann")
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(connected, asked)
        wait_idle(connected)
        connected.model.follow(in_order(ModelAnswer.call("inbox_pull")))
        message = send(connected, body, "--from", "ann")
        read = arrived(connected, body)
        assert [turn.role for turn in places(read, body)] == ["tool"]
        assert [turn.role for turn in places(read, "call inbox_pull")][:1] == ["user"]
        assert eventually(connected, message, is_seen)["surface"] == "inbox_pull"
    assert_once(connected, body)


def test_of_two_terminals_with_one_server_only_the_last_active_is_woken(connected: Stage) -> None:
    """Their hooks and their connections come from one process; a message must not go to both, nor to the wrong one."""
    first, second, body = marker(), marker(), marker()
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(first)
        arrived(connected, first)
        wait_idle(connected)
        with connected.screen() as screen:
            screen.wait_for(connected.recipe.ready, READY_SECONDS)
            screen.submit(second)
            arrived(connected, second)
            wait_idle(connected, 2)
            message = send(connected, body)
            arrived(connected, body)
            eventually(connected, message, is_seen)
            wait_idle(connected, 2)
            tmux.submit("go on")
            arrived(connected, "go on")
            wait_idle(connected, 2)
    held = [request for request in connected.model.conversation if request.count(body)]
    assert {(request.count(first), request.count(second), request.count(body)) for request in held} == {(0, 1, 1)}


def begin(stage: Stage, screen: TerminalProgram) -> str:
    """Give the session in a terminal its first prompt, and return its name when the turn is over."""
    before = {each["session"] for each in idle(stage)}
    prompt = marker()
    screen.wait_for(stage.recipe.ready, READY_SECONDS)
    screen.submit(prompt)
    arrived(stage, prompt)
    (name,) = until(lambda: {each["session"] for each in idle(stage)} - before, "the turn is over", STEP_SECONDS)
    return str(name)


def idle(stage: Stage) -> list[Json]:
    """Return the idle sessions: those of which hooks have told."""
    return [each for each in sessions(stage) if each["presence"] == "idle"]


def leave(screen: TerminalProgram) -> None:
    """Close a session as a person does. Its terminal stays: closing that would end the shared server as well."""
    screen.submit("/quit")
    until(lambda: not screen.is_running, "Codex ends", STEP_SECONDS)


def test_session_that_follows_another_at_once_is_woken(connected: Stage) -> None:
    """The server has the closed conversation for another minute; that must not keep messages from the one that is here.

    What waits goes to the one that a terminal shows.
    """
    body = marker()
    with ExitStack() as stack:
        first = stack.enter_context(connected.screen())
        begin(connected, first)
        leave(first)
        name = begin(connected, stack.enter_context(connected.screen()))
        message = send(connected, body)
        arrived(connected, body)
        line = eventually(connected, message, is_seen)
        assert (line["surface"], line["session"]) == ("wake: app server", name)


def test_resumed_conversation_has_a_terminal(connected: Stage) -> None:
    """It may be older than its terminal, which is still not the one of another conversation that was closed."""

    def hindrance() -> str:
        return "".join(str(each["hindrance"]) for each in idle(connected))

    with ExitStack() as stack:
        first = stack.enter_context(connected.screen())
        resumed = begin(connected, first)
        leave(first)
        until(lambda: hindrance() == "no terminal shows its conversation any more", "it was left", STEP_SECONDS)
        second = stack.enter_context(connected.screen("resume", resumed.removeprefix("codex:")))
        second.wait_for(connected.recipe.ready, READY_SECONDS)
        # Codex has loaded it anew, and tells of it with its next prompt.
        until(lambda: not idle(connected), "it is resumed", STEP_SECONDS)
        third = stack.enter_context(connected.screen())
        begin(connected, third)
        until(lambda: hindrance() == "", "its first turn is over", STEP_SECONDS)
        leave(third)
        until(lambda: hindrance() == "it is not certain that a terminal still shows it", "one was left", STEP_SECONDS)


def test_interrupted_session_is_idle_and_can_be_woken(connected: Stage) -> None:
    """After Esc no turn ends, and Codex reads its queue no more; a message an hour later must still find somebody."""
    asked, body = marker(), marker()
    with connected.tmux() as tmux, connected.model.hold(lambda request: request.count(asked) > 0) as hold:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        hold.wait(STEP_SECONDS)
        tmux.press("escape")
        wait_idle(connected)
        hold.release()
        message = send(connected, body)
        arrived(connected, body)
        assert eventually(connected, message, is_seen)["surface"] == "wake: app server"


def test_session_that_ended_is_gone(connected: Stage) -> None:
    """A message for a session that is not there must wait visibly, and not be sent into nothing."""
    body = marker()
    connected.ask("hello")
    assert sessions(connected) == []
    message = send(connected, body)
    assert line_of(connected, message).get("state", "queued") == "queued"
    assert_never(connected, body)


def test_helper_of_the_agent_gets_nothing(connected: Stage) -> None:
    """A subagent runs the same hooks, but what it is told never reaches the agent that could answer."""
    prompt, helper, body = marker(), marker(), marker()

    def in_conversation(gate: str) -> Script:
        own = in_order(
            ModelAnswer.call("spawn_agent", {"message": helper}), ModelAnswer.shell(gate), ModelAnswer.shell("true")
        )
        its = in_order(ModelAnswer.shell(gate), ModelAnswer.shell("true"))
        return lambda asked: side(asked) if asked.is_side else (own if prompt in asked.text else its)(asked)

    with connected.gate() as gate:
        connected.model.follow(in_conversation(gate.command))
        with connected.headless(prompt) as running:
            connected.model.wait_for(lambda asked: prompt not in asked.text and not asked.is_side, STEP_SECONDS)
            gate.wait(STEP_SECONDS)
            message = send(connected, body)
            gate.open()
            assert running.finish().returncode == 0
    its_own = [asked for asked in connected.model.conversation if prompt not in asked.text]
    assert its_own
    assert sum(asked.count(body) for asked in its_own) == 0
    assert max(asked.count(body) for asked in connected.model.conversation) == 1
    assert line_of(connected, message)["state"] == "seen"


def test_long_message_that_is_not_english_arrives_whole(connected: Stage) -> None:
    """Codex cuts the middle out of what hooks say, by bytes, unless a hook is written so that it does not."""
    body = marker() + "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 6_000 + marker()
    send(connected, body)
    connected.ask("hello")
    assert connected.model.conversation[0].count(body) == 1


def test_answer_is_sent_only_where_the_person_allowed_it(connected: Stage) -> None:
    """What leaves the machine is their word: Codex refuses it where nobody can be asked, until they say otherwise."""
    message = send(connected, "hello")
    call = ModelAnswer.call("reply", {"message_id": message, "body": "hi"})
    connected.model.follow(in_order(call))
    connected.ask("answer it", "--sandbox", "workspace-write")
    assert "requires approval" in connected.model.conversation[-1].turns[-1].text
    assert ledger(connected, message)["replies"] == []
    config = connected.user / ".codex" / "config.toml"
    allowed = config.read_text().replace(
        "[mcp_servers.harken]", '[mcp_servers.harken]\ntools.reply.approval_mode = "approve"'
    )
    config.write_text(allowed)
    connected.model.follow(in_order(call))
    connected.ask("answer it", "--sandbox", "workspace-write")
    assert len(ledger(connected, message)["replies"]) == 1


def test_host_that_did_not_run_is_left_byte_for_byte_as_it_was(stage: Stage) -> None:
    """Trying Harken must cost nothing: not even asking Codex what it thinks leaves a file behind."""
    before = tree(stage.user)
    stage.harken("connect", "codex", "--yes")
    assert set(tree(stage.user)) - set(before) == {".codex/hooks.json", ".codex/AGENTS.md"}
    stage.harken("disconnect", "codex", "--yes")
    assert tree(stage.user) == before


def test_host_that_ran_keeps_nothing_of_ours(connected: Stage) -> None:
    """What Codex and the person wrote meanwhile is theirs; our entries are gone from all of it."""
    connected.ask("hello")
    config, hooks = (connected.user / ".codex" / name for name in ("config.toml", "hooks.json"))
    own = {"hooks": [{"type": "command", "command": "true"}]}
    value = json.loads(hooks.read_text())
    hooks.write_text(json.dumps({"hooks": {**value["hooks"], "Stop": [*value["hooks"]["Stop"], own]}}))
    config.write_text(config.read_text() + "\n[tui]\nanimations = false\n")
    connected.harken("disconnect", "codex", "--yes")
    assert json.loads(hooks.read_text()) == {"hooks": {"Stop": [own]}}
    assert "animations = false" in config.read_text()
    assert "harken" not in config.read_text().replace(str(connected.folder), "")
    seen = so_far(connected)
    connected.ask("hello again")
    assert not any("inbox_pull" in name for name in connected.model.requests[seen].tool_names)


def test_connecting_one_folder_connects_no_other(stage: Stage) -> None:
    """Somebody who tries Harken in one project does not want it in the others."""
    stage.harken("connect", "codex", "--yes", "--project", str(stage.project))
    body = marker()
    send(stage, body)
    stage.ask("hello", "--cd", str(stage.user))
    assert_never(stage, body)
    stage.ask("hello")
    assert_once(stage, body)
    before = tree(stage.project)
    stage.harken("disconnect", "codex", "--yes", "--project", str(stage.project))
    assert set(before) - set(tree(stage.project)) >= {".codex/hooks.json", ".codex/config.toml"}
    assert "harken" not in (stage.user / ".codex" / "config.toml").read_text().replace(str(stage.folder), "")


def test_stopped_harken_is_not_noticed(connected: Stage) -> None:
    """An inbox that is not there may cost the agent its messages, but never a turn or an error."""
    connected.harken("down")
    answer = marker()
    connected.model.follow(in_order(ModelAnswer.shell("true"), then=answer))
    done = connected.ask("work")
    assert done.stdout.strip() == answer
    assert "Failed" not in done.stderr


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b'{"session_id": 1}', b"\xff" * 1_000_000])
def test_broken_input_of_a_hook_does_nothing(connected: Stage, payload: bytes) -> None:
    """Whatever a later version of Codex may write, a hook ends well and says nothing."""
    hooks = json.loads((connected.user / ".codex" / "hooks.json").read_text())["hooks"]
    for event, groups in hooks.items():
        line = groups[0]["hooks"][0]["command"]
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=payload, capture_output=True, check=False, timeout=STEP_SECONDS
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), event
    assert sessions(connected) == []
