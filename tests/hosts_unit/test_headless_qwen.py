"""Qwen Code's sandbox without Qwen Code: how it is started, who the person is to it, and what its output tells."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.qwen.headless import SANDBOX
from harken.runs.sandbox import OutputEvent, OutputKind, RunFileKind, ToolServer
from tests.hosts_unit.rig import json_of, work_of


def settle(folder: Path, settings: object) -> None:
    """Write the person's settings."""
    home = folder / "user" / ".qwen"
    home.mkdir(parents=True)
    (home / "settings.json").write_text("// mine\n" + json.dumps(settings), encoding="utf-8")


def after(argv: tuple[str, ...], flag: str) -> list[str]:
    """Return the values that a flag has, wherever it stands."""
    return [value for given_flag, value in pairwise(argv) if given_flag == flag]


def test_run_is_bare_and_has_what_the_rule_names(tmp_path: Path) -> None:
    """Bare mode reads no settings; its own tools are taken away one by one."""
    reading = SANDBOX.command(work_of(tmp_path, "read_file")).argv
    assert reading[:2] == ("/opt/it", "--bare")
    assert after(reading, "--approval-mode") == ["default"]
    assert after(reading, "--max-session-turns") == ["7"]
    assert "read_file" not in after(reading, "--exclude-tools")
    command = SANDBOX.command(work_of(tmp_path, "lab.1/note"))
    assert {"read_file", "edit", "run_shell_command"} <= set(after(command.argv, "--exclude-tools"))
    assert after(command.argv, "--allowed-tools") == ["mcp__lab_1__note"]
    servers = json_of(command, "servers.json")
    assert servers["mcpServers"]["lab_1"]["includeTools"] == ["note"]


@pytest.mark.parametrize(("is_sse", "key"), [(False, "httpUrl"), (True, "url")])
def test_server_at_an_address_is_told_with_its_transport(tmp_path: Path, *, is_sse: bool, key: str) -> None:
    """Qwen knows the transport by the name under which the address stands."""
    server = ToolServer(name="web", url="https://x.example/mcp", headers={"A": "b"}, is_sse=is_sse)
    command = SANDBOX.command(replace(work_of(tmp_path, "web/note"), servers={"web": server}))
    servers = json_of(command, "servers.json")
    entry = {key: "https://x.example/mcp", "headers": {"A": "b"}, "includeTools": ["note"]}
    assert servers == {"mcpServers": {"web": entry}}


def test_environment_holds_what_is_needed_and_nothing_else(tmp_path: Path) -> None:
    """A variable of Harken's, or one that happens to be there, has no business in a run."""
    env = SANDBOX.command(work_of(tmp_path, "read_file", OPENAI_API_KEY="key")).env
    assert (env["OPENAI_API_KEY"], env["HOME"], env["TERM"]) == ("key", str(tmp_path / "run"), "dumb")
    assert not {"OTHER", "HARKEN_HOME"} & env.keys()
    assert env["QWEN_USAGE_STATISTICS_ENABLED"] == "false"


def test_sign_in_is_taken_from_a_provider_in_the_settings(tmp_path: Path) -> None:
    """Bare mode does not read them, so the run is told in other words; a key is never an argument."""
    provider = {"id": "m-2", "baseUrl": "https://two.example/v1", "envKey": "TWO_KEY"}
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": "m-2"},
        "modelProviders": {"openai": [{"id": "m-1", "envKey": "ONE_KEY"}, provider]},
        "env": {"ONE_KEY": "one", "TWO_KEY": "two"},
    }
    settle(tmp_path, settings)
    command = SANDBOX.command(work_of(tmp_path, "read_file", OPENAI_API_KEY="other"))
    assert (after(command.argv, "--auth-type"), after(command.argv, "--model")) == (["openai"], ["m-2"])
    assert (command.env["OPENAI_API_KEY"], command.env["OPENAI_BASE_URL"]) == ("two", "https://two.example/v1")
    assert "two" not in command.argv
    assert not {"ONE_KEY", "TWO_KEY"} & command.env.keys()


def test_sign_in_file_is_linked_and_a_key_is_found_in_the_home(tmp_path: Path) -> None:
    """A token that is renewed in a run must stay renewed for the person."""
    settle(tmp_path, {"security": {"auth": {"selectedType": "qwen-oauth"}}})
    home = tmp_path / "user" / ".qwen"
    (home / ".env").write_text("OPENAI_API_KEY=from-file\nNODE_OPTIONS=x\n", encoding="utf-8")
    command = SANDBOX.command(work_of(tmp_path, "read_file"))
    (link,) = (each for each in command.files if each.kind is RunFileKind.LINK)
    assert (link.path, link.target) == (".qwen/oauth_creds.json", home / "oauth_creds.json")
    assert (command.env["OPENAI_API_KEY"], "NODE_OPTIONS" in command.env) == ("from-file", False)


@pytest.mark.parametrize(
    "odd",
    [
        [],
        {"security": [], "model": "m", "modelProviders": [], "env": 1},
        {"security": {"auth": {"selectedType": ["openai"]}}, "modelProviders": {"": [1, {"id": ""}]}},
        {"security": {"auth": {"selectedType": "openai"}}, "modelProviders": {"openai": {"id": "x"}}},
    ],
)
def test_odd_settings_do_not_stop_a_run(tmp_path: Path, odd: object) -> None:
    """They are the person's, and may be of another version."""
    settle(tmp_path, odd)
    command = SANDBOX.command(work_of(tmp_path, "read_file", OPENAI_API_KEY="key"))
    assert (after(command.argv, "--model"), command.env["OPENAI_API_KEY"]) == ([], "key")


@given(st.text())
def test_prompt_names_no_file_and_no_command(prompt: str) -> None:
    """Qwen looks for both in any prompt; a message must not be able to use that."""
    command = SANDBOX.command(work_of(Path("/nowhere"), "read_file", prompt=prompt))
    assert not re.search(rb"(?<!\\)@", command.stdin)
    assert not command.stdin.startswith(b"/")


def line(kind: str, *content: object, **more: object) -> bytes:
    """Return a line as Qwen 0.24 prints it."""
    return json.dumps({"type": kind, "session_id": "s", "message": {"content": content}, **more}).encode()


def test_output_is_told_step_by_step() -> None:
    """The record of a run is made of this; a denial is told once, although Qwen says it twice."""
    no = 'Qwen Code requires permission to use "read_file", but that permission was declined'
    result = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": no}
    denials = [
        {"tool_name": "read_file", "tool_use_id": "1", "tool_input": {}},
        {"tool_name": "edit", "tool_use_id": "2", "tool_input": {"a": 1}},
    ]
    lines = (
        line("system", subtype="init"),
        line(
            "assistant",
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "1", "name": "read_file", "input": {"file_path": "/x"}},
        ),
        line("user", result),
        line("user", {"type": "tool_result", "tool_use_id": "3", "is_error": True, "content": "File not found"}),
        line("assistant", {"type": "text", "text": "done"}),
        line("result", is_error=False, result="done", permission_denials=denials),
    )
    transcript = SANDBOX.transcript()
    told = [each for each_line in lines for each in transcript.feed(each_line)]
    assert [*told, *transcript.finish("", 0)] == [
        OutputEvent(OutputKind.TEXT, "I look."),
        OutputEvent(OutputKind.TOOL, '{"file_path": "/x"}', "read_file"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.DENIED, no, "read_file", "/x"),
        OutputEvent(OutputKind.TEXT, "done"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.DENIED, "", "edit", '{"a": 1}'),
        OutputEvent(OutputKind.ANSWER, "done"),
    ]


def test_failure_is_told_once() -> None:
    """Two reasons for one end would leave the person guessing."""
    transcript = SANDBOX.transcript()
    told = transcript.feed(line("result", is_error=True, error={"message": "Missing API key"}))
    assert [*told, *transcript.finish("noise", 1)] == [OutputEvent(OutputKind.ERROR, "Missing API key")]
    assert SANDBOX.transcript().finish("", 53) == (
        OutputEvent(OutputKind.ERROR, "It was ended: it took all the turns that it has."),
    )
