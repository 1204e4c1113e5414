"""Connecting Claude Code, planned: the plugin's files, the commands, and what each kind of home gets.

The files of Claude Code have the shapes that the real program was seen to write.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from harken.errors import UserError
from harken.hosts.claude_code import plugin
from harken.hosts.claude_code.connect import CONNECTOR
from harken.hosts.claude_code.hooks import APPROVALS, EVENTS, MAX_CHARS
from harken.hosts.connect.command import UNASKED
from harken.hosts.connect.plan import CommandStep, ConnectOptions, FileEdit, InstallTarget
from harken.hosts.instructions import Abilities, agent_instructions
from harken.sessions.turns import HookMoment


@pytest.fixture
def place(tmp_path: Path) -> InstallTarget:
    """A person's home with a stand-in for the program, which tells its version and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "claude"
    program.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo '2.1.325 (Claude Code)'\n", encoding="utf-8")
    program.chmod(0o755)
    user = tmp_path / "me"
    user.mkdir()
    return InstallTarget(
        user=user,
        environ={"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"},
        project=None,
        harken=tmp_path / "harken home",
        python="/usr/bin/python 3",
        edge=tmp_path / "edge",
    )


def write(path: Path, content: object) -> None:
    """Write a settings file of Claude Code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def repository(folder: Path) -> Path:
    """Make what Claude Code takes for a repository."""
    (folder / ".git").mkdir(parents=True)
    return folder


def connect(place: InstallTarget) -> None:
    """Leave behind what Claude Code and `connect` leave behind, as seen on the real program."""
    for name, content in plugin.files(place).items():
        path = plugin.folder(place) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    scope: dict[str, object] = {"scope": "user"}
    settings = place.user / ".claude" / "settings.json"
    if place.project is not None:
        scope = {"scope": "local", "projectPath": str(place.project)}
        settings = place.project / ".claude" / "settings.local.json"
    source = {"source": "directory", "path": str(plugin.folder(place))}
    write(
        settings,
        {
            "extraKnownMarketplaces": {plugin.marketplace(place): {"source": source}},
            "enabledPlugins": {plugin.plugin_id(place): True},
        },
    )
    installed = {plugin.plugin_id(place): [{**scope, "version": plugin.version(place)}]}
    write(place.user / ".claude" / "plugins" / "installed_plugins.json", {"version": 2, "plugins": installed})


def test_commands_of_the_plugin_name_home_and_interpreter() -> None:
    """Hosts start commands with an environment of their own, in a folder of their own."""
    place = InstallTarget(
        user=Path("/u"), environ={}, project=None, harken=Path("/my harken"), python="/py thon", edge=Path("/e")
    )
    files = plugin.files(place)
    server = json.loads(files["harken/.mcp.json"])["mcpServers"]["harken"]
    assert [server["command"], *server["args"]] == ["/py thon", "-I", "-S", "/e/mcp.py", "--home", "/my harken"]
    hooks = json.loads(files["harken/hooks/hooks.json"])["hooks"]
    told = {"PermissionRequest", "Notification", "StopFailure"}
    assert set(hooks) == {*EVENTS.values(), "PreToolUse", *told}
    assert {tuple(shlex.split(hooks[event][0]["hooks"][0]["command"])[-2:]) for event in told} == {
        ("claude-code", HookMoment.HALT.value)
    }
    for moment, event in EVENTS.items():
        line = hooks[event][0]["hooks"][0]["command"]
        script = ["/py thon", "-I", "-S", "/e/hook.py", "--home", "/my harken", "claude-code", moment.value]
        assert shlex.split(line)[-len(script) :] == script
    assert [event for event in hooks if hooks[event][0]["hooks"][0].get("asyncRewake")] == ["FileChanged"]


def test_hook_that_relays_questions_is_there_only_where_it_was_chosen(place: InstallTarget) -> None:
    """It waits for a person: as long as the hook may live, and without a bell."""
    [telling] = json.loads(plugin.files(place)["harken/hooks/hooks.json"])["hooks"]["PermissionRequest"]
    chosen = plugin.files(replace(place, has_approvals=True))["harken/hooks/hooks.json"]
    same, group = json.loads(chosen)["hooks"]["PermissionRequest"]
    [asking] = group["hooks"]
    assert same == telling
    assert shlex.split(asking["command"])[-2:] == ["claude-code", "ask"]
    assert timedelta(seconds=asking["timeout"]) > APPROVALS.patience


def test_only_tools_that_stay_at_home_are_allowed_unasked(place: InstallTarget) -> None:
    """A reply leaves the machine: the person is asked, as for every other tool that is not named here."""
    hook = json.loads(plugin.files(place)["harken/hooks/hooks.json"])["hooks"]["PreToolUse"][0]
    names = hook["matcher"].removeprefix("^mcp__plugin_harken_harken__(").removesuffix(")$").split("|")
    assert names == list(UNASKED)
    assert "reply" not in names
    said = subprocess.run(["/bin/sh", "-c", hook["hooks"][0]["command"]], capture_output=True, check=True).stdout
    assert json.loads(said)["hookSpecificOutput"] == {"hookEventName": "PreToolUse", "permissionDecision": "allow"}


def test_session_that_starts_is_told_what_a_message_is(place: InstallTarget, tmp_path: Path) -> None:
    """Not one that is resumed, which was told; and a plugin that is not where it should be says nothing."""
    for name, content in plugin.files(place).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    _, group = json.loads((tmp_path / "harken/hooks/hooks.json").read_bytes())["hooks"]["SessionStart"]
    assert group["matcher"] == "startup|clear|compact"

    def said(root: Path) -> bytes:
        command = ["/bin/sh", "-c", group["hooks"][0]["command"]]
        done = subprocess.run(command, env={"CLAUDE_PLUGIN_ROOT": str(root)}, capture_output=True, check=True)
        return done.stdout + done.stderr

    text = agent_instructions(Abilities(tool_prefix=plugin.TOOL_PREFIX))
    assert json.loads(said(tmp_path / "harken"))["hookSpecificOutput"] == {
        "hookEventName": "SessionStart",
        "additionalContext": text,
    }
    assert len(text) < MAX_CHARS
    assert said(tmp_path / "gone") == b""


def test_plugin_with_other_contents_has_another_version(place: InstallTarget, tmp_path: Path) -> None:
    """Claude Code copies a plugin again only when its version differs."""
    moved = replace(place, harken=tmp_path / "other")
    assert plugin.version(place) != plugin.version(moved)
    assert plugin.version(place) == plugin.version(place)


def test_installed_program_is_found_with_its_version(place: InstallTarget) -> None:
    """What is connected is what the person runs."""
    found = CONNECTOR.find(place)
    assert found is not None
    assert (found.program.name, found.version) == ("claude", "2.1.325")


def test_missing_program_is_said_plainly(place: InstallTarget, tmp_path: Path) -> None:
    """Nothing is written for a program that is not there."""
    nowhere = replace(place, environ={"PATH": str(tmp_path)})
    assert CONNECTOR.find(nowhere) is None
    with pytest.raises(UserError, match="not installed"):
        CONNECTOR.plan(nowhere, ConnectOptions())


def test_first_plan_writes_the_plugin_then_lets_claude_install_it(place: InstallTarget) -> None:
    """The files have to be there before Claude Code is told where they are."""
    plan = CONNECTOR.plan(place, ConnectOptions())
    files = [step for step in plan.steps if isinstance(step, FileEdit)]
    commands = [step for step in plan.steps if isinstance(step, CommandStep)]
    assert list(plan.steps) == [*files, *commands]
    assert {step.path: step.after for step in files} == {
        plugin.folder(place) / name: content for name, content in plugin.files(place).items()
    }
    assert all(step.is_ours and step.before is None for step in files)
    assert [step.argv[1:] for step in commands] == [
        ("plugin", "marketplace", "add", str(plugin.folder(place)), "--scope", "user"),
        ("plugin", "install", "harken@harken", "--scope", "user"),
    ]
    assert [step.undo[1:] for step in commands] == [
        ("plugin", "marketplace", "remove", "harken", "--scope", "user"),
        ("plugin", "uninstall", "harken@harken", "--scope", "user"),
    ]
    assert not any(place.user.iterdir())


def test_home_in_use_is_watched_only_where_claude_writes(place: InstallTarget) -> None:
    """Conversations are not looked at: they are many, large and none of our business."""
    (place.user / ".claude" / "plugins" / "marketplaces").mkdir(parents=True)
    (place.user / ".claude" / "projects").mkdir()
    commands = [step for step in CONNECTOR.plan(place, ConnectOptions()).steps if isinstance(step, CommandStep)]
    config = place.user / ".claude"
    assert set(commands[0].touches) == {
        place.user / ".claude.json",
        config / "settings.json",
        config / "backups",
        config / "plugins" / "known_marketplaces.json",
        config / "plugins" / "installed_plugins.json",
        config / "plugins" / "cache" / "harken",
        config / "plugins" / "data" / "harken-harken",
    }


def test_settings_kept_elsewhere_are_found_there(place: InstallTarget, tmp_path: Path) -> None:
    """Some people keep several Claude Codes apart by this variable."""
    elsewhere = replace(place, environ={**place.environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "work")})
    commands = [step for step in CONNECTOR.plan(elsewhere, ConnectOptions()).steps if isinstance(step, CommandStep)]
    assert all(path.is_relative_to(tmp_path / "work") for path in commands[0].touches)
    assert commands[0].environ["CLAUDE_CONFIG_DIR"] == str(tmp_path / "work")


def test_connected_and_current_host_has_nothing_to_do(place: InstallTarget) -> None:
    """Connecting twice must change nothing, and say so."""
    connect(place)
    assert CONNECTOR.plan(place, ConnectOptions()).steps == ()


def test_moved_interpreter_is_written_and_copied_again(place: InstallTarget) -> None:
    """After an update of Python the old commands would fail silently."""
    connect(place)
    moved = replace(place, python="/new/python")
    plan = CONNECTOR.plan(moved, ConnectOptions())
    names = {step.path.name for step in plan.steps if isinstance(step, FileEdit)}
    commands = [step.argv[1:] for step in plan.steps if isinstance(step, CommandStep)]
    assert names == {"plugin.json", ".mcp.json", "hooks.json"}
    assert commands == [("plugin", "update", "harken@harken", "--scope", "user")]


def test_plugin_of_another_home_is_replaced(place: InstallTarget, tmp_path: Path) -> None:
    """Claude Code knows one marketplace of a name; the messages of the old home would go on arriving."""
    other = replace(place, harken=tmp_path / "other")
    connect(other)
    commands = [step for step in CONNECTOR.plan(place, ConnectOptions()).steps if isinstance(step, CommandStep)]
    assert [step.argv[1:3] for step in commands] == [("plugin", "marketplace"), ("plugin", "update")]


def test_switched_off_plugin_is_switched_on_again(place: InstallTarget) -> None:
    """Whoever connects wants it on."""
    connect(place)
    settings = place.user / ".claude" / "settings.json"
    write(settings, {**json.loads(settings.read_text()), "enabledPlugins": {plugin.plugin_id(place): False}})
    commands = [step for step in CONNECTOR.plan(place, ConnectOptions()).steps if isinstance(step, CommandStep)]
    assert [step.argv[1:3] for step in commands] == [("plugin", "install")]


def test_folder_is_connected_by_settings_that_git_does_not_track(place: InstallTarget, tmp_path: Path) -> None:
    """What a team shares is not changed because one of them reads mail."""
    project = repository(tmp_path / "shop")
    here = replace(place, project=project)
    plan = CONNECTOR.plan(here, ConnectOptions())
    commands = [step for step in plan.steps if isinstance(step, CommandStep)]
    assert [step.argv[-2:] for step in commands] == [("--scope", "local")] * 2
    assert all(step.argv[:4] == ("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(project)) for step in commands)
    ignored = place.user / ".config" / "git" / "ignore"
    assert {project / ".claude" / "settings.local.json", ignored} <= set(commands[0].touches)
    assert any("git does not track" in note for note in plan.notes)
    connect(here)
    assert CONNECTOR.plan(here, ConnectOptions()).steps == ()


def test_folder_of_a_repository_means_the_repository(place: InstallTarget, tmp_path: Path) -> None:
    """Claude Code keeps one file of local settings for a repository, its folders and its worktrees."""
    project, work = tmp_path / "shop", tmp_path / "work"
    (project / "src").mkdir(parents=True)
    for command in (
        ("init", "--quiet", str(project)),
        ("-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"),
        ("-C", str(project), "worktree", "add", "--quiet", str(work)),
    ):
        subprocess.run(["/usr/bin/env", "git", *command], check=True, capture_output=True)
    plan = CONNECTOR.plan(replace(place, project=project), ConnectOptions())
    for folder in (project / "src", work):
        other = CONNECTOR.plan(replace(place, project=folder), ConnectOptions())
        assert other.steps == plan.steps
        assert any("whole repository" in note for note in other.notes)
    assert not any("whole repository" in note for note in plan.notes)


def test_folders_are_connected_apart_from_each_other(place: InstallTarget, tmp_path: Path) -> None:
    """Work on many things has many folders; taking one away must leave the others connected."""
    shop = replace(place, project=repository(tmp_path / "shop"))
    desk = replace(place, project=repository(tmp_path / "desk"))
    connect(shop)
    plan = CONNECTOR.plan(desk, ConnectOptions())
    written = {step.path for step in plan.steps if isinstance(step, FileEdit)}
    assert {path.relative_to(plugin.folder(desk)).as_posix() for path in written} == set(plugin.files(desk))
    assert plugin.folder(shop) != plugin.folder(desk)
    assert plugin.plugin_id(shop) != plugin.plugin_id(desk)


def test_folder_is_not_connected_twice(place: InstallTarget, tmp_path: Path) -> None:
    """Two plugins in one session would run every hook twice."""
    here = replace(place, project=repository(tmp_path / "shop"))
    connect(here)
    with pytest.raises(UserError, match="shop"):
        CONNECTOR.plan(place, ConnectOptions())
    connect(place)
    plan = CONNECTOR.plan(replace(place, project=repository(tmp_path / "desk")), ConnectOptions())
    assert plan.steps == ()
    assert any("Every session" in note for note in plan.notes)


@pytest.mark.parametrize("content", ["{ // mine\n}", "[]", '{"a": 1'])
def test_settings_that_are_no_json_stop_the_plan(place: InstallTarget, content: str) -> None:
    """Claude Code ignores such a file, and a plan made from a guess would lose what is in it."""
    (place.user / ".claude").mkdir()
    (place.user / ".claude" / "settings.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"settings\.json"):
        CONNECTOR.plan(place, ConnectOptions())


def test_new_layout_of_the_settings_is_announced(place: InstallTarget) -> None:
    """Claude Code sorts and indents the file when it adds the plugin: nobody should be surprised by the diff."""
    connect(place)
    settings = place.user / ".claude" / "settings.json"
    settings.write_text('{"model":"opus"}', encoding="utf-8")
    assert any("layout" in note for note in CONNECTOR.plan(place, ConnectOptions()).notes)
    settings.write_text('{\n  "model": "opus"\n}\n', encoding="utf-8")
    assert not any("layout" in note for note in CONNECTOR.plan(place, ConnectOptions()).notes)


def test_server_that_was_added_by_hand_is_pointed_out(place: InstallTarget) -> None:
    """Everything would be there twice, and nobody knows why."""
    assert not any("by hand" in note for note in CONNECTOR.plan(place, ConnectOptions()).notes)
    write(place.user / ".claude.json", {"mcpServers": {"harken": {"command": "python"}}})
    assert any("claude mcp remove harken" in note for note in CONNECTOR.plan(place, ConnectOptions()).notes)


def test_removal_by_hand_takes_out_what_is_there(place: InstallTarget) -> None:
    """When the files no longer are what `connect` left, Claude Code's own commands take the plugin out."""
    assert not CONNECTOR.removal(place).steps
    connect(place)
    steps = CONNECTOR.removal(place).steps
    commands = [step.argv[1:] for step in steps if isinstance(step, CommandStep)]
    gone = {step.path for step in steps if isinstance(step, FileEdit) and step.after is None}
    assert commands == [
        ("plugin", "uninstall", "harken@harken", "--scope", "user"),
        ("plugin", "marketplace", "remove", "harken", "--scope", "user"),
    ]
    assert gone == {plugin.folder(place) / name for name in plugin.files(place)}


def test_check_names_what_is_wrong(place: InstallTarget) -> None:
    """The stand-in has no plugin: that is found, with what to do."""
    findings = {finding.what: finding for finding in CONNECTOR.check(place)}
    bad = {what for what, finding in findings.items() if not finding.is_good}
    assert bad == {"the plugin's files are current", "Claude Code has the plugin switched on"}
    assert all(findings[what].hint for what in bad)


def test_check_tells_what_claude_code_says_about_the_plugin(place: InstallTarget) -> None:
    """A plugin can be switched on and yet not be loaded; only Claude Code knows why."""
    entry = {"id": "harken@harken", "scope": "user", "enabled": True}
    listing = place.user / "listing.json"
    program = Path(place.environ["PATH"].partition(os.pathsep)[0]) / "claude"
    program.write_text(f'#!/bin/sh\n[ "$1" = plugin ] && exec cat {listing}\n', encoding="utf-8")
    what = "Claude Code has the plugin switched on"
    for found, is_good, hint in (
        ([entry], True, ""),
        ([{**entry, "enabled": False}], False, "harken connect"),
        ([{**entry, "scope": "local", "projectPath": "/elsewhere"}], False, "harken connect"),
        ([{**entry, "errors": ["Hook load failed"]}], False, "Hook load failed"),
        ([7, None], False, "harken connect"),
        ({}, False, "harken connect"),
    ):
        write(listing, found)
        (finding,) = (finding for finding in CONNECTOR.check(place) if finding.what == what)
        assert finding.is_good is is_good, found
        assert hint in finding.hint, found


def test_check_sees_that_hooks_are_switched_off(place: InstallTarget) -> None:
    """With this setting everything looks connected and nothing arrives."""
    write(place.user / ".claude" / "settings.json", {"disableAllHooks": True})
    findings = {finding.what: finding for finding in CONNECTOR.check(place)}
    assert not findings["Claude Code runs hooks"].is_good
    assert "settings.json" in findings["Claude Code runs hooks"].hint


def test_check_sees_another_hook_that_answers_for_you(place: InstallTarget) -> None:
    """Of several the first in time counts: a program would allow what you were just going to refuse."""
    asking, what = replace(place, has_approvals=True), "no other hook answers what Claude Code asks"
    assert what not in {finding.what for finding in CONNECTOR.check(place)}
    for hooks, is_good in (
        ({}, True),
        ({"PermissionRequest": []}, True),
        ({"PermissionRequest": [{}]}, False),
        (7, True),
    ):
        write(place.user / ".claude" / "settings.json", {"hooks": hooks})
        (finding,) = (each for each in CONNECTOR.check(asking) if each.what == what)
        assert finding.is_good is is_good, hooks
        assert ("settings.json" in finding.hint) is not is_good
