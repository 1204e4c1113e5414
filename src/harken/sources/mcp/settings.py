"""What a person configures of an MCP server: `[sources.NAME]` with `kind = "mcp"`, and how it is set up.

The caller resolves secrets, so addresses, headers, arguments and variables may hold some: they are in no `repr`, and
`scrub` takes them out of anything that is shown. Below is `sources/settings.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from harken.errors import UserError
from harken.sources.settings import REFERENCES, SettingsTable, SourceSettings, keys_of, options_of, setting
from harken.sources.setup import SetupContext, SetupValues, SourceSetup, text_of, texts_of, written

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


LEAST_GUESSED_CHARS: Final = 16
_FORMS: Final = "Keep it elsewhere and name it: env:NAME (in {file}), file:PATH or keyring:SERVICE/NAME."
_SECRET_NAME: Final = re.compile(r"(?i).*(auth|cookie|token|secret|passw|credential|api-?key|access-?key|session).*")
_SECRET_VALUE: Final = re.compile(r"(?i)(bearer|basic|token)\s+\S+")
_WORD: Final = re.compile(r"[A-Za-z0-9_+/=.~-]+")
_REFERENCE: Final = re.compile(rf"(?:[A-Za-z]+ )?(?:{'|'.join(REFERENCES)}).+", re.DOTALL)


class McpSetup(SourceSetup):
    """How an MCP server is set up."""

    options = options_of(McpKeys)
    takes_arguments = True
    help_text = (
        "Add an MCP server, by its address or the program that it is. Secrets stay outside: --header "
        "Authorization=env:CI_TOKEN, with CI_TOKEN=... in the file `env` in Harken's folder."
    )

    def missing(self, values: SetupValues) -> str:
        """Return what a server cannot do without; which of both is said where the entry is made."""
        del values
        return ""

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask the person for what is missing, a question each."""
        del name
        console = context.console
        place = text_of(values, "url") or text_of(values, "command")
        if not place:
            place = console.prompt("Its address (https://...), or the command that starts it")
        is_address = place.startswith(("http://", "https://"))
        found: dict[str, object] = {
            **values,
            "url": place if is_address else "",
            "command": "" if is_address else place,
        }
        if is_address and not values.get("headers"):
            secret = console.prompt("Its secret, as env:NAME or file:PATH (empty: none)", "")
            found["headers"] = (f"Authorization={secret}",) if secret else ()
        if not values.get("channels"):
            kept = console.prompt("Channels to keep, with commas (empty: all)", "")
            found["channels"] = tuple(filter(None, (each.strip() for each in kept.split(","))))
        return found

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written; raises `UserError` for what cannot be, or is a secret."""
        url, program, cwd = (text_of(values, key) for key in ("url", "command", "cwd"))
        if bool(url) == bool(program):
            raise UserError(
                "A source is an address or a program, one of them.",
                f"harken source add {name} --url https://..., or --command PROGRAM",
            )
        command, *args = _command(program, texts_of(values, "args")) if program else ("",)
        forms = _FORMS.format(file=context.env_file)
        for place in (url, *args):
            if context.is_secret(place):
                raise UserError("There is a secret in the address or in an argument of the program.", forms)
        found = {
            "transport": values.get("transport"),
            "url": url,
            "headers": _given_pairs(texts_of(values, "headers"), "--header", forms, context),
            "command": command,
            "args": args,
            "env": _given_pairs(texts_of(values, "env"), "--env", forms, context),
            "cwd": str(Path(cwd).expanduser().resolve()) if cwd else "",
            "channels": texts_of(values, "channels"),
            "trust": values.get("trust"),
            "attention": values.get("attention"),
        }
        return written(KIND, found)


def _command(program: str, args: tuple[str, ...]) -> list[str]:
    """Return the program and its arguments; a whole command line in one word is taken apart."""
    if args or " " not in program or Path(program).exists():
        return [program, *args]
    try:
        return shlex.split(program)
    except ValueError as exc:
        raise UserError("The command has a quote that does not end.", "Put its arguments after --.") from exc


def _given_pairs(words: tuple[str, ...], option: str, forms: str, context: SetupContext) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            # Not repeated: it may be a secret.
            raise UserError(f"What {option} was given is not NAME=VALUE.", f"Such as: {option} X-Team=shop")
        if not _REFERENCE.fullmatch(value.strip()) and _looks_secret(name, value.strip(), context):
            raise UserError(f"The value of {name.strip()[:60]} looks like a secret.", forms)
        pairs[name.strip()] = value.strip()
    return pairs


def _looks_secret(name: str, value: str, context: SetupContext) -> bool:
    """Whether a value must not stand in a file of settings: better a reference too many than a secret too few."""
    if _SECRET_NAME.fullmatch(name) or _SECRET_VALUE.match(value) or context.is_secret(f"{name}: {value}"):
        return True
    kinds = (str.isdigit, str.isupper, str.islower)
    is_mixed = sum(any(kind(char) for char in value) for kind in kinds) > 1
    return len(value) >= LEAST_GUESSED_CHARS and is_mixed and _WORD.fullmatch(value) is not None
