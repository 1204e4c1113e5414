"""Puts back what a run does not change, and sets aside what it left there instead, for the person to look at.

Every step is taken from an open folder, part by part, and follows no link: what a run has made of a folder must not
lead this elsewhere. Nothing is destroyed, unless what is set aside is larger than is kept.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from harken.automation import ChangeKind
from harken.runs.comparison import FolderDifference
from harken.runs.held import GIT, HEAD, fold, is_repository
from harken.runs.snapshot import PRIVATE_FILE, PRIVATE_FOLDER, FolderSnapshot
from harken.runs.tree import FILE_TO_READ, IN_FOLDER, MOST_DEPTH, NEW_FILE, EntryKind, TreeEntry, opened_folder

MOST_ASIDE_BYTES: Final = 64_000_000  # that are copied where they cannot be moved
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
        self._left = MOST_ASIDE_BYTES
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
        elif stat.S_ISDIR(status.st_mode) and depth < MOST_DEPTH:
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
    """Let git find no repository in a folder that is set aside: whoever looks there may have a prompt that asks it."""
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
            if depth < MOST_DEPTH:
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
