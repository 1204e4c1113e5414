"""What a folder's repository could make git run: seen in its settings, before a run that may run git is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from harken.errors import UserError
from harken.git import VARIABLES
from harken.hosts.run_environment import git_variables
from harken.runs.tools import Tool, parse_tool

GIT: Final = (parse_tool("shell:git log"),)
SHELL: Final = (parse_tool("shell"),)
READING: Final = (parse_tool("read_file"), parse_tool("edit_file"))
HARMLESS: Final = (
    '[core]\n\tbare = false\n\tfsmonitor = false\n[remote "o"]\n\turl = https://example.org/x\n\tfetch = +x:y\n',
    '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n',
    '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = Ann\n',
    '[color "diff"]\n\tmeta = red\n[advice]\n\tdetachedHead = false\n',
    '[remote "o"]\n\turl = git@example.org:a/b.git\n\tpushurl = ssh://example.org/a\n[submodule "s"]\n\turl = ../s\n',
)
STARTING: Final = (
    '[diff "x"]\n\ttextconv = evil\n',
    '[diff "x"] TextConv=evil\n',
    "[diff]\n\texternal = evil\n",
    '[filter "x"]\n\tclean = evil\n',
    '[filter "lfs"]\n\tsmudge = "git-lfs smudge -- %f; evil"\n',
    "[include]\n\tpath = ../more\n",
    '[includeIf "gitdir:x"]\n\tpath = ../more\n',
    "[core]\n\tfsmonitor = evil\n",
    "[core]\n\tsshCommand = evil\n",
    "[core]\n\thooksPath = evil\n",
    "[core]\n\tgitProxy = evil\n",
    "[core]\n\teditor = evil\n",
    "[core]\n\tfsmonitor = \\\n  evil\n",
    '[man "x"]\n\tcmd = evil\n',
    "[help]\n\tbrowser = evil\n",
    '[remote "o"]\n\tuploadpack = evil\n',
    '[remote "o"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n',
    '[remote "o"]\n\turl = ext::sh -c evil\n',
    '[remote "o"]\n\turl = -oProxyCommand=evil\n',
    '[remote "o"]\n\turl = ssh://-oProxyCommand=evil/x\n',
    "[extensions]\n\tpartialClone = o\n",
    "[alias]\n\tx = !evil\n",
    "[credential]\n\thelper = evil\n",
    "[gpg]\n\tprogram = evil\n",
    "[pager]\n\tlog = evil\n",
    '[submodule "s"]\n\tupdate = !evil\n',
    "[uploadpack]\n\tpackObjectsHook = evil\n",
    "[something]\n\tnew = evil\n",
    "[broken\n",
)


def repository(folder: Path, settings: str) -> Path:
    """Make what git takes for a repository."""
    git("init", "-q", str(folder), cwd=folder.parent)
    (folder / ".git" / "config").write_text(settings, encoding="utf-8")
    return folder


def git(*words: str, cwd: Path) -> str:
    """Run git for the test itself."""
    program = shutil.which("git")
    assert program
    env = {"PATH": os.defpath, "HOME": "/", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "a"}
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    return subprocess.run([program, *who, *words], cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("settings", HARMLESS)
def test_settings_that_start_nothing_are_let_be(tmp_path: Path, settings: str) -> None:
    """What `git clone`, people and their tools write into nearly every repository."""
    folder = repository(tmp_path / "r", settings)
    (folder / "sub").mkdir()
    assert git_variables(folder / "sub", GIT) == VARIABLES


@pytest.mark.parametrize("tools", [GIT, SHELL], ids=["git", "shell"])
@pytest.mark.parametrize("settings", STARTING)
def test_settings_that_could_start_a_program_stop_a_run_with_git(
    tmp_path: Path, settings: str, tools: tuple[Tool, ...]
) -> None:
    """Only those that are known to start nothing are let be: git has too many that do, and gets more."""
    folder = repository(tmp_path / "r", settings)
    (folder / "sub").mkdir()
    for place in (folder, folder / "sub"):
        with pytest.raises(UserError, match=r"Git could run programs .* in .*\.git/config"):
            git_variables(place, tools)


def test_run_without_git_finds_no_repository(tmp_path: Path) -> None:
    """Hosts ask git for the state of the folder when they start, whatever the tools of the run."""
    marker = tmp_path / "marker"
    folder = repository(tmp_path / "r", f"[core]\n\tfsmonitor = touch {marker}\n")
    program = shutil.which("git")
    assert program
    env = {"PATH": os.defpath, "HOME": str(tmp_path), **git_variables(folder, READING)}
    done = subprocess.run([program, "status"], cwd=folder, env=env, check=False, capture_output=True, text=True)
    assert (done.returncode, marker.exists()) == (128, False)


def test_settings_that_lie_elsewhere_are_read_there(tmp_path: Path) -> None:
    """A second folder of a repository has only a file that says where the settings are."""
    real = repository(tmp_path / "real", "[diff]\n\texternal = evil\n") / ".git"
    (real / "worktrees" / "w").mkdir(parents=True)
    (real / "worktrees" / "w" / "commondir").write_text("../..\n", encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").write_text(f"gitdir: {real}/worktrees/w\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"real/\.git/config"):
        git_variables(work, GIT)


def test_submodules_are_looked_at_too(tmp_path: Path) -> None:
    """`git status` asks git in each of them, with the settings that are there."""
    inner = repository(tmp_path / "inner", "")
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=inner)
    outer = repository(tmp_path / "outer", "")
    git("submodule", "add", "-q", str(inner), "sub", cwd=outer)
    assert git_variables(outer, GIT) == VARIABLES
    config = outer / ".git" / "modules" / "sub" / "config"
    config.write_text(f"{config.read_text()}[core]\n\tfsmonitor = evil\n")
    with pytest.raises(UserError, match=r"modules/sub"):
        git_variables(outer, GIT)
    other = repository(tmp_path / "other", "[core]\n\tsshCommand = evil\n")
    (outer / "sub" / ".git").write_text(f"gitdir: {other / '.git'}\n")
    with pytest.raises(UserError, match=r"sshcommand in .*other"):
        git_variables(outer, GIT)


def test_git_starts_nothing_for_a_folder_that_looks_like_a_repository(tmp_path: Path) -> None:
    """A clone can bring such a folder along; and a monitor of files is started by whatever looks at the state."""
    git = shutil.which("git")
    assert git
    marker, project = tmp_path / "marker", tmp_path / "project"
    env = {"PATH": os.defpath, "HOME": str(tmp_path), **VARIABLES}
    subprocess.run([git, "init", "-q", str(project)], check=True, env=env)
    subprocess.run([git, "config", "core.fsmonitor", f"touch {marker}"], cwd=project, check=True, env=env)
    subprocess.run([git, "status"], cwd=project, check=True, env=env, capture_output=True)
    assert not marker.exists()
    bare = project / "bare"
    subprocess.run([git, "init", "-q", "--bare", str(bare)], check=True, env=env)
    done = subprocess.run([git, "log"], cwd=bare, check=False, env=env, capture_output=True, text=True)
    assert "safe.bareRepository" in done.stderr
