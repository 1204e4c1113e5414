"""What lies in a folder, by name and status, and which of it is held. Reads, writes nothing, follows no link.

Of a repository only what can start programs or lead elsewhere is looked at: not its objects, references and index. Each
folder is opened from the top, part by part, so that a link in the way is an error and never a way out.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from harken.runs.held import BARE_LIVE, BARE_SIGNS, REPOSITORIES, fold, folded, is_repository

MAX_ENTRIES: Final = 200_000
MAX_DEPTH: Final = 500
MAX_LINKS: Final = 200  # whose ends are held too
# Some systems have none of these; nor can they open a file from a folder, so that nothing here is used there.
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
IN_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NO_LINK
FILE_TO_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | NO_LINK  # what was a file may be a pipe by now
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK


# Folders that programs fill, usually with very much: looked at last, and names and status say enough.
_BULKY: Final = frozenset(
    (
        b"node_modules",
        b".venv",
        b"venv",
        b"__pycache__",
        b"site-packages",
        b"target",
        b".tox",
        b".mypy_cache",
        b".cache",
    )
)


def is_bulky(path: bytes) -> bool:
    """Whether a path is in a folder that programs fill."""
    return not _BULKY.isdisjoint(path.split(b"/"))


class EntryKind(StrEnum):
    """What something in a folder is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"  # sockets, pipes, devices


class HeldState(StrEnum):
    """Whether something is held."""

    FREE = ""
    WHOLE = "whole"  # with everything in it
    NEW = "new"  # it must not appear; what becomes of one that was there is nobody's business
    OLD = "old"  # whole, but with nothing in it that is new: nobody uses a new worktree that no folder names


class TreeEntry(Struct, frozen=True, array_like=True, gc=False):
    """One thing in a folder. Folders have no times: these say only that something in them changed."""

    path: bytes  # relative, with slashes
    kind: EntryKind
    mode: int
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    target: bytes = b""  # of a link
    hold: HeldState = HeldState.FREE

    @property
    def parent(self) -> bytes:
        """The path of the folder it is in; empty for the top."""
        return self.path.rpartition(b"/")[0]

    @property
    def is_held(self) -> bool:
        """Whether it must be as it was."""
        return self.hold in (HeldState.WHOLE, HeldState.OLD)

    def looks_like(self, other: TreeEntry) -> bool:
        """Whether the system says the same about both."""
        return (
            self.kind is other.kind
            and (self.mode, self.size, self.mtime_ns, self.ctime_ns, self.inode)
            == (other.mode, other.size, other.mtime_ns, other.ctime_ns, other.inode)
            and self.target == other.target
        )


@dataclass(frozen=True, slots=True)
class FolderTree:
    """Everything in a folder, as far as it was looked at."""

    entries: Mapping[bytes, TreeEntry]
    listed: Collection[bytes]  # folders whose names are all known
    is_cut: bool = False  # it has more than is looked at, or some that cannot be
    ends: Collection[bytes] = ()  # where links that are held lead, in the folder


class _FolderPlace(StrEnum):
    """Where a folder is, which says what of it is looked at."""

    PLAIN = "plain"
    HELD = "held"
    GIT = "git"
    INFO = "info"
    MODULES = "modules"
    WORKTREES = "worktrees"
    OTHERS = "others"
    JJ = "jj"


_INTO: Final[Mapping[str, _FolderPlace]] = MappingProxyType(
    {
        **dict.fromkeys(BARE_LIVE, _FolderPlace.HELD),
        "info": _FolderPlace.INFO,
        "modules": _FolderPlace.MODULES,
        "worktrees": _FolderPlace.WORKTREES,
    }
)
# What is looked at of some folders, by folded name.
_LOOKED_AT: Final[Mapping[_FolderPlace, Mapping[str, _FolderPlace]]] = MappingProxyType(
    {
        _FolderPlace.GIT: _INTO,
        _FolderPlace.INFO: {"attributes": _FolderPlace.HELD},
        _FolderPlace.OTHERS: {
            **dict.fromkeys(("hgrc", "hgrc-not-shared", "sharedpath"), _FolderPlace.HELD),
            "repo": _FolderPlace.JJ,
        },
        _FolderPlace.JJ: {"config.toml": _FolderPlace.HELD},
    }
)
_LARGE: Final = frozenset({"logs", "objects", "refs"})


@dataclass(slots=True)
class _FolderWalk:
    """One look through a folder."""

    root: int
    parts: frozenset[str]
    ends: frozenset[bytes]
    most: int
    entries: dict[bytes, TreeEntry] = field(default_factory=dict[bytes, TreeEntry])
    listed: set[bytes] = field(default_factory=set[bytes])
    is_cut: bool = False

    def look(self) -> None:
        waiting, bulky = deque([(b"", _FolderPlace.PLAIN, 0)]), deque[tuple[bytes, _FolderPlace, int]]()
        while waiting or bulky:
            path, inside, depth = (waiting or bulky).popleft()
            if depth > MAX_DEPTH or len(self.entries) > self.most:
                self.is_cut = True
                continue
            for entry, below in self._list(path, inside):
                if entry.kind is EntryKind.FOLDER:
                    (bulky if is_bulky(entry.path) else waiting).append((entry.path, below, depth + 1))

    def _list(self, path: bytes, inside: _FolderPlace) -> Sequence[tuple[TreeEntry, _FolderPlace]]:
        try:
            with opened_folder(self.root, path) as folder, os.scandir(folder) as names:
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in names]
                targets = {name: _target(folder, name) for name, status in found if stat.S_ISLNK(status.st_mode)}
        except OSError:
            self.is_cut = True
            return ()
        self.listed.add(path)
        folds = {name: fold(name) for name, _ in found}
        is_bare = inside is _FolderPlace.PLAIN and is_repository(folds.values())
        if inside is _FolderPlace.MODULES and is_repository(folds.values()):
            inside = _FolderPlace.GIT
        above = fold(os.fsdecode(path.rpartition(b"/")[2]))
        beginning = path + b"/" if path else b""
        kept = list[tuple[TreeEntry, _FolderPlace]]()
        for name, status in found:
            below = _below(inside, folds[name], is_folder=stat.S_ISDIR(status.st_mode))
            if below is None:
                continue
            whole = beginning + os.fsencode(name)
            hold = HeldState.OLD if _FolderPlace.WORKTREES in (inside, below) else HeldState.WHOLE
            if inside is _FolderPlace.PLAIN:
                hold = self._hold(whole, above, folds[name], is_bare=is_bare)
                below = _first_inside(folds[name], is_bare=is_bare) if hold is HeldState.WHOLE else below
            entry = self.entries[whole] = _entry(whole, status, targets.get(name, b""), hold)
            kept.append((entry, below))
        return kept

    def _hold(self, path: bytes, above: str, own: str, *, is_bare: bool) -> HeldState:
        if own in self.parts or f"{above}/{own}" in self.parts or path in self.ends or (is_bare and own in BARE_LIVE):
            return HeldState.WHOLE
        return HeldState.NEW if is_bare and own in BARE_SIGNS else HeldState.FREE


def look_through(
    root: int, parts: Sequence[str], ends: Collection[bytes] = (), *, most: int = MAX_ENTRIES
) -> FolderTree:
    """Return what is in an open folder, and which of it is one of some held parts or of these ends of held links."""
    walk = _FolderWalk(root, frozenset(folded(parts)), frozenset(ends), most)
    walk.look()
    return FolderTree(walk.entries, frozenset(walk.listed), walk.is_cut, frozenset(ends))


def ends_of_links(tree: FolderTree, top: bytes) -> frozenset[bytes]:
    """Return where held links lead, as long as that is in the folder `top`: what is there is held by another name."""
    links = [entry for entry in tree.entries.values() if entry.is_held and entry.kind is EntryKind.LINK]
    ends = set[bytes]()
    for link in links[:MAX_LINKS]:
        at = link
        for _ in range(MAX_DEPTH):
            end = _joined(at.parent, at.target, top)
            if end is None or end in ends or end not in tree.entries:
                break
            at = tree.entries[end]
            if at.hold is HeldState.FREE:
                ends.add(end)
            if at.kind is not EntryKind.LINK:
                break
    return frozenset(ends)


@contextmanager
def opened_folder(root: int, path: bytes) -> Iterator[int]:
    """Open a folder below an open one, with no link on the way. Raises `OSError`."""
    at = os.dup(root)
    try:
        for part in filter(None, path.split(b"/")):
            below = os.open(part, IN_FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def read_content(root: int, path: bytes, most: int) -> bytes | None:
    """Return what a file below an open folder holds; None for one that is larger, is none, or cannot be read."""
    above, _, name = path.rpartition(b"/")
    try:
        with opened_folder(root, above) as folder:
            return content_of(folder, name, most)
    except OSError:
        return None


def content_of(folder: int, name: bytes, most: int) -> bytes | None:
    """Return what a file in an open folder holds; None for one that is larger, is none, or cannot be read."""
    try:
        file = os.open(name, FILE_TO_READ, dir_fd=folder)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        data = os.read(file, most + 1)
        while len(data) <= most and (more := os.read(file, most + 1 - len(data))):
            data += more
        return data if len(data) <= most else None
    except OSError:
        return None
    finally:
        os.close(file)


def _entry(path: bytes, status: os.stat_result, target: bytes, hold: HeldState) -> TreeEntry:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return TreeEntry(path, EntryKind.FOLDER, mode, hold=hold)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return TreeEntry(path, _kind(status.st_mode), mode, status.st_size, *times, status.st_ino, target, hold)


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    return EntryKind.LINK if stat.S_ISLNK(mode) else EntryKind.OTHER


def _target(folder: int, name: str) -> bytes:
    return os.fsencode(os.readlink(name, dir_fd=folder))


def _first_inside(own: str, *, is_bare: bool) -> _FolderPlace:
    """Return what of a folder is looked at that is held, in one that is not."""
    if own == ".git":
        return _FolderPlace.GIT
    if own in REPOSITORIES:
        return _FolderPlace.OTHERS
    return _INTO.get(own, _FolderPlace.HELD) if is_bare else _FolderPlace.HELD


def _below(inside: _FolderPlace, own: str, *, is_folder: bool) -> _FolderPlace | None:
    """Return where one is inside of something with a folded name; None for what is not looked at."""
    if inside is _FolderPlace.HELD:
        return _first_inside(own, is_bare=False)
    if inside is _FolderPlace.WORKTREES:
        return _FolderPlace.GIT
    if inside is _FolderPlace.MODULES:
        # The name of a module may have slashes: what is no repository leads to some.
        return (None if own in _LARGE else inside) if is_folder else _INTO.get(own)
    names = _LOOKED_AT.get(inside)
    return inside if names is None else names.get(own)


def _joined(folder: bytes, target: bytes, top: bytes) -> bytes | None:
    """Return where a link leads, by its letters; None for out of the folder `top`."""
    begin = b"" if target.startswith(b"/") else top + b"/" + folder + b"/"
    whole = os.path.normpath(begin + target)
    return whole[len(top) + 1 :] if whole.startswith(top + b"/") else None
