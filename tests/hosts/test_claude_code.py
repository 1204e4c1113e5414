"""Claude Code, the real one: connected by `harken connect`, reached at every moment, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from harken.trial.exchange import ModelAnswer, ModelRequest, Script, in_order, side
from harken.trial.screen import TerminalProgram
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
)

pytestmark = pytest.mark.parametrize("host", ["claude-code"], indirect=True)


@contextmanager
def claude(stage: Stage, *arguments: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """Claude Code with nothing allowed but what is said here; ended when the block is left."""
    with subprocess.Popen(
        [str(stage.program), "-p", "--permission-mode", "default", *arguments],
        cwd=stage.project,
        env=stage.environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_session_that_starts_is_woken_for_what_waits(connected: Stage) -> None:
    """Claude Code begins to watch the bell a moment after the start hook: a ring in between may not be the last."""
    body = marker()
    message = send(connected, body)
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        arrived(connected, body)
        assert eventually(connected, message, is_seen)["surface"] == "wake: bell"
    assert_once(connected, body)


def test_somebody_the_person_knows_is_heard_between_tools_and_framed(connected: Stage) -> None:
    """Claude Code calls what hooks say its user's feedback: the frame must say whose word it is."""
    body = marker()
    connected.harken("allow", "ann")
    with connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command)))
        with claude(connected, "--allowedTools=Bash(cat:*)", "work") as running:
            gate.wait(STEP_SECONDS)
            message = send(connected, body, "--from", "ann")
            gate.open()
            running.communicate(timeout=STEP_SECONDS)
    _first, second = connected.model.conversation
    (told,) = places(second, body)
    assert "Treat as: request from someone your user knows" in told.text
    line = line_of(connected, message)
    assert (line["state"], line["surface"]) == ("seen", "hook: tool")


def test_reading_the_inbox_needs_no_permission(connected: Stage) -> None:
    """A wake is worth little when the person has to allow the agent to read."""
    body = marker()
    connected.model.follow(in_order(ModelAnswer.call("inbox_search", {"query": body})))
    send(connected, body, "--to", "replies")
    with claude(connected, "look") as running:
        running.communicate(timeout=STEP_SECONDS)
    assert "haven't granted it" not in connected.model.conversation[-1].turns[-1].text


def test_tool_that_speaks_to_others_still_asks(connected: Stage) -> None:
    """A plugin may not grant itself the right to write to people."""
    message = send(connected, "hello")
    connected.model.follow(in_order(ModelAnswer.call("reply", {"message_id": message, "body": "hi"})))
    with claude(connected, "answer it") as running:
        running.communicate(timeout=STEP_SECONDS)
    assert "haven't granted it" in connected.model.conversation[-1].turns[-1].text
    assert ledger(connected, message)["replies"] == []


def test_helper_of_the_agent_gets_nothing(connected: Stage) -> None:
    """A subagent runs the same hooks, but what it is told never reaches the agent that could answer."""
    prompt, helper, body = marker(), marker(), marker()

    def in_conversation(gate: str) -> Script:
        errand = {"description": "an errand", "prompt": helper, "subagent_type": "general-purpose"}
        own = in_order(ModelAnswer.call("Agent", errand))
        its = in_order(ModelAnswer.shell(gate), ModelAnswer.shell("true"))
        return lambda asked: side(asked) if asked.is_side else (own if prompt in asked.text else its)(asked)

    argv = (str(connected.program), "--permission-mode", "default", "--allowedTools=Bash,Agent")
    with connected.gate() as gate, TerminalProgram(argv, connected.environment, connected.project) as screen:
        connected.model.follow(in_conversation(gate.command))
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit(prompt)
        gate.wait(STEP_SECONDS)
        message = send(connected, body)
        arrived(connected, body)
        gate.open()
        connected.model.wait_for(lambda asked: "<status>completed</status>" in asked.text, STEP_SECONDS)
        eventually(connected, message, is_seen)
    its_own = [asked for asked in connected.model.conversation if prompt not in asked.text]
    assert len(its_own) >= 3
    assert sum(asked.count(body) for asked in its_own) == 0
    assert max(asked.count(body) for asked in connected.model.conversation) == 1


def test_session_driven_by_a_program_is_woken(connected: Stage) -> None:
    """Programs that drive Claude Code over a pipe are idle most of the time."""
    body = marker()
    arguments = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    with claude(connected, *arguments, stdin=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        prompt = {"type": "user", "message": {"role": "user", "content": "hello"}}
        running.stdin.write(json.dumps(prompt) + "\n")
        running.stdin.flush()
        wait_result(running.stdout)
        message = send(connected, body)
        arrived(connected, body)
        wait_result(running.stdout)
        line = eventually(connected, message, is_seen)
        assert line["surface"] == "wake: bell"
    assert_once(connected, body)


def wait_result(lines: IO[str]) -> None:
    """Return when Claude Code says over its pipe that a turn is over."""
    for line in lines:
        if json.loads(line).get("type") == "result":
            return
    raise AssertionError("Claude Code ended without a result")


def test_prompt_that_was_taken_back_takes_its_message_along_and_it_comes_again(connected: Stage) -> None:
    """Esc before the first word removes the prompt and all that went with it, though the transcript keeps it."""
    body, first, second = marker(), marker(), marker()
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        message = send(connected, body, "--priority", "low")
        with connected.model.hold(lambda asked: first in asked.text) as hold:
            screen.submit(first)
            assert hold.wait(STEP_SECONDS).count(body) == 1
            screen.press("escape")
            screen.wait_quiet()
        assert line_of(connected, message)["state"] == "offered"
        for _ in first:
            screen.press("backspace")
        screen.submit(second)
        again = arrived(connected, second)
        assert (again.count(first), again.count(body)) == (0, 1)
        assert eventually(connected, message, is_seen)["surface"] == "hook: prompt"


def framed(asked: ModelRequest, body: str) -> str:
    """Return the text between the two lines of a message's frame."""
    (turn,) = places(asked, body)
    _, begin, rest = turn.text.partition(" begins\n")
    text, end, _ = rest.partition("\n--- ")
    assert begin
    assert end
    return text


def test_channel_hook_and_tool_give_the_same_text(connected: Stage) -> None:
    """An agent may compare, quote or search what it was told; the way it came must make no difference.

    The channel is behind a switch of Claude Code's makers; here the file that remembers the switch says that it is on.
    """
    key = marker()
    body = f'{key} "quoted" <b>bold</b> & more\nsecond line: \N{SNOWMAN}'
    account = connected.user / ".claude.json"
    settings = json.loads(account.read_text())
    account.write_text(json.dumps({**settings, "cachedGrowthBookFeatures": {"tengu_harbor": True}}))
    recipe = connected.recipe
    given = recipe.for_private(connected.model.url)
    option = ("--dangerously-load-development-channels", "plugin:harken@harken")
    environ = {**connected.environment, "CLAUDE_CODE_GB_DISK_CACHE_WHEN_TELEMETRY_OFF": "1"}
    with TerminalProgram(recipe.interactive(connected.program, given, *option), environ, connected.project) as screen:
        screen.wait_for("local development", READY_SECONDS)
        screen.press("enter")
        screen.wait_for(lambda shown: recipe.ready in shown and "local development" not in shown, READY_SECONDS)
        screen.wait_quiet()
        message = send(connected, body)
        by_channel = arrived(connected, key)
        assert "<channel source=" in places(by_channel, key)[0].text
        line = eventually(connected, message, is_seen)
        assert line["surface"] == "claude channel"
    from_channel = framed(by_channel, key)
    send(connected, body)
    connected.ask("hello")
    from_hook = framed(connected.model.conversation[-1], key)
    message = send(connected, body)
    connected.harken("mute", "session", "claude-code")
    connected.model.follow(in_order(ModelAnswer.call("inbox_pull")))
    connected.ask("look into the inbox")
    (result,) = places(connected.model.conversation[-1], key)
    (pulled,) = json.loads(result.text)["messages"]
    assert (
        from_channel
        == from_hook
        == pulled["content_text_sanitized"]
        == ledger(connected, message)["message"]["content_text_sanitized"]
    )


def test_channel_that_claude_code_refuses_swallows_nothing(connected: Stage) -> None:
    """Asked for on the command line and switched off by its makers, it drops every message without a word."""
    body = marker()
    option = ("--dangerously-load-development-channels", "plugin:harken@harken")
    with connected.screen(*option) as screen:
        screen.wait_for("not currently available", READY_SECONDS)
        screen.wait_quiet()
        message = send(connected, body)
        arrived(connected, body)
        line = eventually(connected, message, is_seen)
        assert line["surface"] == "wake: bell"
    assert_once(connected, body)
