"""The store of a home: which one is configured, how it is opened, and whether the daemon can do its work with it.

A home has its store in a file, or shares one in PostgreSQL with the daemons of other homes. Here, and nowhere else, is
what differs between the two: the reserve of disk space and the look at the files are the embedded one's; the clock of
the server and the id of the home are for the shared one, which may be away when the daemon starts.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread
from anyio.abc import SocketStream
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from harken import __version__
from harken.clock import Clock, ServerClock
from harken.config.home import Home, home_id, write_private
from harken.config.load import target_of
from harken.config.settings import Settings
from harken.config.values import without_password
from harken.daemon import http
from harken.daemon.leadership import MachineInfo, machine_of
from harken.daemon.listener import Listener, Ownership, announce, open_endpoint
from harken.daemon.neighbours import GONE_AFTER, words_for_double
from harken.errors import HarkenError, Unavailable, UserError
from harken.memory import json_bytes
from harken.store.contract import Store
from harken.store.contract.events import AfterCommit, BeforeCommit
from harken.store.contract.health import StoreIdentity
from harken.store.files import DiskReserve
from harken.store.identity import identity_text, read_identity, refusal
from harken.store.journal import Journal, find_end
from harken.store.sqlite.connection import Connect
from harken.store.sqlite.snapshot import look
from harken.store.sqlite.store import open_store
from harken.store.sqlite.transfer import is_unused

if TYPE_CHECKING:  # importing it here is what this module puts off
    from harken.store.postgres.connection import PostgresTarget

_log = logging.getLogger("harken.daemon")

EMBEDDED: Final = "sqlite"
LOOK_SECONDS: Final = 3.0
HOLDS_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 2.0  # between two looks whether a store that is away is back
LOOPBACK: Final = "127.0.0.1"
STORE, SOCKET, STARTING = "store", "socket", "starting"
ASKED: Final = b'{"id":1,"method":"mailboxes","params":{}}\n'


class HomeStore(Protocol):
    """The store that a home is configured with, before it is opened."""

    @property
    def name(self) -> str:
        """What people see of it; never a password."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that leases and order go by."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether daemons of other homes may have it open too."""
        ...

    @property
    def here(self) -> MachineInfo:
        """The machine that this is, as the daemons of others know it."""
        ...

    @property
    def daemon(self) -> str:
        """Who the daemon of this home is among them; empty where there are none."""
        ...

    def open(
        self, journal: Journal, *, after_commit: AfterCommit, before_commit: BeforeCommit
    ) -> AbstractAsyncContextManager[Store]:
        """Open it if it belongs to the home, and let the journal have all its lines."""
        ...

    async def look(self) -> None:
        """Raise why it cannot be opened now, as far as that can be told from outside."""
        ...


def home_store(
    home: Home, configured: Settings, clock: Clock, opener: Connect, environ: Mapping[str, str]
) -> HomeStore:
    """Return the store that is configured; raises `UserError` for one that cannot be had."""
    machine = configured.daemon.machine
    target = target_of(home, configured.store, environ)
    if target is None:
        return EmbeddedStore(home, clock, opener, machine_of(machine, is_shared=False))
    return SharedStore(home, ServerClock(clock), target, machine_of(machine, is_shared=True))


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """The database file of a home."""

    home: Home
    clock: Clock
    opener: Connect
    here: MachineInfo
    name: str = EMBEDDED
    is_shared: bool = False
    daemon: str = ""

    @asynccontextmanager
    async def open(
        self, journal: Journal, *, after_commit: AfterCommit, before_commit: BeforeCommit
    ) -> AsyncIterator[Store]:
        """Open it if what lies in the home belongs together."""
        home = self.home
        reserve = DiskReserve(home.reserve_file)
        await anyio.to_thread.run_sync(reserve.begin)
        known = await anyio.to_thread.run_sync(_look, home)
        async with open_store(
            home.database,
            self.clock,
            after_commit=after_commit,
            before_commit=before_commit,
            opener=self.opener,
            watched=[home.lock_file],
            reserve=reserve,
            may_use_loop=True,
        ) as store:
            await _recover(journal, store, home, known)
            yield store

    async def look(self) -> None:
        """Say nothing: opening it says all."""


class SharedStore:
    """A schema of a PostgreSQL server, which daemons of other homes may have open too."""

    is_shared = True

    def __init__(self, home: Home, clock: ServerClock, target: PostgresTarget, here: MachineInfo) -> None:
        self.clock = clock
        self.name = without_password(target.url)
        self.daemon = home_id(home)
        self.here = here
        self._home = home
        self._target = target

    @asynccontextmanager
    async def open(
        self, journal: Journal, *, after_commit: AfterCommit, before_commit: BeforeCommit
    ) -> AsyncIterator[Store]:
        """Open it as the daemon of this home; leases and order go by the clock of the server."""
        from harken.store.postgres.store import open_store as open_schema

        async with open_schema(
            self._target,
            self.clock,
            daemon=self.daemon,
            machine=self.here.name,
            after_commit=after_commit,
            before_commit=before_commit,
            observe=self.clock.observe,
        ) as store:
            await self._refuse_copy(store)
            known = await anyio.to_thread.run_sync(self._known, await store.health.identity())
            await _recover(journal, store, self._home, known)
            yield store

    async def _refuse_copy(self, store: Store) -> None:
        """Raise `Unavailable` while a daemon of another machine is here under the id of this one: a home was copied.

        On a machine of the same name it may be an earlier life of this daemon, which was killed.
        """
        own = next((each for each in await store.daemons.list() if each.id == self.daemon), None)
        is_elsewhere = own is not None and own.is_here and own.machine != self.here.name
        if own is not None and is_elsewhere and own.seen_at > self.clock.now() - GONE_AFTER:
            raise Unavailable(*words_for_double(own), retry_after=AGAIN_SECONDS)

    async def look(self) -> None:
        """Ask the server for a connection."""
        from harken.store.postgres.connection import check

        await anyio.to_thread.run_sync(check, self._target)

    def _known(self, identity: StoreIdentity) -> StoreIdentity | None:
        """Refuse a home that has its messages elsewhere; return which store the home says it has."""
        known, journal = read_identity(self._home.identity_file), find_end(self._home.journal_dir)
        if identity.may_follow(known) and identity.may_follow(journal.store):
            return known
        if journal.store is None and is_unused(self._home.database):
            return None
        raise UserError(
            f"This home has a store of its own, and {self.name} is another one; nothing was changed.",
            "Take its messages there: harken store move URL. Or use another home for it (--home), or move harken.db, "
            "store.json and journal away to start anew.",
        )


def _look(home: Home) -> StoreIdentity | None:
    """Refuse a home with files that do not belong together; return which store the home says it has."""
    found = look(home.database, home.journal_dir, home.identity_file)
    if error := refusal(found):
        raise error
    return found.home


async def _recover(journal: Journal, store: Store, home: Home, known: StoreIdentity | None) -> None:
    """Let the home and the journal know which store this is, and the journal have all its lines."""
    identity = await store.health.identity()
    if identity != known:
        write_private(home.identity_file, identity_text(identity))
    missing = await journal.recover(store.events, identity)
    if missing:
        _log.info("wrote %d lines of the journal that were missing", missing)


class Readiness:
    """Whether the daemon can do its work: something can be stored, and its socket answers.

    Everyone on the machine may ask, so asking is cheap: one look at a time, and what it found holds for a moment. It is
    not health: that is whether the process runs at all.
    """

    def __init__(self, check_writable: Callable[[], Awaitable[None]]) -> None:
        self._check_writable = check_writable
        self._lock = anyio.Lock()
        self._address = ""
        self._reason = STARTING
        self._looked_at = float("-inf")

    def serves_at(self, address: str) -> None:
        """Know where the daemon's own socket is."""
        self._address = address

    async def reason(self) -> str:
        """Return in a word why it is not ready; empty when it is."""
        async with self._lock:
            if anyio.current_time() - self._looked_at > HOLDS_SECONDS:
                self._reason = await self._look()
                self._looked_at = anyio.current_time()
            return self._reason

    async def _look(self) -> str:
        if not self._address:
            return STARTING
        if not await self._is_writable():
            return STORE
        return "" if await self._is_answering() else SOCKET

    async def _is_writable(self) -> bool:
        with anyio.move_on_after(LOOK_SECONDS):
            try:
                await self._check_writable()
            except HarkenError:
                return False
            return True
        return False

    async def _is_answering(self) -> bool:
        """Whether a connection is taken and a question on it answered: a full backlog would take it too."""
        kind, _, rest = self._address.partition(":")
        with anyio.move_on_after(LOOK_SECONDS):
            try:
                async with await _connected(kind, rest) as stream:
                    token = rest.split(":", 2)[2] if kind == "tcp" else ""
                    hello = {"harken": 1, "kind": "call", "token": token}
                    await stream.send(json_bytes(hello) + b"\n" + ASKED)
                    return b'"result"' in await stream.receive()
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                return False
        return False


async def _connected(kind: str, rest: str) -> SocketStream:
    if kind == "unix":
        return await anyio.connect_unix(rest)
    return await anyio.connect_tcp(LOOPBACK, int(rest.split(":", 2)[1]))


class StandIn:
    """Serves in place of a daemon while its store is away: says so to everyone, and looks whether it is back."""

    def __init__(self, home: Home, settings: Settings, stored: HomeStore, error: HarkenError) -> None:
        self._home = home
        self._settings = settings
        self._stored = stored
        self._error = error

    async def serve(self) -> bool:
        """Return when the store is back, or when it is told to end; whether it was."""
        home, listening = self._home, self._settings.http
        lock = Ownership(home.lock_file)
        sock = http.bind(listening.host, listening.port, home.port_file, "http.port")
        web, is_told = http.make_server(self._answer), False
        try:
            async with (
                open_endpoint(home, self._settings.daemon.transport) as endpoint,
                anyio.create_task_group() as tasks,
            ):
                listener = Listener({}, endpoint.token, refusal=lambda: self._error)
                tasks.start_soon(endpoint.listener.serve, listener.handle)
                tasks.start_soon(partial(web.serve, sockets=[sock]))
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    announce(home, endpoint.address, url=http.url_of(sock), store_problem=self._error.message)
                    is_told = await self._is_told(Ownership(home.lock_file, *endpoint.files), signals)
                tasks.cancel_scope.cancel()
        finally:
            # The daemon that comes now has the same port.
            with anyio.CancelScope(shield=True):
                await web.end()
            sock.close()
            # What lies there now may be another daemon's.
            for leftover in () if lock.is_lost else (home.address_file, home.daemon_file):
                leftover.unlink(missing_ok=True)
        return is_told

    async def _is_told(self, own: Ownership, signals: AsyncIterable[signal.Signals]) -> bool:
        """Whether it was told to end before the store was back."""
        is_back = False
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                nonlocal is_back
                await self._until_back()
                is_back = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(look)
            await own.until_told(signals)
            tasks.cancel_scope.cancel()
        return not is_back

    async def _until_back(self) -> None:
        while True:
            await anyio.sleep(AGAIN_SECONDS)
            try:
                await self._stored.look()
            except HarkenError as exc:
                self._error = exc
            else:
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer any request: it lives, and is not ready."""
        is_health = scope.get("path") == "/healthz"
        body = {"status": "ok", "version": __version__} if is_health else {"status": "not ready", "reason": STORE}
        headers = {} if is_health else {"Retry-After": f"{AGAIN_SECONDS:.0f}"}
        response = Response(
            json_bytes(body), status_code=200 if is_health else 503, media_type="application/json", headers=headers
        )
        await response(scope, receive, send)
