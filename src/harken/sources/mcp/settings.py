"""What a person configures of an MCP server: `[sources.NAME]` with `kind = "mcp"`, and how it is set up.

The caller resolves secrets, so addresses, headers, arguments and variables may hold some: they are in no `repr`, and
`scrub` takes them out of anything that is shown. Below is `sources/settings.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec.structs import replace

from harken.errors import UserError
from harken.sources.settings import REFERENCES, SettingKey, SourceSettings, WrongSetting, any_text, options_of
from harken.sources.setup import SetupContext, SetupValues, SourceSetup, text_of, texts_of, written

KIND: Final = "mcp"
MIN_TIMEOUT_SECONDS: Final = 1.0
MAX_TIMEOUT_SECONDS: Final = 600.0
MIN_IDLE_SECONDS: Final = 10.0
MAX_IDLE_SECONDS: Final = 86_400.0
MIN_SECRET_CHARS: Final = 6  # shorter ones would take ordinary words out of what is shown
HIDDEN: Final = "***"

_OVER_HTTP: Final = ("transport", ("http", "sse"))
_OVER_STDIO: Final = ("transport", ("stdio",))
_CHANNELS: Final = 'a list, such as ["deploys"]'
_ADDRESS: Final = "an address that begins with http:// or https://"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token)\s+")
# The protocol's own: what we say there follows from what the server said.
_RESERVED_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"}
    | {"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "transfer-encoding"}
)

MIN_GUESSED_CHARS: Final = 16
_FORMS: Final = "Keep it elsewhere and name it: env:NAME (in {file}), file:PATH or keyring:SERVICE/NAME."
_SECRET_NAME: Final = re.compile(r"(?i).*(auth|cookie|token|secret|passw|credential|api-?key|access-?key|session).*")
_SECRET_VALUE: Final = re.compile(r"(?i)(bearer|basic|token)\s+\S+")
_WORD: Final = re.compile(r"[A-Za-z0-9_+/=.~-]+")
_REFERENCE: Final = re.compile(rf"(?:[A-Za-z]+ )?(?:{'|'.join(REFERENCES)}).+", re.DOTALL)


class McpTransport(StrEnum):
    """How a server is reached."""

    HTTP = "http"  # Streamable HTTP
    SSE = "sse"  # HTTP+SSE, as before 2025
    STDIO = "stdio"


def _program(text: str) -> str:
    if not text.strip():
        raise WrongSetting("is empty.")
    return any_text(text)


def _server_url(text: str) -> str:
    url = text.strip()
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    if not is_good or any(char.isspace() or not char.isprintable() for char in url):
        # The address itself may hold a password, so it is not repeated.
        raise WrongSetting(f"is not {_ADDRESS}.", "Check its spelling.")
    return url


class McpSettings(SourceSettings, frozen=True, kw_only=True):
    """One MCP server to listen to."""

    what = "an MCP server"

    url: Annotated[
        str,
        SettingKey(
            "An address of an MCP server, over http or https.",
            flag="--url",
            read=_server_url,
            is_needed=True,
            only=_OVER_HTTP,
        ),
    ] = ""
    transport: Annotated[McpTransport, SettingKey("Default: http.", flag="--transport")] = McpTransport.HTTP
    headers: Annotated[
        dict[str, str],
        SettingKey(
            "A header; a secret as env:NAME.",
            wanted='a table of texts, such as { Authorization = "env:CI_TOKEN" }',
            flag="--header",
            metavar="NAME=VALUE",
            read=str.strip,
            is_secret=True,
            only=_OVER_HTTP,
        ),
    ] = msgspec.field(default_factory=dict)
    command: Annotated[
        str,
        SettingKey(
            "A program to start instead, such as npx; ARGS are its arguments.",
            metavar="PROGRAM",
            read=_program,
            is_needed=True,
            only=_OVER_STDIO,
        ),
    ] = ""
    args: Annotated[
        tuple[str, ...],
        SettingKey(
            'A list of arguments, such as ["-y", "some-server"].', read=any_text, is_secret=True, only=_OVER_STDIO
        ),
    ] = ()
    env: Annotated[
        dict[str, str],
        SettingKey(
            "A variable of the program.",
            wanted='a table of texts, such as { LOG_LEVEL = "info" }',
            metavar="NAME=VALUE",
            read=any_text,
            is_secret=True,
            only=_OVER_STDIO,
        ),
    ] = msgspec.field(default_factory=dict)
    cwd: Annotated[
        str, SettingKey("The folder the program runs in.", metavar="DIR", read=_program, only=_OVER_STDIO)
    ] = ""
    channels: Annotated[
        frozenset[str],
        SettingKey(
            "Keep only this channel; else all.", wanted=_CHANNELS, flag="--channel", metavar="CHANNEL", read=str.strip
        ),
    ] = frozenset()
    resources: Annotated[
        tuple[str, ...],
        SettingKey('A list of addresses whose changes are asked for, such as ["file:///build.log"].', read=any_text),
    ] = ()
    timeout: Annotated[
        float, SettingKey("Until a request counts as unanswered.", least=MIN_TIMEOUT_SECONDS, most=MAX_TIMEOUT_SECONDS)
    ] = 30.0
    idle: Annotated[
        float,
        SettingKey(
            "Without a byte until the server is asked whether it is there.",
            least=MIN_IDLE_SECONDS,
            most=MAX_IDLE_SECONDS,
            only=_OVER_HTTP,
        ),
    ] = 300.0
    secrets: frozenset[str] = frozenset()  # the texts in it that were resolved from references

    def check(self) -> None:
        """Refuse headers that no server could be sent, or that are the protocol's own."""
        headers = self.dotted("headers")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise UserError(f"{headers} has a name that no header can have.", "Use letters and hyphens.")
            if name.lower() in _RESERVED_HEADERS:
                raise UserError(f"{headers}.{name} is said by Harken itself.", "Remove it.")
            if not _HEADER_VALUE.fullmatch(value):
                # The value may be a secret with a line break at its end, or a file that is something else.
                raise UserError(f"{headers}.{name} has characters that no header can have.", "Use one line.")

    @property
    def address(self) -> str:
        """Where the server is, without anything secret."""
        if self.transport == McpTransport.STDIO:
            return self.command.replace("\\", "/").rpartition("/")[2]
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def where(self) -> str:
        """The server whose positions a checkpoint holds: its address, or the program with its arguments."""
        return self.url or "\0".join((self.command, *self.args))

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
    if entry.get("transport") is None and "command" in entry and "url" not in entry:
        # A program is only started, an address only called: what is there says which is meant.
        entry = {**entry, "transport": McpTransport.STDIO.value}
    return replace(McpSettings.read(name, entry), secrets=frozenset(secrets))


class McpSetup(SourceSetup):
    """How an MCP server is set up."""

    kind = KIND
    options = options_of(McpSettings)
    takes_arguments = True
    help_text = (
        "Add an MCP server, by its address or the command that starts it. Secrets stay outside: --header "
        "Authorization=env:CI_TOKEN, with CI_TOKEN=... in the file `env` in Harken's folder."
    )

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
                "A source is either an address or a program.",
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
        raise UserError("The command has an unclosed quote.", "Put its arguments after --.") from exc


def _given_pairs(words: tuple[str, ...], option: str, forms: str, context: SetupContext) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value.strip():
            # Not repeated: it may be a secret.
            raise UserError(f"The value of {option} is not NAME=VALUE.", f"Such as: {option} X-Team=shop")
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
    return len(value) >= MIN_GUESSED_CHARS and is_mixed and _WORD.fullmatch(value) is not None
