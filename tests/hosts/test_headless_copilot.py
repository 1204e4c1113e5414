"""Copilot CLI in its sandbox, the real one: what a run may do it does, and nothing else happens.

The model asks for everything, also for tools that it was not offered. What happened is read on its wire and on disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from harken.hosts.copilot.headless import SANDBOX
from harken.hosts.run_environment import carried
from harken.runs.sandbox import OutputKind
from harken.trial.exchange import ModelAnswer, in_order
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

pytestmark = pytest.mark.parametrize("host", ["copilot-cli"], indirect=True)

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
    ran = ask(SANDBOX, stage, ["read_file"], ModelAnswer.literal("view", {"path": str(stage.project / "inside.txt")}))
    assert INSIDE in results(stage)[0]
    assert (ran.answer, ran.exit_code, ran.denied) == (ANSWER, 0, [])
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == ["view"]
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
    ran = ask(SANDBOX, stage, ["read_file"], *(ModelAnswer.literal("view", {"path": str(path)}) for path in paths))
    answers = results(stage)
    assert len(answers) == len(paths)
    assert not any(OUTSIDE in answer or "root:x:" in answer for answer in answers)
    assert ran.denied == ["view"] * len(paths)
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
        ModelAnswer.literal("grep", {"pattern": OUTSIDE, "path": str(stage.folder), **shown}),
        ModelAnswer.literal("grep", {"pattern": OUTSIDE, "path": "out", **shown}),
        ModelAnswer.literal("grep", {"pattern": OUTSIDE, **shown}),
        ModelAnswer.literal("grep", {"pattern": f"--pre={evil}"}),
        ModelAnswer.literal("glob", {"pattern": "*", "path": str(stage.folder)}),
        ModelAnswer.literal("glob", {"pattern": "../*"}),
        ModelAnswer.literal("glob", {"pattern": "inside*"}),
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
        ModelAnswer.literal("bash", {"command": "touch made", "description": "make it"}),
        ModelAnswer.literal("create", {"path": str(stage.project / "made"), "file_text": "x"}),
        ModelAnswer.literal("task", {"prompt": "touch made", "description": "make it", "agent_type": "task"}),
    )
    assert ran.denied == ["bash", "create", "task"]
    assert tree(stage.project) == before
    matrix.note(HOST, "shell write", "no such tool")
    matrix.note(HOST, "edit", "no such tool")


def test_edits_stay_in_the_folder_and_out_of_its_settings(stage: Stage, matrix: Matrix) -> None:
    """A file of the home that is changed, such as a shell's profile, would be a way out of every sandbox."""
    inside, outside = stage.project / "new.txt", stage.folder / "new.txt"
    ran = ask(
        SANDBOX,
        stage,
        ["edit_file"],
        ModelAnswer.literal("create", {"path": str(inside), "file_text": "made"}),
        ModelAnswer.literal(
            "edit", {"path": str(stage.project / "inside.txt"), "old_str": INSIDE, "new_str": "changed"}
        ),
        ModelAnswer.literal("create", {"path": str(outside), "file_text": "made"}),
        ModelAnswer.literal("create", {"path": str(stage.project / "out" / "new.txt"), "file_text": "made"}),
        ModelAnswer.literal(
            "edit", {"path": str(stage.project / "link.txt"), "old_str": OUTSIDE, "new_str": "changed"}
        ),
        ModelAnswer.literal("create", {"path": str(stage.user / ".copilot" / "settings.json"), "file_text": "{}"}),
        ModelAnswer.literal(
            "create", {"path": str(stage.project / ".git" / "hooks" / "pre-commit"), "file_text": "made"}
        ),
    )
    assert inside.read_text(encoding="utf-8") == "made"
    assert (stage.project / "inside.txt").read_text(encoding="utf-8") == "changed\n"
    assert not outside.exists()
    assert (stage.folder / "outside.txt").read_text(encoding="utf-8") == f"{OUTSIDE}\n"
    assert not (stage.user / ".copilot" / "settings.json").exists()
    assert not (stage.project / ".git" / "hooks" / "pre-commit").exists()
    assert ran.denied == ["create", "create", "edit", "create", "create"]
    matrix.note(HOST, "allowed: edit_file", "ran")
    matrix.note(HOST, "edit outside", "denied")


def test_patches_stay_in_the_folder_too(stage: Stage) -> None:
    """With some models the host edits by patches and searches with another tool: another way is another hole."""
    out, inside = stage.folder / "outside.txt", stage.project / "new.txt"
    hunks = (
        "*** Add File: new.txt\n+made",
        f"*** Add File: {stage.folder}/new.txt\n+made",
        "*** Add File: out/new.txt\n+made",
        f"*** Update File: inside.txt\n*** Move to: ../new.txt\n@@\n-{INSIDE}\n+changed",
        f"*** Delete File: {out}",
        "*** Add File: .git/hooks/pre-commit\n+made",
    )
    patches = [f"*** Begin Patch\n{hunk}\n*** End Patch" for hunk in hunks]
    calls = [ModelAnswer.literal("apply_patch", {"input": patch}) for patch in patches]
    search = ModelAnswer.literal("rg", {"pattern": OUTSIDE, "paths": [str(out)], "output_mode": "content"})
    stage.model.follow(in_order(*calls, search, then=ANSWER))
    work = work_for(stage, "go", "edit_file", "search_files", env={"COPILOT_MODEL": "gpt-5.3-codex"})
    ran = run_sandbox(SANDBOX, work)
    assert "apply_patch" in stage.model.conversation[0].tool_names
    assert inside.read_text(encoding="utf-8") == "made\n"
    assert out.exists()
    assert not (stage.folder / "new.txt").exists()
    assert not (stage.project / ".git" / "hooks" / "pre-commit").exists()
    assert ran.denied == [*["apply_patch"] * 5, "rg"]


def test_only_the_named_tool_of_a_server_can_be_called(stage: Stage, matrix: Matrix) -> None:
    """A server has tools that the rule's author did not mean, and the person has servers that no rule named."""
    theirs = tool_server(stage.folder, "theirs")
    server = {"type": "local", "command": theirs.command[0], "args": list(theirs.command[1:]), "tools": ["*"]}
    _write(stage.user / ".copilot" / "mcp-config.json", json.dumps({"mcpServers": {"theirs": server}}))
    _write(stage.project / ".mcp.json", json.dumps({"mcpServers": {"near": server}}))
    ran = ask(
        SANDBOX,
        stage,
        ["srv/note"],
        ModelAnswer.literal("srv-note", {"text": "x"}),
        ModelAnswer.literal("srv-other", {"text": "x"}),
        ModelAnswer.literal("theirs-note", {"text": "x"}),
        ModelAnswer.literal("near-note", {"text": "x"}),
    )
    assert marks(stage.folder, "srv") == {"note"}
    assert marks(stage.folder, "theirs") == set()
    assert "MARKED note" in results(stage)[0]
    assert ran.denied == ["srv-other", "theirs-note", "near-note"]
    matrix.note(HOST, "allowed: MCP tool", "ran")
    matrix.note(HOST, "other tool of the server", "no such tool")
    matrix.note(HOST, "server of the person", "no such tool")


def test_nothing_of_the_persons_gets_into_a_run(stage: Stage, matrix: Matrix) -> None:
    """A hook would run commands, Harken's own would make the run a session, and instructions would steer it."""
    for name, folder in (("user", stage.user / ".copilot"), ("project", stage.project / ".github")):
        hook = {"type": "command", "bash": f"touch {stage.folder}/hooked-{name}"}
        hooks = {"sessionStart": [hook], "userPromptSubmitted": [hook], "agentStop": [hook]}
        _write(folder / "hooks" / "h.json", json.dumps({"version": 1, "hooks": hooks}))
        _write(folder / "copilot-instructions.md", f"MARK-{name}\n")
        _write(folder / "skills" / "zap" / "SKILL.md", "---\nname: zap\ndescription: MARK-skill\n---\nMARK-body\n")
    _write(stage.project / "AGENTS.md", "MARK-agents\n")
    ran = ask(SANDBOX, stage, ["read_file"], prompt="/zap now")
    assert ran.answer == ANSWER
    said = json.dumps([dict(asked.body) for asked in stage.model.requests])
    assert "MARK-" not in said
    assert list(stage.folder.glob("hooked-*")) == []
    matrix.note(HOST, "hook of the person", "kept out")
    matrix.note(HOST, "instructions of the person", "kept out")


def test_a_folder_that_the_person_trusts_is_not_trusted_by_a_run(stage: Stage) -> None:
    """Trust lets a project's hooks and servers in; a person gave it to themselves, not to messages."""
    hook = {"type": "command", "bash": f"touch {stage.folder}/hooked"}
    _write(
        stage.project / ".github" / "hooks" / "h.json", json.dumps({"version": 1, "hooks": {"sessionStart": [hook]}})
    )
    config = json.loads((stage.user / ".copilot" / "config.json").read_text(encoding="utf-8"))
    assert config["trustedFolders"] == [str(stage.project)]
    stage.ask("hello")
    assert (stage.folder / "hooked").exists()
    (stage.folder / "hooked").unlink()
    assert ask(SANDBOX, stage, ["read_file"]).answer == ANSWER
    assert not (stage.folder / "hooked").exists()


def test_a_run_is_signed_in_as_the_person(stage: Stage, matrix: Matrix) -> None:
    """A run that needs a sign-in of its own would not be used."""
    account = {"host": "https://github.com", "login": "ann"}
    _write(stage.user / ".copilot" / "config.json", json.dumps({"lastLoggedInUser": account, "trustedFolders": ["/"]}))
    with door(stage.model) as passage:
        work = work_for(stage, "go", env={"COPILOT_PROVIDER_BASE_URL": f"{passage.url}/v1"})
        run_sandbox(SANDBOX, work)
        key = stage.environment["COPILOT_PROVIDER_API_KEY"]
        assert passage.has_header("authorization", f"Bearer {key}")
    kept = carried(work.private / "copilot" / "config.json", ("lastLoggedInUser", "trustedFolders"))
    assert kept == {"lastLoggedInUser": account}
    matrix.note(HOST, "sign-in", "kept")


@pytest.mark.parametrize(
    "prompt", ["/help", "/clear", "-p", "!touch made", "@inside.txt and @/etc/passwd", "#inside.txt"]
)
def test_a_prompt_is_only_ever_text(stage: Stage, matrix: Matrix, prompt: str) -> None:
    """Prompts hold text of strangers: what the host would expand or execute for a person must stay text."""
    ran = ask(SANDBOX, stage, ["read_file"], prompt=prompt)
    assert ran.answer == ANSWER
    asked = stage.model.conversation[0]
    assert [turn.text for turn in asked.turns if turn.role == "user"][-1].endswith(f"\n\n{prompt}")
    assert INSIDE not in asked.text
    assert "root:x:" not in asked.text
    assert not (stage.project / "made").exists()
    matrix.note(HOST, "prompt that is a command", "plain text")


def test_only_commands_that_begin_as_the_rule_says_are_run(stage: Stage, matrix: Matrix) -> None:
    """A beginning that something can be hung on to is no fence; nor is one beside which reading is free."""
    hook = {"type": "command", "bash": f"touch {stage.folder}/hooked"}
    _write(stage.project / ".github/hooks/h.json", json.dumps({"version": 1, "hooks": {"preToolUse": [hook]}}))
    before = tree(stage.project)
    calls = [ModelAnswer.literal("bash", {"command": command, "description": "look"}) for command in OTHER_COMMANDS]
    ran = ask(SANDBOX, stage, ["shell:git log"], *calls)
    assert ran.denied == ["bash"] * len(calls)
    assert ran.answer == ANSWER
    assert tree(stage.project) == before
    assert not (stage.folder / "hooked").exists()
    matrix.note(HOST, "shell:git log, anything else", "denied")


def test_a_command_that_begins_as_the_rule_says_is_run(stage: Stage, matrix: Matrix) -> None:
    """Else the fence would be a wall; and the guard of commands must not stand before other tools."""
    commit(stage, "first")
    _write(stage.project / "Makefile", "test:\n\t@echo tested\n")
    ran = ask(
        SANDBOX,
        stage,
        ["shell:git log", "shell:make test", "read_file"],
        ModelAnswer.literal("bash", {"command": "git log --oneline", "description": "look"}),
        ModelAnswer.literal("bash", {"command": "make test", "description": "test"}),
        ModelAnswer.literal("view", {"path": str(stage.project / "inside.txt")}),
    )
    log, test, read = results(stage)
    assert "first" in log
    assert "tested" in test
    assert INSIDE in read
    assert ran.denied == []
    matrix.note(HOST, "allowed: shell:git log", "ran")


def test_any_command_is_run_when_the_rule_says_shell(stage: Stage, matrix: Matrix) -> None:
    """The author asked for it by its name; keys of the person are not in its environment all the same."""
    command = "env > made; echo yes >> made"
    ran = ask(
        SANDBOX,
        stage,
        ["shell"],
        ModelAnswer.literal("bash", {"command": command, "description": "make it"}),
        ModelAnswer.literal("create", {"path": str(stage.project / "other"), "file_text": "x"}),
    )
    made = (stage.project / "made").read_text(encoding="utf-8")
    assert made.endswith("yes\n")
    assert stage.environment["COPILOT_PROVIDER_API_KEY"] not in made
    assert ran.denied == ["create"]
    matrix.note(HOST, "allowed: shell", "ran")


def test_a_run_without_tools_has_none(stage: Stage) -> None:
    """To this host an empty list means all of them."""
    ran = ask(SANDBOX, stage, [], ModelAnswer.literal("view", {"path": str(stage.project / "inside.txt")}))
    assert stage.model.requests[0].tools == ()
    assert INSIDE not in json.dumps([dict(asked.body) for asked in stage.model.requests])
    assert ran.exit_code == 0
