"""What we say to an MCP server, in both eras, 2025 and 2026, and what one piece of text from it is.

Pure: values in, bytes or headers out. A listener says little: who it is, that it is there, and what it wants to hear.
It declares no capabilities, so a server has no reason to ask for anything; what it asks nevertheless is answered. How
far a server was heard is a checkpoint, of use only at that server: its address is part of it, as a hash.

`read_frame` finds announcements with their channels, requests, and answers. `notifications/x` goes to channel `x` with
its params as text, `message` and `channel/message` to the channel that they name, any other method to the channel of
that name, and what is not JSON-RPC to `raw` (or, where an event has a name of its own and its data is JSON, to that).
Nothing is judged here: every text is hostile and is cleaned by ingest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from harken import __version__
from harken.memory import json_bytes
from harken.sources.feed import checkpoint_of, read_checkpoint
from harken.sources.payload import Payload, decoded, digest_of

HANDSHAKE: Final = "2025-11-25"  # what we offer; a server may answer with an older one
MODERN: Final = "2026-07-28"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ACTIVE: Final = "notifications/events/active"
EVENT: Final = "notifications/events/event"
HEARTBEAT: Final = "notifications/events/heartbeat"
EVENT_ERROR: Final = "notifications/events/error"
TERMINATED: Final = "notifications/events/terminated"
# What only says how a subscription is doing: of no interest to people.
ABOUT_LINK: Final = frozenset({ACKNOWLEDGED, ACTIVE, HEARTBEAT, EVENT_ERROR, TERMINATED})
EVENTS: Final = "io.modelcontextprotocol/events"
METHOD_NOT_FOUND: Final = -32601
MAX_NAME_CHARS: Final = 80

_CLIENT: Final[Mapping[str, str]] = {"name": "harken", "version": __version__}
_META: Final = "io.modelcontextprotocol/"
_CHANGES: Final[Mapping[str, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}

_HASH_CHARS: Final = 16

RAW: Final = "raw"
DEFAULT: Final = "default"
ALL: Final = "*"
PREFIX: Final = "notifications/"
EVENT_CHANNEL: Final = EVENT.removeprefix(PREFIX)
ADDRESSED: Final = frozenset({"message", "channel/message"})

_CONTENT_KEYS: Final = ("content", "text", "message")
_TIME_KEYS: Final = ("timestamp", "sent_at", "created_at", "time", "ts")
_THREAD_KEYS: Final = ("thread", "thread_id", "threadId")
_META_KEYS: Final = ("meta", "metadata")
_SCALARS_KEPT: Final = ("id", "level", "logger", "uri", "eventId", "name")
_TELLING: Final = frozenset({"cursor", *_TIME_KEYS, *_THREAD_KEYS, *_META_KEYS, *_SCALARS_KEPT})
_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_SUBSCRIPTION_ID: Final = f"{_META}subscriptionId"
_PLAIN_EVENT: Final = "message"
MAX_IN_A_BATCH: Final = 1_000
_MAX_META: Final = 24
_MAX_META_CHARS: Final = 1_000


def request(number: int, method: str, params: Mapping[str, object] | None = None) -> bytes:
    """Return a request."""
    told = {} if params is None else {"params": params}
    return json_bytes({"jsonrpc": "2.0", "id": number, "method": method, **told})


def notification(method: str) -> bytes:
    """Return a notification without params."""
    return json_bytes({"jsonrpc": "2.0", "method": method})


def initialize(number: int) -> bytes:
    """Return the request that begins a session of the 2025 era."""
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT}
    return request(number, "initialize", params)


def modern(number: int, method: str, params: Mapping[str, object] | None = None) -> bytes:
    """Return a request of the 2026 era, which says each time who asks."""
    meta = {f"{_META}protocolVersion": MODERN, f"{_META}clientInfo": _CLIENT, f"{_META}clientCapabilities": {}}
    return request(number, method, {**(params or {}), "_meta": meta})


def subscription(number: int, capabilities: object, resources: Sequence[str]) -> bytes | None:
    """Return the request for everything the server can announce, or nothing where that is nothing."""
    wanted: dict[str, object] = {}
    if isinstance(capabilities, dict):
        for name, change in _CHANGES.items():
            offered = capabilities.get(name)
            if isinstance(offered, dict) and offered.get("listChanged"):
                wanted[change] = True
    if resources:
        wanted["resourceSubscriptions"] = list(resources)
    return modern(number, "subscriptions/listen", {"notifications": wanted}) if wanted else None


def offers_events(capabilities: object) -> bool:
    """Whether a server says that it has streams of events, in the extension's place or where some put it."""
    if not isinstance(capabilities, dict):
        return False
    places = [capabilities, capabilities.get("extensions"), capabilities.get("experimental")]
    return any(isinstance(place, dict) and ("events" in place or EVENTS in place) for place in places)


def reply(asked: RpcRequest) -> bytes:
    """Return our answer to a request of the server: we are here, and can do nothing."""
    if asked.method == "ping":
        return json_bytes({"jsonrpc": "2.0", "id": asked.id, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": "This client only listens."}
    return json_bytes({"jsonrpc": "2.0", "id": asked.id, "error": error})


def server_name(answer: RpcAnswer) -> str:
    """Return what a server calls itself, on one line, or nothing."""
    meta = answer.result.get("_meta")
    modern_info = meta.get(f"{_META}serverInfo") if isinstance(meta, dict) else None
    info = answer.result.get("serverInfo", modern_info)
    if not isinstance(info, dict):
        return ""
    said = [each for key in ("name", "version") if isinstance(each := info.get(key), str)]
    return "".join(char for char in " ".join(said) if char.isprintable())[:MAX_NAME_CHARS].strip()


class _McpRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    at: str
    session: str = ""
    last_id: str = ""
    version: str = ""
    server: str = ""
    cursors: dict[str, str] = {}


class McpCheckpoint(msgspec.Struct, frozen=True):
    """Where to go on: the session, the last event in it, the version agreed on, and who the server was."""

    session: str
    last_id: str
    version: str
    server: str = ""

    def checkpoint(self, url: str) -> str:
        """Return it as a checkpoint for the server at this address."""
        return checkpoint_at(url, self, {})


def checkpoint_at(url: str, place: McpCheckpoint | None, cursors: Mapping[str, str]) -> str:
    """Return the place in a session and where each subscription is, as a checkpoint for the server at this address."""
    at, told = _hash(url), dict(cursors)
    if place is None:
        return checkpoint_of(_McpRecord(at, cursors=told))
    return checkpoint_of(_McpRecord(at, place.session, place.last_id, place.version, place.server, told))


def parse_place(checkpoint: str, url: str) -> McpCheckpoint | None:
    """Return the place a checkpoint names, if it is one at this address."""
    record = read_checkpoint(checkpoint, _McpRecord)
    if record is None or record.at != _hash(url) or not record.session or not record.last_id:
        return None
    return McpCheckpoint(record.session, record.last_id, record.version, record.server)


def parse_cursors(checkpoint: str, url: str) -> dict[str, str]:
    """Return where each subscription was, if the checkpoint says so of this address."""
    record = read_checkpoint(checkpoint, _McpRecord)
    return record.cursors if record is not None and record.at == _hash(url) else {}


class _MarkRecord(msgspec.Struct, frozen=True):
    at: str


def mark_checkpoint(url: str) -> str:
    """Return a checkpoint that names no place, only that something was heard from the server at this address."""
    return checkpoint_of(_MarkRecord(_hash(url)))


def was_heard(checkpoint: str, url: str) -> bool:
    """Whether a checkpoint of any kind is of the server at this address."""
    record = read_checkpoint(checkpoint, _MarkRecord)
    return record is not None and record.at == _hash(url)


def _hash(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]


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
    is_event: bool = False
    about_link: str = ""  # the method, where it only says how a subscription is doing
    subscription: object = None  # the id of the request that it belongs to, where the server says so
    is_truncated: bool = False  # the server says that it skipped something
    error_code: int | None = None


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
        value = decoded(text)
    except (ValueError, RecursionError):
        return RpcFrame((_raw(text, name),))
    if isinstance(value, list) and len(value) > MAX_IN_A_BATCH:
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
        each
        if each.upstream_id
        else replace(each, upstream_id=f"event/{digest_of(stream, event_id, data, str(place))}")
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
    if isinstance(params, dict):
        if method == EVENT and isinstance(params.get("name"), str) and params["name"].strip():
            return occurrence(params)
        if method in ABOUT_LINK:
            return _about_link(method, params)
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
        sent_at=next((at for key in _TIME_KEYS if (at := Payload(fields).moment(key)) is not None), None),
        cursor=cursor if isinstance(cursor := fields.get("cursor"), str) else "",
    )


def occurrence(said: Mapping[str, object]) -> Announcement:
    """Return one event, as it is pushed or polled: its name is the channel, its data the text.

    The event's id tells repeats: a server may write the data of one event anew each time.
    """
    named, event_id, data, cursor = said.get("name"), said.get("eventId"), said.get("data"), said.get("cursor")
    name = (named.strip() if isinstance(named, str) else "") or EVENT_CHANNEL
    is_named = isinstance(event_id, (str, int)) and not isinstance(event_id, bool) and event_id != ""
    meta = said.get("_meta")
    return Announcement(
        channel=name,
        content=_text(data) if data not in (None, "", [], {}) else name,
        metadata=_metadata(EVENT, "", {"eventId": event_id, "name": name}),
        upstream_id=f"{name}/{event_id}" if is_named else "",
        sent_at=Payload(said).moment("timestamp"),
        cursor=cursor if isinstance(cursor, str) else "",
        is_event=True,
        subscription=meta.get(_SUBSCRIPTION_ID) if isinstance(meta, dict) else None,
    )


def _about_link(method: str, params: Mapping[str, object]) -> Announcement:
    meta, cursor, error = params.get("_meta"), params.get("cursor"), params.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return Announcement(
        channel=method.removeprefix(PREFIX),
        content=_text(kept) if (kept := _without_protocol_meta(params)) else method,
        metadata={"method": method},
        cursor=cursor if isinstance(cursor, str) else "",
        about_link=method,
        subscription=meta.get(_SUBSCRIPTION_ID) if isinstance(meta, dict) else None,
        is_truncated=params.get("truncated") is True,
        error_code=code if isinstance(code, int) else None,
    )


def _own_id(channel: str, fields: Mapping[str, object], content: str) -> str:
    """Return an id where the server really gives one.

    An `eventId` is made for telling repeats, and with other words it names something else that happened to the same
    thing. A mere `id` is not: it names a build or an alert, which is announced again and again, perhaps in the same
    words; only with a time of its own does it name one announcement.
    """
    event_id = fields.get("eventId")
    if isinstance(event_id, str) and event_id:
        return f"own/{digest_of(channel, str(fields.get('name')), event_id, content)}"
    own_id = fields.get("id")
    stamp = next((fields[key] for key in _TIME_KEYS if isinstance(fields.get(key), (str, int, float))), None)
    if isinstance(own_id, (str, int)) and not isinstance(own_id, bool) and own_id != "" and stamp is not None:
        return f"own/{digest_of(channel, str(own_id), str(stamp), content)}"
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


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json_bytes(value).decode()
