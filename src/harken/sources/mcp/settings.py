"""What a person configures of an MCP server: `[sources.NAME]` with `kind = "mcp"`, checked key by key.

Secrets are resolved by whoever calls this, so addresses, headers, arguments and variables may hold some: they are in no
`repr`, and `scrub` takes them out of anything that is shown. Below are only the errors.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from harken.errors import UserError

MIN_TIMEOUT_SECONDS: Final = 1.0
MAX_TIMEOUT_SECONDS: Final = 600.0
MIN_IDLE_SECONDS: Final = 10.0
MAX_IDLE_SECONDS: Final = 86_400.0
MIN_SECRET_CHARS: Final = 6  # shorter ones would take ordinary words out of what is shown
HIDDEN: Final = "***"

# What everybody who makes a source may say; others read these, and they are no mistake here.
SHARED_KEYS: Final = frozenset({"kind", "trust", "attention", "enabled"})
_HTTP_KEYS: Final = frozenset({"url", "headers", "idle"})
_STDIO_KEYS: Final = frozenset({"command", "args", "env", "cwd"})
_OWN_KEYS: Final = frozenset({"transport", "channels", "resources", "timeout"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token)\s+")
# The protocol's own: what we say there follows from what the server said.
_RESERVED_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"}
    | {"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "transfer-encoding"}
)


class Transport(StrEnum):
    """How a server is reached."""

    HTTP = "http"  # Streamable HTTP
    SSE = "sse"  # HTTP+SSE, as before 2025
    STDIO = "stdio"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One MCP server to listen to."""

    name: str
    transport: Transport
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    command: str = field(default="", repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str = ""
    channels: frozenset[str] = frozenset()  # empty: all
    resources: tuple[str, ...] = ()  # whose changes are asked for
    timeout: float = 30.0  # seconds until a request counts as unanswered
    idle: float = 300.0  # seconds without a byte until the server is asked whether it is there
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def address(self) -> str:
        """Where the server is, without anything secret."""
        if self.transport is Transport.STDIO:
            return self.command.replace("\\", "/").rpartition("/")[2]
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def scrub(self, text: str) -> str:
        """Return the text without any secret of these settings that may stand in it."""
        for secret in self._secrets():
            text = text.replace(secret, HIDDEN)
        return text

    def _secrets(self) -> list[str]:
        parts = urlsplit(self.url)
        query = [value for _, value in parse_qsl(parts.query)]
        sign_in = [unquote(part) for part in (parts.password, parts.username) if part]
        header_values = [_SCHEME.sub("", value, count=1) for value in self.headers.values()]
        found = {
            *self.secrets,
            *self.headers.values(),
            *header_values,
            *self.env.values(),
            *query,
            *sign_in,
            *filter(None, [parts.password]),
        }
        return sorted((each for each in found if len(each) >= MIN_SECRET_CHARS), key=len, reverse=True)


def read_settings(name: str, entry: Mapping[str, object], secrets: Collection[str] = ()) -> McpSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key.

    `secrets` are the texts in them that were resolved from references, wherever they stand.
    """
    reading = _Reading(name, entry)
    transport = reading.transport()
    is_stdio = transport is Transport.STDIO
    reading.refuse_unknown(transport)
    if is_stdio:
        command, url = reading.text("command", 'a program, such as "npx"', required=True), ""
    else:
        command, url = "", reading.url()
    return McpSettings(
        name=name,
        transport=transport,
        url=url,
        headers=reading.headers(),
        command=command,
        args=reading.texts("args", 'a list of texts, such as ["-y", "some-server"]'),
        env=reading.table("env", 'a table of texts, such as { LOG_LEVEL = "info" }'),
        cwd=reading.text("cwd", "a folder"),
        channels=frozenset(filter(None, map(str.strip, reading.texts("channels", 'a list, such as ["deploys"]')))),
        resources=reading.texts("resources", 'a list of addresses, such as ["file:///build.log"]'),
        timeout=reading.seconds("timeout", 30.0, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS),
        idle=reading.seconds("idle", 300.0, MIN_IDLE_SECONDS, MAX_IDLE_SECONDS),
        secrets=frozenset(secrets),
    )


class _Reading:
    """Reads one entry; every mistake is a `UserError` that says which key, what was found and what would do."""

    def __init__(self, name: str, entry: Mapping[str, object]) -> None:
        self._name = name
        self._entry = entry

    def transport(self) -> Transport:
        found = self._entry.get("transport")
        if found is None:
            # A program is only started, an address only called: what is there says which is meant.
            return Transport.STDIO if "command" in self._entry and "url" not in self._entry else Transport.HTTP
        known = [each.value for each in Transport]
        if not isinstance(found, str) or found not in known:
            near = difflib.get_close_matches(str(found)[:100], known, n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise self._wrong("transport", found, f"one of {', '.join(known)}", guess)
        return Transport(found)

    def refuse_unknown(self, transport: Transport) -> None:
        is_stdio = transport is Transport.STDIO
        here, elsewhere = (_STDIO_KEYS, _HTTP_KEYS) if is_stdio else (_HTTP_KEYS, _STDIO_KEYS)
        known = SHARED_KEYS | _OWN_KEYS | here
        for key in self._entry:
            if key in known:
                continue
            if key in elsewhere:
                raise UserError(
                    f'{self._dotted(key)} has no meaning with transport = "{transport.value}".',
                    f"Remove it, or set transport to {'http or sse' if is_stdio else 'stdio'}.",
                )
            near = difflib.get_close_matches(key[:100].casefold().replace("-", "_"), sorted(known), n=1, cutoff=0.65)
            guess = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(known))}."
            raise UserError(f"{self._dotted(key)} is not a setting of an MCP server.", guess)

    def text(self, key: str, wanted: str, *, required: bool = False) -> str:
        found = self._entry.get(key)
        if found is None:
            if required:
                raise UserError(f"{self._dotted(key)} is missing.", f"Set it to {wanted}.")
            return ""
        if not isinstance(found, str) or not found.strip() or "\0" in found:
            raise self._wrong(key, found, wanted)
        return found

    def url(self) -> str:
        wanted = "an address that begins with http:// or https://"
        found = self.text("url", wanted, required=True).strip()
        try:
            parts = urlsplit(found)
            is_good = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
            )
        except ValueError:
            is_good = False
        if not is_good or any(char.isspace() or not char.isprintable() for char in found):
            # The address itself may hold a password, so it is not repeated.
            raise UserError(f"{self._dotted('url')} is not {wanted}.", "Check its spelling.")
        return found

    def texts(self, key: str, wanted: str) -> tuple[str, ...]:
        found = self._entry.get(key, ())
        if not isinstance(found, (list, tuple)):
            raise self._wrong(key, found, wanted)
        return tuple(self._each(key, each, wanted) for each in found)

    def table(self, key: str, wanted: str) -> dict[str, str]:
        found = self._entry.get(key, {})
        if not isinstance(found, Mapping):
            raise self._wrong(key, found, wanted)
        return {
            self._each(key, name, wanted): self._each(f"{key}.{name}", value, "a text") for name, value in found.items()
        }

    def headers(self) -> dict[str, str]:
        found = self.table("headers", 'a table of texts, such as { Authorization = "env:CI_TOKEN" }')
        for name, value in found.items():
            if not _HEADER_NAME.fullmatch(name):
                raise UserError(
                    f"{self._dotted('headers')} has a name that no header can have.", "Use letters and hyphens."
                )
            if name.lower() in _RESERVED_HEADERS:
                raise UserError(f"{self._dotted('headers')}.{name} is said by Harken itself.", "Remove it.")
            if not _HEADER_VALUE.fullmatch(value.strip()):
                # The value may be a secret with a line break at its end, or a file that is something else.
                raise UserError(
                    f"{self._dotted('headers')}.{name} has characters that no header can have.", "Use one line."
                )
        return {name: value.strip() for name, value in found.items()}

    def seconds(self, key: str, default: float, least: float, most: float) -> float:
        found = self._entry.get(key, default)
        is_number = isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found)
        if not is_number or not least <= float(str(found)) <= most:
            raise self._wrong(key, found, f"a number of seconds from {least:g} to {most:g}")
        return float(str(found))

    def _each(self, key: str, found: object, wanted: str) -> str:
        if not isinstance(found, str) or "\0" in found:
            # Inside lists and tables stand arguments and secrets: only the type is told.
            raise UserError(f"{self._dotted(key)} holds {_kind(found)}.", f"Use {wanted}.")
        return found

    def _wrong(self, key: str, found: object, wanted: str, guess: str = "") -> UserError:
        shown = repr(found)[:60] if key in ("transport", "timeout", "idle") else _kind(found)
        return UserError(f"{self._dotted(key)} is {shown}.", f"Use {wanted}.{guess}")

    def _dotted(self, key: str) -> str:
        return f"sources.{self._name}.{key}"


def _kind(found: object) -> str:
    names: Mapping[type, str] = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
    }
    if found == "":
        return "empty"
    return names.get(type(found), "a table" if isinstance(found, Mapping) else "something else")
