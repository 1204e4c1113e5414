"""What became of a folder since a snapshot. Decides from two trees; content is read where the system's word differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harken.automation import ChangeKind
from harken.runs.snapshot import MOST_HELD_BYTES, FolderSnapshot
from harken.runs.tree import EntryKind, FolderTree, HeldState, TreeEntry, read_content


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
    return kept is not None and now.size == len(kept) and read_content(root, now.path, MOST_HELD_BYTES) == kept


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
