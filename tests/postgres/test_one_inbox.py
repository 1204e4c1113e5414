"""Daemons of two machines, one inbox in PostgreSQL."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from harken.config.home import Home
from tests.loss.rig import CALL_HELLO, Served, Wire, error_of, export, journal_lines, received, texts, until
from tests.postgres.conftest import SESAME, Machines
from tests.store.postgres_server import PostgresServer

COPY_SECONDS: Final = 60.0
HARKEN: Final = (sys.executable, "-m", "harken")


def files_with(folder: Path, text: str) -> list[str]:
    """Return the files below a folder that hold a text."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def is_served(daemon: Served) -> bool:
    """Whether a daemon has its store."""
    try:
        with Wire(daemon.socket, CALL_HELLO) as wire:
            wire.say({"id": 1, "method": "status"})
            return b'"result"' in wire.line()
    except OSError:
        return False


def test_two_machines_have_one_inbox_and_a_journal_each(machines: Machines) -> None:
    """What is accepted on one machine is there on the other, and the line is on the disk of who accepted it."""
    here, there = machines.start("here"), machines.start("there")
    said = [here.call("send", text="from here")["id"], there.call("send", text="from there")["id"]]
    assert texts(export(here, "inbox")) == texts(export(there, "inbox")) == ["from here", "from there"]
    assert [received(journal_lines(each.home)) for each in (here, there)] == [said[:1], said[1:]]
    events = here.call("journal")["events"]
    assert [each["n"] for each in events] == list(range(1, len(events) + 1))
    numbers = sorted(line["n"] for each in (here, there) for line in journal_lines(each.home))
    assert numbers == [each["n"] for each in events]
    # The journal is continued where it ended, without the lines of the other.
    here.stop()
    there.call("send", text="meanwhile")
    here.start()
    again = here.call("send", text="again")["id"]
    assert received(journal_lines(here.home)) == [said[0], again]


def test_a_server_that_is_away_is_waited_for(machines: Machines, server: PostgresServer) -> None:
    """A machine may be started before its server, and a server is restarted now and then: nobody restarts daemons."""
    here = machines.start("here")
    here.call("send", text="before")
    server.stop()
    try:
        assert error_of(here, "send", text="lost?")["code"] == "unavailable"
        late = machines.start("late")
        error = error_of(late, "status")
        assert (error["code"], "PostgreSQL does not answer" in error["message"]) == ("unavailable", True)
        ports = [Home(late.home).port_file.read_text()]
    finally:
        server.start()
    until(lambda: is_served(late), "the store is there")
    # Others know it: webhooks, bookmarks, what is connected.
    assert ports == [Home(late.home).port_file.read_text()]
    late.call("send", text="after")
    assert texts(export(here, "inbox")) == ["before", "after"]


def copied(home: Path, to: Path) -> Path:
    """Let a home be a copy of another one, as far as the store can tell."""
    for name in ("daemon-id", "store.json"):
        shutil.copy(home / name, to / name)
    return to


def test_a_copy_of_a_home_does_nothing_while_the_other_is_here(machines: Machines) -> None:
    """It would take the leases, the sessions and the runs of the other daemon for its own, and end them."""
    first = machines.start("first")
    until(lambda: first.call("status")["daemon"]["daemons"], "it has told of itself")
    with first.caller() as caller, machines.starter.daemon(copied(first.home, machines.home("copy"))) as copy:
        caller.ask("wait", consumer="another", timeout=20)
        copy.start()
        said = "A daemon on first has the same id as this one: one of the two homes is a copy."
        for verb in ("status", "mailboxes"):
            assert error_of(copy, verb)["message"] == said
        assert error_of(copy, "send", text="hello")["code"] == "unavailable"
        first.call("send", text="for who waits")
        assert [each["content_text_sanitized"] for each in caller.answer()["messages"]] == ["for who waits"]
        assert first.call("status")["daemon"]["parked_loops"] == {}
        # With an id of its own, it is a machine like any other.
        copy.stop()
        (copy.home / "daemon-id").unlink()
        copy.start()
        assert texts(export(copy, "inbox")) == ["for who waits"]
        copy.stop()
        # Nor is it a copy when the other has stopped: a machine may get another name.
        copied(first.home, copy.home)
        first.stop()
        assert texts(export(copy.start(), "inbox")) == ["for who waits"]


def test_a_copy_of_a_home_on_a_machine_of_the_same_name_is_told_of(machines: Machines) -> None:
    """It looks like the same home whose daemon was killed; nobody else would notice."""
    first = machines.start("first")
    first.stop()
    home = copied(first.home, machines.home("copy"))
    config = home / "config.toml"
    config.write_text(config.read_text().replace('machine = "copy"', 'machine = "first"'))
    first.start()
    with machines.starter.daemon(home) as copy:
        copy.start()
        said = until(
            lambda: copy.call("status")["daemon"]["parked_loops"].get("neighbours"), "it is told", COPY_SECONDS
        )
        assert "A daemon on first has the same id as this one: one of the two homes is a copy." in said
        assert first.call("status")["daemon"]["parked_loops"] == {}


def test_the_password_is_nowhere(machines: Machines) -> None:
    """Logs and answers are shown to others, and so is a list of processes."""
    whole = machines.folder / "url"
    whole.write_text(machines.url.replace("@", f":{SESAME}@"))
    whole.chmod(0o600)
    here, there = machines.start("here"), machines.start("there", url=f"file:{whole}", password="")
    for daemon in (here, there):
        status = daemon.call("status")
        assert status["daemon"]["store"] == machines.url
        assert SESAME not in str(status) + Path(f"/proc/{daemon.pid}/cmdline").read_text()
        shown = subprocess.run([*HARKEN, "config", "show", "--home", daemon.home], capture_output=True, check=True)
        assert SESAME.encode() not in shown.stdout + shown.stderr
    refused = machines.starter.daemon(machines.home("refused", url=f"file:{whole}", password=""))
    whole.write_text(f"postgresql://harken:{SESAME}@[/postgres")
    with refused:
        assert refused.start(refused=True).is_gone()
    assert "is not a URL of a PostgreSQL server" in refused.errors()
    shown = subprocess.run(
        [*HARKEN, "store", "show", "--home", machines.home("stranger", password="")], capture_output=True, check=False
    )
    assert b"does not let this account in" in shown.stderr
    whole.unlink()
    assert set(files_with(machines.folder, SESAME)) == {"env"}
