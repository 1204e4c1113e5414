"""One connection to an IMAP server, signed in: bounded in time, and with every answer judged.

`Credentials` says who signs in and looks the secret up each time. `ImapLink` is the connection; what the library raises
becomes an error of ours here. Above are the source, the sender and the check.
"""

from __future__ import annotations

import errno
import imaplib
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.sources.imap.messages import own_id_of
from harken.sources.imap.settings import STARTTLS, TLS, MailServer

CONNECT_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 60.0  # how long the server may say nothing during a call
CALL_SECONDS: Final = 300.0
CLOSE_SECONDS: Final = 2.0
MAX_SAID: Final = 200
HEAD_BYTES: Final = 65_536

_SIZES: Final = ("RFC822.SIZE", "INTERNALDATE")
_OWN_ID: Final = "BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)]"
_PASSING: Final = re.compile(r"\[(?:unavailable|inuse|limit|serverbug|throttled)\]|too many|try again", re.IGNORECASE)
_AROUND: Final = re.compile(r"^(?:[A-Za-z]+ failed: )?(?:b['\"])?(?:\[[A-Z0-9 -]+\] ?)?|['\"]$")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ImapRow:
    """One mail of a folder: its number, its size, and when it came."""

    uid: int
    size: int
    received_at: datetime
    message_id: str = ""  # only where it was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who signs in. `look_up` returns the secret, and may take a while."""

    source: str
    user: str
    look_up: Callable[[], str]
    is_token: bool = False
    trust: ssl.SSLContext | None = None  # None: the certificates of the system

    def secret(self) -> str:
        """Return the password or token; raises `NeedsPerson` if it is not there."""
        try:
            return self.look_up()
        except NeedsPerson:
            raise
        except HarkenError as error:
            raise NeedsPerson(error.message, error.hint, action=error.hint.rstrip(".")) from error

    def context(self) -> ssl.SSLContext:
        """Return how the way to the server is kept private."""
        return self.trust or ssl.create_default_context()

    def refused(self, host: str, said: str) -> NeedsPerson:
        """Return the error that says that the server does not let us in."""
        what = "token" if self.is_token else "password"
        return NeedsPerson(
            f"{host} refuses to sign {self.user} in{f': {said}' if said else '.'}",
            f"many providers want an app password; put a valid {what} where sources.{self.source}.{what} says",
            action=f"put a valid {what} where sources.{self.source}.{what} says",
        )


class ImapRefusal(Unavailable):
    """The server answered a command with no; the connection is good."""


class IdleUnsupported(Exception):
    """The server does not say by itself that mail has come."""


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """What a server says of a folder: its validity, the number of the next mail, and how many mails it holds."""

    validity: int
    next_uid: int
    count: int


class ImapLink:
    """A connection. Enter it to connect and sign in."""

    def __init__(self, server: MailServer, credentials: Credentials) -> None:
        self._server = server
        self._credentials = credentials
        self._client: Any = None  # the library comes without types
        self._handle: socket.socket | None = None  # the connection itself, whoever reads from it
        # Its own: a server that hangs must not take the threads of everybody else.
        self._threads = anyio.CapacityLimiter(1)
        self.can_push = False

    async def __aenter__(self) -> Self:
        is_open = False
        try:
            connected = await self._call_async(self._connect)
            self._handle = connected.dup()
            await self._call(partial(self._open, connected))
            is_open = True
        finally:
            if not is_open:
                await self._close()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        await self._close()

    async def look_at(self, folder: str) -> OpenedFolder:
        """Open a folder, for reading only; raises `NeedsPerson` if that cannot be."""
        try:
            found = await self._call(partial(self._client.select_folder, folder, readonly=True))
        except ImapRefusal as error:
            if _PASSING.search(str(error.__cause__)):
                raise
            raise NeedsPerson(
                f"The mail folder {folder} cannot be opened: {error.message}",
                "name a folder as the server does; harken source test lists them",
                action=f"check folders of the source {self._credentials.source}",
            ) from error
        next_uid = _number(found, b"UIDNEXT")
        if not next_uid:
            next_uid = max(await self.search("ALL"), default=0) + 1
        return OpenedFolder(_number(found, b"UIDVALIDITY"), next_uid, _number(found, b"EXISTS"))

    async def search(self, *criteria: object) -> list[int]:
        """Return the numbers of the mails that fit, in order."""
        found = await self._call(partial(self._client.search, list(criteria)))
        return sorted({uid for uid in found if isinstance(uid, int)})

    async def rows(self, uids: Sequence[int], *, has_ids: bool = False) -> list[ImapRow]:
        """Return what is known of mails without reading them; those that are gone are left out."""
        wanted = [*_SIZES, _OWN_ID] if has_ids else [*_SIZES]
        found = await self._call(partial(self._client.fetch, list(uids), wanted))
        return [_row(uid, found[uid]) for uid in sorted(found)]

    async def read(self, uids: Sequence[int], most_bytes: int) -> dict[int, bytes]:
        """Return mails, at most so many bytes of each; those that are gone are left out."""
        return await self._bodies(uids, f"BODY.PEEK[]<0.{most_bytes}>")

    async def heads(self, uids: Sequence[int]) -> dict[int, bytes]:
        """Return the heads of mails; those that are gone are left out."""
        return await self._bodies(uids, f"BODY.PEEK[HEADER]<0.{HEAD_BYTES}>")

    async def breathe(self) -> None:
        """Let the server tell what has changed, and see that it is still there."""
        await self._call(self._client.noop)

    async def wait(self, seconds: float) -> None:
        """Wait until the server says something, or for so many seconds; raises `IdleUnsupported` if it cannot."""
        try:
            await self._call(self._client.idle)
        except ImapRefusal as error:
            raise IdleUnsupported from error
        with anyio.move_on_after(seconds):
            # What came with the answer is in the library's hands already, and the socket would not tell of it.
            if not await self._call(self._client.idle_check):
                await anyio.wait_readable(self._client.socket().fileno())
        await self._call(self._client.idle_done)

    async def folders(self) -> list[str]:
        """Return the names of all folders that can hold mail."""
        found = await self._call(self._client.list_folders)
        return [str(name) for flags, _, name in found if b"\\Noselect" not in flags]

    async def sent_folder(self) -> str:
        """Return the folder for what was sent."""
        return str(await self._call(partial(self._client.find_special_folder, b"\\Sent")) or "Sent")

    async def keep(self, folder: str, mail: bytes) -> None:
        """Put a mail into a folder, as one that was read."""
        await self._call(partial(self._client.append, folder, mail, (b"\\Seen",)))

    async def _bodies(self, uids: Sequence[int], what: str) -> dict[int, bytes]:
        found = await self._call(partial(self._client.fetch, list(uids), [what]))
        return {uid: _bytes_of(found[uid]) for uid in found}

    async def _call(self, work: Callable[[], _T]) -> _T:
        """Do something in a thread, one thing at a time."""
        run = partial(anyio.to_thread.run_sync, work, abandon_on_cancel=True, limiter=self._threads)
        return await self._call_async(run)

    async def _call_async(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something, and turn what goes wrong into an error of ours."""
        host = self._server.host
        try:
            with anyio.fail_after(CALL_SECONDS):
                return await work()
        except (imaplib.IMAP4.abort, EOFError) as exc:
            raise Unavailable(f"The connection to {host} was lost.", "Harken connects again") from exc
        except imaplib.IMAP4.error as exc:
            raise ImapRefusal(f"{host} declines: {_said(exc)}", "Harken tries again") from exc
        except ssl.SSLCertVerificationError as exc:
            raise Unavailable(
                f"The certificate of {host} is not trusted: {exc.verify_message}.", "name its authority with ca"
            ) from exc
        except TimeoutError as exc:
            raise Unavailable(f"{host} does not answer in time.", "Harken tries again") from exc
        except OSError as exc:
            raise Unavailable(f"{host} cannot be reached: {exc.strerror or 'no connection'}.", "try again") from exc
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as exc:
            # How the library fails on an answer that makes no sense, or on a connection that ended under it.
            raise Unavailable(f"{host} sent an unreadable answer.", "Harken asks again") from exc

    async def _connect(self) -> socket.socket:
        """Connect without a thread: one that waits for a server without an answer could not be ended."""
        refused: OSError = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        for family, kind, protocol, _, address in await anyio.getaddrinfo(
            self._server.host, self._server.port, type=socket.SOCK_STREAM
        ):
            tried = socket.socket(family, kind, protocol)
            is_good = False
            try:
                tried.settimeout(0)
                number = tried.connect_ex(address)
                if number in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                    with anyio.fail_after(CONNECT_SECONDS):
                        await anyio.wait_writable(tried.fileno())
                    number = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                is_good = number == 0
                refused = refused if is_good else OSError(number, os.strerror(number))
            except TimeoutError as exc:
                refused = exc
            finally:
                if not is_good:
                    tried.close()
            if is_good:
                tried.settimeout(QUIET_SECONDS)
                return tried
        raise refused

    def _open(self, connected: socket.socket) -> None:
        library = import_module("imapclient")
        server, is_tls = self._server, self._server.security == TLS
        context = self._credentials.context() if is_tls else None

        def over_this(_client: object) -> imaplib.IMAP4:
            return _IdleOver(connected, server, context)

        # Its own way to wait for news looks at the socket only, and misses what has been read from there already.
        changed = {"_create_IMAP4": over_this, "_poll_socket": _always, "_select_poll_socket": _always}
        kind: Any = type("Client", (library.IMAPClient,), changed)
        client = kind(server.host, port=server.port, ssl=is_tls, ssl_context=context, timeout=QUIET_SECONDS)
        self._client = client
        client.normalise_times = False
        if server.security == STARTTLS:
            client.starttls(self._credentials.context())
        self._sign_in(library.exceptions.LoginError)
        self.can_push = bool(client.has_capability("IDLE"))

    def _sign_in(self, login_error: type[Exception]) -> None:
        client, who = self._client, self._credentials
        secret = who.secret()
        try:
            if who.is_token:
                client.oauth2_login(who.user, secret)
            elif (who.user + secret).isascii():
                client.login(who.user, secret)
            else:
                client.plain_login(who.user, secret)
        except login_error as exc:
            cause, text = exc.__context__, str(exc)
            if isinstance(cause, imaplib.IMAP4.abort) or _PASSING.search(text):
                raise imaplib.IMAP4.abort(text) from exc
            raise who.refused(self._server.host, _said(exc).replace(secret, "...")) from exc

    async def _close(self) -> None:
        client, handle = self._client, self._handle
        self._client = self._handle = None
        if handle is not None:
            # A thread may still wait for the server; only the end of the connection wakes it.
            with suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)
            handle.close()
        if client is None:
            return
        broken = suppress(imaplib.IMAP4.error, OSError, ValueError, AttributeError)
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), broken:
            await anyio.to_thread.run_sync(client.shutdown, abandon_on_cancel=True, limiter=self._threads)


class _IdleOver(imaplib.IMAP4):
    """The library's protocol over a connection that was made already."""

    def __init__(self, connected: socket.socket, server: MailServer, context: ssl.SSLContext | None) -> None:
        self._connected = connected
        self._context = context
        super().__init__(server.host, server.port, QUIET_SECONDS)

    def _create_socket(self, timeout: float | None) -> socket.socket:
        del timeout  # it is set on the connection
        if self._context is None:
            return self._connected
        return self._context.wrap_socket(self._connected, server_hostname=self.host)


def _always(*_args: object, **_options: object) -> bool:
    return True


def _said(error: Exception) -> str:
    """Return what a server said, on one line."""
    text = " ".join(str(error).split())[: 2 * MAX_SAID]
    said = _AROUND.sub("", text)[:MAX_SAID]
    return "".join(char for char in said if char.isprintable()) or "without a word"


def _number(found: Mapping[bytes, object], name: bytes) -> int:
    value = found.get(name, 0)
    return value if isinstance(value, int) else 0


def _row(uid: int, found: Mapping[bytes, object]) -> ImapRow:
    moment = found.get(b"INTERNALDATE")
    received_at = moment.astimezone(UTC) if isinstance(moment, datetime) else _EPOCH
    return ImapRow(uid, _number(found, b"RFC822.SIZE"), received_at, own_id_of(_bytes_of(found)))


def _bytes_of(found: Mapping[bytes, object]) -> bytes:
    return next((value for key, value in found.items() if key.startswith(b"BODY[") and isinstance(value, bytes)), b"")
