"""What a folder was like before a run, and what became of it since, with the changes of a text as a diff.

Looking into a folder writes nothing and follows no link: each folder is opened from the top, part by part, so that a
link in the way is an error and never a way out. Of a repository only what can start programs or lead elsewhere is
looked at: not its objects, references and index.

A snapshot is a private folder of Harken's own on the disk, so that it is known also when the daemon was killed
meanwhile. Everything is kept by name and status; of what is held the content is kept too, to put it back, and of other
texts as long as there is room. The comparison decides from two trees; content is read where the system's word differs.
The shortest edit of a text is looked for as long as it has few steps (Myers, "An O(ND) Difference Algorithm"); texts
that differ by more are shown as one taken away and another added. The library's own can take minutes for a text that
was made for it.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from harken.automation import ChangeKind
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


@dataclass(frozen=True, slots=True)
class FolderDifference:
    """One thing that is not as it was."""

    path: bytes
    kind: ChangeKind
    is_held: bool
    before: TreeEntry | None
    after: TreeEntry | None

    @property
    def name(self) -> str:
        """Its path for people."""
        return self.path.decode("utf-8", "backslashreplace")


def differences(snapshot: FolderSnapshot, root: int, after: FolderTree) -> list[FolderDifference]:
    """Return what is not as it was, what is held first and folders before what is in them."""
    found = [*_gone_or_changed(snapshot, root, after), *_new(snapshot.tree, after)]
    whole = {each.path for each in found if each.is_held and each.after is not None and _is_replaced(each)}
    return sorted(
        (each for each in found if each.kind is not ChangeKind.ADDED or not _is_below(each.path, whole)),
        key=lambda each: (not each.is_held, each.path),
    )


def _gone_or_changed(snapshot: FolderSnapshot, root: int, after: FolderTree) -> Iterator[FolderDifference]:
    for path, before in snapshot.tree.entries.items():
        now = after.entries.get(path)
        is_held = before.is_held or (now is not None and now.is_held)
        if now is None:
            if before.kind is not EntryKind.FOLDER and _is_known(path, after):
                yield FolderDifference(path, ChangeKind.REMOVED, is_held, before, None)
        elif not _is_same(snapshot, root, before, now, is_held=is_held):
            yield FolderDifference(path, ChangeKind.CHANGED, is_held, before, now)


def _new(before: FolderTree, after: FolderTree) -> Iterator[FolderDifference]:
    """Yield what was not there: only what is in folders of which every name was known."""
    verdicts = {b"": False}  # of folders: whether they are new
    let_go = set[bytes]()
    for path, now in after.entries.items():  # folders come before what is in them
        is_new = path not in before.entries and (now.parent in before.listed or _is_new(now.parent, before, verdicts))
        if now.kind is EntryKind.FOLDER:
            verdicts[path] = is_new
        if is_new and (now.hold is HeldState.OLD or now.parent in let_go):
            let_go.add(path)
            continue
        is_held = now.hold is not HeldState.FREE
        if is_new and (is_held or now.kind is not EntryKind.FOLDER):
            yield FolderDifference(path, ChangeKind.ADDED, is_held, None, now)


def _is_new(folder: bytes, before: FolderTree, verdicts: Mapping[bytes, bool]) -> bool:
    was = before.entries.get(folder)
    return verdicts.get(folder, False) if was is None else was.kind is not EntryKind.FOLDER


def _is_known(path: bytes, tree: FolderTree) -> bool:
    """Whether something that is not in a tree is not there: the nearest folder above that is there was read."""
    above = path.rpartition(b"/")[0]
    while above and above not in tree.entries:
        above = above.rpartition(b"/")[0]
    return not above or above in tree.listed or tree.entries[above].kind is not EntryKind.FOLDER


def _is_same(snapshot: FolderSnapshot, root: int, before: TreeEntry, now: TreeEntry, *, is_held: bool) -> bool:
    if before.kind is EntryKind.FOLDER and now.kind is EntryKind.FOLDER:
        return before.mode == now.mode or not is_held
    if before.looks_like(now):
        return True
    if before.kind is not now.kind or before.mode != now.mode or before.target != now.target:
        return False
    if before.kind is not EntryKind.FILE:
        return True
    kept = snapshot.content(before.path)
    return kept is not None and now.size == len(kept) and read_content(root, now.path, MAX_HELD_BYTES) == kept


def _is_replaced(each: FolderDifference) -> bool:
    """Whether what is there now is moved away as a whole."""
    if each.before is None or each.after is None:
        return True
    return not (each.before.kind is EntryKind.FOLDER and each.after.kind is EntryKind.FOLDER)


def _is_below(path: bytes, folders: set[bytes]) -> bool:
    above = path.rpartition(b"/")[0]
    while above:
        if above in folders:
            return True
        above = above.rpartition(b"/")[0]
    return False


MAX_STEPS: Final = 300  # lines that are added or taken away, beyond which no shortest edit is looked for


CONTEXT_LINES: Final = 3


MAX_LINE_CHARS: Final = 1_000


NO_END: Final = "\\ No newline at end of file"


_Edit = tuple[str, str]  # a sign, ` `, `-` or `+`, and a line


def unified_diff(before: str, after: str) -> str:
    """Return the lines that differ, with some around them, under headings that say where they are."""
    return "\n".join(_hunks(_edits(_lines(before), _lines(after))))


def _lines(text: str) -> Sequence[str]:
    """Return the lines of a text; the last says so if nothing ends it."""
    if not text:
        return ()
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else [*lines[:-1], f"{lines[-1]}\n{NO_END}"]


def _edits(before: Sequence[str], after: Sequence[str]) -> list[_Edit]:
    most = min(len(before), len(after))
    head = next((at for at in range(most) if before[at] != after[at]), most)
    tail = next((at for at in range(most - head) if before[-1 - at] != after[-1 - at]), most - head)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    middle = _shortest(old, new)
    if middle is None:
        middle = [("-", line) for line in old] + [("+", line) for line in new]
    return [
        *((" ", line) for line in before[:head]),
        *middle,
        *((" ", line) for line in before[len(before) - tail :]),
    ]


def _shortest(old: Sequence[str], new: Sequence[str]) -> list[_Edit] | None:
    """Return the shortest edit; None when it has more steps than are looked for."""
    furthest = {1: 0}
    traces = list[dict[int, int]]()
    for steps in range(min(MAX_STEPS, len(old) + len(new)) + 1):
        traces.append(dict(furthest))
        for way in range(-steps, steps + 1, 2):
            is_down = way == -steps or (way != steps and furthest[way - 1] < furthest[way + 1])
            x = furthest[way + 1] if is_down else furthest[way - 1] + 1
            while x < len(old) and x - way < len(new) and old[x] == new[x - way]:
                x += 1
            furthest[way] = x
            if x >= len(old) and x - way >= len(new):
                return _traced(old, new, traces)
    return None


def _traced(old: Sequence[str], new: Sequence[str], traces: Sequence[dict[int, int]]) -> list[_Edit]:
    edits = list[_Edit]()
    x, y = len(old), len(new)
    for steps in range(len(traces) - 1, -1, -1):
        furthest, way = traces[steps], x - y
        is_down = way == -steps or (way != steps and furthest[way - 1] < furthest[way + 1])
        from_way = way + 1 if is_down else way - 1
        from_x = furthest[from_way] if steps else 0
        from_y = from_x - from_way if steps else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            edits.append((" ", old[x]))
        if steps:
            edits.append(("+", new[y - 1]) if is_down else ("-", old[x - 1]))
            x, y = from_x, from_y
    return edits[::-1]


def _hunks(edits: Sequence[_Edit]) -> Iterator[str]:
    changed = [at for at, (sign, _) in enumerate(edits) if sign != " "]
    spans = list[tuple[int, int]]()
    for at in changed:
        begin, end = max(0, at - CONTEXT_LINES), min(len(edits), at + CONTEXT_LINES + 1)
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    olds = _counted(edits, "+")
    news = _counted(edits, "-")
    for begin, end in spans:
        yield f"@@ -{_range(olds, begin, end)} +{_range(news, begin, end)} @@"
        yield from (f"{sign}{_cut(line)}" for sign, line in edits[begin:end])


def _counted(edits: Sequence[_Edit], without: str) -> Sequence[int]:
    """Return how many lines of one text come before each edit."""
    counts = [0]
    for sign, _ in edits:
        counts.append(counts[-1] + (sign != without))
    return counts


def _range(counts: Sequence[int], begin: int, end: int) -> str:
    length = counts[end] - counts[begin]
    return f"{counts[begin] + (length > 0)},{length}"


def _cut(line: str) -> str:
    text, _, end = line.partition("\n")
    shown = text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}…"
    return f"{shown}\n{end}" if end else shown


MAX_HELD_BYTES: Final = 1_000_000  # of one file that is held


MAX_TEXT_BYTES: Final = 256_000  # of one that is not


MAX_COPIED_BYTES: Final = 32_000_000  # of all that are not


MAX_KEPT_BYTES: Final = 64_000_000  # of all that are held


PRIVATE_FOLDER: Final = 0o700


PRIVATE_FILE: Final = 0o600


_INDEX: Final = "index"


_CONTENTS: Final = "contents"


_TEXT_PROBE_BYTES: Final = 8_000  # bytes, to tell a text by


class _SnapshotIndex(msgspec.Struct, frozen=True):
    """A snapshot without the contents."""

    entries: list[TreeEntry]
    listed: list[bytes]
    ends: list[bytes]
    parts: list[str]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """What a folder was like."""

    tree: FolderTree
    parts: tuple[str, ...]
    contents: Mapping[bytes, tuple[int, int]]  # where the content of a path is
    place: Path

    def content(self, path: bytes) -> bytes | None:
        """Return what a file held; None when that was not kept."""
        where = self.contents.get(path)
        if where is None:
            return None
        try:
            with (self.place / _CONTENTS).open("rb") as kept:
                kept.seek(where[0])
                found = kept.read(where[1])
        except OSError:
            return None
        return found if len(found) == where[1] else None


def is_text(content: bytes) -> bool:
    """Whether a file holds text, as far as its beginning tells."""
    return b"\0" not in content[:_TEXT_PROBE_BYTES]


@contextmanager
def opened_top(folder: Path) -> Iterator[int]:
    """Open the folder of a run, by a path without links. Raises `OSError`."""
    top = os.open("/", IN_FOLDER)
    try:
        with opened_folder(top, os.fsencode(folder)) as found:
            yield found
    finally:
        os.close(top)


def take(folder: Path, parts: tuple[str, ...], place: Path) -> FolderSnapshot:
    """Keep what a folder is like now, with some parts of paths held. Raises `OSError` where that cannot be."""
    place.mkdir(mode=PRIVATE_FOLDER, parents=True)
    with opened_top(folder) as root:
        tree = look_through(root, parts)
        if ends := ends_of_links(tree, os.fsencode(folder)):
            tree = look_through(root, parts, ends)
        with _new_file(place / _CONTENTS) as to:
            contents = _ContentCopier(root, tree, to).copy()
    entries = list(tree.entries.values())
    index = _SnapshotIndex(entries, list(tree.listed), list(tree.ends), list(parts), tree.is_cut)
    # The index comes last: without it there is no snapshot.
    with _new_file(place / f"{_INDEX}~") as to:
        to.write(msgspec.msgpack.encode((index, contents)))
    (place / f"{_INDEX}~").rename(place / _INDEX)
    return FolderSnapshot(tree, parts, contents, place)


def load(place: Path) -> FolderSnapshot | None:
    """Return the snapshot in a folder; None when there is none, or not all of it."""
    try:
        data = (place / _INDEX).read_bytes()
        index, contents = msgspec.msgpack.decode(data, type=tuple[_SnapshotIndex, dict[bytes, tuple[int, int]]])
    except (OSError, msgspec.MsgspecError):
        return None
    entries = {entry.path: entry for entry in index.entries}
    tree = FolderTree(entries, frozenset(index.listed), index.is_cut, frozenset(index.ends))
    return FolderSnapshot(tree, tuple(index.parts), contents, place)


class _ContentCopier:
    """Copies the contents of a folder into one file."""

    def __init__(self, root: int, tree: FolderTree, to: BinaryIO) -> None:
        self._root = root
        self._tree = tree
        self._to = to
        self._at = 0
        self._left = {True: MAX_KEPT_BYTES, False: MAX_COPIED_BYTES}
        self._contents: dict[bytes, tuple[int, int]] = {}

    def copy(self) -> dict[bytes, tuple[int, int]]:
        """Copy what is to be kept; return where it is."""
        by_folder = dict[bytes, list[TreeEntry]]()
        for entry in self._tree.entries.values():
            if self._is_wanted(entry):
                by_folder.setdefault(entry.parent, []).append(entry)
        for above, entries in by_folder.items():
            try:
                with opened_folder(self._root, above) as folder:
                    for entry in entries:
                        self._keep(folder, entry)
            except FileNotFoundError:
                continue  # somebody else's doing, a moment ago
        return self._contents

    def _is_wanted(self, entry: TreeEntry) -> bool:
        if entry.kind is not EntryKind.FILE:
            return False
        if entry.is_held:
            return entry.size <= MAX_HELD_BYTES
        return entry.size <= MAX_TEXT_BYTES and not is_bulky(entry.path)

    def _keep(self, folder: int, entry: TreeEntry) -> None:
        is_held = entry.is_held
        if entry.size > self._left[is_held]:
            return
        content = content_of(folder, entry.path.rpartition(b"/")[2], MAX_HELD_BYTES if is_held else MAX_TEXT_BYTES)
        if content is None or not (is_held or is_text(content)):
            return
        self._left[is_held] -= len(content)
        self._contents[entry.path] = (self._at, len(content))
        self._at += self._to.write(content)


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, NEW_FILE, PRIVATE_FILE), "wb")
