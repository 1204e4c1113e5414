"""Worktrees of tasks: where one goes, making it, looking what would be lost with it, removing it.

git does the work and has the last word. Nothing that exists is overwritten, and nothing with changes is removed.
It knows no daemon: which task has which folder is the caller's business.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.git import WORK_SECONDS, git, trouble

SHELF: Final = ".worktrees"
SPOT_HINT: Final = "Name another task with --id, or use the folder: --here --dir …"
_PLAIN: Final[Mapping[str, str]] = MappingProxyType({"LC_ALL": "C", "LANGUAGE": ""})
_UNDER_WAY: Final = (
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisection"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository, seen from one folder."""

    top: Path | None  # the work tree that the folder is in; None in a bare repository
    common: Path  # what all its worktrees share
    main: Path  # the main checkout, or the bare repository
    shelf: Path  # where worktrees of tasks go

    @property
    def is_bare(self) -> bool:
        """Whether there is no main checkout."""
        return self.main == self.common

    @property
    def exclude(self) -> Path:
        """The file that says what git leaves alone here only."""
        return self.common / "info" / "exclude"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeSpot:
    """Where a worktree is to be, on which new branch, from which commit."""

    path: Path
    branch: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeLosses:
    """What would be lost with a worktree."""

    changed: tuple[str, ...] = ()  # not committed, or not tracked
    ignored: tuple[str, ...] = ()
    under_way: str = ""  # "a rebase"
    has_loose_commits: bool = False  # HEAD is on no branch

    @property
    def is_work(self) -> bool:
        """Whether somebody's work would be lost; ignored files are for a person to judge."""
        return bool(self.changed or self.under_way or self.has_loose_commits)

    @property
    def sentence(self) -> str:
        """What it is, for people."""
        parts = [f"{len(self.changed)} uncommitted ({_some(self.changed)})"] if self.changed else []
        parts += [f"{len(self.ignored)} ignored ({_some(self.ignored)})"] if self.ignored else []
        parts += [f"{self.under_way} under way"] if self.under_way else []
        parts += ["commits that are on no branch"] if self.has_loose_commits else []
        return ", ".join(parts)


def find_repository(folder: Path) -> Repository | None:
    """Return the repository that a folder is in; None when there is none."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--is-bare-repository", "--is-inside-work-tree")
    try:
        said = git(folder, *asked, sets=_PLAIN)
    except UserError:
        if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            raise
        return None
    if said.code:
        if "not a git repository" in said.error:
            return None
        raise trouble(f"git does not work in {folder}.", said)
    common_text, is_bare, is_inside, _ = said.out.rsplit("\n", 3)
    common = Path(common_text).resolve()
    if is_bare == "true":
        return Repository(top=None, common=common, main=common, shelf=_shelf(common))
    if is_inside != "true":
        raise UserError(f"{folder} is inside a .git folder.", "Name the folder with your files.")
    return _around(Path(_answer(folder, "rev-parse", "--show-toplevel")), common)


def _around(top: Path, common: Path) -> Repository:
    """Return the repository of a work tree: an own one, a submodule, or a worktree of another."""
    outer = _outermost(top)
    if outer != top:
        return Repository(top=top, common=common, main=top, shelf=outer.parent / f"{top.name}{SHELF}")
    if common.name == ".git":
        return Repository(top=top, common=common, main=common.parent, shelf=_shelf(common.parent))
    if git(common, "rev-parse", "--is-bare-repository").out.strip() == "true":
        return Repository(top=top, common=common, main=common, shelf=_shelf(common))
    return Repository(top=top, common=common, main=top, shelf=_shelf(top))


def _shelf(main: Path) -> Path:
    """Return where worktrees go: beside the repository, never in it."""
    main = main.parent if main.name.startswith(".") else main
    return main.parent / f"{main.name.removesuffix('.git')}{SHELF}"


def _outermost(top: Path) -> Path:
    """Return the outermost repository that a submodule is in; itself for any other."""
    outer = git(top, "rev-parse", "--show-superproject-working-tree").out.removesuffix("\n")
    return _outermost(Path(outer)) if outer else top


def current_branch(folder: Path) -> str:
    """Return the branch that is checked out in a folder; nothing when HEAD is on none."""
    return git(folder, "symbolic-ref", "--quiet", "--short", "HEAD").out.strip()


def plan_spot(repository: Repository, name: str, branch: str, start: str, *, folder: Path) -> WorktreeSpot:
    """Return where a worktree would be; raises when something is in the way. Writes nothing."""
    branch = branch or f"task/{name}"
    if git(folder, "check-ref-format", "--branch", branch).code:
        raise UserError(f"{branch[:80]!r} is not a valid branch name.", "Name another with --branch.")
    commit = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{start or 'HEAD'}^{{commit}}")
    if commit.code and start:
        raise NotFound(f"git has no commit {start[:80]!r}.", "Name a branch, a tag or a commit with --from.")
    if commit.code:
        raise UserError(
            f"{repository.main} has no commit yet.", "Commit something first, or use the folder as it is: --here"
        )
    if has_branch(folder, branch):
        raise Conflict(f"There is a branch {branch} already.", "Name another with --branch.")
    path = repository.shelf.resolve() / name
    if os.path.lexists(path):
        raise Conflict(f"{path} exists already.", SPOT_HINT)
    return WorktreeSpot(path=path, branch=branch, commit=commit.out.strip())


class SpotTaken(Conflict):
    """Where a worktree was to be, something is now: another has made it meanwhile, and it is theirs."""


def add_worktree(repository: Repository, spot: WorktreeSpot) -> None:
    """Make a worktree on a new branch; when git fails, what was begun goes again, and nothing of another's."""
    _make_folder(spot.path)
    is_made = has_own_branch = False
    try:
        _begin(repository, spot, "branch", "--no-track", spot.branch, spot.commit)
        has_own_branch = True
        _begin(repository, spot, "worktree", "add", str(spot.path), spot.branch)
        is_made = True
    finally:
        if not is_made:
            _take_back(repository, spot, has_own_branch=has_own_branch)


def _make_folder(path: Path) -> None:
    place = path.parent
    try:
        place.mkdir(parents=True, exist_ok=True)
        place = path
        place.mkdir()
    except FileExistsError as exc:
        if place == path:
            raise SpotTaken(f"{path} exists already.", SPOT_HINT) from exc
        raise UserError(f"{place} is not a folder.", "Make room for it, or use --here.") from exc
    except OSError as exc:
        raise UserError(f"{place} cannot be made: {exc.strerror}.", "Make room for it, or use --here.") from exc


def _begin(repository: Repository, spot: WorktreeSpot, *words: str) -> None:
    said = git(repository.main, *words, seconds=WORK_SECONDS)
    if said.code:
        raise trouble(f"git could not make the worktree {spot.path}.", said)


def _take_back(repository: Repository, spot: WorktreeSpot, *, has_own_branch: bool) -> None:
    with suppress(HarkenError):
        if has_own_branch:
            git(repository.main, "worktree", "remove", "--force", "--force", str(spot.path), seconds=WORK_SECONDS)
            if tip(repository.main, spot.branch) == spot.commit:
                git(repository.main, "branch", "-D", "--", spot.branch)
    with suppress(OSError):
        spot.path.rmdir()
    _tidy(spot.path.parent)


def has_branch(folder: Path, branch: str) -> bool:
    """Whether a branch of this name exists."""
    return bool(tip(folder, branch))


def tip(folder: Path, branch: str) -> str:
    """Return the commit that a branch is at; nothing when there is no such branch."""
    return git(folder, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").out.strip()


def has_submodules(folder: Path) -> bool:
    """Whether a checkout has submodules, which a new worktree does not check out."""
    return (folder / ".gitmodules").is_file()


def is_worktree(folder: Path) -> bool:
    """Whether a folder is the root of a work tree, and not only somewhere in one."""
    top = git(folder, "rev-parse", "--show-toplevel")
    return not top.code and Path(top.out.removesuffix("\n")) == folder.resolve()


def losses(folder: Path, *, apart_from: Collection[str] = ()) -> WorktreeLosses:
    """Return what would be lost with a worktree; `apart_from` are files of ours in it, by their relative names."""
    options = ("--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
    said = git(folder, "status", *options, "--ignore-submodules=none", sets={"GIT_OPTIONAL_LOCKS": "0"})
    if said.code:
        raise trouble(f"git cannot say what is changed in {folder}.", said)
    rows = [(row[:2], row[3:]) for row in said.out.split("\0") if row and row[3:] not in apart_from]
    rows += [("M ", name) for name in _unwatched(folder)]
    own = Path(_answer(folder, "rev-parse", "--absolute-git-dir"))
    return WorktreeLosses(
        changed=tuple(name for kind, name in rows if kind != "!!"),
        ignored=tuple(name for kind, name in rows if kind == "!!"),
        under_way=next((what for name, what in _UNDER_WAY if (own / name).exists()), ""),
        has_loose_commits=not current_branch(folder) and not _refs_with(folder, "HEAD"),
    )


def _unwatched(folder: Path) -> list[str]:
    """Return the files that git was told not to look at: what is changed in them it does not say."""
    listed = git(folder, "ls-files", "-v", "-z").out.split("\0")
    # In a sparse checkout most of them are not there at all.
    names = [row[2:] for row in listed if row and (row[0] == "S" or row[0].islower())]
    return [name for name in names if (folder / name).exists()]


def remove_worktree(repository: Path, folder: Path) -> None:
    """Remove a worktree, as far as git agrees that nothing is lost. One that is gone already is forgotten."""
    force = () if folder.exists() else ("--force", "--force")
    said = git(repository, "worktree", "remove", *force, str(folder), seconds=WORK_SECONDS)
    if said.code and folder.exists():
        raise trouble(f"git did not remove {folder}.", said)
    _tidy(folder.parent)


def drop_branch(repository: Path, branch: str) -> str:
    """Delete a branch if its commits are all on another one too; return why it stays, nothing when it is gone."""
    commit = tip(repository, branch)
    if not commit:
        return ""
    if _refs_with(repository, commit) == [f"refs/heads/{branch}"]:
        return "no other branch has its commits"
    said = git(repository, "branch", "-D", "--", branch)
    return said.error or "git did not delete it" if said.code else ""


def is_tracked(top: Path, path: Path) -> bool:
    """Whether git tracks a file of a work tree; also one that is reached through a link in it, which is as bad."""
    inside = [part for part in (path, *path.parents) if part.is_relative_to(top) and part != top]
    return any(part.is_symlink() for part in inside) or bool(git(top, "ls-files", "-z", "--", f":(literal){path}").out)


def _refs_with(folder: Path, commit: str) -> list[str]:
    said = git(
        folder, "for-each-ref", f"--contains={commit}", "--format=%(refname)", "refs/heads", "refs/remotes", "refs/tags"
    )
    return said.out.split()


def _answer(folder: Path, *words: str) -> str:
    said = git(folder, *words)
    if said.code:
        raise trouble(f"git does not work in {folder}.", said)
    return said.out.removesuffix("\n")


def _some(names: tuple[str, ...]) -> str:
    shown = [name.encode("utf-8", "replace").decode() for name in names[:3]]
    return ", ".join([*shown, *(["…"] if len(names) > len(shown) else [])])


def _tidy(shelf: Path) -> None:
    """Remove the folder of worktrees when it has become empty."""
    if shelf.name.endswith(SHELF):
        with suppress(OSError):
            shelf.rmdir()
