"""Worktrees of tasks in real repositories: where they go, what is in the way, and what is never lost with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.errors import Conflict, NotFound, UserError
from harken.git import starts_at_checkout
from harken.workspaces.worktree import (
    Repository,
    SpotTaken,
    WorktreeLosses,
    WorktreeSpot,
    add_worktree,
    current_branch,
    drop_branch,
    find_repository,
    has_branch,
    has_submodules,
    is_tracked,
    is_worktree,
    losses,
    plan_spot,
    remove_worktree,
)
from tests.workspaces.repos import PERSON, commit, filtered, git, repository


@pytest.fixture(autouse=True)
def _person(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PERSON.items():
        monkeypatch.setenv(name, value)


def found(folder: Path) -> Repository:
    """Return the repository of a folder that has one."""
    repo = find_repository(folder)
    assert repo is not None
    return repo


def made(folder: Path, name: str = "one", branch: str = "", start: str = "") -> WorktreeSpot:
    """Make a worktree as a task has it."""
    repo = found(folder)
    spot = plan_spot(repo, name, branch, start, folder=folder)
    add_worktree(repo, spot)
    return spot


def heads(folder: Path) -> list[str]:
    """Return the branches."""
    return git(folder, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


@pytest.mark.parametrize("name", ["app", "my app", "käfer \N{BEETLE}", "it's $HOME; #1"])
def test_a_worktree_is_beside_its_repository_on_a_branch_of_its_own(tmp_path: Path, name: str) -> None:
    """Wherever people keep their code, it is found, and the repository itself stays clean."""
    repo = repository(tmp_path / name)
    spot = made(repo)
    assert spot.path == tmp_path / f"{name}.worktrees" / "one"
    assert current_branch(spot.path) == spot.branch == "task/one"
    assert (spot.path / "README.md").read_text() == "text\n"
    assert is_worktree(spot.path)
    assert git(repo, "status", "--porcelain") == ""


def test_a_folder_in_no_repository_has_none(tmp_path: Path) -> None:
    """Such a folder is used as it is."""
    assert find_repository(tmp_path) is None


def test_a_damaged_repository_is_not_taken_for_none(tmp_path: Path) -> None:
    """Its folder would be used as it is, and nobody asked for that."""
    repo = repository(tmp_path / "app")
    (repo / ".git" / "config").write_text("[core\n")
    with pytest.raises(UserError, match="git does not work") as error:
        find_repository(repo)
    assert "bad config" in error.value.hint


def test_a_task_begun_inside_a_worktree_goes_beside_it(tmp_path: Path) -> None:
    """Worktrees in worktrees would be lost with the outer one."""
    repo = repository(tmp_path / "app")
    first = made(repo)
    commit(first.path, "more.txt")
    (first.path / "deep").mkdir()
    second = made(first.path / "deep", "two")
    assert second.path == tmp_path / "app.worktrees" / "two"
    assert (second.path / "more.txt").exists()
    assert found(first.path).main == repo


def test_a_bare_repository_and_its_worktrees_have_one_place(tmp_path: Path) -> None:
    """Some people have no main checkout at all."""
    repo = repository(tmp_path / "seed")
    git(tmp_path, "clone", "-q", "--bare", str(repo), "app.git")
    first = made(tmp_path / "app.git")
    assert first.path == tmp_path / "app.worktrees" / "one"
    assert made(first.path, "two").path == tmp_path / "app.worktrees" / "two"
    assert found(first.path).is_bare
    git(tmp_path, "clone", "-q", "--bare", str(repo), "proj/.bare")
    assert made(tmp_path / "proj" / ".bare").path == tmp_path / "proj.worktrees" / "one"


def test_a_worktree_of_a_submodule_stays_out_of_the_outer_repository(tmp_path: Path) -> None:
    """Beside the submodule it would be an untracked folder of the outer one."""
    part, whole = repository(tmp_path / "part"), repository(tmp_path / "whole")
    git(whole, "submodule", "--quiet", "add", str(part), "libs/part")
    git(whole, "commit", "-q", "-m", "Add part")
    spot = made(whole / "libs" / "part")
    assert spot.path == tmp_path / "part.worktrees" / "one"
    assert git(whole, "status", "--porcelain") == ""
    assert not has_submodules(spot.path)
    assert has_submodules(made(whole).path)


def test_a_detached_head_is_where_the_branch_begins(tmp_path: Path) -> None:
    """People look at old commits, and begin something there."""
    repo = repository(tmp_path / "app", "one.txt", "two.txt")
    git(repo, "checkout", "-q", "--detach", "HEAD~1")
    assert current_branch(repo) == ""
    assert not (made(repo).path / "two.txt").exists()


def test_a_start_is_named_and_not_followed(tmp_path: Path) -> None:
    """The branch is the task's own: a push must not go to the one it began at."""
    origin = repository(tmp_path / "origin", "one.txt")
    git(tmp_path, "clone", "-q", str(origin), "app")
    repo = tmp_path / "app"
    commit(repo, "local.txt")
    spot = made(repo, branch="mine/x", start="origin/main")
    assert (current_branch(spot.path), (spot.path / "local.txt").exists()) == ("mine/x", False)
    assert "mine/x" not in git(repo, "config", "--list")


def test_what_is_in_the_way_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Neither a folder nor a branch of the person's is ever overwritten."""
    repo = repository(tmp_path / "app")
    git(repo, "branch", "task/one")
    (tmp_path / "app.worktrees" / "two").mkdir(parents=True)
    (tmp_path / "app.worktrees" / "three").symlink_to("nowhere")
    before = heads(repo)
    for name, branch, start, kind in (
        ("one", "", "", Conflict),
        ("two", "", "", Conflict),
        ("three", "", "", Conflict),
        ("new", "bad..name", "", UserError),
        ("new", "-x", "", UserError),
        ("new", "", "nowhere", NotFound),
        ("new", "", "--all", NotFound),
    ):
        with pytest.raises(kind):
            plan_spot(found(repo), name, branch, start, folder=repo)
    assert heads(repo) == before
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    with pytest.raises(UserError, match="no commit yet"):
        plan_spot(found(empty), "one", "", "", folder=empty)
    with pytest.raises(UserError, match=r"inside a \.git folder"):
        find_repository(repo / ".git")


def test_what_git_had_begun_goes_when_it_fails(tmp_path: Path) -> None:
    """A filter that refuses leaves the worktree and the branch: the next try would find both in the way."""
    repo = repository(tmp_path / "app")
    filtered(repo, "echo not today >&2; exit 1")
    with pytest.raises(UserError, match="could not make the worktree") as error:
        made(repo)
    assert "not today" in error.value.hint
    assert heads(repo) == ["main"]
    assert not (tmp_path / "app.worktrees").exists()
    git(repo, "config", "filter.x.smudge", "cat")
    assert made(repo).path.is_dir()


def test_two_who_make_one_at_once_do_not_take_each_others(tmp_path: Path) -> None:
    """Both found nothing in the way; the one that comes second must not remove what the first has made meanwhile."""
    repo = repository(tmp_path / "app")
    first = plan_spot(found(repo), "one", "", "", folder=repo)
    same_branch = plan_spot(found(repo), "two", first.branch, "", folder=repo)
    add_worktree(found(repo), first)
    (first.path / "work").write_text("of the first")
    with pytest.raises(SpotTaken, match="exists already"):
        add_worktree(found(repo), first)
    with pytest.raises(UserError, match="could not make"):
        add_worktree(found(repo), same_branch)
    assert (first.path / "work").read_text() == "of the first"
    assert not same_branch.path.exists()
    git(first.path, "checkout", "-q", "--detach")
    with pytest.raises(UserError, match="could not make"):
        add_worktree(found(repo), same_branch)
    assert first.branch in heads(repo)


def test_git_says_why_a_branch_cannot_be(tmp_path: Path) -> None:
    """A branch `task` leaves no room for `task/one`; git's own words say so."""
    repo = repository(tmp_path / "app")
    git(repo, "branch", "task")
    with pytest.raises(UserError) as error:
        made(repo)
    assert "task" in error.value.hint
    assert heads(repo) == ["main", "task"]


def test_variables_of_a_git_hook_do_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is run by a hook of another repository means the folder it names."""
    repo, other = repository(tmp_path / "app"), repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert found(repo).main == repo


def test_nothing_that_somebody_made_counts_as_clean(tmp_path: Path) -> None:
    """What is not in a commit on a branch is gone with the folder."""
    repo = repository(tmp_path / "app", ".gitignore")
    git(repo, "config", "status.showUntrackedFiles", "no")
    commit(repo, ".gitignore", "*.env\nbuilt/\n")
    tree = made(repo).path
    assert losses(tree) == WorktreeLosses()
    (tree / "a b.env").write_text("secret")
    (tree / "built").mkdir()
    (tree / "built" / "x").write_text("")
    assert losses(tree) == WorktreeLosses(ignored=("a b.env", "built/"))
    assert losses(tree, apart_from={"a b.env", "built/"}) == WorktreeLosses()
    assert not losses(tree).is_work
    (tree / "new\nfile").write_text("")
    assert losses(tree, apart_from={"a b.env", "built/"}) == WorktreeLosses(changed=("new\nfile",))
    (tree / "new\nfile").unlink()
    (tree / ".gitignore").unlink()
    assert ".gitignore" in losses(tree).changed


def test_commits_on_no_branch_and_work_under_way_are_seen(tmp_path: Path) -> None:
    """A status that is clean does not mean that nothing is lost."""
    repo = repository(tmp_path / "app", "one.txt")
    tree = made(repo).path
    git(tree, "checkout", "-q", "--detach")
    assert not losses(tree).is_work
    commit(tree, "loose.txt")
    assert losses(tree) == WorktreeLosses(has_loose_commits=True)
    git(tree, "checkout", "-q", "task/one")
    git(tree, "bisect", "start")
    assert losses(tree).under_way == "a bisection"
    assert losses(tree).is_work


def test_a_worktree_goes_and_its_branch_only_when_another_has_its_commits(tmp_path: Path) -> None:
    """Committed work is never lost by tidying up."""
    repo = repository(tmp_path / "app")
    bare, worked = made(repo, "bare"), made(repo, "worked")
    commit(worked.path, "work.txt")
    for spot in (bare, worked):
        remove_worktree(repo, spot.path)
        assert not spot.path.exists()
    reason = "no other branch has its commits"
    assert (drop_branch(repo, bare.branch), drop_branch(repo, worked.branch)) == ("", reason)
    assert heads(repo) == ["main", "task/worked"]
    assert not (tmp_path / "app.worktrees").exists()
    git(repo, "checkout", "-q", "task/worked")
    git(repo, "tag", "kept")
    assert "checked out" in drop_branch(repo, worked.branch)
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "task/worked")
    assert drop_branch(repo, worked.branch) == ""
    assert not has_branch(repo, worked.branch)


def test_git_has_the_last_word_on_removing(tmp_path: Path) -> None:
    """Between looking and removing somebody may write."""
    repo = repository(tmp_path / "app")
    tree = made(repo).path
    (tree / "new.txt").write_text("")
    with pytest.raises(UserError, match="did not remove"):
        remove_worktree(repo, tree)
    assert (tree / "new.txt").exists()


def test_a_worktree_that_was_deleted_by_hand_is_forgotten(tmp_path: Path) -> None:
    """The branch would count as checked out in a folder that is gone."""
    repo = repository(tmp_path / "app")
    tree = made(repo).path
    tree.rename(tmp_path / "moved")
    remove_worktree(repo, tree)
    assert str(tree) not in git(repo, "worktree", "list")
    assert drop_branch(repo, "task/one") == ""


def test_tracked_files_and_links_in_a_repository_are_recognised(tmp_path: Path) -> None:
    """Through a link somebody committed, a file anywhere would be written."""
    repo = repository(tmp_path / "app", ".codex/config.toml", "[x].txt")
    (tmp_path / "elsewhere").mkdir()
    (repo / ".gemini").symlink_to(tmp_path / "elsewhere")
    (repo / ".codex" / "config.toml").unlink()
    names = (".codex/config.toml", "[x].txt", ".gemini/settings.json", ".codex/hooks.json", "x.txt")
    assert [is_tracked(repo, repo / name) for name in names] == [True, True, True, False, False]


# -- repositories of others -----------------------------------------------------------------------------------------


def test_no_program_of_a_repository_is_started_for_a_worktree(tmp_path: Path) -> None:
    """An unpacked archive brings hooks and settings along: looking, checking out and removing start none of them."""
    repo, marker = repository(tmp_path / "app"), tmp_path / "marker"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
        hook.chmod(0o755)
    git(repo, "config", "core.fsmonitor", f"touch {marker}; false")
    marker.unlink(missing_ok=True)  # git itself has started them for the test
    spot = made(repo)
    losses(spot.path)
    remove_worktree(repo, spot.path)
    assert not marker.exists()


def test_settings_that_git_obeys_at_a_checkout_are_named(tmp_path: Path) -> None:
    """A filter cannot be overruled: whoever owns the repository has to say that it is theirs."""
    repo = repository(tmp_path / "app")
    git(repo, "config", "alias.st", "status")
    assert starts_at_checkout(repo) == ""
    git(repo, "config", "filter.x.smudge", "evil")
    assert starts_at_checkout(repo) == f"filter.x.smudge in {repo}/.git/config"
