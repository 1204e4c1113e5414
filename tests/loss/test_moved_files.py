"""The database or a file beside it is moved, deleted or exchanged: nothing is accepted that nobody would find."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harken.store.sqlite.connection import migrations
from tests.loss.rig import WAIT_SECONDS, DaemonStarter, Json, Served, error_of, export, journal_lines, texts, until
from tests.loss.test_damage import filled, refusal

FILES = ("harken.db", "harken.db-wal", "harken.db-shm")
SCHEMA_BEFORE = 8  # the last one without an identity
COLUMNS_OF_TABLES = "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'"


def readiness(daemon: Served) -> int:
    """What a supervisor is answered."""
    with closing(HTTPConnection(urlsplit(daemon.facts["url"]).netloc, timeout=WAIT_SECONDS)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status


def contents(home: Path) -> dict[str, bytes]:
    """What must not change when a home is refused."""
    files = [path for path in home.rglob("*") if path.is_file() and path.parent.name in {"journal", home.name}]
    kept = [path for path in files if path.name != "harken.db-shm" and path.stat().st_size]
    return {str(path.relative_to(home)): path.read_bytes() for path in kept}


def refused_untouched(home: Path) -> str:
    """Start a daemon that must refuse and change nothing; return what it said."""
    before = contents(home)
    code, said = refusal(home)
    assert code == 2, said
    assert "Traceback" not in said
    assert contents(home) == before
    return said


def identity(home: Path) -> Json:
    """What the home says its store is."""
    return json.loads((home / "store.json").read_text())


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_accepted_into_a_file_that_was_moved_away(daemon: Served, name: str) -> None:
    """What is written there nobody finds again: whoever sends is told, whoever supervises too, until it is back."""
    daemon.start()
    daemon.call("send", text="before")
    assert readiness(daemon) == 200
    file, away = daemon.home / name, daemon.home / "elsewhere"
    file.rename(away)
    error = error_of(daemon, "send", text="lost")
    assert error["code"] == "unavailable"
    assert name in error["message"]
    assert error_of(daemon, "pull", consumer="someone")["code"] == "unavailable"
    until(lambda: readiness(daemon) == 503, "a supervisor is told")
    assert texts(export(daemon, "inbox")) == ["before"]
    if name == "harken.db":
        assert error_of(daemon, "status")["hint"] == error["hint"]
    away.rename(file)
    daemon.call("send", text="after")
    until(lambda: readiness(daemon) == 200, "a supervisor is told")
    daemon.kill()
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["before", "after"]


def test_database_that_was_exchanged_is_not_taken_for_the_old_one(daemon: Served) -> None:
    """A copy under the same name has the same contents and is another file: what is written goes into the old one."""
    daemon.start()
    daemon.call("send", text="before")
    copy = daemon.home / "copy"
    shutil.copyfile(daemon.home / "harken.db", copy)
    copy.rename(daemon.home / "harken.db")
    assert error_of(daemon, "send", text="lost")["code"] == "unavailable"


def test_database_moved_under_a_running_daemon_is_missed_and_welcome_back(daemon: Served) -> None:
    """A new database on the old log would bury what the log holds; with the file back in its place all is there."""
    daemon.start()
    for number in range(20):
        daemon.call("send", text=str(number))
    (daemon.home / "harken.db").rename(daemon.home / "elsewhere")
    daemon.kill()
    said = refused_untouched(daemon.home)
    assert "harken.db-wal" in said
    assert said.endswith(" recover\n")
    (daemon.home / "elsewhere").rename(daemon.home / "harken.db")
    daemon.start()
    assert texts(export(daemon, "inbox")) == [str(number) for number in range(20)]


def test_database_moved_under_a_daemon_that_is_stopped_cleanly_keeps_its_log(daemon: Served) -> None:
    """Closing a file that has another name must not take the log with it that only the old name leads to."""
    daemon.start()
    daemon.call("send", text="before")
    (daemon.home / "harken.db").rename(daemon.home / "elsewhere")
    daemon.stop()
    (daemon.home / "elsewhere").rename(daemon.home / "harken.db")
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["before"]


def test_database_that_is_gone_is_missed(daemon: Served) -> None:
    """An empty one in its place would say "nothing unread", and nobody would look for the rest."""
    home = filled(daemon)
    (home / "harken.db").unlink()
    said = refused_untouched(home)
    assert said.endswith(" recover\n")
    assert not (home / "harken.db").exists()
    (home / "store.json").unlink()
    assert refused_untouched(home).endswith(" recover\n"), "the journal alone says enough"


def test_older_copy_of_the_database_is_refused(daemon: Served) -> None:
    """The journal has messages that it lacks: going on would lose them without a word."""
    home = filled(daemon)
    old = (home / "harken.db").read_bytes()
    daemon.start()
    daemon.call("send", text="two")
    daemon.call("send", text="three")
    daemon.stop()
    new = (home / "harken.db").read_bytes()
    (home / "harken.db").write_bytes(old)
    said = refused_untouched(home)
    assert "2 messages" in said
    assert said.endswith(" recover\n")
    (home / "harken.db").write_bytes(new)
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["stored", "two", "three"]


def test_database_of_another_home_is_refused(starter: DaemonStarter, daemon: Served) -> None:
    """It opens and looks well, and it is somebody else's mail."""
    home = filled(daemon)
    with starter.daemon(home.with_name("other")) as other:
        foreign = filled(other) / "harken.db"
    own = (home / "harken.db").read_bytes()
    shutil.copyfile(foreign, home / "harken.db")
    assert "another" in refused_untouched(home)
    (home / "store.json").unlink()
    assert "another" in refused_untouched(home), "the journal says so too"
    (home / "harken.db").write_bytes(own)
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["stored"]


def test_copied_home_opens(starter: DaemonStarter, daemon: Served) -> None:
    """Whoever copies or synchronises a home gets other files with the same contents, and that is what counts."""
    home = filled(daemon)
    copy = home.with_name("copy")
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("run"))
    with starter.daemon(copy) as copied:
        copied.start()
        copied.call("send", text="more")
        assert texts(export(copied, "inbox")) == ["stored", "more"]
    assert identity(copy) == identity(home)


def strip(home: Path) -> None:
    """Make a home what the version before left."""
    with closing(sqlite3.connect(home / "harken.db")) as connection:
        with closing(sqlite3.connect(":memory:")) as before:
            for _, script in migrations()[:SCHEMA_BEFORE]:
                before.executescript(script)
            known = dict(before.execute("SELECT name, sql FROM sqlite_master"))
            columns = set(before.execute(COLUMNS_OF_TABLES))
            progress = set(before.execute("SELECT name FROM progress"))
        made = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        for kind, name, sql in sorted(
            made, reverse=True
        ):  # views, triggers, then tables, then the indexes that are left
            if name not in known or (kind in ("trigger", "index") and known[name] != sql):
                connection.execute(f"DROP {kind} IF EXISTS {name}")
        for table, column in set(connection.execute(COLUMNS_OF_TABLES)) - columns:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        left = {name for [name] in connection.execute("SELECT name FROM sqlite_master")}
        for script in [known[name] for name in known.keys() - left]:
            connection.execute(script)
        for row in set(connection.execute("SELECT name FROM progress")) - progress:
            connection.execute("DELETE FROM progress WHERE name = ?", row)
        connection.execute(f"PRAGMA user_version = {SCHEMA_BEFORE}")
        connection.commit()
    (home / "store.json").unlink()
    for file in (home / "journal").glob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        plain = [{key: value for key, value in line.items() if key != "store"} for line in lines]
        file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in plain))


def test_home_of_the_version_before_is_given_its_identity(daemon: Served) -> None:
    """Nobody is asked anything: the first start names the store, and later ones know it by that."""
    home = filled(daemon)
    strip(home)
    daemon.start()
    daemon.call("send", text="more")
    assert texts(export(daemon, "inbox")) == ["stored", "more"]
    daemon.stop()
    named = identity(home)
    assert journal_lines(home)[-1]["store"] == f"{named['id']}.{named['epoch']}"
    daemon.start()
    assert identity(home) == named
    daemon.stop()
    (home / "harken.db").unlink()
    assert refused_untouched(home).endswith(" recover\n")


def test_lost_file_of_the_identity_is_written_again(daemon: Served) -> None:
    """The database and the journal agree: a file that a person tidied away is no reason to stop."""
    home = filled(daemon)
    named = identity(home)
    (home / "store.json").unlink()
    daemon.start()
    assert identity(home) == named
    daemon.stop()
    (home / "store.json").write_text("")
    daemon.start()
    assert identity(home) == named


def offered(line: Json) -> Json:
    """A line about an offer."""
    return {"n": line["n"] + 1, "at": line["at"], "kind": "offered", "store": line["store"], "deliveries": {}}


def message(line: Json) -> Json:
    """A line about a message."""
    return {"n": line["n"] + 1, "at": line["at"], "kind": "received", "store": line["store"], "message": {}}


@pytest.mark.parametrize(("added", "is_taken"), [(offered, True), (message, False)])
def test_journal_may_be_ahead_by_what_a_power_cut_takes(
    daemon: Served, added: Callable[[Json], Json], *, is_taken: bool
) -> None:
    """Offers are written without a sync and are made again; a message is synced before it is accepted."""
    home = filled(daemon)
    last = journal_lines(home)[-1]
    (file,) = (home / "journal").glob("*.jsonl")
    with file.open("a") as stream:
        stream.write(json.dumps(added(last), separators=(",", ":")) + "\n")
    if not is_taken:
        assert "1 message" in refused_untouched(home)
        return
    daemon.start()
    sent = daemon.call("send", text="more")
    assert journal_lines(home)[-1]["message"]["id"] == sent["id"]
    assert [line["n"] for line in journal_lines(home)] == list(range(1, len(journal_lines(home)) + 1))
