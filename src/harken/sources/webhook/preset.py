"""What a preset is: how one service signs, and what its posts mean. Values and functions, no I/O.

`presets/` has one module for each service; a preset sees a post only in this order: `check` on the bytes as they came,
then `read` on what they say. What tells one delivery from all others is here too: many services name a delivery in a
header that they do not sign, so such a name counts only together with the body. The last part reads what was posted:
for any shape the result is a value or nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import Final, TypeAlias
from urllib.parse import parse_qs

import msgspec

from harken.errors import UserError
from harken.memory import json_bytes
from harken.model import Priority, Sender
from harken.sources.source import PostedRequest
from harken.sources.webhook import presets
from harken.sources.webhook.signing import SAMPLE, Keys, ShellSignature, plain_keys

MAX_ID: Final = 200
MARK_CHARS: Final = 32


def signed_id(found: str) -> str:
    """Return an id that is signed like the rest. One that is too long is not cut: two might become one."""
    return found if len(found) <= MAX_ID else f"sha256:{hashlib.sha256(found.encode()).hexdigest()}"


def body_id(posted: PostedRequest) -> str:
    """Return an id that only the signer of the body can change: the body itself."""
    return f"sha256:{hashlib.sha256(posted.body).hexdigest()}"


def unsigned_id(posted: PostedRequest, header: str) -> str:
    """Return an id that anyone may have written, with a mark of the body that it came with; empty without one."""
    found = posted.headers.get(header, "")
    if not found:
        return ""
    mark = hashlib.sha256(posted.body).hexdigest()[:MARK_CHARS]
    return f"{signed_id(found)}/{mark}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """What a post says. `id` names this delivery, so that the same one is stored once; empty: there is none."""

    channel: str
    text: str
    sender: Sender
    id: str = ""
    conversation: str = ""
    thread: str = ""
    sent_at: datetime | None = None
    priority: Priority = Priority.NORMAL
    meta: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class SkippedPost:
    """A post that is genuine and holds no message, such as a greeting."""

    why: str


@dataclass(frozen=True, slots=True)
class EchoAnswer:
    """A post that only wants to hear something back."""

    body: bytes


Reading: TypeAlias = WebhookEvent | SkippedPost | EchoAnswer


def sender_of(service: Sender, person: str, name: str, *, is_own: bool) -> Sender:
    """Return the sender of an event: a person only if all that it quotes is theirs, else the service.

    Trust goes by the id. A person who acts on what others wrote must not lend them their voice; the name still says
    who.
    """
    shown = name or person or service.name
    return Sender(f"{service.id}:{person}", shown) if is_own and person else Sender(service.id, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureCheck:
    """With what a post is judged: the keys, the time in seconds, and how far from it a signed time may be."""

    keys: Keys
    now: float
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How one service posts. `check` raises `Forbidden`, `read` raises `UserError`; both are quick and pure."""

    name: str
    title: str
    check: Callable[[PostedRequest, SignatureCheck], None]
    read: Callable[[PostedRequest, object], Reading]
    keys: Callable[[str], Keys] = plain_keys
    has_form: bool = False  # the JSON may also come as the field `payload` of a form
    is_secret_theirs: bool = False  # the service makes the secret, and the person brings it
    where: str = ""  # what to set at the service, in one sentence
    shell: Callable[[str], ShellSignature]  # how a shell signs, told what prints the secret
    sample: str = SAMPLE  # a body that is taken, for that shell
    new_secret: Callable[[bytes], str] = bytes.hex  # from random bytes to a secret as this service has them


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets: one module in `presets/` each."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(presets.__path__)))


def preset_module(name: str) -> ModuleType:
    """Return the module of a preset."""
    return importlib.import_module(f"{presets.__name__}.{name}")


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
    """Return what a person wrote, all of it, each line with a mark before it; nothing when there is no text."""
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
