"""Copilot CLI without Copilot CLI: what its payloads mean, what is printed, and what connecting it would do.

The shapes are those of the real program, which `tests/hosts/test_copilot.py` runs.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harken.errors import UserError
from harken.hosts.connect.plan import ConnectOptions, InstallTarget
from harken.hosts.copilot import connect
from harken.hosts.copilot.connect import CONNECTOR, settings_file
from harken.hosts.copilot.hooks import APPROVALS, HOOKS, REFUSED
from harken.hosts.hook import SILENCE, Hello
from harken.model import ApprovalChoice, ApprovalRequest
from harken.sessions.turns import HookEvent, HookMoment
from harken.verbs.table import TOOLS
from tests.hosts_unit.rig import put

HELLO = Hello(edge="e-1", pid=20, ppid=10, cwd="/plugins/harken", env={"COPILOT_CLI": "1"})
WAKES = ("", connect.EXTENSION, connect.WAITER)


def payload(**more: object) -> dict[str, object]:
    """Return what Copilot writes to a hook."""
    return {"sessionId": "a62138f1", "timestamp": 1794785306604, "cwd": "/code/shop", **more}


def event(moment: HookMoment, **more: object) -> HookEvent:
    """Return what a payload of the real shape means."""
    found = HOOKS.event(moment, payload(**more), HELLO)
    assert found is not None
    return found


def test_start_carries_no_prompt_and_no_text() -> None:
    """Copilot runs it with the first prompt, whose own hook follows: both together would say everything twice."""
    assert event(HookMoment.START, source="new", initialPrompt="Fix it.").prompt == ""
    assert HookMoment.START not in HOOKS.most_chars
    assert HOOKS.answer(HookMoment.START, "text") == SILENCE


@pytest.mark.parametrize("moment", [HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP])
def test_helpers_of_the_agent_are_recognised(moment: HookMoment) -> None:
    """What a subagent is given never reaches the agent that could answer; it has a session id of its own."""
    found = event(moment, agentId="f8f88ea1", agentType="explore", parentAgentId="a62138f1")
    assert found.is_subagent
    assert not event(moment).is_subagent


def test_payload_of_another_program_is_nothing_to_us() -> None:
    """Copilot gives hooks that were written for Claude Code the names that Claude Code uses."""
    assert HOOKS.event(HookMoment.STOP, {"hook_event_name": "Stop", "session_id": "b0bdbcba"}, HELLO) is None
    assert HOOKS.event(HookMoment.STOP, {"sessionId": 7}, HELLO) is None
    assert HOOKS.event(HookMoment.STOP, {}, HELLO) is None


@pytest.fixture
def place(tmp_path: Path) -> InstallTarget:
    """A person's home without Copilot."""
    user = tmp_path / "me"
    user.mkdir()
    return InstallTarget(
        user=user,
        environ={"PATH": str(tmp_path / "bin")},
        project=None,
        harken=tmp_path / "har ken",
        python="/usr/bin/python3",
        edge=tmp_path / "edge",
    )


def written(place: InstallTarget) -> dict[str, bytes]:
    """Return every file of a person and of the plugin."""
    roots = (place.user, connect.folder(place))
    return {str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("wake", WAKES)
def test_connected_host_needs_nothing_more(place: InstallTarget, wake: str) -> None:
    """Connecting twice changes nothing the second time."""
    put(CONNECTOR.plan(place, ConnectOptions(wake=wake)))
    assert not CONNECTOR.plan(place, ConnectOptions(wake=wake)).steps
    assert [finding for finding in CONNECTOR.check(place)[:2] if not finding.is_good] == []


@pytest.mark.parametrize("before", WAKES)
@pytest.mark.parametrize("after", WAKES)
def test_choice_of_a_wake_leaves_nothing_of_the_last(place: InstallTarget, before: str, after: str) -> None:
    """Otherwise a waiter would go on to cost model calls after it was given up."""
    put(CONNECTOR.plan(place, ConnectOptions(wake=after)))
    wanted = written(place)
    put(CONNECTOR.plan(place, ConnectOptions(wake=before)))
    put(CONNECTOR.plan(place, ConnectOptions(wake=after)))
    assert written(place) == wanted


@pytest.mark.parametrize("wake", WAKES)
@pytest.mark.parametrize(
    "settings",
    [
        '{\n    // mine\n    "banner": "never", // really\n}\n',
        '{"enabledPlugins": {"other@market": true}, "hooks": {"sessionStart": [{"type": "command", "bash": "true"}]}}',
        '{\r\n\t"extraKnownMarketplaces": {\r\n\t\t"other": {"source": {"source": "github", "repo": "a/b"}}\r\n\t}}',
    ],
)
def test_removal_gives_the_person_their_settings_back(place: InstallTarget, settings: str, wake: str) -> None:
    """Comments, order and spacing are theirs."""
    file = settings_file(place)
    file.parent.mkdir()
    file.write_bytes(settings.encode())
    put(CONNECTOR.plan(place, ConnectOptions(wake=wake)))
    assert file.read_bytes() != settings.encode()
    put(CONNECTOR.removal(place))
    assert written(place) == {str(file): settings.encode()}
    assert not CONNECTOR.removal(place).steps


def test_settings_are_found_where_the_person_keeps_them(place: InstallTarget, tmp_path: Path) -> None:
    """COPILOT_HOME moves everything that Copilot reads."""
    moved = replace(place, environ={"COPILOT_HOME": str(tmp_path / "elsewhere")})
    assert settings_file(moved) == tmp_path / "elsewhere" / "settings.json"


def test_unknown_wake_is_an_error_that_names_the_others(place: InstallTarget) -> None:
    """Nothing is chosen for the person."""
    with pytest.raises(UserError) as caught:
        CONNECTOR.plan(place, ConnectOptions(wake="magic"))
    assert "extension, waiter" in caught.value.hint


def test_each_wake_says_what_it_costs(place: InstallTarget) -> None:
    """Neither is silent: what is chosen is said again, and what is not chosen is not there."""
    for wake, cost in CONNECTOR.wakes.items():
        assert f"Wake: {cost}" in CONNECTOR.plan(place, ConnectOptions(wake=wake)).notes
    plain = b"".join(connect.files(place, "").values())
    assert b"wait.py" not in plain
    assert b"extension" not in plain
    assert b"wait.py" not in b"".join(connect.files(place, connect.EXTENSION).values())


@pytest.mark.parametrize("wake", WAKES)
def test_questions_are_answered_elsewhere_by_an_extension_of_its_own(place: InstallTarget, wake: str) -> None:
    """Whoever lets it handle no requests keeps the wake; taken back, nothing of it stays."""
    asking, own = replace(place, has_approvals=True), connect.folder(place) / connect.ANSWERER
    plan = CONNECTOR.plan(asking, ConnectOptions(wake=wake))
    assert any("Copilot asks whether it may" in note for note in plan.notes)
    put(plan)
    assert json.loads((own / "harken.json").read_text()) == {"home": str(place.harken)}
    assert b"onPermissionRequest" in (own / "extension.mjs").read_bytes()
    assert json.loads((connect.folder(place) / "harken" / "plugin.json").read_text())["extensions"] == "extensions/"
    put(CONNECTOR.plan(place, ConnectOptions(wake=wake)))
    assert not (own / "harken.json").exists()
    assert not (own / "extension.mjs").exists()


def question(**asked: object) -> ApprovalRequest | None:
    """Return what a question of the real shape asks."""
    shell = {"kind": "shell", "toolCallId": "call_1", "fullCommandText": "touch a", "intention": "make a file"}
    named = {"commands": [{"identifier": "touch", "readOnly": False}], "canOfferSessionApproval": True}
    return APPROVALS.question(payload(requestId="r-1", asked={**shell, **named, **asked}), HELLO)


def test_question_has_all_that_copilot_says_of_it() -> None:
    """The answer is bound to it; what only names the request is no part of it."""
    found = question()
    assert found is not None
    assert (found.session, found.native, found.tool) == ("a62138f1", "r-1", "shell")
    assert found.arguments == {
        "fullCommandText": "touch a",
        "intention": "make a file",
        "commands": [{"identifier": "touch", "readOnly": False}],
    }
    assert found.choices == (ApprovalChoice.ONCE, ApprovalChoice.ALWAYS, ApprovalChoice.NO)
    assert found.always == "touch: every such command, in this conversation"


@pytest.mark.parametrize(
    "asked",
    [
        {"canOfferSessionApproval": False},
        {"commands": []},
        {"commands": [{}]},
        {"commands": "touch"},
        {"commands": [7]},
    ],
)
def test_always_is_offered_only_with_what_it_would_allow(asked: Mapping[str, object]) -> None:
    """What cannot be named cannot be shown."""
    found = question(**asked)
    assert found is not None
    assert (found.choices, found.always) == ((ApprovalChoice.ONCE, ApprovalChoice.NO), "")


@pytest.mark.parametrize("asked", [{"kind": 7}, {"kind": ""}])
def test_question_that_is_not_understood_stays_with_copilot(asked: Mapping[str, object]) -> None:
    """Its own dialog is there anyway."""
    assert question(**asked) is None
    assert APPROVALS.question(payload(requestId="r-1", asked="shell"), HELLO) is None
    assert APPROVALS.question({"asked": {"kind": "shell"}, "requestId": "r-1"}, HELLO) is None


def test_answer_is_one_of_copilots_own_results() -> None:
    """`Always` allows the commands that were shown, and a refusal has words."""
    asked = payload(asked={"canOfferSessionApproval": True, "commands": [{"identifier": "touch"}]})

    def result(choice: ApprovalChoice, reason: str = "") -> object:
        return json.loads(APPROVALS.answer(asked, choice, reason).stdout)

    assert result(ApprovalChoice.ONCE) == {"kind": "approve-once"}
    allowed = {"kind": "commands", "commandIdentifiers": ["touch"]}
    assert result(ApprovalChoice.ALWAYS) == {"kind": "approve-for-session", "approval": allowed}
    assert result(ApprovalChoice.NO, "use make") == {"kind": "reject", "feedback": "use make"}
    assert result(ApprovalChoice.NO) == {"kind": "reject", "feedback": REFUSED}


def test_project_is_connected_by_a_file_that_git_leaves_alone(place: InstallTarget, tmp_path: Path) -> None:
    """A team's settings are not one person's to change."""
    shop = tmp_path / "shop"
    exclude = shop / ".git" / "info" / "exclude"
    exclude.parent.mkdir(parents=True)
    exclude.write_text("*.log")
    here = replace(place, project=shop)
    put(CONNECTOR.plan(here, ConnectOptions()))
    told = "/.github/instructions/harken.instructions.md"
    assert exclude.read_text() == f"*.log\n/.github/copilot/settings.local.json\n{told}\n"
    assert not settings_file(place).exists()
    assert not CONNECTOR.plan(here, ConnectOptions()).steps
    assert connect.folder(here) != connect.folder(place)
    put(CONNECTOR.removal(here))
    assert exclude.read_text() == "*.log\n"


def test_folder_where_copilot_would_not_look_is_refused(place: InstallTarget, tmp_path: Path) -> None:
    """It would look connected and never hear anything."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "shop" / "src").mkdir()
    with pytest.raises(UserError) as inside:
        CONNECTOR.plan(replace(place, project=tmp_path / "shop" / "src"), ConnectOptions())
    assert str(tmp_path / "shop") in inside.value.hint
    with pytest.raises(UserError, match="git repository"):
        CONNECTOR.plan(replace(place, project=tmp_path / "elsewhere"), ConnectOptions())


def test_version_is_read_from_the_package_without_a_start(place: InstallTarget, tmp_path: Path) -> None:
    """A first start of Copilot unpacks itself into the person's home."""
    package = tmp_path / "lib" / "@github" / "copilot"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@github/copilot", "version": "1.0.102"}')
    (package / "npm-loader.js").write_text("#!/bin/sh\nexit 1\n")
    (package / "npm-loader.js").chmod(0o755)
    (tmp_path / "bin").mkdir()
    assert CONNECTOR.find(place) is None
    program = tmp_path / "bin" / "copilot"
    program.symlink_to(package / "npm-loader.js")
    found = CONNECTOR.find(place)
    assert found is not None
    assert (found.program, found.version) == (program, "1.0.102")


def test_version_is_asked_for_where_no_package_tells(place: InstallTarget, tmp_path: Path) -> None:
    """Copilot also comes as one file."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "copilot"
    program.write_text("#!/bin/sh\necho 'GitHub Copilot CLI 1.0.102.'\n")
    program.chmod(0o755)
    found = CONNECTOR.find(place)
    assert found is not None
    assert found.version == "1.0.102"


@pytest.mark.parametrize("wake", WAKES)
def test_hook_lines_are_silent_where_everything_is_gone(place: InstallTarget, wake: str) -> None:
    """A removed Harken must not be noticed; hosts take an exit code of 2 for a veto."""
    hooks = json.loads(connect.files(place, wake)[f"{connect.PLUGIN}/hooks/hooks.json"])["hooks"]
    for event, entries in hooks.items():
        for entry in entries:
            done = subprocess.run(["/bin/sh", "-c", entry["bash"]], input=b"{}", capture_output=True, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), event


@pytest.mark.parametrize("wake", ["", connect.EXTENSION])
def test_plugin_grants_itself_nothing(place: InstallTarget, wake: str) -> None:
    """In Copilot the word of a hook beats the person's own rules, also those that refuse."""
    content = b"".join(connect.files(place, wake).values())
    for word in (b"permissionRequest", b"preToolUse", b"allow"):
        assert word not in content


def test_waiter_is_asked_for_and_allowed_by_the_same_letters(place: InstallTarget) -> None:
    """A permission for something else than what the agent is asked to start would be worth nothing."""
    command = connect.waiter_command(place)
    prompt = connect.arming(place)["prompt"]
    hooks = json.loads(connect.files(place, connect.WAITER)[f"{connect.PLUGIN}/hooks/hooks.json"])["hooks"]
    assert f": {command}\n" in str(prompt)
    assert shlex.split(command)[-3:] == ["--home", str(place.harken), "copilot-cli"]
    allowing = shlex.split(hooks["permissionRequest"][-1]["bash"])
    reminding = shlex.split(hooks["agentStop"][0]["bash"])
    assert allowing[-2:] == ["--allow", command]
    assert reminding[-2:] == ["--remind", command]
    assert len(hooks["agentStop"]) == 2


def test_every_tool_that_copilot_asks_about_is_named() -> None:
    """Whoever allows what is named is not asked about another one in the middle of the work."""
    asked = [tool.name for tool in TOOLS if not tool.is_read_only]
    assert sorted([*connect.QUIET_TOOLS, *connect.TELLING_TOOLS]) == sorted(asked)
