"""`harken uninstall` with tasks that are not done: their folders are as before; what is not as it was left is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harken.config.home import is_locked
from tests.cli.rig import Json, Rig
from tests.cli.test_connect import CONFIG, user_of
from tests.workspaces.repos import PERSON, git, repository
from tests.workspaces.test_seeding import tree

NOT_DONE = 1
TOO_LONG = "x" * 300
FOREIGN = "/proc/1/root/x"  # a link that only its owner may follow
TASKS = {"one": "codex", "two": "codex", "three": "gemini-cli"}


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Rig]:
    """A person with settings of their own, and git."""
    user = tmp_path / "user"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex/config.toml").write_bytes(CONFIG)
    rig = Rig(tmp_path / "home", {**PERSON, "HOME": str(user), "PATH": os.defpath, "XDG_CONFIG_HOME": ""})
    with rig.serving():
        yield rig
    assert rig.run("down").code == 0


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a rule of its own about what git leaves alone."""
    made = repository(tmp_path / "app")
    (made / ".git" / "info" / "exclude").write_bytes(b"*.log")
    return made


def seeded(rig: Rig, repo: Path, *names: str) -> dict[str, Path]:
    """Make some tasks, each with its agent, in worktrees of a repository; return their folders."""
    made = {
        name: rig.json("task", "new", name, "--id", name, "--dir", str(repo), "--agent", TASKS[name]) for name in names
    }
    assert all(task["seeded"] for task in made.values())
    return {name: Path(task["dir"]) for name, task in made.items()}


def untracked(folder: Path) -> list[str]:
    """What is in a work tree besides the files of the repository, also what git leaves alone."""
    lines = git(folder, "status", "--porcelain", "--ignored", "--untracked-files=all").splitlines()
    return [line[3:] for line in lines]


def test_what_was_written_for_tasks_goes_to_the_byte_and_their_work_stays(person: Rig, repo: Path) -> None:
    """Agents in a worktree must not call a program that is gone, and nobody's branch is thrown away for that."""
    before = tree(user_of(person), repo)
    folders = seeded(person, repo, *TASKS)
    (folders["one"] / "work.txt").write_text("a week of it")
    said = person.json("uninstall", "--yes")
    assert (said["state"], said["problems"], said["hosts"]) == ("uninstalled", [], [])
    assert tree(user_of(person), repo) == before
    assert [untracked(folders[name]) for name in TASKS] == [["work.txt"], [], []]
    assert {each["task"]: each["host"] for each in said["seeds"]} == TASKS
    assert {each["state"] for each in said["seeds"]} == {"unseeded"}
    files = [Path(name) for each in said["seeds"] for name in each["files"]]
    assert folders["one"] / ".codex" / "config.toml" in files
    assert repo / ".codex" / "hooks.json" in files
    assert not [path for path in files if path.exists()]
    assert git(repo, "branch", "--list", "task/*", "--format=%(refname:short)").split() == [
        *("task/one", "task/three", "task/two")
    ]
    again = person.json("uninstall", "--yes")
    assert (again["state"], again["seeds"]) == ("uninstalled", [])


def test_a_dry_run_names_every_file_and_changes_none(person: Rig, repo: Path) -> None:
    """One wants to see it first, and what is said then is what happens."""
    folders = seeded(person, repo, "one", "two")
    config = folders["one"] / ".codex" / "config.toml"
    config.write_bytes(config.read_bytes() + b'\n[tui]\ntheme = "mine"\n')
    places = [user_of(person), repo, *folders.values()]
    after = tree(*places)
    shown = person.ok("uninstall", "--dry-run").splitlines()
    assert f"  take back  {config}: without Harken's entries (Codex, task one)" in shown
    assert f"  take back  {folders['two'] / '.codex' / 'config.toml'}: removed (Codex, task two)" in shown
    assert [line for line in shown if "disconnect" in line] == []
    planned = person.json("uninstall", "--dry-run")
    assert planned["state"] == "planned"
    assert {each["state"] for each in planned["seeds"]} == {"planned"}
    assert tree(*places) == after
    done = person.json("uninstall", "--yes")
    assert _named(done, "kept") == _named(planned, "kept") == {str(config)}
    # Of what is in no work tree, only the plan speaks.
    inside = {name for name in _named(planned, "files") if any(map(Path(name).is_relative_to, places[1:]))}
    assert _named(done, "files") == inside >= {str(folders[name] / ".codex" / "hooks.json") for name in folders}


def _named(said: Json, what: str) -> set[str]:
    return {name for each in said["seeds"] for name in each[what]}


def test_what_a_person_wrote_since_is_kept_and_named(person: Rig, repo: Path) -> None:
    """Settings that were made while the task ran are theirs; that is no reason to keep the rest."""
    folders = seeded(person, repo, "one")
    config = folders["one"] / ".codex" / "config.toml"
    config.write_bytes(config.read_bytes() + b'\n[tui]\ntheme = "mine"\n')
    shown = person.ok("uninstall", "--yes", "--delete-data")
    assert f"{config} was written since: only Harken's entries are gone." in shown.splitlines()
    assert config.read_bytes().strip() == b'[tui]\ntheme = "mine"'
    assert untracked(folders["one"]) == [".codex/config.toml"]
    assert not person.home.exists()


def test_what_cannot_be_taken_back_is_named_and_keeps_the_data(person: Rig, repo: Path) -> None:
    """What is needed to try again is in the home, and the other tasks do not wait for it."""
    folders = seeded(person, repo, "one", "three")
    config = folders["one"] / ".codex" / "config.toml"
    config.write_bytes(config.read_bytes() + b"\n[broken\n")
    done = person.run("uninstall", "--yes", "--delete-data", "--json")
    said = json.loads(done.out)
    assert (done.code, said["state"]) == (NOT_DONE, "failed")
    assert [each["task"] for each in said["seeds"] if each["state"] == "failed"] == ["one"]
    assert [problem for problem in said["problems"] if f"Codex is still connected in {folders['one']}" in problem]
    assert (person.home / "harken.db").exists()
    assert untracked(folders["three"]) == []


def test_a_worktree_that_is_gone_is_no_trouble(person: Rig, repo: Path) -> None:
    """People remove folders; what stands elsewhere for their tasks goes all the same."""
    before = tree(user_of(person), repo)
    folders = seeded(person, repo, "one", "three")
    for name, folder in folders.items():
        git(repo, "worktree", "remove", "--force", str(folder))
        git(repo, "branch", "-D", f"task/{name}")
    said = person.json("uninstall", "--yes")
    assert (said["state"], said["problems"]) == ("uninstalled", [])
    assert tree(user_of(person), repo) == before
    assert not any(folder.exists() for folder in folders.values())


def test_a_record_that_cannot_be_read_is_named_and_the_agents_are_disconnected(person: Rig, repo: Path) -> None:
    """One damaged file must not keep Harken in every folder."""
    folders = seeded(person, repo, "one", "three")
    (person.home / "seeded" / "one.codex.json").write_text("{")
    done = person.run("uninstall", "--yes")
    assert done.code == NOT_DONE
    assert "one.codex.json is damaged" in done.err
    assert not (folders["one"] / ".codex").exists()
    assert not (folders["three"] / ".gemini").exists()


def uninstalled(rig: Rig, code: int) -> Json:
    """Uninstall with everything, and return what was said."""
    done = rig.run("uninstall", "--yes", "--delete-data", "--json")
    assert done.code == code, done.err
    said: Json = json.loads(done.out)
    return said


def failed(said: Json) -> list[str]:
    """The tasks of which something could not be taken back."""
    return [each["task"] for each in said["seeds"] if each["state"] == "failed"]


def is_refused(path: str) -> bool:
    """Whether the system does not let us look at a path."""
    try:
        Path(path).stat()
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def test_a_host_that_this_version_does_not_know_stops_no_other(person: Rig, repo: Path) -> None:
    """A newer Harken may have seeded it; the folders of the other tasks are clean all the same."""
    folders = seeded(person, repo, "one", "three")
    kept = person.home / "seeded"
    old = json.loads((kept / "one.codex.json").read_text())
    (kept / "two.nohost.json").write_text(json.dumps(old | {"task": "two", "host": "nohost"}))
    assert "This Harken has no host 'nohost'." in person.run("uninstall", "--dry-run").err
    said = uninstalled(person, NOT_DONE)
    assert failed(said) == ["two"]
    assert str(kept / "two.nohost.json") in said["problems"][0]
    assert [untracked(folder) for folder in folders.values()] == [[], []]
    assert [path.name for path in kept.iterdir()] == ["two.nohost.json"]


@pytest.mark.parametrize("target", ["three", TOO_LONG, FOREIGN], ids=["loop", "too-long", "refused"])
def test_a_folder_that_cannot_be_looked_at_is_named_and_the_rest_is_taken_back(
    person: Rig, repo: Path, target: str
) -> None:
    """One broken link must not leave a daemon running and every other folder connected."""
    if target == FOREIGN and not is_refused(FOREIGN):
        pytest.skip("this system lets us look everywhere")
    folders = seeded(person, repo, "one", "three")
    shutil.rmtree(folders["three"])
    folders["three"].symlink_to(target)
    planned = person.run("uninstall", "--dry-run")
    assert planned.code == 0
    assert str(folders["one"] / "AGENTS.md") in planned.out
    assert f"Gemini CLI is still connected in {folders['three']}: Cannot " in planned.err
    said = uninstalled(person, NOT_DONE)
    assert failed(said) == ["three"]
    assert len(said["problems"]) == 1
    assert untracked(folders["one"]) == []
    assert not is_locked(person.home / "run" / "lock")
    # What is needed to try again is there, and then it works.
    folders["three"].unlink()
    assert uninstalled(person, 0)["state"] == "uninstalled"
    assert not person.home.exists()


def test_a_worktree_that_was_moved_is_named_with_its_new_place_and_can_be_moved_back(person: Rig, repo: Path) -> None:
    """Success would be a lie: an agent there still calls Harken, and git would offer our files for a commit."""
    before = tree(repo)
    folders = seeded(person, repo, "one", "three")
    moved = repo.parent / "else where"
    git(repo, "worktree", "move", str(folders["three"]), str(moved))
    planned = person.run("uninstall", "--dry-run")
    assert f"The worktree is in {moved} now" in planned.err
    said = uninstalled(person, NOT_DONE)
    assert failed(said) == ["three"]
    assert f"The worktree is in {moved} now" in said["problems"][0]
    assert untracked(folders["one"]) == []
    assert (moved / "GEMINI.md").exists()
    assert git(moved, "status", "--porcelain", "--untracked-files=all") == ""
    git(repo, "worktree", "move", str(moved), str(folders["three"]))
    assert uninstalled(person, 0)["state"] == "uninstalled"
    assert untracked(folders["three"]) == []
    assert tree(repo) == before


def test_a_worktree_that_was_moved_is_cleaned_through_the_link_at_its_old_place(person: Rig, repo: Path) -> None:
    """Who leaves a link wants the old name to go on working."""
    before = tree(repo)
    folders = seeded(person, repo, "one", "three")
    for name, folder in folders.items():
        git(repo, "worktree", "move", str(folder), str(repo.parent / name))
        folder.symlink_to(repo.parent / name)
    assert uninstalled(person, 0)["state"] == "uninstalled"
    assert [untracked(repo.parent / name) for name in folders] == [[], []]
    assert tree(repo) == before


def test_a_worktree_that_was_moved_and_cleaned_by_hand_is_no_trouble(person: Rig, repo: Path) -> None:
    """Nothing of ours is there any more, wherever it is."""
    folders = seeded(person, repo, "three")
    moved = repo.parent / "elsewhere"
    git(repo, "worktree", "move", str(folders["three"]), str(moved))
    (moved / "GEMINI.md").unlink()
    shutil.rmtree(moved / ".gemini")
    assert uninstalled(person, 0)["problems"] == []


def test_only_the_file_that_was_read_is_deleted_whatever_it_says_about_itself(person: Rig, repo: Path) -> None:
    """A file in the home must not decide what is deleted outside of it."""
    seeded(person, repo, "one")
    kept = person.home / "seeded"
    old = json.loads((kept / "one.codex.json").read_text())
    strange = {"task": "../../victim", "exclude": "", "project": "/nonexistent", "file": "../../victim.codex.json"}
    (kept / "zz.codex.json").write_text(json.dumps(old | strange))
    victim = person.home.parent / "victim.codex.json"
    victim.write_text("mine")
    assert person.json("uninstall", "--yes")["state"] == "uninstalled"
    assert victim.read_text() == "mine"
    assert list(kept.iterdir()) == []
