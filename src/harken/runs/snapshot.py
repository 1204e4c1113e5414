"""What a folder was like before a run, and what became of it since, with the changes of a text as a diff.

A snapshot is a private folder of Harken's own on the disk, so that it is known also when the daemon was killed
meanwhile. Everything is kept by name and status; of what is held the content is kept too, to put it back, and of other
texts as long as there is room. The comparison decides from two trees; content is read where the system's word differs.
The shortest edit of a text is looked for as long as it has few steps (Myers, "An O(ND) Difference Algorithm"); texts
that differ by more are shown as one taken away and another added. The library's own can take minutes for a text that
was made for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from harken.automation import ChangeKind
from harken.runs.tree import (
    IN_FOLDER,
    NEW_FILE,
    EntryKind,
    FolderTree,
    HeldState,
    TreeEntry,
    content_of,
    ends_of_links,
    is_bulky,
    look_through,
    opened_folder,
    read_content,
)


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
_LOOKED_AT: Final = 8_000  # bytes, to tell a text by


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
    return b"\0" not in content[:_LOOKED_AT]


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
