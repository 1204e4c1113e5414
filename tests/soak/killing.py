"""A home that is killed again and again, the person who brings it back, and what must be true afterwards."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harken.config.home import Home
from harken.control.stop import daemons_of
from harken.testing import CallFailed, DaemonProcess
from tests.cli.rig import Outcome, Rig
from tests.loss.rig import Chance, DaemonStarter, Json, export, journal_lines, received, until
from tests.soak.mishaps import CHUNK, PAGE, Mishap, Place, Touched, keep_older
from tests.soak.traffic import MAILBOXES, Promises, Traffic, acknowledge, over_socket, pull

DISK_BYTES: Final = 256 << 20
MAX_ACCEPTED: Final = 30  # before a kill
AFTERMATH_SECONDS: Final = 0.3  # how long traffic goes on after a mishap, at most
MAX_TRIES: Final = 6
START_COMMITS: Final = 6
LIMIT: Final = 200
COMMAND: Final = re.compile(r"harken (recover|down)\b")
MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")


@dataclass(slots=True)
class Tally:
    """What was done and met, over all homes."""

    kills: int = 0
    accepted: int = 0
    in_start: int = 0
    in_recover: int = 0
    in_backup: int = 0
    recovered: int = 0
    put_back: int = 0
    offered_again: int = 0
    late_damage: int = 0  # the daemon served, and only reading showed the damage
    latent_damage: int = 0  # nothing that was read showed it, only SQLite's own check
    outcomes: Counter[str] = field(default_factory=Counter[str])

    def note(self, said: str) -> None:
        """Count what a start was refused with, whatever numbers and places it names."""
        words = re.sub(r"\d+", "N", re.sub(r"/\S+", "…", said.removeprefix("harken: ")))
        self.outcomes[re.split(r" \(|[;:,] |\. ?$", words)[0]] += 1

    def __str__(self) -> str:
        words = "; ".join(f"{count} times {what!r}" for what, count in sorted(self.outcomes.items()))
        return (
            f"{self.kills} kills, {self.in_start} of them in a start, {self.in_recover} in a recovery and "
            f"{self.in_backup} in a backup; {self.accepted} messages accepted, 0 lost; recovered {self.recovered} "
            f"times, put back {self.put_back} times; damage met by reading {self.late_damage} times, only by a "
            f"check {self.latent_damage} times; {self.offered_again} proofs made again; "
            f"not started {sum(self.outcomes.values())} times: {words}"
        )


class TemporaryDisk:
    """A file system of its own, which can be filled to the last byte; only root may mount one."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Write until there is no room."""
        with self._filler.open("wb", buffering=0) as file:
            for size in (CHUNK, PAGE):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self) -> None:
        """Make room."""
        self._filler.unlink(missing_ok=True)


class EndlessDisk:
    """What is there for everyone else: it is never full."""

    def fill(self) -> None:
        """Do nothing."""

    def free(self) -> None:
        """Do nothing."""


@contextmanager
def disk_at(folder: Path) -> Iterator[TemporaryDisk | EndlessDisk]:
    """A disk for the time of the block."""
    folder.mkdir()
    if os.geteuid() != 0 or not MOUNT or not UNMOUNT:
        yield EndlessDisk()
        return
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        yield TemporaryDisk(folder)
    finally:
        subprocess.run([UNMOUNT, "--lazy", str(folder)], check=True)


class Life:
    """A home from its first start to its end. Use it inside `with`."""

    def __init__(
        self, folder: Path, starter: DaemonStarter, seed: int, tally: Tally, tell: Callable[[str], None]
    ) -> None:
        self.home = folder / "home"
        self.chance = Chance(seed)
        self.daemon = DaemonProcess(self.home)
        self.traffic = Traffic(self.daemon, seed)
        self._rig = Rig(self.home)
        self._starter = starter
        self._tally = tally
        self._tell = tell
        self._folder = folder
        self._stack = ExitStack()
        self._story: list[str] = []

    @property
    def promises(self) -> Promises:
        """What was promised."""
        return self.traffic.promises

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            disk = stack.enter_context(disk_at(self._folder))
            stack.callback(self._kill)
            self.place = Place(home=self.home, disk=disk, chance=self.chance, older=self._folder / "older.db")
            self.home.mkdir(mode=0o700)
            (self.home / "config.toml").write_text(f'[projects.soak]\ndirs = ["{Path.cwd()}"]\n')
            self._rig.ok("up")
            stack.enter_context(self.traffic.flowing())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def be_killed(self, mishap: Mishap) -> None:
        """One round: traffic, a mishap and a kill, and a person who brings everything back."""
        began = time.monotonic()
        self._story = [mishap.name]
        keep_older(self.place)
        self.traffic.go_on()
        self.traffic.until_accepted(self.chance.randint(1, MAX_ACCEPTED))
        with ExitStack() as under_way:
            if self.chance.random() < 0.1:
                under_way.enter_context(self._backing_up())
            if mishap.is_live:
                mishap.do(self.place)
                self._go_on_for_a_moment()
            self._kill()
        self.traffic.hold()
        if not mishap.is_live:
            mishap.do(self.place)
        if self.chance.random() < 0.3:
            self._kill_in_start()
        self._bring_back()
        self._check(mishap)
        self._tidy()
        took = time.monotonic() - began
        self._tell(f"{self._tally.kills}. {'; '.join(self._story)}: {len(self.promises.accepted)} there, {took:.1f} s")

    def conclude(self) -> None:
        """Say that the home is whole when nobody serves it, and count what it has."""
        self._rig.ok("down")
        assert self._rig.json("recover") == {"state": "whole"}
        self._tally.accepted += len(self.promises.accepted)

    def _go_on_for_a_moment(self) -> None:
        tried, end = len(self.promises.tried), time.monotonic() + AFTERMATH_SECONDS
        until(lambda: len(self.promises.tried) > tried + MAX_ACCEPTED or time.monotonic() > end, "traffic goes on")

    def _kill(self) -> None:
        """End every daemon of the home at once, as the kernel does when memory is short."""
        pids = daemons_of(Home(self.home))
        self._tally.kills += bool(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    select.select([handle], [], [], 10)
                finally:
                    os.close(handle)

    def _kill_in_start(self) -> None:
        """Start a daemon that dies at one of its first commits, or some time before it serves."""
        if self.chance.random() < 1 / 2:
            with self._rig.begin("serve") as command:
                select.select([], [], [], self.chance.random())
                if command.poll() is not None:
                    return
            self._tally.kills += 1
            self._tally.in_start += 1
            self._story.append("killed some time after its start")
            return
        side = self.chance.choice(("before", "after"))
        with self._starter.daemon(self.home) as served:
            before = served.errors()
            served.start(side=side, at=self.chance.randint(1, START_COMMITS))
            if served.errors() != before:
                return  # it was refused, and left by itself
        self._tally.kills += 1
        self._tally.in_start += 1
        self._story.append("killed in a start")

    @contextmanager
    def _backing_up(self) -> Iterator[None]:
        """Let a backup be under way when the daemon is killed; one that has its name is whole."""
        file, restored = self._folder.with_suffix(".tar.gz"), self._folder.with_suffix(".restored")
        promised = {each.id for each in self.promises.accepted}
        with self._rig.begin("backup", str(file), "--replace") as command:
            select.select([], [], [], self.chance.random() / 2)
            yield
            command.kill()
        self._tally.in_backup += 1
        self._story.append("killed in a backup")
        if file.exists():
            self._rig.ok("restore", str(file), "--home", str(restored), "--yes")
            with closing(sqlite3.connect(restored / "harken.db")) as connection:
                found = {str(row[0]) for row in connection.execute("SELECT id FROM messages")}
            assert promised <= found, "the backup lacks what was accepted before it began"
            shutil.rmtree(restored)
            file.unlink()

    def _bring_back(self) -> None:
        """Do what a person does: start it, and follow what it says when it does not."""
        said = list[str]()
        for _ in range(MAX_TRIES):
            done = self._rig.run("up")
            if done.code == 0:
                self._story.append("up" if not said else "")
                return
            said.append(done.err)
            self._follow(done)
        raise AssertionError(f"{self._story}: nothing that it says helps:\n{chr(10).join(said)}")

    def _follow(self, done: Outcome) -> None:
        """Do what a command that failed tells the person to do."""
        assert "Traceback" not in done.err, done.err
        self._tally.note(done.err.splitlines()[0])
        undone = self.place.put_back
        offers_recover = "harken recover" in done.err
        if undone and (not offers_recover or self.chance.random() < 1 / 2):
            # "Free some space", "belongs to another user", "put the file back": only a person knows where it is.
            assert re.search(r"space|belongs|permissions|writable|back", done.err), done.err
            for back in undone:
                back()
            undone.clear()
            self._tally.put_back += 1
            self._story.append("put back")
            return
        assert offers_recover, done.err
        self._recover()

    def _recover(self) -> None:
        while self.chance.random() < 1 / 3:
            self._kill_in_recover()
        done = self._rig.run("recover", "--yes", "--json")
        if done.code != 0 and re.search(r"space", done.err):
            self.place.disk.free()
            done = self._rig.run("recover", "--yes", "--json")
        assert done.code == 0, f"{self._story}: {done}"
        told = json.loads(done.out)
        if told["state"] == "recovered":
            assert told["lost"]["messages"] == 0, told
            self._tally.recovered += 1
            self._story.append(f"recovered ({told['found']})")
        else:
            self._story.append(told["state"])

    def _kill_in_recover(self) -> None:
        """Kill a recovery somewhere, half of the time when it puts files in place."""
        with self._rig.begin("recover", "--yes") as command:
            if self.chance.random() < 1 / 2:
                before = set(self.home.glob("harken.db.lost-*"))
                until(
                    lambda: set(self.home.glob("harken.db.lost-*")) - before or command.poll() is not None,
                    "files are put in place",
                    60,
                    pause_seconds=0.0,
                )
            else:
                select.select([], [], [], self.chance.random())
            if command.poll() is not None:
                return  # it was faster
        self._tally.kills += 1
        self._tally.in_recover += 1
        self._story.append("killed in a recovery")

    def _check(self, mishap: Mishap) -> None:
        """Look at everything; damage that only reading shows is brought back as it says, once."""
        self.place.disk.free()
        for back in self.place.put_back if mishap.touches is Touched.NOTHING else ():
            back()
        self.place.put_back.clear()
        try:
            self._look(mishap)
        except (CallFailed, sqlite3.DatabaseError) as exc:
            hint = f"{exc.error['message']} {exc.error['hint']}" if isinstance(exc, CallFailed) else "harken recover"
            assert "harken recover" in hint, f"{self._story}: {hint}"
            is_said = isinstance(exc, CallFailed)
            self._tally.late_damage += is_said
            self._tally.latent_damage += not is_said
            self._story.append("damage met by reading" if is_said else "damage met by a check only")
            self._rig.ok("down")
            self._recover()
            self._rig.ok("up")
            self._look(mishap)

    def _look(self, mishap: Mishap) -> None:
        promises, stored = self.promises, list[Json]()
        for mailbox in MAILBOXES:
            found = export(self.daemon, mailbox)
            assert [each["seq"] for each in found] == list(range(1, len(found) + 1)), f"{self._story}: {mailbox}"
            stored += found
        by_id = {each["id"]: each for each in stored}
        lost = [each for each in promises.accepted if each.id not in by_id]
        assert not lost, f"{self._story}: {len(lost)} lost, {lost[:3]}"
        for each in promises.accepted:
            assert by_id[each.id]["content_text_sanitized"] == each.text, f"{self._story}: {each}"
        texts = Counter(each["content_text_sanitized"] for each in stored)
        assert not [text for text, count in texts.items() if count > 1], f"{self._story}: stored twice"
        assert set(texts) <= promises.tried, f"{self._story}: invented"
        self._check_order(by_id)
        for each in self.chance.sample(promises.accepted, min(3, len(promises.accepted))):
            told = {"text": each.text, "sender": each.sender, "to": each.mailbox, "upstream_id": each.key}
            assert over_socket(self.daemon, told)["id"] == each.id, f"{self._story}: sent again it is another one"
        self._check_seen(mishap)
        self._check_files(stored)

    def _check_order(self, by_id: dict[str, Json]) -> None:
        newest: dict[tuple[str, str], int] = {}
        for each in self.promises.accepted:
            seq = by_id[each.id]["seq"]
            assert seq > newest.get((each.sender, each.mailbox), 0), f"{self._story}: {each} is out of order"
            newest[each.sender, each.mailbox] = seq

    def _check_seen(self, mishap: Mishap) -> None:
        """Read everything: nothing that was acknowledged comes again, and nothing twice without the mark."""
        promises, again = self.promises, list[str]()
        while pulled := pull(self.daemon, LIMIT):
            again += [message["id"] for message in pulled if message["id"] in promises.seen]
            acknowledge(self.daemon, promises, pulled)
        if not mishap.may_offer_again:
            assert not again, f"{self._story}: {len(again)} were acknowledged and are unread"
            assert not promises.doubled, f"{self._story}: given twice without the mark: {promises.doubled}"
        assert not promises.renamed, f"{self._story}: {promises.renamed}"
        self._tally.offered_again += len(again)
        promises.doubled.clear()

    def _check_files(self, stored: list[Json]) -> None:
        """The database is whole, and the journal has every message: either of them may go in the next round."""
        with closing(sqlite3.connect(f"{self.place.database.as_uri()}?mode=ro", uri=True)) as connection:
            said = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        if said != ["ok"]:
            raise sqlite3.DatabaseError(said)
        ids = {each["id"] for each in stored}
        until(lambda: set(received(journal_lines(self.home))) >= ids, f"{self._story}: the journal has all of them")
        numbers = [line["n"] for line in journal_lines(self.home)]
        assert numbers == sorted(set(numbers)), f"{self._story}: lines of the journal are out of order or double"

    def _tidy(self) -> None:
        """Remove what was kept of lost databases: a person would, and it would fill the disk."""
        for path in (*self.home.glob("harken.db.lost-*"), *self.home.glob("moved-*")):
            path.unlink()
