"""Copilot CLI, the real one: connected by `harken connect`, reached at every moment, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil
import pytest

from harken.trial.exchange import ModelAnswer, ModelRequest, in_order, side
from tests.hosts.stage import Stage
from tests.hosts.story import (
    READY_SECONDS,
    STEP_SECONDS,
    arrived,
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
from tests.hosts.terminal import Terminal
from tests.loss.rig import until

pytestmark = pytest.mark.parametrize("host", ["copilot-cli"], indirect=True)

REMINDER: Final = "does not listen for this session any more"


@pytest.fixture
def with_extension(stage: Stage) -> Stage:
    """Copilot CLI, connected by someone who wants to be woken by an extension."""
    stage.harken("connect", "copilot-cli", "--yes", "--wake", "extension")
    return stage


@pytest.fixture
def with_waiter(stage: Stage) -> Stage:
    """Copilot CLI, connected by someone who wants to be woken without anything experimental."""
    stage.harken("connect", "copilot-cli", "--yes", "--wake", "waiter")
    return stage


def waiters(stage: Stage) -> list[psutil.Process]:
    """Return the waiters that run for this Harken, without the shells around them and the hooks beside them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if (
            str(stage.harken_home) in words
            and words[-1] == "copilot-cli"
            and any(word.endswith("/wait.py") for word in words)
        ):
            found.append(process)
    return found


def obedient(asked: ModelRequest) -> ModelAnswer:
    """Do what the last words ask: start the waiter where they say how, else say a word."""
    if asked.is_side:
        return side(asked)
    command = re.search(r"detach true[^:]*: (/\S.*? copilot-cli)$", asked.turns[-1].text, re.MULTILINE)
    if command is None:
        return ModelAnswer.text("done")
    return ModelAnswer.call(
        "bash", {"command": command[1], "mode": "async", "detach": True, "description": "Harken waiter"}
    )


@contextmanager
def copilot(stage: Stage, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Copilot CLI, headless, with nothing allowed but what is said here; ended when the block is left."""
    with subprocess.Popen(
        [str(stage.program), "--no-ask-user", *arguments],
        cwd=stage.project,
        env=stage.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_idle_session_in_tmux_is_woken_by_the_waiter_and_told_once(with_waiter: Stage) -> None:
    """The same without anything experimental; the agent starts the waiter itself, and again after each message.

    Nothing is allowed on the command line here: that one command runs without a question all the same.
    """
    first, second, later = marker(), marker(), marker()
    stage = with_waiter
    stage.model.follow(obedient)
    with Terminal((str(stage.program),), stage.environment, stage.project, stage.folder) as tmux:
        tmux.wait_for(stage.recipe.ready, READY_SECONDS)
        until(lambda: bool(waiters(stage)), "no waiter was started at the beginning", STEP_SECONDS)
        tmux.wait_quiet()
        for body in (first, second):
            message = send(stage, body)
            woken = arrived(stage, body)
            assert [turn.role for turn in places(woken, body)] == ["tool"]
            assert eventually(stage, message, is_seen)["surface"] == "wake: waiter"
            tmux.wait_quiet()
        tmux.submit(later)
        arrived(stage, later)
        assert_once(stage, first)
        assert_once(stage, second)
        tmux.submit("/exit")
        until(lambda: not waiters(stage), "the waiter outlived its host", STEP_SECONDS)


def test_headless_run_costs_nothing_for_a_waiter(with_waiter: Stage) -> None:
    """It is never idle: a model call to start a waiter, or to be reminded of one, would be wasted on every script."""
    with_waiter.model.follow(obedient)
    with_waiter.ask("hello")
    assert len(with_waiter.model.conversation) == 1


def test_waiter_that_was_forgotten_or_lost_is_asked_for_once(with_waiter: Stage) -> None:
    """A model may forget to start it again, and /clear ends it: without a reminder the session would be deaf."""
    body, later = marker(), marker()
    stage = with_waiter
    # Forgetful: what the waiter itself says at its end is not followed, only what a prompt says.
    stage.model.follow(lambda asked: obedient(asked) if asked.last_role == "user" else ModelAnswer.text("done"))
    with stage.tmux() as tmux:
        tmux.wait_for(stage.recipe.ready, READY_SECONDS)
        until(lambda: bool(waiters(stage)), "no waiter was started at the beginning", STEP_SECONDS)
        tmux.wait_quiet()
        (before,) = waiters(stage)
        send(stage, body)
        arrived(stage, body)
        until(
            lambda: bool(waiters(stage)) and before not in waiters(stage),
            "the waiter was not started again",
            STEP_SECONDS,
        )
        tmux.wait_quiet()
        assert stage.model.conversation[-1].count(REMINDER) == 1
        tmux.submit("/clear")
        until(lambda: not waiters(stage), "the waiter outlived its conversation", STEP_SECONDS)
        tmux.submit(later)
        arrived(stage, later)
        until(lambda: bool(waiters(stage)), "nobody started a waiter for the new conversation", STEP_SECONDS)
        tmux.wait_quiet()
        assert stage.model.conversation[-1].count(REMINDER) == 1


def test_message_at_the_end_of_a_turn_goes_before_a_reminder(with_waiter: Stage) -> None:
    """Of two hooks that hold up the end of a turn Copilot hears one, without a word about the other."""
    body, asked = marker(), marker()
    stage = with_waiter
    stage.model.follow(obedient)
    with stage.screen() as screen:
        screen.wait_for(stage.recipe.ready, READY_SECONDS)
        until(lambda: bool(waiters(stage)), "no waiter was started at the beginning", STEP_SECONDS)
        screen.wait_quiet()
        stage.model.follow(lambda request: obedient(request) if request.count(body) else ModelAnswer.text("no"))
        waiters(stage)[0].kill()
        arrived(stage, REMINDER)
        screen.wait_quiet()
        with stage.model.hold(lambda request: asked in request.turns[-1].text) as hold:
            screen.submit(asked)
            hold.wait(STEP_SECONDS)
            message = send(stage, body)
        assert REMINDER not in places(arrived(stage, body), body)[0].text
        until(lambda: bool(waiters(stage)), "the reminder was lost", STEP_SECONDS)
        assert eventually(stage, message, is_seen)["surface"] == "hook: stop"
    assert_once(stage, body)


def test_extension_finds_a_daemon_that_was_started_again(with_extension: Stage) -> None:
    """An update of Harken must not leave every open session deaf."""
    body = marker()
    stage = with_extension
    with stage.screen() as screen:
        screen.wait_for(stage.recipe.ready, READY_SECONDS)
        until(lambda: _can_be_woken(stage), "the extension did not come", STEP_SECONDS)
        stage.harken("down")
        stage.harken("up")
        until(lambda: _can_be_woken(stage), "the extension did not come back", STEP_SECONDS)
        message = send(stage, body)
        arrived(stage, body)
        assert eventually(stage, message, is_seen)["surface"] == "wake: extension"
    assert_once(stage, body)


def _can_be_woken(stage: Stage) -> bool:
    return any("wake: extension" in session["surfaces"] for session in sessions(stage))


def test_message_to_a_busy_session_is_told_by_one_surface(with_extension: Stage) -> None:
    """Hook and wake stand ready at the same time; whichever is first, the agent reads it once."""
    body = marker()
    stage = with_extension
    with stage.gate() as gate:
        stage.model.follow(in_order(ModelAnswer.shell(gate.command), ModelAnswer.shell("true")))
        with stage.screen() as screen:
            screen.wait_for(stage.recipe.ready, READY_SECONDS)
            screen.submit("work")
            gate.wait(STEP_SECONDS)
            message = send(stage, body)
            gate.open()
            arrived(stage, body)
            assert eventually(stage, message, is_seen)["surface"] == "hook: tool"
            screen.wait_quiet()
    assert_once(stage, body)


def test_conversation_after_clear_is_woken_too(with_extension: Stage) -> None:
    """Copilot has a new id then, and starts the extension anew; whoever writes must not notice."""
    asked, body = marker(), marker()
    stage = with_extension
    with stage.screen() as screen:
        screen.wait_for(stage.recipe.ready, READY_SECONDS)
        screen.submit(asked)
        arrived(stage, asked)
        screen.wait_quiet()
        (before,) = sessions(stage)
        screen.submit("/clear")
        until(
            lambda: all(s["session"] != before["session"] for s in sessions(stage)),
            "the old session did not end",
            STEP_SECONDS,
        )
        until(lambda: len(sessions(stage)) == 1, "no new session came", STEP_SECONDS)
        after = so_far(stage)
        message = send(stage, body)
        assert arrived(stage, body, after=after).count(asked) == 0
        assert eventually(stage, message, is_seen)["surface"] == "wake: extension"
        screen.submit("/exit")
        until(lambda: not sessions(stage), "a session is left that nobody has open", STEP_SECONDS)


def test_idle_session_without_a_wake_is_told_with_its_next_prompt(connected: Stage) -> None:
    """That is the default, because both wakes have a price; it must be true that nothing happens until then."""
    asked, body, later = marker(), marker(), marker()
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit(asked)
        arrived(connected, asked)
        screen.wait_quiet()
        message = send(connected, body)
        screen.wait_quiet()
        assert line_of(connected, message)["state"] == "queued"
        screen.submit(later)
        assert arrived(connected, later).count(body) == 1
        assert eventually(connected, message, is_seen)["surface"] == "hook: prompt"
    assert_once(connected, body)


@pytest.mark.parametrize(
    ("rules", "is_called"),
    [
        ((), False),
        (("--allow-tool", "harken(inbox_pull)"), True),
        (("--allow-all-tools", "--deny-tool", "harken(inbox_pull)"), False),
    ],
)
def test_person_decides_which_tools_run(connected: Stage, rules: tuple[str, ...], *, is_called: bool) -> None:
    """A plugin could answer Copilot's question itself, and would then overrule what the person refused."""
    connected.model.follow(in_order(ModelAnswer.call("inbox_pull")))
    with copilot(connected, *rules, "-p", "look") as running:
        running.communicate(timeout=STEP_SECONDS)
    assert ("denied" not in connected.model.conversation[-1].turns[-1].text) is is_called


def test_project_that_is_connected_to_claude_code_too_is_told_once(connected: Stage) -> None:
    """Copilot loads what a project has enabled for Claude Code: those hooks run in it beside our own."""
    body = marker()
    connected.harken("connect", "claude-code", "--yes", "--project", str(connected.project))
    message = send(connected, body)
    connected.ask("hello")
    assert_once(connected, body)
    lines = {line["consumer"]: line["state"] for line in ledger(connected, message)["ledger"]}
    assert lines["copilot-cli"] == "seen"
    assert lines.get("claude-code", "queued") == "queued"


def test_host_that_ran_keeps_its_own_settings_and_nothing_of_ours(stage: Stage) -> None:
    """Copilot's own commands would drop the comments, and leave an entry that says the plugin is off."""
    settings = stage.user / ".copilot" / "settings.json"
    settings.write_text('{\n    // my own words\n    "banner": "never"\n}\n')
    stage.ask("hello")
    stage.harken("connect", "copilot-cli", "--yes", "--wake", "waiter")
    assert "// my own words" in settings.read_text()
    assert "Please start Harken's waiter" in settings.read_text()
    assert "harken-inbox_pull" in " ".join(_names(stage, "with Harken"))
    settings.write_text(settings.read_text().replace('"never"', '"once"'))
    stage.harken("disconnect", "copilot-cli", "--yes")
    assert settings.read_text() == '{\n    // my own words\n    "banner": "once"\n}\n'
    assert "harken-inbox_pull" not in " ".join(_names(stage, "without Harken"))
    files = tree(stage.user / ".copilot")
    told = ("session-state/", "session-store.db", "logs/", "command-history")
    named = [name for name, content in files.items() if content and b"harken-copilot" in content]
    assert [name for name in named if not name.startswith(told)] == []


def _names(stage: Stage, prompt: str) -> tuple[str, ...]:
    """Return the tools that the model is offered with a prompt."""
    before = so_far(stage)
    stage.ask(prompt)
    return stage.model.requests[before].tool_names
