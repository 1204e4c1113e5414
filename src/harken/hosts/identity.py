"""Who a connection is: the name that it reads under, and the key of the session behind it.

Apart from the declarations, which every command imports: the model alone takes longer than they do.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from harken.hosts.host import GENERIC, RESERVED, Host
from harken.model import Consumer, SessionKey

if TYPE_CHECKING:
    from harken.hosts.hook import Hello

MAX_NAME: Final = 56
MAX_NATIVE: Final = 128


def consumer_of(host: Host, client_name: str, override: str = "") -> Consumer:
    """Return the name that a connection reads under."""
    if not override and host is not GENERIC:
        return Consumer(host.name)
    name = _slug(override or client_name)
    # Two of these are not agents: whoever took their name would read the person's mail away.
    return Consumer(f"{name}-agent" if name in RESERVED else name)


def session_key(host: Host, hello: Hello, satellite: str = "") -> SessionKey:
    """Return the key of the session behind an edge; the connection itself where the host names none."""
    at = _at(satellite)
    # A second edge of the same process that reads under another name is a session of its own.
    apart = f"/{_slug(hello.consumer)}" if hello.consumer else ""
    if host.keys_by_process and hello.ppid > 1:
        return SessionKey(f"{host.name}:{hello.ppid}{apart}{at}")
    own = hello.env.get(host.session_variable, "") if host.session_variable else ""
    return SessionKey(f"{host.name}:{own}{apart}{at}" if own else f"edge:{hello.edge}")


def hook_key(host: Host, native: str, pid: int, satellite: str = "") -> SessionKey:
    """Return the key of the session that a hook speaks for."""
    if (host.keys_by_process or not native) and pid > 1:
        return SessionKey(f"{host.name}:{pid}{_at(satellite)}")
    return SessionKey(f"{host.name}:{native[:MAX_NATIVE]}{_at(satellite)}")


def _at(satellite: str) -> str:
    """Return what tells the sessions of a satellite apart: processes of two machines may have the same number."""
    return f"@{satellite}" if satellite else ""


def _slug(name: str) -> str:
    """Return a name as a consumer's; letters that cannot be kept are told apart by a few digits."""
    plain = name.strip().lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain)[:MAX_NAME].strip("-._") or "mcp-client"
    if plain.isascii() and len(plain) <= MAX_NAME:
        return slug
    return f"{slug}-{hashlib.sha256(plain.encode('utf-8', 'replace')).hexdigest()[:6]}"
