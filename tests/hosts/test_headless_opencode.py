"""opencode in its sandbox, the real one: what a rule names works, all else is denied, nothing of the person leaks.

The model is ours and asks for what it should not get. What it got is read on its wire, and on the disk. opencode's own
fence is the repository: some of this is tried in a folder of one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from harken.errors import UserError
from harken.hosts.opencode.headless import SANDBOX
from harken.hosts.trial_recipe import KEY, MODEL
from harken.runs.sandbox import OutputKind, SandboxCommand, SandboxRequest
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts import toolserver
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import ANSWER, INSIDE, OUTSIDE, Ran, ask, door, put_files, results, run_sandbox, work_for
from tests.hosts.stage import FOLDER, Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks

pytestmark = pytest.mark.parametrize("host", ["opencode"], indirect=True)

THEIRS: Final = "INSTRUCTIONS-OF-THE-PERSON"
HERE: Final = "WORDS-OF-THE-FOLDER"
PLUGIN: Final = """\
import {{ writeFileSync }} from "node:fs"
writeFileSync("{mark}", "")
export const Own = async () => ({{}})
"""


@pytest.fixture
def lived_in(bare_stage: Stage) -> Stage:
    """A person with a plugin, a server and instructions of their own, in a folder that has such things too."""
    stage = bare_stage
    put_files(stage)
    home, here = stage.user / ".config" / "opencode", stage.project / ".opencode"
    settings = json.loads((home / "opencode.json").read_text(encoding="utf-8"))
    write(home / "opencode.json", {**settings, **baits(stage, "person")})
    write(stage.project / "opencode.json", baits(stage, "folder"))
    write(home / "plugins" / "own.js", PLUGIN.format(mark=stage.folder / "plugin"))
    write(home / "AGENTS.md", THEIRS)
    write(stage.user / ".claude" / "CLAUDE.md", THEIRS)
    write(here / "tools" / "own.js", PLUGIN.format(mark=stage.folder / "plugin"))
    write(here / "agent" / "harken.md", f"---\nmode: primary\npermission:\n  bash: allow\n---\n{HERE}")
    write(here / "command" / "own.md", f"{HERE} !`touch {stage.folder}/plugin`")
    write(stage.project / "AGENTS.md", HERE)
    write(stage.project / ".claude" / "skills" / "own" / "SKILL.md", f"---\nname: own\ndescription: {HERE}\n---\n")
    return stage


def baits(stage: Stage, whose: str) -> Mapping[str, object]:
    """Return settings that leave marks when they are followed."""
    command = [sys.executable, "-I", str(toolserver.__file__), str(stage.folder), whose]
    return {"mcp": {whose: {"type": "local", "command": command}}, "instructions": ["../outside.txt"]}


def write(path: Path, content: object) -> None:
    """Write a text, or anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def run(stage: Stage, tools: tuple[str, ...], *says: ModelAnswer, prompt: str = "do it") -> Ran:
    """Run opencode with some tools, while the model says some things in order; it must end well."""
    ran = ask(SANDBOX, stage, tools, *says, prompt=prompt, max_turns=60)
    assert (ran.exit_code, ran.answer) == (0, ANSWER), ran.stderr
    everything = "\n".join(asked.text for asked in stage.model.requests)
    assert not (stage.folder / "plugin").exists()
    assert THEIRS not in everything
    assert HERE not in everything
    assert sum(asked.count(OUTSIDE) for asked in stage.model.requests) == 0
    assert marks(stage.folder, "person") | marks(stage.folder, "folder") == set()
    return ran


def test_tool_that_a_rule_names_does_its_work(lived_in: Stage, matrix: Matrix) -> None:
    """A fence that nothing gets through would be no use."""
    ran = run(lived_in, ("read_file",), ModelAnswer.literal("read", {"filePath": "inside.txt"}))
    assert lived_in.model.conversation[0].tool_names == ("read",)
    assert INSIDE in results(lived_in)[-1]
    assert ran.denied == []
    assert len(ran.of(OutputKind.TURN)) == 2
    assert ran.leftover == ()
    assert len(lived_in.model.requests) == 2  # no title is asked for
    matrix.note(SANDBOX.host, "allowed: read_file", "ran")


def test_files_in_the_folder_can_be_changed(lived_in: Stage, matrix: Matrix) -> None:
    """Each portable word must mean on this host what it says."""
    change = {"filePath": str(lived_in.project / "inside.txt"), "oldString": INSIDE, "newString": "changed"}
    calls = (
        ModelAnswer.literal("read", {"filePath": "inside.txt"}),
        ModelAnswer.literal("edit", change),
        ModelAnswer.literal("write", {"filePath": "deep/er/new.txt", "content": "new"}),
    )
    ran = run(lived_in, ("edit_file", "read_file"), *calls)
    assert ran.denied == []
    assert (lived_in.project / "inside.txt").read_text(encoding="utf-8") == "changed\n"
    assert (lived_in.project / "deep/er/new.txt").read_text(encoding="utf-8") == "new"
    matrix.note(SANDBOX.host, "allowed: edit_file", "ran")


def test_tool_of_a_server_is_called_and_no_other(lived_in: Stage, matrix: Matrix) -> None:
    """A rule that names one tool of a server has not named the server."""
    names = ("my_lab_note", "my_lab_other", "person_note", "folder_note", "own")
    ran = run(lived_in, ("my.lab/note",), *(ModelAnswer.literal(name, {"text": "x"}) for name in names))
    assert lived_in.model.conversation[0].tool_names == ("my_lab_note",)
    assert ran.denied == list(names[1:])
    assert marks(lived_in.folder, "my.lab") == {"note"}
    matrix.note(SANDBOX.host, "allowed: MCP tool", "ran")
    matrix.note(SANDBOX.host, "other tool of the server", "no such tool")
    matrix.note(SANDBOX.host, "server of the person", "no such tool")


@pytest.mark.parametrize("is_inner", [False, True])
def test_what_a_rule_does_not_name_is_denied(lived_in: Stage, matrix: Matrix, *, is_inner: bool) -> None:
    """Nothing may change, nothing from outside may be read, and the record must say who tried."""
    if is_inner:  # the folder of the run is deep in the repository
        (lived_in.project / ".git").rename(lived_in.folder / ".git")
    (lived_in.project / "nowhere").symlink_to(lived_in.folder / "made")
    outside, before = str(lived_in.folder / "outside.txt"), tree(lived_in.project)
    cases: tuple[tuple[str, str, Mapping[str, object]], ...] = (
        ("shell write", "bash", {"command": "touch made", "description": "x"}),
        ("read: absolute path", "read", {"filePath": outside}),
        ("read: ..", "read", {"filePath": "../outside.txt"}),
        ("read: link that leads out", "read", {"filePath": "link.txt"}),
        ("read: folder link", "read", {"filePath": "out/outside.txt"}),
        ("list outside", "read", {"filePath": "out"}),
        ("list outside", "glob", {"pattern": "*", "path": str(lived_in.folder)}),
        ("list outside", "glob", {"pattern": "*", "path": "out"}),
        ("search outside", "grep", {"pattern": "OUTSIDE", "path": ".."}),
        ("search outside", "grep", {"pattern": "OUTSIDE", "path": "link.txt"}),
        ("edit outside", "write", {"filePath": "../made", "content": "x"}),
        ("edit outside", "write", {"filePath": "out/made", "content": "x"}),
        ("edit outside", "write", {"filePath": "nowhere", "content": "x"}),
        ("edit: link that leads out", "edit", {"filePath": "link.txt", "oldString": OUTSIDE, "newString": "x"}),
        ("edit: .git", "write", {"filePath": ".git/config", "content": "x"}),
        ("edit: .git", "write", {"filePath": ".opencode/plugins/made.js", "content": "x"}),
        ("helper agent", "task", {"description": "x", "prompt": "x", "subagent_type": "general"}),
        ("web", "webfetch", {"url": "http://127.0.0.1:9/", "format": "text"}),
    )
    tools = ("read_file", "list_files", "search_files", "edit_file")
    ran = run(lived_in, tools, *(ModelAnswer.literal(name, given) for _case, name, given in cases))
    assert ran.denied == [name for _case, name, _given in cases]
    assert tree(lived_in.project) == before
    assert not (lived_in.folder / "made").exists()
    assert (lived_in.folder / "outside.txt").read_text(encoding="utf-8") == f"{OUTSIDE}\n"
    offered = lived_in.model.conversation[0].tool_names
    for case, name, _given in cases:
        matrix.note(SANDBOX.host, case, "denied" if name in offered else "no such tool")


def test_patch_stays_in_the_folder(lived_in: Stage) -> None:
    """Some models change files by patches only, whose paths stand in a text."""
    content = lived_in.environment["OPENCODE_CONFIG_CONTENT"].replace(MODEL, "gpt-5")
    heads = ("Add File: ../made", "Add File: out/made", "Add File: .git/made", "Delete File: link.txt")
    texts = [f"*** Begin Patch\n*** {head}\n+x\n*** End Patch" for head in (*heads, "Add File: new.txt")]
    move = f"*** Begin Patch\n*** Update File: inside.txt\n*** Move to: out/made\n@@\n-{INSIDE}\n+x\n*** End Patch"
    calls = [ModelAnswer.literal("apply_patch", {"patchText": text}) for text in (move, *texts)]
    lived_in.model.follow(in_order(*calls, then=ANSWER))
    work = work_for(lived_in, "x", "edit_file", max_turns=60, env={"OPENCODE_CONFIG_CONTENT": content})
    ran = run_sandbox(SANDBOX, work)
    assert lived_in.model.conversation[0].tool_names == ("apply_patch",)
    assert ran.denied == ["apply_patch"] * (len(heads) + 1)
    assert (lived_in.project / "new.txt").exists()
    assert (lived_in.folder / "outside.txt").exists()
    assert not list(lived_in.folder.rglob("made"))


def test_edit_is_denied_where_the_rule_only_reads(lived_in: Stage, matrix: Matrix) -> None:
    """Reading is what most rules need; it must not come with writing."""
    before = tree(lived_in.project)
    ran = run(lived_in, ("read_file",), ModelAnswer.literal("write", {"filePath": "inside.txt", "content": "x"}))
    assert ran.denied == ["write"]
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "edit", "no such tool")


def test_search_finds_what_is_in_the_folder_and_runs_nothing(lived_in: Stage) -> None:
    """A pattern may look like an option of the program that searches, and links are not followed."""
    (found,) = FOLDER.glob("node_modules/@openai/codex-*/vendor/*/codex-path/rg")
    patterns = ("INSIDE", "OUTSIDE", "--pre=touch made", "-Otouch made", "--follow")
    calls = [ModelAnswer.literal("grep", {"pattern": pattern}) for pattern in patterns]
    calls += [
        ModelAnswer.literal("grep", {"pattern": "OUTSIDE", "include": part}) for part in ("../*", "out/*", "--follow")
    ]
    calls += [ModelAnswer.literal("glob", {"pattern": pattern}) for pattern in ("*.txt", "../*", "out/*", "/etc/pass*")]
    lived_in.model.follow(in_order(*calls, then=ANSWER))
    before = tree(lived_in.project)
    path = {"PATH": f"{found.parent}:{lived_in.environment['PATH']}"}
    ran = run_sandbox(SANDBOX, work_for(lived_in, "x", "search_files", "list_files", max_turns=60, env=path))
    assert (ran.exit_code, ran.answer, ran.denied) == (0, ANSWER, [])
    texts = results(lived_in)
    assert INSIDE in texts[0]
    assert "inside.txt" in texts[len(patterns) + 3]
    assert not any(part in text for text in texts for part in (OUTSIDE, "outside.txt", "passwd"))
    assert tree(lived_in.project) == before


def test_command_prefix_lets_no_other_command_through(lived_in: Stage, matrix: Matrix) -> None:
    """What a shell makes of a line, not only how it begins, decides what runs."""
    endings = ("; {}", "$({})", "`{}`", "&& {}", "\n{}", "| {}", "& {}", "<({})", "> made", "${{X:-$({})}}", "\\\n{}")
    lines = [f"git log {ending.format('touch made')}" for ending in endings]
    lines += ["git logs", "git", "touch made # git log", "bash -c 'git log'", "X=1 git log", "git log *", "git log ~"]
    calls = [ModelAnswer.literal("bash", {"command": line, "description": "x"}) for line in lines]
    calls.append(ModelAnswer.literal("bash", {"command": "git log", "description": "x", "workdir": ".."}))
    allowed = ModelAnswer.literal("bash", {"command": "git log --oneline -n 3", "description": "x"})
    before = tree(lived_in.project)
    ran = run(lived_in, ("shell:git log",), *calls, allowed)
    assert ran.denied == ["bash"] * len(calls)
    assert "fatal" in results(lived_in)[-1]
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "allowed: shell:git log", "ran")
    matrix.note(SANDBOX.host, "other command after a prefix", "denied")


def test_any_command_runs_where_a_rule_says_shell_and_sees_no_key(lived_in: Stage, matrix: Matrix) -> None:
    """A person may give a shell away; the key does not go with it, and other tools still end at the folder."""
    calls = (
        ModelAnswer.literal("bash", {"command": "env && echo x > made", "description": "x"}),
        ModelAnswer.literal("read", {"filePath": "../outside.txt"}),
    )
    lived_in.model.follow(in_order(*calls, then=ANSWER))
    ran = run_sandbox(SANDBOX, work_for(lived_in, "x", "shell", "read_file", env={"OPENAI_API_KEY": "the-persons-key"}))
    assert ran.answer == ANSWER
    assert (lived_in.project / "made").exists()
    assert "HOME=" in results(lived_in)[0]
    assert "the-persons-key" not in results(lived_in)[0]
    assert ran.denied == ["read"]
    matrix.note(SANDBOX.host, "allowed: shell", "ran")


def test_nothing_of_the_person_or_the_folder_gets_into_a_run(lived_in: Stage, matrix: Matrix) -> None:
    """A run must not be steered by what happens to lie around, and is not a session of Harken."""
    before, project = tree(lived_in.user), tree(lived_in.project)
    run(lived_in, ("read_file",), ModelAnswer.literal("read", {"filePath": "inside.txt"}))
    after = {path: data for path, data in tree(lived_in.user).items() if not path.startswith(".cache")}
    assert after == before
    assert tree(lived_in.project) == project
    assert lived_in.model.strays == ()
    matrix.note(SANDBOX.host, "hook of the person", "kept out")
    matrix.note(SANDBOX.host, "instructions of the person", "kept out")


def test_without_the_fence_there_are_no_tools(lived_in: Stage) -> None:
    """A version of opencode that does not load the plugin must not be one without a fence."""
    work = work_for(lived_in, "x", "read_file", "shell")

    class Unfenced:
        """The sandbox without its plugin."""

        host, program, variables = SANDBOX.host, SANDBOX.program, SANDBOX.variables
        refusal, transcript = SANDBOX.refusal, SANDBOX.transcript

        def command(self, work: SandboxRequest) -> SandboxCommand:
            """Return the command without what opens the tools."""
            command = SANDBOX.command(work)
            return replace(command, files=tuple(each for each in command.files if "plugins" not in each.path))

    run_sandbox(Unfenced(), work)
    assert [asked.tool_names for asked in lived_in.model.requests] == [()]


def test_folder_with_plugins_is_refused(lived_in: Stage, matrix: Matrix) -> None:
    """These run as opencode starts, whatever its settings say."""
    inner = lived_in.project / "inner"
    inner.mkdir()
    write(lived_in.project / ".opencode" / "plugins" / "own.js", PLUGIN.format(mark=lived_in.folder / "plugin"))
    with pytest.raises(UserError, match="plugins"):
        run_sandbox(SANDBOX, replace(work_for(lived_in, "x", "read_file"), workdir=inner))
    matrix.note(SANDBOX.host, "plugin of the folder", "refused")


@pytest.mark.parametrize("is_in_file", [False, True])
def test_key_of_the_person_reaches_the_model(lived_in: Stage, matrix: Matrix, *, is_in_file: bool) -> None:
    """Isolated from everything else, the run is still theirs; a key may stand in a variable or in opencode's file."""
    content = json.loads(lived_in.environment["OPENCODE_CONFIG_CONTENT"])
    options = content["provider"]["trial"]["options"]
    env = {}
    if is_in_file:
        del options["apiKey"]
        keys = {"trial": {"type": "api", "key": "the-persons-key"}}
        write(lived_in.user / ".local/share/opencode/auth.json", keys)
    else:
        options["apiKey"] = "{env:KEY_OF_MINE}"
        env = {"KEY_OF_MINE": "the-persons-key"}
    with door(lived_in.model) as standing:
        options["baseURL"] = f"{standing.url}/v1"
        work = work_for(lived_in, "hi", "read_file", env={**env, "OPENCODE_CONFIG_CONTENT": json.dumps(content)})
        assert run_sandbox(SANDBOX, work).exit_code == 0
    assert standing.has_header("authorization", "Bearer the-persons-key")
    matrix.note(SANDBOX.host, "sign-in", "kept")


@pytest.mark.parametrize("prompt", ["/own @inside.txt", "!touch made", "@{folder}/outside.txt", "--version"])
def test_prompt_is_plain_text(lived_in: Stage, matrix: Matrix, prompt: str) -> None:
    """A message inside it may look like a command of opencode's, or name a file that it would put in its place."""
    before = tree(lived_in.project)
    given = prompt.format(folder=lived_in.folder)
    run(lived_in, ("read_file",), prompt=given)
    first = lived_in.model.conversation[0]
    assert first.turns[-1].text == given
    assert first.count(INSIDE) == 0
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "prompt that is a command", "plain text")


def test_runs_at_the_same_time_do_not_disturb_each_other(lived_in: Stage) -> None:
    """On one home several of opencode at once fail now and then; each run has its own."""
    works = [
        replace(work_for(lived_in, f"number {at}", "read_file"), private=lived_in.folder / f"run{at}")
        for at in range(4)
    ]
    with ThreadPoolExecutor(len(works)) as pool:
        ran = list(pool.map(lambda work: run_sandbox(SANDBOX, work), works))
    assert [each.exit_code for each in ran] == [0] * len(works)
    assert len(lived_in.model.conversation) == len(works)


def test_run_that_fails_says_why(lived_in: Stage) -> None:
    """The person has to know what to do."""
    content = lived_in.environment["OPENCODE_CONFIG_CONTENT"].replace("/v1", "/nothing-here")
    work = work_for(lived_in, "hello", "read_file", env={"OPENCODE_CONFIG_CONTENT": content})
    ran = run_sandbox(SANDBOX, work)
    (error,) = ran.of(OutputKind.ERROR)
    assert "does not know this request" in error.text
    assert KEY not in error.text
