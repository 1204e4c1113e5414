"""A server behind a pooler, which lets no notification through."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import AF_UNIX, SHUT_RDWR, socket
from threading import Thread

import pytest

from tests.loss.rig import export, texts, until
from tests.postgres.conftest import SESAME, Machines
from tests.postgres.test_one_inbox import HARKEN
from tests.store.postgres_server import PostgresServer

SOCKET = ".s.PGSQL.5432"
LISTEN = b'LISTEN "harken'
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") or "pgbouncer"
STOP_SECONDS = 20
TIMES = 10


@contextmanager
def pooler(folder: Path, server: Path, instead: bytes) -> Iterator[None]:
    """Stand before a server, and put something else where a connection wants to listen."""
    with ExitStack() as stack, socket(AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen()
        threads, ends = list[Thread](), list[socket]()

        def relay(source: socket, target: socket) -> None:
            with suppress(OSError):
                while data := source.recv(1 << 16):
                    target.sendall(data.replace(LISTEN, instead))
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(SHUT_RDWR)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client = stack.enter_context(listener.accept()[0])
                    behind = stack.enter_context(socket(AF_UNIX))
                    behind.connect(str(server / SOCKET))
                    ends.extend((client, behind))
                    for pair in ((client, behind), (behind, client)):
                        threads.append(Thread(target=relay, args=pair, daemon=True))
                        threads[-1].start()

        threads.append(Thread(target=accept, daemon=True))
        threads[0].start()
        try:
            yield
        finally:
            for end in (listener, *ends):
                with suppress(OSError):
                    end.shutdown(SHUT_RDWR)
            for thread in threads:
                thread.join()


@contextmanager
def pgbouncer(folder: Path, server: Path) -> Iterator[None]:
    """Stand before a server as PgBouncer does that gives a connection to a client for one transaction only."""
    account = "nobody" if os.geteuid() == 0 else getpass.getuser()
    settings = {
        "pool_mode": "transaction",
        "default_pool_size": "3",  # fewer than there are clients: each of them gets another one each time
        "auth_type": "any",
        "listen_addr": "",
        "listen_port": "5432",
        "unix_socket_dir": str(folder),
        "user": account,
        "pidfile": "",
        "logfile": str(folder / "log"),
    }
    database = f"* = host={server} user=harken password={SESAME}"
    lines = ["[databases]", database, "[pgbouncer]", *(f"{name} = {value}" for name, value in settings.items())]
    (folder / "pgbouncer.ini").write_text("\n".join([*lines, ""]))
    shutil.chown(folder, account)
    process = subprocess.Popen([PGBOUNCER, "-q", folder / "pgbouncer.ini"])
    try:
        until((folder / SOCKET).exists, "PgBouncer listens")
        yield
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


@pytest.mark.skipif(not Path(PGBOUNCER).exists(), reason="PgBouncer is not installed")
def test_daemons_work_behind_a_pooler_that_gives_connections_for_a_transaction(
    machines: Machines, server: PostgresServer
) -> None:
    """Settings and prepared statements of one client are then another's, and notifications nobody's."""
    folder = Path(tempfile.mkdtemp(prefix="harken-", dir="/tmp"))
    folder.chmod(0o755)
    with pgbouncer(folder, server.folder):
        url = machines.url.replace(str(server.folder), str(folder))
        first, second = (machines.start(name, url=url, password="") for name in ("first", "second"))
        beside = machines.start("beside", url=url, password="", schema=f"{machines.schema}_too")
        beside.call("send", text="another store")
        for number in range(TIMES):
            first.call("send", text=f"first {number}", to="inbox")
            second.call("send", text=f"second {number}", to="inbox")
        with second.caller() as caller:
            caller.ask("wait", consumer="another", timeout=20)
            until(lambda: "another" in {each["consumer"] for each in first.call("status")["consumers"]}, "it waits")
            first.call("send", text="hello")
            assert caller.answer()["messages"]
        wanted = [f"{name} {number}" for number in range(TIMES) for name in ("first", "second")]
        assert texts(export(first, "inbox")) == texts(export(second, "inbox")) == [*wanted, "hello"]
        assert texts(export(beside, "inbox")) == ["another store"]
        assert "looks every second for what other daemons store" in checks(second.home)
        for daemon in (first, second, beside):
            daemon.stop()
    shutil.rmtree(folder)


def checks(daemon_home: Path) -> str:
    """Return what `doctor` says."""
    done = subprocess.run([*HARKEN, "doctor", "--home", str(daemon_home)], capture_output=True, check=False, text=True)
    return done.stdout


@pytest.mark.parametrize("instead", [b'LISTEM "harken', b'LISTEN "harkem'], ids=["refused", "lost"])
def test_behind_a_pooler_daemons_look_instead_of_listening(
    machines: Machines, server: PostgresServer, tmp_path: Path, instead: bytes
) -> None:
    """Some poolers refuse to listen, others take it and lose what comes: nothing may wait for it."""
    here = machines.start("here")
    with pooler(tmp_path, server.folder, instead):
        behind = machines.start("behind", url=machines.url.replace(str(server.folder), str(tmp_path)))
        with behind.caller() as caller:
            caller.ask("wait", consumer="another", timeout=20)
            until(lambda: "another" in {each["consumer"] for each in here.call("status")["consumers"]}, "it waits")
            here.call("send", text="hello")
            assert [each["content_text_sanitized"] for each in caller.answer()["messages"]] == ["hello"]
        assert texts(export(behind, "inbox")) == ["hello"]
        assert "looks every second for what other daemons store" in checks(behind.home)
        behind.stop()
    found = checks(here.home)
    for words in (
        "the server is PostgreSQL",
        "this machine listens for what other daemons store",
        "the server's",
        "the daemon of here was heard of",
        "the daemon of behind has ended",
    ):
        assert words in found
