"""Connections to PostgreSQL that take the statements of `store/sql`, the schema that they find, and errors as ours.

A connection that was lost is opened again where the next transaction begins. Every one has bounds on how long it waits
for the server, and the server for it: a daemon that hangs or is cut off loses its transaction, and with it the lock
that lets one daemon write at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Any, Final, cast

import psycopg
import psycopg.errors
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Json
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

from harken.errors import HarkenError, Unavailable, UserError
from harken.memory import out_of_memory
from harken.store.sql.transaction import RETRY_SECONDS, Parameters, SqlRow, SqlRows, full, unstorable_text

OLDEST_SERVER: Final = 140_000
APPLICATION: Final = "harken"
LOCK_SPACE: Final = 0x4861726B  # ours among the advisory locks of a database
MAX_PREPARED: Final = 500
MAX_WAITING: Final = 100  # statements that are sent together
SETTINGS: Final[Mapping[str, str]] = {
    "statement_timeout": "30s",
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "15s",
    "client_min_messages": "warning",
    "jit": "off",  # compiling a statement costs more than any of ours
    "standard_conforming_strings": "on",
    "timezone": "UTC",
}
CONNECT: Final[Mapping[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
SET_UP: Final = "SELECT set_config(name, setting, false) FROM json_each_text($1) AS given (name, setting)"
VERSION: Final = "SELECT version FROM schema_version"
HAS_SCHEMA: Final = "SELECT 1 FROM pg_namespace WHERE nspname = $1"
HAS_VERSION: Final = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'schema_version'"
SIZE: Final = """
SELECT CAST(coalesce(sum(pg_total_relation_size(c.oid)), 0) AS BIGINT)
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = current_schema() AND c.relkind = 'r'
"""
TRIAL_CHANNEL: Final = "harken trial"
HEAR_SECONDS: Final = 2.0
AGES: Final = """
SELECT id, machine, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - seen_at, sessions <> ''
FROM daemons ORDER BY machine, id
"""
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_NUL: Final = "\x00"
_ESCAPE: Final = "\U0010ffff"  # no character, and never will be
# What the server says with its last breath.
_ENDED: Final = (
    psycopg.errors.AdminShutdown,
    psycopg.errors.CrashShutdown,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
# Of a connection that is refused the driver has no more than the words.
_REFUSED: Final = ("password authentication failed", "no password supplied", "no pg_hba.conf entry")
# A string, a place for a value, or what only SQLite wants to be told about a plan.
_PARTS: Final = re.compile(r"'[^']*'|\?|:([a-z_]+)|INDEXED BY \w+|CROSS (?=JOIN)|(?<=[\s(])\+(?=[a-z])")


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """Which store: how the server is reached, the schema in it, and the password where `url` has none."""

    url: str = field(repr=False)  # it may hold a password
    schema: str = "harken"
    password: str = field(default="", repr=False)


class _TextDumper(StrDumper):
    """Writes text. The server has no NUL in its texts: one is written as two other characters."""

    def dump(self, obj: str) -> bytes:
        if _NUL in obj or _ESCAPE in obj:
            obj = obj.replace(_ESCAPE, _ESCAPE + "1").replace(_NUL, _ESCAPE + "0")
        return obj.encode()


class _TextLoader(Loader):
    """Reads what `_TextDumper` wrote."""

    def load(self, data: Buffer) -> str:
        text = str(data, "utf-8")
        return text if _ESCAPE not in text else text.replace(_ESCAPE + "0", _NUL).replace(_ESCAPE + "1", _ESCAPE)


class _NumberedBool(Dumper):
    """Writes what is true or not as a number: the columns are numbers, as in SQLite."""

    oid = Int8Dumper.oid

    def dump(self, obj: object) -> bytes:
        return b"1" if obj else b"0"


@dataclass(frozen=True, slots=True)
class _Statement:
    text: str
    names: tuple[str, ...]
    is_writing: bool  # and nothing else


@lru_cache(maxsize=2_000)
def _statement(sql: str) -> _Statement:
    """Return a statement of `store/sql` with the places for its values as the server numbers them."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        part, name = found[0], found[1]
        if name is not None:
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"
        if part == "?":
            names.append("")
            return f"${len(names)}"
        return part if part.startswith("'") else ""

    text = _PARTS.sub(number, sql)
    is_writing = text.lstrip().startswith(("INSERT", "UPDATE", "DELETE")) and "RETURNING" not in text
    return _Statement(text, tuple(names) if any(names) else (), is_writing)


class WaitingStatement:
    """A statement that only writes: it is sent with the next that is asked for something, or when it is asked."""

    def __init__(self, send: Callable[[], object], statement: _Statement, values: Sequence[object]) -> None:
        self.statement = statement
        self.values = values
        self.result: psycopg.Cursor[Any] | None = None
        self._send = send

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        if self.result is None:
            self._send()
        if self.result is None:
            raise psycopg.OperationalError("the statement was not sent")
        return self.result.rowcount

    def fetchone(self) -> SqlRow:
        """Return None: it gives no rows."""
        return None

    def fetchall(self) -> list[SqlRow]:
        """Return nothing."""
        return []

    def __iter__(self) -> Iterator[SqlRow]:
        return iter(())


class PostgresConnection:
    """A connection that takes statements as SQLite's does. It is opened, and again, where a transaction begins.

    What only writes waits until something is asked: the trips to the server are what an append costs.
    """

    def __init__(self, target: PostgresTarget) -> None:
        self._target = target
        self._connection: ServerConnection | None = None
        self._waiting: list[WaitingStatement] = []

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None and not self._connection.closed

    def execute(self, sql: str, parameters: Parameters = (), /) -> SqlRows:
        """Run one statement."""
        if sql.startswith("BEGIN"):
            return self._begin(sql)
        statement = _statement(sql)
        values = [parameters[name] for name in statement.names] if isinstance(parameters, Mapping) else parameters
        if statement.is_writing:
            for text in values:  # what cannot be written is refused here: later, another job would be told
                if isinstance(text, str) and not text.isascii():
                    text.encode()
            waiting = WaitingStatement(self.run_at_once, statement, values)
            self._waiting.append(waiting)
            if len(self._waiting) >= MAX_WAITING:
                self.run_at_once()
            return waiting
        return cast("SqlRows", self.run_at_once((sql, values)) if self._waiting else self._run(statement, values))

    def run_at_once(self, *asked: tuple[str, Sequence[object]]) -> psycopg.Cursor[Any] | None:
        """Send what waits, and statements after it, in one trip; return what the last of these gives."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) + len(asked) == 1:  # a pipeline would be one more trip
            for each in waiting:
                each.result = self._run(each.statement, each.values)
            return self._run(_statement(asked[0][0]), asked[0][1]) if asked else None
        with self._open.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
            for each in waiting:
                each.result = self._run(each.statement, each.values)
            results = [self._run(_statement(sql), values) for sql, values in asked]
        return results[-1] if results else None

    def drop_waiting(self) -> None:
        """Forget what was not sent."""
        self._waiting.clear()

    def _run(self, statement: _Statement, values: Sequence[object]) -> psycopg.Cursor[Any]:
        return self._open.execute(statement.text, values or None)

    @property
    def _open(self) -> ServerConnection:
        if self._connection is None:
            raise psycopg.OperationalError("there is no connection")
        return self._connection

    def run(self, script: str) -> psycopg.Cursor[Any]:
        """Run statements without values, in one trip; the result is that of the last."""
        cursor = self._open.execute(script, prepare=False)
        while cursor.nextset():
            pass
        return cursor

    def begin(self, script: str) -> psycopg.Cursor[Any]:
        """Run statements that begin a transaction; a connection that turns out to be lost is opened again."""
        self.drop_waiting()
        try:
            return self.run(self._open.in_schema(script))
        except psycopg.OperationalError as exc:
            if self.is_open and not isinstance(exc, _ENDED):
                raise
        self.close()
        self._connection = connect(self._target)
        return self.run(self._open.in_schema(script))

    def prepare(self) -> None:
        """Make sure a usable schema is there: create it, bring it up to date, or refuse it untouched."""
        with translated():
            if self._connection is None:
                self._connection = connect(self._target)
            prepare_schema(self._connection, self._target)

    def close(self) -> None:
        """Close it; the next transaction opens it again."""
        if self._connection is not None:
            self._connection.close()

    def _begin(self, sql: str) -> SqlRows:
        return cast("SqlRows", self.begin(sql))


def refuse_unreadable(target: PostgresTarget) -> None:
    """Refuse what is no URL of a server. What the driver says of it is not repeated: it may hold the password."""
    try:
        conninfo_to_dict(target.url)
    except psycopg.Error:
        raise UserError(
            "store.url is not a URL of a PostgreSQL server.", "Write it as postgresql://USER@HOST:PORT/DATABASE."
        ) from None


class ServerConnection(psycopg.Connection[Any]):
    """A connection to a server, or to a pooler before it, which may give each transaction another one of its own.

    What is set there for a connection would be set for whoever has it next, so it is set for a transaction.
    """

    local = ""  # what every transaction begins with; empty: there is no pooler

    def in_schema(self, script: str) -> str:
        """Return statements that begin a transaction, with the settings that it needs."""
        if not self.local:
            return script
        begin, _, rest = script.partition(";")
        return f"{begin}; {self.local}; {rest}" if rest.strip() else f"{begin}; {self.local}"

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let what is read here be read with the settings of the store."""
        if not self.local:
            yield
            return
        self.execute(self.in_schema(BEGIN_READ), prepare=False)
        try:
            yield
        finally:
            if not self.closed:
                self.execute("COMMIT")


def connect(target: PostgresTarget) -> ServerConnection:
    """Open a connection in autocommit mode: transactions are begun by name, never implicitly."""
    given: dict[str, Any] = {"password": target.password} if target.password else {}
    connection = ServerConnection.connect(
        target.url,
        autocommit=True,
        cursor_factory=psycopg.RawCursor,
        application_name=APPLICATION,
        **CONNECT,
        **given,
    )
    try:
        connection.prepared_max = MAX_PREPARED
        # Every value has its type: of one that has none the server would have to guess.
        connection.adapters.register_dumper(str, _TextDumper)
        connection.adapters.register_loader("text", _TextLoader)
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(bool, _NumberedBool)
        settings = {"search_path": quoted(target.schema), **SETTINGS}
        [[process]] = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchall()
        if process == connection.info.backend_pid:
            connection.execute(SET_UP, [Json(settings)], prepare=False)
        else:
            # Only a pooler says another number. What is prepared on a connection of its, the next one does not know.
            connection.prepare_threshold = None
            values = [f"set_config('{name}', {as_literal(text)}, true)" for name, text in settings.items()]
            connection.local = f"SELECT {', '.join(values)}"
    except psycopg.Error:
        connection.close()
        raise
    return connection


def check(target: PostgresTarget) -> None:
    """Raise why no connection can be had."""
    with translated():
        connect(target).close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """What `doctor` says of a server: its version, whether it is heard, its clock, and who uses the store."""

    version: str
    schema: int
    is_heard: bool
    ahead: timedelta
    daemons: Sequence[DaemonAge]


@dataclass(frozen=True, slots=True)
class DaemonAge:
    """A daemon of a store, and how long ago it was heard of, by the clock of the server."""

    id: str
    machine: str
    silence: timedelta
    is_here: bool


def examine(target: PostgresTarget, now: Callable[[], datetime]) -> ServerReport:
    """Look at a server and its store; nothing is changed. `now` is the time by the clock of this machine."""
    with translated(), closing(connect(target)) as one, closing(connect(target)) as other:
        began = now()
        [[moment]] = one.execute("SELECT clock_timestamp()").fetchall()
        here = began + (now() - began) / 2
        with one.reading():
            [[schema]] = one.execute(VERSION).fetchall()
            ages = one.execute(AGES).fetchall()
        return ServerReport(
            version=str(one.info.parameter_status("server_version") or "").split(" ")[0],
            schema=int(schema),
            is_heard=_is_heard(one, other),
            ahead=moment - here,
            daemons=[
                DaemonAge(name, machine, timedelta(microseconds=silence), bool(is_here))
                for name, machine, silence, is_here in ages
            ],
        )


def _is_heard(one: ServerConnection, other: ServerConnection) -> bool:
    """Whether one connection hears what another one notifies of."""
    try:
        one.execute(f"LISTEN {quoted(TRIAL_CHANNEL)}")
    except psycopg.Error:
        if one.closed:
            raise
        return False
    other.execute("SELECT pg_notify($1, '')", (TRIAL_CHANNEL,))
    return any(True for _ in one.notifies(timeout=HEAR_SECONDS, stop_after=1))


def as_literal(text: str) -> str:
    """Return a text as statements have it; `standard_conforming_strings` is on."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """Return a name as statements have it."""
    return '"' + name.replace('"', '""') + '"'


def migrations() -> list[tuple[int, str]]:
    """Return the numbered migrations, in order."""
    folder = resources.files("harken.store.postgres") / "migrations"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.split("_", 1)[0]), (folder / name).read_text()) for name in files]


def prepare_schema(connection: ServerConnection, target: PostgresTarget) -> None:
    """Create the schema, bring it up to date, or refuse it untouched, one daemon at a time."""
    _refuse_server(connection)
    with connection.transaction():
        if connection.local:
            connection.execute(connection.local, prepare=False)
        connection.execute(f"SELECT pg_advisory_xact_lock({LOCK_SPACE}, hashtext($1))", (target.schema,))
        if connection.execute(HAS_SCHEMA, (target.schema,)).fetchone() is None:
            connection.execute(f"CREATE SCHEMA {quoted(target.schema)}")
        _migrate(connection, target)


def _migrate(connection: psycopg.Connection[Any], target: PostgresTarget) -> None:
    known = migrations()
    newest = known[-1][0]
    current = 0
    if connection.execute(HAS_VERSION, (target.schema,)).fetchone() is None:
        connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (0)")
    else:
        [[current]] = connection.execute(VERSION).fetchall()
    if current > newest:
        raise too_new(current, newest)
    for number, script in known:
        if number > current:
            connection.execute(script, prepare=False)
            connection.execute("UPDATE schema_version SET version = $1", (number,))


def too_new(found: int, newest: int) -> UserError:
    """Return the error for a schema that a newer Harken has brought up to date."""
    return UserError(
        f"The database has schema {found}, this Harken supports {newest}.",
        "Install the newer Harken here too, then: harken up. Or use another home (--home).",
    )


def _refuse_server(connection: psycopg.Connection[Any]) -> None:
    version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
    if version < OLDEST_SERVER:
        raise UserError(f"The server is PostgreSQL {version // 10_000}.", "Use PostgreSQL 14 or newer.")
    if encoding != "UTF8":
        raise UserError(f"The database has the encoding {encoding}.", "Use a database with the encoding UTF8.")


def translate(error: Exception) -> HarkenError:
    """Return the error that tells the caller what to do next."""
    if isinstance(error, psycopg.errors.DiskFull):
        return full()
    detail = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return UserError(
            f"PostgreSQL does not allow this account to do that ({detail}).", "Grant it, or use another account."
        )
    if isinstance(error, psycopg.OperationalError) and any(said in detail for said in _REFUSED):
        # Not for good: a password that is changed is changed in two places, one after the other.
        return Unavailable(
            f"PostgreSQL does not let this account in ({detail}).",
            "Check the user in store.url and what store.password refers to; `harken store move` has --password.",
            retry_after=RETRY_SECONDS,
        )
    if isinstance(error, psycopg.DatabaseError) and not isinstance(error, psycopg.OperationalError):
        return Unavailable(
            f"PostgreSQL refused a statement ({detail}).",
            "It changed nothing. If it happens again, report what logs/daemon.log has of it.",
            retry_after=RETRY_SECONDS,
        )
    return Unavailable(
        f"PostgreSQL does not answer ({detail}).",
        "Check that the server runs and that store.url is right; logs/daemon.log has more.",
        retry_after=RETRY_SECONDS,
    )


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's exceptions into ours."""
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc) from exc
    except UnicodeEncodeError as exc:
        raise unstorable_text() from exc
    except MemoryError as exc:
        raise out_of_memory() from exc
