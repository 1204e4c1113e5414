"""A backup is one moment of a home that goes on living, without its secrets; and it comes back whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from harken.config.home import Home
from harken.control.client import DaemonClient
from tests.cli.rig import Json, Rig
from tests.loss.rig import until

USER_ERROR, NOT_FOUND, CONFLICT = 2, 3, 4
BEFORE, ROUNDS = 40, 3
SECRETS = {
    "token": "t0ken",
    "env": "KEY=s3cret",
    "sign-ins/teams.json": "cache",
    "secrets/ci": "whsec",
    "logs/x": "log",
}


@contextmanager
def writing(home: Path) -> Iterator[list[str]]:
    """Send messages as fast as they are accepted, for the time of the block; yields those that were."""
    accepted: list[str] = []
    is_over = threading.Event()

    def write() -> None:
        with DaemonClient(Home(home), can_start=False) as daemon:
            while not is_over.is_set():
                accepted.append(daemon.ask("send", text=f"number {len(accepted)}")["id"])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield accepted
    finally:
        is_over.set()
        thread.join(30)


def _at_least(count: int, accepted: list[str]) -> list[str]:
    """Wait until so many messages were accepted, and return which."""
    until(lambda: len(accepted) >= count, "messages are accepted")
    return list(accepted)


def numbers(home: Path) -> list[int]:
    """The numbers of the journal's lines, in order."""
    lines = [line for file in sorted((home / "journal").iterdir()) for line in file.read_text().splitlines()]
    return [json.loads(line)["n"] for line in lines]


def contents(file: Path) -> dict[str, bytes]:
    """The files in a backup."""
    with tarfile.open(file) as archive:
        found = ((entry.name, archive.extractfile(entry)) for entry in archive)
        return {name: b"" if data is None else data.read() for name, data in found}


def rewritten(file: Path, changes: Mapping[str, bytes | None], target: Path) -> Path:
    """A backup with other contents: None takes a file away, a new name comes before the end."""
    files = contents(file)
    end = files.pop("harken-backup.end")
    files |= {name: data for name, data in changes.items() if data is not None}
    files["harken-backup.end"] = changes.get("harken-backup.end") or end
    with tarfile.open(target, "w:gz") as archive:
        for name, data in files.items():
            if changes.get(name, data) is not None:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return target


@pytest.fixture
def saved(served: Rig, tmp_path: Path) -> Path:
    """A backup of a home with two messages."""
    served.ok("send", "one")
    served.ok("send", "two")
    served.ok("backup", str(tmp_path / "saved.tgz"))
    return tmp_path / "saved.tgz"


def test_a_backup_while_messages_arrive_has_all_that_were_accepted_before(served: Rig, tmp_path: Path) -> None:
    """The promise holds for a copy too: what was accepted before it began is in it, and its journal says the same."""
    with writing(served.home) as accepted:
        for number in range(ROUNDS):
            before = _at_least(BEFORE * (number + 1), accepted)
            said = served.json("backup", str(tmp_path / f"{number}.tgz"))
            assert len(accepted) > len(before)  # it went on meanwhile
            copy = Rig(tmp_path / f"copy{number}")
            restored = copy.json("restore", str(tmp_path / f"{number}.tgz"))
            assert restored["last_event"] == said["last_event"]
            lines = numbers(copy.home)
            assert lines == list(range(1, lines[-1] + 1))
            assert lines[-1] <= said["last_event"]
            with closing(sqlite3.connect(copy.home / "harken.db")) as database:
                stored = {row[0] for row in database.execute("SELECT id FROM messages")}
            assert set(before) <= stored
    _continues(Rig(tmp_path / f"copy{ROUNDS - 1}"))


def _continues(copy: Rig) -> None:
    """A daemon takes the copy up: its journal becomes complete, and nothing is said to be lost."""
    with copy.serving():
        copy.ok("send", "after")
        with closing(sqlite3.connect(copy.home / "harken.db")) as database:
            [[last]] = database.execute("SELECT max(n) FROM events")
            kinds = {row[0] for row in database.execute("SELECT kind FROM events")}
        assert numbers(copy.home) == list(range(1, last + 1))
        assert "recovered" not in kinds


def test_a_backup_has_settings_and_rules_and_no_secret(served: Rig, tmp_path: Path) -> None:
    """It is kept where backups are kept: whoever reads it there must not become the person."""
    served.ok("send", "hello")
    for name, text in SECRETS.items():
        (served.home / name).parent.mkdir(exist_ok=True)
        (served.home / name).write_text(text)
    (served.home / "config.toml").write_text("[log]\nbackups = 2\n")
    (served.home / "triggers.json").write_text('{"version": 1, "rules": []}\n')
    (served.home / "journal" / "notes.txt").write_text("mine")
    file = tmp_path / "b.tgz"
    served.ok("backup", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = contents(file)
    [day] = [name for name in found if name.startswith("journal/")]
    assert set(found) == {"harken-backup.json", "config.toml", "triggers.json", "harken.db", day, "harken-backup.end"}
    assert found["config.toml"] == b"[log]\nbackups = 2\n"
    plain = b"".join(found.values())
    assert not [text for text in SECRETS.values() if text.encode() in plain and text != "log"]
    copy = Rig(tmp_path / "copy")
    copy.ok("restore", str(file))
    assert sorted(path.name for path in copy.home.iterdir()) == [
        *("config.toml", "harken.db", "journal", "logs", "run", "store.json", "triggers.json")
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in copy.home.rglob("*") if path.is_file()} == {0o600}


def test_lines_of_what_came_after_the_moment_are_not_in_it(served: Rig, tmp_path: Path) -> None:
    """The journal is written on while it is copied; a line of an event that the copy has not would be a lie."""
    served.ok("send", "one")
    assert served.run("down").code == 0
    [day] = (served.home / "journal").iterdir()
    sound = day.read_bytes()
    last = json.loads(sound.splitlines()[-1])["n"]
    day.write_bytes(sound + b'{"n":%d,"kind":"received"}\n{"n":%d' % (last + 1, last + 2))
    served.ok("backup", str(tmp_path / "b.tgz"))
    assert contents(tmp_path / "b.tgz")[f"journal/{day.name}"] == sound
    day.write_bytes(sound)


def test_a_restored_store_goes_its_own_way_beside_a_newer_journal(saved: Path, served: Rig, tmp_path: Path) -> None:
    """What came after the backup was left behind by decision; the file of before, put back later, is noticed."""
    served.ok("send", "after the backup")
    served.ok("down")
    copy = Rig(tmp_path / "copy")
    copy.ok("restore", str(saved))
    before, after = (json.loads((each.home / "store.json").read_text()) for each in (served, copy))
    assert (after["id"], after["epoch"]) == (before["id"], before["epoch"] + 1)
    [day] = (served.home / "journal").glob("*.jsonl")
    shutil.copyfile(day, copy.home / "journal" / day.name)
    with copy.serving():
        copy.ok("send", "in the copy")
    assert numbers(copy.home) == sorted(set(numbers(copy.home)))
    shutil.copyfile(served.home / "harken.db", copy.home / "harken.db")
    refused = copy.run("up")
    assert refused.code == USER_ERROR
    assert "before a restore" in refused.err


def test_a_backup_goes_through_a_pipe(saved: Path, served: Rig, tmp_path: Path) -> None:
    """To another machine, or into something that encrypts it."""
    with (tmp_path / "piped").open("wb") as target:
        done = served.run("backup", "-", stdout=target)
    assert done.code == 0
    assert "Not in it: tokens" in done.err
    assert set(contents(tmp_path / "piped")) == set(contents(saved))
    assert served.run("backup", "-", "--json").code == USER_ERROR


def test_a_file_that_is_there_is_replaced_only_when_that_is_said(saved: Path, served: Rig) -> None:
    """The older backup may be the better one."""
    before = saved.read_bytes()
    assert served.run("backup", str(saved)).code == CONFLICT
    assert saved.read_bytes() == before
    served.ok("backup", str(saved), "--replace")
    assert saved.read_bytes() != before
    assert [path.name for path in saved.parent.iterdir() if path.name.startswith(".")] == []


def test_a_home_without_messages_has_nothing_to_back_up(fresh: Rig, tmp_path: Path) -> None:
    """An empty file would look like a backup."""
    assert fresh.run("backup", str(tmp_path / "b.tgz")).code == NOT_FOUND
    assert not (tmp_path / "b.tgz").exists()


def test_a_home_in_use_is_not_restored_into(saved: Path, served: Rig, tmp_path: Path) -> None:
    """Two homes in one would be neither."""
    done = served.run("restore", str(saved))
    assert done.code == CONFLICT
    assert "is not empty" in done.err
    other = tmp_path / "other"
    other.mkdir()
    (other / "letters.txt").write_text("mine")
    assert Rig(other).run("restore", str(saved)).code == CONFLICT
    assert [path.name for path in other.iterdir()] == ["letters.txt"]
    assert Rig(tmp_path / "none").run("restore", str(tmp_path / "missing")).code == NOT_FOUND


def test_what_is_no_whole_backup_changes_nothing(saved: Path, tmp_path: Path) -> None:
    """A disk that was full, a transfer that broke off, a file from somewhere else."""
    whole = saved.read_bytes()
    about = json.loads(contents(saved)["harken-backup.json"])
    day = next(name for name in contents(saved) if name.startswith("journal/"))
    database = contents(saved)["harken.db"]
    newer = json.dumps(about | {"format": 2}).encode()
    bad = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:],
        "text": b"hello",
        "empty": b"",
        "squeezed": gzip.compress(b"hello"),
    }
    changed: dict[str, dict[str, bytes | None]] = {
        "without database": {"harken.db": None},
        "without a day": {day: None},
        "without end": {"harken-backup.end": b"{}"},
        "newer": {"harken-backup.json": newer},
        "damaged": {"harken.db": database[:4096] + b"\xff" * 4096 + database[8192:]},
        "another event": {"harken-backup.json": json.dumps(about | {"last_event": 999}).encode()},
        "escape": {"../evil": b"x"},
        "absolute": {"/etc/evil": b"x"},
        "token": {"token": b"x"},
        "nested": {"journal/../../evil.jsonl": b"x"},
    }
    files = {name: tmp_path / f"bad-{name}" for name in (*bad, *changed)}
    for name, data in bad.items():
        files[name].write_bytes(data)
    for name, changes in changed.items():
        rewritten(saved, changes, files[name])
    home = tmp_path / "target" / "home"
    for name, file in files.items():
        done = Rig(home).run("restore", str(file))
        assert done.code == USER_ERROR, name
        assert "Traceback" not in done.err, name
        assert not (home / "harken.db").exists(), name
        assert not list(tmp_path.rglob("evil*")), name
    assert Rig(home).run("restore", str(saved)).code == 0


def test_a_database_of_a_newer_harken_is_refused(saved: Path, tmp_path: Path) -> None:
    """An older program would not understand what it serves."""
    database = tmp_path / "newer.db"
    database.write_bytes(contents(saved)["harken.db"])
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    file = rewritten(saved, {"harken.db": database.read_bytes()}, tmp_path / "newer.tgz")
    done = Rig(tmp_path / "target").run("restore", str(file))
    assert done.code == USER_ERROR
    assert "schema 9999" in done.err


def test_replies_that_waited_are_parked_because_they_may_have_left_since(saved: Path, tmp_path: Path) -> None:
    """Nobody is to get the same answer a second time because a disk was replaced."""
    database = tmp_path / "waiting.db"
    database.write_bytes(contents(saved)["harken.db"])
    about: Json = json.loads(contents(saved)["harken-backup.json"])
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        [[message]] = connection.execute("SELECT id FROM messages LIMIT 1")
        connection.execute(
            "INSERT INTO outbox (id, message, body, author, state, attempts, created_at, due_at)"
            " VALUES ('r-1', ?, 'yes', 'owner', 'queued', 0, 1, 1)",
            (message,),
        )
    file = rewritten(saved, {"harken.db": database.read_bytes()}, tmp_path / "waiting.tgz")
    copy = Rig(tmp_path / "target")
    assert copy.json("restore", str(file))["parked_replies"] == 1
    with copy.serving():
        [parked] = copy.ask("read", ref=message)["replies"]
        assert (parked["reply_id"], parked["state"]) == ("r-1", "parked")
        assert "may have left" in parked["error"]
        assert numbers(copy.home)[-1] == about["last_event"] + 1


def test_a_running_daemon_is_not_disturbed_by_a_backup(served: Rig, tmp_path: Path) -> None:
    """It is taken from outside: the same daemon serves before and after."""
    served.ok("send", "one")
    pid = served.pid
    served.ok("backup", str(tmp_path / "b.tgz"))
    served.ok("send", "two")
    assert served.pid == pid
    os.kill(pid, 0)
