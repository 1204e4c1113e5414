"""The sandbox of Copilot CLI without Copilot CLI: how it would be started, and what its recorded output tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from harken.hosts import edit_guard
from harken.hosts.copilot.headless import SANDBOX
from harken.hosts.run_environment import held_parts
from harken.runs.held import folded
from harken.runs.sandbox import OutputEvent, OutputKind, SandboxRequest
from harken.testing.agent import Json
from tests.hosts_unit.rig import json_of, own_environment, work_of

# Printed by 1.0.102; what does not matter here was taken out.
RECORDED: Final = (
    rb"""
{"type":"session.info","data":{"infoType":"configuration","message":"Disabled tools: bash, create, edit"}}
{"type":"user.message","data":{"content":"hello"}}
{"type":"assistant.turn_start","data":{"turnId":"0"}}
{"type":"assistant.message","data":{"content":"I look.","toolRequests":[{"toolCallId":"c0","name":"view",\
"arguments":{"path":"/x"}}]}}
{"type":"tool.execution_start","data":{"toolCallId":"c0","toolName":"view"}}
{"type":"tool.execution_complete","data":{"toolCallId":"c0","success":false,\
"error":{"message":"Permission denied because no\
 interactive user response was available.","code":"denied"}}}
{"type":"assistant.turn_end","data":{"turnId":"0"}}
{"type":"assistant.message","data":{"content":"","toolRequests":[{"toolCallId":"c1","name":"rg","arguments":{}},\
{"toolCallId":"c2","name":"view","arguments":{}}]}}
{"type":"tool.execution_complete","data":{"toolCallId":"c1","success":false,\
"error":{"message":"Tool 'rg' does not exist.",\
"code":"failure"}}}
{"type":"tool.execution_complete","data":{"toolCallId":"c2","success":false,\
"error":{"message":"Path is missing","code":"failure"}}}
{"type":"assistant.turn_end","data":{"turnId":"1"}}
{"type":"assistant.message","data":{"content":"done","toolRequests":[]}}
{"type":"assistant.turn_end","data":{"turnId":"2"}}
{"type":"result","sessionId":"099c4410","exitCode":0,"usage":{"premiumRequests":0}}
""".replace(b"\\\n", b"")
    .strip()
    .splitlines()
)


def _file(work: SandboxRequest, name: str) -> Json:
    return json_of(SANDBOX.command(work), f"copilot/{name}")


def _options(work: SandboxRequest, *names: str) -> list[str]:
    return [word for word in SANDBOX.command(work).argv if word.partition("=")[0] in names]


def test_each_word_becomes_exactly_its_tools(tmp_path: Path) -> None:
    """A tool more than the rule names is authority that nobody gave."""
    work = work_of(tmp_path, "read_file", "list_files", "search_files", "near/note", "far.away/look", "view")
    assert _options(work, "--available-tools", "--allow-tool", "--allow-all-tools") == [
        "--available-tools=view,glob,grep,rg,near-note,far_away-look",
        "--allow-tool=near(note)",
        "--allow-tool=far_away(look)",
    ]
    far = {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer f"}, "tools": ["look"]}
    near = {"command": "near", "args": ["--serve"], "env": {"NEAR_KEY": "n"}, "tools": ["note"]}
    servers = {"near": {"type": "stdio", **near}, "far_away": {"type": "http", **far}}
    assert _file(work, "mcp-config.json") == {"mcpServers": servers}


@pytest.mark.parametrize(
    ("tools", "options"),
    [
        ([], ["--available-tools=harken-no-tool"]),
        (["edit_file"], ["--available-tools=create,edit,apply_patch", "--allow-tool=write"]),
        (["edit"], ["--available-tools=edit", "--allow-tool=write"]),
        (["shell:git log"], ["--available-tools=bash", "--allow-tool=shell(git:*)"]),
        (["shell"], ["--available-tools=bash,read_bash,stop_bash", "--allow-all-tools"]),
    ],
)
def test_what_changes_things_is_allowed_only_when_named(tmp_path: Path, tools: list[str], options: list[str]) -> None:
    """Being there is not enough to be used, and an empty list would mean all tools to this host."""
    work = work_of(tmp_path, *tools)
    assert _options(work, "--available-tools", "--allow-tool", "--allow-all-tools") == options


def test_a_shell_is_guarded_unless_it_was_given_whole(tmp_path: Path) -> None:
    """The host's own rules know programs only, and let through what they take to be harmless."""
    work = work_of(tmp_path, "shell:git log")
    asked = _file(work, "hooks/guards.json")["hooks"]["preToolUse"]
    assert [hook["matcher"] for hook in asked] == ["bash"]
    assert asked[0]["bash"].endswith("""'[["git", "log"]]' || exit 2""")
    assert _file(work, "settings.json")["disableAllHooks"] is False
    whole = work_of(tmp_path, "shell:git log", "shell")
    assert not any("hooks" in each.path for each in SANDBOX.command(whole).files)
    assert _file(whole, "settings.json")["disableAllHooks"] is True


def test_edits_are_guarded(tmp_path: Path) -> None:
    """The host takes a hook of git for a file like any other."""
    asked = _file(work_of(tmp_path, "edit_file"), "hooks/guards.json")["hooks"]["preToolUse"]
    assert [hook["matcher"] for hook in asked] == ["apply_patch|create|edit"]


@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ({"path": "a.txt"}, True),
        ({"path": ".gitignore"}, True),
        ({"path": ".github/workflows/test.yml"}, True),
        ({"path": ".github/hooks/h.json"}, False),
        ({"path": ".git/hooks/pre-commit"}, False),
        ({"path": "sub/.GIT/config"}, False),
        ({"path": "sub/../.mcp.json"}, False),
        ({"path": "link/config"}, False),
        ({"path": "sub/opencode.json"}, False),
        ({"path": "docs/agents.md"}, False),
        ("*** Begin Patch\n*** Add File: a.txt\n+x\n  *** Add File: sub/.git\n+x\n*** End Patch", False),
        ('{"path": ".git/config"}', False),
        ("*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch", True),
        ("*** Begin Patch\n*** Update File: a.txt\n*** Move to: .git/config\n*** End Patch", False),
        ({"input": "*** Begin Patch\n*** Delete File: .git/config\n*** End Patch"}, False),
        ("no patch", False),
        ({}, False),
        (None, False),
    ],
)
def test_the_guard_of_edits_keeps_what_is_executed_later(
    tmp_path: Path, arguments: object, *, is_allowed: bool
) -> None:
    """What is written into git's folder runs as the person, later: no sandbox holds that."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / ".git")
    held = json.dumps(folded(held_parts(())))
    told = edit_guard.main(held, json.dumps({"toolName": "edit", "toolArgs": arguments, "cwd": str(tmp_path)}))
    assert told == "" if is_allowed else json.loads(told)["permissionDecision"] == "deny"


def test_the_environment_is_small(tmp_path: Path) -> None:
    """What is not named does not get in: least of all what would make the run a session of Harken, or allow it all."""
    work = work_of(tmp_path, COPILOT_MODEL="m", COPILOT_ALLOW_ALL="true")
    assert own_environment(SANDBOX.command(work)) == {
        "HOME": str(tmp_path / "user"),
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COPILOT_MODEL": "m",
        "COPILOT_HOME": str(tmp_path / "run" / "copilot"),
        "COPILOT_AUTO_UPDATE": "false",
        "NO_COLOR": "1",
    }


@pytest.mark.parametrize("is_moved", [False, True])
def test_sign_in_and_model_are_taken_over_and_nothing_else(tmp_path: Path, *, is_moved: bool) -> None:
    """Accounts and the model are the person's; trust, hooks and plugins they gave to themselves only."""
    home = tmp_path / "user" / ("moved" if is_moved else ".copilot")
    home.mkdir(parents=True)
    settings = '{"model": "gpt-6", /* mine */ "hooks": {"agentStop": []}, "enabledPlugins": {"a@b": true}}'
    (home / "settings.json").write_text(settings, encoding="utf-8")
    user = {"host": "https://github.com", "login": "ann"}
    config = {"loggedInUsers": [user], "lastLoggedInUser": user, "trustedFolders": ["/"]}
    (home / "config.json").write_text(f"// managed\n{json.dumps(config)}", encoding="utf-8")
    work = work_of(tmp_path, COPILOT_HOME=str(home) if is_moved else "")
    quiet = {"memory": False, "disableAllHooks": True, "ide": {"autoConnect": False}}
    assert _file(work, "settings.json") == {"model": "gpt-6", **quiet}
    assert _file(work, "config.json") == {"lastLoggedInUser": user, "loggedInUsers": [user]}


def test_recorded_output_is_told_in_order() -> None:
    """The record of a run is made from this; a tool that only failed was not denied."""
    output = SANDBOX.transcript()
    told = [each for line in RECORDED for each in output.feed(line)]
    assert told == [
        OutputEvent(OutputKind.TEXT, "I look."),
        OutputEvent(OutputKind.TOOL, '{"path": "/x"}', "view"),
        OutputEvent(OutputKind.DENIED, tool="view", target="/x"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.TOOL, "{}", "rg"),
        OutputEvent(OutputKind.TOOL, "{}", "view"),
        OutputEvent(OutputKind.DENIED, tool="rg"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.TEXT, "done"),
        OutputEvent(OutputKind.TURN),
    ]
    assert list(output.finish("", 0)) == [OutputEvent(OutputKind.ANSWER, "done")]
