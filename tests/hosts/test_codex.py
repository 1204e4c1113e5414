"""Codex, the real one: connected by `harken connect`, reached at every moment, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards. A terminal is run
both ways: with the background server that Codex starts for all of them, and by itself.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Final

import pytest

from harken.testing.daemon import Json
from harken.trial.exchange import ModelAnswer, in_order
from harken.trial.screen import TerminalProgram
from tests.hosts.stage import Stage
from tests.hosts.story import (
    READY_SECONDS,
    STEP_SECONDS,
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
    until_idle,
)
from tests.loss.rig import until

pytestmark = pytest.mark.parametrize("host", ["codex"], indirect=True)

GRACE_MILLISECONDS: Final = 30_000
# Codex offers tools differently to these: plainly, behind a search, and from inside a program that the model writes.
MODELS: Final = ("mock-model", "gpt-5.5", "gpt-6.1-sol")


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


def test_of_two_terminals_with_one_server_only_the_last_active_is_woken(connected: Stage) -> None:
    """Their hooks and their connections come from one process; a message must not go to both, nor to the wrong one."""
    first, second, body = marker(), marker(), marker()
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(first)
        arrived(connected, first)
        until_idle(connected)
        with connected.screen() as screen:
            screen.wait_for(connected.recipe.ready, READY_SECONDS)
            screen.submit(second)
            arrived(connected, second)
            until_idle(connected, 2)
            message = send(connected, body)
            arrived(connected, body)
            eventually(connected, message, is_seen)
            until_idle(connected, 2)
            tmux.submit("go on")
            arrived(connected, "go on")
            until_idle(connected, 2)
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
        until_idle(connected)
        hold.release()
        message = send(connected, body)
        arrived(connected, body)
        assert eventually(connected, message, is_seen)["surface"] == "wake: app server"


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
