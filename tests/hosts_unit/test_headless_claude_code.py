"""The sandbox of Claude Code without Claude Code: how it would be started, and what its recorded output tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts import shell_guard
from harken.hosts.claude_code.headless import SANDBOX
from harken.runs.sandbox import OutputEvent, OutputKind, SandboxRequest
from harken.testing.agent import Json
from tests.hosts_unit.rig import json_of, own_environment, work_of

# Printed by 2.1.325; what does not matter here was taken out.
RECORDED: Final = (
    rb"""
{"type":"system","subtype":"init","tools":["Read"],"permissionMode":"dontAsk"}
{"type":"assistant","message":{"id":"m0","content":[{"type":"text","text":"I look."}]}}
{"type":"assistant","message":{"id":"m0","content":[{"type":"tool_use","id":"t0","name":"Read",\
"input":{"file_path":"/x"}}]}}
{"type":"system","subtype":"permission_denied","tool_name":"Read","tool_use_id":"t0","decision_reason":"--restricted"}
{"type":"user","message":{"content":[{"type":"tool_result","content":"is outside","is_error":true,\
"tool_use_id":"t0"}]}}
{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash",\
"input":{"command":"ls"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result",\
"content":"<tool_use_error>Error: No such tool available: Bash. Bash is disabled for this\
 session.</tool_use_error>","is_error":true,"tool_use_id":"t1"}]}}
{"type":"assistant","message":{"id":"m2","content":[{"type":"tool_use","id":"t2","name":"Bash",\
"input":{"command":"ls"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result",\
"content":"PreToolUse:Bash hook error: This run may only run","is_error":true,"tool_use_id":"t2"}]}}
{"type":"assistant","message":{"id":"m3","content":[{"type":"text","text":"done"}]}}
{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":4,\
"permission_denials":[{"tool_name":"Read","tool_use_id":"t0"},{"tool_name":"Bash","tool_use_id":"t2"}]}
""".replace(b"\\\n", b"")
    .strip()
    .splitlines()
)


def _file(work: SandboxRequest, name: str) -> Json:
    return json_of(SANDBOX.command(work), name)


def _option(work: SandboxRequest, name: str) -> str:
    argv = SANDBOX.command(work).argv
    return argv[argv.index(name) + 1]


def test_each_word_becomes_exactly_its_tools(tmp_path: Path) -> None:
    """A tool more than the rule names is authority that nobody gave."""
    tools = ("read_file", "list_files", "search_files", "edit_file", "near/note", "far.away/look", "WebSearch", "Read")
    work = work_of(tmp_path, *tools)
    assert _option(work, "--tools") == "Read,Glob,Grep,Edit,Write,WebSearch"
    allowed = ["mcp__near__note", "mcp__far_away__look", "Edit", "Write", "WebSearch"]
    permissions = _file(work, "settings.json")["permissions"]
    assert permissions["allow"] == allowed
    assert {"Edit(**/.git/**)", "Edit(**/.mcp.json)", "Edit(**/.gemini/**)"} <= set(permissions["deny"])
    assert _file(work, "servers.json") == {
        "mcpServers": {
            "near": {"type": "stdio", "command": "near", "args": ["--serve"], "env": {"NEAR_KEY": "n"}},
            "far_away": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer f"}},
        }
    }


def test_a_run_without_tools_has_none(tmp_path: Path) -> None:
    """A confirmed action may only think and answer."""
    work = work_of(tmp_path)
    assert _option(work, "--tools") == ""
    assert _file(work, "settings.json")["permissions"] == {"allow": []}
    assert "--mcp-config" not in SANDBOX.command(work).argv


def test_a_shell_is_guarded_unless_it_was_given_whole(tmp_path: Path) -> None:
    """The host's own rule for a beginning lets reading commands through."""
    guarded = _file(work_of(tmp_path, "shell:git log", "shell:make"), "settings.json")
    assert guarded["permissions"]["allow"] == ["Bash(git log:*)", "Bash(make:*)"]
    command = guarded["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert command.endswith("""'[["git", "log"], ["make"]]' || exit 2""")
    assert "hooks" not in _file(work_of(tmp_path, "shell:git log", "shell"), "settings.json")


def test_the_environment_is_small(tmp_path: Path) -> None:
    """What is not named does not get in: least of all what would make the run a session of Harken."""
    work = work_of(tmp_path, ANTHROPIC_API_KEY="k", CLAUDECODE="1", LANG="de_DE.UTF-8")
    found = own_environment(SANDBOX.command(work))
    assert {name: value for name, value in found.items() if "DISABLE" not in name} == {
        "HOME": str(tmp_path / "user"),
        "PATH": "/bin",
        "LANG": "de_DE.UTF-8",
        "TERM": "dumb",
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "run" / "claude"),
        "CLAUDE_SECURESTORAGE_CONFIG_DIR": "",
    }


def test_sign_in_and_model_are_taken_over_and_nothing_else(tmp_path: Path) -> None:
    """A person who uses another cloud or model in their settings means it for runs too; hooks they do not."""
    (tmp_path / "user" / ".claude").mkdir(parents=True)
    env = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "PATH": "/evil", "OTHER": "x"}
    more = {"hooks": {"Stop": []}, "permissions": {"allow": ["Bash"]}}
    settings = {"model": "opus", "apiKeyHelper": "get-key", "env": env, **more}
    (tmp_path / "user" / ".claude" / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    account = {"oauthAccount": {"emailAddress": "ann@example.org"}, "mcpServers": {"theirs": {}}, "projects": {}}
    (tmp_path / "user" / ".claude.json").write_text(json.dumps(account), encoding="utf-8")
    work = work_of(tmp_path, "read_file", ANTHROPIC_BASE_URL="http://127.0.0.1:2")
    assert _file(work, "settings.json") == {
        "model": "opus",
        "apiKeyHelper": "get-key",
        "permissions": {"allow": []},
        "crossSessionInbound": "refuse",
    }
    assert _file(work, "claude/.claude.json") == {
        "hasCompletedOnboarding": True,
        "oauthAccount": {"emailAddress": "ann@example.org"},
    }
    command = SANDBOX.command(work)
    assert (command.env["ANTHROPIC_BASE_URL"], command.env["PATH"]) == ("http://127.0.0.1:1", "/bin")
    assert "OTHER" not in command.env


def test_a_configuration_elsewhere_is_found(tmp_path: Path) -> None:
    """A person may have moved it; the sign-in is there too."""
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "settings.json").write_text('{"model": "haiku"}', encoding="utf-8")
    (moved / ".claude.json").write_text('{"primaryApiKey": "p"}', encoding="utf-8")
    work = work_of(tmp_path, CLAUDE_CONFIG_DIR=str(moved))
    assert _file(work, "settings.json")["model"] == "haiku"
    assert _file(work, "claude/.claude.json")["primaryApiKey"] == "p"
    assert SANDBOX.command(work).env["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == str(moved)


def test_broken_settings_of_the_person_stop_no_run(tmp_path: Path) -> None:
    """They are not ours to complain about while a message waits."""
    (tmp_path / "user" / ".claude").mkdir(parents=True)
    (tmp_path / "user" / ".claude" / "settings.json").write_text("{broken", encoding="utf-8")
    (tmp_path / "user" / ".claude.json").write_text("[]", encoding="utf-8")
    assert "model" not in _file(work_of(tmp_path), "settings.json")


def test_recorded_output_is_told_in_order_and_each_denial_once() -> None:
    """The record of a run is made from this; the host says some things twice."""
    output = SANDBOX.transcript()
    told = [each for line in RECORDED for each in output.feed(line)]
    assert told == [
        OutputEvent(OutputKind.TEXT, "I look."),
        OutputEvent(OutputKind.TOOL, '{"file_path": "/x"}', "Read"),
        OutputEvent(OutputKind.DENIED, tool="Read", target="/x"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.TOOL, '{"command": "ls"}', "Bash"),
        OutputEvent(OutputKind.DENIED, tool="Bash", target="ls"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.TOOL, '{"command": "ls"}', "Bash"),
        OutputEvent(OutputKind.DENIED, tool="Bash", target="ls"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.TEXT, "done"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.ANSWER, "done"),
    ]
    assert list(output.finish("", 0)) == []


def test_a_long_run_needs_no_more_memory_than_a_short_one() -> None:
    """A run may call tools for hours; a denial is told however many came before."""
    output = SANDBOX.transcript()
    for number in range(3_000):
        block = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"text": "x" * 5_000}}
        told = output.feed(json.dumps({"type": "assistant", "message": {"id": "m", "content": [block]}}).encode())
        assert len(told[-1].text) <= 2_000
    denied = {"type": "system", "subtype": "permission_denied", "tool_use_id": "t2999"}
    (refused,) = output.feed(json.dumps(denied).encode())
    assert (refused.kind, refused.tool) == (OutputKind.DENIED, "Read")
    assert len(refused.target) <= 400


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("git log", True),
        ("  git   log --oneline -- 'a file'", True),
        ("git logs", False),
        ("git status", False),
        ("git -C / log", False),
        ("git", False),
        ("", False),
        ("git log; touch x", False),
        ("git log 'unfinished", False),
        ("git log > x", False),
        ("git log $HOME", False),
        ("git log \\\n touch", False),
        ("git log --output=x", False),
        ("git log '--output' x", False),
        ("git log --out''put=x", False),
        ("git log -p --ext-diff", False),
        ("git log -p --textconv", False),
        ("git log --help", False),
        ("git log *", False),
        ("git log ?-output=x", False),
        ("git log [-]-output=x", False),
    ],
)
def test_the_guard_knows_a_beginning(command: str, *, is_allowed: bool) -> None:
    """It is asked by the host before each command."""
    assert shell_guard.allows(command, [["git", "log"], []]) is is_allowed


@given(command=st.text(st.sampled_from("git log;&|<>$`(){}\n\\'\"#x"), max_size=20))
def test_the_guard_lets_nothing_join_commands(command: str) -> None:
    """Whatever is let through has no character that a shell joins, nests or redirects with."""
    if shell_guard.allows(command, [["git", "log"]]):
        assert set(";&|<>$`(){}\n\\#").isdisjoint(command)
        assert command.split()[:1] != []


@pytest.mark.parametrize("asked", ["", "{}", "[]", '{"tool_input": 1}', '{"tool_input": {"command": 1}}', "[" * 9_999])
def test_the_guard_refuses_what_it_does_not_understand(asked: str) -> None:
    """Another version may ask otherwise: a question that is not understood is answered no."""
    assert json.loads(shell_guard.main('[["git"]]', asked))["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ('{"hook_event_name": "PreToolUse", "tool_input": {"command": "COMMAND"}}', "hookSpecificOutput"),
        ('{"toolName": "bash", "toolArgs": {"command": "COMMAND"}}', ""),
        ('{"toolName": "bash", "toolArgs": "{\\"command\\": \\"COMMAND\\"}"}', ""),
    ],
)
def test_the_guard_speaks_as_each_host_does(asked: str, where: str) -> None:
    """To what may run it says nothing: the host's own rules decide then, and a yes of ours would go beyond them."""
    assert shell_guard.main('[["git"]]', asked.replace("COMMAND", "git log")) == ""
    told = json.loads(shell_guard.main('[["git"]]', asked.replace("COMMAND", "rm x")))
    assert (told[where] if where else told)["permissionDecision"] == "deny"
