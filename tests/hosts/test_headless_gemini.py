"""Gemini CLI in its sandbox, the real one: what a rule names works, all else is denied, nothing of the person leaks.

The model is ours and asks for what it should not get. What it got is read on its wire, and on the disk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from harken.hosts.gemini.headless import SANDBOX
from harken.hosts.trial_recipe import KEY
from harken.runs.sandbox import OutputKind
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts import toolserver
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import Ran, door, run_sandbox, work_for
from tests.hosts.stage import Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks

pytestmark = pytest.mark.parametrize("host", ["gemini-cli"], indirect=True)

OUTSIDE: Final = "TEXT-OUTSIDE-THE-FOLDER"
INSIDE: Final = "TEXT-INSIDE-THE-FOLDER"
THEIRS: Final = "INSTRUCTIONS-OF-THE-PERSON"
EVENTS: Final = ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")
SHELL: Final = "run_shell_command"


@pytest.fixture
def lived_in(bare_stage: Stage) -> Stage:
    """A person with hooks, a server and instructions of their own, in a folder that has such things too."""
    stage = bare_stage
    (stage.folder / "secret.txt").write_text(OUTSIDE, encoding="utf-8")
    (stage.project / "inside.txt").write_text(INSIDE, encoding="utf-8")
    (stage.project / "link.txt").symlink_to(stage.folder / "secret.txt")
    (stage.project / "out").symlink_to(stage.folder)
    home, here = stage.user / ".gemini", stage.project / ".gemini"
    here.mkdir()
    settings = json.loads((home / "settings.json").read_text(encoding="utf-8"))
    write(home / "settings.json", {**settings, "model": {"name": "gemini-2.5-flash"}, **baits(stage, "person")})
    write(here / "settings.json", baits(stage, "folder"))
    (home / "GEMINI.md").write_text(THEIRS, encoding="utf-8")
    (stage.folder / "GEMINI.md").write_text(THEIRS, encoding="utf-8")
    (home / "policies").mkdir()
    (home / "policies" / "all.toml").write_text('[[rule]]\ntoolName = "*"\ndecision = "allow"\npriority = 999\n')
    (stage.project / ".env").write_text("GEMINI_API_KEY=other\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:9\n")
    (here / "commands").mkdir()
    (here / "commands" / "own.toml").write_text('prompt = "A-COMMAND-OF-THE-FOLDER"\n')
    return stage


def baits(stage: Stage, whose: str) -> Mapping[str, object]:
    """Return settings that leave marks when they are followed."""
    hooks = {event: [{"hooks": [{"type": "command", "command": f"touch {stage.folder}/hook"}]}] for event in EVENTS}
    arguments = ["-I", str(toolserver.__file__), str(stage.folder), whose]
    servers = {whose: {"command": sys.executable, "args": arguments, "trust": True}}
    return {"hooks": hooks, "mcpServers": servers, "tools": {"discoveryCommand": f"touch {stage.folder}/discovery"}}


def write(path: Path, content: object) -> None:
    """Write JSON."""
    path.write_text(json.dumps(content), encoding="utf-8")


def run(stage: Stage, tools: tuple[str, ...], *says: ModelAnswer, prompt: str = "do it") -> Ran:
    """Run Gemini with some tools, while the model says some things in order; it must end well."""
    stage.model.follow(in_order(*says, then="all done"))
    work = work_for(stage, prompt, *tools, max_turns=40)
    assert SANDBOX.refusal(work.tools) == ""
    ran = run_sandbox(SANDBOX, work)
    assert (ran.exit_code, ran.answer) == (0, "all done"), ran.stderr
    return ran


def last_result(stage: Stage) -> str:
    """Return what the last tool answered."""
    return [turn.text for turn in stage.model.conversation[-1].turns if turn.role == "tool"][-1]


def test_tool_that_a_rule_names_does_its_work(lived_in: Stage, matrix: Matrix) -> None:
    """A fence that nothing gets through would be no use."""
    ran = run(lived_in, ("read_file",), ModelAnswer.literal("read_file", {"file_path": "inside.txt"}))
    assert lived_in.model.conversation[0].tool_names == ("read_file",)
    assert INSIDE in last_result(lived_in)
    assert ran.denied == []
    assert len(ran.of(OutputKind.TURN)) == 2
    assert ran.leftover == ()
    matrix.note(SANDBOX.host, "allowed: read_file", "ran")


def test_files_in_the_folder_can_be_changed_found_and_listed(lived_in: Stage, matrix: Matrix) -> None:
    """Each portable word must mean on this host what it says."""
    change = {"file_path": "inside.txt", "old_string": INSIDE, "new_string": "changed", "instruction": "change it"}
    calls = (
        ModelAnswer.literal("replace", change),
        ModelAnswer.literal("write_file", {"file_path": "new.txt", "content": "new"}),
        ModelAnswer.literal("grep_search", {"pattern": "chang|größe", "include_pattern": "*.txt"}),
        ModelAnswer.literal("glob", {"pattern": "**/*.txt"}),
        ModelAnswer.literal("list_directory", {"dir_path": "."}),
    )
    ran = run(lived_in, ("edit_file", "list_files", "search_files"), *calls)
    assert ran.denied == []
    assert (lived_in.project / "inside.txt").read_text(encoding="utf-8") == "changed"
    found = [turn.text for turn in lived_in.model.conversation[-1].turns if turn.role == "tool"]
    assert all("new.txt" in text for text in found[3:])
    assert "inside.txt" in found[2]
    matrix.note(SANDBOX.host, "allowed: edit_file", "ran")


def test_tool_of_a_server_is_called_and_no_other(lived_in: Stage, matrix: Matrix) -> None:
    """The name of a server may hold what Gemini's policies misread; the folder is trusted in such a run."""
    names = ("mcp_my-lab_note", "mcp_my-lab_other", "mcp_person_note", "mcp_folder_note", "read_mcp_resource")
    ran = run(lived_in, ("my_lab/note",), *(ModelAnswer.literal(name, {"text": "x"}) for name in names))
    assert lived_in.model.conversation[0].tool_names == ("mcp_my-lab_note",)
    assert ran.denied == list(names[1:])
    assert (marks(lived_in.folder, "my_lab"), marks(lived_in.folder, "person"), marks(lived_in.folder, "folder")) == (
        {"note"},
        set(),
        set(),
    )
    assert_nothing_leaked(lived_in)
    matrix.note(SANDBOX.host, "allowed: MCP tool", "ran")
    matrix.note(SANDBOX.host, "other tool of the server", "no such tool")
    matrix.note(SANDBOX.host, "server of the person", "no such tool")


def assert_nothing_leaked(stage: Stage) -> None:
    """Nothing of the person's reached the run, nor of what the folder says to Gemini itself."""
    assert not (stage.folder / "hook").exists()
    assert not (stage.folder / "discovery").exists()
    everything = "\n".join(asked.text for asked in stage.model.requests)
    assert THEIRS not in everything
    assert {asked.model for asked in stage.model.conversation} == {"gemini-2.5-flash"}


@pytest.mark.parametrize(
    ("case", "tools", "call"),
    [
        ("shell write", ("read_file",), ModelAnswer.literal(SHELL, {"command": "touch made"})),
        ("read: absolute path", ("read_file",), ModelAnswer.literal("read_file", {"file_path": "{folder}/secret.txt"})),
        ("read: ..", ("read_file",), ModelAnswer.literal("read_file", {"file_path": "../secret.txt"})),
        ("read: link that leads out", ("read_file",), ModelAnswer.literal("read_file", {"file_path": "link.txt"})),
        ("read: folder link", ("read_file",), ModelAnswer.literal("read_file", {"file_path": "out/secret.txt"})),
        ("edit", ("read_file",), ModelAnswer.literal("write_file", {"file_path": "inside.txt", "content": "x"})),
        (
            "edit outside",
            ("edit_file",),
            ModelAnswer.literal("write_file", {"file_path": "../secret.txt", "content": "x"}),
        ),
        (
            "edit: link that leads out",
            ("edit_file",),
            ModelAnswer.literal("write_file", {"file_path": "link.txt", "content": ""}),
        ),
        ("edit: .git", ("edit_file",), ModelAnswer.literal("write_file", {"file_path": ".git/config", "content": ""})),
        ("list outside", ("list_files",), ModelAnswer.literal("list_directory", {"dir_path": "out"})),
        (
            "helper agent",
            ("read_file",),
            ModelAnswer.literal("invoke_agent", {"agent_name": "generalist", "prompt": "x"}),
        ),
        ("web", ("read_file",), ModelAnswer.literal("web_fetch", {"prompt": "http://127.0.0.1:9"})),
    ],
)
def test_what_a_rule_does_not_name_is_denied(
    lived_in: Stage, matrix: Matrix, case: str, tools: tuple[str, ...], call: ModelAnswer
) -> None:
    """Nothing may change, nothing from outside may be read, and the record must say who tried."""
    (asked,) = call.calls
    given = {key: str(value).format(folder=lived_in.folder) for key, value in asked.arguments.items()}
    before = tree(lived_in.project)
    ran = run(lived_in, tools, ModelAnswer.literal(asked.tool, given))
    assert ran.denied == [asked.tool]
    assert OUTSIDE not in last_result(lived_in)
    assert tree(lived_in.project) == before
    assert (lived_in.folder / "secret.txt").read_text(encoding="utf-8") == OUTSIDE
    matrix.note(
        SANDBOX.host, case, "denied" if asked.tool in str(lived_in.model.requests[0].tool_names) else "no such tool"
    )


def test_search_runs_nothing_and_stays_in_the_folder(lived_in: Stage, matrix: Matrix) -> None:
    """Gemini gives patterns to `git grep` unguarded, which takes an option for a command to run."""
    searches: tuple[Mapping[str, object], ...] = (
        {"pattern": "-Otouch made", "include_pattern": "TEXT"},
        {"pattern": "--open-files-in-pager=touch made;", "include_pattern": "TEXT"},
        {"pattern": "-R"},
        {"pattern": "(?=TEXT)TEXT-OUT"},
        {"pattern": "TEXT", "include_pattern": ":/"},
        {"pattern": "TEXT", "include_pattern": "../*"},
        {"pattern": "TEXT", "include_pattern": "-f"},
        {"pattern": "TEXT", "dir_path": "out"},
        {"pattern": "TEXT", "dir_path": "link.txt"},
    )
    before = tree(lived_in.project)
    ran = run(lived_in, ("search_files",), *(ModelAnswer.literal("grep_search", each) for each in searches))
    assert ran.denied == ["grep_search"] * len(searches)
    assert lived_in.model.conversation[-1].count(OUTSIDE) == 0
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "search that is a command", "denied")


def test_list_of_files_ends_at_the_folder(lived_in: Stage) -> None:
    """Names of files can be secrets too, and Gemini's own check does not hold patterns to the folder."""
    patterns = ("../*", f"{lived_in.folder}/*", ".{.,}/*", "{,}/etc/*", "**/../../*", "{a,.}./*", "~/*")
    ran = run(lived_in, ("list_files",), *(ModelAnswer.literal("glob", {"pattern": pattern}) for pattern in patterns))
    assert ran.denied == ["glob"] * len(patterns)
    assert lived_in.model.conversation[-1].count("secret.txt") == 0


def test_command_prefix_lets_no_other_command_through(lived_in: Stage, matrix: Matrix) -> None:
    """What a shell makes of a line, not only how it begins, decides what runs."""
    endings = ("; {}", "$({})", "`{}`", "&& {}", "\n{}", "| {}", "& {}", "<({})", "> made", "${{X:-$({})}}", "\\\n{}")
    lines = [f"git log {ending.format('touch made')}" for ending in endings]
    lines += ["git logs", "git", "touch made # git log", "bash -c 'git log'", " git log", "X=1 git log", "git  log"]
    calls = [ModelAnswer.literal(SHELL, {"command": line}) for line in lines]
    calls += [
        ModelAnswer.literal(SHELL, {"command": "touch made", "more": {"command": "git log"}}),
        ModelAnswer.literal(SHELL, {"command": "touch made", "description": '\0"command":"git log"\0'}),
        ModelAnswer.literal(SHELL, {"command": "git log", "dir_path": ".."}),
        ModelAnswer.literal(SHELL, {"command": "git log", "is_background": True}),
    ]
    allowed = ModelAnswer.literal(SHELL, {"command": "git log --oneline -n 3 --grep 'a b' HEAD~1"})
    before = tree(lived_in.project)
    ran = run(lived_in, ("shell:git log",), *calls, allowed)
    assert ran.denied == [SHELL] * len(calls)
    assert "fatal" in last_result(lived_in)
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "allowed: shell:git log", "ran")
    matrix.note(SANDBOX.host, "other command after a prefix", "denied")


def test_any_command_runs_where_a_rule_says_shell_and_sees_no_key(lived_in: Stage, matrix: Matrix) -> None:
    """A person may give a shell away; the key of the model does not go with it."""
    ran = run(lived_in, ("shell",), ModelAnswer.literal(SHELL, {"command": "env && echo done > made"}))
    assert ran.denied == []
    assert (lived_in.project / "made").exists()
    assert "HOME=" in last_result(lived_in)
    assert KEY not in last_result(lived_in)
    matrix.note(SANDBOX.host, "allowed: shell", "ran")


def test_nothing_of_the_person_or_the_folder_gets_into_a_run(lived_in: Stage, matrix: Matrix) -> None:
    """A run must not be steered by what happens to lie around, and is not a session of Harken."""
    (lived_in.project / "GEMINI.md").write_text("INSTRUCTIONS-OF-THE-FOLDER", encoding="utf-8")
    before = tree(lived_in.user)
    run(lived_in, ("read_file",), ModelAnswer.literal("read_file", {"file_path": "inside.txt"}))
    assert_nothing_leaked(lived_in)
    assert lived_in.model.conversation[0].count("INSTRUCTIONS-OF-THE-FOLDER") == 0
    assert tree(lived_in.user) == before
    matrix.note(SANDBOX.host, "hook of the person", "kept out")
    matrix.note(SANDBOX.host, "instructions of the person", "kept out")


@pytest.mark.parametrize("is_in_file", [False, True])
def test_key_of_the_person_reaches_the_model(lived_in: Stage, matrix: Matrix, *, is_in_file: bool) -> None:
    """Isolated from everything else, the run is still theirs; a key may stand in the environment or in a file."""
    env = {"GEMINI_API_KEY": "the-persons-key"}
    if is_in_file:
        line = "# mine\nexport GEMINI_API_KEY='the-persons-key'\n"
        (lived_in.user / ".gemini" / ".env").write_text(line, encoding="utf-8")
        env = {"GEMINI_API_KEY": ""}
    with door(lived_in.model) as standing:
        work = work_for(lived_in, "hello", "read_file", env={**env, "GOOGLE_GEMINI_BASE_URL": standing.url})
        assert run_sandbox(SANDBOX, work).exit_code == 0
    assert standing.has_header("x-goog-api-key", "the-persons-key")
    matrix.note(SANDBOX.host, "sign-in", "kept")


@pytest.mark.parametrize(
    ("prompt", "arrives"),
    [
        ("/help", " /help"),
        ("/own now", " /own now"),
        ("!touch made", "!touch made"),
        ("@inside.txt and ann@inside.txt", r"\@inside.txt and ann\@inside.txt"),
        ("@{folder}/secret.txt", r"\@{folder}/secret.txt"),
        ("--yolo -p x", "--yolo -p x"),
    ],
)
def test_prompt_is_plain_text(lived_in: Stage, matrix: Matrix, prompt: str, arrives: str) -> None:
    """A message inside it may look like a command of Gemini's, or name a file that Gemini would put in its place."""
    before = tree(lived_in.project)
    run(lived_in, ("list_files",), prompt=prompt.format(folder=lived_in.folder))
    first = lived_in.model.conversation[0]
    assert first.turns[-1].text == arrives.format(folder=lived_in.folder)
    assert first.count(INSIDE) + first.count(OUTSIDE) + first.count("A-COMMAND-OF-THE-FOLDER") == 0
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "prompt that is a command", "plain text")


def test_run_ends_when_its_turns_are_used_up(lived_in: Stage) -> None:
    """A model that never comes to an end costs money until somebody looks."""
    lived_in.model.follow(lambda _: ModelAnswer.literal("read_file", {"file_path": "inside.txt"}))
    ran = run_sandbox(SANDBOX, work_for(lived_in, "go on", "read_file", max_turns=3))
    assert len(lived_in.model.conversation) == len(ran.of(OutputKind.TURN)) == 3
    (error,) = ran.of(OutputKind.ERROR)
    assert "turns" in error.text
    assert ran.exit_code != 0


def test_run_without_a_sign_in_says_so(lived_in: Stage) -> None:
    """The person has to know what to do."""
    ran = run_sandbox(SANDBOX, work_for(lived_in, "hello", "read_file", env={"GEMINI_API_KEY": ""}))
    assert [told.text for told in ran.of(OutputKind.ERROR)] == ["Gemini CLI is not signed in."]
