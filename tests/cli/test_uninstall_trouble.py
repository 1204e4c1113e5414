"""`harken uninstall` where something is not as it was left: that is named and kept, and the rest is taken back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harken.config.home import is_locked
from tests.cli.rig import Json, Rig
from tests.cli.test_uninstall_tasks import NOT_DONE, person, repo, seeded, untracked
from tests.workspaces.repos import git
from tests.workspaces.test_seeding import tree

__all__ = ["person", "repo"]
TOO_LONG = "x" * 300
FOREIGN = "/proc/1/root/x"  # a link that only its owner may follow


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
    assert "This Harken knows no host 'nohost'." in person.run("uninstall", "--dry-run").err
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
