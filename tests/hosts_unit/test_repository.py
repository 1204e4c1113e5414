"""What a folder's repository could make git run: seen in its settings, before a run that may run git is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from harken.errors import UserError
from harken.hosts.repository import VARIABLES, check_repository
from harken.runs.tools import parse_tool

GIT_LOG: Final = (parse_tool("shell:git log"),)


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ('[core]\n\tbare = false\n[remote "o"]\n\turl = x\n', False),
        ('[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n', False),
        ('[diff "x"]\n\ttextconv = evil\n', True),
        ('[diff "x"] TextConv=evil\n', True),
        ("[diff]\n\texternal = evil\n", True),
        ('[filter "x"]\n\tclean = evil\n', True),
        ("[include]\n\tpath = ../more\n", True),
        ('[ includeIf "gitdir:x"]\n\tpath = ../more\n', True),
    ],
)
def test_settings_that_name_programs_stop_a_run(tmp_path: Path, settings: str, *, is_refused: bool) -> None:
    """`git log -p` alone starts what such settings name, outside of every fence."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git" / "config").write_text(settings, encoding="utf-8")
    check_repository(tmp_path, (parse_tool("read_file"), parse_tool("shell")))
    if not is_refused:
        check_repository(tmp_path / "sub", GIT_LOG)
        return
    for folder in (tmp_path, tmp_path / "sub"):
        with pytest.raises(UserError, match="programs that the settings of the folder name"):
            check_repository(folder, GIT_LOG)


def test_settings_that_lie_elsewhere_are_read_there(tmp_path: Path) -> None:
    """A second folder of a repository has only a file that says where the settings are."""
    real = tmp_path / "real" / ".git"
    (real / "worktrees" / "w").mkdir(parents=True)
    (real / "worktrees" / "w" / "commondir").write_text("../..\n", encoding="utf-8")
    (real / "config").write_text("[diff]\n\texternal = evil\n", encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").write_text(f"gitdir: {real}/worktrees/w\n", encoding="utf-8")
    with pytest.raises(UserError, match="real"):
        check_repository(work, GIT_LOG)


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
