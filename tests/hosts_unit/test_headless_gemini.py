"""Gemini CLI's sandbox without Gemini CLI: how it is started, what lies in its home, and what its output tells."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.hosts.gemini.headless import MAX_PATTERN, SANDBOX, policy
from harken.runs.sandbox import OutputEvent, OutputKind, RunFileKind, ToolServer
from harken.runs.tools import parse_tool
from tests.hosts_unit.rig import json_of, work_of


def rules(*tools: str) -> list[Mapping[str, object]]:
    """Return the rules of the policy for some tools."""
    found: list[Mapping[str, object]] = tomllib.loads(policy([parse_tool(tool) for tool in tools]))["rule"]
    return found


def decision(found: list[Mapping[str, object]], tool: str, **arguments: object) -> str:
    """Return what a policy says to a call, as Gemini reads it."""
    pairs = ",".join(f"\0{json.dumps(key)}:{json.dumps(arguments[key])}\0" for key in sorted(arguments))
    fitting = (
        rule
        for rule in sorted(found, key=lambda rule: -int(str(rule["priority"])))
        if rule["toolName"] in {tool, "*"} and re.search(str(rule.get("argsPattern", "")), f"{{{pairs}}}")
    )
    return str(next(fitting)["decision"])


@given(st.text())
def test_prompt_names_no_file_and_no_command(prompt: str) -> None:
    """Gemini looks for both in any prompt; a message must not be able to use that."""
    given_text = SANDBOX.command(work_of(Path("/nowhere"), "read_file", prompt=prompt)).stdin.decode()
    assert not re.search(r"(?<!\\)@", given_text)
    assert not given_text.startswith("/")
    assert given_text.replace("\\", "").strip() == prompt.encode(errors="replace").decode().replace("\\", "").strip()


def test_run_counts_its_turns_and_trusts_nothing(tmp_path: Path) -> None:
    """Gemini ends it by itself, and a folder is not trusted because it is there."""
    command = SANDBOX.command(work_of(tmp_path, "read_file", GEMINI_API_KEY="key", LANG="de_DE.UTF-8"))
    kept = {name: command.env[name] for name in ("PATH", "LANG", "TERM", "HOME", "GEMINI_API_KEY")}
    home = str(tmp_path / "run")
    assert kept == {"PATH": "/bin", "LANG": "de_DE.UTF-8", "TERM": "dumb", "HOME": home, "GEMINI_API_KEY": "key"}
    assert (command.env["GEMINI_CLI_TRUST_WORKSPACE"], command.is_turn_limited) == ("false", True)


def test_home_of_a_run_carries_sign_in_and_model_only(tmp_path: Path) -> None:
    """Everything else in a person's settings could widen what the run may do."""
    home = tmp_path / "user" / ".gemini"
    home.mkdir(parents=True)
    theirs = {
        "security": {"auth": {"selectedType": "vertex-ai", "x": 1}, "folderTrust": {"enabled": True}},
        "model": {"name": "a-model", "maxSessionTurns": 99},
        "hooks": {"AfterTool": []},
        "mcpServers": {"theirs": {"command": "x"}},
        "tools": {"allowed": ["run_shell_command"]},
    }
    (home / "settings.json").write_text("// mine\n" + json.dumps(theirs), encoding="utf-8")
    command = SANDBOX.command(work_of(tmp_path, "read_file", "lab_1/note"))
    settings = json_of(command, ".gemini/settings.json")
    assert settings["security"]["auth"] == {"selectedType": "vertex-ai"}
    assert settings["model"] == {"name": "a-model", "maxSessionTurns": 7}
    assert settings["tools"] == {"core": ["read_file"]}
    server = {"includeTools": ["note"], "command": "serve", "args": ["lab_1"], "env": {"A": "b"}}
    assert settings["mcpServers"] == {"lab-1": server}
    assert "hooks" not in settings
    assert settings["hooksConfig"] == {"enabled": False}
    links = {each.path: each.target for each in command.files if each.kind is RunFileKind.LINK}
    assert links[".gemini/oauth_creds.json"] == home / "oauth_creds.json"


def test_key_in_a_file_of_the_home_counts_where_the_environment_has_none(tmp_path: Path) -> None:
    """That is where Gemini tells people to put it; other variables there are not taken."""
    home = tmp_path / "user" / ".gemini"
    home.mkdir(parents=True)
    (home / ".env").write_text('# x\nexport GEMINI_API_KEY="from-file"\nNODE_OPTIONS=x\n', encoding="utf-8")
    env = SANDBOX.command(work_of(tmp_path, "read_file")).env
    assert (env["GEMINI_API_KEY"], "NODE_OPTIONS" in env) == ("from-file", False)
    assert SANDBOX.command(work_of(tmp_path, "read_file", GEMINI_API_KEY="given")).env["GEMINI_API_KEY"] == "given"


def test_server_at_an_address_keeps_its_headers_to_the_letter(tmp_path: Path) -> None:
    """Gemini puts variables in place of what follows a dollar sign, and a token may hold one."""
    server = ToolServer(name="web", url="https://x.example/mcp", headers={"Authorization": "Bearer a$b"})
    command = SANDBOX.command(replace(work_of(tmp_path, "web/note"), servers={"web": server}))
    settings = json_of(command, ".gemini/settings.json")
    assert settings["mcpServers"]["web"] == {
        "includeTools": ["note"],
        "url": "https://x.example/mcp",
        "type": "http",
        "headers": {"Authorization": r"Bearer a\${NO_SUCH_VARIABLE:-$}b"},
    }


def test_folder_is_trusted_only_for_servers(tmp_path: Path) -> None:
    """Gemini connects to no server otherwise; everything else works without that trust."""
    assert "--skip-trust" not in SANDBOX.command(work_of(tmp_path, "read_file", "shell")).argv
    assert "--skip-trust" in SANDBOX.command(work_of(tmp_path, "lab/note")).argv


@given(st.text())
def test_only_a_plain_command_with_the_named_words_is_allowed(ending: str) -> None:
    """Whatever follows the words of the rule, nothing in it may mean something to a shell."""
    allowed = decision(rules("shell:make log"), "run_shell_command", command=f"make log{ending}") == "allow"
    assert allowed == bool(re.fullmatch(r"(?: [ A-Za-z0-9_./:=@,+%^~'-]*)?", ending))


@pytest.mark.parametrize(
    ("ending", "is_allowed"),
    [
        (" --oneline -n 3 HEAD~1", True),
        (" --grep 'a b' -o", True),
        (" --output=x", False),
        (" --output x", False),
        (" '--output=x'", False),
        (" --o'utput'=x", False),
        (" -''-output=x", False),
        (" -1  -p --ext-diff", False),
        (" --textconv", False),
        (" -Ox", False),
    ],
)
def test_option_by_which_git_writes_or_starts_something_is_denied(ending: str, *, is_allowed: bool) -> None:
    """`git log` only reads, until it is asked to put what it found into a file of the model's choice."""
    found = decision(rules("shell:git log"), "run_shell_command", command=f"git log{ending}")
    assert (found == "allow") is is_allowed


@pytest.mark.parametrize("tool", ["write_file", "replace"])
@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("a.txt", True),
        ("/p/.gitignore", True),
        (".github/workflows/x.yml", True),
        ("x.claude/a", True),
        (".claude/settings.json", False),
        ("/p/sub/.GIT/hooks/x", False),
        ("./.mcp.json", False),
        ("sub/opencode.json", False),
        (".github/hooks/x.json", False),
        ("docs/agents.md", False),
        ("AGENTS.md", False),
        (".envrc", False),
        ("mise.toml", False),
        ("AGENTS.md.txt", True),
    ],
)
def test_settings_of_agents_are_not_changed(tool: str, path: str, *, is_allowed: bool) -> None:
    """What is written there is executed later, as the person, by other programs."""
    assert (decision(rules("edit_file"), tool, file_path=path, content="x") == "allow") is is_allowed


def test_no_rule_is_one_that_gemini_leaves_out() -> None:
    """It says nothing when it does, and everything that the rule denies is allowed."""
    patterns = [str(rule.get("argsPattern", "")) for rule in rules("edit_file", "shell:git log", "search_files")]
    assert max(map(len, patterns)) <= MAX_PATTERN
    assert not [pattern for pattern in patterns if re.search(r"\([^)]*[*+?{].*\)[*+?{]", pattern)]


def test_instructions_are_let_go_by_a_word() -> None:
    """Somebody has to write them; settings stay held."""
    found = rules("edit_file", "edit_instructions")
    assert decision(found, "write_file", file_path="docs/AGENTS.md", content="x") == "allow"
    assert decision(found, "write_file", file_path=".claude/settings.json", content="x") == "deny"


def test_command_runs_in_the_folder_itself() -> None:
    """A folder inside can be a repository that came with it, with settings that name programs."""
    found = rules("shell:git log")
    assert decision(found, "run_shell_command", command="git log", dir_path="sub") == "deny"
    assert decision(found, "run_shell_command", command="git log", dir_path=".") == "allow"
    assert decision(rules("shell"), "run_shell_command", command="git log", dir_path="sub") == "allow"


def test_folder_whose_variables_gemini_would_take_is_refused(tmp_path: Path) -> None:
    """With a server the folder is trusted, and its variables could name another model, or a program."""
    theirs = tmp_path / "user" / "project"
    given = replace(work_of(tmp_path, "lab/note"), workdir=theirs)
    for folder in (tmp_path / "user", theirs):
        (folder / ".gemini").mkdir(parents=True)
    (tmp_path / "user" / ".gemini" / ".env").touch()
    SANDBOX.command(given)
    (theirs / ".gemini" / ".env").symlink_to("nowhere")
    with pytest.raises(UserError, match="go where no listed tool"):
        SANDBOX.command(given)
    SANDBOX.command(replace(given, tools=(parse_tool("read_file"),), servers={}))


def test_folder_with_instructions_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """Gemini gives its model every GEMINI.md, and a link of that name can lead to a key."""
    given = work_of(tmp_path, "lab/note")
    (given.workdir / "sub").mkdir(parents=True)
    (given.workdir / "AGENTS.md").touch()
    (given.workdir / "GEMINI.md").symlink_to("AGENTS.md")
    SANDBOX.command(given)
    (given.workdir / "sub" / "GEMINI.md").symlink_to(tmp_path / "key")
    with pytest.raises(UserError, match="go where no listed tool"):
        SANDBOX.command(given)
    SANDBOX.command(work_of(tmp_path, "read_file"))


def test_folder_with_another_name_for_settings_is_refused_where_it_can_be_edited(tmp_path: Path) -> None:
    """The policy knows paths as they are written."""
    given = work_of(tmp_path, "edit_file")
    (given.workdir / ".claude").mkdir(parents=True)
    (given.workdir / ".claude" / "skills").symlink_to(given.workdir / ".agents")
    SANDBOX.command(given)
    (given.workdir / "other").symlink_to(".claude")
    with pytest.raises(UserError, match="go where no listed tool"):
        SANDBOX.command(given)
    SANDBOX.command(work_of(tmp_path, "read_file"))


@given(st.text(min_size=1))
def test_search_pattern_is_never_an_option(pattern: str) -> None:
    """An option of `git grep` can be a command."""
    if decision(rules("search_files"), "grep_search", pattern=pattern) == "allow":
        assert not pattern.startswith("-")
        assert not set(pattern) & set('\\()[]{}?"\n\0')


@given(st.text(alphabet=".,{}/*a~", min_size=1))
def test_list_pattern_never_leads_out(pattern: str) -> None:
    """However a step upwards is spelled, with braces too, it is one after they are expanded."""
    if decision(rules("list_files"), "glob", pattern=pattern) == "allow":
        for path in expanded(pattern):
            assert not path.startswith("/")
            assert ".." not in path.split("/")


def expanded(pattern: str, depth: int = 6) -> list[str]:
    """Return what the innermost braces of a pattern mean, one after the other."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None or depth == 0:
        return [pattern]
    parts = found[1].split(",")
    return [
        path for part in parts for path in expanded(pattern[: found.start()] + part + pattern[found.end() :], depth - 1)
    ]


def test_tool_that_nobody_named_is_denied() -> None:
    """A policy that says nothing of a tool leaves it to Gemini."""
    found = rules("read_file", "lab/note")
    assert decision(found, "read_file", file_path="x") == "allow"
    assert decision(found, "write_file", file_path="x") == "deny"
    assert [rule["mcpName"] for rule in found if "mcpName" in rule] == ["lab"]


def line(kind: str, **more: object) -> bytes:
    """Return a line as Gemini 0.61 prints it."""
    return json.dumps({"type": kind, "timestamp": "2026-01-05T09:00:00.000Z", **more}).encode()


def test_output_is_told_step_by_step() -> None:
    """The record of a run is made of this."""
    outside = 'Path not in workspace: Attempted path "/etc/passwd" resolves outside'
    lines = (
        line("init", session_id="s", model="auto"),
        line("message", role="user", content="do it"),
        line("message", role="assistant", content="I look", delta=True),
        line("message", role="assistant", content=" first.", delta=True),
        line("tool_use", tool_name="read_file", tool_id="1", parameters={"file_path": "/etc/passwd"}),
        line("tool_use", tool_name="write_file", tool_id="2", parameters={}),
        line("tool_result", tool_id="1", status="error", error={"type": "invalid_tool_params", "message": outside}),
        line("tool_result", tool_id="2", status="error", error={"type": "tool_not_registered", "message": "none"}),
        line("message", role="assistant", content="done", delta=True),
        line("result", status="success", stats={}),
    )
    transcript = SANDBOX.transcript()
    told = [each for each_line in lines for each in transcript.feed(each_line)]
    assert [*told, *transcript.finish("", 0)] == [
        OutputEvent(OutputKind.TEXT, "I look first."),
        OutputEvent(OutputKind.TOOL, '{"file_path": "/etc/passwd"}', "read_file"),
        OutputEvent(OutputKind.TOOL, "{}", "write_file"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.DENIED, outside, "read_file", "/etc/passwd"),
        OutputEvent(OutputKind.DENIED, "none", "write_file"),
        OutputEvent(OutputKind.TEXT, "done"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.ANSWER, "done"),
    ]


def test_failure_is_told_once() -> None:
    """Two reasons for one end would leave the person guessing."""
    transcript = SANDBOX.transcript()
    error = {"type": "FatalTurnLimitedError", "message": "Reached max session turns"}
    told = [*transcript.feed(line("result", status="error", error=error)), *transcript.finish("noise", 53)]
    assert told == [OutputEvent(OutputKind.ERROR, "It was ended: it took all the turns that it has.")]
    for said in ("a\nlast words\n", "last words {\n  }\n}\n"):
        (last,) = SANDBOX.transcript().finish(said, 1)
        assert last.text.startswith("last words")
