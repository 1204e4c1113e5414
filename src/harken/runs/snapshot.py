"""What a folder was like before a run, on the disk, so that it is known also when the daemon was killed meanwhile.

Everything is kept by name and status. Of what is held the content is kept too, and of other texts as long as there is
room: to put the one back, and to say what became of the other. A snapshot is a private folder of Harken's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from harken.runs.tree import (
    IN_FOLDER,
    NEW_FILE,
    EntryKind,
    FolderTree,
    TreeEntry,
    content_of,
    ends_of_links,
    is_bulky,
    look_through,
    opened_folder,
)

MOST_HELD_BYTES: Final = 1_000_000  # of one file that is held
MOST_TEXT_BYTES: Final = 256_000  # of one that is not
MOST_COPIED_BYTES: Final = 32_000_000  # of all that are not
MOST_KEPT_BYTES: Final = 64_000_000  # of all that are held
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
    """Open the folder of a run, whose path has no links. Raises `OSError`."""
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
        self._left = {True: MOST_KEPT_BYTES, False: MOST_COPIED_BYTES}
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
            return entry.size <= MOST_HELD_BYTES
        return entry.size <= MOST_TEXT_BYTES and not is_bulky(entry.path)

    def _keep(self, folder: int, entry: TreeEntry) -> None:
        is_held = entry.is_held
        if entry.size > self._left[is_held]:
            return
        content = content_of(folder, entry.path.rpartition(b"/")[2], MOST_HELD_BYTES if is_held else MOST_TEXT_BYTES)
        if content is None or not (is_held or is_text(content)):
            return
        self._left[is_held] -= len(content)
        self._contents[entry.path] = (self._at, len(content))
        self._at += self._to.write(content)


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, NEW_FILE, PRIVATE_FILE), "wb")
