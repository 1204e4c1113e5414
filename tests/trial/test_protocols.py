"""Each protocol on its own: what is read from a request, what an answer says, and that no request breaks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.testing.agent import Json
from harken.trial import vendors
from harken.trial.exchange import ConversationTurn, ModelAnswer, ModelCall, ModelRequest, ModelTool

Reader = Callable[[Mapping[str, object]], ModelRequest]
Writer = Callable[[ModelAnswer, ModelRequest], tuple[str, bytes]]

PROTOCOLS: tuple[tuple[Reader, Writer], ...] = (
    (vendors.anthropic_asked, vendors.anthropic_answer),
    (vendors.chat_asked, vendors.chat_answer),
    (vendors.responses_asked, vendors.responses_answer),
    (vendors.google_asked, vendors.google_answer),
)
WORDS = (
    *("messages", "input", "contents", "parts", "content", "text", "role", "user", "type", "name", "system", "output"),
    *("instructions", "tools", "function", "namespace", "functionCall", "functionResponse", "response", "format"),
    *("schema", "tool_use", "tool_result", "function_call", "additional_tools", "tool_calls", "arguments", "args"),
)

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(WORDS)
documents = st.dictionaries(
    st.sampled_from(WORDS),
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
        max_leaves=25,
    ),
    max_size=8,
)


@pytest.mark.parametrize(("read", "write"), PROTOCOLS)
@given(body=documents)
def test_no_request_breaks_a_protocol(read: Reader, write: Writer, body: dict[str, Json]) -> None:
    """Hosts change what they send with every version; a trial has to go on and show it."""
    asked = read(body)
    assert isinstance(asked.text, str)
    assert asked.last_role == (asked.turns[-1].role if asked.turns else "")
    write(ModelAnswer(words="a", calls=(ModelCall("t", {"b": 1}),)), asked)


def test_anthropic_requests_are_read_in_order() -> None:
    """What a hook adds, what a tool gave and what the person typed must be told apart."""
    body = {
        "model": "m",
        "stream": True,
        "system": [{"type": "text", "text": "S"}],
        "messages": [
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "Bash", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "R"}]}]},
            {"role": "system", "content": "added"},
        ],
        "tools": [{"name": "Bash"}, {"name": "mcp__harken__inbox_pull"}],
    }
    asked = vendors.anthropic_asked(body)
    assert asked.turns == (
        ConversationTurn("system", "S"),
        ConversationTurn("user", "U"),
        ConversationTurn("call", 'Bash {"a": 1}'),
        ConversationTurn("tool", "R"),
        ConversationTurn("system", "added"),
    )
    assert (asked.model, asked.is_stream, asked.is_side) == ("m", True, False)
    assert asked.tool_names == ("Bash", "mcp__harken__inbox_pull")


def test_chat_requests_are_read_in_order() -> None:
    """The same for the protocol that three of the hosts speak."""
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    body = {
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "text", "text": "V"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "R"},
        ],
        "tools": [{"type": "function", "function": {"name": "bash"}}],
    }
    assert vendors.chat_asked(body).turns == (
        ConversationTurn("system", "S"),
        ConversationTurn("user", "U\nV"),
        ConversationTurn("call", "bash {}"),
        ConversationTurn("tool", "R"),
    )


def test_responses_requests_are_read_in_order() -> None:
    """Codex keeps hook text in messages of the developer, which must not pass for the person's."""
    body = {
        "instructions": "S",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "U"}]},
            {"type": "function_call", "call_id": "1", "name": "exec_command", "arguments": '{"cmd": "ls"}'},
            {"type": "function_call_output", "call_id": "1", "output": "R"},
        ],
        "tools": [{"type": "namespace", "name": "mcp__harken", "tools": [{"type": "function", "name": "inbox_pull"}]}],
    }
    asked = vendors.responses_asked(body)
    assert asked.turns == (
        ConversationTurn("system", "S"),
        ConversationTurn("developer", "D"),
        ConversationTurn("user", "U"),
        ConversationTurn("call", 'exec_command {"cmd": "ls"}'),
        ConversationTurn("tool", "R"),
    )
    assert asked.tools == (ModelTool("inbox_pull", namespace="mcp__harken"),)


def test_tools_that_are_named_in_the_input_are_offered_too() -> None:
    """For its newest models Codex has no list of tools; without these a conversation looks like a side request."""
    inner = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    asked = vendors.responses_asked({"input": [{"type": "additional_tools", "role": "developer", "tools": [inner]}]})
    assert asked.tools == (ModelTool("exec", namespace="functions", takes_text=True),)
    assert not asked.is_side


def test_gemini_requests_are_read_in_order() -> None:
    """Results of tools come with the role of the user here."""
    body = {
        "systemInstruction": {"parts": [{"text": "S"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "U"}, {"text": "<hook_context>H</hook_context>"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "run_shell_command", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "x", "response": {"output": "R"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}],
    }
    assert vendors.google_asked(body).turns == (
        ConversationTurn("system", "S"),
        ConversationTurn("user", "U"),
        ConversationTurn("user", "<hook_context>H</hook_context>"),
        ConversationTurn("call", "run_shell_command {}"),
        ConversationTurn("tool", "R"),
    )


@pytest.mark.parametrize(("read", "write"), PROTOCOLS)
@pytest.mark.parametrize("is_stream", [True, False])
def test_every_event_of_an_answer_is_json(read: Reader, write: Writer, *, is_stream: bool) -> None:
    """Texts with line breaks and quotes must not end an event early."""
    asked = read({"stream": is_stream})
    words = 'one\n\ndata: two "three" \u2028 four'
    kind, data = write(ModelAnswer(words=words, calls=(ModelCall("t", {"b": words}),)), asked)
    if kind == "text/event-stream":
        blocks = [block.split("data: ", 1)[1] for block in data.decode().strip().split("\n\n")]
        parts = [json.loads(block) for block in blocks if block != "[DONE]"]
    else:
        parts = [json.loads(data)]
    assert any(words in found for part in parts for found in _strings(part))


def _strings(value: Json) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [found for inner in value.values() for found in _strings(inner)]
        case list():
            return [found for inner in value for found in _strings(inner)]
        case _:
            return []
