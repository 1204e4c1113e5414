"""Three daemons on one PostgreSQL while everything goes wrong: nothing is lost, doubled, or done by two at once.

`SOAK_KILLS` says how many kills of daemons the long run has, with one of the server for every five of them, and
`SOAK_SEED` which: a failure names both.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from harken.testing import EdgeClient, edge_command
from tests.loss.rig import CALL_HELLO, Chance, DaemonStarter, Json, Served, Wire, export, texts, until
from tests.loss.test_random_kills import as_given
from tests.postgres.conftest import some_machines
from tests.postgres.proxy import BadWay
from tests.store.postgres_server import PostgresServer

NAMES: Final = ("alpha", "beta", "gamma")
MAILBOXES: Final = ("inbox", "project:loss")
SEED: Final = 20_261_118
KILLS: Final = 100
KILLS_OF_A_STORM: Final = 50  # then another one begins: what is kept grows, and so does the time to look at it
KILLS_PER_CRASH: Final = 5
HIGHEST_SEED: Final = 1_000_000
LONG_SECONDS: Final = 40.0
DELAY_SECONDS: Final = 0.005  # of each packet: a transaction has dozens
SOURCE: Final = "board"


def ask(daemon: Served, method: str, **params: object) -> Json:
    """Return what a daemon answers, or None while it cannot."""
    try:
        with Wire(daemon.socket, CALL_HELLO) as wire:
            wire.say({"id": 1, "method": method, "params": params})
            line = wire.line()
    except OSError:
        return None
    answer = json.loads(line) if line else {}
    assert "result" in answer or not answer or answer["error"]["code"] in {"unavailable", "internal_error"}, answer
    return answer.get("result")


def insist(daemon: Served, method: str, **params: object) -> Json:
    """Ask until there is an answer."""
    return until(lambda: ask(daemon, method, **params), f"{method} is answered", LONG_SECONDS)


@dataclass
class Party:
    """A daemon, its writer and its reader, and what both saw."""

    daemon: Served
    notes: Path
    accepted: list[str] = field(default_factory=list[str])
    given: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    is_writing: bool = True
    is_reading: bool = True

    @property
    def name(self) -> str:
        """The name of its machine."""
        return self.daemon.home.name

    def stop_writing(self) -> None:
        """Let the writer end."""
        self.is_writing = False

    def stop_reading(self) -> None:
        """Let the reader end."""
        self.is_reading = False

    def write(self) -> None:
        """Send numbered messages, each until it is accepted, to both mailboxes in turn."""
        for number in count(1):
            if not self.is_writing:
                return
            text = f"{self.name} {number}"
            to, key = MAILBOXES[number % 2], f"{self.name}/{number}"
            insist(self.daemon, "send", text=text, sender=self.name, to=to, upstream_id=key)
            self.accepted.append(text)

    def read(self) -> None:
        """Wait for messages over one edge, as an agent of its own."""
        command = [*edge_command(self.daemon.home), "--spawn", "/bin/true"]
        with EdgeClient(command, name=f"reader-{self.name}") as agent:
            while self.is_reading:
                answer = agent.answer(agent.ask_tool("wait_for_inbound_message", timeout_s=2, max_items=20))
                if "error" not in answer and not answer["result"].get("isError"):
                    self.given += as_given(answer["result"])

    def wait_for_traffic(self, goal: int) -> None:
        """Return when so many messages were accepted."""
        until(lambda: len(self.accepted) >= goal, "the traffic goes on", LONG_SECONDS)

    def wait_for(self, wanted: set[str]) -> None:
        """Return when the reader was given some texts."""
        missing: set[str] = set()

        def is_given() -> bool:
            missing.clear()
            missing.update(wanted - {text for text, _ in self.given})
            return not missing

        try:
            until(is_given, "all is delivered", LONG_SECONDS)
        except AssertionError as exc:
            raise AssertionError(
                f"{self.name} lacks {len(missing)} of {len(wanted)}: {sorted(missing)[:20]}; last {self.given[-5:]}; "
                f"what the store says of one: {self.history(min(missing))}"
            ) from exc

    def around(self, *texts: str) -> list[tuple[str, bool]]:
        """Return what the reader was given about the time when it was given some texts."""
        places = [place for place, (text, _) in enumerate(self.given) if text in texts]
        return self.given[max(min(places) - 5, 0) : max(places) + 5]

    def history(self, text: str) -> Json:
        """Return what the store says of a message: its record, and the events about it."""
        found = [each for name in MAILBOXES for each in export(self.daemon, name) if texts([each]) == [text]]
        events = insist(self.daemon, "journal", limit=10_000)["events"]
        return found, [event for event in events if any(each["id"] in str(event) for each in found)]


@dataclass
class Storm:
    """The parties, the server, and the way to it."""

    parties: list[Party]
    server: PostgresServer
    way: BadWay
    notes: Path
    chance: Chance
    said: Iterator[int] = field(default_factory=lambda: count(1))
    answered: set[str] = field(default_factory=set[str])

    def note(self) -> None:
        """Let upstream have one more note."""
        draft = self.notes / "draft"
        draft.touch()
        draft.rename(self.notes / f"{next(self.said):06}.note")

    def answer_all(self) -> None:
        """Answer every note that has none yet."""
        for message in board(self.parties[0].daemon):
            if message["id"] not in self.answered:
                self.answered.add(message["id"])
                insist(
                    self.chance.choice(self.parties).daemon,
                    "reply",
                    ref=message["id"],
                    body=message["id"],
                    key=message["id"],
                )

    def fault(self) -> None:
        """Do something to the way to the server."""
        self.way.delay_seconds = 0.0
        faults: list[Callable[[], None]] = [
            self.way.drop,
            partial(self.way.half_close, to_server=True),
            partial(self.way.half_close, to_server=False),
            partial(setattr, self.way, "delay_seconds", DELAY_SECONDS),
        ]
        self.chance.choice(faults)()

    def rage(self, kills: int, crashes: int) -> None:
        """Kill a daemon so many times, the server now and then, and cut connections in between."""
        crash_at = {round((number + 0.5) * kills / crashes) for number in range(crashes)}
        for turn in range(kills):
            party = self.chance.choice(self.parties)
            goal = len(party.accepted) + self.chance.randint(1, 10)
            party.wait_for_traffic(goal)
            self.note()
            self.fault()
            if turn in crash_at:
                self.server.kill()
                self.server.start()
            party.daemon.kill()
            party.daemon.start()
            self.note()
            self.answer_all()
        self.way.delay_seconds = 0.0


def board(daemon: Served) -> list[Json]:
    """Return what came through the source."""
    return [each for each in export(daemon, "inbox") if each["source"] == SOURCE]


Storms: TypeAlias = Callable[[int], AbstractContextManager[Storm]]
"""Makes storms, each by a seed."""


@pytest.fixture
def storms(turnstiles: DaemonStarter, server: PostgresServer) -> Storms:
    """Three daemons that reach their server by a bad way, with a writer and a reader each."""
    return partial(storming, turnstiles, server)


@contextmanager
def storming(starter: DaemonStarter, server: PostgresServer, seed: int) -> Iterator[Storm]:
    """Have three daemons on a new store."""
    with (
        BadWay(server.folder / ".s.PGSQL.5432") as way,
        some_machines(starter, server) as machines,
        ExitStack() as work,
    ):
        notes = machines.folder / "notes"
        notes.mkdir()
        machines.url = f"postgresql://harken@127.0.0.1:{way.port}/postgres?sslmode=disable"
        projects = f'[projects.loss]\ndirs = ["{Path.cwd()}"]\n'
        source = f'[sources.{SOURCE}]\nkind = "turnstile"\nfolder = "{notes}"\ntrust = "known"\n'
        machines.more = projects + source
        parties = [Party(machines.start(name), notes) for name in NAMES]
        for party in parties:
            work.enter_context(running(party.read, party.stop_reading))
        places = {f"reader-{name}" for name in NAMES}
        until(lambda: places <= consumers(parties[0].daemon), "every reader is known", LONG_SECONDS)
        for party in parties:
            work.enter_context(running(party.write, party.stop_writing))
        yield Storm(parties, server, way, notes, Chance(seed))


def consumers(daemon: Served) -> set[str]:
    """Return the readers that a store knows."""
    return {each["consumer"] for each in daemon.call("status")["consumers"]}


@contextmanager
def running(work: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Work in a thread, which has ended at the end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(LONG_SECONDS)
        assert not thread.is_alive()


def check(storm: Storm) -> None:
    """Assert every promise about what was accepted, read and answered."""
    for party in storm.parties:
        party.is_writing = False
    daemon = storm.parties[0].daemon
    wanted = next(storm.said) - 1
    until(lambda: len(board(daemon)) >= wanted, "every note is stored", LONG_SECONDS)
    assert texts(board(daemon)) == [f"note {number}" for number in range(1, wanted + 1)], "two daemons read at once"
    storm.answer_all()
    until(
        lambda: insist(daemon, "outbox")["replies"] == [], "every answer has left, and none is in doubt", LONG_SECONDS
    )
    sent = [line.partition(" ")[2] for line in (storm.notes / "sent").read_text().splitlines()]
    assert sorted(sent) == sorted(storm.answered), "an answer was sent twice"
    accepted = {text for party in storm.parties for text in party.accepted}
    stored = {mailbox: texts(export(daemon, mailbox)) for mailbox in MAILBOXES}
    assert {text for found in stored.values() for text in found if not text.startswith("note ")} >= accepted
    for party in storm.parties:
        party.wait_for({text for found in stored.values() for text in found})
        check_given(party, stored)


def check_given(party: Party, stored: dict[str, list[str]]) -> None:
    """Assert that a reader was given everything in order, and nothing twice without the mark."""
    seen: set[str] = set()
    firsts: list[str] = []
    for text, is_repeat in list(party.given):
        assert is_repeat or text not in seen, f"{text} came twice to {party.name} without the mark"
        if text not in seen:
            firsts.append(text)
        seen.add(text)
    for mailbox, found in stored.items():
        given = [text for text in firsts if text in set(found)]
        early = next(((was, wanted) for was, wanted in zip(given, found, strict=True) if was != wanted), None)
        assert early is None, (
            f"{party.name} was given {early[0]} of {mailbox} before {early[1]}; "
            f"what it was given: {party.around(*early)}; what the store says: {[party.history(text) for text in early]}"
        )


def account(storm: Storm) -> str:
    """Return what a storm came to, in numbers: each reader is to be given everything that is stored."""
    accepted = {text for party in storm.parties for text in party.accepted}
    given = [text for party in storm.parties for text, _ in party.given]
    repeats = sum(is_repeat for party in storm.parties for _, is_repeat in party.given)
    lost = sum(len(accepted - {text for text, _ in party.given}) for party in storm.parties)
    return (
        f"{len(accepted)} messages accepted, {next(storm.said) - 1} notes read, {len(storm.answered)} answered; "
        f"{len(given)} deliveries to {len(storm.parties)} readers, {repeats} of them marked as repeats; {lost} lost"
    )


def test_nothing_is_lost_or_doubled_on_three_machines(storms: Storms) -> None:
    """The one promise holds for all machines together, whichever of them dies, and while the server does."""
    with storms(SEED) as storm:
        storm.rage(kills=5, crashes=1)
        check(storm)


@pytest.mark.soak
def test_nothing_is_lost_or_doubled_in_a_long_storm(storms: Storms, capsys: pytest.CaptureFixture[str]) -> None:
    """What goes wrong once in a hundred times goes wrong for somebody every day."""
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(HIGHEST_SEED))
    kills = int(os.environ.get("SOAK_KILLS") or KILLS)
    for start in range(0, kills, KILLS_OF_A_STORM):
        some = min(kills - start, KILLS_OF_A_STORM)
        with capsys.disabled():
            sys.stdout.write(f"\nSOAK_SEED={seed} SOAK_KILLS={kills}: {start} of them\n")
            sys.stdout.flush()
        with storms(seed + start) as storm:
            storm.rage(kills=some, crashes=-(-some // KILLS_PER_CRASH))
            check(storm)
            with capsys.disabled():
                sys.stdout.write(f"{account(storm)}\n")
                sys.stdout.flush()
