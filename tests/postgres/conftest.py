"""A server with a password, and daemons of several homes that share a store on it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.loss.conftest import no_runtime_folder
from tests.loss.rig import DaemonStarter, Served
from tests.process_check import end_all_naming
from tests.store.postgres_server import PostgresServer, own_server

__all__ = ["no_runtime_folder"]

UPSTREAM: Final = Path(__file__).with_name("upstream")
SESAME: Final = "open-sesame-4711"
VARIABLE: Final = "HARKEN_DATABASE_PASSWORD"


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresServer]:
    """A server that asks for a password."""
    with own_server(SESAME) as server:
        yield server


@pytest.fixture(scope="package")
def turnstiles() -> Iterator[DaemonStarter]:
    """Starts daemons that have the source of `upstream` too."""
    starter = DaemonStarter({"PYTHONPATH": str(UPSTREAM)})
    yield starter
    starter.close()


@dataclass(slots=True)
class Machines:
    """Daemons with a home each, on one store; a machine is a home here."""

    starter: DaemonStarter
    folder: Path
    url: str
    schema: str
    more: str = ""  # of every config.toml
    _stack: ExitStack = field(default_factory=ExitStack)

    def home(self, name: str, **settings: str) -> Path:
        """Make the home of a machine."""
        home = self.folder / name
        home.mkdir(mode=0o700)
        store = {"url": self.url, "schema": self.schema, "password": f"env:{VARIABLE}", **settings}
        lines = [
            "[store]",
            *(f"{key} = {json.dumps(value)}" for key, value in store.items()),
            "[daemon]",
            f"machine = {json.dumps(name)}",
            self.more,
        ]
        (home / "config.toml").write_text("\n".join(lines))
        (home / "env").write_text(f"{VARIABLE}={SESAME}\n")
        (home / "env").chmod(0o600)
        return home

    def start(self, name: str, **settings: str) -> Served:
        """Start the daemon of a machine."""
        daemon = self._stack.enter_context(self.starter.daemon(self.home(name, **settings)))
        return daemon.start()

    def close(self) -> None:
        """End all of them."""
        self._stack.close()


@contextmanager
def some_machines(starter: DaemonStarter, server: PostgresServer) -> Iterator[Machines]:
    """Have machines on a store of their own."""
    folder = Path(tempfile.mkdtemp(prefix="harken-"))
    found = Machines(starter, folder, server.url, f"m_{folder.name[7:].lower()}")
    try:
        yield found
    finally:
        found.close()
        end_all_naming(folder)
        shutil.rmtree(folder)


@pytest.fixture
def machines(starter: DaemonStarter, server: PostgresServer) -> Iterator[Machines]:
    """Machines on a store of their own."""
    with some_machines(starter, server) as found:
        yield found
