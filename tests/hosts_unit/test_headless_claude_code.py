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
from harken.runs.sandbox import OutputEvent, OutputKind, RunFileKind, Sandbox, SandboxRequest, ToolServer
from harken.runs.tools import parse_tool
from harken.testing.agent import Json

SERVERS: Final = {
    "near": ToolServer(name="near", command=("near", "--serve"), env={"NEAR_KEY": "n"}),
    "far.away": ToolServer(name="far.away", url="https://example.org/mcp", headers={"Authorization": "Bearer f"}),
}
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


def _work(tmp_path: Path, *tools: str, **environ: str) -> SandboxRequest:
    parsed = tuple(parse_tool(tool) for tool in tools)
    return SandboxRequest(
        prompt="do it",
        workdir=tmp_path,
        tools=parsed,
        servers={tool.server: SERVERS[tool.server] for tool in parsed if tool.server},
        max_turns=7,
        private=tmp_path / "private",
        program="/opt/claude",
        environ={"HOME": str(tmp_path), "PATH": "/bin", **environ},
    )


def _file(work: SandboxRequest, name: str) -> Json:
    found: Json = json.loads(next(each.content for each in SANDBOX.command(work).files if each.path == name))
    return found


def _option(work: SandboxRequest, name: str) -> str:
    argv = SANDBOX.command(work).argv
    return argv[argv.index(name) + 1]


def test_it_is_a_sandbox() -> None:
    """The runner knows only the protocol."""
    sandbox: Sandbox = SANDBOX
    assert (sandbox.host, sandbox.program) == ("claude-code", "claude")


def test_the_prompt_and_secrets_are_not_on_the_command_line(tmp_path: Path) -> None:
    """Every user of the machine can read command lines."""
    work = _work(tmp_path, "near/note", "far.away/look", ANTHROPIC_API_KEY="secret-key")
    command = SANDBOX.command(work)
    line = "\0".join(command.argv)
    assert not any(secret in line for secret in ("do it", "secret-key", "NEAR_KEY", "Bearer"))
    assert command.stdin == b"\ndo it"
    assert {each.kind for each in command.files} == {RunFileKind.FILE}


def test_each_word_becomes_exactly_its_tools(tmp_path: Path) -> None:
    """A tool more than the rule names is authority that nobody gave."""
    tools = ("read_file", "list_files", "search_files", "edit_file", "near/note", "far.away/look", "WebSearch", "Read")
    work = _work(tmp_path, *tools)
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
    work = _work(tmp_path)
    assert _option(work, "--tools") == ""
    assert _file(work, "settings.json")["permissions"] == {"allow": []}
    assert "--mcp-config" not in SANDBOX.command(work).argv


def test_a_shell_is_guarded_unless_it_was_given_whole(tmp_path: Path) -> None:
    """The host's own rule for a beginning lets reading commands through."""
    guarded = _file(_work(tmp_path, "shell:git log", "shell:make"), "settings.json")
    assert guarded["permissions"]["allow"] == ["Bash(git log:*)", "Bash(make:*)"]
    command = guarded["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert command.endswith("""'[["git", "log"], ["make"]]' || exit 2""")
    assert "hooks" not in _file(_work(tmp_path, "shell:git log", "shell"), "settings.json")


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        (["read_file", "shell", "shell:git log", "near/note", "Grep"], ""),
        (["Bash"], "Claude Code has no tool 'Bash' that a run can be given: did you mean"),
        (["Grepp"], "Claude Code has no tool 'Grepp' that a run can be given: did you mean Grep?"),
        (["shell:"], "name plain words"),
        (["shell:git log; rm"], "name plain words"),
        (["shell:a,b"], "name plain words"),
        (["shell:x)"], "name plain words"),
        (["a/b__x", "a__b/y"], "cannot tell the servers a, a__b apart"),
        (["a.b/x", "a_b/x"], "cannot tell the servers a.b, a_b apart"),
    ],
)
def test_it_refuses_what_it_cannot_fence(tools: list[str], reason: str) -> None:
    """A rule with such a tool must not run at all; its author reads why."""
    refusal = SANDBOX.refusal([parse_tool(tool) for tool in tools])
    assert reason in refusal
    assert bool(refusal) == bool(reason)


def test_the_environment_is_small(tmp_path: Path) -> None:
    """What is not named does not get in: least of all what would make the run a session of Harken."""
    work = _work(tmp_path, ANTHROPIC_API_KEY="k", HARKEN_HOME="/h", CLAUDECODE="1", OTHER="s", LANG="de_DE.UTF-8")
    env = SANDBOX.command(work).env
    own = {name: value for name, value in env.items() if "DISABLE" not in name and not name.startswith("GIT_")}
    assert own == {
        "HOME": str(tmp_path),
        "PATH": "/bin",
        "LANG": "de_DE.UTF-8",
        "TERM": "dumb",
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "private" / "claude"),
        "CLAUDE_SECURESTORAGE_CONFIG_DIR": "",
    }


def test_sign_in_and_model_are_taken_over_and_nothing_else(tmp_path: Path) -> None:
    """A person who uses another cloud or model in their settings means it for runs too; hooks they do not."""
    (tmp_path / ".claude").mkdir()
    env = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "PATH": "/evil", "OTHER": "x"}
    more = {"hooks": {"Stop": []}, "permissions": {"allow": ["Bash"]}}
    settings = {"model": "opus", "apiKeyHelper": "get-key", "env": env, **more}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    account = {"oauthAccount": {"emailAddress": "ann@example.org"}, "mcpServers": {"theirs": {}}, "projects": {}}
    (tmp_path / ".claude.json").write_text(json.dumps(account), encoding="utf-8")
    work = _work(tmp_path, "read_file", ANTHROPIC_BASE_URL="http://127.0.0.1:2")
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
    work = _work(tmp_path, CLAUDE_CONFIG_DIR=str(moved))
    assert _file(work, "settings.json")["model"] == "haiku"
    assert _file(work, "claude/.claude.json")["primaryApiKey"] == "p"
    assert SANDBOX.command(work).env["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == str(moved)


def test_broken_settings_of_the_person_stop_no_run(tmp_path: Path) -> None:
    """They are not ours to complain about while a message waits."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text("{broken", encoding="utf-8")
    (tmp_path / ".claude.json").write_text("[]", encoding="utf-8")
    assert "model" not in _file(_work(tmp_path), "settings.json")


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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"result","subtype":"error_max_turns","is_error":true}', "It used all the turns that it was given."),
        (b'{"type":"result","subtype":"success","is_error":true,"result":"Not logged in"}', "Not logged in"),
        (b'{"type":"result","subtype":"error_other"}', "Claude Code failed: error_other."),
    ],
)
def test_a_failure_says_why(line: bytes, reason: str) -> None:
    """The person reads this and nothing else."""
    assert list(SANDBOX.transcript().feed(line)) == [OutputEvent(OutputKind.ERROR, reason)]


def test_an_end_without_a_result_says_what_the_host_complained_of() -> None:
    """A host that cannot start prints no JSON."""
    said = SANDBOX.transcript().finish("\nClaude Code could not start.\nmore\n", 1)
    assert list(said) == [OutputEvent(OutputKind.ERROR, "Claude Code could not start.")]
    silent = SANDBOX.transcript().finish("", 3)
    assert list(silent) == [OutputEvent(OutputKind.ERROR, "Claude Code ended with 3 and said nothing.")]


_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "subtype", "message", "content", "id", "name", "tool_use_id", "permission_denials"]
            ),
            inner | st.sampled_from(["assistant", "user", "result", "system", "permission_denied", "tool_use", "text"]),
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(lines=st.lists(st.binary(max_size=30) | _JSON.map(lambda value: json.dumps(value).encode()), max_size=8))
def test_no_output_is_too_odd_to_read(lines: list[bytes]) -> None:
    """Another version prints other things, and what tools print is anybody's."""
    output = SANDBOX.transcript()
    for line in lines:
        assert all(told.kind in OutputKind for told in output.feed(line))


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
