"""Qwen Code in its sandbox, the real one: it reads in its folder and calls the tools of servers that a rule names.

The model is ours and asks for what it should not get. What it got is read on its wire, and on the disk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Final

import pytest

from harken.hosts.qwen.headless import SANDBOX
from harken.runs.sandbox import OutputKind
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts import toolserver
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import Ran, door, run_sandbox, work_for
from tests.hosts.stage import Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks

pytestmark = pytest.mark.parametrize("host", ["qwen-code"], indirect=True)

OUTSIDE: Final = "TEXT-OUTSIDE-THE-FOLDER"
INSIDE: Final = "TEXT-INSIDE-THE-FOLDER"
THEIRS: Final = "INSTRUCTIONS-OF-SOMEBODY"
EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
READ: Final = "read_file"


@pytest.fixture
def lived_in(bare_stage: Stage) -> Stage:
    """A person with hooks, a server and instructions of their own, in a folder that has such things too."""
    stage = bare_stage
    (stage.folder / "secret.txt").write_text(OUTSIDE, encoding="utf-8")
    (stage.project / "inside.txt").write_text(INSIDE, encoding="utf-8")
    (stage.project / "link.txt").symlink_to(stage.folder / "secret.txt")
    (stage.project / "out").symlink_to(stage.folder)
    home, here = stage.user / ".qwen", stage.project / ".qwen"
    here.mkdir()
    path = home / "settings.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(
        json.dumps({**settings, **baits(stage, "person"), "model": {"name": "their-model"}}), encoding="utf-8"
    )
    (here / "settings.json").write_text(json.dumps(baits(stage, "folder")), encoding="utf-8")
    for folder in (home, stage.folder, stage.project):
        for name in ("QWEN.md", "AGENTS.md"):
            (folder / name).write_text(THEIRS, encoding="utf-8")
    (stage.project / ".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:9/v1\nOPENAI_MODEL=other\n", encoding="utf-8")
    return stage


def baits(stage: Stage, whose: str) -> Mapping[str, object]:
    """Return settings that leave marks when they are followed."""
    hooks = {event: [{"hooks": [{"type": "command", "command": f"touch {stage.folder}/hook"}]}] for event in EVENTS}
    arguments = ["-I", str(toolserver.__file__), str(stage.folder), whose]
    servers = {whose: {"command": sys.executable, "args": arguments, "trust": True}}
    allowed = {"allow": [READ, "edit", "run_shell_command"]}
    # Qwen writes an older file anew wherever it starts, before it looks at its arguments.
    version = {"$version": 4}
    return {**version, "hooks": hooks, "mcpServers": servers, "permissions": allowed, "tools": {"approvalMode": "yolo"}}


def run(stage: Stage, tools: tuple[str, ...], *says: ModelAnswer, prompt: str = "do it") -> Ran:
    """Run Qwen with some tools, while the model says some things in order; it must end well."""
    stage.model.follow(in_order(*says, then="all done"))
    work = work_for(stage, prompt, *tools, max_turns=20)
    assert SANDBOX.refusal(work.tools) == ""
    ran = run_sandbox(SANDBOX, work)
    assert (ran.exit_code, ran.answer) == (0, "all done"), ran.stderr
    return ran


def results(stage: Stage) -> list[str]:
    """Return what the tools answered, in order."""
    return [turn.text for turn in stage.model.conversation[-1].turns if turn.role == "tool"]


def test_file_in_the_folder_is_read_and_nothing_of_the_person_gets_in(lived_in: Stage, matrix: Matrix) -> None:
    """What the rule names works; hooks, servers and instructions that lie around do not reach the run."""
    before = tree(lived_in.user)
    ran = run(lived_in, (READ,), ModelAnswer.literal(READ, {"file_path": str(lived_in.project / "inside.txt")}))
    first = lived_in.model.conversation[0]
    assert (first.tool_names, first.model) == ((READ,), "their-model")
    assert INSIDE in results(lived_in)[-1]
    assert ran.denied == []
    assert len(ran.of(OutputKind.TURN)) == 2
    assert not (lived_in.folder / "hook").exists()
    assert first.count(THEIRS) == 0
    assert tree(lived_in.user) == before
    matrix.note(SANDBOX.host, "allowed: read_file", "ran")
    matrix.note(SANDBOX.host, "hook of the person", "kept out")
    matrix.note(SANDBOX.host, "instructions of the person", "kept out")


@pytest.mark.parametrize(
    ("case", "tool", "arguments"),
    [
        ("read: absolute path", READ, {"file_path": "{folder}/secret.txt"}),
        ("read: ..", READ, {"file_path": "{project}/../secret.txt"}),
        ("read: link that leads out", READ, {"file_path": "{project}/link.txt"}),
        ("read: folder link", READ, {"file_path": "{project}/out/secret.txt"}),
        ("shell write", "run_shell_command", {"command": "touch made", "is_background": "false"}),
        ("edit", "edit", {"file_path": "{project}/inside.txt", "old_string": INSIDE, "new_string": "x"}),
        ("edit outside", "write_file", {"file_path": "{folder}/secret.txt", "content": "x"}),
        ("list outside", "glob", {"pattern": "../*"}),
        ("helper agent", "agent", {"description": "x", "prompt": "x", "subagent_type": "general-purpose"}),
        ("web", "web_fetch", {"url": "http://127.0.0.1:9", "prompt": "x"}),
    ],
)
def test_what_a_rule_does_not_name_is_denied(
    lived_in: Stage, matrix: Matrix, case: str, tool: str, arguments: dict[str, str]
) -> None:
    """Nothing may change, nothing from outside may be read, and the record must say who tried."""
    places = {"folder": str(lived_in.folder), "project": str(lived_in.project)}
    before = tree(lived_in.project)
    ran = run(
        lived_in, (READ,), ModelAnswer.literal(tool, {key: value.format(**places) for key, value in arguments.items()})
    )
    assert ran.denied == [tool]
    assert OUTSIDE not in results(lived_in)[-1]
    assert tree(lived_in.project) == before
    assert (lived_in.folder / "secret.txt").read_text(encoding="utf-8") == OUTSIDE
    matrix.note(SANDBOX.host, case, "denied" if tool == READ else "no such tool")


def test_tool_of_a_server_is_called_and_no_other(lived_in: Stage, matrix: Matrix) -> None:
    """A rule that names one tool gives neither the server's others, nor a file."""
    names = ("mcp__lab__note", "mcp__lab__other", "mcp__person__note", "mcp__folder__note", READ)
    ran = run(lived_in, ("lab/note",), *(ModelAnswer.literal(name, {"text": "x"}) for name in names))
    assert lived_in.model.conversation[0].tool_names == ("mcp__lab__note",)
    assert ran.denied == list(names[1:])
    assert [marks(lived_in.folder, name) for name in ("lab", "person", "folder")] == [{"note"}, set(), set()]
    matrix.note(SANDBOX.host, "allowed: MCP tool", "ran")
    matrix.note(SANDBOX.host, "other tool of the server", "no such tool")
    matrix.note(SANDBOX.host, "server of the person", "no such tool")


@pytest.mark.parametrize("place", ["variable", "file", "settings", "provider"])
def test_key_of_the_person_reaches_the_model(lived_in: Stage, matrix: Matrix, place: str) -> None:
    """Isolated from everything else, the run is still theirs, wherever Qwen lets them keep a key."""
    path = lived_in.user / ".qwen" / "settings.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    with door(lived_in.model) as standing:
        url = f"{standing.url}/v1"
        env = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": url}
        match place:
            case "variable":
                env["OPENAI_API_KEY"] = "the-persons-key"
            case "file":
                (lived_in.user / ".qwen" / ".env").write_text("OPENAI_API_KEY=the-persons-key\n", encoding="utf-8")
            case "settings":
                settings["security"] = {"auth": {"selectedType": "openai", "apiKey": "the-persons-key", "baseUrl": url}}
            case _:
                provider = {"id": "their-model", "baseUrl": url, "envKey": "THEIR_KEY"}
                settings |= {"modelProviders": {"openai": [provider]}, "env": {"THEIR_KEY": "the-persons-key"}}
        path.write_text(json.dumps(settings), encoding="utf-8")
        ran = run_sandbox(SANDBOX, work_for(lived_in, "hello", READ, env=env))
        assert ran.exit_code == 0, ran.stderr
    assert standing.has_header("authorization", "Bearer the-persons-key")
    matrix.note(SANDBOX.host, "sign-in", "kept")


@pytest.mark.parametrize(
    ("prompt", "arrives"),
    [
        ("/clear", " /clear"),
        ("!touch made", "!touch made"),
        ("@inside.txt and ann@inside.txt", r"\@inside.txt and ann\@inside.txt"),
        ("--yolo -p x", "--yolo -p x"),
    ],
)
def test_prompt_is_plain_text(lived_in: Stage, matrix: Matrix, prompt: str, arrives: str) -> None:
    """A message inside it may look like a command of Qwen's, or name a file that Qwen would put in its place."""
    before = tree(lived_in.project)
    run(lived_in, (READ,), prompt=prompt)
    first = lived_in.model.conversation[0]
    assert f"\n{arrives}" in first.turns[-1].text
    assert first.count(INSIDE) == 0
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "prompt that is a command", "plain text")


def test_run_ends_when_its_turns_are_used_up(lived_in: Stage) -> None:
    """A model that never comes to an end costs money until somebody looks."""
    path = str(lived_in.project / "inside.txt")
    lived_in.model.follow(lambda _: ModelAnswer.literal(READ, {"file_path": path}))
    ran = run_sandbox(SANDBOX, work_for(lived_in, "go on", READ, max_turns=3))
    assert len(lived_in.model.conversation) == len(ran.of(OutputKind.TURN)) == 3
    assert [told.text for told in ran.of(OutputKind.ERROR)] == ["It was ended: it took all the turns that it has."]
