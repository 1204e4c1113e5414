"""Which main daemon a home is joined to: written by `harken join`, read by what needs to know where the inbox is.

A home with this file is a satellite: its daemon has no store. The file holds the token, so it is private like all of
the home. Who the machine is, is made of the home and of the system's own id: a copy of either elsewhere is another one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harken.config.home import Home, disk_error, home_id, write_private
from harken.errors import Forbidden, UserError

FILE = "satellite.json"
LINK_PATH = "/link"
_SYSTEM_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_ID_CHARS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRecord:
    """The main daemon, and how it is reached."""

    url: str
    token: str
    authority: str = ""  # the file of who vouches for the main daemon's certificate; empty: whom the system trusts
    machine: str = ""  # what the main daemon calls this machine

    @property
    def place(self) -> tuple[str, int]:
        """The host and the port of the main daemon."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 443


def joined_to(home: Home) -> JoinRecord | None:
    """Return what a home is joined to; None for one with an inbox of its own."""
    path = home.path / FILE
    try:
        fields = json.loads(path.read_bytes())
        return JoinRecord(**{name: str(fields[name]) for name in ("url", "token", "authority", "machine")})
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise disk_error("read", path, exc) from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise UserError(f"{path} cannot be understood.", "Join again: harken join URL --token TOKEN") from exc


def join_home(home: Home, record: JoinRecord) -> None:
    """Make a home a satellite's."""
    write_private(home.path / FILE, json.dumps(asdict(record)) + "\n")


def leave_home(home: Home) -> None:
    """Let a home have its own inbox again."""
    (home.path / FILE).unlink(missing_ok=True)


def machine_id(home: Home) -> str:
    """Return the id by which the main daemon knows this machine."""
    system = next((text for path in _SYSTEM_IDS if (text := _text(path))), "")
    return hashlib.sha256(f"{home_id(home)} {system}".encode()).hexdigest()[:_ID_CHARS]


def main_url(text: str) -> str:
    """Return the address of a main daemon; raises `UserError` for one that has no TLS, or is none."""
    url = text.strip().rstrip("/")
    parts = urlsplit(url)
    try:
        is_good = parts.scheme == "https" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or parts.path or parts.query or parts.fragment or "@" in parts.netloc or not url.isascii():
        raise UserError(
            f"{text[:80]!r} is not the address of a main daemon.", "Give it like https://harken.example.org:8443"
        )
    return url


def refuse_on_satellite(home: Home, what: str) -> None:
    """Raise `Forbidden` for what only a home with its own store can do."""
    if (record := joined_to(home)) is not None:
        raise Forbidden(
            f"This machine is a satellite of {record.url}: {what} is done on the main machine.",
            "Run it there. To have an inbox of its own here again: harken leave",
        )


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
