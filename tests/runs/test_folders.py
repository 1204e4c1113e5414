"""What a run does not change is as it was when it is over, whatever its host let through, and the rest is told.

The host is pretended; what it does to its folder it really does, as a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import pytest

from harken.automation import ActionId, ChangeKind, FileChange, FolderChanges, Run, RunId, RunState
from harken.clock import SystemClock
from harken.git import file_starts_nothing
from harken.hosts.run_environment import held_paths
from harken.model import MessageId
from harken.runs.folders import RunFolders
from harken.runs.snapshot import look_through, opened_top
from tests.runs.rig import Rig, StandIn, places, running
from tests.runs.test_runner import appeared, mode_of

ROOT: Final = Path(__file__).parents[2]
EDITING: Final = ("read_file", "edit_file")
HOSTILE: Final = "[core]\n\tfsmonitor = touch /tmp/ran\n"


@dataclass(frozen=True)
class Project:
    """A folder with a repository, a submodule and instructions, and a place for scripts outside of it."""

    folder: Path
    outside: Path

    def script(self, text: str) -> str:
        """Return the word that lets the pretended host execute something in the folder."""
        path = self.outside / "script.py"
        path.write_text(f"import os, shutil, pathlib\nfrom pathlib import Path\n{text}", encoding="utf-8")
        return f"script={path}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A clone with a submodule, as a run finds it."""
    folder = tmp_path / "project"
    for path, text in {
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/config": "[core]\n\tbare = false\n",
        ".git/hooks/pre-commit.sample": "#!/bin/sh\n",
        ".git/modules/sub/HEAD": "ref: refs/heads/main\n",
        ".git/modules/sub/config": "[core]\n\tworktree = ../../../sub\n",
        ".git/modules/sub/objects/aa/bb": "object",
        ".git/objects/aa/bb": "object",
        ".git/index": "index",
        "sub/.git": "gitdir: ../.git/modules/sub\n",
        "sub/code.py": "x = 1\n",
        "AGENTS.md": "Be kind.\n",
        "docs/CLAUDE.md": "Be brief.\n",
        ".claude/settings.json": "{}\n",
        "src/main.py": "one\ntwo\nthree\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    (folder / ".husky").mkdir()
    (folder / ".husky" / "pre-commit").write_text("npm test\n", encoding="utf-8")
    (folder / ".husky" / "pre-commit").chmod(0o755)
    outside = tmp_path / "outside"
    outside.mkdir()
    return Project(folder, outside)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return everything in a folder: what it is, may do, and holds."""
    found = dict[str, tuple[int, bytes]]()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, held)
    return found


async def played(rig: Rig, project: Project, text: str, tools: tuple[str, ...] = EDITING) -> tuple[Run, FolderChanges]:
    """Let a run do something in the folder; return how it ended, and what became of the folder."""
    run = await rig.ended(await rig.ask(f"{project.script(text)} answer=fixed", workdir=project.folder, tools=tools))
    changes = await rig.runner.changes(run.id)
    assert changes is not None
    return run, changes


def by_path(changes: FolderChanges) -> dict[str, FileChange]:
    """Return the changes by path."""
    return {each.path: each for each in changes.files}


PLANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a repository that is new": "os.makedirs('lib/.git/hooks'); Path('lib/.git/config').write_text('evil')",
        "a submodule that leads elsewhere": "Path('sub/.git').write_text('gitdir: ../evil')",
        "another spelling": "os.makedirs('src/.GIT'); Path('src/.GIT/config').write_text('evil')",
        "settings of the repository": "Path('.git/config').write_text('evil')",
        "settings of a submodule": "Path('.git/modules/sub/config').write_text('evil')",
        "a hook": "Path('.git/hooks/pre-commit').write_text('evil')",
        "attributes": "os.makedirs('.git/info'); Path('.git/info/attributes').write_text('evil')",
        "instructions in a deep folder": "os.makedirs('a/b/c/d'); Path('a/b/c/d/AGENTS.md').write_text('evil')",
        "instructions that were there": "Path('AGENTS.md').write_text('evil')",
        "instructions that are gone": "os.remove('docs/CLAUDE.md')",
        "instructions whose folder is gone": "shutil.rmtree('docs')",
        "instructions that are a link": "os.remove('AGENTS.md'); os.symlink('/etc/passwd', 'AGENTS.md')",
        "instructions that are a folder": "os.remove('AGENTS.md'); os.makedirs('AGENTS.md/x')",
        "a link to somewhere": "os.symlink('/etc', '.vscode')",
        "settings of an agent": "Path('.claude/hooks').write_text('evil')",
        "settings as a link": "shutil.rmtree('.claude'); os.symlink('/etc', '.claude')",
        "a program that may not be run any more": "os.chmod('.husky/pre-commit', 0o644)",
        "settings that nobody may read": "os.chmod('.claude', 0)",
        "variables": "Path('.env').write_text('OPENAI_BASE_URL=http://evil')",
        "a pipe": "os.mkfifo('.envrc')",
        "a name that is not UTF-8": "os.makedirs(b'\\xff/.git'); open(b'\\xff/.git/config', 'w').write('evil')",
    }
)

LEFT: Final = ("lib", "a", "a/b", "a/b/c", "a/b/c/d", "\udcff")  # empty folders harm nobody


@pytest.mark.parametrize("what", PLANTED)
async def test_what_is_held_is_as_it_was(tmp_path: Path, project: Project, what: str) -> None:
    """Whatever a run plants there is executed or read later, by others and as the person."""
    before = contents(project.folder)
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, f"{PLANTED[what]}; Path('made.txt').write_text('made')")
        told = [line.kind for line in rig.runner.outputs.read(run.id, 0).lines]
    after = contents(project.folder)
    assert after.pop("made.txt")[1] == b"made"
    assert {path: each for path, each in after.items() if path not in LEFT} == before
    assert (run.state, run.answer) == (RunState.FAILED, "fixed")
    assert run.reason.startswith("it changed what a run may not change, and that was put back: ")
    assert changes.undone
    assert not changes.kept
    assert by_path(changes)["made.txt"].diff == "@@ -0,0 +1,1 @@\n+made\n\\ No newline at end of file"
    assert told.count("undone") == len(changes.undone)
    assert not any(places(tmp_path).outputs.glob("*-before"))


async def test_what_was_planted_can_be_looked_at(tmp_path: Path, project: Project) -> None:
    """It is evidence, and it may have been the person's own doing meanwhile."""
    text = f"os.makedirs('lib/.git'); Path('lib/.git/config').write_text({HOSTILE!r})\n"
    text += "Path('AGENTS.md').write_text('evil')"
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, text)
    repository, instructions = by_path(changes)["lib/.git"], by_path(changes)["AGENTS.md"]
    aside = places(tmp_path).outputs / f"{run.id}-set-aside"
    assert (aside / repository.aside / "config").read_text(encoding="utf-8") == HOSTILE
    assert (aside / instructions.aside).read_text(encoding="utf-8") == "evil"
    assert Path(instructions.aside).parent == aside
    assert instructions.diff.splitlines()[1:] == ["-Be kind.", "+evil", "\\ No newline at end of file"]
    assert mode_of(aside) == 0o700
    assert "lib/.git" in run.reason


async def test_folder_that_became_a_link_leads_nothing_outside(tmp_path: Path, project: Project) -> None:
    """What is put back must not be written to where the run wanted it."""
    text = f"shutil.rmtree('docs'); os.symlink({str(project.outside)!r}, 'docs')"
    async with running(tmp_path) as rig:
        _, changes = await played(rig, project, text)
    assert (project.folder / "docs" / "CLAUDE.md").read_text(encoding="utf-8") == "Be brief.\n"
    assert not (project.folder / "docs").is_symlink()
    assert [path.name for path in project.outside.iterdir()] == ["script.py"]
    assert by_path(changes)["docs/CLAUDE.md"].is_undone


async def test_folder_that_is_another_one_by_now_is_not_touched(tmp_path: Path, project: Project) -> None:
    """Whoever exchanges the folder for a link must not have other files put back, or called unchanged."""
    (project.outside / "AGENTS.md").write_text("Of somebody else.", encoding="utf-8")
    text = f"os.rename({str(project.folder)!r}, {str(tmp_path / 'moved')!r})\n"
    text += f"os.symlink({str(project.outside)!r}, {str(project.folder)!r})"
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, text)
    assert run.state is RunState.FAILED
    assert "could not be looked at afterwards" in run.reason
    assert (changes.files, changes.is_known) == ((), False)
    assert (project.outside / "AGENTS.md").read_text(encoding="utf-8") == "Of somebody else."


async def test_end_of_a_link_is_held_as_the_link_is(tmp_path: Path, project: Project) -> None:
    """Many keep one text for all agents, and link the names that each of them looks for."""
    (project.folder / "docs" / "agents").write_text("Be kind.\n", encoding="utf-8")
    (project.folder / "GEMINI.md").symlink_to("docs/agents")
    async with running(tmp_path) as rig:
        _, changes = await played(rig, project, "Path('docs/agents').write_text('evil')")
    assert (project.folder / "docs" / "agents").read_text(encoding="utf-8") == "Be kind.\n"
    assert by_path(changes)["docs/agents"].is_undone


async def test_folder_that_git_would_take_for_a_repository_is_none(tmp_path: Path, project: Project) -> None:
    """Git needs no `.git`: whoever enters a folder with the right names has its settings."""
    text = (
        "for name in ('objects', 'refs'):\n    os.makedirs(f'bare/{name}'); Path(f'bare/{name}/x').write_text('')\n"
        f"Path('bare/HEAD').write_text('ref: refs/heads/main'); Path('bare/config').write_text({HOSTILE!r})"
    )
    async with running(tmp_path) as rig:
        _, changes = await played(rig, project, text)
    assert not (project.folder / "bare" / "config").exists()
    assert not (project.folder / "bare" / "HEAD").exists()
    assert by_path(changes)["bare/config"].is_undone


async def test_what_git_does_every_day_is_left_alone(tmp_path: Path, project: Project) -> None:
    """Objects, references and the index start nothing; undoing a commit would do harm."""
    text = (
        "Path('.git/HEAD').write_text('ref: x'); Path('.git/index').write_text('new'); os.makedirs('.git/refs/heads')\n"
        "Path('.git/refs/heads/main').write_text('0' * 40); Path('.git/objects/aa/cc').write_text('object')\n"
        "Path('.git/modules/sub/objects/aa/cc').write_text('object'); os.remove('.git/objects/aa/bb')"
    )
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, text, ("shell:git commit",))
    assert run.state is RunState.DONE
    assert changes.files == ()
    assert (project.folder / ".git" / "HEAD").read_text(encoding="utf-8") == "ref: x"


@pytest.mark.parametrize(
    ("tool", "setting", "is_kept"),
    [
        ("shell:git checkout", '[branch "x"]\\n\\tremote = origin\\n', True),
        ("shell:git checkout", "[core]\\n\\tfsmonitor = touch ran\\n", False),
        ("shell:git checkout", "[include]\\n\\tpath = ../evil\\n", False),
        ("edit_file", '[branch "x"]\\n\\tremote = origin\\n', False),
    ],
)
async def test_settings_that_git_itself_writes_stay_if_they_start_nothing(
    tmp_path: Path, project: Project, tool: str, setting: str, *, is_kept: bool
) -> None:
    """A rule that lets a run check out a branch lets git note where the branch comes from."""
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, f"open('.git/config', 'a').write('{setting}')", (tool,))
    assert (run.state is RunState.DONE) is is_kept
    assert [(each.path, each.is_undone) for each in changes.files] == [(".git/config", not is_kept)]
    assert ("[branch" in (project.folder / ".git/config").read_text(encoding="utf-8")) is is_kept


async def test_instructions_are_let_go_by_a_word(tmp_path: Path, project: Project) -> None:
    """Somebody has to write them; settings and repositories stay held."""
    text = "Path('AGENTS.md').write_text('new'); Path('sub/.git').write_text('gitdir: ../evil')"
    async with running(tmp_path) as rig:
        _, changes = await played(rig, project, text, (*EDITING, "edit_instructions"))
    assert (project.folder / "AGENTS.md").read_text(encoding="utf-8") == "new"
    assert by_path(changes)["AGENTS.md"].is_held is False
    assert [each.path for each in changes.undone] == ["sub/.git"]


async def test_what_a_shell_did_is_told_and_left(tmp_path: Path, project: Project) -> None:
    """The person has allowed any command; that it was this one they should know."""
    async with running(tmp_path, StandIn(has_shell=True)) as rig:
        run, changes = await played(rig, project, "Path('sub/.git').write_text('gitdir: ../evil')", ("shell",))
    assert (run.state, run.reason) == (RunState.DONE, "")
    assert [(each.path, each.is_held) for each in changes.kept] == [("sub/.git", True)]
    assert (project.folder / "sub" / ".git").read_text(encoding="utf-8") == "gitdir: ../evil"


async def test_run_that_only_looks_has_no_snapshot(tmp_path: Path, project: Project) -> None:
    """It costs time, and says nothing."""
    async with running(tmp_path) as rig:
        run = await rig.ended(await rig.ask("answer=x", workdir=project.folder, tools=("read_file",)))
        assert await rig.runner.changes(run.id) is None


async def test_changes_are_named_with_what_is_different(tmp_path: Path, project: Project) -> None:
    """The record of a run says what it did, not only what it said."""
    text = (
        "Path('src/main.py').write_text('one\\n2\\nthree\\n'); os.remove('sub/code.py'); os.makedirs('new/deep')\n"
        "Path('new/deep/x.txt').write_text('x\\n'); Path('picture').write_bytes(b'\\x89PNG\\0')\n"
        "os.symlink('x', 'link')\n"
        "Path('huge').write_bytes(b'x' * 3_000_000); open(b'\\xfe\\xff', 'w').write('x\\n'); os.utime('AGENTS.md')\n"
        "os.makedirs('node_modules/a'); Path('node_modules/a/index.js').write_text('x'); os.mkfifo('pipe')"
    )
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, text)
    assert (run.state, run.reason, changes.note, changes.more) == (RunState.DONE, "", "", 0)
    found = {path: (each.kind, each.note) for path, each in by_path(changes).items()}
    assert found == {
        "\\xfe\\xff": (ChangeKind.ADDED, ""),
        "huge": (ChangeKind.ADDED, "too large for a diff"),
        "link": (ChangeKind.ADDED, "a link to x"),
        "new/deep/x.txt": (ChangeKind.ADDED, ""),
        "node_modules/a/index.js": (ChangeKind.ADDED, ""),
        "picture": (ChangeKind.ADDED, "not text"),
        "pipe": (ChangeKind.ADDED, "neither file nor folder"),
        "src/main.py": (ChangeKind.CHANGED, ""),
        "sub/code.py": (ChangeKind.REMOVED, ""),
    }
    assert by_path(changes)["src/main.py"].diff == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    assert by_path(changes)["sub/code.py"].diff == "@@ -1,1 +0,0 @@\n-x = 1"


async def test_more_changes_than_are_named_are_counted(tmp_path: Path, project: Project) -> None:
    """A record has an end; what is beyond it is not hidden."""
    text = "os.makedirs('many')\nfor n in range(500): Path(f'many/{n:03}').write_text('x\\n' * 400)"
    async with running(tmp_path) as rig:
        _, changes = await played(rig, project, text)
    assert (len(changes.files), changes.more) == (300, 200)
    assert sum(len(each.diff) for each in changes.files) <= 300_000
    assert changes.files[-1].note == "not shown: the diffs of this run are too long"


@pytest.mark.parametrize("how", ["abort", "timeout", "failure", "stop"])
async def test_however_a_run_ends_what_is_held_is_put_back(tmp_path: Path, project: Project, how: str) -> None:
    """A run that is ended in the middle has done what it had done until then."""
    made = project.outside / "made"
    text = f"Path('AGENTS.md').write_text('evil'); Path({str(made)!r}).write_text('x')"
    end = {"failure": "exit=3"}.get(how, "hang")
    async with running(tmp_path) as rig:
        seconds = 3.0 if how == "timeout" else 60.0
        action = await rig.ask(f"{project.script(text)} {end}", workdir=project.folder, tools=EDITING, seconds=seconds)
        await appeared(made)
        run = await rig.running(action)
        if how == "abort":
            await rig.runner.abort(run, "you")
        if how != "stop":
            run = await rig.ended(action)
    if how == "stop":
        async with running(tmp_path) as rig:
            run = await rig.ended(action)
    assert (project.folder / "AGENTS.md").read_text(encoding="utf-8") == "Be kind.\n"
    assert "AGENTS.md" in run.reason
    assert (
        run.state
        is {
            "abort": RunState.ABORTED,
            "timeout": RunState.TIMED_OUT,
            "failure": RunState.FAILED,
            "stop": RunState.INTERRUPTED,
        }[how]
    )


DAEMON: Final = """\
import sys
from pathlib import Path
import anyio
from tests.runs.rig import running

async def main():
    async with running(Path(sys.argv[1])) as rig:
        await rig.ask(sys.argv[2], workdir=Path(sys.argv[3]), tools=("edit_file",))
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_what_is_held_is_put_back_after_the_daemon_was_killed(tmp_path: Path, project: Project) -> None:
    """Nobody was there to look: whoever starts next is."""
    made = project.outside / "made"
    text = f"os.makedirs('lib/.git'); Path('AGENTS.md').write_text('evil'); Path({str(made)!r}).write_text('x')"
    command = [sys.executable, "-c", DAEMON, str(tmp_path), f"{project.script(text)} hang", str(project.folder)]
    async with await anyio.open_process(command, cwd=ROOT) as daemon:
        try:
            await appeared(made)
        finally:
            daemon.kill()
    assert (project.folder / "AGENTS.md").read_text(encoding="utf-8") == "evil"
    async with running(tmp_path) as rig:
        (action,) = await rig.store.actions.list()
        run = await rig.ended(action)
        changes = await rig.runner.changes(run.id)
    assert run.state is RunState.INTERRUPTED
    assert (project.folder / "AGENTS.md").read_text(encoding="utf-8") == "Be kind.\n"
    assert not (project.folder / "lib" / ".git").exists()
    assert changes is not None
    assert {each.path for each in changes.undone} == {"AGENTS.md", "lib/.git"}


def edit_run(folder: Path) -> Run:
    """Return a run that may edit a folder."""
    return Run(
        id=RunId("r-1"),
        action=ActionId("a-1"),
        rule="",
        message=MessageId("m-1"),
        agent="stand-in",
        workdir=str(folder),
        tools=EDITING,
        state=RunState.RUNNING,
        started_at=SystemClock().now(),
    )


async def test_comparison_that_was_cut_short_is_told_whole(tmp_path: Path, project: Project) -> None:
    """What an earlier daemon had put back, before it was killed, belongs to the record too."""
    folders, run = RunFolders(tmp_path / "runs", file_starts_nothing, held_paths()), edit_run(project.folder)
    folders.before(run)
    shutil.copytree(tmp_path / "runs" / "r-1-before", tmp_path / "kept")
    (project.folder / "AGENTS.md").write_text("evil", encoding="utf-8")
    folders.after(run)
    shutil.copytree(tmp_path / "kept", tmp_path / "runs" / "r-1-before")
    (project.folder / "sub" / ".git").write_text("evil", encoding="utf-8")
    changes = folders.after(run)
    assert changes is not None
    assert {each.path for each in changes.undone} == {"AGENTS.md", "sub/.git"}
    assert len({each.aside for each in changes.undone}) == 2
    assert folders.after(run) == changes


# Puts back what a run has changed, and is killed when it gives the first file its name.
KILLED = """
import os, signal, sys
from pathlib import Path
from harken.hosts.run_environment import held_paths
from harken.git import file_starts_nothing
from harken.runs.folders import RunFolders
from harken.runs.snapshot import opened_top
from harken.runs.snapshot import look_through
from tests.runs.test_folders import edit_run

def stop(event, args):
    if event == "os.rename" and str(args[0]).startswith(".harken-"):
        os.kill(os.getpid(), signal.SIGKILL)

folders, run = RunFolders(Path(sys.argv[1]), file_starts_nothing, held_paths()), edit_run(Path(sys.argv[2]))
sys.addaudithook(stop)
folders.after(run)
"""


def test_daemon_that_is_killed_while_it_puts_back_leaves_nothing_of_its_own(tmp_path: Path, project: Project) -> None:
    """A file of Harken's in the person's folder would be told as the run's, and stay."""
    folders, run = RunFolders(tmp_path / "runs", file_starts_nothing, held_paths()), edit_run(project.folder)
    before = contents(project.folder)
    folders.before(run)
    (project.folder / "AGENTS.md").write_text("evil", encoding="utf-8")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "runs"), str(project.folder)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert contents(project.folder) != before
    changes = folders.after(run)
    assert contents(project.folder) == before
    assert changes is not None
    assert [(each.path, each.is_undone) for each in changes.files] == [("AGENTS.md", True)]


def test_folder_in_the_way_of_what_is_put_back_keeps_nothing_from_it(tmp_path: Path, project: Project) -> None:
    """A run may know under which name a file is written before it gets its own."""
    folders, run = RunFolders(tmp_path / "runs", file_starts_nothing, held_paths()), edit_run(project.folder)
    folders.before(run)
    (project.folder / "AGENTS.md").write_text("evil", encoding="utf-8")
    (project.folder / f".harken-{hashlib.sha256(b'AGENTS.md').hexdigest()[:16]}").mkdir()
    folders.after(run)
    assert (project.folder / "AGENTS.md").read_text(encoding="utf-8") == "Be kind.\n"


def test_what_is_set_aside_is_no_repository(tmp_path: Path, project: Project) -> None:
    """A person who goes there to look has a prompt that asks git, and git would start what its settings name."""
    folders, run = RunFolders(tmp_path / "runs", file_starts_nothing, held_paths()), edit_run(project.folder)
    folders.before(run)
    for planted in ("lib/.git", ".claude/deep/.git", ".claude/bare"):
        for part in ("objects", "refs"):
            (project.folder / planted / part).mkdir(parents=True)
        (project.folder / planted / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
        (project.folder / planted / "config").write_text(HOSTILE, encoding="utf-8")
    changes = folders.after(run)
    assert changes is not None
    looked_at = [path.parent for path in folders.aside(run.id).rglob("config")]
    assert len(looked_at) == 3
    ask = ("git", "rev-parse", "--git-dir")
    for folder in (*looked_at, *(each.parent for each in looked_at)):
        assert subprocess.run(ask, cwd=folder, capture_output=True, check=False).returncode != 0, folder


def test_folders_that_programs_fill_are_looked_at_last(project: Project) -> None:
    """A folder has often more files than are looked at, nearly all of them in these: what is held is in the others."""
    for number in range(20):
        (project.folder / "node_modules" / f"package{number}" / "lib").mkdir(parents=True)
    deep = project.folder / "src" / "a" / "b" / "c" / "d"
    deep.mkdir(parents=True)
    (deep / "AGENTS.md").touch()
    with opened_top(project.folder) as root:
        usual = len(look_through(root, ("AGENTS.md",)).entries)
        tree = look_through(root, ("AGENTS.md",), most=usual - 30)
    assert tree.is_cut
    assert tree.entries[b"src/a/b/c/d/AGENTS.md"].is_held


async def test_worktree_that_somebody_made_meanwhile_stays(tmp_path: Path, project: Project) -> None:
    """People begin tasks while a run works; no folder of the run's own leads to a new worktree."""
    text = (
        "os.makedirs('.git/worktrees/task'); Path('.git/worktrees/task/gitdir').write_text('/elsewhere/.git')\n"
        "Path('.git/worktrees/task/commondir').write_text('../..')"
    )
    async with running(tmp_path) as rig:
        run, changes = await played(rig, project, text)
        changed = await played(rig, project, "Path('.git/worktrees/task/commondir').write_text('evil')")
    assert (run.state, changes.files) == (RunState.DONE, ())
    assert [each.path for each in changed[1].undone] == [".git/worktrees/task/commondir"]


async def test_run_does_not_start_where_its_folder_cannot_be_kept(tmp_path: Path, project: Project) -> None:
    """What could not be put back afterwards must not be at stake."""
    made = project.outside / "made"
    places(tmp_path).outputs.write_text("in the way", encoding="utf-8")
    async with running(tmp_path) as rig:
        action = await rig.ask(project.script(f"Path({str(made)!r}).touch()"), workdir=project.folder, tools=EDITING)
        run = await rig.ended(action)
    assert run.state is RunState.FAILED
    assert "could not be saved" in run.reason
    assert not made.exists()
