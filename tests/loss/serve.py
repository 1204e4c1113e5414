"""The daemon for tests, started by path: it can be told to die at a commit, and starts quickly.

`serve.py` alone imports everything once and then starts a daemon for each line of JSON on its input, by `fork`: the
daemon is the real one, only the imports are saved. It answers each line with the number of the order and the process
id. A line has that number, the home, the file for errors, what differs in the environment, and optionally the commit of
the writing connection before or after which the process kills itself.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import uvloop

from harken import log
from harken.config.home import ensure, find_home, single_instance
from harken.config.load import load
from harken.config.satellite import joined_to
from harken.daemon.compose import SDK, serve
from harken.daemon.satellites import satellite
from harken.errors import HarkenError
from harken.hosts.registry import hosts
from harken.store.sqlite.connection import Connect, connect

Values: TypeAlias = Any
"""Whatever SQLite takes as the parameters of a statement."""


def dying(side: str, at: int, holding: str) -> Connect:
    """Return an opener whose connection kills this process before or after a commit.

    Which one: the commit number `at` of those whose transaction ran a statement that contains `holding`.
    """
    commits = itertools.count(1)

    class Dying(sqlite3.Connection):
        """Counts commits and stops the process as the kernel does: at once."""

        is_counted = False

        def execute(self, sql: str, parameters: Values = (), /) -> sqlite3.Cursor:
            """Run a statement; a certain commit is the last one of this process."""
            self.is_counted = self.is_counted or holding in sql
            is_last = sql == "COMMIT" and self.is_counted and next(commits) == at
            if is_last and side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            cursor = super().execute(sql, parameters) if parameters else super().execute(sql)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_counted = self.is_counted and sql != "COMMIT"
            return cursor

    def opener(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0, factory=Dying)

    return opener


def run(order: Mapping[str, object]) -> int:
    """Be a daemon until it ends; return the exit code."""
    home = find_home(str(order["home"]), {})
    opener: Connect = connect
    if "side" in order:
        opener = dying(str(order["side"]), int(str(order.get("at", 1))), str(order.get("holding", "")))
    try:
        ensure(home)
        settings = load(home, {}, {}).settings
        with single_instance(home.lock_file), log.configure(home, "info", to_stderr=False):
            record = joined_to(home)
            daemon = partial(serve, opener=opener) if record is None else partial(satellite.serve, record=record)
            uvloop.run(daemon(home, settings))
    except HarkenError as exc:
        sys.stderr.write(f"{exc.message} {exc.hint}\n")
        return exc.exit_code
    return 0


def start_daemons() -> None:
    """Start a daemon for each line of the input, until it ends."""
    import_module(SDK)
    hosts()
    anyio.run(anyio.lowlevel.checkpoint)  # imports what a loop needs
    # The collector of a daemon would go through, and so copy, all that this process has imported.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for their exit codes: the kernel buries them
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            errors = os.open(order["errors"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDWR)
            for source, target in ((null, 0), (null, 1), (errors, 2)):
                os.dup2(source, target)
            os.environ.update(order["environ"])
            os._exit(run(order))
        sys.stdout.write(f"{order['order']} {pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    start_daemons()
