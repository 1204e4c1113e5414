"""Where Microsoft posts: the handshake of a new subscription, word of changes, and the subscription's own events.

Whoever posts proves by the secret of a subscription that it is Microsoft; nothing else in a post is believed, and
nothing of it is stored: it only makes a feed look. The handshake's token is said back to anybody, as plain text and
short: Microsoft asks whenever it likes, and there is nothing in it that is ours. Above is `surfaces/doors.py`; who is
told is in `keeping.py`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from harken.errors import Refused, UserError
from harken.sources.door import Accept, DoorAnswer, Posted
from harken.sources.graph.notices.address import path_of

MAX_BYTES: Final = 262_144
MAX_TOKEN_CHARS: Final = 1_024
MAX_ENTRIES: Final = 1_000  # anybody can post; each is compared with each secret
ACCEPTED: Final = 202

_CHAT: Final = re.compile(r"chats\('([^'/]{1,256})'\)/messages\b", re.IGNORECASE)


class _Entry(msgspec.Struct, rename="camel"):
    client_state: str | None = None
    lifecycle_event: str | None = None
    resource: str | None = None


class _Body(msgspec.Struct):
    value: list[_Entry]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told by the posts that carry a secret: of a change, in a chat if one is named, or of its own event."""

    secret: Callable[[], str]  # empty: there is none, and nothing carries it
    changed: Callable[[str], None]
    happened: Callable[[str], None]


class NoticeDoor:
    """The door of one source."""

    def __init__(self, name: str, listeners: Sequence[Listener]) -> None:
        self._path = path_of(name)
        self._listeners = listeners
        self.refusals = 0

    @property
    def path(self) -> str:
        """Its path."""
        return self._path

    @property
    def max_bytes(self) -> int:
        """How long a body may be."""
        return MAX_BYTES

    async def take(self, posted: Posted, _accept: Accept) -> DoorAnswer:
        """Answer the handshake, or pass word on; raises `Refused` if none of it carries a secret of ours."""
        token = posted.query.get("validationToken")
        if token is not None:
            return _said_back(token)
        entries = _read(posted.body)
        if len(entries) > MAX_ENTRIES:
            raise UserError("There are more notifications than Microsoft sends at once.", "nothing was done")
        heard = [self._hear(entry) for entry in entries]
        if not any(heard):
            self.refusals += 1
            raise Refused("It does not prove that Microsoft sent it.", "nothing was done")
        return DoorAnswer(status=ACCEPTED)

    def _hear(self, entry: _Entry) -> bool:
        found = [each for each in self._listeners if _is_same(each.secret(), entry.client_state or "")]
        for listener in found:
            if entry.lifecycle_event:
                listener.happened(entry.lifecycle_event)
            else:
                listener.changed(_chat_of(entry.resource or ""))
        return bool(found)


def _said_back(token: str) -> DoorAnswer:
    if not 0 < len(token) <= MAX_TOKEN_CHARS or not token.isprintable():
        raise UserError("The token of a handshake cannot be said back.", "Microsoft's are short and printable")
    return DoorAnswer(status=200, body=token.encode(), media_type="text/plain; charset=utf-8")


def _read(body: bytes) -> list[_Entry]:
    try:
        return msgspec.json.decode(body, type=_Body).value
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise UserError("A notification cannot be read.", "nothing was done") from exc


def _is_same(secret: str, said: str) -> bool:
    return bool(secret) and hmac.compare_digest(secret.encode(), said.encode(errors="replace"))


def _chat_of(resource: str) -> str:
    found = _CHAT.search(resource)
    return found[1] if found else ""
