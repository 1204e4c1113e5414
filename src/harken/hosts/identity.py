"""What a connection or a hook says of itself, the name that its agent reads under, and the key of its session. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harken.display import one_line
from harken.hosts.host import GENERIC, Host
from harken.hosts.registry import host_title
from harken.model import Consumer, SessionKey

RESERVED: Final = frozenset({"watch", "rules"})
MAX_NAME: Final = 56
MAX_NATIVE: Final = 128


def consumer_of(host: Host, client_name: str, override: str = "") -> Consumer:
    """Return the name that a connection reads under."""
    if not override and host is not GENERIC:
        return Consumer(host.name)
    name = _slug(override or client_name)
    # Two of these are not agents: whoever took their name would read the person's mail away.
    return Consumer(f"{name}-agent" if name in RESERVED else name)


def session_key(host: Host, hello: Hello) -> SessionKey:
    """Return the key of the session behind an edge; the connection itself where the host names none."""
    # A second edge of the same process that reads under another name is a session of its own.
    apart = f"/{_slug(hello.consumer)}" if hello.consumer else ""
    if host.keys_by_process and hello.ppid > 1:
        return SessionKey(f"{host.name}:{hello.ppid}{apart}")
    own = hello.env.get(host.session_variable, "") if host.session_variable else ""
    return SessionKey(f"{host.name}:{own}{apart}" if own else f"edge:{hello.edge}")


def hook_key(host: Host, native: str, pid: int) -> SessionKey:
    """Return the key of the session that a hook speaks for."""
    if (host.keys_by_process or not native) and pid > 1:
        return SessionKey(f"{host.name}:{pid}")
    return SessionKey(f"{host.name}:{native[:MAX_NATIVE]}")


def _slug(name: str) -> str:
    """Return a name as a consumer's; letters that cannot be kept are told apart by a few digits."""
    plain = name.strip().lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain)[:MAX_NAME].strip("-._") or "mcp-client"
    if plain.isascii() and len(plain) <= MAX_NAME:
        return slug
    return f"{slug}-{hashlib.sha256(plain.encode('utf-8', 'replace')).hexdigest()[:6]}"


def title_of(host: str) -> str:
    """Return what people call a host."""
    return one_line(host_title(host))


def short(path: Path) -> str:
    """Return a path as people write it."""
    home = Path.home()
    return one_line(f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What an edge, a hook or a program beside a host says about where it runs."""

    edge: str = ""
    host: str = ""  # of a hook: the host that runs it, and when
    moment: str = ""
    payload: int = 0  # bytes that follow
    is_in_task: bool = False  # of a hook: it is only for sessions in the folder of a task
    native: str = ""  # of a program that waits to wake: the conversation it is for
    is_once: bool = False
    pid: int = 0
    ppid: int = 0
    cwd: str = ""
    consumer: str = ""
    task: str = ""  # the task that it was started for, as it was named
    task_said_by: str = ""  # of a hook: the agent that named it, which the daemon finds out; empty for the person
    is_resumed: bool = False
    resent: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()  # requests that the host has cancelled although they were answered
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeTarget:
    """An idle conversation, as far as a host's own way of waking needs to know it."""

    native: str
    pid: int = 0
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
