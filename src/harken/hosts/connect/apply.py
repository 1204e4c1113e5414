"""Does a plan, and takes it back: the only module that writes into other programs' folders.

Each step is recorded before it is done. Taking back goes through the record from its end: what is as we left it becomes
what it was, byte for byte; where the file was changed since, the host's `removal` takes out our entries and leaves the
rest. It shows nothing and asks nothing: the command line does that, above.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from harken.errors import Conflict, Unavailable, UserError
from harken.hosts.connect.edits import block_remove, block_text
from harken.hosts.connect.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    FileState,
    digest,
    glance,
    keep,
    look,
    mode_of,
    read,
    restore,
    trouble,
    unfinished,
    write,
)
from harken.hosts.connect.plan import (
    CheckFinding,
    CommandStep,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstallTarget,
    Step,
    is_change,
)
from harken.hosts.connect.record import ConnectRecord, RecordedStep, forget, kept, load, locked, save, shared_blocks

COMMAND_SECONDS: Final = 90.0
SAID_CHARS: Final = 400

StepCallback = Callable[[Step], None]
"""Called before each step, for whoever shows progress."""


class FileOutcome(StrEnum):
    """What becomes of a file when a connection is taken back."""

    RESTORED = "as it was before"
    REMOVED = "removed"
    CLEANED = "without Harken's entries"  # somebody has written since
    STAYS = "stays, because another host reads it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisconnectResult:
    """What became of the files, and what could not be taken back."""

    restored: tuple[Path, ...] = ()  # as they were before `connect`
    cleaned: tuple[Path, ...] = ()  # written by others since: without our entries
    notes: tuple[str, ...] = ()


def apply(
    plan: ConnectPlan, place: InstallTarget, options: ConnectOptions, told: StepCallback = lambda _: None
) -> ConnectRecord:
    """Do a plan and return its record; when a step fails, a connection that was begun by this is taken back."""
    with locked(place.harken):
        found = load(place.harken, plan.host, place.project)
        project = str(place.project) if place.project else ""
        record = replace(found or ConnectRecord(host=plan.host, project=project), is_whole=False)
        record = replace(record, python=place.python, wake=options.wake, is_for_tasks=place.is_for_tasks)
        if (remote := options.remote) is not None:
            # No interpreter of this machine is part of such a connection.
            record = replace(record, python="", url=remote.url)
            record = replace(record, token_variable=remote.variable, token_file=remote.token_file)
        shared = shared_blocks(place.harken, record.key)
        record = replace(record, has_approvals=place.has_approvals)
        record = replace(record, can_tell=place.can_tell, blocks=_blocks(plan, record, shared))
        save(place.harken, record)
        try:
            for step in plan.steps:
                told(step)
                deed = _begin(step, place, kept(place.harken, record.key))
                record = replace(record, deeds=(*record.deeds, deed))
                save(place.harken, record)
                deed, problem = _do(step, deed)
                record = replace(record, deeds=(*record.deeds[:-1], deed))
                if isinstance(step, CommandStep):
                    save(place.harken, record)  # what it made is known only now
                if problem:
                    raise Unavailable(problem, "Look at what it says, then run this again.")
            record = replace(record, is_whole=True)
        finally:
            save(place.harken, record)
            if not record.is_whole and found is None and not _take_back(record, place, shared).is_partial:
                forget(place.harken, record.key)
        return record


def _blocks(plan: ConnectPlan, record: ConnectRecord, shared: Collection[str]) -> tuple[str, ...]:
    """Return the files with a marked block of ours to take out; a block that stood there before stays."""
    changes = [step for step in plan.steps if isinstance(step, FileEdit)]
    new = {
        step.path for step in changes if step.path in plan.blocks and block_text(step.before, file=step.path) is None
    }
    paths = ((path, os.path.realpath(path)) for path in plan.blocks)
    ours = (real for path, real in paths if path in new or real in shared)
    return tuple(dict.fromkeys((*record.blocks, *ours)))


def verify(connector: Connector, place: InstallTarget) -> Sequence[CheckFinding]:
    """Let a host look at what was written; what it leaves behind by being run for that is recorded, to go again."""
    with locked(place.harken):
        record = load(place.harken, connector.name, place.project)
        roots = _roots(record) if record else ()
        before = look(Path(root) for root in roots)
        if record:
            _keep_all(before, kept(place.harken, record.key))
        findings = connector.check(place)
        after = look(Path(root) for root in roots)
        if record and after != before:
            *others, last = record.deeds
            # The next look goes on where the last one ended: the record does not grow by looking.
            is_next = last.is_look and last.after == before and last.roots == roots
            deed = RecordedStep(before=last.before if is_next else before, after=after, roots=roots, is_look=True)
            save(place.harken, replace(record, deeds=(*others, *(() if is_next else (last,)), deed)))
        return findings


def _roots(record: ConnectRecord) -> tuple[str, ...]:
    """Return where a host may write because of us: where its commands do, and in folders that we made."""
    found: list[str] = []
    for deed in record.deeds:
        found += deed.roots
        found += [path for path, state in (deed.after or {}).items() if state.kind == "folder" and not deed.roots]
    return tuple(root for root in dict.fromkeys(found) if not any(str(p) in found for p in Path(root).parents))


def undo(connector: Connector, place: InstallTarget, told: StepCallback = lambda _: None) -> DisconnectResult:
    """Take back what connecting did; without a record, take out our entries. Doing it twice does no harm."""
    with locked(place.harken):
        record = load(place.harken, connector.name, place.project)
        # Looked at before anything goes: some entries are only found by what another file holds.
        early = _removable(connector, place) if record else ()
        shared = shared_blocks(place.harken, record.key) if record else frozenset[str]()
        taken = _take_back(record, place, shared) if record else _UndoProgress(is_partial=True, can_run=True)
        cleaned: list[Path] = []
        notes = list(taken.notes)
        if taken.is_partial:
            for change in early:
                if change.path not in taken.restored and read(change.path) == change.before:
                    told(change)
                    _put(change)
                    cleaned.append(change.path)
            for step in connector.removal(place).steps:
                told(step)
                if isinstance(step, FileEdit):
                    _put(step)
                    cleaned.append(step.path)
                elif taken.can_run and (said := _run(step.argv, step.environ)):
                    notes.append(said)
        if record is not None:
            for change in _blocks_left(record, shared):
                told(change)
                _put(change)
                taken = replace(taken, restored=tuple(dict.fromkeys((*taken.restored, change.path))))
            _remove_folders(record)
            forget(place.harken, record.key)
        return DisconnectResult(restored=taken.restored, cleaned=tuple(cleaned), notes=tuple(notes))


def _blocks_left(record: ConnectRecord, shared: Collection[str]) -> Iterator[FileEdit]:
    """Yield the files with a block that another connection wrote, and of which this one was the last user."""
    for path in (Path(name) for name in record.blocks if name not in shared):
        change = FileEdit(path=path, before=read(path), after=block_remove(read(path), file=path), why="the block")
        if is_change(change):
            yield change


def _removable(connector: Connector, place: InstallTarget) -> Sequence[FileEdit]:
    """Return the files without our entries, as far as they can be read."""
    try:
        steps = connector.removal(place).steps
    except UserError:
        return ()  # said when it is its turn
    return [step for step in steps if isinstance(step, FileEdit)]


def file_outcomes(record: ConnectRecord, shared: Collection[str] = ()) -> Mapping[Path, FileOutcome]:
    """Return the files that connecting wrote, and what taking it back would make of each.

    Those that are shared hold a block that another connection uses.
    """
    found: dict[Path, FileOutcome] = {Path(path): FileOutcome.CLEANED for path in record.blocks}
    for deed in record.deeds:
        now, after = _now(deed), deed.after or {}
        for path in {**deed.before, **after}:
            was, became = deed.before.get(path), after.get(path)
            if was != became and FileState("folder") not in {was, became} and not deed.is_look:
                back = FileOutcome.RESTORED if was else FileOutcome.REMOVED
                found[Path(path)] = back if now.get(path) in {was, became} else FileOutcome.CLEANED
    return found | {Path(path): FileOutcome.STAYS for path in record.blocks if path in shared}


def _begin(step: Step, place: InstallTarget, folder: Path) -> RecordedStep:
    """Return what is to be recorded before a step, with everything kept that it may overwrite."""
    if isinstance(step, CommandStep):
        roots = tuple(dict.fromkeys(str(_topmost_missing(path) or path) for path in step.touches))
        before = look(Path(root) for root in roots)
        _keep_all(before, folder)
        own = {name: value for name, value in step.environ.items() if place.environ.get(name) != value}
        # Where the host keeps its things must be the same when it is undone; of the rest only the names are kept,
        # because an environment holds secrets.
        paths = {name: value for name, value in step.environ.items() if Path(value).is_absolute()}
        passes = tuple(name for name in step.environ if name not in own and name not in paths)
        return RecordedStep(roots=roots, before=before, undo=step.undo, sets={**paths, **own}, passes=passes)
    target = Path(os.path.realpath(step.path))
    if read(target) != step.before:
        raise Conflict(f"{step.path} was changed meanwhile.", "Nothing is lost. Run this again.")
    folders = [parent for parent in reversed(target.parents) if not parent.exists()]
    before = glance([target])
    _keep_all(before, folder)
    after = {str(parent): FileState("folder") for parent in folders}
    if step.after is not None:
        mode = PRIVATE_FILE if target.is_relative_to(os.path.realpath(place.harken)) else mode_of(target)
        after[str(target)] = FileState("file", digest(step.after), mode)
    return RecordedStep(before=before, after=after)


def _topmost_missing(path: Path) -> Path | None:
    return next((parent for parent in [*reversed(path.parents), path] if not os.path.lexists(parent)), None)


def _keep_all(found: Mapping[str, FileState], folder: Path) -> None:
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    for path, state in found.items():
        if state.kind == "file" and not (folder / state.content).exists():
            data = read(Path(path))
            if data is None or keep(data, folder) != state.content:
                raise Conflict(f"{path} was changed meanwhile.", "Nothing is lost. Run this again.")


def _do(step: Step, deed: RecordedStep) -> tuple[RecordedStep, str]:
    """Do a step; return its record with what came of it, and what went wrong."""
    if isinstance(step, FileEdit):
        _put(step, next((state.mode for state in (deed.after or {}).values() if state.kind == "file"), None))
        return deed, ""
    problem = _run(step.argv, step.environ)
    return replace(deed, after=look(Path(root) for root in deed.roots)), problem


def _put(change: FileEdit, mode: int | None = None) -> None:
    if change.after is not None:
        write(change.path, change.after, mode)
        return
    try:
        Path(os.path.realpath(change.path)).unlink(missing_ok=True)
    except OSError as exc:
        raise trouble("remove", change.path, exc) from exc


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command of a host within its time; return what went wrong, in one sentence."""
    name = " ".join(argv)
    try:
        process = subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as exc:
        return f"`{name}` cannot be run: {exc.strerror}."
    with process:
        try:
            said, _ = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            return f"`{name}` did not end within {COMMAND_SECONDS:.0f} seconds."
        finally:
            _end(process)
    text = " ".join(said.decode("utf-8", "replace").split())[-SAID_CHARS:]
    return f"`{name}` failed with code {process.returncode}: {text}" if process.returncode else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command, with the processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UndoProgress:
    """How far a record could be taken back."""

    restored: tuple[Path, ...] = ()
    is_partial: bool = False  # some file is neither what it was nor what we made of it
    can_run: bool = False  # our own commands did not take it back: the host's removal may try its own
    notes: tuple[str, ...] = ()


def _take_back(record: ConnectRecord, place: InstallTarget, shared: Collection[str]) -> _UndoProgress:
    """Make every file that is as we left it what it was before, from the last step to the first; not shared ones."""
    restored: dict[Path, None] = {}
    problems: list[str] = []
    is_partial = False
    folder = kept(place.harken, record.key)
    for deed in reversed(record.deeds):
        now = _now(deed)
        is_undone = now == deed.before  # it never came to the command, or it was taken back before
        problem = _run(deed.undo, _environ(deed, place)) if deed.undo and not is_undone else ""
        then = _now(deed) if deed.undo else now
        for path in sorted({**deed.before, **(deed.after or {}), **then}, reverse=True):
            was = deed.before.get(path)
            if not deed.roots:
                with suppress(FileNotFoundError, NotADirectoryError):
                    unfinished(Path(path)).unlink()
            if then.get(path) == was or path in shared:
                continue
            if deed.after is not None and now.get(path) == deed.after.get(path):
                restore(Path(path), was, folder)
                restored[Path(path)] = None
            elif then.get(path) != FileState("folder"):
                is_partial = True
        if problem and _now(deed) != deed.before:
            problems.append(problem)
    return _UndoProgress(
        restored=tuple(path for path in restored if not path.is_dir()),
        is_partial=is_partial or bool(problems),
        can_run=bool(problems),
        notes=tuple(problems),
    )


def _now(deed: RecordedStep) -> dict[str, FileState]:
    if deed.roots:
        return look(Path(root) for root in deed.roots)
    return glance(Path(path) for path in {**deed.before, **(deed.after or {})})


def _environ(deed: RecordedStep, place: InstallTarget) -> dict[str, str]:
    passed = {name: place.environ[name] for name in deed.passes if name in place.environ}
    return {**passed, **deed.sets}


def _remove_folders(record: ConnectRecord) -> None:
    """Remove the folders that were made for our files and have become empty."""
    for deed in reversed(record.deeds):
        made = [path for path, state in (deed.after or {}).items() if state.kind == "folder"]
        for path in sorted(set(made) - set(deed.before), reverse=True):
            restore(Path(path), None, Path())
