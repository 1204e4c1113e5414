"""What a preset is: how one service signs, and what its posts mean. Values and functions, no I/O.

`presets/` has one module for each service; a preset sees a post only in this order: `check` on the bytes as they came,
then `read` on what they say. What tells one delivery from all others is here too: many services name a delivery in a
header that they do not sign, so such a name counts only together with the body.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType
from typing import Final, TypeAlias

from harken.model import Priority, Sender
from harken.sources.door import PostedRequest
from harken.sources.webhook import presets
from harken.sources.webhook.shell import SAMPLE, ShellSignature
from harken.sources.webhook.signing import Keys, plain_keys

MAX_ID: Final = 200
MARK_CHARS: Final = 32


def signed_id(found: str) -> str:
    """Return an id that is signed like the rest. One that is too long is not cut: two might become one."""
    return found if len(found) <= MAX_ID else f"sha256:{hashlib.sha256(found.encode()).hexdigest()}"


def body_id(posted: PostedRequest) -> str:
    """Return an id that nobody but who signed the body can change: the body itself."""
    return f"sha256:{hashlib.sha256(posted.body).hexdigest()}"


def unsigned_id(posted: PostedRequest, header: str) -> str:
    """Return an id that anybody may have written, with a mark of the body that it came with; empty without one."""
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
    """A post that is genuine and says nothing to anybody, such as a greeting."""

    why: str


@dataclass(frozen=True, slots=True)
class EchoAnswer:
    """A post that only wants to hear something back."""

    body: bytes


Reading: TypeAlias = WebhookEvent | SkippedPost | EchoAnswer


def sender_of(service: Sender, person: str, name: str, *, is_own: bool) -> Sender:
    """Return whose word an event is: a person's only if all that it quotes is theirs, else the service's.

    Trust goes by the id. Whoever acts on what others wrote must not lend them their voice; the name still says who.
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
