"""Claude Code, the real one: connected by `harken connect`, reached at every moment, and left as it was found.

What arrived is read on the model's wire; what Harken believes is read from its ledger afterwards.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

import pytest

from harken.trial.exchange import ModelAnswer, ModelRequest, Script, in_order, side
from harken.trial.screen import TerminalProgram
from tests.hosts.stage import Stage
from tests.hosts.story import (
    arrived,
    assert_never,
    assert_once,
    eventually,
    ledger,
    line_of,
    marker,
    places,
    send,
    sessions,
    so_far,
    tree,
)

pytestmark = pytest.mark.parametrize("host", ["claude-code"], indirect=True)

READY_SECONDS: Final = 60.0
STEP_SECONDS: Final = 40.0


@pytest.fixture
def connected(stage: Stage) -> Stage:
    """Claude Code, connected the way people connect it."""
    stage.harken("connect", "claude-code", "--yes")
    return stage


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


def test_message_sent_while_a_tool_runs_is_in_the_next_request(connected: Stage) -> None:
    """A working agent that does not think of its inbox must still get what cannot wait."""
    body = marker()
    with connected.gate() as gate:
        connected.model.follow(in_order(ModelAnswer.shell(gate.command), ModelAnswer.shell("true")))
        with connected.headless("work") as running:
            gate.wait(STEP_SECONDS)
            message = send(connected, body)
            gate.open()
            assert running.finish().returncode == 0
    first, second, _third = connected.model.conversation
    assert (first.count(body), second.count(body)) == (0, 1)
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


def test_long_message_that_is_given_whole_stays_whole(connected: Stage) -> None:
    """Claude Code puts what is too long into a file and shows its model the beginning, which looks like the whole."""
    begin, end = marker(), marker()
    body = f"{begin}{' word' * 1_500} {end}"
    send(connected, body)
    connected.ask("good morning")
    assert connected.model.conversation[0].count(body) == 1


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
    line = line_of(connected, message)
    assert (line["state"], line["surface"]) == ("seen", "hook: stop")


def test_idle_session_in_tmux_is_woken_and_told_once(connected: Stage) -> None:
    """A message to an idle agent starts its next turn, and is not told again with the next prompt."""
    asked, body, later = marker(), marker(), marker()
    with connected.tmux() as tmux:
        tmux.wait_for(connected.recipe.ready, READY_SECONDS)
        tmux.submit(asked)
        arrived(connected, asked)
        tmux.wait_quiet()
        message = send(connected, body)
        woken = arrived(connected, body)
        assert "NOT USER INPUT" in places(woken, body)[0].text
        line = eventually(connected, message, lambda line: line.get("state") == "seen")
        assert line["surface"] == "wake: bell"
        tmux.submit(later)
        arrived(connected, later)
    assert_once(connected, body)


def test_session_that_starts_is_woken_for_what_waits(connected: Stage) -> None:
    """Claude Code begins to watch the bell a moment after the start hook: a ring in between may not be the last."""
    body = marker()
    message = send(connected, body)
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        arrived(connected, body)
        assert eventually(connected, message, lambda line: line.get("state") == "seen")["surface"] == "wake: bell"
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
        eventually(connected, message, lambda line: line.get("state") == "seen")
    its_own = [asked for asked in connected.model.conversation if prompt not in asked.text]
    assert len(its_own) >= 3
    assert sum(asked.count(body) for asked in its_own) == 0
    assert max(asked.count(body) for asked in connected.model.conversation) == 1


def test_cleared_conversation_is_the_same_session(connected: Stage) -> None:
    """After /clear the host has another id for it; whoever wrote to the session still reaches it."""
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
        assert eventually(connected, message, lambda line: line.get("state") == "seen")["surface"] == "wake: bell"
        (now,) = sessions(connected)
        assert (now["session"], now["pid"]) == (before["session"], before["pid"])


def test_session_that_ended_is_gone(connected: Stage) -> None:
    """A message for a session that is not there must wait visibly, and not be sent into nothing."""
    with connected.screen() as screen:
        screen.wait_for(connected.recipe.ready, READY_SECONDS)
        screen.submit("/exit")
        end = time.monotonic() + STEP_SECONDS
        while sessions(connected):
            assert time.monotonic() < end


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
        line = eventually(connected, message, lambda line: line.get("state") == "seen")
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
        assert eventually(connected, message, lambda line: line.get("state") == "seen")["surface"] == "hook: prompt"


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
        line = eventually(connected, message, lambda line: line.get("state") == "seen")
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
        line = eventually(connected, message, lambda line: line.get("state") == "seen")
        assert line["surface"] == "wake: bell"
    assert_once(connected, body)


def test_host_that_did_not_run_is_left_byte_for_byte_as_it_was(stage: Stage) -> None:
    """Trying Harken must cost nothing."""
    before = tree(stage.user)
    stage.harken("connect", "claude-code", "--yes")
    assert tree(stage.user) != before
    stage.harken("disconnect", "claude-code", "--yes")
    assert tree(stage.user) == before
    assert not (stage.harken_home / "plugins").exists()


def test_host_that_ran_keeps_nothing_of_ours(connected: Stage) -> None:
    """What Claude Code wrote meanwhile is its own; our plugin is gone from all of it."""
    connected.ask("hello")
    settings = connected.user / ".claude" / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "model": "opus"}))
    connected.harken("disconnect", "claude-code", "--yes")
    assert json.loads(settings.read_text())["model"] == "opus"
    files = {path: content for path, content in tree(connected.user / ".claude").items() if content is not None}
    told = ("projects/", "session-env/", "backups/")
    assert [path for path, content in files.items() if b"harken@harken" in content and not path.startswith(told)] == []
    assert [path for path in files if path.startswith(("plugins/cache/harken", "plugins/data/harken"))] == []
    seen = so_far(connected)
    connected.ask("hello again")
    assert not any("inbox_pull" in name for name in connected.model.requests[seen].tool_names)


def test_connecting_one_folder_leaves_what_git_tracks_alone(stage: Stage) -> None:
    """A team's settings are not one person's to change; other folders are not connected."""
    before = tree(stage.project)
    stage.harken("connect", "claude-code", "--yes", "--project", str(stage.project))
    body = marker()
    send(stage, body)
    stage.ask("hello")
    assert_once(stage, body)
    made = {name for name, content in tree(stage.project).items() if content is not None} - set(before)
    assert {name for name in made if not name.startswith(".git/")} == {".claude/settings.local.json"}
    stage.harken("disconnect", "claude-code", "--yes", "--project", str(stage.project))
    assert ".claude/settings.local.json" not in tree(stage.project)


def test_stopped_or_removed_harken_is_not_noticed(connected: Stage) -> None:
    """An inbox that is not there may cost the agent its messages, but never a turn or an error."""
    connected.harken("down")
    answer = marker()
    connected.model.follow(in_order(ModelAnswer.shell("true"), then=answer))
    assert connected.ask("work").stdout.strip() == answer
    assert_never(connected, "hook error")
    shutil.rmtree(connected.harken_home)
    connected.model.follow(in_order(ModelAnswer.shell("true"), then=answer))
    assert connected.ask("work").stdout.strip() == answer
    assert_never(connected, "hook error")


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b'{"session_id": 1}', b"\xff" * 1_000_000])
def test_broken_input_of_a_hook_does_nothing(connected: Stage, payload: bytes) -> None:
    """Whatever a later version of Claude Code may write, a hook ends well and says nothing."""
    file = connected.harken_home / "plugins" / "claude-code" / "harken" / "hooks" / "hooks.json"
    hooks = json.loads(file.read_text())["hooks"]
    for event in ("SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop", "SessionEnd", "FileChanged"):
        line = hooks[event][0]["hooks"][0]["command"]
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=payload, capture_output=True, check=False, timeout=STEP_SECONDS
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), event
    assert sessions(connected) == []
