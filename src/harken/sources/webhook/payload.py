"""From the bytes of a post to what they say, and looking into it without being hurt by it.

Only what was shown to be genuine gets here, and still nothing of it is believed: a payload has the shape that its
service documents, or any other. What becomes part of a line is short and on one line, and what somebody wrote freely is
quoted line by line, so that neither can pass for the lines around it. Characters are cleaned later, by ingest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs

import msgspec

from harken.errors import UserError
from harken.memory import json_bytes
from harken.sources.door import PostedRequest

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
PAYLOAD: Final = "payload"
MAX_FORM_FIELDS: Final = 8
HINT: Final = "Post JSON."


def media_type(posted: PostedRequest) -> str:
    """Return what a post says of itself: `JSON`, `FORM`, or something else in lower case."""
    said = posted.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Slack and others say application/json; CloudEvents and problem reports say what kind of JSON it is.
    return JSON if said.startswith("application/") and said.endswith("+json") else said


def payload_of(posted: PostedRequest) -> object:
    """Return what a post says; raises `UserError` when it cannot be read."""
    return decoded(_from_form(posted.body) if media_type(posted) == FORM else posted.body)


def decoded(body: bytes) -> object:
    """Return JSON as a value."""
    try:
        return msgspec.json.decode(body)
    except RecursionError as exc:
        raise UserError("The JSON is nested too deeply.", HINT) from exc
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _tolerant(body)


def _tolerant(body: bytes) -> object:
    """Return what a stricter reader refuses: half of a surrogate pair, a number without bounds, a mark at the start."""
    try:
        return _whole(json.loads(body.decode("utf-8-sig")))
    except (ValueError, RecursionError) as exc:
        raise UserError("The body is not JSON.", HINT) from exc


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {str(_whole(key)): _whole(each) for key, each in value.items()}
    return value


def _from_form(body: bytes) -> bytes:
    # That it is a form is not signed: a signed JSON body could be read as one that somebody else wrote into it.
    if not body.startswith(b"payload="):
        raise UserError(f"The form does not begin with {PAYLOAD}.", HINT)
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
        (value,) = fields[PAYLOAD]
        return value.encode("utf-8", "surrogatepass")
    except (ValueError, KeyError) as exc:
        raise UserError(f"The form has no single field {PAYLOAD}.", HINT) from exc


MAX_WORD: Final = 200
MAX_ROWS: Final = 2_000
MAX_SHOWN: Final = 20
MAX_INT: Final = 10**18
_SPARE: Final = 4  # white space that is folded counts as one character
_MAX_SECONDS: Final = 100_000_000_000  # above it a time is in milliseconds


def at(value: object, *path: str) -> object:
    """Return what is at a path of keys; None when there is nothing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def word(value: object, *path: str, most: int = MAX_WORD) -> str:
    """Return a text or a number at a path, on one line; empty when there is none."""
    found = value
    for key in path:
        if not isinstance(found, dict):
            return ""
        found = found.get(key)
    if isinstance(found, str):
        return one_line(found, most)
    if isinstance(found, int) and not isinstance(found, bool) and -MAX_INT < found < MAX_INT:
        return str(found)
    # In full: a time in seconds, cut to six digits, would be the same for many.
    return repr(found) if isinstance(found, float) else ""


def first(value: object, *paths: str, most: int = MAX_WORD) -> str:
    """Return the first text of several paths, each written with dots."""
    return next((found for path in paths if (found := word(value, *path.split("."), most=most))), "")


def one_line(text: str, most: int = MAX_WORD) -> str:
    """Return a text on one line and cut."""
    if len(text) <= most and text.isprintable() and "  " not in text:
        return text.strip()
    folded = " ".join(text[: most * _SPARE].split())
    is_cut = len(folded) > most or len(text) > most * _SPARE
    return f"{folded[: most - 1].rstrip()}…" if is_cut else folded


def headline(value: object, *path: str, most: int = MAX_WORD) -> str:
    """Return the first line of a text at a path."""
    found = at(value, *path)
    lines = found[: most * _SPARE].strip().splitlines() if isinstance(found, str) else []
    return one_line(lines[0], most) if lines else ""


def quoted(value: object, *path: str) -> list[str]:
    """Return what somebody wrote, all of it, each line with a mark before it; nothing when there is no text."""
    found = at(value, *path)
    if not isinstance(found, str) or not found.strip():
        return []
    return [f"> {line.rstrip()}".rstrip() for line in found.strip().splitlines()]


def rows(value: object, *path: str) -> list[Mapping[str, object]]:
    """Return the tables of a list at a path."""
    found = at(value, *path)
    return [each for each in found[:MAX_ROWS] if isinstance(each, dict)] if isinstance(found, list) else []


def table(value: object, *path: str) -> Mapping[str, object]:
    """Return the table at a path; an empty one when there is none."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def count(value: object, *path: str) -> int:
    """Return a number at a path, 0 when there is none or one that counts nothing."""
    found = at(value, *path)
    if not isinstance(found, int) or isinstance(found, bool):
        return 0
    return found if -MAX_INT < found < MAX_INT else 0


def is_same(value: object, path: str, other: str) -> bool:
    """Whether two paths, written with dots, hold the same text or number as they are; nothing is not the same."""
    found, theirs = at(value, *path.split(".")), at(value, *other.split("."))
    is_said = isinstance(found, str | int) and not isinstance(found, bool) and bool(found)
    return is_said and type(found) is type(theirs) and found == theirs


def is_true(value: object, *path: str) -> bool:
    """Whether there is a true at a path."""
    return at(value, *path) is True


def moment(value: object, *path: str) -> datetime | None:
    """Return the time at a path, written as ISO 8601 or as seconds or milliseconds."""
    found = at(value, *path)
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


def url(value: object, *paths: str) -> str:
    """Return the first web address of several paths."""
    for path in paths:
        found = word(value, *path.split("."), most=500)
        if found.startswith(("https://", "http://")) and " " not in found and not found.endswith("…"):
            return found
    return ""


def joined(lines: Iterable[str]) -> str:
    """Return lines as a text, without the empty ones."""
    return "\n".join(line for line in lines if line)


def listed(lines: Iterable[str], total: int) -> list[str]:
    """Return the first lines of a list, and how many more there are."""
    shown = [line for line, _ in zip(lines, range(MAX_SHOWN), strict=False)]
    return [*shown, f"and {total - len(shown)} more"] if total > len(shown) else shown


def as_json(value: object) -> str:
    """Return a value as JSON in lines."""
    try:
        return msgspec.json.format(json_bytes(value), indent=2).decode()
    except (RecursionError, ValueError, OverflowError, msgspec.MsgspecError):
        return "(nested too deeply to be shown)"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
