"""Every host in its sandbox, the real one: what a rule names works, all else is denied, nothing of the person leaks.

The model is ours and asks for everything, also for tools that it was not offered. What it got is read on its wire and
on the disk. Around each run lies what must not get into it. What only one host does is in `test_headless_single.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pytest

from harken.runs.sandbox import OutputKind, Sandbox
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.baits import KEY, PLACES, SIGN_INS, offered, run, write
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import (
    INSIDE,
    OTHER_COMMANDS,
    OUTSIDE,
    commit,
    door,
    results,
    run_sandbox,
    work_for,
)
from tests.hosts.stage import Stage
from tests.hosts.story import tree
from tests.hosts.toolserver import marks
from tests.hosts.words import READERS, Words

READING: Final = pytest.mark.parametrize("host", READERS, indirect=True)
WHOLE: Final = ("claude-code", "copilot-cli", "gemini-cli", "opencode")  # which can be fenced to any tool
FENCED: Final = pytest.mark.parametrize("host", WHOLE, indirect=True)
LIMITED: Final = ("claude-code", "gemini-cli", "qwen-code")  # which count their turns themselves
# What else a model has heard of: agents of its own, and the web.
MORE: Final[Mapping[str, Mapping[str, Mapping[str, object]]]] = MappingProxyType(
    {
        "claude-code": {"Agent": {"prompt": "touch made", "description": "make it"}},
        "copilot-cli": {"task": {"prompt": "touch made", "description": "make it", "agent_type": "task"}},
        "gemini-cli": {
            "invoke_agent": {"agent_name": "generalist", "prompt": "x"},
            "web_fetch": {"prompt": "http://127.0.0.1:9"},
            "list_directory": {"dir_path": "out"},
        },
        "opencode": {
            "task": {"description": "x", "prompt": "x", "subagent_type": "general"},
            "webfetch": {"url": "http://127.0.0.1:9/", "format": "text"},
        },
        "qwen-code": {
            "agent": {"description": "x", "prompt": "x", "subagent_type": "general-purpose"},
            "web_fetch": {"url": "http://127.0.0.1:9", "prompt": "x"},
            "glob": {"pattern": "../*"},
        },
    }
)
# A server whose name the host writes otherwise: how, where it does.
SERVERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"gemini-cli": ("my_lab", "my-lab"), "opencode": ("my.lab", "my_lab")}
)
# What a host would execute or put something in the place of, if a person typed it.
PROMPTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "claude-code": ("/help", "/compact x", "/own", "-p", "!touch made", "@inside.txt and @/etc/passwd", "#note"),
        "copilot-cli": (
            "/help",
            "/clear",
            "/own now",
            "-p",
            "!touch made",
            "@inside.txt and @/etc/passwd",
            "#inside.txt",
        ),
        "codex": (
            "/help",
            "!touch made",
            "@inside.txt",
            "@{folder}/outside.txt",
            "--version",
            "-",
            "$own now",
            "$own.",
        ),
        "gemini-cli": (
            "/help",
            "/own now",
            "!touch made",
            "@inside.txt and ann@inside.txt",
            "@{folder}/outside.txt",
            "--yolo -p x",
        ),
        "opencode": ("/own @inside.txt", "!touch made", "@{folder}/outside.txt", "--version"),
        "qwen-code": ("/clear", "!touch made", "@inside.txt and ann@inside.txt", "--yolo -p x"),
    }
)


def noted(matrix: Matrix, stage: Stage, cases: Mapping[str, str]) -> None:
    """Note of some cases, each with the tool that was called, whether it was denied or not there."""
    for case, tool in cases.items():
        matrix.note(stage.host.name, case, "denied" if tool in offered(stage) else "no such tool")


@READING
def test_a_run_reads_a_file_in_its_folder(lived_in: Stage, sandbox: Sandbox, words: Words, matrix: Matrix) -> None:
    """A sandbox that lets nothing through would pass every other test here; nothing is changed by it anywhere."""
    before, project = tree(lived_in.user), tree(lived_in.project)
    ran = run(sandbox, lived_in, ["read_file"], words.look(lived_in.project / "inside.txt"))
    assert INSIDE in results(lived_in)[0]
    assert (ran.denied, ran.leftover, offered(lived_in)) == ([], (), {words.read})
    assert [told.tool for told in ran.of(OutputKind.TOOL)] == [words.read]
    assert len(ran.of(OutputKind.TURN)) == len(lived_in.model.conversation) == 2
    assert {path: data for path, data in tree(lived_in.user).items() if not path.startswith(".cache")} == before
    assert (tree(lived_in.project), lived_in.model.strays) == (project, ())
    for case in ("hook of the person", "instructions of the person"):
        matrix.note(sandbox.host, case, "kept out")
    matrix.note(sandbox.host, "allowed: read_file", "ran")


@READING
def test_what_was_not_given_is_denied(lived_in: Stage, sandbox: Sandbox, words: Words, matrix: Matrix) -> None:
    """The model may ask for any tool it has heard of; the record must name what it asked for."""
    before = tree(lived_in.project)
    changes = (words.run("touch made"), words.put(lived_in.project / "made", "x"))
    more = (ModelAnswer.literal(tool, given) for tool, given in MORE[sandbox.host].items())
    ran = run(sandbox, lived_in, ["read_file"], *changes, *more)
    assert ran.denied == [words.execute, words.write, *MORE[sandbox.host]]
    assert tree(lived_in.project) == before
    noted(matrix, lived_in, {"shell write": words.execute, "edit": words.write})


@FENCED
def test_edits_stay_in_the_folder(lived_in: Stage, sandbox: Sandbox, words: Words, matrix: Matrix) -> None:
    """A file of the home that is changed, such as a shell's profile, would be a way out of every sandbox."""
    project, inside = lived_in.project, lived_in.project / "inside.txt"
    outside = (lived_in.folder / "made", f"{project}/../made", project / "out/made")
    # Claude Code changes only what it has read.
    linked = [words.change(project / "link.txt", OUTSIDE, "changed")] if sandbox.host != "claude-code" else []
    ran = run(
        sandbox,
        lived_in,
        ["read_file", "edit_file"],
        words.look(inside),
        words.change(inside, INSIDE, "changed"),
        words.put(project / "new.txt", "new"),
        *(words.put(path, "x") for path in outside),
        *linked,
    )
    assert (inside.read_text(encoding="utf-8"), (project / "new.txt").read_text()) == ("changed\n", "new")
    assert (lived_in.folder / "outside.txt").read_text(encoding="utf-8") == f"{OUTSIDE}\n"
    assert not (lived_in.folder / "made").exists()
    assert ran.denied == [*[words.write] * len(outside), *[words.edit] * len(linked)]
    matrix.note(sandbox.host, "allowed: edit_file", "ran")
    matrix.note(sandbox.host, "edit outside", "denied")


@READING
def test_only_the_named_tool_of_a_server_can_be_called(
    lived_in: Stage, sandbox: Sandbox, words: Words, matrix: Matrix
) -> None:
    """A server has tools that the rule's author did not mean, and the person has servers that no rule named."""
    name, called = SERVERS.get(sandbox.host, ("lab", "lab"))
    pairs = ((called, "other"), ("person", "note"), ("folder", "note"))
    others = [*(words.of_server(*pair) for pair in pairs), words.read]
    calls = (ModelAnswer.literal(each, {"text": "x"}) for each in others)
    ran = run(sandbox, lived_in, [f"{name}/note"], words.mark(called), *calls)
    assert (marks(lived_in.folder, name), ran.denied) == ({"note"}, others)
    assert "MARKED note" in results(lived_in)[0]
    matrix.note(sandbox.host, "allowed: MCP tool", "ran")
    noted(matrix, lived_in, {"other tool of the server": others[0], "server of the person": others[1]})


@pytest.mark.parametrize(("host", "place"), PLACES, indirect=["host"])
def test_a_run_is_signed_in_as_the_person(lived_in: Stage, sandbox: Sandbox, matrix: Matrix, place: str) -> None:
    """Isolated from everything else, the run is still theirs, wherever their host lets them keep a key.

    Where a file holds it, that file is not copied: a copy that is renewed would sign the person out.
    """
    with door(lived_in.model) as passage:
        env, header, value = SIGN_INS[sandbox.host](lived_in, place, passage.url)
        work = work_for(lived_in, "hello", "lab/note", env=env)
        ran = run_sandbox(sandbox, work)
    assert ran.exit_code == 0, ran.stderr
    assert passage.has_header(header, value)
    made = [path for path in work.private.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in made if place == "file" and KEY.encode() in path.read_bytes()] == []
    matrix.note(sandbox.host, "sign-in", "kept")


@pytest.mark.parametrize(
    ("host", "prompt"), [(name, prompt) for name, tried in PROMPTS.items() for prompt in tried], indirect=["host"]
)
def test_a_prompt_is_only_ever_text(lived_in: Stage, sandbox: Sandbox, matrix: Matrix, prompt: str) -> None:
    """Prompts hold text of strangers: what the host would expand or execute for a person must stay text."""
    before = tree(lived_in.project)
    given = prompt.format(folder=lived_in.folder)
    run(sandbox, lived_in, ["lab/note"] if sandbox.host == "codex" else ["read_file"], prompt=given)
    first = lived_in.model.conversation[0]
    told = [turn.text for turn in first.turns if turn.role == "user"][-1]
    # Where an escape keeps a host from looking for a file.
    assert told.replace(r"\@", "@").strip().endswith(given.strip())
    assert not any(word in first.text for word in (INSIDE, OUTSIDE, "root:x:"))
    assert tree(lived_in.project) == before
    matrix.note(sandbox.host, "prompt that is a command", "plain text")


@FENCED
def test_only_commands_that_begin_as_the_rule_says_are_run(
    lived_in: Stage, sandbox: Sandbox, words: Words, matrix: Matrix
) -> None:
    """A beginning that something can be hung on to is no fence; nor is one that nothing gets through.

    The guard of commands must not stand before other tools.
    """
    commit(lived_in, "first")
    write(lived_in.project / "Makefile", "test:\n\t@echo tested\n")
    before = tree(lived_in.project)
    tried = [words.run(line) for line in OTHER_COMMANDS]
    allowed = (words.run("git log --oneline -n 3"), words.run("make test"), words.look(lived_in.project / "inside.txt"))
    ran = run(sandbox, lived_in, ["shell:git log", "shell:make test", "read_file"], *tried, *allowed)
    assert ran.denied == [words.execute] * len(tried)
    # A note of opencode's own about a repository that has commits.
    assert {path: data for path, data in tree(lived_in.project).items() if path != ".git/opencode"} == before
    log, test, read = results(lived_in)[-3:]
    assert ("first" in log, "tested" in test, INSIDE in read) == (True, True, True)
    matrix.note(sandbox.host, "shell:git log, anything else", "denied")
    matrix.note(sandbox.host, "allowed: shell:git log", "ran")


@FENCED
def test_any_command_is_run_when_the_rule_says_shell(
    lived_in: Stage, sandbox: Sandbox, words: Words, matrix: Matrix
) -> None:
    """The author asked for it by its name; other tools are not given with it, and nor is the key of the model."""
    command = words.run("env; echo yes > made")
    ran = run(sandbox, lived_in, ["shell"], command, words.put(lived_in.project / "other", "x"))
    assert (lived_in.project / "made").read_text(encoding="utf-8") == "yes\n"
    assert ran.denied == [words.write]
    seen = results(lived_in)[0]
    assert "HOME=" in seen
    # Claude Code gives its commands all that it has.
    keys = {value for name, value in lived_in.environment.items() if "KEY" in name}
    assert sandbox.host == "claude-code" or not any(key in seen for key in keys)
    matrix.note(sandbox.host, "allowed: shell", "ran")


@pytest.mark.parametrize("host", LIMITED, indirect=True)
def test_a_run_ends_when_its_turns_are_used_up(lived_in: Stage, sandbox: Sandbox, words: Words) -> None:
    """A model that never comes to an end costs money until somebody looks."""
    lived_in.model.follow(in_order(*[words.look(lived_in.project / "inside.txt")] * 5))
    ran = run_sandbox(sandbox, work_for(lived_in, "go on", "read_file", max_turns=3))
    assert len(lived_in.model.conversation) == len(ran.of(OutputKind.TURN)) == 3
    (error,) = ran.of(OutputKind.ERROR)
    assert "all the turns" in error.text
    assert ran.exit_code != 0
