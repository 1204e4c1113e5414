"""Codex in its sandbox, the real one: what a rule names works, all else is denied, nothing of the person leaks.

The model is ours and asks for what it should not get. What it got is read on its wire, and on the disk. Codex offers
tools differently to some models, so the fence is tried with each kind.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Final

import pytest

from harken.hosts.codex.headless import SANDBOX
from harken.hosts.trial_recipe import KEY, MODEL
from harken.runs.sandbox import OutputKind
from harken.runs.tools import parse_tool
from harken.trial.exchange import ModelAnswer, ModelCall
from tests.hosts import toolserver
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import ANSWER, INSIDE, OUTSIDE, Ran, ask, door, put_files, results, run_sandbox, work_for
from tests.hosts.stage import Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks

pytestmark = pytest.mark.parametrize("host", ["codex"], indirect=True)

THEIRS: Final = "INSTRUCTIONS-OF-THE-PERSON"
SKILL: Final = "A-SKILL-OF-THE-FOLDER"
# Offers tools plainly, with its tool for patches, and from inside a program that the model writes.
PLAIN, PATCHING, PROGRAMMING = MODEL, "gpt-5.5", "gpt-6.1-sol"
EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")


@pytest.fixture
def lived_in(bare_stage: Stage) -> Stage:
    """A person with hooks, a server, a skill and instructions of their own, in a folder that has such things too."""
    stage = bare_stage
    put_files(stage)
    home, here = stage.user / ".codex", stage.project / ".codex"
    here.mkdir()
    arguments = json.dumps(["-I", str(toolserver.__file__), str(stage.folder), "person"])
    server = f"\n[mcp_servers.person]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
    config = (home / "config.toml").read_text(encoding="utf-8")
    # Told of every end of a turn, and in need of no trust.
    notify = f'notify = ["touch", "{stage.folder}/hook"]\n'
    (home / "config.toml").write_text(notify + config + server, encoding="utf-8")
    (here / "config.toml").write_text(server, encoding="utf-8")
    command = {"type": "command", "command": f"touch {stage.folder}/hook"}
    hooks = json.dumps({"hooks": {event: [{"hooks": [command]}] for event in EVENTS}})
    for folder in (home, here):
        (folder / "hooks.json").write_text(hooks, encoding="utf-8")
    (home / "AGENTS.md").write_text(THEIRS, encoding="utf-8")
    for skills in (stage.user / ".agents/skills/own", stage.project / ".agents/skills/own"):
        skills.mkdir(parents=True)
        (skills / "SKILL.md").write_text(f"---\nname: own\ndescription: {SKILL}\n---\n{SKILL}", encoding="utf-8")
    return stage


def choose(stage: Stage, model: str) -> None:
    """Let the person's settings name a model."""
    file = stage.user / ".codex" / "config.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(f'"{MODEL}"', f'"{model}"'), encoding="utf-8")


def run(stage: Stage, tools: tuple[str, ...], *says: ModelAnswer, prompt: str = "do it") -> Ran:
    """Run Codex with some tools, while the model says some things in order; it must end well."""
    ran = ask(SANDBOX, stage, tools, *says, prompt=prompt)
    assert (ran.exit_code, ran.answer) == (0, ANSWER), ran.stderr
    everything = "\n".join(asked.text for asked in stage.model.requests)
    assert not (stage.folder / "hook").exists()
    assert marks(stage.folder, "person") == set()
    assert THEIRS not in everything
    assert SKILL not in everything
    return ran


def patch(*lines: str) -> ModelAnswer:
    """Return a call of the tool that changes files."""
    text = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
    return ModelAnswer(calls=(ModelCall("apply_patch", {"input": text}, takes_text=True, is_literal=True),))


def program(text: str) -> ModelAnswer:
    """Return a call of the tool that takes a program."""
    return ModelAnswer(calls=(ModelCall("exec", {"input": text}, "functions", takes_text=True, is_literal=True),))


@pytest.mark.parametrize("model_name", [PLAIN, PATCHING])
def test_tool_of_a_server_is_called_and_no_other(lived_in: Stage, matrix: Matrix, model_name: str) -> None:
    """A rule that names one tool of a server has not named the server."""
    choose(lived_in, model_name)
    others = ("mcp__lab__other", "mcp__person__note", "exec_command", "shell", "view_image", "spawn_agent")
    ran = run(
        lived_in,
        ("lab/note",),
        ModelAnswer.call("note"),
        *(ModelAnswer.literal(name, {"cmd": "touch made"}) for name in others),
    )
    offered = {name for name in lived_in.model.conversation[0].tool_names if name != "mcp__lab/note"}
    assert offered <= set(ran.leftover)
    assert ran.targets == [(name, "touch made") for name in others]
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == ["lab/note"]
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation)
    assert marks(lived_in.folder, "lab") == {"note"}
    assert not (lived_in.project / "made").exists()
    matrix.note(SANDBOX.host, "allowed: MCP tool", "ran")
    matrix.note(SANDBOX.host, "shell write", "no such tool")
    matrix.note(SANDBOX.host, "other tool of the server", "no such tool")
    matrix.note(SANDBOX.host, "server of the person", "no such tool")


@pytest.mark.parametrize("model_name", [PLAIN, PATCHING])
def test_turns_are_the_requests_that_the_model_got(lived_in: Stage, model_name: str) -> None:
    """Several calls in one answer are one turn, whatever becomes of them; and an answer that only failed is one too."""
    choose(lived_in, model_name)
    note = ModelCall("note", {"text": "x"})
    refused = ModelCall("exec_command", {"cmd": "touch made"}, is_literal=True)
    absent = ModelCall("view_image", {"path": "a.png"}, is_literal=True)
    broken = patch("*** Update File: inside.txt", "@@", "-no such line", "+x")
    says = (
        ModelAnswer(calls=(note, note, note)),
        ModelAnswer(calls=(refused, absent, refused)),
        broken,
        ModelAnswer(calls=(note, refused)),
    )
    ran = run(lived_in, ("lab/note",), *says)
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation) == len(says) + 1
    expected = [("exec_command", "touch made")] * 3 + [("view_image", "a.png")]
    assert sorted(each for each in ran.targets if each[0] != "apply_patch") == expected


def test_program_of_the_model_has_the_tools_of_the_rule_only(lived_in: Stage) -> None:
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
    ran = run(lived_in, ("lab/note",), *map(program, lines))
    offered = {name.rpartition("/")[2] for name in lived_in.model.conversation[0].tool_names}
    assert offered <= set(ran.leftover)
    listed, noted, shell, files, world, patched = results(lived_in)
    inner = set(json.loads(listed[listed.index("[") :])) - {"mcp__lab__note"}
    assert inner <= set(ran.leftover)
    assert "MARKED note" in noted
    assert "not a function" in shell
    assert "Unsupported import" in files
    assert "undefined,undefined,undefined" in world
    assert "patch rejected" in patched
    ((tool, target),) = ran.targets
    assert (tool, target) == ("apply_patch", lines[-1])
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation)
    assert tree(lived_in.project) == before


def test_files_in_the_folder_are_changed_and_no_others(lived_in: Stage, matrix: Matrix) -> None:
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
    ran = run(lived_in, ("edit_file",), *denied, change, patch("*** Add File: new.txt", "+new"))
    folder = lived_in.project.resolve()
    files = ["../made", f"{lived_in.folder}/made", f"{folder}/out/made", f"{folder}/link.txt", "../outside.txt"]
    files += ["inside.txt, ../made", ".git/hooks/post-checkout", ".codex/made"]
    assert sorted(ran.targets) == sorted(("apply_patch", file) for file in files)
    assert (lived_in.project / "inside.txt").read_text(encoding="utf-8") == "changed\n"
    assert (lived_in.project / "new.txt").read_text(encoding="utf-8") == "new\n"
    assert (lived_in.folder / "outside.txt").read_text(encoding="utf-8") == f"{OUTSIDE}\n"
    assert not list(lived_in.folder.rglob("made"))
    assert not (lived_in.project / ".git/hooks/post-checkout").exists()
    matrix.note(SANDBOX.host, "allowed: edit_file", "ran")
    matrix.note(SANDBOX.host, "edit outside", "denied")


def test_submodule_is_not_led_to_another_repository(lived_in: Stage, matrix: Matrix) -> None:
    """A submodule's `.git` is a file like any other to the sandbox, and the next `git status` follows it."""
    choose(lived_in, PATCHING)
    git, ran_by_git = shutil.which("git"), lived_in.folder / "ran"
    assert git
    library = lived_in.folder / "library"
    identity = ("-c", "user.email=ann@example.org", "-c", "user.name=Ann", "-c", "protocol.file.allow=always")
    for folder, *words in (
        (lived_in.folder, "init", "-q", str(library)),
        (library, "commit", "--allow-empty", "-qm", "first"),
        (lived_in.project, "submodule", "--quiet", "add", str(library), "sub"),
        (lived_in.project, "commit", "-qam", "first"),
    ):
        subprocess.run([git, *identity, *words], cwd=folder, check=True)
    evil = (
        patch("*** Add File: evil/HEAD", "+ref: refs/heads/main"),
        patch("*** Add File: evil/objects/x", "+x"),
        patch("*** Add File: evil/refs/x", "+x"),
        patch("*** Add File: evil/config", "+[core]", f"+\tfsmonitor = touch {ran_by_git}", "+\tworktree = ../sub"),
        patch("*** Delete File: sub/.git"),
        patch("*** Add File: sub/.git", "+gitdir: ../evil"),
    )
    before = (lived_in.project / "sub" / ".git").read_bytes()
    ran = run(lived_in, ("edit_file",), *evil)
    subprocess.run([git, "status"], cwd=lived_in.project, check=False)
    assert not ran_by_git.exists()
    assert (lived_in.project / "sub" / ".git").read_bytes() == before
    assert ran.denied == ["apply_patch", "apply_patch"]
    matrix.note(SANDBOX.host, "edit: .git of a submodule", "denied")


def test_edit_is_denied_where_the_rule_does_not_name_it(lived_in: Stage, matrix: Matrix) -> None:
    """Codex cannot take the tool away from these models: the record names it, and the sandbox denies it."""
    choose(lived_in, PATCHING)
    before = tree(lived_in.project)
    ran = run(lived_in, ("lab/note",), patch("*** Add File: made", "+x"))
    assert ran.denied == ["apply_patch"]
    assert "apply_patch" in ran.leftover
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "edit", "denied")


def test_shell_is_held_by_the_sandbox_and_sees_no_key(lived_in: Stage, matrix: Matrix) -> None:
    """Whoever gives a shell away to Codex gives one that writes in the folder only, and has no network."""
    port = lived_in.model.url.rpartition(":")[2]
    network = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo REACHED"
    command = f"env; echo x > made; echo x > ../made; bash -c '{network}'; mktemp"
    ran = run(lived_in, ("shell", "read_file"), ModelAnswer.shell(command))
    (seen,) = results(lived_in)
    assert (lived_in.project / "made").exists()
    assert not (lived_in.folder / "made").exists()
    assert "HOME=" in seen
    assert KEY not in seen
    assert "REACHED" not in seen
    assert str(lived_in.folder / "run" / "scratch") in seen
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == ["exec_command"]
    matrix.note(SANDBOX.host, "allowed: shell", "ran")


def test_reading_is_refused_without_the_shell(lived_in: Stage, matrix: Matrix) -> None:
    """Codex has no tool that only reads: a rule must say that it gives a shell away."""
    for case in ("allowed: read_file", "read: absolute path", "read: ..", "read: link that leads out"):
        assert "shell" in SANDBOX.refusal([parse_tool("read_file")])
        matrix.note(SANDBOX.host, case, "refused")
    assert "cannot limit its shell" in SANDBOX.refusal([parse_tool("shell:git log")])
    matrix.note(SANDBOX.host, "allowed: shell:git log", "refused")
    assert lived_in.model.requests == ()


def test_nothing_of_the_person_or_the_folder_gets_into_a_run(lived_in: Stage, matrix: Matrix) -> None:
    """A run must not be steered by what happens to lie around, and is not a session of Harken."""
    (lived_in.project / "AGENTS.md").write_text("INSTRUCTIONS-OF-THE-FOLDER", encoding="utf-8")
    before = tree(lived_in.user)
    run(lived_in, ("shell",), ModelAnswer.shell("true"))
    assert lived_in.model.conversation[0].count("INSTRUCTIONS-OF-THE-FOLDER") == 0
    assert tree(lived_in.user) == before
    assert lived_in.model.strays == ()
    matrix.note(SANDBOX.host, "hook of the person", "kept out")
    matrix.note(SANDBOX.host, "instructions of the person", "kept out")


@pytest.mark.parametrize("is_in_file", [False, True])
def test_key_of_the_person_reaches_the_model(lived_in: Stage, matrix: Matrix, *, is_in_file: bool) -> None:
    """Isolated from everything else, the run is still theirs; a key may stand in a variable or in Codex's own file."""
    file = lived_in.user / ".codex" / "config.toml"
    config = file.read_text(encoding="utf-8")
    env = {"HARKEN_TRIAL_KEY": "the-persons-key"}
    if is_in_file:
        config = config.replace('env_key="HARKEN_TRIAL_KEY"', "requires_openai_auth=true")
        (file.parent / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "the-persons-key"}), encoding="utf-8")
        env = {}
    with door(lived_in.model) as standing:
        file.write_text(config.replace(lived_in.model.url, standing.url), encoding="utf-8")
        assert run_sandbox(SANDBOX, work_for(lived_in, "hello", "lab/note", env=env)).exit_code == 0
    assert standing.has_header("authorization", "Bearer the-persons-key")
    matrix.note(SANDBOX.host, "sign-in", "kept")


@pytest.mark.parametrize(
    "prompt", ["/help", "!touch made", "@inside.txt", "@{folder}/outside.txt", "--version", "-", "$own now", "$own."]
)
def test_prompt_is_plain_text(lived_in: Stage, matrix: Matrix, prompt: str) -> None:
    """A message inside it may look like a command of Codex's, or name a skill that Codex would put in its place."""
    before = tree(lived_in.project)
    given = prompt.format(folder=lived_in.folder)
    run(lived_in, ("lab/note",), prompt=given)
    first = lived_in.model.conversation[0]
    assert first.turns[-1].text == given
    assert first.count(INSIDE) + first.count(OUTSIDE) == 0
    assert tree(lived_in.project) == before
    matrix.note(SANDBOX.host, "prompt that is a command", "plain text")


def test_run_that_cannot_reach_its_model_says_so(lived_in: Stage) -> None:
    """The person has to know what to do."""
    ran = run_sandbox(SANDBOX, work_for(lived_in, "hello", "lab/note", env={"HARKEN_TRIAL_KEY": ""}))
    (error,) = ran.of(OutputKind.ERROR)
    assert "HARKEN_TRIAL_KEY" in error.text
    assert ran.exit_code != 0
