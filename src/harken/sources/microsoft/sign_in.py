"""A person's sign-in at Microsoft: by a code or in the browser, renewed silently, with its account.

`DelegatedSignIn` gets tokens in the person's name, `RedirectReceiver` takes the browser's answer on this machine, and
`SignInRecord` says who signed in, since when and with which permissions. `TokenCache` keeps one sign-in in a private
file, or in one that the keyring locks. Tokens are in no error and no log. Below is `sign_in_service.py`.
"""

from __future__ import annotations

import base64
import binascii
import functools
import importlib
import json
import logging
import os
import re
import secrets
import stat
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote

import anyio
from anyio import to_thread
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, Unavailable, UserError
from harken.sources.http import MARGIN, CachedToken, TokenHolder, held_until, seconds_of
from harken.sources.microsoft import sign_in_service as refusals
from harken.sources.microsoft.settings import DelegatedSettings
from harken.sources.microsoft.sign_in_service import AuthorityNotFound, SignInApp, SignInService, open_app, surprise

VERSION: Final = 1
MAX_CHARS: Final = 200

KNOCK_SECONDS: Final = 10.0  # for one connection
MAX_HEAD_BYTES: Final = 16_384
MAX_FORM_BYTES: Final = 65_536
MAX_FIELDS: Final = 50

_DONE: Final = ("200 OK", "The answer has arrived. You can close this page; how it went is shown where you began.")
_NOT_THAT: Final = ("400 Bad Request", "This address waits for a sign-in, and that was none.")

BROWSER_SECONDS: Final = 120.0
CODE_SECONDS: Final = 900.0  # how long Entra's codes last; also the longest that one is waited for
MAX_INTERVAL_SECONDS: Final = 60.0

_USER_CODE: Final = re.compile(r"[A-Za-z0-9-]{4,32}")
_ADDRESS: Final = re.compile(r"https://[\x21-\x7e]{1,200}")
_PAGE: Final = re.compile(r"https://[\x21-\x7e]{1,4000}")
_PENDING: Final = frozenset({"authorization_pending", "slow_down"})

_T = TypeVar("_T")

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
MAX_BYTES: Final = 4_000_000
LOCK_SECONDS: Final = 45.0  # longer than one renewal takes at most, which happens inside the lock
LOOK_SECONDS: Final = 0.05
STAMP_STEP_NS: Final = 2_000_000_000
KEYRING_SERVICE: Final = "harken"

_log = logging.getLogger("harken.sources.microsoft")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInPerson:
    """Who signed in. `upn` is the name they sign in with, which may look like a mail address."""

    name: str = ""
    upn: str = ""
    tenant_id: str = ""
    user_id: str = ""

    @property
    def title(self) -> str:
        """How people are told who it is."""
        if self.name and self.upn:
            return f"{self.name} ({self.upn})"
        return self.name or self.upn or self.user_id or "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInRecord:
    """A sign-in that stands: its account, since when, and until when the present access lasts before it is renewed."""

    person: SignedInPerson
    since: datetime  # by the clock of the service, as far as it is known
    renewed_at: datetime
    expires_at: datetime
    scopes: tuple[str, ...] = ()  # what was granted


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInStatus:
    """What people are told about a sign-in; `action` says what a person must do, if anything."""

    sign_in: SignInRecord | None = None
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignIn:
    """What the cache holds: the sign-in, its present access token, and msal's own cache as it wants it."""

    sign_in: SignInRecord
    client_id: str
    access: str = field(repr=False)
    tokens: str = field(repr=False)

    def dump(self) -> str:
        """Return it as text for the cache."""
        sign_in = self.sign_in
        person = sign_in.person
        return json.dumps(
            {
                "version": VERSION,
                "client_id": self.client_id,
                "person": [person.name, person.upn, person.tenant_id, person.user_id],
                "times": [at.isoformat() for at in (sign_in.since, sign_in.renewed_at, sign_in.expires_at)],
                "scopes": list(sign_in.scopes),
                "access": self.access,
                "tokens": self.tokens,
            }
        )


def load_kept(text: str | None) -> StoredSignIn | None:
    """Return what the cache held; nothing for what is damaged or was written by a later version."""
    try:
        got = json.loads(text or "")
        if got["version"] != VERSION:
            return None
        name, upn, tenant_id, user_id = map(str, got["person"])
        since, renewed_at, expires_at = (datetime.fromisoformat(at).astimezone(UTC) for at in got["times"])
        return StoredSignIn(
            sign_in=SignInRecord(
                person=SignedInPerson(name=name, upn=upn, tenant_id=tenant_id, user_id=user_id),
                since=since,
                renewed_at=renewed_at,
                expires_at=expires_at,
                scopes=tuple(map(str, got["scopes"])),
            ),
            client_id=str(got["client_id"]),
            access=str(got["access"]),
            tokens=str(got["tokens"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def person_of(claims: object) -> SignedInPerson:
    """Return who the claims of an id token are about."""
    if not isinstance(claims, Mapping):
        return SignedInPerson()
    upn = _plain(claims.get("preferred_username")) or _plain(claims.get("upn"))
    return SignedInPerson(
        name=_plain(claims.get("name")),
        upn=upn,
        tenant_id=_plain(claims.get("tid")),
        user_id=_plain(claims.get("oid")),
    )


def claims_of(id_token: object) -> Mapping[str, object]:
    """Return what an id token says. It came straight from the sign-in service, so no one else can have written it."""
    try:
        payload = str(id_token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:MAX_CHARS]


class RedirectReceiver:
    """Believes one answer: the first that brings `state`."""

    def __init__(self, port: int, state: str) -> None:
        self.address = f"http://localhost:{port}"  # the one name that Entra takes with any port
        self.state = state
        self._given: dict[str, str] = {}
        self._has_come = anyio.Event()

    async def given(self) -> Mapping[str, str]:
        """Wait for the answer; the caller bounds the wait."""
        await self._has_come.wait()
        return self._given

    async def serve(self, stream: ByteStream) -> None:
        """Hear one visitor."""
        async with stream:
            try:
                with anyio.move_on_after(KNOCK_SECONDS):
                    form = await _read_form(stream)
                    is_it = secrets.compare_digest(form.get("state", "").encode(), self.state.encode())
                    is_it = is_it and ("code" in form or "error" in form)
                    await stream.send(_page(*(_DONE if is_it else _NOT_THAT)))
                    if is_it and not self._has_come.is_set():
                        self._given = form
                        self._has_come.set()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # gone before the page was there; the answer, if any, is asked for again by the person


@asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[RedirectReceiver]:
    """Listen on this machine only, on any port unless told; raises `UserError` if that one is taken."""
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError:
        raise UserError(
            f"The port {port} of this machine is taken." if port else "No port of this machine can be had.",
            "Choose another port, or sign in with a code.",
        ) from None
    async with listener, anyio.create_task_group() as group:
        receiver = RedirectReceiver(listener.extra(SocketAttribute.local_port), secrets.token_urlsafe(24))
        group.start_soon(listener.serve, receiver.serve)
        try:
            yield receiver
        finally:
            group.cancel_scope.cancel()


async def _read_form(stream: ByteStream) -> dict[str, str]:
    """Return the fields of a posted form; nothing for any other request."""
    reader = BufferedByteReceiveStream(stream)
    try:
        head = (await reader.receive_until(b"\r\n\r\n", MAX_HEAD_BYTES)).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        length = headers.get("content-length", "")
        is_form = headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded")
        if not head[0].startswith("POST ") or not is_form or not (length.isascii() and length.isdigit()):
            return {}
        if len(length) > len(str(MAX_FORM_BYTES)) or int(length) > MAX_FORM_BYTES:
            return {}
        body = (await reader.receive_exactly(int(length))).decode("utf-8", "replace")
        return dict(parse_qsl(body, max_num_fields=MAX_FIELDS))
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream, ValueError):
        return {}


def _page(status: str, sentence: str) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Security-Policy: default-src 'none'",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
        f"Content-Length: {len(sentence.encode())}",
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + sentence).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePrompt:
    """What a person is shown: the code to enter, where, and until when."""

    code: str = field(repr=False)
    address: str
    expires_at: datetime

    @property
    def sentence(self) -> str:
        """The whole of it in one sentence."""
        return f"Open {self.address} on any device and enter the code {self.code}."


class DelegatedSignIn:
    """The sign-in of one source."""

    def __init__(self, settings: DelegatedSettings, cache: TokenCache, service: SignInService, clock: Clock) -> None:
        self._settings = settings
        self._cache = cache
        self._service = service
        self._clock = clock
        self._holder = TokenHolder(clock, self._renew, cache.stamp)
        self._claims = ""  # what the token that is being had must have

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return an access token, renewed where needed; raises `NeedsPerson` and `Unavailable`."""
        return await self._holder.token(is_fresh=is_fresh)

    async def meet(self, claims: str) -> str:
        """Return a new token with claims that Graph asks for; raises `NeedsPerson` if only a person can have one."""
        self._claims = claims
        try:
            return await self.token(is_fresh=True)
        finally:
            self._claims = ""

    async def standing(self) -> SignInStatus:
        """Return who is signed in and what a person must do, without asking the service."""
        kept = await self._in_thread(self._load)
        if kept is None:
            return SignInStatus(action=refusals.not_signed_in(self._asker()).action)
        return SignInStatus(sign_in=kept.sign_in, action=self._holder.action)

    async def sign_in_by_code(self, show: Callable[[CodePrompt], None]) -> SignInRecord:
        """Sign in with a code that the person enters elsewhere; `show` is told what to show them, once."""
        app = await self._in_thread(self._open)
        flow = await self._in_thread(app.begin_code)
        if "error" in flow:
            raise refusals.refusal(flow, self._asker())
        code, address = str(flow.get("user_code", "")), str(flow.get("verification_uri", ""))
        if not _USER_CODE.fullmatch(code) or not _ADDRESS.fullmatch(address) or "device_code" not in flow:
            raise surprise()
        seconds = min(seconds_of(flow.get("expires_in"), CODE_SECONDS), CODE_SECONDS)
        show(CodePrompt(code=code, address=address, expires_at=self._clock.now() + timedelta(seconds=seconds)))
        answer: Mapping[str, object] = {"error": "expired_token"}
        with anyio.move_on_after(seconds):
            answer = await self._wait_for_code(app, flow)
        return await self._accept(app, answer)

    async def sign_in_in_browser(
        self,
        show: Callable[[str], None],
        *,
        open_page: Callable[[str], object] = webbrowser.open,
        port: int = 0,
        seconds: float = BROWSER_SECONDS,
    ) -> SignInRecord:
        """Sign in in the browser of this machine; `show` is told the address, for the case that no browser opens.

        It raises `NeedsPerson` when no one signs in for so many seconds.
        """
        app = await self._in_thread(self._open)
        given: Mapping[str, str] | None = None
        async with receiving(port) as receiver:
            flow = await self._in_thread(functools.partial(app.begin_browser, receiver.address, receiver.state))
            address = str(flow.get("auth_uri", ""))
            if not _PAGE.fullmatch(address):
                raise surprise()
            show(address)
            with anyio.move_on_after(seconds):
                given = await self._browse(receiver, functools.partial(open_page, address))
        if given is None:
            raise NeedsPerson(
                f"{self._settings.name}: nobody signed in within {round(seconds)} seconds.",
                "Sign in again, or with a code if no browser of yours can reach this machine.",
                action=f"sign in again with: harken source login {self._settings.name}",
            )
        answer = await self._in_thread(functools.partial(app.end_browser, flow, given))
        return await self._accept(app, answer)

    async def sign_out(self) -> bool:
        """Remove the sign-in from this machine; returns whether there was one."""
        self._holder.forget()
        return await self._in_thread(self._clear)

    async def _browse(self, receiver: RedirectReceiver, open_page: Callable[[], object]) -> Mapping[str, str]:
        """Wait for the answer while the browser is opened: one in a terminal only returns when it is closed."""

        async def browse() -> None:
            with suppress(webbrowser.Error, OSError):  # the person has the address too
                await self._in_thread(open_page)

        async with anyio.create_task_group() as group:
            group.start_soon(browse)
            given = await receiver.given()
            group.cancel_scope.cancel()
        return given

    async def _wait_for_code(self, app: SignInApp, flow: dict[str, object]) -> Mapping[str, object]:
        """Ask again and again whether the code was entered, as slowly as the service wants."""
        while True:
            interval = min(seconds_of(flow.get("interval"), MAX_INTERVAL_SECONDS), MAX_INTERVAL_SECONDS)
            try:
                answer = await self._in_thread(functools.partial(app.ask_code, flow))
            except Unavailable as exc:
                interval = max(interval, exc.retry_after)  # the code is still good: only this question got lost
            else:
                if answer.get("error") not in _PENDING:
                    return answer
            await anyio.sleep(interval)

    async def _accept(self, app: SignInApp, answer: Mapping[str, object]) -> SignInRecord:
        """Keep a sign-in that has just succeeded, in place of the one before."""
        held = self._held(answer)
        now = self._clock.now()
        sign_in = SignInRecord(
            person=person_of(answer.get("id_token_claims")),
            since=self._service.their_time(now),
            renewed_at=now,
            expires_at=held.expires_at,
            scopes=tuple(str(answer.get("scope", "")).split()),
        )
        kept = StoredSignIn(sign_in=sign_in, client_id=self._settings.client_id, access=held.token, tokens=app.tokens())
        await self._in_thread(functools.partial(self._save, kept))
        self._holder.forget()
        return sign_in

    async def _renew(self, *, is_forced: bool) -> CachedToken:
        return await self._in_thread(functools.partial(self._renew_in_thread, is_forced=is_forced))

    def _renew_in_thread(self, *, is_forced: bool) -> CachedToken:
        # Inside the lock from reading to writing: a refresh token may be good for one use only.
        with self._cache.locked():
            kept = self._load()
            if kept is None:
                raise refusals.not_signed_in(self._asker())
            # Not left to msal: it finds no token whose permissions the service spells otherwise than we do.
            renew_at = kept.sign_in.expires_at - MARGIN
            if not is_forced and self._clock.now() < renew_at:
                expires_at, stamp = kept.sign_in.expires_at, self._cache.stamp()
                return CachedToken(token=kept.access, renew_at=renew_at, expires_at=expires_at, stamp=stamp)
            app = open_app(self._settings, self._service, kept.tokens)
            answer = app.renew(self._claims)
            if answer is None:
                raise refusals.not_signed_in(self._asker())
            held = self._held(answer)
            sign_in = replace(kept.sign_in, renewed_at=self._clock.now(), expires_at=held.expires_at)
            self._cache.save(replace(kept, sign_in=sign_in, access=held.token, tokens=app.tokens()).dump())
            return replace(held, stamp=self._cache.stamp())

    def _held(self, answer: Mapping[str, object]) -> CachedToken:
        if "error" in answer:
            raise refusals.refusal(answer, self._asker())
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise surprise()
        return held_until(token, self._clock.now(), seconds_of(answer.get("expires_in")))

    def _open(self) -> SignInApp:
        return open_app(self._settings, self._service)

    def _load(self) -> StoredSignIn | None:
        kept = load_kept(self._cache.load())
        # Another app's sign-in is of no use: its tokens are refused.
        return kept if kept is not None and kept.client_id == self._settings.client_id else None

    def _save(self, kept: StoredSignIn) -> None:
        with self._cache.locked():
            self._cache.save(kept.dump())

    def _clear(self) -> bool:
        with self._cache.locked():
            return self._cache.clear()

    def _asker(self) -> refusals.RefusalContext:
        settings = self._settings
        return refusals.RefusalContext(
            name=settings.name,
            tenant=settings.tenant,
            client_id=settings.client_id,
            authority=settings.authority,
            skew_seconds=self._service.skew_seconds,
        )

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Run what blocks. When cancelled, it ends there by itself and has changed nothing but the cache."""
        try:
            return await to_thread.run_sync(work, abandon_on_cancel=True)
        except AuthorityNotFound as exc:
            answer = exc.answer if "error" in exc.answer else {"error": "invalid_tenant"}
            raise refusals.refusal(answer, self._asker()) from None


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class TokenCache:
    """The place of one source's sign-in. `save` and `clear` are called inside `locked` only."""

    def __init__(self, folder: Path, name: str, *, is_in_keyring: bool = False) -> None:
        self._name = name
        self._folder = folder
        file = quote(name, safe="").replace(".", "%2E")
        self._path = folder / f"{file}.json"
        self._draft = folder / f".{file}.new"  # one name: what a killed process left is overwritten, never piled up
        self._lock_path = folder / f".{file}.lock"
        # The path is part of it, because two homes may have sources of one name.
        self._entry = f"sign-in {self._path}"
        self._is_in_keyring = is_in_keyring

    @contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep every other process out; raises `Unavailable` if one holds it for longer than `seconds`."""
        with self._on_disk():
            self._make_folder()
            file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | _no_follow(), PRIVATE_FILE)
        try:
            end = monotonic() + seconds
            while not _has_locked(file):
                if monotonic() >= end:
                    raise Unavailable(
                        f"Another process is busy with the sign-in of {self._name}.",
                        "Wait until it has ended.",
                        retry_after=5.0,
                    )
                sleep(LOOK_SECONDS)
            yield
        finally:
            os.close(file)  # which also gives the lock back

    def stamp(self) -> int:
        """Return a number that is another one after every `save` and `clear` of any process. Quick."""
        try:
            return self._lock_path.stat().st_mtime_ns
        except OSError:
            return 0

    def load(self) -> str | None:
        """Return what was saved, or nothing; what cannot be read any more counts as nothing."""
        data = self._read()
        if data is None or not self._is_in_keyring:
            return None if data is None else data.decode("utf-8", "replace")
        key = self._keyring_key()
        fernet = importlib.import_module("cryptography.fernet")
        try:
            return str(fernet.Fernet(key).decrypt(data).decode()) if key else None
        except (fernet.InvalidToken, ValueError):
            _log.warning("%s: the kept sign-in cannot be decrypted", self._name)
            return None

    def save(self, text: str) -> None:
        """Replace what was saved. After a crash there is the old text or the new, never a part."""
        data = text.encode()
        if self._is_in_keyring:
            fernet = importlib.import_module("cryptography.fernet")
            data = fernet.Fernet(self._keyring_key() or self._new_key()).encrypt(data)
        with self._on_disk():
            with suppress(FileNotFoundError):
                self._draft.unlink()
            file = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _no_follow(), PRIVATE_FILE)
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            self._draft.replace(self._path)
            self._changed()

    def clear(self) -> bool:
        """Remove what was saved, and its key; returns whether there was anything."""
        with self._on_disk():
            is_there = self._path.exists()
            for path in (self._path, self._draft):
                with suppress(FileNotFoundError):
                    path.unlink()
            self._changed()
        if self._is_in_keyring:
            with self._asking_keyring() as keyring, suppress(keyring.errors.PasswordDeleteError):
                keyring.delete_password(KEYRING_SERVICE, self._entry)
        return is_there

    def _changed(self) -> None:
        """Make the renaming survive power loss, where folders can be synced, and the stamp another one."""
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        # Not the clock's time: two quick changes would look like one. Some file systems count in steps of 2 seconds.
        stamp = self._lock_path.stat().st_mtime_ns + STAMP_STEP_NS
        os.utime(self._lock_path, ns=(stamp, stamp))

    def _read(self) -> bytes | None:
        with self._on_disk():
            try:
                file = os.open(self._path, os.O_RDONLY | _no_follow())
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as stream:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode) or not _is_own(status):
                    raise UserError(f"{self._path} is not a file of yours.", "Move it away, and sign in again.")
                if os.name == "posix" and stat.S_IMODE(status.st_mode) != PRIVATE_FILE:
                    _log.warning("%s: the kept sign-in could be read by others; it is private again", self._name)
                    os.fchmod(file, PRIVATE_FILE)
                return stream.read(MAX_BYTES)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_own(status):
            raise UserError(f"{self._folder} is not a folder of yours.", "Move it away, and sign in again.")
        if os.name == "posix" and stat.S_IMODE(status.st_mode) != PRIVATE_FOLDER:
            self._folder.chmod(PRIVATE_FOLDER)

    def _keyring_key(self) -> str | None:
        with self._asking_keyring() as keyring:
            value = keyring.get_password(KEYRING_SERVICE, self._entry)
        return str(value) if value else None

    def _new_key(self) -> str:
        key = str(importlib.import_module("cryptography.fernet").Fernet.generate_key().decode())
        with self._asking_keyring() as keyring:
            keyring.set_password(KEYRING_SERVICE, self._entry, key)
        return key

    @contextmanager
    def _asking_keyring(self) -> Iterator[Any]:
        try:
            keyring = importlib.import_module("keyring")
            errors = importlib.import_module("keyring.errors")
        except ImportError:
            raise UserError(
                f"The sign-in of {self._name} is to be kept with the keyring, which is not installed.",
                "Install the package keyring where Harken is, or keep it in a private file.",
            ) from None
        try:
            yield keyring
        except errors.KeyringLocked:
            raise NeedsPerson(
                f"The keyring that holds the sign-in of {self._name} is locked.",
                "Unlock it.",
                action="unlock the keyring",
            ) from None
        except errors.KeyringError:
            raise UserError(
                f"The keyring cannot be asked for the sign-in of {self._name}.",
                "Check that this session has a keyring at all, or keep it in a private file.",
            ) from None

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise _disk_error(self._name, exc) from exc


def _disk_error(name: str, exc: OSError) -> HarkenError:
    return Unavailable(
        f"The sign-in of {name} cannot be read or kept: {exc.strerror}.",
        "Check the space on the disk, and who owns the folder of Harken.",
        retry_after=60.0,
    )


def _has_locked(file: int) -> bool:
    try:
        _lock(file)
    except OSError:
        return False
    return True


def _no_follow() -> int:
    return getattr(os, "O_NOFOLLOW", 0)


def _is_own(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
