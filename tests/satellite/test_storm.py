"""A satellite while everything goes wrong: either daemon is killed, the link is cut, and nothing is lost or doubled.

`SOAK_KILLS` says how many kills the long run has, and `SOAK_SEED` which: a failure names both.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.loss.rig import Chance, DaemonStarter, check_journal, export, texts, until
from tests.postgres.proxy import BadWay
from tests.postgres.test_storm import LONG_SECONDS, MAILBOXES, Party, check_given, consumers, running
from tests.satellite.rig import MainDaemon, Pair, free_port, join, let_machines_in
from tests.satellite.test_cuts import asked
from tests.satellite.test_sessions import PROMPT, START, process, said

SEED: Final = 20_261_119
KILLS: Final = 100
HIGHEST_SEED: Final = 1_000_000
LOST_OF_TEN: Final = 3  # hooks of ten that are ended before they have printed what they got
ROUNDED: Final = timedelta(milliseconds=2)  # times of events are cut to milliseconds
_NAMED: Final = re.compile(r"buildbox \d+\b|main \d+\b")


@dataclass
class HookedAgent:
    """A session that only hooks tell of, as its host runs them; its host loses some of what they got."""

    pair: Pair
    pid: int
    chance: Chance
    printed: list[tuple[str, datetime]] = field(default_factory=list[tuple[str, datetime]])
    is_running: bool = True

    def stop(self) -> None:
        """Let it end."""
        self.is_running = False

    def run(self) -> None:
        """Have one turn after the other."""
        while self.is_running:
            for moment, payload in TURN:
                self.tell(moment, payload)

    def tell(self, moment: str, payload: dict[str, str]) -> None:
        """Run a hook to its end, or until either daemon dies."""
        with suppress(OSError), asked(self.pair, moment, said(payload, "s-1"), pid=self.pid) as (sock, text):
            if text and self.chance.randint(1, 10) > LOST_OF_TEN:
                self.printed.append((text, datetime.now(UTC)))
                sock.sendall(b"+")

    def shown(self) -> dict[str, datetime]:
        """Return when each message was printed first; one that was printed twice has the mark."""
        found: dict[str, datetime] = {}
        for text, at in list(self.printed):
            for name in _NAMED.findall(text):
                assert name not in found or "offered before" in text, f"{name} was printed twice without the mark"
                found.setdefault(name, at)
        return found


TOOL: Final = {"hook_event_name": "PostToolUse", "tool_name": "Bash"}
STOP: Final = {"hook_event_name": "Stop"}
TURN: Final = (("start", START), ("prompt", PROMPT), ("tool", TOOL), ("tool", TOOL), ("stop", STOP))


@dataclass
class Storm:
    """A main daemon and a satellite, with a writer and a reader each, and a session of hooks on the satellite."""

    pair: Pair
    parties: list[Party]
    hooked: HookedAgent
    chance: Chance

    def rage(self, kills: int) -> None:
        """Kill either daemon so many times, and cut the link in between."""
        way = self.pair.way
        for turn in range(kills):
            party = self.chance.choice(self.parties)
            party.wait_for_traffic(len(party.accepted) + self.chance.randint(1, 10))
            faults: list[Callable[[], None]] = [
                way.drop,
                partial(way.half_close, to_server=True),
                partial(way.half_close, to_server=False),
                partial(way.hold_up, to_server=True),
                partial(way.hold_up, to_server=False),
            ]
            self.chance.choice(faults)()
            daemon = self.parties[turn % 2].daemon
            daemon.kill()
            daemon.start()
            way.let_go()


Storms: TypeAlias = Callable[[int], AbstractContextManager[Storm]]
"""Makes storms, each by a seed."""


@pytest.fixture
def storms(starter: DaemonStarter, home: Path, tmp_path: Path) -> Storms:
    """A satellite that is reached by a bad way."""
    return partial(storming, starter, home, tmp_path)


@contextmanager
def storming(starter: DaemonStarter, home: Path, folder: Path, seed: int) -> Iterator[Storm]:
    """Have a satellite of a new main daemon."""
    port, there, place = free_port(), home.with_name("buildbox"), home.with_name("main")
    authority = let_machines_in(place, port, folder)
    with (place / "config.toml").open("a") as config:
        config.write(f'[projects.loss]\ndirs = ["{Path.cwd()}"]\n')
    with ExitStack() as work:
        main = MainDaemon(work.enter_context(starter.daemon(place)), authority, port).start()
        way = work.enter_context(BadWay(("127.0.0.1", port)))
        token = main.token("buildbox")
        satellite = work.enter_context(starter.daemon(there))
        join(there, main, token, way.port)
        pair = Pair(main, satellite, way, token).start()
        parties = [Party(main.served, there), Party(satellite, there)]
        for party in parties:
            work.enter_context(running(party.read, party.stop_reading))
        names = {f"reader-{party.name}" for party in parties}
        until(lambda: names <= consumers(main.served), "every reader is known", LONG_SECONDS)
        hooked = HookedAgent(pair, work.enter_context(process()).pid, Chance(seed))
        work.enter_context(running(hooked.run, hooked.stop))
        # A reader is not given what others had seen before it began.
        until(lambda: "claude-code" in consumers(main.served), "the session of hooks is known", LONG_SECONDS)
        for party in parties:
            work.enter_context(running(party.write, party.stop_writing))
        yield Storm(pair, parties, hooked, Chance(seed))


def check(storm: Storm) -> None:
    """Assert every promise about what was accepted, given and called seen."""
    for party in storm.parties:
        party.is_writing = False
    main = storm.pair.main.served
    until(storm.pair.is_linked, "the satellite is linked again", LONG_SECONDS)
    # In this order: what a writer has under way may be accepted in between.
    accepted = [text for party in storm.parties for text in party.accepted]
    stored = {mailbox: texts(export(main, mailbox)) for mailbox in MAILBOXES}
    found = [text for each in stored.values() for text in each]
    assert sorted(found) == sorted(set(found)), "a message was stored twice"
    assert set(found) >= set(accepted), "an accepted message is not stored"
    for party in storm.parties:
        party.wait_for(set(found))
        check_given(party, stored)
    until(lambda: set(stored["inbox"]) <= storm.hooked.shown().keys(), "the hooks get everything", LONG_SECONDS)
    check_seen(storm)


def check_seen(storm: Storm) -> None:
    """Assert that nothing was called seen by the session of hooks before it was printed for it."""
    main = storm.pair.main.served
    texts_of = {each["id"]: each["content_text_sanitized"] for each in export(main, "inbox")}
    shown, found = storm.hooked.shown(), 0
    for event in check_journal(main):
        if event["kind"] == "seen" and event["consumer"] == "claude-code":
            for message in event["deliveries"].values():
                at, found = datetime.fromisoformat(event["at"]), found + 1
                assert shown[texts_of[message]] <= at + ROUNDED, f"{texts_of[message]} was not printed when it was seen"
    assert found, "nothing was seen"


def test_nothing_is_lost_or_doubled_on_a_satellite(storms: Storms) -> None:
    """The promise of one machine holds over the link, whichever daemon dies, and while the link does."""
    with storms(SEED) as storm:
        storm.rage(kills=6)
        check(storm)


@pytest.mark.soak
def test_nothing_is_lost_or_doubled_on_a_satellite_in_a_long_storm(storms: Storms) -> None:
    """What goes wrong once in a hundred times goes wrong for somebody every day."""
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(HIGHEST_SEED))
    kills = int(os.environ.get("SOAK_KILLS") or KILLS)
    sys.stdout.write(f"\nSOAK_SEED={seed} SOAK_KILLS={kills}\n")
    with storms(seed) as storm:
        storm.rage(kills=kills)
        check(storm)
