"""Claude Code in its sandbox, the real one: what a run may do it does, and nothing else happens.

The model asks for everything, also for tools that it was not offered. What happened is read on its wire and on disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from harken.hosts.claude_code.headless import SANDBOX
from harken.runs.sandbox import OutputKind
from harken.trial.exchange import ModelAnswer
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import (
    ANSWER,
    INSIDE,
    OTHER_COMMANDS,
    OUTSIDE,
    ask,
    commit,
    door,
    put_files,
    results,
    run_sandbox,
    tool_server,
    work_for,
)
from tests.hosts.stage import Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks

pytestmark = pytest.mark.parametrize("host", ["claude-code"], indirect=True)

HOST: Final = SANDBOX.host


@pytest.fixture
def stage(bare_stage: Stage) -> Stage:
    """The host with files inside and outside its folder."""
    put_files(bare_stage)
    return bare_stage


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_run_reads_a_file_in_its_folder(stage: Stage, matrix: Matrix) -> None:
    """A sandbox that lets nothing through would pass every other test here."""
    ran = ask(
        SANDBOX, stage, ["read_file"], ModelAnswer.literal("Read", {"file_path": str(stage.project / "inside.txt")})
    )
    assert INSIDE in results(stage)[0]
    assert (ran.answer, ran.exit_code, ran.denied) == (ANSWER, 0, [])
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == ["Read"]
    assert len(ran.of(OutputKind.TURN)) == 2
    matrix.note(HOST, "allowed: read_file", "ran")


def test_nothing_is_read_outside_the_folder(stage: Stage, matrix: Matrix) -> None:
    """A message could ask for keys in the home; a link in the folder is as good as a path."""
    project = stage.project
    paths = (
        "/etc/passwd",
        stage.folder / "outside.txt",
        "../outside.txt",
        project / "link.txt",
        project / "out/outside.txt",
    )
    ran = ask(SANDBOX, stage, ["read_file"], *(ModelAnswer.literal("Read", {"file_path": str(path)}) for path in paths))
    answers = results(stage)
    assert len(answers) == len(paths)
    assert not any(OUTSIDE in answer or "root:x:" in answer for answer in answers)
    assert ran.denied == ["Read"] * len(paths)
    matrix.note(HOST, "read: absolute path", "denied")
    matrix.note(HOST, "read: ..", "denied")
    matrix.note(HOST, "read: link that leads out", "denied")


def test_nothing_is_found_outside_the_folder(stage: Stage, matrix: Matrix) -> None:
    """Searching reads too, and a pattern could leave the folder or be taken for an option."""
    evil = stage.project / "evil.sh"
    _write(evil, f"#!/bin/sh\ntouch {stage.folder}/ran\ncat\n")
    evil.chmod(0o755)
    shown = {"output_mode": "content"}
    ask(
        SANDBOX,
        stage,
        ["search_files", "list_files"],
        ModelAnswer.literal("Grep", {"pattern": OUTSIDE, "path": str(stage.folder), **shown}),
        ModelAnswer.literal("Grep", {"pattern": OUTSIDE, "path": "out", **shown}),
        ModelAnswer.literal("Grep", {"pattern": OUTSIDE, **shown}),
        ModelAnswer.literal("Grep", {"pattern": f"--pre={evil}"}),
        ModelAnswer.literal("Glob", {"pattern": "*", "path": str(stage.folder)}),
        ModelAnswer.literal("Glob", {"pattern": "../*"}),
        ModelAnswer.literal("Glob", {"pattern": "inside*"}),
    )
    answers = results(stage)
    assert len(answers) == 7
    assert not any("outside.txt" in answer or f"{OUTSIDE}\n" in answer for answer in answers)
    assert "inside.txt" in answers[6]
    assert not (stage.folder / "ran").exists()
    matrix.note(HOST, "search and list outside", "denied")


def test_a_shell_and_an_edit_that_were_not_given_are_not_there(stage: Stage, matrix: Matrix) -> None:
    """The model may ask for any tool it has heard of; the record must name what it asked for."""
    before = tree(stage.project)
    ran = ask(
        SANDBOX,
        stage,
        ["read_file"],
        ModelAnswer.literal("Bash", {"command": "touch made", "description": "make it"}),
        ModelAnswer.literal("Write", {"file_path": str(stage.project / "made"), "content": "x"}),
        ModelAnswer.literal("Agent", {"prompt": "touch made", "description": "make it"}),
    )
    assert ran.denied == ["Bash", "Write", "Agent"]
    assert tree(stage.project) == before
    matrix.note(HOST, "shell write", "no such tool")
    matrix.note(HOST, "edit", "no such tool")


def test_edits_stay_in_the_folder_and_out_of_its_settings(stage: Stage, matrix: Matrix) -> None:
    """A file that another program executes later, such as a hook of git, would be a way out of every sandbox."""
    inside, outside = stage.project / "new.txt", stage.folder / "new.txt"
    ran = ask(
        SANDBOX,
        stage,
        ["read_file", "edit_file"],
        ModelAnswer.literal("Write", {"file_path": str(inside), "content": "made"}),
        ModelAnswer.literal("Read", {"file_path": str(stage.project / "inside.txt")}),
        ModelAnswer.literal("Edit", {"file_path": "inside.txt", "old_string": INSIDE, "new_string": "changed"}),
        ModelAnswer.literal("Write", {"file_path": str(outside), "content": "made"}),
        ModelAnswer.literal("Write", {"file_path": str(stage.project / "out" / "new.txt"), "content": "made"}),
        ModelAnswer.literal(
            "Write", {"file_path": str(stage.project / ".git" / "hooks" / "pre-commit"), "content": "made"}
        ),
        ModelAnswer.literal("Write", {"file_path": str(stage.project / ".mcp.json"), "content": "{}"}),
    )
    assert inside.read_text(encoding="utf-8") == "made"
    assert (stage.project / "inside.txt").read_text(encoding="utf-8") == "changed\n"
    assert not outside.exists()
    assert not (stage.project / ".git" / "hooks" / "pre-commit").exists()
    assert not (stage.project / ".mcp.json").exists()
    assert ran.denied == ["Write"] * 4
    matrix.note(HOST, "allowed: edit_file", "ran")
    matrix.note(HOST, "edit outside", "denied")


def test_only_the_named_tool_of_a_server_can_be_called(stage: Stage, matrix: Matrix) -> None:
    """A server has tools that the rule's author did not mean, and the person has servers that no rule named."""
    theirs = tool_server(stage.folder, "theirs")
    server = {"command": theirs.command[0], "args": list(theirs.command[1:])}
    settings = json.loads((stage.user / ".claude.json").read_text(encoding="utf-8"))
    _write(stage.user / ".claude.json", json.dumps({**settings, "mcpServers": {"theirs": server}}))
    _write(stage.project / ".mcp.json", json.dumps({"mcpServers": {"near": server}}))
    ran = ask(
        SANDBOX,
        stage,
        ["srv/note"],
        ModelAnswer.literal("mcp__srv__note", {"text": "x"}),
        ModelAnswer.literal("mcp__srv__other", {"text": "x"}),
        ModelAnswer.literal("mcp__theirs__note", {"text": "x"}),
        ModelAnswer.literal("mcp__near__note", {"text": "x"}),
    )
    assert marks(stage.folder, "srv") == {"note"}
    assert marks(stage.folder, "theirs") == set()
    assert "MARKED note" in results(stage)[0]
    assert ran.denied == ["mcp__srv__other", "mcp__theirs__note", "mcp__near__note"]
    matrix.note(HOST, "allowed: MCP tool", "ran")
    matrix.note(HOST, "other tool of the server", "denied")
    matrix.note(HOST, "server of the person", "no such tool")


def test_nothing_of_the_persons_gets_into_a_run(stage: Stage, matrix: Matrix) -> None:
    """A hook would run commands, Harken's own would make the run a session, and instructions would steer it."""
    for name, folder in (("user", stage.user), ("project", stage.project)):
        hook = {"hooks": [{"type": "command", "command": f"touch {stage.folder}/hooked-{name}"}]}
        hooks = {"SessionStart": [hook], "UserPromptSubmit": [hook], "Stop": [hook]}
        _write(folder / ".claude" / "settings.json", json.dumps({"hooks": hooks}))
        _write(folder / ".claude" / "skills" / "zap" / "SKILL.md", "---\nname: zap\ndescription: MARKSKILL\n---\nx\n")
        _write(folder / ".claude" / "commands" / "zap.md", "MARKCOMMAND\n")
    _write(stage.user / ".claude" / "CLAUDE.md", "MARKUSER\n")
    _write(stage.project / "CLAUDE.md", "MARKPROJECT\n")
    ran = ask(SANDBOX, stage, ["read_file"], prompt="/zap")
    assert ran.answer == ANSWER
    said = json.dumps([dict(asked.body) for asked in stage.model.requests])
    assert [mark for mark in ("MARKUSER", "MARKPROJECT", "MARKSKILL", "MARKCOMMAND") if mark in said] == []
    assert list(stage.folder.glob("hooked-*")) == []
    matrix.note(HOST, "hook of the person", "kept out")
    matrix.note(HOST, "instructions of the person", "kept out")


def test_a_run_is_signed_in_as_the_person(stage: Stage, matrix: Matrix) -> None:
    """A run that needs a sign-in of its own would not be used; one that copies it would sign the person out."""
    oauth = {"accessToken": "sk-ant-oat01-theirs", "refreshToken": "r", "expiresAt": 4102444800000}
    credentials = {"claudeAiOauth": {**oauth, "scopes": ["user:inference"], "subscriptionType": "max"}}
    _write(stage.user / ".claude" / ".credentials.json", json.dumps(credentials))
    with door(stage.model) as passage:
        run_sandbox(SANDBOX, work_for(stage, "go", env={"ANTHROPIC_BASE_URL": passage.url}))
        assert passage.has_header("x-api-key", stage.environment["ANTHROPIC_API_KEY"])
        work = work_for(stage, "go", env={"ANTHROPIC_BASE_URL": passage.url, "ANTHROPIC_API_KEY": ""})
        run_sandbox(SANDBOX, work)
        assert passage.has_header("authorization", "Bearer sk-ant-oat01-theirs")
    assert not any("sk-ant-oat01-theirs" in path.read_text() for path in work.private.rglob("*.json"))
    matrix.note(HOST, "sign-in", "kept")


@pytest.mark.parametrize(
    "prompt", ["/help", "/compact x", "-p", "!touch made", "@inside.txt and @/etc/passwd", "#note"]
)
def test_a_prompt_is_only_ever_text(stage: Stage, matrix: Matrix, prompt: str) -> None:
    """Prompts hold text of strangers: what the host would expand or execute for a person must stay text."""
    ran = ask(SANDBOX, stage, ["read_file"], prompt=prompt)
    assert ran.answer == ANSWER
    asked = stage.model.conversation[0]
    assert [turn.text.strip() for turn in asked.turns if turn.role == "user"][-1] == prompt
    assert "mentioned" not in asked.text
    assert INSIDE not in asked.text
    assert "root:x:" not in asked.text
    assert not (stage.project / "made").exists()
    matrix.note(HOST, "prompt that is a command", "plain text")


def test_only_commands_that_begin_as_the_rule_says_are_run(stage: Stage, matrix: Matrix) -> None:
    """A beginning that something can be hung on to is no fence; nor is one beside which reading is free."""
    before = tree(stage.project)
    calls = [ModelAnswer.literal("Bash", {"command": command, "description": "look"}) for command in OTHER_COMMANDS]
    ran = ask(SANDBOX, stage, ["shell:git log"], *calls, max_turns=len(calls) + 1)
    assert ran.denied == ["Bash"] * len(calls)
    assert ran.answer == ANSWER
    assert tree(stage.project) == before
    matrix.note(HOST, "shell:git log, anything else", "denied")


def test_a_command_that_begins_as_the_rule_says_is_run(stage: Stage, matrix: Matrix) -> None:
    """Else the fence would be a wall."""
    commit(stage, "first")
    given = {"command": "git log --oneline", "description": "look"}
    ran = ask(SANDBOX, stage, ["shell:git log"], ModelAnswer.literal("Bash", given))
    assert "first" in results(stage)[0]
    assert ran.denied == []
    matrix.note(HOST, "allowed: shell:git log", "ran")


def test_any_command_is_run_when_the_rule_says_shell(stage: Stage, matrix: Matrix) -> None:
    """The author asked for it by its name."""
    ran = ask(
        SANDBOX, stage, ["shell"], ModelAnswer.literal("Bash", {"command": "echo yes > made", "description": "make it"})
    )
    assert (stage.project / "made").read_text(encoding="utf-8") == "yes\n"
    assert ran.denied == []
    matrix.note(HOST, "allowed: shell", "ran")


def test_a_run_ends_when_its_turns_are_used_up(stage: Stage) -> None:
    """A model that never stops would cost without end."""
    read = ModelAnswer.literal("Read", {"file_path": str(stage.project / "inside.txt")})
    ran = ask(SANDBOX, stage, ["read_file"], *[read] * 5, max_turns=2)
    assert len(stage.model.conversation) == 2
    assert [told.text for told in ran.of(OutputKind.ERROR)] == ["It used all the turns that it was given."]
    assert len(ran.of(OutputKind.TURN)) == 2
    assert ran.exit_code == 1
