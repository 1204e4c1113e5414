"""Claude Code without Claude Code: what its payloads mean, and what is printed so that its model gets a text.

The shapes are those of the real program, which `tests/hosts/test_claude_code.py` runs.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.claude_code.hooks import EVENTS, HOOKS
from harken.hosts.claude_code.plugin import CHANNEL, listens_to_channel
from harken.hosts.hook import SILENCE, Hello, HookAnswer
from harken.model import MessageId, timestamp
from harken.sessions.turns import HookMoment
from tests.builders import a_message

HELLO = Hello(edge="e-1", pid=20, ppid=10, cwd="/elsewhere", env={"CLAUDE_PID": "4711"})


def payload(moment: HookMoment, **more: object) -> dict[str, object]:
    """Return what Claude Code writes to a hook."""
    return {
        "session_id": "f5304b8e",
        "transcript_path": "/home/me/.claude/projects/p/f5304b8e.jsonl",
        "cwd": "/code/shop",
        "prompt_id": "a6fd00f3",
        "hook_event_name": EVENTS[moment],
        **more,
    }


def test_batch_of_tools_is_one_step_of_the_model() -> None:
    """Claude Code runs this hook once for all tools that were called in parallel, so a second one proves the first."""
    found = HOOKS.event(HookMoment.TOOL, payload(HookMoment.TOOL, tool_calls=[{}, {}]), HELLO)
    assert found is not None
    assert (found.is_step, found.is_subagent) == (True, False)


@pytest.mark.parametrize(
    ("reason", "goes_on"), [("clear", True), ("resume", True), ("other", False), ("logout", False)]
)
def test_cleared_conversation_leaves_the_process_running(reason: str, *, goes_on: bool) -> None:
    """After /clear the same program goes on under another id, and its mail must not wait for a new session."""
    found = HOOKS.event(HookMoment.END, payload(HookMoment.END, reason=reason), HELLO)
    assert found is not None
    assert found.keeps_running is goes_on


@pytest.mark.parametrize("value", ["", "x", "-1", "4711 ", "\N{FULLWIDTH DIGIT NINE}", "1" * 40])
def test_odd_process_id_is_left_to_be_found_otherwise(value: str) -> None:
    """An environment can hold anything; a wrong process would be another session."""
    hello = Hello(edge="e-1", cwd="/", env={"CLAUDE_PID": value})
    found = HOOKS.event(HookMoment.START, payload(HookMoment.START), hello)
    assert found is not None
    assert found.pid == 0


def test_event_of_another_kind_is_nothing_to_us() -> None:
    """A settings file that was copied to another program must not make up sessions."""
    assert HOOKS.event(HookMoment.STOP, payload(HookMoment.PROMPT), HELLO) is None
    assert HOOKS.event(HookMoment.STOP, {"hook_event_name": "Stop"}, HELLO) is None
    assert HOOKS.event(HookMoment.STOP, {"hook_event_name": "Stop", "session_id": 7}, HELLO) is None


def test_bell_brings_its_text_by_stderr_and_exit_code() -> None:
    """That is what wakes an idle session; anything on stdout is dropped."""
    assert HOOKS.answer(HookMoment.BELL, "One message.") == HookAnswer(stderr="One message.", exit_code=2)


def test_start_names_the_bell_and_says_nothing_else() -> None:
    """Without the watched file an idle session is never woken, so no text may take its place."""
    start = HOOKS.context(HookMoment.START, "/h/run/bells/session-1")
    context = {"hookEventName": "SessionStart", "watchPaths": ["/h/run/bells/session-1"]}
    assert json.loads(start.stdout) == {"hookSpecificOutput": context}
    assert HOOKS.answer(HookMoment.START, "text") == SILENCE
    assert HookMoment.START not in HOOKS.most_chars


def test_a_hook_that_copilot_runs_says_nothing() -> None:
    """Copilot runs a project's plugins for Claude Code and drops what they say: a text given there would be lost."""
    inside = Hello(env={"COPILOT_CLI": "1"})
    payload = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "hi"}
    assert HOOKS.event(HookMoment.PROMPT, payload | {"timestamp": 1}, inside) is None
    assert HOOKS.event(HookMoment.PROMPT, payload, inside) is not None


@pytest.mark.parametrize(
    ("line", "listens"),
    [
        ("claude", False),
        ("claude --channels plugin:harken@harken", True),
        ("claude --dangerously-load-development-channels plugin:harken@harken", True),
        ("claude --dangerously-load-development-channels=plugin:harken@harken", True),
        ("claude --channels plugin:other@x plugin:harken@harken --model opus", True),
        ("claude --channels=plugin:other@x plugin:harken@harken", False),
        ("claude --dangerously-load-development-channels server:harken", True),
        ("claude --channels plugin:other@x --model plugin:harken@harken", False),
        ("claude -p plugin:harken@harken", False),
        ("claude --channels plugin:harken@elsewhere", False),
        ("claude --channels plugin:harken@harken-0123456789ab", True),
        ("claude --channels plugin:harken@harken-evil", False),
        ("claude -- --channels plugin:harken@harken", False),
        ("node /lib/cli.js --channels plugin:harken@harken", True),
    ],
)
def test_command_line_tells_whether_the_channel_is_heard(line: str, *, listens: bool) -> None:
    """To a session that does not listen a push is lost without a word."""
    assert listens_to_channel(line.split()) is listens


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_command_line_can_be_read(argv: list[str]) -> None:
    """Command lines come from the process table."""
    assert listens_to_channel(["claude", *(word for word in argv if "harken" not in word)]) is False


def test_a_push_of_one_message_says_who_wrote_it_where_and_when() -> None:
    """Claude Code shows the user beside the text, and its model answers by these as it does with other plugins."""
    message = a_message("the build is red", conversation="c-1")
    assert CHANNEL.params("the text", [message]) == {
        "content": "the text",
        "meta": {
            "kind": "inbox",
            "chat_id": "c-1",
            "message_id": "m-1",
            "user": "ann",
            "ts": timestamp(message.received_at),
        },
    }
    several = CHANNEL.params("a digest", [message, a_message("and green", id=MessageId("m-2"))])
    assert several["meta"] == {"kind": "inbox"}  # of whom it would speak is in the text
