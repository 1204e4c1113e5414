"""Runs in a folder that somebody else filled: a repository that wants to be more than it is, on every real host.

Nothing in it may be executed, no key may leave through it, and nothing may be left in it that is executed later.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from harken.errors import UserError
from harken.hosts.trial_recipe import MODEL
from harken.runs.sandbox import Sandbox, ToolServer
from harken.trial.exchange import ModelAnswer, in_order
from tests.hosts.matrix import Matrix
from tests.hosts.sandboxes import ANSWER, OUTSIDE, ask, commit, put_files, results, run_sandbox, work_for
from tests.hosts.stage import Stage
from tests.hosts.words import EDITORS, WORDS

_SERVER: Final = Path(__file__).parent / "toolserver.py"
_PATCHING: Final = "gpt-5.5"  # a model for which Codex has a tool that changes files
# How the shell of a host is called, and where it can be told to run.
_COMMANDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"gemini-cli": ("run_shell_command", "dir_path"), "opencode": ("bash", "workdir")}
)


def _put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _git(folder: Path, *arguments: str) -> None:
    git = shutil.which("git")
    assert git
    subprocess.run([git, *arguments], cwd=folder, check=True)


@pytest.fixture
def stage(bare_stage: Stage) -> Stage:
    """The host with files inside and outside its folder."""
    put_files(bare_stage)
    return bare_stage


def test_folder_executes_nothing_and_its_variables_are_not_taken(
    stage: Stage, sandbox: Sandbox, matrix: Matrix
) -> None:
    """Runtimes and git start programs that files in the folder name, unless they are told not to."""
    evil = _put(stage.folder / "evil.sh", f"#!/bin/sh\ntouch {stage.folder}/ran\n")
    evil.chmod(0o755)
    _git(stage.project, "config", "core.fsmonitor", str(evil))
    _put(stage.project / "evil.js", f"require('fs').writeFileSync('{stage.folder}/ran', '')")
    _put(stage.project / "bunfig.toml", 'preload = ["./evil.js"]\n')
    _put(stage.project / ".npmrc", "node-options=--require=./evil.js\n")
    for name in (".env", ".env.local", ".qwen/.env"):
        _put(stage.project / name, "EVIL=x\nHTTPS_PROXY=http://127.0.0.1:9\nNODE_OPTIONS=--require=./evil.js\n")
    seen = stage.folder / "environment.json"
    program = (
        f"import json, os, runpy, sys; json.dump(dict(os.environ), open({str(seen)!r}, 'w'));"
        f"sys.argv = ['x', {str(stage.folder)!r}, 'lab']; runpy.run_path({str(_SERVER)!r}, run_name='__main__')"
    )
    server = ToolServer(name="lab", command=(sys.executable, "-I", "-c", program))
    stage.model.follow(in_order(then=ANSWER))
    ran = run_sandbox(sandbox, replace(work_for(stage, "go", "lab/note"), servers={"lab": server}))
    environment = json.loads(seen.read_text(encoding="utf-8"))
    assert ran.answer == ANSWER
    assert not (stage.folder / "ran").exists()
    assert environment.keys().isdisjoint({"EVIL", "HTTPS_PROXY", "NODE_OPTIONS"})
    keys = {value for name, value in stage.environment.items() if "KEY" in name}
    assert keys.isdisjoint(environment.values())
    matrix.note(sandbox.host, "programs and variables of the folder", "kept out")
    matrix.note(sandbox.host, "key in the environment of a server", "kept out")


def test_denied_tool_is_told_whatever_it_is_called(stage: Stage, sandbox: Sandbox) -> None:
    """The record must not depend on a name that the model chose so that it would be overlooked."""
    names = ("x\ny", "sh ell", "a" * 3_000, 'Bash" not', "__proto__", "constructor")
    ran = ask(sandbox, stage, ["lab/note"], *(ModelAnswer.literal(name, {"command": "touch made"}) for name in names))
    assert len(ran.denied) == len(names)
    assert ran.answer == ANSWER


@pytest.mark.parametrize("host", EDITORS, indirect=True)
def test_instructions_are_changed_where_the_rule_says_so(stage: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """Somebody has to write them; git and settings stay held."""
    file = stage.user / ".codex" / "config.toml"
    if file.exists():
        file.write_text(file.read_text(encoding="utf-8").replace(MODEL, _PATCHING), encoding="utf-8")
    for name in ("docs", "sub"):
        (stage.project / name).mkdir()
    folder = Path() if sandbox.host == "codex" else stage.project
    paths = ("AGENTS.md", "docs/CLAUDE.md", "sub/.git")
    calls = [WORDS[sandbox.host].put(folder / path, "evil") for path in paths]
    ran = ask(sandbox, stage, ["edit_file", "edit_instructions"], *calls)
    assert (stage.project / "AGENTS.md").read_text(encoding="utf-8").strip() == "evil"
    assert (stage.project / "docs" / "CLAUDE.md").exists()
    assert not (stage.project / "sub" / ".git").exists()
    assert len(ran.denied) == 1
    matrix.note(sandbox.host, "allowed: edit_instructions", "ran")


@pytest.mark.parametrize("host", tuple(_COMMANDS), indirect=True)
def test_commands_run_in_the_folder_itself(stage: Stage, sandbox: Sandbox) -> None:
    """A clone can bring a folder that looks like a repository, with settings that name programs."""
    _git(stage.project, "init", "-q", "--bare", "inner")
    commit(stage, "first")
    tool, place = _COMMANDS[sandbox.host]
    more = {} if sandbox.host == "gemini-cli" else {"description": "look"}
    calls = [ModelAnswer.literal(tool, {"command": "git log", place: where, **more}) for where in ("inner", ".")]
    calls.append(ModelAnswer.literal(tool, {"command": "git log --output=made", **more}))
    ran = ask(sandbox, stage, ["shell:git log"], *calls)
    assert ran.denied == [tool, tool]
    assert "first" in results(stage)[1]
    assert not (stage.project / "made").exists()


@pytest.mark.parametrize("host", ["claude-code", "copilot-cli", "gemini-cli", "opencode"], indirect=True)
def test_repository_whose_settings_name_programs_is_refused(stage: Stage, sandbox: Sandbox, matrix: Matrix) -> None:
    """`git log -p` would start them."""
    _git(stage.project, "config", "diff.evil.textconv", "touch made; cat")
    with pytest.raises(UserError, match="programs that the settings of the folder name"):
        ask(sandbox, stage, ["shell:git log"])
    matrix.note(sandbox.host, "shell:git log, programs of the repository", "refused")


@pytest.mark.parametrize("host", ["gemini-cli"], indirect=True)
def test_what_gemini_reads_by_itself_stays_in_the_folder(stage: Stage, sandbox: Sandbox) -> None:
    """With a server the folder is trusted: then it reads instructions wherever they lead, and variables."""
    link = stage.project / "GEMINI.md"
    link.symlink_to(stage.folder / "outside.txt")
    with pytest.raises(UserError, match=r"GEMINI\.md"):
        ask(sandbox, stage, ["lab/note"])
    ask(sandbox, stage, ["read_file"])
    assert OUTSIDE not in json.dumps([dict(asked.body) for asked in stage.model.requests])
    link.unlink()
    _put(stage.project / ".gemini" / ".env", "HTTPS_PROXY=http://127.0.0.1:9\n")
    with pytest.raises(UserError, match=r"\.env"):
        ask(sandbox, stage, ["lab/note"])
