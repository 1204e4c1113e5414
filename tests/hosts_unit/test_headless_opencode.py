"""The sandbox of opencode, without opencode: what it is started with, and what its lines mean, as 1.18.33 printed them.

Whether this is a fence is shown by the tests that run the real one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from harken.errors import UserError
from harken.hosts.opencode.headless import SANDBOX
from harken.runs.sandbox import OutputKind, RunFileKind, SandboxCommand
from harken.testing.agent import Json
from tests.hosts_unit.rig import json_of, work_of

_PART: Final = '"sessionID":"ses_e1","messageID":"msg_1"'
STEP: Final = f'{{"type":"step_start","sessionID":"ses_e1","part":{{"type":"step-start",{_PART}}}}}'.encode()
READ: Final = (
    '{"type":"tool_use","sessionID":"ses_e1","part":{"type":"tool","tool":"read","callID":"call_0","state":{"status":'
    f'"completed","input":{{"filePath":"a.txt"}},"output":"hello","title":"a.txt"}},{_PART}}}}}'
).encode()
OUTSIDE: Final = (
    '{"type":"tool_use","sessionID":"ses_e1","part":{"type":"tool","tool":"read","callID":"call_1","state":{"status":'
    f'"error","input":{{"filePath":"../x"}},"error":"harken: outside the folder: ../x"}},{_PART}}}}}'
).encode()
RULE: Final = OUTSIDE.replace(b"harken: outside", b"The user has specified a rule which prevents you from outside")
MISSING: Final = (
    '{"type":"tool_use","sessionID":"ses_e1","part":{"type":"tool","tool":"invalid","callID":"call_2","state":{"status":'
    '"error","input":{"tool":"bash","error":"no such tool"},"error":"Model tried to call unavailable tool '
    f"'invalid'. Available tools: read.\"}},{_PART}}}}}"
).encode()
FAILED: Final = OUTSIDE.replace(b"harken: outside the folder", b"File not found")
NEXT: Final = f'{{"type":"step_finish","part":{{"reason":"tool-calls","type":"step-finish",{_PART}}}}}'.encode()
SAID: Final = f'{{"type":"text","part":{{"type":"text","text":"that is all",{_PART}}}}}'.encode()
LAST: Final = NEXT.replace(b"tool-calls", b"stop")


def file_of(command: SandboxCommand, name: str) -> Json:
    """Return a file of opencode's in the private folder."""
    return json_of(command, f"config/opencode/{name}")


def test_settings_deny_everything_and_only_the_fence_opens(tmp_path: Path) -> None:
    """Without the plugin, for whatever reason it is not loaded, a run must have no tools at all."""
    command = SANDBOX.command(work_of(tmp_path, "read_file", "edit_file", "my.lab/note", "todowrite"))
    settings, fence = file_of(command, "opencode.json"), file_of(command, "fence.json")
    agents = settings["agent"]
    assert isinstance(agents, dict)
    assert settings["permission"] == agents["harken"]["permission"] == {"*": "deny"}
    assert fence["permission"] == {
        "*": "deny",
        "edit": "allow",
        "my_lab_note": "allow",
        "read": "allow",
        "todowrite": "allow",
        "external_directory": "deny",
    }
    assert fence["tools"] == ["apply_patch", "edit", "my_lab_note", "read", "todowrite", "write"]
    assert (fence["isShell"], fence["prefixes"], fence["folder"]) == (False, [], str(tmp_path / "project"))
    assert command.argv[command.argv.index("--agent") + 1] == fence["agent"]


def test_server_is_in_the_home_of_the_person(tmp_path: Path) -> None:
    """It is their program, not the agent's: its own sign-in and cache are where they always are."""
    servers = file_of(SANDBOX.command(work_of(tmp_path, "lab/note")), "opencode.json")["mcp"]
    assert isinstance(servers, dict)
    home = tmp_path / "user"
    assert servers["lab"] == {
        "enabled": True,
        "timeout": 120_000,
        "type": "local",
        "command": ["serve", "lab"],
        "environment": {
            "HOME": str(home),
            "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state",
            "XDG_CACHE_HOME": f"{home}/.cache",
            "npm_config_offline": "false",
            "A": "b",
        },
    }


def test_shell_is_open_only_where_it_is_named(tmp_path: Path) -> None:
    """A command that begins with some words is less than a shell."""
    prefixed = file_of(SANDBOX.command(work_of(tmp_path, "shell:git log")), "fence.json")
    assert (prefixed["isShell"], prefixed["prefixes"], prefixed["tools"]) == (False, [["git", "log"]], ["bash"])
    assert file_of(SANDBOX.command(work_of(tmp_path, "shell")), "fence.json")["isShell"] is True


def test_sign_in_and_model_are_carried_over_and_nothing_else(tmp_path: Path) -> None:
    """The run is the person's, and none of their plugins, servers or wishes come with it."""
    folder = tmp_path / "user" / ".config" / "opencode"
    folder.mkdir(parents=True)
    mine = {"options": {"apiKey": "{env:MY_KEY}", "baseURL": "{file:~/address}"}}
    whole = {"model": "mine/m", "provider": {"mine": mine}, "plugin": ["x"], "mcp": {"x": {}}, "share": "auto"}
    (folder / "opencode.jsonc").write_text(f"// mine\n{json.dumps(whole)}", encoding="utf-8")
    given = json.dumps({"provider": {"other": {"options": {"apiKey": "{file:./key}"}}}, "plugin": ["y"]})
    work = work_of(tmp_path, "read_file", OPENCODE_CONFIG_CONTENT=given, MY_KEY="b", OPENAI_API_KEY="a")
    command = SANDBOX.command(work)
    settings = file_of(command, "opencode.json")
    assert (settings["model"], settings["mcp"], settings["share"]) == ("mine/m", {}, "disabled")
    assert settings["provider"] == {
        "mine": {"options": {"apiKey": "{env:MY_KEY}", "baseURL": f"{{file:{tmp_path}/user/address}}"}},
        "other": {"options": {"apiKey": "{file:./key}"}},
    }
    assert "plugin" not in settings
    links = {each.path: each.target for each in command.files if each.kind is RunFileKind.LINK}
    assert links["data/opencode/auth.json"] == tmp_path / "user/.local/share/opencode/auth.json"
    assert (command.env["MY_KEY"], command.env["OPENAI_API_KEY"]) == ("b", "a")
    assert file_of(command, "fence.json")["keys"] == ["MY_KEY", "OPENAI_API_KEY"]
    assert command.env["XDG_CACHE_HOME"] == str(tmp_path / "user" / ".cache")
    assert command.env.keys().isdisjoint({"HARKEN_HOME", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG"})
    inside = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    assert all(Path(command.env[name]).is_relative_to(tmp_path / "run") for name in inside)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("project/.opencode/plugins/x.js", ""),
        ("project/.opencode/plugin/x.ts", ""),
        (".opencode/plugins/x.js", ""),
        ("project/opencode.json", '{"plugin": ["x"]}'),
        ("project/.opencode/opencode.jsonc", '{"plugins": ["x"]}'),
        ("project/opencode.json", '{"pl\\u0075gin": ["x"]}'),
        ("project/opencode.json", '{"{file:./name.txt}": ["x"]}'),
    ],
)
def test_folder_whose_plugins_would_run_is_refused(tmp_path: Path, place: str, content: str) -> None:
    """They run before anything can be fenced, as far up as the repository goes."""
    work = work_of(tmp_path, "read_file")
    (tmp_path / ".git").mkdir()
    SANDBOX.command(work)
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="plugins of the folder"):
        SANDBOX.command(work)


def test_plugins_above_the_repository_are_no_reason(tmp_path: Path) -> None:
    """They are not loaded, and may be the person's own."""
    work = work_of(tmp_path, "read_file")
    (work.workdir / ".git").mkdir()
    (tmp_path / ".opencode" / "plugins").mkdir(parents=True)
    assert SANDBOX.command(work).argv


def test_lines_tell_what_happened() -> None:
    """The record of a run is made of this."""
    transcript = SANDBOX.transcript()
    lines = (b"", STEP, READ, OUTSIDE, RULE, MISSING, FAILED, NEXT, STEP, SAID, LAST)
    told = [each for line in lines for each in transcript.feed(line)]
    assert [(each.kind, each.tool) for each in told] == [
        (OutputKind.TOOL, "read"),
        (OutputKind.DENIED, "read"),
        (OutputKind.DENIED, "read"),
        (OutputKind.DENIED, "bash"),
        (OutputKind.TOOL, "read"),
        (OutputKind.TURN, ""),
        (OutputKind.TEXT, ""),
        (OutputKind.TURN, ""),
        (OutputKind.ANSWER, ""),
    ]
    assert told[0].text == '{"filePath": "a.txt"}'
    assert told[-1].text == "that is all"
    assert transcript.finish("", 0) == ()
