"""JSON that others sent, of any shape: decoded as far as it can be, and read by paths of keys. Pure.

For any shape the result is a value or nothing, cut to what is asked for. Above are the sources that are posted to, or
listen; it knows none of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, KeysView, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from harken.memory import json_bytes

MAX_WORD: Final = 200
MAX_ROWS: Final = 2_000
MAX_SHOWN: Final = 20
MAX_INT: Final = 10**18
_SPARE: Final = 4  # white space that is folded counts as one character
_MAX_SECONDS: Final = 100_000_000_000  # above it a time is in milliseconds


Json: TypeAlias = Mapping[str, object]
"""An object that others sent."""


class Payload:
    """What was sent, or a part of it."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.keys())

    def __contains__(self, key: str) -> bool:
        return key in self.keys()

    def keys(self) -> KeysView[str]:
        """Return the keys of a table; none where it is something else."""
        return (self.value if isinstance(self.value, dict) else dict[str, object]()).keys()

    def at(self, *path: str) -> object:
        """Return what is at a path of keys; None when there is nothing."""
        found = self.value
        for key in path:
            if not isinstance(found, dict):
                return None
            found = found.get(key)
        return found

    def part(self, *path: str) -> Payload:
        """Return the part at a path of keys."""
        return Payload(self.at(*path))

    def rows(self, *path: str) -> list[Payload]:
        """Return the tables of a list at a path."""
        found = self.at(*path)
        return [Payload(each) for each in found[:MAX_ROWS] if isinstance(each, dict)] if isinstance(found, list) else []

    def word(self, *path: str, most: int = MAX_WORD) -> str:
        """Return a text or a number at a path, on one line; empty when there is none."""
        found = self.at(*path)
        if isinstance(found, str):
            return one_line(found, most)
        if isinstance(found, int) and not isinstance(found, bool) and -MAX_INT < found < MAX_INT:
            return str(found)
        # In full: a time in seconds, cut to six digits, would be the same for many.
        return repr(found) if isinstance(found, float) else ""

    def first(self, *paths: str, most: int = MAX_WORD) -> str:
        """Return the first text of several paths, each written with dots."""
        return next((found for path in paths if (found := self.word(*path.split("."), most=most))), "")

    def headline(self, *path: str, most: int = MAX_WORD) -> str:
        """Return the first line of a text at a path."""
        found = self.at(*path)
        lines = found[: most * _SPARE].strip().splitlines() if isinstance(found, str) else []
        return one_line(lines[0], most) if lines else ""

    def quoted(self, *path: str) -> list[str]:
        """Return what a person wrote, all of it, each line with a mark before it; nothing when there is no text."""
        found = self.at(*path)
        if not isinstance(found, str) or not found.strip():
            return []
        return [f"> {line.rstrip()}".rstrip() for line in found.strip().splitlines()]

    def count(self, *path: str) -> int:
        """Return a number at a path, 0 when there is none or one that counts nothing."""
        found = self.at(*path)
        if not isinstance(found, int) or isinstance(found, bool):
            return 0
        return found if -MAX_INT < found < MAX_INT else 0

    def is_same(self, path: str, other: str) -> bool:
        """Whether two paths, written with dots, hold the same text or number as they are; nothing is not the same."""
        found, theirs = self.at(*path.split(".")), self.at(*other.split("."))
        is_said = isinstance(found, str | int) and not isinstance(found, bool) and bool(found)
        return is_said and type(found) is type(theirs) and found == theirs

    def is_true(self, *path: str) -> bool:
        """Whether there is a true at a path."""
        return self.at(*path) is True

    def moment(self, *path: str) -> datetime | None:
        """Return the time at a path, written as ISO 8601 or as seconds or milliseconds."""
        found = self.at(*path)
        try:
            if isinstance(found, str):
                if found.replace(".", "", 1).isdecimal() and found.isascii():
                    return datetime.fromtimestamp(float(found), UTC)
                said = datetime.fromisoformat(found[:64].replace(" UTC", "+00:00"))
                return said if said.tzinfo is not None else said.replace(tzinfo=UTC)
            if isinstance(found, int | float) and not isinstance(found, bool) and found > 0:
                return datetime.fromtimestamp(found / 1000 if found > _MAX_SECONDS else found, UTC)
        except (ValueError, OverflowError, OSError):
            return None
        return None

    def url(self, *paths: str) -> str:
        """Return the first web address of several paths."""
        for path in paths:
            found = self.word(*path.split("."), most=500)
            if found.startswith(("https://", "http://")) and " " not in found and not found.endswith("…"):
                return found
        return ""

    def as_json(self) -> str:
        """Return all of it as JSON in lines."""
        try:
            return msgspec.json.format(json_bytes(self.value), indent=2).decode()
        except (RecursionError, ValueError, OverflowError, msgspec.MsgspecError):
            return "(nested too deeply to be shown)"


def text_of(json: Json, name: str) -> str:
    """Return a text in an object; empty if it is none."""
    value = json.get(name)
    return value if isinstance(value, str) else ""


def within(json: Json, name: str) -> Json:
    """Return an object in another; empty if it is none."""
    value = json.get(name)
    return value if isinstance(value, Mapping) else {}


def items(json: Json, name: str = "value") -> list[Json]:
    """Return the objects of a list in an object."""
    value = json.get(name)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def iso_moment(text: str) -> datetime | None:
    """Return a time that is written as ISO 8601; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def json_object(body: bytes | None) -> Json:
    """Return the object that some bytes are in JSON; empty for anything else."""
    try:
        value = msgspec.json.decode(body) if body else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def decoded(body: bytes | str) -> object:
    """Return JSON as a value; raises `ValueError`, and `RecursionError` when it is nested too deeply."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        # It also reads half of a surrogate pair, which JavaScript writes when it cuts a text, a number without bounds,
        # and a mark at the start.
        return _whole(json.loads(body if isinstance(body, str) else body.decode("utf-8-sig")))


def _whole(value: object) -> object:
    """Return the value with every half letter replaced, which could not be stored."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {str(_whole(key)): _whole(each) for key, each in value.items()}
    return value


def digest_of(*parts: str) -> str:
    """Return a short name of some texts that no others have."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:32]


def one_line(text: str, most: int = MAX_WORD) -> str:
    """Return a text on one line and cut."""
    if len(text) <= most and text.isprintable() and "  " not in text:
        return text.strip()
    folded = " ".join(text[: most * _SPARE].split())
    is_cut = len(folded) > most or len(text) > most * _SPARE
    return f"{folded[: most - 1].rstrip()}…" if is_cut else folded


def joined(lines: Iterable[str]) -> str:
    """Return lines as a text, without the empty ones."""
    return "\n".join(line for line in lines if line)


def listed(lines: Iterable[str], total: int) -> list[str]:
    """Return the first lines of a list, and how many more there are."""
    shown = [line for line, _ in zip(lines, range(MAX_SHOWN), strict=False)]
    return [*shown, f"and {total - len(shown)} more"] if total > len(shown) else shown


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
