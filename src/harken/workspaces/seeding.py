"""Seeding a task's folder: the agent's host is connected there, where it is not connected for the person anyway.

What is written is what `connect --project` would write, only into files that git does not track, and git is told to
leave the new ones alone. `hosts/connect/apply.py` writes and takes back; this decides whether, and remembers for which
task. Blocks of several tasks stand side by side in git's `info/exclude` and go in any order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Final

import msgspec

from harken.display import one_line
from harken.errors import Conflict, HarkenError, NotFound, UserError
from harken.git import git
from harken.hosts.connect.apply import apply, undo
from harken.hosts.connect.files import PRIVATE_FILE, read, trouble, write
from harken.hosts.connect.plan import CommandStep, ConnectOptions, Connector, ConnectPlan, InstallTarget, Step
from harken.hosts.connect.record import load, locked
from harken.hosts.registry import connector, interactive, short, title_of
from harken.workspaces.worktree import Repository, find_repository, is_tracked

FOLDER: Final = "seeded"
VERSION: Final = 1
LOCK: Final = "seeding"
LOCK_SECONDS: Final = 60.0  # a host's own commands may take seconds, and several tasks may end at once
_SPECIAL: Final = re.compile(r"([\\*?\[\]])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One host, connected in a folder because of one task; several tasks may share what was written."""

    task: str
    host: str
    project: str  # the folder that is connected
    is_main: bool = False  # it is the main checkout, which stands for all worktrees
    exclude: str = ""  # the file that has the task's block
    lines: tuple[str, ...] = ()  # what stands in the block
    has_made_exclude: bool = False
    worktree: str = ""  # where git keeps what it knows of the worktree that the folder is in, also when it is moved
    file: str = field(default="", compare=False)  # the file that it was read from
    version: int = VERSION

    @property
    def block(self) -> str:
        """The name of its block, and of the file that it is written to."""
        return f"{self.task}.{self.host}" + (".main" if self.is_main else "")

    def shares(self, other: Seed) -> bool:
        """Whether another task needs the same connection."""
        return (self.host, self.project) == (other.host, other.project) and self.task != other.task


@dataclass(frozen=True, slots=True)
class SeedGround:
    """Where a host is connected for a task: a folder, and the repository that it is in."""

    folder: Path
    repository: Repository | None

    @classmethod
    def of(cls, folder: Path) -> SeedGround:
        """Look what a folder is."""
        return cls(folder, find_repository(folder))

    @property
    def tops(self) -> tuple[Path, ...]:
        """The work trees in which files may be written."""
        if self.repository is None:
            return (self.folder,)
        main = None if self.repository.is_bare else self.repository.main
        return tuple(top for top in (self.repository.top, main) if top)

    @property
    def exclude(self) -> Path | None:
        """The file that says what git leaves alone."""
        return self.repository.exclude if self.repository else None

    @property
    def worktree(self) -> str:
        """Where git keeps what it knows of a linked worktree; nothing for a main checkout, which moves as a whole."""
        if self.repository is None or self.repository.top is None:
            return ""
        own = Path(git(self.folder, "rev-parse", "--absolute-git-dir").out.removesuffix("\n")).resolve()
        return str(own) if own.parent == self.repository.common / "worktrees" else ""

    def projects(self, host: str) -> list[Path]:
        """Return the folders that are connected: those with settings that the host reads in this one."""
        named = {"folder": self.folder, "main": self.tops[-1]}
        return list(dict.fromkeys(named[name] for name in interactive(host).reads))

    def paths(self, plan: ConnectPlan) -> list[Path]:
        """Return the files here that a plan writes."""
        return self.inside(dict.fromkeys(path for step in plan.steps for path in _touched(step)))

    def inside(self, paths: Iterable[Path]) -> list[Path]:
        """Return those that are in one of the work trees."""
        return [path for path in paths if any(path.is_relative_to(top) for top in self.tops)]

    def patterns(self, plan: ConnectPlan) -> list[str]:
        """Return what git has to be told to leave alone: the files that are new."""
        new = [path for path in self.paths(plan) if not path.exists()]
        return [self.pattern(path) for path in new]

    def pattern(self, path: Path) -> str:
        """Return how git is told to leave a file alone."""
        return pattern(path.relative_to(self._top_of(path)))

    def tracked(self, paths: Sequence[Path]) -> list[Path]:
        """Return those that are files of the repository itself."""
        return [path for path in self.inside(paths) if self.repository and is_tracked(self._top_of(path), path)]

    def refuse_tracked(self, plan: ConnectPlan) -> None:
        """Raise when a plan writes into a file of the repository itself."""
        tracked = self.tracked(self.paths(plan))
        if tracked:
            names = ", ".join(short(path) for path in tracked)
            raise UserError(f"git tracks {names}, or a link to it.", "Files of the repository are not changed.")

    def _top_of(self, path: Path) -> Path:
        return next(top for top in self.tops if path.is_relative_to(top))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedReport:
    """What came of seeding, or of taking it back."""

    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the person has to know or do
    kept: tuple[str, ...] = ()  # files that somebody wrote in since: only our entries are gone
    about: tuple[str, ...] = ()  # what the host's connection is like, for those who ask

    @classmethod
    def joined(cls, parts: Sequence[SeedReport]) -> SeedReport:
        """Return one for several."""
        return cls(
            files=tuple(name for part in parts for name in part.files),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            kept=tuple(dict.fromkeys(name for part in parts for name in part.kept)),
            about=tuple(dict.fromkeys(note for part in parts for note in part.about)),
        )

    def names(self, folder: Path) -> list[str]:
        """Return the files as people name them, those in a folder by their names in it."""
        paths = [Path(name) for name in self.files]
        return [one_line(str(p.relative_to(folder))) if p.is_relative_to(folder) else short(p) for p in paths]


def seed(everywhere: InstallTarget, task: str, folder: Path, host: str, refuse: Callable[[], None]) -> SeedReport:
    """Connect a host in a task's folder where that is needed. Never raises: a task is useful without it.

    `refuse` raises when the one who asks may not connect hosts.
    """
    found = connector(host)
    try:
        if (record := load(everywhere.harken, host, None)) is not None:
            if record.url:
                told = f"{title_of(host)} is connected to the inbox at {one_line(record.url)}"
                hint = f"To have it here: harken disconnect {host}, then make the task again"
                return SeedReport(notes=(f"{told}, so it is told nothing of this task. {hint}.",))
            plan = found.plan(everywhere, ConnectOptions(wake=record.wake))
            is_stale = bool(plan.steps)
            note = f"{title_of(host)} is connected, but not as this Harken would do it. Run: {_connect(host)}"
            return SeedReport(notes=(note,) if is_stale else ())
        refuse()
        ground = SeedGround.of(folder.resolve())
        places = [replace(everywhere, project=project) for project in ground.projects(host)]
        with locked(everywhere.harken, LOCK, LOCK_SECONDS):
            return SeedReport.joined(list(_tried(found, places, ground, task)))
    except HarkenError as exc:
        return _failed(host, folder, exc)


def _tried(found: Connector, places: Sequence[InstallTarget], ground: SeedGround, task: str) -> Iterator[SeedReport]:
    """Connect one folder after the other; where one cannot be, the rest would be half of a connection."""
    for place in places:
        try:
            yield _seeded(found, place, ground, task)
        except HarkenError as exc:
            yield _failed(found.name, place.project or ground.folder, exc)
            return


def _failed(host: str, folder: Path, exc: HarkenError) -> SeedReport:
    hint = f"{exc.hint} " if exc.hint else ""
    note = f"{title_of(host)} is not connected in {folder}: {exc.message} {hint}For every folder: {_connect(host)}"
    return SeedReport(notes=(note,))


def _seeded(found: Connector, place: InstallTarget, ground: SeedGround, task: str) -> SeedReport:
    """Connect one of the folders that a host reads."""
    host = found.name
    is_main = place.project != ground.folder
    blank = Seed(task=task, host=host, project=str(place.project), is_main=is_main)
    blank = blank if is_main else replace(blank, worktree=ground.worktree)
    every = seeds(place.harken)
    known = [each for each in every if each.block == blank.block or each.shares(blank)]
    record = load(place.harken, host, place.project)
    if not known and record is not None:
        return SeedReport()  # the person connected this folder themselves, and keeps it so
    # A checkout that has more, because the person or a task in it wants it so, keeps that.
    place = replace(place, is_for_tasks=is_main and (record is None or record.is_for_tasks))
    plan = _plan(found, place, ground)
    notes: tuple[str, ...] = ()
    if tracked := ground.tracked(plan.blocks):
        names = ", ".join(short(path) for path in tracked)
        notes = (f"git tracks {names}, so it stays as it is. Each message says by itself whose word it is.",)
        place = replace(place, can_tell=False)
        plan = _plan(found, place, ground)
    if not known and not plan.steps:
        return SeedReport()
    ground.refuse_tracked(plan)
    new = _with_block(blank, plan, ground, known, [each for each in every if each.project == blank.project])
    if new not in known:
        _keep(place, new)
    if plan.steps:
        apply(plan, place, ConnectOptions())
    files = tuple(str(path) for path in ground.paths(plan))
    return SeedReport(files=files, notes=notes if plan.steps else (), about=tuple(plan.notes) if plan.steps else ())


def unseed(place: InstallTarget, task: str) -> SeedReport:
    """Take back what was seeded for a task, and keep what other tasks need. Twice does no harm. Never raises."""
    if not (place.harken / FOLDER).exists():
        return SeedReport()
    try:
        with locked(place.harken, LOCK, LOCK_SECONDS):
            done = _all_unseeded(place, task)
            return replace(done, notes=(*map(written_since, done.kept), *done.notes))
    except HarkenError as exc:
        hint = f"{exc.hint} " if exc.hint else ""
        return SeedReport(notes=(f"{exc.message} {hint}To try again: harken task done {task}",))


def unseed_all(place: InstallTarget) -> list[tuple[Seed, SeedReport]]:
    """Take back what was seeded for every task; what fails is in the notes of its seed, and stops no other.

    Raises when the list cannot be read: one file of it that is damaged is enough. Nothing is kept for other tasks, and
    nothing is written again for them.
    """
    with locked(place.harken, LOCK, LOCK_SECONDS):
        return [(each, _unseeded(place, each, ())) for each in reversed(seeds(place.harken))]


def written_since(name: str) -> str:
    """Return what is said about a file that is kept."""
    return f"{short(Path(name))} was written since: only Harken's entries are gone."


def _all_unseeded(place: InstallTarget, task: str) -> SeedReport:
    every = seeds(place.harken)
    # The last first: a file that two of them have written becomes what it was, step by step.
    return SeedReport.joined([_unseeded(place, each, every) for each in reversed(every) if each.task == task])


def _unseeded(place: InstallTarget, old: Seed, every: Sequence[Seed]) -> SeedReport:
    here = replace(place, project=Path(old.project))
    files: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    notes: list[str] = []
    try:
        found, record = host_of(old, place.harken), load(place.harken, old.host, here.project)
        if not any(old.shares(each) for each in every) and record is not None:
            refuse_moved(old)
            undone = undo(found, record.place(here))
            inside = [path for path in undone.restored if path.is_relative_to(old.project)]
            files = tuple(str(path) for path in inside if not any(path in each.parents for each in inside))
            kept = tuple(map(str, undone.cleaned))
            notes += undone.notes
            notes += _mend(found, place, [each for each in every if each.host == old.host and each.task != old.task])
        _forget(place, old)
    except HarkenError as exc:
        notes.append(still_connected(old, exc))
    except OSError as exc:  # a host's module looks at paths, too
        notes.append(still_connected(old, trouble("look at", here.project or place.harken, exc)))
    return SeedReport(files=files, notes=tuple(notes), kept=kept)


def host_of(old: Seed, harken: Path) -> Connector:
    """Return the host of a seed; raises for one that only another version knows."""
    try:
        return connector(old.host)
    except NotFound as exc:
        hint = f"Use the version that wrote {harken / FOLDER / old.file}, or remove that file."
        raise UserError(f"This Harken has no host {old.host[:80]!r}.", hint) from exc


def still_connected(old: Seed, exc: HarkenError) -> str:
    """Return what is said about a seed that cannot be taken back."""
    return f"{title_of(old.host)} is still connected in {old.project}: {exc.message} {exc.hint}".strip()


def refuse_moved(old: Seed) -> None:
    """Raise when the worktree of a seed is elsewhere now, with files of ours: what is recorded names the old place.

    A link at the old place is as good as the folder.
    """
    try:
        now = _worktree_now(old)
        is_moved = now is not None and not Path(os.path.realpath(old.project)).is_relative_to(now)
    except OSError as exc:
        raise trouble("look at", Path(old.project), exc) from exc
    if now is not None and is_moved and any(os.path.lexists(now / line[1:]) for line in old.lines):
        hint = "Move it back with `git worktree move`, then run this again."
        raise Conflict(f"The worktree is in {now} now, with Harken's files.", hint)


def _worktree_now(old: Seed) -> Path | None:
    """Return where git says that a worktree is; None when it is gone, or git never had it."""
    own = Path(old.worktree)
    said = read(own / "gitdir") if old.worktree else None
    if said is None:
        return None
    link = Path(os.path.realpath(own / os.fsdecode(said.removesuffix(b"\n"))))
    return link.parent if link.is_file() else None


def _mend(found: Connector, place: InstallTarget, others: Sequence[Seed]) -> Iterator[str]:
    """Write again what went although another folder needs it: some files of a host serve all of them."""
    for project in sorted({each.project for each in others}):
        here = replace(place, project=Path(project))
        try:
            record = load(place.harken, found.name, here.project)
            if record is not None and Path(project).is_dir():
                here = record.place(here)
                plan = _plan(found, here, SeedGround.of(Path(project)))
                if plan.steps:
                    apply(plan, here, ConnectOptions())
        except HarkenError as exc:
            yield f"{title_of(found.name)} in {project} may miss something: {exc.message} {exc.hint}".strip()


def seeds(harken: Path) -> list[Seed]:
    """Return everything that was seeded."""
    found = ((path, read(path)) for path in sorted((harken / FOLDER).glob("*.json")))
    return [_parsed(path, data) for path, data in found if data is not None]


def seeded_names(harken: Path, task: str) -> set[str]:
    """Return the files of ours in a task's folder, by their names relative to it."""
    return {line[1:] for each in seeds(harken) if each.task == task for line in each.lines}


def _plan(found: Connector, place: InstallTarget, ground: SeedGround) -> ConnectPlan:
    """Return what is to be done; what git leaves alone is written here, not by the host's module."""
    plan = found.plan(place, ConnectOptions())
    return replace(plan, steps=[step for step in plan.steps if ground.exclude not in _touched(step)])


def _touched(step: Step) -> tuple[Path, ...]:
    return step.touches if isinstance(step, CommandStep) else (step.path,)


def _with_block(
    blank: Seed, plan: ConnectPlan, ground: SeedGround, known: Sequence[Seed], beside: Sequence[Seed]
) -> Seed:
    """Return a seed with what git is to leave alone: files that are new, and those that tasks beside it had made.

    Another host in the folder may have made a file that both read.
    """
    hidden = {line for each in beside for line in each.lines}
    shared = [line for line in map(ground.pattern, ground.inside(plan.blocks)) if line in hidden]
    lines = tuple(dict.fromkeys([*(line for each in known for line in each.lines), *ground.patterns(plan), *shared]))
    if ground.exclude is None or not lines:
        return blank
    has_made = any(each.block == blank.block and each.has_made_exclude for each in known)
    has_made = has_made or not ground.exclude.exists()
    return replace(blank, exclude=str(ground.exclude), lines=lines, has_made_exclude=has_made)


def _keep(place: InstallTarget, new: Seed) -> None:
    """Remember a seed, then tell git: what a crash leaves behind is known."""
    with locked(place.harken):
        write(place.harken / FOLDER / f"{new.block}.json", json.dumps(asdict(new), indent=1).encode(), PRIVATE_FILE)
        if new.exclude:
            path = Path(new.exclude)
            write(path, with_block(read(path), new.block, new.lines))


def _forget(place: InstallTarget, old: Seed) -> None:
    # By the name that was read: what a file says about itself may name any other.
    file, exclude = place.harken / FOLDER / old.file, Path(old.exclude)
    with locked(place.harken):
        if old.exclude and (before := read(exclude)) is not None:
            after = without_block(before, old.block)
            if not after and old.has_made_exclude:
                _delete(exclude)
            elif after is not None and after != before:
                write(exclude, after)
        _delete(file)


def _delete(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as exc:
        raise trouble("remove", file, exc) from exc


def _parsed(path: Path, data: bytes) -> Seed:
    try:
        found = msgspec.convert(json.loads(data), Seed)
    except (ValueError, msgspec.ValidationError) as exc:
        hint = "Remove it; `harken disconnect HOST --project DIR` takes back what it was about."
        raise UserError(f"{path} is damaged: what was seeded cannot be read.", hint) from exc
    if found.version > VERSION:
        raise UserError(f"{path} was written by a newer Harken.", "Use that version.")
    return replace(found, file=path.name)


def _connect(host: str) -> str:
    return f"harken connect {host}"


def pattern(path: PurePath) -> str:
    """Return the pattern that means one file and no other, from its name relative to the work tree."""
    # A line end cannot be written in a pattern; any one character can.
    return "/" + _SPECIAL.sub(r"\\\1", path.as_posix()).replace("\n", "?").replace("\r", "?")


def with_block(data: bytes | None, name: str, lines: Sequence[str]) -> bytes:
    """Return the file with a block of this name at its end, and no other of this name."""
    whole = without_block(data, name) or b""
    begin, end = _marks(name)
    block = b"\n".join([begin, *(os.fsencode(line) for line in lines), end])
    # A last line without an end gets none after the block either: that is how the removal knows.
    return whole + b"\n" + block if whole and not whole.endswith(b"\n") else whole + block + b"\n"


def without_block(data: bytes | None, name: str) -> bytes | None:
    """Return the file as it would be without the block; None stays None."""
    begin, end = _marks(name)
    found = re.search(rb"(?m)^%b$.*?^%b$" % (re.escape(begin), re.escape(end)), data or b"", re.DOTALL)
    if data is None or found is None:
        return data
    before, after = data[: found.start()], data[found.end() :]
    if not after:
        return before.removesuffix(b"\n")
    return before + after.removeprefix(b"\n")


def _marks(name: str) -> tuple[bytes, bytes]:
    return f"# harken: begin {name}".encode(), f"# harken: end {name}".encode()
