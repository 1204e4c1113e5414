"""The folders of runs: what each was like before, what became of it, and that what is held is as it was.

Before a run that can change anything a snapshot is taken. When the run is over, however that came, also when the daemon
was killed meanwhile, the folder is compared with it. No host is relied on for what a run does not change: that is put
back, and what was there instead is set aside. What else changed is told, with diffs as far as they are small. Undoing
goes from an open folder, part by part, and follows no link: what a run has made of a folder must not lead it elsewhere.
Above is the runner; the record of a run is a file beside its output.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from harken.automation import ChangeKind, FileChange, FolderChanges, Run, RunEnd, RunId, RunState
from harken.errors import UserError
from harken.memory import json_bytes
from harken.runs.held import GIT, GIT_SETTINGS, HEAD, HeldPaths, fold, is_repository, is_undone
from harken.runs.output import MAX_REASON_CHARS, RECORD
from harken.runs.snapshot import (
    FILE_TO_READ,
    IN_FOLDER,
    MAX_DEPTH,
    MAX_HELD_BYTES,
    MAX_TEXT_BYTES,
    NEW_FILE,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    EntryKind,
    FolderDifference,
    FolderSnapshot,
    TreeEntry,
    differences,
    is_bulky,
    is_text,
    load,
    look_through,
    opened_folder,
    opened_top,
    read_content,
    take,
    unified_diff,
)
from harken.runs.tools import may_change, parse_tool, runs_git

_log = logging.getLogger("harken.runs")

MAX_NAMED: Final = 300  # files that changed
MAX_UNDONE: Final = 200  # that are named
MAX_DIFF_CHARS: Final = 20_000  # of one file
MAX_DIFFS_CHARS: Final = 300_000  # of all
MAX_PASSES: Final = 3  # what is put back can bring to light what is not
MAX_IN_REASON: Final = 5
MAX_NAME_CHARS: Final = 120
_BEFORE: Final = "-before"
_ASIDE: Final = "-set-aside"
_CUT: Final = "The folder has more than is looked at, or some that cannot be read: there may be more changes."


class _RecordHeading(msgspec.Struct, frozen=True):
    """The first line of a record."""

    more: int = 0
    note: str = ""
    is_known: bool = True


IsHarmless = Callable[[Path], bool]
"""Whether no setting in a file of git's could make git start a program."""


class RunFolders:
    """The folders of the runs of one home."""

    def __init__(self, place: Path, is_harmless: IsHarmless, held: HeldPaths) -> None:
        self._place = place
        self._held = held
        self._is_harmless = is_harmless

    def before(self, run: Run) -> None:
        """Keep what the folder of a run is like, if the run can change it. Raises `UserError` where that cannot be."""
        tools = [parse_tool(text) for text in run.tools]
        if not may_change(tools) or os.open not in os.supports_dir_fd:
            return
        try:
            self._place.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            take(Path(run.workdir), self._held.parts(tools), self._before(run.id))
        except OSError as exc:
            hint = "Nothing was started: what the run does not change could not be put back."
            raise UserError(f"The state of its folder could not be saved: {exc.strerror or exc}.", hint) from exc

    def after(self, run: Run) -> FolderChanges | None:
        """Compare the folder of a run that is over, put back what is held, and keep the record of it.

        One that was compared already is not compared again. None for a run that could change nothing.
        """
        place = self._before(run.id)
        snapshot, earlier = load(place), self.read(run.id)
        if snapshot is None:
            shutil.rmtree(place, ignore_errors=True)
            return earlier
        tools = [parse_tool(text) for text in run.tools]
        has_undo = is_undone(tools)
        try:
            with opened_top(Path(run.workdir)) as root:
                comparing = _FolderComparison(
                    root, snapshot, self.aside(run.id), self._is_harmless if runs_git(tools) else None
                )
                changes = comparing.compare()
                if has_undo and changes.kept:
                    self._keep(run.id, changes)  # a daemon that is killed now leaves this
                    changes = comparing.undo()
        except OSError as exc:
            note = f"The folder could not be looked at afterwards: {exc.strerror or exc}."
            changes = FolderChanges(note=note, is_known=False)
        if earlier is not None and has_undo:
            changes = _with_earlier(changes, earlier)
        self._keep(run.id, changes)
        shutil.rmtree(place, ignore_errors=True)
        return changes

    def read(self, run: RunId) -> FolderChanges | None:
        """Return what became of the folder of a run; None when it was not looked at."""
        try:
            first, *rest = self._record(run).read_bytes().splitlines()
            heading = msgspec.json.decode(first, type=_RecordHeading)
            files = tuple(msgspec.json.decode(line, type=FileChange) for line in rest)
        except (OSError, ValueError):
            return None
        return FolderChanges(files=files, more=heading.more, note=heading.note, is_known=heading.is_known)

    def aside(self, run: RunId) -> Path:
        """Return where is what a run left in the place of what is held."""
        return self._place / f"{run}{_ASIDE}"

    def sweep(self, known: Collection[RunId]) -> None:
        """Remove what is kept of runs that are not known any more."""
        for suffix in (RECORD, _BEFORE, _ASIDE):
            for path in self._place.glob(f"*{suffix}"):
                if path.name.removesuffix(suffix) in known:
                    continue
                if suffix == RECORD:
                    path.unlink(missing_ok=True)
                else:
                    shutil.rmtree(path, ignore_errors=True)

    def _keep(self, run: RunId, changes: FolderChanges) -> None:
        heading = _RecordHeading(changes.more, changes.note, changes.is_known)
        lines = [json_bytes(heading), *map(json_bytes, changes.files)]
        path = self._record(run)
        temporary = path.with_suffix(".tmp")
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
            with os.fdopen(file, "wb") as to:
                to.write(b"\n".join(lines) + b"\n")
            temporary.rename(path)
        except OSError as exc:
            _log.warning("what run %s changed cannot be kept: %s", run, exc)

    def _before(self, run: RunId) -> Path:
        return self._place / f"{run}{_BEFORE}"

    def _record(self, run: RunId) -> Path:
        return self._place / f"{run}{RECORD}"


def told_changes(changes: FolderChanges | None) -> Iterator[tuple[str, str]]:
    """Yield what became of a folder as lines of a run's output, with their kinds."""
    if changes is None:
        return
    for each in changes.files:
        if each.is_undone:
            yield "undone", f"{_shown(each.path)} ({each.kind.value})"
        else:
            yield "changed", f"{each.kind.value} {_shown(each.path)}" + (f" ({each.note})" if each.note else "")
    if changes.more:
        yield "changed", f"and {changes.more} more"
    if changes.note:
        yield "changed", changes.note


def judged(end: RunEnd, changes: FolderChanges | None, tools: Sequence[str]) -> RunEnd:
    """Return how a run ended, with what became of its folder: what it does not change, it must not have changed."""
    if changes is None or not is_undone([parse_tool(text) for text in tools]):
        return end
    said = [
        text
        for text, found in (
            ("it changed what a run may not change, and that was put back", changes.undone),
            ("it changed what a run may not change, and that could not be put back", changes.kept),
        )
        if found
        for text in [f"{text}: {_named(found)}"]
    ]
    if not changes.is_known:
        said.append("nobody knows what it changed: its folder could not be looked at afterwards")
    if not said:
        return end
    reason = "; ".join([*said, *([end.reason] if end.reason else [])])
    state = RunState.FAILED if end.state is RunState.DONE else end.state
    return replace(end, state=state, reason=reason[:MAX_REASON_CHARS])


def _named(found: Sequence[FileChange]) -> str:
    names = [_shown(each.path[:MAX_NAME_CHARS]) for each in found[:MAX_IN_REASON]]
    more = len(found) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _shown(path: str) -> str:
    """Return a path on one line, what cannot be seen as an escape: a run may call its files what it likes."""
    if path.isprintable():
        return path
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in path)


def _with_earlier(changes: FolderChanges, earlier: FolderChanges) -> FolderChanges:
    """Return changes with those that an earlier comparison, which was cut short, has put back."""
    named = {each.path for each in changes.files}
    done = (replace(each, is_undone=True) for each in earlier.files if each.is_held and each.path not in named)
    return replace(changes, files=(*done, *changes.files))


class _FolderComparison:
    """One comparison of a folder with what it was."""

    def __init__(self, root: int, snapshot: FolderSnapshot, aside: Path, is_harmless: IsHarmless | None) -> None:
        self._is_harmless = is_harmless
        self._root = root
        self._snapshot = snapshot
        self._aside = aside
        self._left = MAX_DIFFS_CHARS
        self._held: dict[bytes, FileChange] = {}
        self._found: Sequence[FolderDifference] = ()  # what is held, and not as it was
        self._free: Sequence[FileChange] = ()
        self._more = 0
        self._is_cut = False

    def compare(self) -> FolderChanges:
        """Return everything that is not as it was."""
        found = self._differences()
        self._found = [each for each in found if each.is_held]
        self._held = {each.path: self._described(each) for each in self._found}
        free = [each for each in found if not each.is_held]
        self._free = [self._described(each) for each in free[:MAX_NAMED]]
        self._more = len(free) - len(self._free)
        return self._changes()

    def undo(self) -> FolderChanges:
        """Put back what is held; return everything that is or was not as it was."""
        undoing = FolderUndo(self._root, self._snapshot, self._aside)
        for _ in range(MAX_PASSES):
            for each in self._found:
                self._undo(undoing, each)
            found = self._differences()
            self._found = [each for each in found if each.is_held]
            if not self._found:
                # What was cleared away with it is no change any more: a file of our own, of a daemon that was killed.
                still = {each.name for each in found}
                self._free = [each for each in self._free if each.path in still]
                break
        left = {each.path for each in self._found}
        self._held = {path: replace(change, is_undone=path not in left) for path, change in self._held.items()}
        return self._changes()

    def _undo(self, undoing: FolderUndo, each: FolderDifference) -> None:
        change = self._held.get(each.path) or self._described(each)
        try:
            aside = undoing.undo(each)
        except OSError as exc:
            self._held[each.path] = replace(change, note=f"could not be put back: {exc.strerror or exc}")
        else:
            self._held[each.path] = replace(change, aside=str(self._aside / aside) if aside else change.aside)

    def _changes(self) -> FolderChanges:
        held = list(self._held.values())[:MAX_UNDONE]
        more = self._more + len(self._held) - len(held)
        return FolderChanges(files=(*held, *self._free), more=more, note=_CUT if self._is_cut else "")

    def _differences(self) -> list[FolderDifference]:
        tree = look_through(self._root, self._snapshot.parts, self._snapshot.tree.ends)
        self._is_cut = tree.is_cut or self._snapshot.tree.is_cut
        return [self._let_go(each) for each in differences(self._snapshot, self._root, tree)]

    def _let_go(self, each: FolderDifference) -> FolderDifference:
        """Return a difference as one that is not held, if git itself may have made it and it starts nothing."""
        *above, name = each.name.split("/")
        is_settings = name in GIT_SETTINGS and GIT in above and each.kind is ChangeKind.CHANGED
        if self._is_harmless is None or not is_settings:
            return each
        content = read_content(self._root, each.path, MAX_HELD_BYTES)
        if content is None or (each.before and each.after and each.before.mode != each.after.mode):
            return each
        copy = self._snapshot.place / "settings"
        copy.write_bytes(content)
        return replace(each, is_held=False) if self._is_harmless(copy) else each

    def _described(self, each: FolderDifference) -> FileChange:
        diff, note = self._diff(each)
        return FileChange(path=each.name, kind=each.kind, is_held=each.is_held, note=note, diff=diff)

    def _diff(self, each: FolderDifference) -> tuple[str, str]:
        """Return how something differs, or why that is not shown."""
        note = _what_it_is(each)
        if note or (is_bulky(each.path) and not each.is_held):
            return "", note
        most = MAX_HELD_BYTES if each.is_held else MAX_TEXT_BYTES
        if each.after is not None and each.after.size > most:
            return "", "too large for a diff"
        was = self._snapshot.content(each.path) if each.before is not None else b""
        now = read_content(self._root, each.path, most) if each.after is not None else b""
        if was is None or now is None:
            return "", "what it held before was not kept" if was is None else "it cannot be read"
        try:
            return self._bounded(unified_diff(_text(was), _text(now)))
        except ValueError:
            return "", "not text"

    def _bounded(self, diff: str) -> tuple[str, str]:
        if self._left <= 0:
            return "", "not shown: the diffs of this run are too long"
        most = min(MAX_DIFF_CHARS, self._left)
        self._left -= min(len(diff), most)
        return (diff, "") if len(diff) <= most else (diff[:most].rpartition("\n")[0], "the rest is not shown")


def _text(content: bytes) -> str:
    """Return a text. Raises `ValueError` for what is none."""
    if not is_text(content):
        raise ValueError(content[:0])
    return content.decode()


def _what_it_is(each: FolderDifference) -> str:
    """Return what something is or was, if it is no file; or that only its mode has changed."""
    before, after = each.before, each.after
    if after is not None and after.kind is EntryKind.LINK:
        return f"a link to {after.target.decode('utf-8', 'backslashreplace')}"
    if before is not None and after is not None:
        if before.kind is not after.kind:
            return f"was a {before.kind.value}, is a {after.kind.value}"
        is_mode_only = (before.size, before.mtime_ns) == (after.size, after.mtime_ns) and before.mode != after.mode
        return f"mode {before.mode:o}, now {after.mode:o}" if is_mode_only else ""
    kinds = {entry.kind for entry in (before, after) if entry is not None} - {EntryKind.FILE}
    return "".join("neither file nor folder" if kind is EntryKind.OTHER else f"a {kind.value}" for kind in kinds)


MAX_ASIDE_BYTES: Final = 64_000_000  # that are copied where they cannot be moved
_FOLDER_MODE: Final = 0o755
_NAME_CHARS: Final = 60
_DISARMED: Final = ".set-aside"
_IN_THE_WAY: Final = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)


class FolderUndo:
    """Undoes differences in one folder."""

    def __init__(self, root: int, snapshot: FolderSnapshot, aside: Path) -> None:
        self._root = root
        self._snapshot = snapshot
        self._aside = aside
        self._left = MAX_ASIDE_BYTES
        self._count = (
            sum(1 for _ in aside.iterdir()) if aside.exists() else 0
        )  # a daemon that was killed may have begun

    def undo(self, each: FolderDifference) -> str:
        """Make something as it was; return where what was there is now, if it was anything. Raises `OSError`."""
        if each.before is not None and each.after is not None and _is_mode_of_folder(each.before, each.after):
            with opened_folder(self._root, each.before.parent) as folder:
                _set_mode(folder, _own(each.path), each.before.mode)
            return ""
        aside = self._set_aside(each.path) if each.kind is not ChangeKind.REMOVED else ""
        if each.before is not None:
            self._put_back(each.before)
        return aside

    def _put_back(self, entry: TreeEntry) -> None:
        name = _own(entry.path)
        with self._made_folder(entry.parent) as folder:
            if entry.kind is EntryKind.FOLDER:
                os.mkdir(name, dir_fd=folder)
                _set_mode(folder, name, entry.mode)
            elif entry.kind is EntryKind.LINK:
                os.symlink(entry.target, name, dir_fd=folder)
            elif entry.kind is EntryKind.FILE:
                content = self._snapshot.content(entry.path)
                if content is None:
                    raise OSError(errno.EFBIG, "its content was too large to be kept")
                _write(folder, name, entry, content)
            else:
                raise OSError(errno.EINVAL, "it was no file")

    @contextmanager
    def _made_folder(self, path: bytes) -> Iterator[int]:
        """Open a folder; what is missing on the way is made, and what is in the way is set aside."""
        at = os.dup(self._root)
        done = b""
        try:
            for part in filter(None, path.split(b"/")):
                done = done + b"/" + part if done else part
                below = self._entered(at, part, done)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _entered(self, folder: int, part: bytes, whole: bytes) -> int:
        try:
            return os.open(part, IN_FOLDER, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError as exc:
            if exc.errno not in _IN_THE_WAY:
                raise
            self._set_aside(whole)
        was = self._snapshot.tree.entries.get(whole)
        os.mkdir(part, dir_fd=folder)
        below = os.open(part, IN_FOLDER, dir_fd=folder)
        os.fchmod(below, was.mode if was is not None and was.kind is EntryKind.FOLDER else _FOLDER_MODE)
        return below

    def _set_aside(self, path: bytes) -> str:
        """Move something out of the folder; return its new name."""
        self._aside.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        name = _own(path)
        self._count += 1
        to = f"{self._count:04}-{_plain(path)}"
        with opened_folder(self._root, path.rpartition(b"/")[0]) as folder:
            _disarm(folder, name)
            place = os.open(self._aside, IN_FOLDER)
            try:
                os.rename(name, to, src_dir_fd=folder, dst_dir_fd=place)
            except OSError as exc:
                # EACCES: a folder that may not be written to cannot be moved into another one.
                if exc.errno not in (errno.EXDEV, errno.EACCES):
                    raise
                self._copy(folder, name, place, os.fsencode(to), 0)
                _remove(folder, name)
            finally:
                os.close(place)
        return to

    def _copy(self, folder: int, name: bytes, place: int, to: bytes, depth: int) -> None:
        """Copy something to another disk, as far as there is room."""
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=folder), to, dir_fd=place)
        elif stat.S_ISREG(status.st_mode) and status.st_size <= self._left:
            self._left -= status.st_size
            _copy_file(folder, name, place, to)
        elif stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
            os.mkdir(to, PRIVATE_FOLDER, dir_fd=place)
            below, there = os.open(name, IN_FOLDER, dir_fd=folder), os.open(to, IN_FOLDER, dir_fd=place)
            try:
                with os.scandir(below) as names:
                    for each in [os.fsencode(entry.name) for entry in names]:
                        self._copy(below, each, there, each, depth + 1)
            finally:
                os.close(below)
                os.close(there)


def _write(folder: int, name: bytes, entry: TreeEntry, content: bytes) -> None:
    """Make a file anew: what is there by that name may be another name of something else."""
    # The same name every time: who was killed before it had its own is cleared away by whoever does it again.
    temporary = f".harken-{hashlib.sha256(entry.path).hexdigest()[:16]}"
    try:
        os.unlink(temporary, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        temporary = f".harken-{secrets.token_hex(8)}"  # a folder is there, which a run has made to be in the way
    file = os.open(temporary, NEW_FILE, PRIVATE_FILE, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as to:
            to.write(content)
            to.flush()
            os.fchmod(to.fileno(), entry.mode)
            os.utime(to.fileno(), ns=(entry.mtime_ns, entry.mtime_ns))
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _disarm(folder: int, name: bytes, depth: int = 0) -> None:
    """Let git find no repository in a folder that is set aside: a shell there may have a prompt that asks it."""
    try:
        below = os.open(name, IN_FOLDER, dir_fd=folder)
    except OSError:
        return  # it is no folder, or none that can be entered
    try:
        with os.scandir(below) as entries:
            names = [entry.name for entry in entries]
        is_bare = is_repository({fold(each) for each in names})
        for each in names:
            own = each
            if fold(each) == GIT or (is_bare and fold(each) == HEAD):
                own = f"{each}{_DISARMED}"
                os.rename(each, own, src_dir_fd=below, dst_dir_fd=below)
            if depth < MAX_DEPTH:
                _disarm(below, os.fsencode(own), depth + 1)
    except OSError:
        return  # nothing can be renamed there; it is set aside all the same
    finally:
        os.close(below)


def _copy_file(folder: int, name: bytes, place: int, to: bytes) -> None:
    source = os.open(name, FILE_TO_READ, dir_fd=folder)
    with os.fdopen(source, "rb") as content:
        file = os.open(to, NEW_FILE, PRIVATE_FILE, dir_fd=place)
        with os.fdopen(file, "wb") as copy:
            shutil.copyfileobj(content, copy)


def _remove(folder: int, name: bytes) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _set_mode(folder: int, name: bytes, mode: int) -> None:
    """Give a folder its mode, also one that may not be opened."""
    if sys.platform != "linux":
        os.chmod(name, mode, dir_fd=folder)
        return
    place = os.open(name, os.O_PATH | IN_FOLDER, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{place}").chmod(mode)
    finally:
        os.close(place)


def _is_mode_of_folder(before: TreeEntry, after: TreeEntry) -> bool:
    return before.kind is EntryKind.FOLDER and after.kind is EntryKind.FOLDER


def _own(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _plain(path: bytes) -> str:
    """Return a name that says what something was, and is none that a program would look for."""
    chars = (char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in os.fsdecode(path))
    return "".join(chars)[-_NAME_CHARS:]
