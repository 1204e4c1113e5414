"""Connecting a host by URL to an inbox on another machine: one entry in the host's settings, and nothing else.

The host itself speaks to `/mcp` there. Its entry names the environment variable or the file that holds the token, and
never holds the token. `RemoteConnector` takes the place of the host's own connector, so that plans are shown, recorded,
undone and checked as always. How an entry looks is declared in the host's folder, as `Host.remote`.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from harken.display import one_line
from harken.errors import UserError
from harken.hosts.connect.edits import json_remove, json_set, json_value, toml_remove, toml_set, toml_value
from harken.hosts.connect.files import read
from harken.hosts.connect.plan import (
    DEFAULT_VARIABLE,
    CheckFinding,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
    RemoteEntry,
    RemoteInbox,
    Step,
)
from harken.hosts.registry import hosts, title_of

MCP_PATH: Final = "/mcp"
NODE_AUTHORITY: Final = "NODE_EXTRA_CA_CERTS"  # where programs of Node, and of Bun, look for authorities of your own
WHY: Final = "MCP server harken, on another machine"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"harken_[A-Za-z0-9_-]{40,}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MAX_SECRET: Final = 4_096
_ASK_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 1_000
_NO_SESSION: Final = "harken-doctor"
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429
_MAKE_ONE: Final = "harken token new NAME --may read,reply --mailbox inbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsEntry:
    """An entry in a settings file, JSON or TOML."""

    file: Callable[[InstallTarget], Path]
    keys: tuple[str, ...]  # where it stands in the file
    value: Callable[[RemoteInbox], Mapping[str, object]]
    authority: str = NODE_AUTHORITY
    takes_file: bool = False
    start: bytes | None = None  # what a new file begins with
    note: str = ""

    def steps(self, place: InstallTarget, inbox: RemoteInbox | None) -> Sequence[Step]:
        """Return the change of the file; what you added to the entry stays."""
        file = self.file(place)
        before = read(file)
        is_toml = file.suffix == ".toml"
        there = (toml_value if is_toml else json_value)(before, self.keys, file=file)
        # One that starts a program is another entry, and not ours to complete or to take out.
        own = there if isinstance(there, dict) and "command" not in there else {}
        if inbox is not None:
            start, wanted = self.start if before is None else before, {**own, **self.value(inbox)}
            after: bytes | None = (toml_set if is_toml else json_set)(start, self.keys, wanted, file=file)
        else:
            after = (toml_remove if is_toml else json_remove)(before, self.keys, file=file) if own else before
        return (FileEdit(path=file, before=before, after=after or None, why=WHY),)


def remote_inbox(url: str, variable: str, token_file: str) -> RemoteInbox:
    """Return the inbox that you named; raises `UserError` for an address or a token that cannot be used."""
    return RemoteInbox(url=_address(url), variable=_variable(variable), token_file=_token_file(token_file))


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not host or not is_safe or _SECRET.search(url):
        raise UserError("This is not the address of a Harken elsewhere.", "Give it as https://HOST:PORT/mcp.")
    if parts.username is not None or parts.query or parts.fragment:
        raise UserError("An address holds no name, password or token.", "Give it as https://HOST:PORT/mcp.")
    return parts._replace(path=parts.path if parts.path.strip("/") else MCP_PATH).geturl()


def _variable(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None or _SECRET.fullmatch(name):
        hint = f"Put the token into a variable, such as {DEFAULT_VARIABLE}, and give the variable's name."
        raise UserError("This is not the name of an environment variable.", hint)
    return name


def _token_file(name: str) -> str:
    if not name:
        return ""
    path = Path(os.path.normpath(Path.cwd() / Path(name).expanduser()))
    try:
        mode = path.stat().st_mode
    except OSError as exc:
        raise UserError(f"{path} cannot be read: {exc.strerror}.", f"Put the token into it: {_MAKE_ONE}") from exc
    if os.name == "posix" and mode & _OTHERS:
        raise UserError(f"Others on this machine can read {path}.", f"Run: chmod 600 {path}")
    return str(path)


class RemoteConnector(Connector):
    """How a host is connected by URL. It has tools there, and nothing that wakes it."""

    def __init__(self, host: Connector, inbox: RemoteInbox) -> None:
        self._host = host
        self.inbox = inbox

    @property
    def name(self) -> str:
        """The host's name."""
        return self._host.name

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program."""
        return self._host.find(place)

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError("By URL there is no way to wake an agent.", "Leave out --wake.")
        entry = self._entry()
        if self.inbox.token_file and not entry.takes_file:
            raise UserError(f"{self._title} takes the token from an environment variable only.", self._by_program())
        steps = entry.steps(place, self.inbox)
        return ConnectPlan(host=self.name, steps=steps, notes=tuple(self._notes(place, entry)))

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take the entry out."""
        return ConnectPlan(host=self.name, steps=self._entry().steps(place, None))

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Try the address with the token, as far as both are at hand here."""
        what = f"the token is in {self._where}"
        try:
            secret = self._secret(place)
        except OSError as exc:
            hint = f"It cannot be read: {exc.strerror}. Make a token on the other machine: {_MAKE_ONE}"
            return [CheckFinding(what=what, is_good=False, hint=hint)]
        if not secret:
            hint = f"There is none here. Set it where {self._title} starts; to make one there: {_MAKE_ONE}"
            return [CheckFinding(what=what, is_good=False, hint=hint)]
        return [CheckFinding(what=what, is_good=True), _answered(self.inbox.url, secret)]

    @property
    def _title(self) -> str:
        return title_of(self.name)

    @property
    def _where(self) -> str:
        return self.inbox.token_file or f"the environment variable {self.inbox.variable}"

    def _entry(self) -> RemoteEntry:
        part = hosts()[self.name].remote
        if part is None:
            raise UserError(f"{self._title} cannot be connected by URL.", self._by_program())
        return part()

    def _by_program(self) -> str:
        file = self.inbox.token_file or "FILE"
        return f"Let it start this as an MCP server: harken mcp --url {one_line(self.inbox.url)} --token-file {file}"

    def _secret(self, place: InstallTarget) -> str:
        if not self.inbox.token_file:
            return place.environ.get(self.inbox.variable, "").strip()
        return (read(Path(self.inbox.token_file)) or b"")[:_MAX_SECRET].decode("ascii", "replace").strip()

    def _notes(self, place: InstallTarget, entry: RemoteEntry) -> Iterator[str]:
        yield (
            f"By URL, {self._title} has only tools: no hooks, and nothing wakes it. A message waits until its agent "
            "looks, so ask it to read its inbox, or to wait for a message."
        )
        if entry.note:
            yield entry.note
        if self.inbox.token_file:
            yield f"The token stays in {self.inbox.token_file}; the entry only names the file."
        else:
            yield (
                f"The token stays in the environment variable {self.inbox.variable}: set it where {self._title} "
                "starts. The entry only names it."
            )
        if not self.inbox.token_file and not place.environ.get(self.inbox.variable):
            yield f"{self.inbox.variable} is not set here. To make a token, on the other machine: {_MAKE_ONE}"
        if self.inbox.url.startswith("https:"):
            yield f"If the certificate is of an authority of your own, name its file in {entry.authority}."


def by_url(host: Connector, inbox: RemoteInbox | None) -> Connector:
    """Return how a host is connected to an inbox: the one on another machine, or for None the one on this machine."""
    return host if inbox is None else RemoteConnector(host, inbox)


def _answered(url: str, secret: str) -> CheckFinding:
    """Ask at an address whether it takes a token, for a session that does not exist: so none begins there."""
    parts = urlsplit(url)
    kind = http.client.HTTPConnection if parts.scheme == "http" else http.client.HTTPSConnection
    client = kind(parts.hostname or "", parts.port, timeout=_ASK_SECONDS)
    try:
        client.request("GET", parts.path, headers={"Authorization": f"Bearer {secret}", "Mcp-Session-Id": _NO_SESSION})
        answer = client.getresponse()
        hint = _complaint(answer.status, answer.read(_ANSWER_BYTES))
    except ssl.SSLCertVerificationError as exc:
        hint = f"Its certificate is not trusted here: {exc.verify_message}. Name its authority in SSL_CERT_FILE."
    except (OSError, ValueError, http.client.HTTPException) as exc:
        # Not the text of other errors: one about a header would show the token.
        reason = exc.strerror if isinstance(exc, OSError) else type(exc).__name__
        hint = f"It cannot be reached from here: {reason}. Look at the address, and whether Harken runs there."
    finally:
        client.close()
    return CheckFinding.of(f"{one_line(url)} takes the token", hint, is_good=not hint)


def _complaint(status: int, body: bytes) -> str:
    """Say what an answer means for a token; nothing for that of an MCP server that knows no such session."""
    if status == _NOT_FOUND and b'"jsonrpc"' in body:
        return ""
    if status == _UNAUTHORIZED:
        return f"It does not know the token, or no longer. Make another there: {_MAKE_ONE}"
    if status == _FORBIDDEN:
        return "The token is of another kind, or the address has another name. Make one for an agent: --kind agent"
    if status == _TOO_MANY:
        return "It was asked too often. Wait a minute, and try again."
    return f"Something else answers there ({status}). The address of Harken ends with {MCP_PATH}."
