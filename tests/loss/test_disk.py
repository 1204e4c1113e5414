"""The disk is full, or the journal cannot be written: what was not accepted is said so, the rest goes on."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from harken.testing import CallFailed
from tests.cli.rig import Rig
from tests.loss.rig import DaemonStarter, Json, Served, check_journal, error_of, export, received, texts, until

DISK_BYTES = 4 << 20
MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")
TEXT = "x" * 2_000


class Disk(Protocol):
    """A disk that can be filled up."""

    home: Path

    def fill(self, daemon: Served) -> None:
        """Let nothing more be written."""
        ...

    def free(self, daemon: Served) -> None:
        """Let things be written again."""
        ...


class SmallDisk:
    """A file system of its own, filled by a file."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._filler = folder / "filler"

    def fill(self, _daemon: Served) -> None:
        """Write until there is no room for one more byte."""
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self, _daemon: Served) -> None:
        """Remove the filler."""
        self._filler.unlink()


class ShortFiles:
    """A limit on the size of files, for whoever may not mount: writing beyond it fails in the same places."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"

    def fill(self, daemon: Served) -> None:
        """Let no file grow."""
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))

    def free(self, daemon: Served) -> None:
        """Let files grow."""
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture(params=["small disk", "short files"] if os.geteuid() == 0 and MOUNT and UNMOUNT else ["short files"])
def disk(request: pytest.FixtureRequest, home: Path) -> Iterator[Disk]:
    """Each real way to run out of space that this user has; there is always one."""
    if request.param == "short files":
        yield ShortFiles(home.parent)
        return
    assert MOUNT
    assert UNMOUNT
    folder = home.parent / "disk"
    folder.mkdir()
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
    yield SmallDisk(folder)
    subprocess.run([UNMOUNT, "--lazy", str(folder)], check=True)


def send_until_refused(daemon: Served, most: int = 500) -> tuple[list[str], Json]:
    """Send numbered messages until one is refused; return those accepted and the error."""
    accepted: list[str] = []
    with daemon.caller() as caller:
        for number in range(most):
            try:
                caller.call("send", text=f"{number} {TEXT}", upstream_id=f"n{number}")
            except CallFailed as exc:
                return accepted, exc.error
            accepted.append(f"{number} {TEXT}")
    raise AssertionError("the disk is never full")


def test_full_disk_refuses_and_recovers(starter: DaemonStarter, disk: Disk) -> None:
    """`send` says that it did not happen; nothing is half stored; and space is all that is needed to go on."""
    with starter.daemon(disk.home) as daemon:
        daemon.start()
        daemon.call("send", text="before", upstream_id="before")
        disk.fill(daemon)
        accepted, error = send_until_refused(daemon)
        assert error["code"] == "unavailable"
        assert error["retry_after"] > 0
        assert error["hint"]
        status = daemon.call("status")["daemon"]
        assert (status["pid"], bool(status["store_problem"])) == (daemon.pid, True)
        assert texts(export(daemon, "inbox")) == ["before", *accepted]
        daemon.call("conversations")  # and the inbox can be opened
        disk.free(daemon)
        again = f"{len(accepted)} {TEXT}"
        answer = daemon.call("send", text=again, upstream_id=f"n{len(accepted)}")
        assert (answer["state"], answer["seq"]) == ("queued", len(accepted) + 2)
        assert daemon.call("status")["daemon"]["store_problem"] == ""
        assert texts(export(daemon, "inbox")) == ["before", *accepted, again]
        stored = [message["id"] for message in export(daemon, "inbox")]
        assert received(check_journal(daemon)) == stored
        assert not daemon.is_gone()


def test_what_cannot_be_written_down_is_not_offered(starter: DaemonStarter, disk: Disk) -> None:
    """An offer from memory only would come twice without the mark: it is written into the reserve, or not made."""
    with starter.daemon(disk.home) as daemon:
        daemon.start()
        daemon.call("send", text="before")
        daemon.call("pull", consumer="someone", channel="nothing-there")
        disk.fill(daemon)
        accepted, _ = send_until_refused(daemon)
        given: list[str] = []
        with suppress(CallFailed):  # where the reserve does not help either
            given = texts(daemon.call("pull", consumer="someone", limit=100)["messages"])
        disk.free(daemon)
        rest = daemon.call("pull", consumer="someone", limit=100)["messages"]
        assert given + [text for text in texts(rest) if text not in given] == ["before", *accepted]
        assert {message["repeat"] for message in rest} <= {bool(given)}


@pytest.fixture
def small_disk(home: Path) -> Iterator[SmallDisk]:
    """A disk that can be filled to the last byte; only root may mount one."""
    if os.geteuid() != 0 or not MOUNT or not UNMOUNT:
        pytest.skip("only root may mount a disk")
    folder = home.parent / "disk"
    folder.mkdir()
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
    yield SmallDisk(folder)
    subprocess.run([UNMOUNT, "--lazy", str(folder)], check=True)


def test_agents_pull_and_people_read_on_a_full_disk(starter: DaemonStarter, small_disk: SmallDisk) -> None:
    """Only new mail needs room. What was accepted reaches its agents, and what they were given outlives a kill."""
    with starter.daemon(small_disk.home) as daemon:
        daemon.start()
        daemon.call("send", text="the first words")
        until(lambda: daemon.call("search", text="words")["messages"], "it is indexed")
        small_disk.fill(daemon)
        accepted, error = send_until_refused(daemon)
        assert (error["code"], error["message"]) == ("unavailable", "The disk is full.")
        assert texts(daemon.call("search", text="words")["messages"]) == ["the first words"]
        assert len(daemon.call("list", limit=100)["messages"]) == len(accepted) + 1
        first = daemon.call("pull", consumer="someone", limit=1)["messages"]
        assert texts(first) == ["the first words"]
        assert error_of(daemon, "send", text="more")["message"] == "The disk is full."
        daemon.kill()
        daemon.start()
        assert len(daemon.call("list", limit=100)["messages"]) == len(accepted) + 1
        [again] = daemon.call("pull", consumer="someone", limit=1)["messages"]
        assert (again["id"], again["repeat"]) == (first[0]["id"], True)
        small_disk.free(daemon)
        assert daemon.call("send", text="more")["seq"] == len(accepted) + 2
        assert (small_disk.home / "reserve").stat().st_size > 0
        check_journal(daemon)


def test_daemon_starts_on_a_disk_that_filled_up_while_it_was_stopped(
    starter: DaemonStarter, small_disk: SmallDisk
) -> None:
    """Opening a database takes room, and so does telling where the daemon is; people want to read what they have."""
    with starter.daemon(small_disk.home) as daemon:
        daemon.start()
        daemon.call("send", text="before")
        daemon.stop()
        small_disk.fill(daemon)
        daemon.start()
        assert texts(daemon.call("pull", consumer="someone")["messages"]) == ["before"]
        assert error_of(daemon, "send", text="more")["message"] == "The disk is full."
        small_disk.free(daemon)
        assert daemon.call("send", text="more")["seq"] == 2


def test_start_without_any_room_is_refused_in_one_sentence(starter: DaemonStarter, small_disk: SmallDisk) -> None:
    """Without a reserve nothing can be done, and the end of a log is no help."""
    with starter.daemon(small_disk.home) as daemon:
        daemon.start()
        daemon.stop()
        (small_disk.home / "reserve").unlink()
        small_disk.fill(daemon)
        done = Rig(small_disk.home).run("up")
        assert done.code == 5
        # How far it came depends on what the last one left: it says what failed, or that nothing could be written.
        first, hint = done.err.splitlines()
        assert "The disk is full" in first or "No space left" in first
        assert "Free some space" in hint
        small_disk.free(daemon)
        daemon.start()


def break_by_folder(home: Path) -> Path:
    """Put a folder where today's journal was; return where the journal is now."""
    (file,) = (home / "journal").glob("*.jsonl")
    kept = home / "kept"
    file.rename(kept)
    file.mkdir()
    return kept


def test_unwritable_journal_delays_lines_and_nothing_else(daemon: Served) -> None:
    """The journal is a copy: without it messages flow, people are told once, and its lines follow in order."""
    daemon.start()
    daemon.call("send", text="one", sender="ci")
    kept = break_by_folder(daemon.home)
    for text in ("two", "three"):
        daemon.call("send", text=text, sender="ci")
    assert daemon.call("status")["daemon"]["journal_problem"]
    assert texts(daemon.call("pull")["messages"]) == ["one", "two", "three"]
    until(lambda: log(daemon).count("the journal cannot be written") == 1, "the warning is in the log")
    (folder,) = (daemon.home / "journal").glob("*.jsonl")
    folder.rmdir()
    kept.rename(folder)
    until(lambda: not daemon.call("status")["daemon"]["journal_problem"], "the journal is written again")
    stored = [message["id"] for message in export(daemon, "inbox")]
    assert received(check_journal(daemon)) == stored
    assert log(daemon).count("the journal cannot be written") == 1


def test_daemon_starts_with_a_journal_that_cannot_be_written(daemon: Served) -> None:
    """Also at start the journal is no reason to stop; and it must not be written anew from the beginning."""
    daemon.start()
    daemon.call("send", text="one")
    daemon.kill()
    kept = break_by_folder(daemon.home)
    daemon.start()
    daemon.call("send", text="two")
    assert daemon.call("status")["daemon"]["journal_problem"]
    (folder,) = (daemon.home / "journal").glob("*.jsonl")
    folder.rmdir()
    kept.rename(folder)
    until(lambda: not daemon.call("status")["daemon"]["journal_problem"], "the journal is written again")
    stored = [message["id"] for message in export(daemon, "inbox")]
    assert received(check_journal(daemon)) == stored


def log(daemon: Served) -> str:
    """The daemon's log."""
    return (daemon.home / "logs" / "daemon.log").read_text()
