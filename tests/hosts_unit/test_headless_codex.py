"""Codex in its sandbox, without Codex: what it is started with, and what its lines mean.

The lines were printed by 0.166.0. Whether this is a fence is shown by the tests that run the real one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from harken.errors import UserError
from harken.hosts.codex.headless import SANDBOX
from harken.hosts.run_environment import table
from harken.runs.sandbox import OutputEvent, OutputKind, RunFileKind, SandboxCommand, ToolServer
from tests.hosts_unit.rig import own_environment, work_of

STARTED: Final = (
    b'{"type":"item.started","item":{"id":"item_1","type":"mcp_tool_call","server":"lab","tool":"note","arguments":'
    b'{"text":"x"},"result":null,"error":null,"status":"in_progress"}}'
)
ENDED: Final = (
    b'{"type":"item.completed","item":{"id":"item_1","type":"mcp_tool_call","server":"lab","tool":"note","arguments":'
    b'{"text":"x"},"result":{"content":[{"type":"text","text":"MARKED note"}],"structured_content":null},"error":null,'
    b'"status":"completed"}}'
)
SAID: Final = b'{"type":"item.completed","item":{"id":"item_4","type":"agent_message","text":"that is all"}}'
DONE: Final = b'{"type":"turn.completed","usage":{"input_tokens":70,"output_tokens":70}}'
UNSUPPORTED: Final = "2026-11-16T05:38:50.2Z ERROR codex_core::tools::router: error=unsupported call: exec_command"
REJECTED: Final = (
    "2026-11-16T05:38:09.3Z ERROR codex_core::tools::router: error=patch rejected: writing outside of the project; "
    "rejected by user approval settings"
)
NOT_FOUND: Final = (
    "2026-11-16T05:38:09.3Z ERROR codex_core::tools::router: error=apply_patch verification failed: Failed to find "
    "expected lines in /work/a.txt:\nnope"
)


def settings_of(command: SandboxCommand) -> dict[str, object]:
    """Return the settings that a run would have."""
    (file,) = [each for each in command.files if each.path == "config.toml"]
    return tomllib.loads(file.content)


def test_sign_in_and_model_are_carried_over_and_nothing_else(tmp_path: Path) -> None:
    """The run is the person's, and none of their hooks, servers or wishes come with it."""
    home = tmp_path / "user" / ".codex"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(
        'model = "m"\nmodel_provider = "p"\nnotify = ["x"]\nsandbox_mode = "danger-full-access"\n'
        '[model_providers.p]\nname = "p"\nbase_url = "http://127.0.0.1:1/v1"\nenv_key = "MY_KEY"\n'
        '[mcp_servers.own]\ncommand = "x"\n[features]\nhooks = true\n[profiles.x]\nmodel = "y"\n',
        encoding="utf-8",
    )
    command = SANDBOX.command(work_of(tmp_path, "lab/note", OPENAI_API_KEY="a", MY_KEY="b", SSH_AUTH_SOCK="d"))
    settings = settings_of(command)
    assert (settings["model"], settings["model_provider"], settings["sandbox_mode"]) == ("m", "p", "read-only")
    assert settings.keys().isdisjoint({"notify", "profiles", "profile"})
    servers = settings["mcp_servers"]
    assert isinstance(servers, dict)
    assert set(servers) == {"lab"}
    (link,) = [each for each in command.files if each.kind is RunFileKind.LINK]
    assert (link.path, link.target) == ("auth.json", home / "auth.json")
    assert own_environment(command) == {
        "HOME": str(tmp_path / "run"),
        "CODEX_HOME": str(tmp_path / "run"),
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": str(tmp_path / "run" / "scratch"),
        "OPENAI_API_KEY": "a",
        "MY_KEY": "b",
        "RUST_LOG": command.env["RUST_LOG"],
    }
    assert command.env["RUST_LOG"].startswith("error,codex_otel.trace_safe=info,")


def test_broken_settings_of_the_person_carry_nothing(tmp_path: Path) -> None:
    """A file that Codex itself would refuse must not make the run another one than it seems."""
    (tmp_path / "user" / ".codex").mkdir(parents=True)
    (tmp_path / "user" / ".codex" / "config.toml").write_text("model = \n", encoding="utf-8")
    assert "model" not in settings_of(SANDBOX.command(work_of(tmp_path, "shell")))


@pytest.mark.parametrize(
    ("tools", "has_shell"),
    [(("edit_file",), False), (("apply_patch",), False), (("shell",), True), (("shell", "read_file"), True)],
)
def test_sandbox_is_as_wide_as_the_tools(tmp_path: Path, tools: tuple[str, ...], *, has_shell: bool) -> None:
    """Codex has no list of allowed tools: what is not switched off is held by the sandbox."""
    settings = settings_of(SANDBOX.command(work_of(tmp_path, *tools)))
    features = table(settings["features"])
    profile = table(table(settings["permissions"])[str(settings["default_permissions"])])
    places = table(profile["filesystem"])
    inside = table(places[":workspace_roots"])
    assert "sandbox_mode" not in settings
    assert features["shell_tool"] is has_shell
    assert (places["/"], places.get(":tmpdir")) == ("read", "write" if has_shell else None)
    assert (inside["."], inside[".git"], inside[".mcp.json"], inside[".github"]) == ("write", "read", "read", "read")
    assert inside.get("AGENTS.md") == (None if has_shell else "read")
    assert (profile["network"], settings["approval_policy"]) == ({"enabled": False}, "never")


@pytest.mark.parametrize(
    ("tools", "is_guarded"), [(("edit_file",), True), (("shell",), True), (("lab/note",), False), ((), False)]
)
def test_patches_are_guarded_by_the_only_hook(tmp_path: Path, tools: tuple[str, ...], *, is_guarded: bool) -> None:
    """The sandbox knows the top of the folder only; and no hook but ours may run without anybody's trust."""
    command = SANDBOX.command(work_of(tmp_path, *tools))
    files = {each.path: each.content for each in command.files}
    assert table(settings_of(command)["features"])["hooks"] is is_guarded
    assert ("--dangerously-bypass-hook-trust" in command.argv) is ("hooks.json" in files) is is_guarded
    if is_guarded:
        (asked,) = json.loads(files["hooks.json"])["hooks"]["PreToolUse"]
        assert asked["matcher"] == "apply_patch"
        assert asked["hooks"][0]["command"].endswith("nested || exit 2")


def test_sandbox_changes_nothing_for_a_tool_of_a_server(tmp_path: Path) -> None:
    """Most models are offered the tool for patches whatever the settings say."""
    settings = settings_of(SANDBOX.command(work_of(tmp_path, "lab/note")))
    assert settings["sandbox_mode"] == "read-only"
    assert settings.keys().isdisjoint({"default_permissions", "permissions"})


def test_server_gives_only_the_tools_that_are_named(tmp_path: Path) -> None:
    """Another tool of the same server may do anything."""
    server = ToolServer(name="my.lab", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer x"})
    settings = settings_of(SANDBOX.command(work_of(tmp_path, "my.lab/b", "my.lab/a", servers=[server])))
    servers = settings["mcp_servers"]
    assert isinstance(servers, dict)
    entry = servers["my_lab"]
    assert (entry["enabled_tools"], entry["http_headers"]) == (["a", "b"], {"Authorization": "Bearer x"})


def test_older_transport_is_an_error_that_names_the_server(tmp_path: Path) -> None:
    """Codex would take the address for one of the newer kind, and fail without saying so."""
    server = ToolServer(name="lab", url="http://127.0.0.1:1/sse", is_sse=True)
    with pytest.raises(UserError, match="server lab"):
        SANDBOX.command(work_of(tmp_path, "lab/note", servers=[server]))


def test_prompt_is_in_no_argument_and_names_no_skill(tmp_path: Path) -> None:
    """Arguments are seen by everyone on the machine; a skill's text would take the place of a message's."""
    command = SANDBOX.command(work_of(tmp_path, "shell", prompt='--help $deploy. "\u2028 $a:b \U0001f600'))
    assert command.stdin == '--help $deploy. "\u2028 $a:b \U0001f600'.encode()
    assert command.argv[-1] == "-"
    assert not any("deploy" in part for part in command.argv)
    skills = settings_of(command)["skills"]
    assert isinstance(skills, dict)
    assert [each["name"] for each in skills["config"]] == ["a:b", "deploy", "deploy."]


def test_lines_tell_what_happened() -> None:
    """The record of a run is made of this."""
    transcript = SANDBOX.transcript()
    told = [each for line in (b"", STARTED, ENDED, SAID, DONE) for each in transcript.feed(line)]
    assert told == [
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.TOOL, '{"text": "x"}', "lab/note"),
        OutputEvent(OutputKind.TEXT, "that is all"),
        OutputEvent(OutputKind.TURN),
        OutputEvent(OutputKind.ANSWER, "that is all"),
    ]
    assert transcript.finish("", 0) == []


@pytest.mark.parametrize("is_fed", [False, True])
def test_denied_calls_are_told_once_whether_fed_or_at_the_end(*, is_fed: bool) -> None:
    """Codex says on standard error only that it denied a call; a failed search for lines is no denial."""
    transcript = SANDBOX.transcript()
    stderr = f"{UNSUPPORTED}\n{NOT_FOUND}\n{REJECTED}"
    lines = stderr.encode().splitlines() if is_fed else []
    told = [each for line in lines for each in transcript.feed(line)] + list(transcript.finish(stderr, 0))
    assert [each.tool for each in told if each.kind is OutputKind.DENIED] == ["exec_command", "apply_patch"]
    assert [each.kind for each in told].count(OutputKind.TURN) == 2


def test_calls_that_run_together_are_one_turn() -> None:
    """Otherwise a model that works in parallel would use up its turns at once."""
    transcript = SANDBOX.transcript()
    second = STARTED.replace(b"item_1", b"item_2")
    told = [each for line in (STARTED, second, ENDED, second) for each in transcript.feed(line)]
    assert [each.kind for each in told].count(OutputKind.TURN) == 1


def logged(*calls: Sequence[str]) -> Sequence[bytes]:
    """Return what Codex logs of an answer with some calls, each a tool with its arguments, and denies all of them."""
    head = "2026-11-16T05:38:50.2Z  INFO codex_otel.trace_safe: event.name="
    lines = []
    for number, (name, arguments) in enumerate(calls):
        item = {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": arguments}
        event = json.dumps({"type": "response.output_item.done", "item": item})
        lines.append(f"2026-11-16T05:38:50.2Z TRACE codex_api::sse::responses: SSE event: {event}")
    lines.append(f'{head}"codex.sse_event" event.kind=response.completed input_token_count=10')
    for number, (name, _) in reversed(list(enumerate(calls))):
        lines.append(f'{head}"codex.tool_result" tool_name={name} call_id=c{number} duration_ms=0 success=false x=1')
        lines.append(UNSUPPORTED.replace("exec_command", name))
    return [line.encode() for line in lines]


def test_log_says_what_was_denied_and_how_often_the_model_was_asked() -> None:
    """Two calls in one answer are one turn, and of two calls of one tool each is told with its own target."""
    transcript = SANDBOX.transcript()
    log = logged(("exec_command", '{"cmd": "ls /a"}'), ("exec_command", '{"cmd": "ls /b"}'), ("view_image", "odd"))
    told = [each for line in (*log, STARTED, ENDED, SAID, DONE) for each in transcript.feed(line)]
    told += transcript.finish(b"\n".join(log).decode(), 0)
    denied = [(each.tool, each.target) for each in told if each.kind is OutputKind.DENIED]
    assert denied == [("view_image", "odd"), ("exec_command", "ls /b"), ("exec_command", "ls /a")]
    assert [each.kind for each in told].count(OutputKind.TURN) == 1


def test_denied_call_is_not_taken_for_one_that_is_over() -> None:
    """A guard says no without a result: what was changed or failed before it must not stand in its place."""
    transcript = SANDBOX.transcript()
    fact = "2026-11-16T05:38:50.2Z  INFO codex_otel.trace_safe: event.name="
    blocked = "2026-11-16T05:38:50.2Z ERROR codex_core::tools::router: error=Command blocked by PreToolUse hook: no"
    log: list[str] = []
    for number, (path, result) in enumerate([("a", "success=true"), ("b", "success=false"), ("sub/.git", "")]):
        patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
        item = {"type": "custom_tool_call", "call_id": f"c{number}", "name": "apply_patch", "input": patch}
        event = json.dumps({"type": "response.output_item.done", "item": item})
        said = f'{fact}"codex.tool_result" tool_name=apply_patch call_id=c{number} duration_ms=0 {result} x=1'
        log += [
            f"2026-11-16T05:38:50.2Z TRACE codex_api::sse::responses: SSE event: {event}",
            said if result else blocked,
            f'{fact}"codex.tool_result_ready" dispatch_to_result_ready_ms=4 turn_id="t" call_id="c{number}" x="y"',
        ]
    told = [each for line in log for each in transcript.feed(line.encode())]
    assert [each.target for each in told if each.kind is OutputKind.DENIED] == ["sub/.git"]


def test_text_that_looks_like_the_log_inside_a_line_tells_nothing() -> None:
    """An error may quote what a stranger wrote."""
    transcript = SANDBOX.transcript()
    for line in logged(("exec_command", "{}")):
        assert transcript.feed(b"2026-11-16T05:38:50.2Z ERROR codex_core::exec: error=" + line) == ()
