"""What one piece of text from an MCP server is: announcements with their channels, requests, and answers.

Pure. `notifications/x` goes to channel `x` with its params as text, `message` and `channel/message` to the channel that
they name, any other method to the channel of that name, and what is not JSON-RPC to `raw` (or, where an event has a
name of its own and its data is JSON, to that). Nothing is judged here: every text is hostile and is cleaned by ingest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from harken.memory import json_bytes

RAW: Final = "raw"
DEFAULT: Final = "default"
ALL: Final = "*"
PREFIX: Final = "notifications/"
ADDRESSED: Final = frozenset({"message", "channel/message"})

_CONTENT_KEYS: Final = ("content", "text", "message")
_TIME_KEYS: Final = ("timestamp", "sent_at", "created_at", "time", "ts")
_THREAD_KEYS: Final = ("thread", "thread_id", "threadId")
_META_KEYS: Final = ("meta", "metadata")
_SCALARS_KEPT: Final = ("id", "level", "logger", "uri", "eventId", "name")
_TELLING: Final = frozenset({"cursor", *_TIME_KEYS, *_THREAD_KEYS, *_META_KEYS, *_SCALARS_KEPT})
_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_PLAIN_EVENT: Final = "message"
MOST_IN_A_BATCH: Final = 1_000
_MAX_META: Final = 24
_MAX_META_CHARS: Final = 1_000
_MAX_SECONDS: Final = 1e11  # as seconds beyond any calendar: so it is milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One thing a server said without being asked. `upstream_id` is empty unless it is really unique."""

    channel: str
    content: str
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    upstream_id: str = ""
    thread: str = ""
    sent_at: datetime | None = None
    cursor: str = ""  # where the server would go on after it


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """Something the server wants from us."""

    id: int | float | str
    method: str


@dataclass(frozen=True, slots=True)
class RpcAnswer:
    """What the server answered to a request of ours."""

    id: object
    result: Mapping[str, object] = field(default_factory=dict[str, object])
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class RpcFrame:
    """Everything in one line or event."""

    announcements: Sequence[Announcement] = ()
    requests: Sequence[RpcRequest] = ()
    answers: Sequence[RpcAnswer] = ()


def read_frame(text: str, event: str = _PLAIN_EVENT) -> RpcFrame:
    """Return what one line, or the data of one event with this name, says."""
    if not text.strip():
        return RpcFrame()
    name = "" if event == _PLAIN_EVENT else event
    try:
        value = _decode(text)
    except (ValueError, RecursionError):
        return RpcFrame((_raw(text, name),))
    if isinstance(value, list) and len(value) > MOST_IN_A_BATCH:
        # No batch of a protocol: one text, which ingest cuts, and not a flood that holds everything else up.
        return RpcFrame((_raw(text, name),))
    is_batch = isinstance(value, list) and any(isinstance(each, dict) for each in value)
    items = value if isinstance(value, list) and is_batch else [value]
    try:
        return _read_items(items, name, text, is_batch=is_batch)
    except RecursionError:
        return RpcFrame((_raw(text, name),))


def _read_items(items: Sequence[object], name: str, text: str, *, is_batch: bool) -> RpcFrame:
    announcements: list[Announcement] = []
    requests: list[RpcRequest] = []
    answers: list[RpcAnswer] = []
    for item in items:
        match _read_item(item, name, _text(item) if is_batch else text):
            case Announcement() as announcement:
                announcements.append(announcement)
            case RpcRequest() as request:
                requests.append(request)
            case RpcAnswer() as answer:
                answers.append(answer)
    return RpcFrame(announcements, requests, answers)


def is_allowed(channels: Collection[str], channel: str) -> bool:
    """Whether the allow-list lets a channel in: its exact name, `*`, or no list at all."""
    return not channels or ALL in channels or channel in channels


def identified(announcements: Iterable[Announcement], stream: str, event_id: str, data: str) -> list[Announcement]:
    """Return them with ids made of the event's, unique in its stream, unless the server gave them better ones.

    The data is part of it: a server that uses an id twice for different things loses nothing.
    """
    return [
        each if each.upstream_id else replace(each, upstream_id=f"event/{_digest(stream, event_id, data, str(place))}")
        for place, each in enumerate(announcements)
    ]


def _read_item(item: object, event: str, text: str) -> Announcement | RpcRequest | RpcAnswer:
    if not isinstance(item, dict):
        return _raw(text, event)
    method, own_id = item.get("method"), item.get("id")
    if isinstance(method, str) and method:
        if isinstance(own_id, (int, float, str)):
            return RpcRequest(own_id, method)
        return _announcement(method, item.get("params"), event)
    if own_id is not None and ("result" in item or "error" in item):
        return _answer(own_id, item)
    # JSON, but not JSON-RPC: the name of the event is all there is to go by.
    return _raw(text, event, channel=event or RAW)


def _answer(own_id: object, item: Mapping[str, object]) -> RpcAnswer:
    result, error = item.get("result"), item.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        return RpcAnswer(own_id, error_code=code if isinstance(code, int) else 0)
    return RpcAnswer(own_id, result if isinstance(result, dict) else {})


def _announcement(method: str, params: object, event: str) -> Announcement:
    params = _without_protocol_meta(params)
    fields = params if isinstance(params, dict) else {}
    if method in ADDRESSED:
        named = fields.get("channel")
        channel = (named.strip() if isinstance(named, str) else "") or DEFAULT
        said = next((fields[key] for key in _CONTENT_KEYS if fields.get(key) not in (None, "", [], {})), params)
    else:
        channel = (method.removeprefix(PREFIX) if method.startswith(PREFIX) else method).strip() or method
        said = params
    content = _text(said) if said not in (None, "", [], {}) else method
    if _TELLING.isdisjoint(fields):
        # Most say nothing more, and there may be many.
        return Announcement(channel=channel, content=content, metadata=_metadata(method, event, {}))
    return Announcement(
        channel=channel,
        content=content,
        metadata=_metadata(method, event, fields),
        upstream_id=_own_id(channel, fields, content),
        thread=next((value for key in _THREAD_KEYS if isinstance(value := fields.get(key), str)), ""),
        sent_at=next((at for key in _TIME_KEYS if (at := _moment(fields.get(key))) is not None), None),
        cursor=cursor if isinstance(cursor := fields.get("cursor"), str) else "",
    )


def _own_id(channel: str, fields: Mapping[str, object], content: str) -> str:
    """Return an id where the server really gives one.

    An `eventId` is made for telling repeats, and with other words it names something else that happened to the same
    thing. A mere `id` is not: it names a build or an alert, which is announced again and again, perhaps in the same
    words; only with a time of its own does it name one announcement.
    """
    event_id = fields.get("eventId")
    if isinstance(event_id, str) and event_id:
        return f"own/{_digest(channel, str(fields.get('name')), event_id, content)}"
    own_id = fields.get("id")
    stamp = next((fields[key] for key in _TIME_KEYS if isinstance(fields.get(key), (str, int, float))), None)
    if isinstance(own_id, (str, int)) and not isinstance(own_id, bool) and own_id != "" and stamp is not None:
        return f"own/{_digest(channel, str(own_id), str(stamp), content)}"
    return ""


def _raw(text: str, event: str, channel: str = RAW) -> Announcement:
    return Announcement(channel=channel, content=text, metadata={"event": event} if event else {})


def _metadata(method: str, event: str, fields: Mapping[str, object]) -> dict[str, str]:
    found = {"method": method}
    if event:
        found["event"] = event
    if not fields:
        return found
    nested = [value for key in _META_KEYS if isinstance(value := fields.get(key), dict)]
    told = [(key, fields[key]) for key in _SCALARS_KEPT if key in fields]
    for key, value in [*told, *(pair for table in nested for pair in table.items())]:
        if len(found) == _MAX_META:
            break
        if isinstance(value, (str, int, float)):
            found.setdefault(str(key), _text(value)[:_MAX_META_CHARS])
    return found


def _without_protocol_meta(params: object) -> object:
    """Return the params without what only the protocol needs, so that both eras say the same."""
    if not isinstance(params, dict) or not isinstance(params.get("_meta"), dict):
        return params
    kept = {key: value for key, value in params["_meta"].items() if not str(key).startswith(_PROTOCOL_META)}
    others = {key: value for key, value in params.items() if key != "_meta"}
    return {**others, "_meta": kept} if kept else others


def _moment(value: object) -> datetime | None:
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return datetime.fromtimestamp(value / 1000 if value > _MAX_SECONDS else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def _decode(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        # It also reads half of a surrogate pair, which JavaScript writes when it cuts a text, and NaN.
        return _whole(json.loads(text))


def _whole(value: object) -> object:
    """Return the value with every half letter replaced, which could not be stored."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {str(_whole(key)): _whole(each) for key, each in value.items()}
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json_bytes(value).decode()


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:32]
