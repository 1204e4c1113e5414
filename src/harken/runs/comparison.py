"""What became of a folder since a snapshot, and the changes of a text as a diff.

Decides from two trees; content is read where the system's word differs. The shortest edit of a text is looked for as
long as it has few steps (Myers, "An O(ND) Difference Algorithm"); texts that differ by more are shown as one taken away
and another added. The library's own can take minutes for a text that was made for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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


MOST_STEPS: Final = 300  # lines that are added or taken away, beyond which no shortest edit is looked for
CONTEXT_LINES: Final = 3
MOST_LINE_CHARS: Final = 1_000
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
    for steps in range(min(MOST_STEPS, len(old) + len(new)) + 1):
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
    shown = text if len(text) <= MOST_LINE_CHARS else f"{text[:MOST_LINE_CHARS]}…"
    return f"{shown}\n{end}" if end else shown
