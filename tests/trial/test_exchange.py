"""Scripts speak of tools by the end of their names; what that means differs with what a host offers."""

from __future__ import annotations

import json

import pytest

from harken.trial.exchange import (
    ConversationTurn,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ModelTool,
    in_order,
    resolve,
    sample,
    side,
)


def asked(*tools: ModelTool, turns: tuple[ConversationTurn, ...] = (), is_side: bool = False) -> ModelRequest:
    """A request that offers some tools."""
    return ModelRequest(protocol="p", model="m", turns=turns, tools=tools, is_side=is_side, is_stream=False)


@pytest.mark.parametrize(
    "tool",
    [
        ModelTool("mcp__plugin_harken_harken__inbox_pull"),
        ModelTool("mcp__harken__inbox_pull"),
        ModelTool("harken-inbox_pull"),
        ModelTool("mcp_harken_inbox_pull"),
        ModelTool("harken_inbox_pull"),
        ModelTool("inbox_pull", namespace="mcp__harken"),
    ],
)
def test_a_tool_is_found_by_the_end_of_its_name(tool: ModelTool) -> None:
    """Every host puts something else before the name; one script serves all."""
    found = resolve(ModelAnswer.call("inbox_pull", {"limit": 1}), asked(ModelTool("other_inbox_pulls"), tool))
    assert found.calls == (ModelCall(tool.name, {"limit": 1}, tool.namespace),)


def test_the_end_of_a_name_begins_at_a_word() -> None:
    """`reply` is not `autoreply`: a script must not call a tool of someone else."""
    assert asked(ModelTool("x_autoreply")).tool("reply") is None


@pytest.mark.parametrize(
    ("name", "argument"),
    [("Bash", "command"), ("bash", "command"), ("exec_command", "cmd"), ("run_shell_command", "command")],
)
def test_the_shell_of_each_host_is_found(name: str, argument: str) -> None:
    """A tool call that really lasts is what messages arrive during."""
    (call,) = resolve(ModelAnswer.shell("true"), asked(ModelTool("Read"), ModelTool(name))).calls
    assert (call.tool, call.arguments[argument]) == (name, "true")


def test_a_hidden_tool_is_called_by_the_name_in_the_text() -> None:
    """Some hosts only mention the tools of MCP servers and offer a search for them."""
    hidden = asked(
        ModelTool("tool_search"), turns=(ConversationTurn("user", "there is mcp__harken__inbox_pull, and others"),)
    )
    assert resolve(ModelAnswer.call("inbox_pull"), hidden).calls == (ModelCall("mcp__harken__inbox_pull", {}),)


def test_where_tools_are_called_by_a_program_one_is_written() -> None:
    """Otherwise a trial of Codex would say nothing about the models that people use with it."""
    (call,) = resolve(ModelAnswer.shell("true"), asked(ModelTool("exec", "functions", takes_text=True))).calls
    assert (call.tool, call.namespace, call.takes_text) == ("exec", "functions", True)
    assert json.dumps({"cmd": "true", "yield_time_ms": 30_000}) in str(call.arguments["input"])


def test_a_missing_tool_becomes_a_text_that_says_so() -> None:
    """A call of a tool that is not there would make the host retry; the reason belongs on its screen."""
    assert resolve(ModelAnswer.call("inbox_pull"), asked(ModelTool("Read"))) == ModelAnswer.text(
        "no such tool here: inbox_pull"
    )


def test_calls_made_in_parallel_stay_together() -> None:
    """Parallel calls prove nothing about delivery, so there must be a way to make them."""
    both = resolve(ModelAnswer.shell("a").beside(ModelAnswer.shell("b")), asked(ModelTool("bash")))
    assert [call.arguments["command"] for call in both.calls] == ["a", "b"]


def test_side_requests_use_no_answer_up() -> None:
    """A host asks for a title whenever it likes; the story goes on as written."""
    script = in_order(ModelAnswer.text("first"), then="later")
    assert script(asked(is_side=True)) == side(asked(is_side=True))
    assert [script(asked()) for _ in range(3)] == [
        ModelAnswer.text("first"),
        ModelAnswer.text("later"),
        ModelAnswer.text("later"),
    ]


def test_the_models_own_words_do_not_count() -> None:
    """A marker that our script said itself has not arrived from anywhere."""
    turns = (
        ConversationTurn("user", "M and M"),
        ConversationTurn("assistant", "M"),
        ConversationTurn("call", "M"),
        ConversationTurn("tool", "M"),
    )
    assert asked(turns=turns).count("M") == 3


def test_a_schema_is_answered_with_the_plainest_value_it_allows() -> None:
    """Hosts that want JSON from a side request ask again and again until they get it."""
    schema = {
        "type": "object",
        "properties": {
            "next": {"type": "string", "enum": ["user", "model"]},
            "sure": {"type": "boolean"},
            "list": {"type": "array"},
            "odd": 7,
        },
    }
    assert sample(schema) == {"next": "user", "sure": False, "list": [], "odd": "ok"}
