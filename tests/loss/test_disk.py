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
from tests.loss.rig import Json, Nursery, Served, check_journal, export, received, texts, until

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


def test_full_disk_refuses_and_recovers(nursery: Nursery, disk: Disk) -> None:
    """`send` says that it did not happen; nothing is half stored; and space is all that is needed to go on."""
    with nursery.daemon(disk.home) as daemon:
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
        disk.free(daemon)
        again = f"{len(accepted)} {TEXT}"
        answer = daemon.call("send", text=again, upstream_id=f"n{len(accepted)}")
        assert (answer["state"], answer["seq"]) == ("queued", len(accepted) + 2)
        assert daemon.call("status")["daemon"]["store_problem"] == ""
        assert texts(export(daemon, "inbox")) == ["before", *accepted, again]
        stored = [message["id"] for message in export(daemon, "inbox")]
        assert received(check_journal(daemon)) == stored
        assert not daemon.is_gone()


def test_full_disk_is_not_offered_from_memory_only(nursery: Nursery, disk: Disk) -> None:
    """An offer that could not be written down is not made: the agent would get it twice without the mark."""
    with nursery.daemon(disk.home) as daemon:
        daemon.start()
        daemon.call("send", text="before")
        daemon.call("pull", consumer="someone", channel="nothing-there")
        disk.fill(daemon)
        _, _ = send_until_refused(daemon)
        with pytest.raises(CallFailed) as refused:
            until(lambda: not daemon.call("pull", consumer="someone", limit=100)["messages"], "nothing can be offered")
        assert refused.value.error["code"] == "unavailable"
        disk.free(daemon)
        first = daemon.call("pull", consumer="someone", limit=1)["messages"]
        assert len(first) == 1


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
    daemon.call("send", text="one")
    kept = break_by_folder(daemon.home)
    for text in ("two", "three"):
        daemon.call("send", text=text)
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
