"""What a preset is: how one service signs, and what its posts mean. Values and functions, no I/O.

`presets/` has one module for each service, `registry.py` finds them by name, `source.py` runs them. A preset sees a
post only in this order: `check` on the bytes as they came, then `read` on what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from harken.model import Priority, Sender
from harken.sources.door import Posted
from harken.sources.webhook.signing import Keys, plain_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
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
class Skipped:
    """A post that is genuine and says nothing to anybody, such as a greeting."""

    why: str


@dataclass(frozen=True, slots=True)
class Echo:
    """A post that only wants to hear something back."""

    body: bytes


Reading: TypeAlias = Event | Skipped | Echo


def sender_of(service: Sender, person: str, name: str, *, is_own: bool) -> Sender:
    """Return whose word an event is: a person's only if all that it quotes is theirs, else the service's.

    Trust goes by the id. Whoever acts on what others wrote must not lend them their voice; the name still says who.
    """
    shown = name or person or service.name
    return Sender(f"{service.id}:{person}", shown) if is_own and person else Sender(service.id, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """With what a post is judged: the keys, the time in seconds, and how far from it a signed time may be."""

    keys: Keys
    now: float
    window: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How one service posts. `check` raises `Refused`, `read` raises `UserError`; both are quick and pure."""

    name: str
    title: str
    check: Callable[[Posted, Judging], None]
    read: Callable[[Posted, object], Reading]
    keys: Callable[[str], Keys] = plain_keys
    has_form: bool = False  # the JSON may also come as the field `payload` of a form
    is_secret_theirs: bool = False  # the service makes the secret, and the person brings it
    where: str = ""  # what to set at the service, in one sentence
