"""Changes to TOML files in place: everything that is not named stays as it is, byte for byte.

Pure: bytes in, bytes out. tomlkit reads the file and writes the values. What comes out is read again and compared with
what was meant, so a file that is written in a way we did not foresee is refused and not damaged. Taking out what was
set gives the first bytes again, except that a table which was there and empty goes with the last key in it. `None`
stands for a file that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from harken.errors import UserError
from harken.hosts.connect.edits.text import BOM, decode, fault_at, newline_of

Table = dict[str, Any]

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY: Final = re.compile(rf"[ \t]*({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*")
_ONE_PART: Final = re.compile(_PART)
_BLANK: Final = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_STRINGS: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")|' + r"'''.*?'{3,5}(?!')|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)


def toml_value(data: bytes | None, path: Sequence[str] = (), *, file: Path) -> object:
    """Return what stands at a path; None when nothing does."""
    value: object = _parsed(_text(data, file), file)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def toml_set(data: bytes | None, path: Sequence[str], value: object, *, file: Path) -> bytes:
    """Set a key, or a whole table when the value is a mapping; what is equal already is left as it is written."""
    text = _text(data, file)
    there = toml_value(data, path, file=file)
    if data is not None and there == value and _types(there) == _types(value):
        return data
    if isinstance(value, Mapping) and isinstance(there, dict) and _has_header(text, path):
        whole = data or b""
        for name in (name for name in there if name not in value):
            whole = _edited(_text(whole, file), (*path, name), None, file)
        for name, inner in value.items():
            whole = toml_set(whole, (*path, name), inner, file=file)
        return whole
    return _edited(text, path, value, file)


def toml_remove(data: bytes | None, path: Sequence[str], *, file: Path) -> bytes | None:
    """Take out a key or a table with everything below it, and every table header that this leaves with nothing."""
    if data is None or toml_value(data, path, file=file) is None:
        return data
    return _edited(_text(data, file), path, None, file)


def _edited(text: str, path: Sequence[str], value: object, file: Path) -> bytes:
    """Return the text with a value set, or taken out when it is None; refuses when that is not what came out."""
    where = tuple(path)
    wanted = _changed(_parsed(text, file), where, value)
    found = list(statements(text.removeprefix(BOM)))
    body = text.removeprefix(BOM)
    inline = next((s for s in found if _is_inside(s, where)), None)
    if wanted is None:
        raise _unsafe(where, file)
    if inline is not None:
        after = _with_inline(body, inline, where[len(inline.path) :], value)
    elif value is None:
        after = _without(body, found, where)
    else:
        after = _with(body, found, where, value)
    try:
        is_right = _pruned(tomlkit.parse(after).unwrap()) == _pruned(wanted)
    except TOMLKitError:
        is_right = False
    if not is_right:
        raise _unsafe(where, file)
    return (text[: len(text) - len(body)] + after).encode()


def _unsafe(where: tuple[str, ...], file: Path) -> UserError:
    name = tomlkit.key(list(where)).as_string()
    return UserError(
        f"{file} is written in a way in which {name} cannot be changed safely.",
        "Nothing was changed. Change it by hand, or write the table with a [header] of its own.",
    )


def _text(data: bytes | None, file: Path) -> str:
    return decode(data or b"", file)


def _parsed(text: str, file: Path) -> Table:
    try:
        value: Table = tomlkit.parse(text.removeprefix(BOM)).unwrap()
    except ParseError as exc:
        reason = str(exc).partition(" at line ")[0].rstrip(".")
        raise fault_at(file, exc.line, exc.col + 1, reason[:1].lower() + reason[1:]) from exc
    except TOMLKitError as exc:
        raise UserError(f"{file}: {exc}.", "Nothing was changed. Repair the file, then run this again.") from exc
    return value


def _has_header(text: str, path: Sequence[str]) -> bool:
    return any(s.is_header and not s.is_listed and s.path == tuple(path) for s in statements(text.removeprefix(BOM)))


def _is_inside(statement: TomlStatement, where: tuple[str, ...]) -> bool:
    """Whether a path leads into the value of a statement, which is an inline table then."""
    size = len(statement.path)
    return not statement.is_header and not statement.is_listed and size < len(where) and where[:size] == statement.path


def _changed(value: Table, where: tuple[str, ...], new: object) -> Table | None:
    """Return the whole with a value set or taken out; None where the path leads through something that is no table."""
    whole = deepcopy(value)
    table = whole
    for part in where[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            return None
        table = inner
    if new is None:
        table.pop(where[-1], None)
    else:
        table[where[-1]] = deepcopy(new)
    return whole


def _pruned(value: object) -> object:
    """Return a value without empty tables: whether those stand there makes no difference."""
    if not isinstance(value, Mapping):
        return [_pruned(item) for item in value] if isinstance(value, list | tuple) else value
    inner = {name: _pruned(item) for name, item in value.items()}
    return {name: item for name, item in inner.items() if item != {}}


def _types(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _types(item) for name, item in value.items()}
    return [_types(item) for item in value] if isinstance(value, list | tuple) else type(value)


def _written(value: object) -> str:
    # In one line: several tables could not be told from the person's own when they are taken out.
    if isinstance(value, Mapping):
        pairs = (f"{tomlkit.key([name]).as_string()} = {_written(item)}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    return tomlkit.item(value).as_string()


def _line(name: Sequence[str], value: object) -> str:
    return f"{tomlkit.key(list(name)).as_string()} = {_written(value)}"


def _with_inline(text: str, statement: TomlStatement, rest: tuple[str, ...], value: object) -> str:
    inner = tomlkit.parse("v = " + text[statement.value_start : statement.value_end])
    table: Any = inner["v"]
    for part in rest[:-1]:
        table = table.setdefault(part, tomlkit.inline_table()) if value is not None else table.get(part, {})
    if value is None:
        table.pop(rest[-1], None)
    else:
        table[rest[-1]] = value
    new = inner.as_string().removeprefix("v = ").rstrip("\r\n")
    return text[: statement.value_start] + new + text[statement.value_end :]


def _with(text: str, found: Sequence[TomlStatement], where: tuple[str, ...], value: object) -> str:
    newline = newline_of(text)
    own = next((s for s in found if s.path == where and not s.is_header and not s.is_listed), None)
    if own is not None:
        return text[: own.value_start] + _written(value) + text[own.value_end :]
    parent = where[:-1]
    if isinstance(value, Mapping):
        lines = [f"[{tomlkit.key(list(where)).as_string()}]", *(_line([name], item) for name, item in value.items())]
        return _appended(text, lines, newline)
    beside = [s for s in found if not s.is_listed and (s.section == parent or s.path[: len(parent)] == parent)]
    beside = [s for s in beside if not s.is_header or s.path == parent]
    beside = [s for s in beside if len(s.section) <= len(parent)]
    if beside:
        last = beside[-1]
        line = _line(where[len(last.section) :], value)
        if text[: last.end].endswith("\n"):
            return text[: last.end] + line + newline + text[last.end :]
        return text[: last.end] + newline + line + text[last.end :]
    if not parent:
        return _line(where, value) + newline + text
    return _appended(text, [f"[{tomlkit.key(list(parent)).as_string()}]", _line(where[-1:], value)], newline)


def _appended(text: str, lines: Sequence[str], newline: str) -> str:
    block = newline.join(lines)
    if not text:
        return block + newline
    # A last line without an end gets none after the block either: that is how the removal knows.
    return text + newline + block + newline if text.endswith("\n") else text + newline + newline + block


def _without(text: str, found: Sequence[TomlStatement], where: tuple[str, ...]) -> str:
    gone = [s for s in found if s.path[: len(where)] == where]
    for size in range(len(where) - 1, 0, -1):
        header = next((s for s in found if s.is_header and not s.is_listed and s.path == where[:size]), None)
        if header is None or not _is_left_empty(text, found, header, gone):
            break
        gone = [s for s in found if s in gone or s is header]
    for first, last in reversed(_runs(gone)):
        text = _cut(text, first, last.end)
    return text


def _is_left_empty(
    text: str, found: Sequence[TomlStatement], header: TomlStatement, gone: Sequence[TomlStatement]
) -> bool:
    """Whether a header has nothing under it once some statements are gone, not even a comment of its own."""
    if any(s.section == header.path and s is not header and s not in gone for s in found):
        return False
    rest = "" if "#" not in text[header.start : header.end] else "#"
    place = header.end
    for statement in [s for s in found if s.start >= header.end]:
        rest += text[place : statement.start]
        place = statement.end
        if statement.is_header:
            break
    else:
        rest += text[place:]
    # A comment after an empty line is about what follows.
    return "#" not in rest.replace("\r", "").partition("\n\n")[0]


def _runs(gone: Sequence[TomlStatement]) -> list[tuple[TomlStatement, TomlStatement]]:
    """Return the first and last of each group of statements that directly follow each other."""
    runs: list[tuple[TomlStatement, TomlStatement]] = []
    for statement in gone:
        if runs and runs[-1][1].end == statement.start and not statement.is_header:
            runs[-1] = (runs[-1][0], statement)
        else:
            runs.append((statement, statement))
    return runs


def _cut(text: str, first: TomlStatement, end: int) -> str:
    """Take out a run, with the empty line before a header, and the line end before it where the file ends without."""
    before, after = text[: first.start], text[end:]
    if not after and not text.endswith("\n"):
        before = _less_line(before)
        return (_less_line(before) if first.is_header else before) + after
    less = _less_line(before)
    return (less if first.is_header and (less.endswith("\n") or not less) else before) + after


def _less_line(text: str) -> str:
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlStatement:
    """One header or one `key = value`, from the beginning of its line to the end of its last."""

    start: int
    end: int
    path: tuple[str, ...]
    section: tuple[str, ...]  # the path of the header that it stands under, or its own
    is_header: bool
    is_listed: bool = False  # in a [[list]] of tables: its path names several things
    value_start: int = 0
    value_end: int = 0


def statements(text: str) -> Iterator[TomlStatement]:
    """Yield the statements of a text that is valid TOML."""
    place, listed = 0, False
    section: tuple[str, ...] = ()
    while place < len(text):
        blank = _BLANK.match(text, place)
        if blank is not None:
            place = blank.end()
            continue
        start = place
        inside = _after_space(text, start)
        if text.startswith("[", inside):
            listed = text.startswith("[[", inside)
            path, after = _key(text, inside + 1 + listed)
            place = _line_end(text, after + 1 + listed)
            section = path
            yield TomlStatement(start=start, end=place, path=path, section=path, is_header=True, is_listed=listed)
            continue
        own, after = _key(text, start)
        begin = _after_space(text, after + 1)
        end = _value_end(text, begin)
        place = _line_end(text, end)
        yield TomlStatement(
            start=start,
            end=place,
            path=(*section, *own),
            section=section,
            is_header=False,
            is_listed=listed,
            value_start=begin,
            value_end=end,
        )


def _key(text: str, place: int) -> tuple[tuple[str, ...], int]:
    found = _KEY.match(text, place)
    if found is None:
        raise ValueError(text[place : place + 20])
    parts = (_plain(part) for part in _ONE_PART.findall(found[1]))
    return tuple(parts), found.end()


def _plain(part: str) -> str:
    if part[0] not in "\"'":
        return part
    value: str = tomlkit.parse(f"v = {part}").unwrap()["v"]
    return value


def _value_end(text: str, place: int) -> int:
    depth = 0
    end = place
    while place < len(text):
        char = text[place]
        if char in "\"'" and (string := _STRINGS.match(text, place)):
            place = end = string.end()
            continue
        if char == "#" or (char == "\n" and depth == 0):
            if depth == 0:
                break
            place = text.find("\n", place) if char == "#" else place
        depth += (char in "[{") - (char in "]}")
        place += 1
        if not char.isspace() and char != "#":
            end = place
    return end


def _after_space(text: str, place: int) -> int:
    while text[place : place + 1] in {" ", "\t"}:
        place += 1
    return place


def _line_end(text: str, place: int) -> int:
    found = text.find("\n", place)
    return len(text) if found < 0 else found + 1
