"""What we say to an MCP server, in both eras: the handshake of 2025, and the discovery and subscription of 2026.

Pure: values in, bytes or headers out. A listener says little: who it is, that it is there, and what it wants to hear.
It declares no capabilities, so a server has no reason to ask for anything; what it asks nevertheless is answered. How
far a server was heard is a checkpoint, of use only at that server: its address is part of it, as a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from harken import __version__
from harken.memory import json_bytes
from harken.sources.feed import checkpoint_of, read_checkpoint
from harken.sources.mcp.routing import RpcAnswer, RpcRequest

HANDSHAKE: Final = "2025-11-25"  # what we offer; a server may answer with an older one
MODERN: Final = "2026-07-28"
ACKNOWLEDGED: Final = "subscriptions/acknowledged"  # the channel of what only says that a subscription stands
ACTIVE: Final = "events/active"
HEARTBEAT: Final = "events/heartbeat"
OWN_CHANNELS: Final = frozenset({ACKNOWLEDGED, ACTIVE, HEARTBEAT})  # in the 2026 era; of no interest to people
EVENTS: Final = "io.modelcontextprotocol/events"
MAX_EVENT_STREAMS: Final = 20
METHOD_NOT_FOUND: Final = -32601
MAX_NAME_CHARS: Final = 80

_CLIENT: Final[Mapping[str, str]] = {"name": "harken", "version": __version__}
_META: Final = "io.modelcontextprotocol/"
_CHANGES: Final[Mapping[str, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


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


def pushed_events(answer: RpcAnswer) -> list[str]:
    """Return the names of the events that can be streamed to us without knowing more about them."""
    listed = answer.result.get("events")
    names: list[str] = []
    for event in listed if isinstance(listed, list) else []:
        if not isinstance(event, dict) or not isinstance(event.get("name"), str) or not event["name"]:
            continue
        schema = event.get("inputSchema")
        needs_arguments = isinstance(schema, dict) and bool(schema.get("required"))
        delivery = event.get("delivery")
        is_pushed = "push" in delivery if delivery and isinstance(delivery, (list, str)) else not delivery
        if is_pushed and not needs_arguments:
            names.append(event["name"])
    return names[:MAX_EVENT_STREAMS]


def event_stream(number: int, name: str, cursor: str) -> bytes:
    """Return the request for a stream of events, from a cursor on (empty: from now on)."""
    return modern(number, "events/stream", {"name": name, "arguments": {}, "cursor": cursor or None})


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


_HASH_CHARS: Final = 16


class _McpRecord(msgspec.Struct, frozen=True):
    at: str
    session: str
    last_id: str
    version: str
    server: str


class McpCheckpoint(msgspec.Struct, frozen=True):
    """Where to go on: the session, the last event in it, the version agreed on, and who the server was."""

    session: str
    last_id: str
    version: str
    server: str = ""

    def checkpoint(self, url: str) -> str:
        """Return it as a checkpoint for the server at this address."""
        record = _McpRecord(_hash(url), self.session, self.last_id, self.version, self.server)
        return checkpoint_of(record)


def parse_place(checkpoint: str, url: str) -> McpCheckpoint | None:
    """Return the place a checkpoint names, if it is one at this address."""
    record = read_checkpoint(checkpoint, _McpRecord)
    if record is None or record.at != _hash(url) or not record.session or not record.last_id:
        return None
    return McpCheckpoint(record.session, record.last_id, record.version, record.server)


class _CursorsRecord(msgspec.Struct, frozen=True):
    at: str
    cursors: dict[str, str]


def cursors_checkpoint(cursors: Mapping[str, str], url: str) -> str:
    """Return where each stream of events is, as a checkpoint for the server at this address."""
    return checkpoint_of(_CursorsRecord(_hash(url), dict(cursors)))


def parse_cursors(checkpoint: str, url: str) -> dict[str, str]:
    """Return where each stream of events was, if the checkpoint says so of this address."""
    record = read_checkpoint(checkpoint, _CursorsRecord)
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
