"""A daemon that is frozen past its leases and goes on: it has work in its hands that another one has done meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.loss.rig import DaemonStarter, Json, Served, texts, until
from tests.postgres.conftest import some_machines
from tests.postgres.proxy import BadWay
from tests.postgres.test_storm import LONG_SECONDS, SOURCE, board
from tests.store.postgres_server import PostgresServer

NAMES: Final = ("alpha", "beta")


@dataclass
class Pair:
    """Two daemons that have the same source, each with a way of its own to the server."""

    daemons: list[Served]
    ways: list[BadWay]
    notes: Path

    def note(self, number: int) -> None:
        """Let upstream have a note."""
        (self.notes / f"{number:06}.note").touch()

    def leader(self) -> tuple[Served, Served, BadWay] | None:
        """Return the one that reads the source, the other one, and the way of the first."""
        states = [source_of(daemon)["state"] for daemon in self.daemons]
        if states.count("listening") != 1:
            return None
        first = states.index("listening")
        return self.daemons[first], self.daemons[1 - first], self.ways[first]

    def sent(self) -> list[str]:
        """Return what was answered."""
        file = self.notes / "sent"
        return [line.partition(" ")[2] for line in file.read_text().splitlines()] if file.exists() else []


def source_of(daemon: Served) -> Json:
    """Return what a daemon says of its source."""
    return next(each for each in daemon.call("source_list")["sources"] if each["name"] == SOURCE)


@pytest.fixture
def pair(turnstiles: DaemonStarter, server: PostgresServer) -> Iterator[Pair]:
    """Two daemons on a new store."""
    with ExitStack() as stack:
        ways = [stack.enter_context(BadWay(server.folder / ".s.PGSQL.5432")) for _ in NAMES]
        machines = stack.enter_context(some_machines(turnstiles, server))
        notes = machines.folder / "notes"
        notes.mkdir()
        machines.more = f'[sources.{SOURCE}]\nkind = "turnstile"\nfolder = "{notes}"\ntrust = "known"\n'
        url = "postgresql://harken@127.0.0.1:{}/postgres?sslmode=disable"
        daemons = [machines.start(name, url=url.format(way.port)) for name, way in zip(NAMES, ways, strict=True)]
        yield Pair(daemons, ways, notes)


@pytest.mark.parametrize(
    "to_server", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["before-it-writes", "while-it-writes"]
)
def test_a_daemon_that_was_frozen_past_its_lease_changes_nothing(pair: Pair, *, to_server: bool) -> None:
    """It does not know how long it was away: what it was about to store, another one has stored and answered."""
    pair.note(1)
    frozen, other, way = until(pair.leader, "one of them reads the source")
    until(lambda: len(board(other)) == 1, "the first note is stored")
    # It reads the note and begins to write, and gets no further.
    way.hold_up(to_server=to_server)
    pair.note(2)
    with frozen.caller() as caller:
        caller.ask("send", text="on its way", upstream_id="x/1")
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            until(lambda: len(board(other)) == 2, "the other one takes over", LONG_SECONDS)
            for message in board(other):
                other.call("reply", ref=message["id"], body=message["id"], key=message["id"])
            until(lambda: len(pair.sent()) == 2, "they are answered", LONG_SECONDS)
        finally:
            way.let_go()
            os.kill(frozen.pid, signal.SIGCONT)
        until(lambda: source_of(frozen)["state"] != "listening", "it knows", LONG_SECONDS)
        pair.note(3)
        until(lambda: len(board(other)) >= 3, "the third note is stored", LONG_SECONDS)
    # What follows is written after all that it had under way.
    until(lambda: frozen.call("send", text="still here"), "it works on", LONG_SECONDS)
    assert texts(board(other)) == ["note 1", "note 2", "note 3"]
    assert sorted(pair.sent()) == sorted(each["id"] for each in board(other)[:2])
    assert other.call("outbox")["replies"] == []
