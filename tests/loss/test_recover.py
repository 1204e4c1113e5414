"""`harken recover`: what was accepted comes back from the journal and from what is left of the database."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from harken.config.home import Home
from harken.setup.backup import exchange
from harken.store.sqlite import recovery
from tests.cli.rig import Json, Rig
from tests.loss.rig import DaemonStarter, Served, check_journal, export, journal_lines, texts, until
from tests.loss.test_damage import cut, empty, filled, garbage, torn
from tests.loss.test_moved_files import contents, identity, strip

COUNT = 40
STORED = COUNT + 1  # the answer is a message too
PAGE = 4096
NUMBERS = [f"number {number}" for number in range(COUNT)]


def used(daemon: Served) -> Path:
    """A home with messages, some of them read, one answered, and no daemon any more, killed in the middle."""
    daemon.start()
    with daemon.caller() as caller:
        for number, text in enumerate(NUMBERS):
            caller.call("send", text=text, upstream_id=f"n{number}", channel="dev")
    pulled = daemon.call("pull", consumer="someone", limit=5)["messages"]
    daemon.call("ack", consumer="someone", refs=[message["id"] for message in pulled[:3]])
    daemon.call("reply", ref=pulled[0]["id"], body="answered")
    until(lambda: not daemon.call("outbox")["replies"], "the answer has left")
    daemon.kill()
    return daemon.home


def looks(daemon: Served) -> Json:
    """What people see of a home: its messages with their ledgers, and who has how much unread."""
    messages = export(daemon, "inbox")
    states = [
        sorted((line["consumer"], line["state"]) for line in daemon.call("read", ref=message["id"])["ledger"])
        for message in messages
    ]
    done = [each["newest"]["id"] for each in daemon.call("conversations", view="done")["conversations"]]
    ids = [message["id"] for message in messages]
    return {"texts": texts(messages), "ids": ids, "states": states, "done": done}


def closed(daemon: Served) -> Path:
    """Let everything be in the one file, whatever a daemon left in its log."""
    database = daemon.home / "harken.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return database


def recovered(daemon: Served) -> Json:
    """Recover the home of a daemon that is not running."""
    return Rig(daemon.home).json("recover", "--yes")


@pytest.fixture
def lived(daemon: Served) -> Json:
    """A home as it looked, with no daemon; the write-ahead log is there."""
    used(daemon)
    daemon.start()
    daemon.call("done", refs=["2", "5"])
    seen = looks(daemon)
    daemon.kill()
    return seen


def gone(home: Path) -> None:
    """Remove the database and leave its log."""
    (home / "harken.db").unlink()


def all_gone(home: Path) -> None:
    """Remove the database and what belongs to it."""
    for file in home.glob("harken.db*"):
        file.unlink()


def nothing_but_journal(home: Path) -> None:
    """Remove all that names the store, too."""
    all_gone(home)
    (home / "store.json").unlink()


@pytest.mark.parametrize("lose", [gone, all_gone, nothing_but_journal])
def test_lost_database_comes_back_from_the_journal(daemon: Served, lived: Json, lose: Callable[[Path], None]) -> None:
    """Everything that was accepted, in its order, and read by whom it was read; a source's repeat is recognised."""
    before = identity(daemon.home)
    lose(daemon.home)
    said = recovered(daemon)
    assert (said["state"], said["found"], said["messages"]) == ("recovered", "missing", STORED)
    assert set(said["lost"].values()) == {0}
    assert identity(daemon.home) == {"id": before["id"], "epoch": before["epoch"] + 1}
    daemon.start()
    assert looks(daemon) == lived
    again = daemon.call("send", text=NUMBERS[7], upstream_id="n7", channel="dev")
    assert again["id"] == lived["ids"][7]
    assert daemon.call("send", text="new")["seq"] == COUNT + 1
    check_journal(daemon)


def page(number: int) -> Callable[[bytes], bytes]:
    """Zeros in the place of one page."""

    def damage(data: bytes) -> bytes:
        return data[: number * PAGE] + bytes(PAGE) + data[(number + 1) * PAGE :]

    return damage


@pytest.mark.parametrize("damage", [cut, empty, garbage, torn, page(1), page(3), page(8)])
def test_damaged_database_is_recovered(daemon: Served, lived: Json, damage: Callable[[bytes], bytes]) -> None:
    """However it is damaged, the journal has what was accepted; and the damaged file stays, for whoever knows more."""
    database = closed(daemon)
    damaged = damage(database.read_bytes())
    database.write_bytes(damaged)
    said = recovered(daemon)
    assert said["found"] == "damaged"
    assert set(said["lost"].values()) == {0}
    [kept] = said["kept"]
    assert (daemon.home / kept).read_bytes() == damaged
    daemon.start()
    assert looks(daemon) == lived
    check_journal(daemon)


@pytest.mark.parametrize(("table", "lost"), [("events", 0), ("messages_by_seq", 0), ("messages", 20)])
def test_what_the_journal_has_not_is_read_from_the_damaged_database(
    daemon: Served, lived: Json, table: str, lost: int
) -> None:
    """Journal files are the person's to tidy up: then what can still be read is all there is, and the rest is said."""
    database = closed(daemon)
    [day] = (daemon.home / "journal").glob("*.jsonl")
    lines = day.read_bytes().splitlines(keepends=True)
    day.write_bytes(b"".join(lines[20:]))
    with closing(sqlite3.connect(database)) as connection:
        [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    database.write_bytes(page(root - 1)(database.read_bytes()))
    said = recovered(daemon)
    assert said["found"] == "damaged"
    assert (said["messages"], said["lost"]["messages"]) == (STORED - lost, lost)
    daemon.start()
    assert texts(daemon.call("export", mailbox="inbox", limit=500)["messages"]) == lived["texts"][lost:]
    assert daemon.call("send", text=NUMBERS[7], upstream_id="n7", channel="dev")["id"] == lived["ids"][7]
    assert looks(daemon)["done"] == [each for each in lived["done"] if each in lived["ids"][lost:]]


def test_salvaged_messages_of_one_instant_keep_their_place(daemon: Served, lived: Json) -> None:
    """The clock does not tell which came first: what is before the journal is before it in the database."""
    database = closed(daemon)
    [day] = (daemon.home / "journal").glob("*.jsonl")
    day.write_bytes(b"".join(day.read_bytes().splitlines(keepends=True)[20:]))
    with closing(sqlite3.connect(database)) as connection, connection:
        [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchall()
        connection.execute("UPDATE messages SET received_at = (SELECT max(received_at) FROM messages)")
    database.write_bytes(page(root - 1)(database.read_bytes()))
    recovered(daemon)
    daemon.start()
    assert texts(export(daemon, "inbox")) == lived["texts"]


@pytest.mark.parametrize("done", range(5))
def test_recovery_that_is_stopped_while_it_puts_files_in_place_is_done_again(
    daemon: Served, lived: Json, done: int
) -> None:
    """Between any two steps the old database is there under its name, or the new one: what only it has is not lost."""
    database = closed(daemon)
    database.with_name("harken.db-wal").write_bytes(b"the end of a log")
    [day] = (daemon.home / "journal").glob("*.jsonl")
    day.write_bytes(b"".join(day.read_bytes().splitlines(keepends=True)[20:]))
    with closing(sqlite3.connect(database)) as connection:
        [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchall()
    database.write_bytes(page(root - 1)(database.read_bytes()))
    home, work = Home(daemon.home), daemon.home / "work"
    work.mkdir()
    plan = recovery.survey(home.database, home.journal_dir, home.identity_file, work)
    built = recovery.recover(plan, home.journal_dir, work)
    steps = exchange(home, work / recovery.NEW, built, "harken.db.lost-1")
    assert len(steps) == 5
    for step in steps[:done]:
        step()
    if done < 4:
        said = recovered(daemon)
        assert (said["found"], said["messages"], said["lost"]["messages"]) == ("damaged", STORED, 0)
    else:
        assert Rig(daemon.home).json("recover") == {"state": "whole"}
    daemon.start()
    assert texts(export(daemon, "inbox")) == lived["texts"]


def test_older_database_gets_what_it_lacks(daemon: Served) -> None:
    """Somebody put back a copy of yesterday: what came since is in the journal."""
    home = filled(daemon)
    old = (home / "harken.db").read_bytes()
    daemon.start()
    daemon.call("send", text="two")
    daemon.call("pull", consumer="someone")
    daemon.stop()
    daemon.start()
    seen = looks(daemon)
    daemon.stop()
    (home / "harken.db").write_bytes(old)
    said = recovered(daemon)
    assert (said["found"], said["unknown_messages"]) == ("older than the journal", 1)
    daemon.start()
    assert looks(daemon) == seen


def test_nothing_is_taken_from_the_database_of_another_home(
    starter: DaemonStarter, daemon: Served, lived: Json
) -> None:
    """It is somebody else's mail."""
    with starter.daemon(daemon.home.with_name("other")) as other:
        foreign = filled(other)
    all_gone(daemon.home)
    shutil.copyfile(foreign / "harken.db", daemon.home / "harken.db")
    assert recovered(daemon)["found"].startswith("of another home")
    daemon.start()
    assert looks(daemon) == lived


def test_home_of_the_version_before_is_recovered_as_far_as_its_journal_goes(daemon: Served) -> None:
    """Its lines have no keys and no texts of replies: the messages are there, and what is not is said."""
    home = filled(daemon)
    strip(home)
    [day] = (home / "journal").glob("*.jsonl")
    lines = [json.loads(line) for line in day.read_bytes().splitlines()]
    day.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "recovery"}) + "\n" for line in lines))
    (home / "harken.db").unlink()
    said = recovered(daemon)
    assert (said["messages"], said["lost"]["earlier_lines"]) == (1, len(lines))
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["stored"]


def test_reply_that_had_not_left_is_held_back(daemon: Served) -> None:
    """Its `replied` may have been the line that was lost: nobody gets it twice without a person's word."""
    home = filled(daemon)
    lines = journal_lines(home)
    [received] = [line for line in lines if line["kind"] == "received"]
    answered = {name: lines[-1][name] for name in ("at", "store")}
    answered |= {"n": lines[-1]["n"] + 1, "kind": "answered", "consumer": "codex", "delivery": "d-1", "reply": "r-1"}
    answered |= {"message_id": received["message"]["id"], "author": "codex", "recovery": {"text": "on it"}}
    [day] = (home / "journal").glob("*.jsonl")
    with day.open("a") as stream:
        stream.write(json.dumps({"n": 0} | answered, separators=(",", ":")) + "\n")
    (home / "harken.db").unlink()
    assert recovered(daemon)["parked_replies"] == 1
    daemon.start()
    [reply] = daemon.call("outbox")["replies"]
    assert (reply["state"], reply["body"]) == ("parked", "on it")


def test_nothing_is_done_without_need_or_word(daemon: Served) -> None:
    """A whole database is left alone; a lost one until somebody says yes; and none while a daemon runs."""
    home = filled(daemon)
    rig = Rig(home)
    before = contents(home)
    assert rig.json("recover") == {"state": "whole"}
    (home / "harken.db").rename(home / "elsewhere")
    missing = contents(home)
    assert rig.json("recover", "--dry-run")["state"] == "planned"
    shown = rig.ok("recover", "--dry-run")
    assert "harken.db is gone." in shown
    assert "keep the old harken.db as" not in shown, "there is none"
    refused = rig.run("recover")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert contents(home) == missing
    (home / "elsewhere").rename(home / "harken.db")
    assert contents(home) == before
    daemon.start()
    running = rig.run("recover", "--yes")
    assert (running.code, "harken down" in running.err) == (4, True)


def test_home_without_a_journal_has_nothing_to_recover_from(daemon: Served) -> None:
    """An empty database would look like a success."""
    home = filled(daemon)
    (home / "harken.db").unlink()
    shutil.rmtree(home / "journal")
    done = Rig(home).run("recover", "--yes")
    assert (done.code, "harken restore" in done.err) == (3, True)
