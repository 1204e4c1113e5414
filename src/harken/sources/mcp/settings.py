"""What a person configures of an MCP server: `[sources.NAME]` with `kind = "mcp"`, checked key by key.

Secrets are resolved by whoever calls this, so addresses, headers, arguments and variables may hold some: they are in no
`repr`, and `scrub` takes them out of anything that is shown. Below is `sources/settings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from harken.errors import UserError
from harken.sources.settings import SettingsTable, SourceSettings, keys_of, setting

KIND: Final = "mcp"
MIN_TIMEOUT_SECONDS: Final = 1.0
MAX_TIMEOUT_SECONDS: Final = 600.0
MIN_IDLE_SECONDS: Final = 10.0
MAX_IDLE_SECONDS: Final = 86_400.0
MIN_SECRET_CHARS: Final = 6  # shorter ones would take ordinary words out of what is shown
HIDDEN: Final = "***"

_HTTP_KEYS: Final = frozenset({"url", "headers", "idle"})
_STDIO_KEYS: Final = frozenset({"command", "args", "env", "cwd"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token)\s+")
# The protocol's own: what we say there follows from what the server said.
_RESERVED_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"}
    | {"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "transfer-encoding"}
)


class McpKeys(SourceSettings, frozen=True, kw_only=True):
    """The keys of an MCP server."""

    url: Annotated[
        str, setting("The address of an MCP server.", example="https://ci.example.org/mcp", flag="--url")
    ] = ""
    transport: Annotated[Literal["http", "sse", "stdio"], setting("http unless you say so.", flag="--transport")] = (
        "http"
    )
    headers: Annotated[
        dict[str, str],
        setting(
            "A header; a secret as env:NAME.",
            example='{ Authorization = "env:CI_TOKEN" }',
            flag="--header",
            metavar="NAME=VALUE",
            is_secret=True,
        ),
    ] = msgspec.field(default_factory=dict)
    command: Annotated[
        str, setting("Start this program instead; ARGS are its arguments.", flag="--command", metavar="PROGRAM")
    ] = ""
    args: Annotated[tuple[str, ...], setting("The arguments of the program.", is_secret=True)] = ()
    env: Annotated[
        dict[str, str], setting("A variable of the program.", flag="--env", metavar="NAME=VALUE", is_secret=True)
    ] = msgspec.field(default_factory=dict)
    cwd: Annotated[str, setting("The folder the program runs in.", flag="--cwd", metavar="DIR")] = ""
    channels: Annotated[
        tuple[str, ...], setting("Keep only this channel; else all.", flag="--channel", metavar="CHANNEL")
    ] = ()
    resources: Annotated[tuple[str, ...], setting("Resources whose changes are asked for.")] = ()
    timeout: Annotated[float, setting("Seconds until a request counts as unanswered.")] = 30.0
    idle: Annotated[float, setting("Seconds without a byte until the server is asked whether it is there.")] = 300.0


class McpTransport(StrEnum):
    """How a server is reached."""

    HTTP = "http"  # Streamable HTTP
    SSE = "sse"  # HTTP+SSE, as before 2025
    STDIO = "stdio"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One MCP server to listen to."""

    name: str
    transport: McpTransport
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
        if self.transport is McpTransport.STDIO:
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
    table = SettingsTable(name, entry)
    transport = _transport(table)
    is_stdio = transport is McpTransport.STDIO
    _refuse_unknown(table, transport)
    if is_stdio:
        command, url = _text(table, "command", 'a program, such as "npx"', is_required=True), ""
    else:
        command, url = "", _url(table)
    return McpSettings(
        name=name,
        transport=transport,
        url=url,
        headers=_headers(table),
        command=command,
        args=_texts(table, "args", 'a list of texts, such as ["-y", "some-server"]'),
        env=_pairs(table, "env", 'a table of texts, such as { LOG_LEVEL = "info" }'),
        cwd=_text(table, "cwd", "a folder"),
        channels=frozenset(filter(None, map(str.strip, _texts(table, "channels", 'a list, such as ["deploys"]')))),
        resources=_texts(table, "resources", 'a list of addresses, such as ["file:///build.log"]'),
        timeout=table.seconds("timeout", 30.0, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS),
        idle=table.seconds("idle", 300.0, MIN_IDLE_SECONDS, MAX_IDLE_SECONDS),
        secrets=frozenset(secrets),
    )


def _transport(table: SettingsTable) -> McpTransport:
    if table.entry.get("transport") is None:
        # A program is only started, an address only called: what is there says which is meant.
        return McpTransport.STDIO if "command" in table.entry and "url" not in table.entry else McpTransport.HTTP
    return McpTransport(table.choice("transport", [each.value for each in McpTransport]))


def _refuse_unknown(table: SettingsTable, transport: McpTransport) -> None:
    is_stdio = transport is McpTransport.STDIO
    elsewhere = _HTTP_KEYS if is_stdio else _STDIO_KEYS
    others = "http or sse" if is_stdio else "stdio"
    table.refuse_meaningless(elsewhere, f'transport = "{transport.value}"', f"Remove it, or set transport to {others}.")
    table.refuse_unknown(keys_of(McpKeys) - elsewhere, "an MCP server")


def _text(table: SettingsTable, key: str, wanted: str, *, is_required: bool = False) -> str:
    """Return a text as it is written: the name of a program or a folder may have nearly any characters."""
    found = table.entry.get(key)
    if found is None:
        if is_required:
            raise table.missing(key, wanted)
        return ""
    if not isinstance(found, str) or not found.strip() or "\0" in found:
        raise _wrong(table, key, found, wanted)
    return found


def _url(table: SettingsTable) -> str:
    wanted = "an address that begins with http:// or https://"
    found = _text(table, "url", wanted, is_required=True).strip()
    try:
        parts = urlsplit(found)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    if not is_good or any(char.isspace() or not char.isprintable() for char in found):
        # The address itself may hold a password, so it is not repeated.
        raise UserError(f"{table.dotted('url')} is not {wanted}.", "Check its spelling.")
    return found


def _texts(table: SettingsTable, key: str, wanted: str) -> tuple[str, ...]:
    found = table.entry.get(key, ())
    if not isinstance(found, list | tuple):
        raise _wrong(table, key, found, wanted)
    return tuple(_each(table, key, each, wanted) for each in found)


def _pairs(table: SettingsTable, key: str, wanted: str) -> dict[str, str]:
    found = table.entry.get(key, {})
    if not isinstance(found, Mapping):
        raise _wrong(table, key, found, wanted)
    return {
        _each(table, key, name, wanted): _each(table, f"{key}.{name}", value, "a text") for name, value in found.items()
    }


def _headers(table: SettingsTable) -> dict[str, str]:
    found = _pairs(table, "headers", 'a table of texts, such as { Authorization = "env:CI_TOKEN" }')
    for name, value in found.items():
        if not _HEADER_NAME.fullmatch(name):
            raise UserError(
                f"{table.dotted('headers')} has a name that no header can have.", "Use letters and hyphens."
            )
        if name.lower() in _RESERVED_HEADERS:
            raise UserError(f"{table.dotted('headers')}.{name} is said by Harken itself.", "Remove it.")
        if not _HEADER_VALUE.fullmatch(value.strip()):
            # The value may be a secret with a line break at its end, or a file that is something else.
            raise UserError(
                f"{table.dotted('headers')}.{name} has characters that no header can have.", "Use one line."
            )
    return {name: value.strip() for name, value in found.items()}


def _each(table: SettingsTable, key: str, found: object, wanted: str) -> str:
    if not isinstance(found, str) or "\0" in found:
        raise UserError(f"{table.dotted(key)} holds {_kind(found)}.", f"Use {wanted}.")
    return found


def _wrong(table: SettingsTable, key: str, found: object, wanted: str) -> UserError:
    # Secrets stand here as they are: only the type is told.
    return UserError(f"{table.dotted(key)} is {_kind(found)}.", f"Use {wanted}.")


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
