"""What is special to PostgreSQL: its schema, connections that are cut, and commits whose answer is lost."""

from __future__ import annotations

import os
import select
import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harken.clock import ServerClock
from harken.errors import Unavailable, UserError
from harken.model import INBOX, OUTBOX, Mailbox
from harken.store.contract.messages import Filter
from harken.store.postgres.connection import CONNECT, SETTINGS, PostgresConnection, PostgresTarget, connect, migrations
from harken.store.postgres.store import channel_of, open_store
from harken.store.sql.transaction import encode_json
from harken.store.sqlite.connection import migrations as sqlite_migrations
from harken.testing import FakeClock
from tests.contracts.store_suite import LEASE_SECONDS, READER, SECOND, WAIT_SECONDS, fill, new_message, texts
from tests.contracts.two_openers import Rings
from tests.store.postgres_server import SchemaPool, fresh, own_server, schemas

__all__ = ["fresh", "schemas"]  # fixtures

COLUMNS = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1"
LISTENING = """
SELECT pid FROM pg_stat_activity
WHERE application_name = 'harken' AND (query LIKE 'LISTEN%' OR query LIKE 'SELECT mailbox, n FROM changes%')
  AND pid <> pg_backend_pid()
"""
OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'harken' AND pid <> pg_backend_pid()
"""
NAME = ".s.PGSQL.5432"
JOIN_SECONDS = 10.0
HOUR_SECONDS = 3600.0
ONLY_HERE = {"changes", "commits", "messages_text", "schema_version"}


class CuttingProxy:
    """Stands between a daemon and its server, and cuts the connection at a commit."""

    def __init__(self, folder: Path, server: Path, *, is_forwarded: bool) -> None:
        self.folder = folder
        self._server = server / NAME
        self._is_forwarded = is_forwarded
        self._cuts = threading.Event()
        self._is_there = threading.Event()
        self._is_there.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / NAME))
        self._listener.listen()
        self._stays_away = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut_next_commit(self, *, and_stay_away: bool = False) -> None:
        """Let the next commit have no answer, and the server be away from then on."""
        self._stays_away = and_stay_away
        self._cuts.set()

    def come_back(self) -> None:
        """Relay again."""
        self._is_there.set()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._is_there.is_set():
                    client.close()
                    continue
                thread = threading.Thread(target=self._relay, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _relay(self, client: socket.socket) -> None:
        is_cut = False
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(self._server))
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data or (is_cut and ready is server):
                        return
                    if ready is client and b"COMMIT" in data and b"BEGIN" not in data and self._cuts.is_set():
                        self._cuts.clear()
                        if self._stays_away:
                            self._is_there.clear()
                        if not self._is_forwarded:
                            return
                        is_cut = True  # at its answer
                    (server if ready is client else client).sendall(data)


@contextmanager
def cutting_proxy(folder: Path, server: Path, *, is_forwarded: bool) -> Iterator[CuttingProxy]:
    """Run a proxy."""
    with closing(CuttingProxy(folder, server, is_forwarded=is_forwarded)) as proxy:
        yield proxy


def columns_of(target: PostgresTarget) -> set[tuple[str, str]]:
    """Return the tables of a schema, each with its columns."""
    with closing(connect(target)) as connection:
        return {(table, column) for table, column in connection.execute(COLUMNS, (target.schema,))}


def cut_all(target: PostgresTarget) -> None:
    """End every connection of stores on a server, which must be ours alone."""
    with closing(connect(target)) as connection:
        connection.execute(OTHERS)


async def test_the_tables_are_those_of_the_embedded_store(fresh: SchemaPool, tmp_path: Path) -> None:
    """Statements are shared, and a store is moved by copying its rows: a column that one of them lacks stops both."""
    async with open_store(fresh.target_of(tmp_path), FakeClock(), daemon="a"):
        found = {each for each in columns_of(fresh.target_of(tmp_path)) if each[0] not in ONLY_HERE}
    with closing(sqlite3.connect(":memory:")) as connection:
        for _, script in sqlite_migrations():
            connection.executescript(script)
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]
        expected = {
            (table, row[1])
            for table in tables
            if not table.startswith(("messages_text", "sqlite_"))
            for row in connection.execute(f"PRAGMA table_xinfo({table})")
        }
    assert found == expected


async def test_daemons_that_start_together_make_one_schema(fresh: SchemaPool, tmp_path: Path) -> None:
    """Several machines may be started at once, with an update that brings a migration."""
    target = replace(fresh.target_of(tmp_path), schema="harken_test_together")
    opened = list[int]()

    async def start(daemon: int) -> None:
        async with open_store(target, FakeClock(), daemon=f"{daemon}") as store:
            await fill(store, f"{daemon}")
            opened.append(daemon)

    try:
        async with anyio.create_task_group() as tasks:
            for daemon in range(4):
                tasks.start_soon(start, daemon)
    finally:
        with closing(connect(target)) as connection:
            connection.execute("DROP SCHEMA IF EXISTS harken_test_together CASCADE")
    assert sorted(opened) == [0, 1, 2, 3]


async def test_a_text_of_too_many_words_does_not_hold_up_the_index(fresh: SchemaPool, tmp_path: Path) -> None:
    """The server bounds a list of words, and those of a text may be longer than it is: what follows must be found."""
    words = ("".join(chr(0x3300 + (at * each + each // 87) % 87) for at in range(40)) for each in range(4_860))
    long = f"begin {' '.join(words)}"
    async with open_store(fresh.target_of(tmp_path), FakeClock(), daemon="a") as store:
        await fill(store, long, "after it")
        while await store.messages.index(100):
            pass
        assert [each.text for each in await store.messages.search("after", Filter(), 5)] == ["after it"]
        assert len(await store.messages.search("begin", Filter(), 5)) == 1


async def test_a_newer_schema_is_refused(fresh: SchemaPool, tmp_path: Path) -> None:
    """An older Harken would write rows that the newer one takes for something else."""
    target, newest = fresh.target_of(tmp_path), migrations()[-1][0]
    async with open_store(target, FakeClock(), daemon="a"):
        pass
    with closing(connect(target)) as connection:
        connection.execute("UPDATE schema_version SET version = version + 1")
        try:
            with pytest.raises(UserError, match=f"has schema {newest + 1}, this Harken supports {newest}"):
                async with open_store(target, FakeClock(), daemon="a"):
                    pass
        finally:
            connection.execute("UPDATE schema_version SET version = version - 1")


async def test_a_daemon_writes_nothing_into_a_schema_that_became_newer(fresh: SchemaPool, tmp_path: Path) -> None:
    """Machines are updated one after the other: what an old daemon stored meanwhile would be as the new one left it."""
    target, newest = fresh.target_of(tmp_path), migrations()[-1][0]
    async with open_store(target, FakeClock(), daemon="a") as store:
        await fill(store, "before")
        with closing(connect(target)) as connection:
            connection.execute("UPDATE schema_version SET version = version + 1")
            try:
                with pytest.raises(UserError, match=f"has schema {newest + 1}, this Harken supports {newest}"):
                    await fill(store, "meanwhile")
            finally:
                connection.execute("UPDATE schema_version SET version = version - 1")
        await fill(store, "after")
        assert await texts(store) == ["before", "after"]


def test_a_list_holds_any_text(fresh: SchemaPool, tmp_path: Path) -> None:
    """Ids and names of senders go to the server as JSON, and it takes no NUL there."""
    wanted = ["\x00", "a\x00\x00b", "\\\x00", "\\u0000", "\\\\\x00", "\U0010ffff0", '"', ""]
    store = PostgresConnection(fresh.target_of(tmp_path))
    with closing(store):
        store.prepare()
        rows = store.execute("SELECT value FROM json_each(?)", (encode_json(wanted),)).fetchall()
    assert [value for (value,) in rows] == wanted


def test_every_connection_has_its_bounds(fresh: SchemaPool) -> None:
    """A daemon that hangs must lose its transaction, or no other one could write."""
    with closing(connect(PostgresTarget(fresh.url))) as connection:
        assert {name: connection.execute(f"SHOW {name}").fetchall()[0][0] for name in SETTINGS} == dict(SETTINGS)
        given = connection.info.get_parameters()
        assert {name: given[name] for name in CONNECT} == {name: f"{value}" for name, value in CONNECT.items()}


@pytest.fixture(scope="module")
def own_target() -> Iterator[PostgresTarget]:
    """A store on a server that nobody else uses."""
    with own_server() as server:
        yield PostgresTarget(server.url)


async def test_connections_that_are_cut_are_opened_again(own_target: PostgresTarget) -> None:
    """A server is restarted, a network breaks: nobody should have to restart the daemons."""
    target, clock, rings = own_target, FakeClock(), Rings()
    async with open_store(target, clock, daemon="a") as first, open_store(target, clock, daemon="b") as second:
        await fill(first, "one")
        assert await texts(second) == ["one"]
        cut_all(target)
        await fill(first, "two")
        assert await texts(second) == ["one", "two"]
        with second.changes.listen(rings):
            await fill(first, "three")
            await rings.wait_for(INBOX)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGSTOP], ids=["ended", "silent"])
async def test_one_connection_that_is_dead_keeps_no_message_back(
    own_target: PostgresTarget, end: signal.Signals
) -> None:
    """The one that listens, while the others live: it is looked for what it did not tell of, and made anew."""
    target, clock, rings = own_target, FakeClock(), Rings()
    async with open_store(target, clock, daemon="a") as first, open_store(target, clock, daemon="b") as second:
        listening = list[int]()
        with closing(connect(target)) as connection, anyio.fail_after(WAIT_SECONDS):
            while len(listening) < 2:
                await anyio.lowlevel.checkpoint()
                listening = [pid for (pid,) in connection.execute(LISTENING).fetchall()]
        for pid in listening:
            os.kill(pid, end)
        try:
            with second.changes.listen(rings):
                await fill(first, "while nobody hears")
                await rings.wait_for(INBOX)
        finally:
            for pid in listening:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "hello",
        "[" * 7_000,
        '{"n": "many"}',
        f'{{"n": {(1 << 63) - 1}, "by": "b"}}',
        f'{{"n": {(1 << 63) - 1}, "by": "b", "mailboxes": ["inbox"]}}',
        f'{{"n": {-(1 << 63)}, "by": "b", "mailboxes": ["inbox"]}}',
    ],
    ids=["nothing", "no-json", "deep", "no-number", "ahead", "ahead-with-a-mailbox", "behind"],
)
async def test_notifications_of_others_make_no_daemon_deaf(fresh: SchemaPool, tmp_path: Path, said: str) -> None:
    """Every account of the database may notify on any channel."""
    target, clock, rings = fresh.target_of(tmp_path), FakeClock(), Rings()
    many = [Mailbox(f"project:{number:0>50}") for number in range(200)]
    async with open_store(target, clock, daemon="a") as first, open_store(target, clock, daemon="b") as second:
        with closing(connect(target)) as stranger, second.changes.listen(rings):
            await fill(first, "one")
            await rings.wait_for(INBOX)
            stranger.execute("SELECT pg_notify($1, $2)", (channel_of(target), said))
            await first.outbox.add((await first.messages.get("#1")).id, "hello", author="a", consumer=READER.consumer)
            await rings.wait_for(OUTBOX)
            stranger.execute("SELECT pg_notify($1, $2)", (channel_of(target), said))
            # They are too many for a notification: which they are is read.
            await first.messages.append([new_message(mailbox=mailbox) for mailbox in many])
            await rings.wait_for(many[-1])


@pytest.mark.parametrize("is_forwarded", [True, False])
async def test_a_commit_without_an_answer_is_found_out(
    fresh: SchemaPool, tmp_path: Path, *, is_forwarded: bool
) -> None:
    """What the sender is told must be so: sent again, it would be there twice; taken for stored, not at all."""
    target = fresh.target_of(tmp_path)
    if not target.url.startswith("host=/"):
        pytest.skip("the proxy stands before a socket, and the server that is named has none")
    with cutting_proxy(tmp_path, Path(target.url.split()[0].removeprefix("host=")), is_forwarded=is_forwarded) as proxy:
        url = target.url.replace(target.url.split()[0], f"host={proxy.folder}")
        async with open_store(replace(target, url=url), FakeClock(), daemon="a") as store:
            await fill(store, "before")
            proxy.cut_next_commit()
            if is_forwarded:
                await fill(store, "in doubt")
            else:
                with pytest.raises(Unavailable):
                    await fill(store, "in doubt")
            assert await texts(store) == (["before", "in doubt"] if is_forwarded else ["before"])


async def test_offers_of_a_commit_in_doubt_are_made_again(fresh: SchemaPool, tmp_path: Path) -> None:
    """The call got an error, so nobody has them: leased to a session that lives, they would wait for a quarter hour."""
    target = fresh.target_of(tmp_path)
    if not target.url.startswith("host=/"):
        pytest.skip("the proxy stands before a socket, and the server that is named has none")
    with cutting_proxy(tmp_path, Path(target.url.split()[0].removeprefix("host=")), is_forwarded=True) as proxy:
        url = target.url.replace(target.url.split()[0], f"host={proxy.folder}")
        clock = FakeClock()
        until = clock.now() + timedelta(seconds=LEASE_SECONDS)
        async with open_store(replace(target, url=url), clock, daemon="a", doubt_seconds=0.1) as store:
            await fill(store, "one", "two")
            proxy.cut_next_commit(and_stay_away=True)
            with pytest.raises(Unavailable, match="may have happened"):
                await store.deliveries.offer(READER, 9, surface="pull", carrier="1", lease_until=until)
            with pytest.raises(Unavailable):
                await store.deliveries.offer(READER, 9, surface="pull", carrier="2", lease_until=until)
            proxy.come_back()
            given = await store.deliveries.offer(READER, 9, surface="pull", carrier="3", lease_until=until)
            assert [(each.message.text, each.is_repeat) for each in given.whole] == [("one", False), ("two", False)]


async def test_clocks_that_differ_make_no_difference(fresh: SchemaPool, tmp_path: Path) -> None:
    """A machine whose clock is an hour ahead must not take what another one has on its way for lost."""
    here, there = ServerClock(FakeClock()), ServerClock(FakeClock(FakeClock().advance(HOUR_SECONDS)))
    target = fresh.target_of(tmp_path)
    async with (
        open_store(target, here, daemon="a", observe=here.observe) as first,
        open_store(target, there, daemon="b", observe=there.observe) as second,
    ):
        await fill(first, "on its way")
        until = here.now() + timedelta(seconds=LEASE_SECONDS)
        given = await first.deliveries.offer(READER, 9, surface="pull", carrier="1", lease_until=until)
        assert [each.message.text for each in given.whole] == ["on its way"]
        again = await second.deliveries.offer(SECOND, 9, surface="pull", carrier="2", lease_until=until)
        assert not again.whole
        assert (await second.deliveries.unread(SECOND)).leased == 1
