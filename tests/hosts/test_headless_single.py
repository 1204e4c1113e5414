"""What only one host does in its sandbox, tried on the real one: other ways to change files, search and run commands.

Codex offers tools differently to some models, so its fence is tried with each kind. opencode's own fence is the
repository: some of this is tried in a folder of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest

from harken.errors import UserError
from harken.hosts.trial_recipe import KEY, MODEL
from harken.runs.sandbox import OutputKind, Sandbox, SandboxCommand, SandboxRequest
from harken.runs.tools import parse_tool
from harken.trial.exchange import ModelAnswer, ModelCall, in_order
from tests.hosts.baits import offered, run, write
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import ANSWER, INSIDE, OUTSIDE, ask, results, run_sandbox, work_for
from tests.hosts.stage import FOLDER, Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks
from tests.hosts.words import patch

CODEX: Final = pytest.mark.parametrize("host", ["codex"], indirect=True)
COPILOT: Final = pytest.mark.parametrize("host", ["copilot-cli"], indirect=True)
GEMINI: Final = pytest.mark.parametrize("host", ["gemini-cli"], indirect=True)
OPENCODE: Final = pytest.mark.parametrize("host", ["opencode"], indirect=True)
# Offers tools plainly, with its tool for patches, and from inside a program that the model writes.
PLAIN, PATCHING, PROGRAMMING = MODEL, "gpt-5.5", "gpt-6.1-sol"
GEMINI_SHELL: Final = "run_shell_command"


def choose(stage: Stage, model: str) -> None:
    """Let the person's settings of Codex name a model."""
    file = stage.user / ".codex" / "config.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(f'"{MODEL}"', f'"{model}"'), encoding="utf-8")


def program(text: str) -> ModelAnswer:
    """Return a call of the tool that takes a program."""
    return ModelAnswer(calls=(ModelCall("exec", {"input": text}, "functions", takes_text=True, is_literal=True),))


@CODEX
@pytest.mark.parametrize("model_name", [PLAIN, PATCHING])
def test_codex_calls_the_tool_of_a_server_and_no_other(
    lived_in: Stage, sandbox: Sandbox, matrix: Matrix, model_name: str
) -> None:
    """A rule that names one tool of a server has not named the server; nothing of the person's is changed by it."""
    choose(lived_in, model_name)
    before = tree(lived_in.user)
    others = ("mcp__lab__other", "mcp__person__note", "exec_command", "shell", "view_image", "spawn_agent")
    calls = (ModelAnswer.literal(name, {"cmd": "touch made"}) for name in others)
    ran = run(sandbox, lived_in, ["lab/note"], ModelAnswer.call("note"), *calls)
    assert offered(lived_in) - {"mcp__lab/note"} <= set(ran.leftover)
    assert ran.targets == [(name, "touch made") for name in others]
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == ["lab/note"]
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation)
    assert marks(lived_in.folder, "lab") == {"note"}
    assert not (lived_in.project / "made").exists()
    assert (tree(lived_in.user), lived_in.model.strays) == (before, ())
    matrix.note(sandbox.host, "allowed: MCP tool", "ran")
    for case in ("shell write", "other tool of the server", "server of the person"):
        matrix.note(sandbox.host, case, "no such tool")
    for case in ("hook of the person", "instructions of the person"):
        matrix.note(sandbox.host, case, "kept out")


@CODEX
@pytest.mark.parametrize("model_name", [PLAIN, PATCHING])
def test_codex_turns_are_the_requests_that_the_model_got(lived_in: Stage, sandbox: Sandbox, model_name: str) -> None:
    """Several calls in one answer are one turn, whatever becomes of them; and an answer that only failed is one too."""
    choose(lived_in, model_name)
    note = ModelCall("note", {"text": "x"})
    refused = ModelCall("exec_command", {"cmd": "touch made"}, is_literal=True)
    absent = ModelCall("view_image", {"path": "a.png"}, is_literal=True)
    says = (
        ModelAnswer(calls=(note, note, note)),
        ModelAnswer(calls=(refused, absent, refused)),
        patch("*** Update File: inside.txt", "@@", "-no such line", "+x"),
        ModelAnswer(calls=(note, refused)),
    )
    ran = run(sandbox, lived_in, ["lab/note"], *says)
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation) == len(says) + 1
    expected = [("exec_command", "touch made")] * 3 + [("view_image", "a.png")]
    assert sorted(each for each in ran.targets if each[0] != "apply_patch") == expected


@CODEX
def test_codex_program_of_the_model_has_the_tools_of_the_rule_only(lived_in: Stage, sandbox: Sandbox) -> None:
    """Current models call tools from a program; it must not reach more than a plain call."""
    choose(lived_in, PROGRAMMING)
    before = tree(lived_in.project)
    lines = (
        "text(JSON.stringify(Object.keys(tools)))",
        "text(await tools.mcp__lab__note({}))",
        'text(await tools.exec_command({cmd: "touch made"}))',
        'import fs from "fs"; text(fs.readFileSync("/etc/passwd"))',
        "text([typeof require, typeof process, typeof fetch].join())",
        'text(await tools.apply_patch("*** Begin Patch\\n*** Add File: made\\n+x\\n*** End Patch"))',
    )
    ran = run(sandbox, lived_in, ["lab/note"], *map(program, lines))
    assert {name.rpartition("/")[2] for name in offered(lived_in)} <= set(ran.leftover)
    listed, noted, shell, files, world, patched = results(lived_in)
    inner = set(json.loads(listed[listed.index("[") :])) - {"mcp__lab__note"}
    assert inner <= set(ran.leftover)
    assert "MARKED note" in noted
    assert "not a function" in shell
    assert "Unsupported import" in files
    assert "undefined,undefined,undefined" in world
    assert "patch rejected" in patched
    assert ran.targets == [("apply_patch", lines[-1])]
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation)
    assert tree(lived_in.project) == before


@CODEX
def test_codex_changes_files_in_the_folder_and_no_others(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """The tool for patches takes any path; the sandbox must stop it where the folder ends, links included."""
    choose(lived_in, PATCHING)
    denied = (
        patch("*** Add File: ../made", "+x"),
        patch(f"*** Add File: {lived_in.folder}/made", "+x"),
        patch("*** Add File: out/made", "+x"),
        patch("*** Update File: link.txt", "@@", f"-{OUTSIDE}", "+x"),
        patch("*** Delete File: ../outside.txt"),
        patch("*** Update File: inside.txt", "*** Move to: ../made", "@@", f"-{INSIDE}", "+x"),
        patch("*** Add File: .git/hooks/post-checkout", "+x"),
        patch("*** Add File: .codex/made", "+x"),
    )
    change = patch("*** Update File: inside.txt", "@@", f"-{INSIDE}", "+changed")
    ran = run(sandbox, lived_in, ["edit_file"], *denied, change, patch("*** Add File: new.txt", "+new"))
    folder = lived_in.project.resolve()
    files = ["../made", f"{lived_in.folder}/made", f"{folder}/out/made", f"{folder}/link.txt", "../outside.txt"]
    files += ["inside.txt, ../made", ".git/hooks/post-checkout", ".codex/made"]
    assert sorted(ran.targets) == sorted(("apply_patch", file) for file in files)
    assert (lived_in.project / "inside.txt").read_text(encoding="utf-8") == "changed\n"
    assert (lived_in.project / "new.txt").read_text(encoding="utf-8") == "new\n"
    assert (lived_in.folder / "outside.txt").read_text(encoding="utf-8") == f"{OUTSIDE}\n"
    assert not list(lived_in.folder.rglob("made"))
    assert not (lived_in.project / ".git/hooks/post-checkout").exists()
    matrix.note(sandbox.host, "allowed: edit_file", "ran")
    matrix.note(sandbox.host, "edit outside", "denied")


@CODEX
def test_codex_edit_is_denied_where_the_rule_does_not_name_it(
    lived_in: Stage, sandbox: Sandbox, matrix: Matrix
) -> None:
    """Codex cannot take the tool away from these models: the record names it, and the sandbox denies it."""
    choose(lived_in, PATCHING)
    before = tree(lived_in.project)
    ran = run(sandbox, lived_in, ["lab/note"], patch("*** Add File: made", "+x"))
    assert ran.denied == ["apply_patch"]
    assert "apply_patch" in ran.leftover
    assert tree(lived_in.project) == before
    matrix.note(sandbox.host, "edit", "denied")


@CODEX
def test_codex_shell_is_held_by_the_sandbox_and_sees_no_key(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """Whoever gives a shell away to Codex gives one that writes in the folder only, and has no network."""
    port = lived_in.model.url.rpartition(":")[2]
    network = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo REACHED"
    command = f"env; echo x > made; echo x > ../made; bash -c '{network}'; mktemp"
    ran = run(sandbox, lived_in, ["shell", "read_file"], ModelAnswer.shell(command))
    (seen,) = results(lived_in)
    assert (lived_in.project / "made").exists()
    assert not (lived_in.folder / "made").exists()
    assert "HOME=" in seen
    assert KEY not in seen
    assert "REACHED" not in seen
    assert str(lived_in.folder / "run" / "scratch") in seen
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == ["exec_command"]
    matrix.note(sandbox.host, "allowed: shell", "ran")


@CODEX
def test_codex_reading_is_refused_without_the_shell(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """Codex has no tool that only reads: a rule must say that it gives a shell away."""
    assert "shell" in sandbox.refusal([parse_tool("read_file")])
    assert "cannot limit its shell" in sandbox.refusal([parse_tool("shell:git log")])
    assert lived_in.model.requests == ()
    reading = ("allowed: read_file", "read: absolute path", "read: ..", "read: link that leads out")
    for case in (*reading, "allowed: shell:git log"):
        matrix.note(sandbox.host, case, "refused")


@pytest.mark.parametrize(
    ("host", "env", "reason"),
    [
        ("codex", {"HARKEN_TRIAL_KEY": ""}, "HARKEN_TRIAL_KEY"),
        ("gemini-cli", {"GEMINI_API_KEY": ""}, "Gemini CLI is not signed in."),
        ("opencode", {}, "does not know this request"),
    ],
    indirect=["host"],
)
def test_a_run_that_cannot_reach_its_model_says_so(
    lived_in: Stage, sandbox: Sandbox, env: Mapping[str, str], reason: str
) -> None:
    """The person has to know what to do, and no key is in what they may show to others."""
    content = lived_in.environment.get("OPENCODE_CONFIG_CONTENT", "").replace("/v1", "/nothing-here")
    ran = run_sandbox(sandbox, work_for(lived_in, "hello", "lab/note", env={"OPENCODE_CONFIG_CONTENT": content, **env}))
    (error,) = ran.of(OutputKind.ERROR)
    assert reason in error.text
    assert KEY not in error.text


@pytest.mark.parametrize(
    ("host", "grep", "glob"), [("claude-code", "Grep", "Glob"), ("copilot-cli", "grep", "glob")], indirect=["host"]
)
def test_nothing_is_found_outside_the_folder(
    lived_in: Stage, sandbox: Sandbox, matrix: Matrix, grep: str, glob: str
) -> None:
    """Searching reads too, and a pattern could leave the folder or be taken for an option."""
    evil = write(lived_in.project / "evil.sh", f"#!/bin/sh\ntouch {lived_in.folder}/ran\ncat\n")
    evil.chmod(0o755)
    shown = {"output_mode": "content"}
    run(
        sandbox,
        lived_in,
        ["search_files", "list_files"],
        ModelAnswer.literal(grep, {"pattern": OUTSIDE, "path": str(lived_in.folder), **shown}),
        ModelAnswer.literal(grep, {"pattern": OUTSIDE, "path": "out", **shown}),
        ModelAnswer.literal(grep, {"pattern": OUTSIDE, **shown}),
        ModelAnswer.literal(grep, {"pattern": f"--pre={evil}"}),
        ModelAnswer.literal(glob, {"pattern": "*", "path": str(lived_in.folder)}),
        ModelAnswer.literal(glob, {"pattern": "../*"}),
        ModelAnswer.literal(glob, {"pattern": "inside*"}),
    )
    answers = results(lived_in)
    assert len(answers) == 7
    assert not any("outside.txt" in answer or f"{OUTSIDE}\n" in answer for answer in answers)
    assert "inside.txt" in answers[6]
    assert not (lived_in.folder / "ran").exists()
    matrix.note(sandbox.host, "search and list outside", "denied")


@COPILOT
def test_copilot_patches_stay_in_the_folder_too(lived_in: Stage, sandbox: Sandbox) -> None:
    """With some models the host edits by patches and searches with another tool: another way is another hole."""
    out, inside = lived_in.folder / "outside.txt", lived_in.project / "new.txt"
    hunks = (
        "*** Add File: new.txt\n+made",
        f"*** Add File: {lived_in.folder}/new.txt\n+made",
        "*** Add File: out/new.txt\n+made",
        f"*** Update File: inside.txt\n*** Move to: ../new.txt\n@@\n-{INSIDE}\n+changed",
        f"*** Delete File: {out}",
        "*** Add File: .git/hooks/pre-commit\n+made",
    )
    patches = [f"*** Begin Patch\n{hunk}\n*** End Patch" for hunk in hunks]
    calls = [ModelAnswer.literal("apply_patch", {"input": each}) for each in patches]
    search = ModelAnswer.literal("rg", {"pattern": OUTSIDE, "paths": [str(out)], "output_mode": "content"})
    lived_in.model.follow(in_order(*calls, search, then=ANSWER))
    work = work_for(lived_in, "go", "edit_file", "search_files", env={"COPILOT_MODEL": "gpt-5.3-codex"})
    ran = run_sandbox(sandbox, work)
    assert "apply_patch" in offered(lived_in)
    assert inside.read_text(encoding="utf-8") == "made\n"
    assert out.exists()
    assert not (lived_in.folder / "new.txt").exists()
    assert not (lived_in.project / ".git" / "hooks" / "pre-commit").exists()
    assert ran.denied == [*["apply_patch"] * 5, "rg"]


@COPILOT
def test_copilot_does_not_trust_in_a_run_the_folder_that_the_person_trusts(bare_stage: Stage, sandbox: Sandbox) -> None:
    """Trust lets a project's hooks and servers in; a person gave it to themselves, not to messages."""
    stage, hooked = bare_stage, bare_stage.folder / "hooked"
    hook = {"type": "command", "bash": f"touch {hooked}"}
    write(stage.project / ".github" / "hooks" / "h.json", {"version": 1, "hooks": {"sessionStart": [hook]}})
    config = json.loads((stage.user / ".copilot" / "config.json").read_text(encoding="utf-8"))
    assert config["trustedFolders"] == [str(stage.project)]
    stage.ask("hello")
    assert hooked.exists()
    hooked.unlink()
    assert ask(sandbox, stage, ["read_file"]).answer == ANSWER
    assert not hooked.exists()


@COPILOT
def test_copilot_run_without_tools_has_none(lived_in: Stage, sandbox: Sandbox) -> None:
    """To this host an empty list means all of them."""
    look = ModelAnswer.literal("view", {"path": str(lived_in.project / "inside.txt")})
    assert ask(sandbox, lived_in, [], look).exit_code == 0
    assert lived_in.model.requests[0].tools == ()
    assert INSIDE not in json.dumps([dict(asked.body) for asked in lived_in.model.requests])


@GEMINI
def test_gemini_search_runs_nothing_and_stays_in_the_folder(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """Gemini gives patterns to `git grep` unguarded, which takes an option for a command to run."""
    searches: tuple[Mapping[str, object], ...] = (
        {"pattern": "-Otouch made", "include_pattern": "SIDE"},
        {"pattern": "--open-files-in-pager=touch made;", "include_pattern": "SIDE"},
        {"pattern": "-R"},
        {"pattern": "(?=SIDE)SIDE-THE"},
        {"pattern": "SIDE", "include_pattern": ":/"},
        {"pattern": "SIDE", "include_pattern": "../*"},
        {"pattern": "SIDE", "include_pattern": "-f"},
        {"pattern": "SIDE", "dir_path": "out"},
        {"pattern": "SIDE", "dir_path": "link.txt"},
    )
    before = tree(lived_in.project)
    found = {"pattern": "INSIDE|größe", "include_pattern": "*.txt"}
    calls = (ModelAnswer.literal("grep_search", each) for each in (*searches, found))
    ran = run(sandbox, lived_in, ["search_files"], *calls)
    assert ran.denied == ["grep_search"] * len(searches)
    assert "inside.txt" in results(lived_in)[-1]
    assert lived_in.model.conversation[-1].count(OUTSIDE) == 0
    assert tree(lived_in.project) == before
    matrix.note(sandbox.host, "search that is a command", "denied")


@GEMINI
def test_gemini_list_of_files_ends_at_the_folder(lived_in: Stage, sandbox: Sandbox) -> None:
    """Names of files can be secrets too, and Gemini's own check does not hold patterns to the folder."""
    patterns = ("../*", f"{lived_in.folder}/*", ".{.,}/*", "{,}/etc/*", "**/../../*", "{a,.}./*", "~/*")
    calls = [ModelAnswer.literal("glob", {"pattern": pattern}) for pattern in (*patterns, "**/*.txt")]
    folders = [ModelAnswer.literal("list_directory", {"dir_path": path}) for path in ("out", ".")]
    ran = run(sandbox, lived_in, ["list_files"], *calls, *folders)
    assert ran.denied == [*["glob"] * len(patterns), "list_directory"]
    *_refused, globbed, _denied, listed = results(lived_in)
    assert ("inside.txt" in globbed, "inside.txt" in listed) == (True, True)
    assert lived_in.model.conversation[-1].count("outside.txt") == 0


@GEMINI
def test_gemini_command_is_known_by_its_own_argument(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """Its policies look at a call as text: another argument must not stand for the command, nor change its place."""
    calls = [ModelAnswer.literal(GEMINI_SHELL, {"command": line}) for line in (" git log", "git  log")]
    calls += [
        ModelAnswer.literal(GEMINI_SHELL, {"command": "touch made", "more": {"command": "git log"}}),
        ModelAnswer.literal(GEMINI_SHELL, {"command": "touch made", "description": '\0"command":"git log"\0'}),
        ModelAnswer.literal(GEMINI_SHELL, {"command": "git log", "dir_path": ".."}),
        ModelAnswer.literal(GEMINI_SHELL, {"command": "git log", "is_background": True}),
    ]
    before = tree(lived_in.project)
    ran = run(sandbox, lived_in, ["shell:git log"], *calls)
    assert ran.denied == [GEMINI_SHELL] * len(calls)
    assert tree(lived_in.project) == before
    matrix.note(sandbox.host, "other command after a prefix", "denied")


@OPENCODE
def test_opencode_fence_is_the_folder_and_not_the_repository(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """The folder of the run is deep in a repository, all of which is opencode's own fence."""
    (lived_in.project / ".git").rename(lived_in.folder / ".git")
    (lived_in.project / "nowhere").symlink_to(lived_in.folder / "made")
    outside, before = str(lived_in.folder / "outside.txt"), tree(lived_in.project)
    cases: tuple[tuple[str, str, Mapping[str, object]], ...] = (
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
    )
    tools = ("read_file", "list_files", "search_files", "edit_file")
    ran = run(sandbox, lived_in, tools, *(ModelAnswer.literal(name, given) for _case, name, given in cases))
    assert ran.denied == [name for _case, name, _given in cases]
    assert tree(lived_in.project) == before
    assert not (lived_in.folder / "made").exists()
    assert (lived_in.folder / "outside.txt").read_text(encoding="utf-8") == f"{OUTSIDE}\n"
    assert sum(asked.count(OUTSIDE) for asked in lived_in.model.requests) == 0
    for case, _name, _given in cases:
        matrix.note(sandbox.host, case, "denied")


@OPENCODE
def test_opencode_patch_stays_in_the_folder(lived_in: Stage, sandbox: Sandbox) -> None:
    """Some models change files by patches only, whose paths stand in a text."""
    content = lived_in.environment["OPENCODE_CONFIG_CONTENT"].replace(MODEL, "gpt-5")
    heads = ("Add File: ../made", "Add File: out/made", "Add File: .git/made", "Delete File: link.txt")
    texts = [f"*** Begin Patch\n*** {head}\n+x\n*** End Patch" for head in (*heads, "Add File: new.txt")]
    move = f"*** Begin Patch\n*** Update File: inside.txt\n*** Move to: out/made\n@@\n-{INSIDE}\n+x\n*** End Patch"
    calls = [ModelAnswer.literal("apply_patch", {"patchText": text}) for text in (move, *texts)]
    lived_in.model.follow(in_order(*calls, then=ANSWER))
    work = work_for(lived_in, "x", "edit_file", env={"OPENCODE_CONFIG_CONTENT": content})
    ran = run_sandbox(sandbox, work)
    assert offered(lived_in) == {"apply_patch"}
    assert ran.denied == ["apply_patch"] * (len(heads) + 1)
    assert (lived_in.project / "new.txt").exists()
    assert (lived_in.folder / "outside.txt").exists()
    assert not list(lived_in.folder.rglob("made"))


@OPENCODE
def test_opencode_search_finds_what_is_in_the_folder_and_runs_nothing(lived_in: Stage, sandbox: Sandbox) -> None:
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
    ran = run_sandbox(sandbox, work_for(lived_in, "x", "search_files", "list_files", max_turns=60, env=path))
    assert (ran.exit_code, ran.answer, ran.denied) == (0, ANSWER, [])
    texts = results(lived_in)
    assert INSIDE in texts[0]
    assert "inside.txt" in texts[len(patterns) + 3]
    assert not any(part in text for text in texts for part in (OUTSIDE, "outside.txt", "passwd"))
    assert tree(lived_in.project) == before


@OPENCODE
def test_opencode_shell_sees_no_key_and_other_tools_end_at_the_folder(lived_in: Stage, sandbox: Sandbox) -> None:
    """A person may give a shell away; what stands in their environment for the model does not go with it."""
    calls = (
        ModelAnswer.literal("bash", {"command": "env && echo x > made", "description": "x"}),
        ModelAnswer.literal("read", {"filePath": "../outside.txt"}),
    )
    lived_in.model.follow(in_order(*calls, then=ANSWER))
    ran = run_sandbox(sandbox, work_for(lived_in, "x", "shell", "read_file", env={"OPENAI_API_KEY": "the-persons-key"}))
    assert (ran.answer, ran.denied) == (ANSWER, ["read"])
    assert "HOME=" in results(lived_in)[0]
    assert "the-persons-key" not in results(lived_in)[0]


@OPENCODE
def test_opencode_without_the_fence_has_no_tools(lived_in: Stage, sandbox: Sandbox) -> None:
    """A version of opencode that does not load the plugin must not be one without a fence."""
    work = work_for(lived_in, "x", "read_file", "shell")

    class Unfenced:
        """The sandbox without its plugin."""

        host, program, variables = sandbox.host, sandbox.program, sandbox.variables
        refusal, transcript = sandbox.refusal, sandbox.transcript

        def command(self, work: SandboxRequest) -> SandboxCommand:
            """Return the command without what opens the tools."""
            command = sandbox.command(work)
            return replace(command, files=tuple(each for each in command.files if "plugins" not in each.path))

    run_sandbox(Unfenced(), work)
    assert [asked.tool_names for asked in lived_in.model.requests] == [()]


@OPENCODE
def test_opencode_folder_with_plugins_is_refused(lived_in: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """These run as opencode starts, whatever its settings say."""
    inner = lived_in.project / "inner"
    inner.mkdir()
    write(lived_in.project / ".opencode" / "plugins" / "own.js", "")
    with pytest.raises(UserError, match="plugins"):
        run_sandbox(sandbox, replace(work_for(lived_in, "x", "read_file"), workdir=inner))
    matrix.note(sandbox.host, "plugin of the folder", "refused")


@OPENCODE
def test_opencode_runs_at_the_same_time_do_not_disturb_each_other(lived_in: Stage, sandbox: Sandbox) -> None:
    """On one home several of opencode at once fail now and then; each run has its own."""
    works = [
        replace(work_for(lived_in, f"number {at}", "read_file"), private=lived_in.folder / f"run{at}")
        for at in range(4)
    ]
    with ThreadPoolExecutor(len(works)) as pool:
        ran = list(pool.map(lambda work: run_sandbox(sandbox, work), works))
    assert [each.exit_code for each in ran] == [0] * len(works)
    assert len(lived_in.model.conversation) == len(works)
