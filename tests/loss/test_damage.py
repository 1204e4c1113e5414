"""Files that are damaged, left over or not ours: refused untouched, repaired, or ignored, and always said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harken.testing import DaemonProcess
from harken.testing.daemon import start_harken
from tests.loss.rig import WAIT_SECONDS, Served, check_journal, received, stubborn, until

MOUNT, UNMOUNT = shutil.which("mount"), shutil.which("umount")


def serve(home: Path) -> subprocess.Popen[bytes]:
    """Start a daemon as people do."""
    command = [sys.executable, "-I", "-m", "harken", "serve", "--home", str(home)]
    return start_harken(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def refusal(home: Path) -> tuple[int, str]:
    """Start a daemon that will not serve; return its exit code and what it said."""
    process = serve(home)
    try:
        _, said = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
    return process.returncode, said.decode()


def filled(daemon: Served) -> Path:
    """A home with a message in it, and no daemon; the write-ahead log is empty."""
    daemon.start()
    daemon.call("send", text="stored")
    daemon.stop()
    return daemon.home


def cut(data: bytes) -> bytes:
    """The first half."""
    return data[: len(data) // 2]


def empty(_data: bytes) -> bytes:
    """Nothing."""
    return b""


def garbage(data: bytes) -> bytes:
    """Other bytes, as many."""
    return bytes(reversed(range(256))) * (len(data) // 256)


def torn(data: bytes) -> bytes:
    """Zeros after the first page, as a disk that lost a write leaves it."""
    return data[:4096] + bytes(len(data) - 4096)


@pytest.mark.parametrize("damage", [cut, empty, garbage, torn])
def test_damaged_database_is_refused_untouched(daemon: Served, damage: Callable[[bytes], bytes]) -> None:
    """Starting over would turn a damaged file into a lost one: it is left as it is, for a person to rescue."""
    home = filled(daemon)
    database = home / "harken.db"
    damaged = damage(database.read_bytes())
    database.write_bytes(damaged)
    code, said = refusal(home)
    assert code == 2, said
    assert "damaged" in said
    assert "Traceback" not in said
    assert database.read_bytes() == damaged


@pytest.mark.parametrize("part", [0.5, 0.8, 0.95])
def test_database_that_was_cut_off_beside_its_log_is_refused_untouched(daemon: Served, part: float) -> None:
    """A log makes up for pages that it has, as after a kill in the middle of copying it; not for those of long ago."""
    daemon.start()
    with daemon.caller() as caller:
        for number in range(100):
            caller.call("send", text=f"{number} {'x' * 1_000}")
    daemon.stop()
    daemon.start()
    daemon.call("send", text="in the log")
    daemon.kill()
    database = daemon.home / "harken.db"
    whole = database.read_bytes()
    damaged = whole[: int(len(whole) * part)]
    database.write_bytes(damaged)
    code, said = refusal(daemon.home)
    assert code == 2, said
    assert "damaged" in said
    assert said.endswith(" recover\n")
    assert database.read_bytes() == damaged


@pytest.mark.parametrize(
    "tail",
    [
        b'{"n": 3, "at": "2026',
        b"\x00" * 4096,
        b"\x00" * 4096 + b"\n",
        b"\xff\xfe garbage \x80\n",
        b'garbage\n{"n": "three"}\n[]\n\n\n{"n": 9',
        b'{"n":' + b"[" * 100_000 + b"\n",
    ],
    ids=["cut", "zeros", "zero line", "not utf-8", "several", "deep"],
)
def test_bad_end_of_the_journal_is_repaired_at_start(daemon: Served, tail: bytes) -> None:
    """A crash of the machine leaves such ends; the events are in the store, so the lines can be written again."""
    home = filled(daemon)
    (file,) = (home / "journal").glob("*.jsonl")
    whole = file.read_bytes()
    kept = whole.splitlines(keepends=True)[:-1]
    file.write_bytes(b"".join(kept) + tail)
    daemon.start()
    assert file.read_bytes().startswith(whole)
    assert len(received(check_journal(daemon))) == 1


def test_foreign_file_in_the_journal_folder_is_left_alone(daemon: Served) -> None:
    """Only the daily files are ours to repair."""
    home = filled(daemon)
    notes = home / "journal" / "notes.jsonl"
    notes.write_bytes(b"no newline and no number")
    daemon.start()
    daemon.call("send", text="more")
    assert notes.read_bytes() == b"no newline and no number"
    assert daemon.call("status")["daemon"]["journal_problem"] == ""


def test_twenty_daemons_started_at_once_are_one(home: Path) -> None:
    """Every host starts a daemon when it finds none, all at the same moment: one serves, the others leave."""
    processes = [serve(home) for _ in range(20)]
    try:
        until(lambda: sum(process.poll() is None for process in processes) == 1, "nineteen have left", 60)
        codes = sorted(process.returncode for process in processes if process.returncode is not None)
        assert codes == [4] * 19
        (winner,) = (process for process in processes if process.returncode is None)
        until((home / "run" / "daemon.json").exists, "the winner is ready")
        daemon = DaemonProcess(home)
        assert stubborn(daemon, "send", text="hello")["seq"] == 1
        assert daemon.facts["pid"] == winner.pid
        winner.terminate()
        assert winner.wait(WAIT_SECONDS) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("content", [b"", b"\x00garbage", b"unix:/nonexistent/socket\n", b"tcp:127.0.0.1:1:x\n"])
def test_leftovers_of_a_killed_daemon_do_no_harm(daemon: Served, content: bytes) -> None:
    """Whatever stands in `run/` was left by a daemon that is gone: the one that holds the lock writes it anew."""
    daemon.start()
    daemon.kill()
    run = daemon.home / "run"
    (run / "address").write_bytes(content)
    (run / "daemon.json").write_bytes(content)
    (run / "port").write_bytes(b"99999999")
    (run / "harken.sock").unlink()
    (run / "harken.sock").write_bytes(content)
    daemon.start()
    assert daemon.call("send", text="hello")["seq"] == 1


def test_token_that_cannot_be_read_is_said_and_kept(daemon: Served) -> None:
    """A new token would lock out programs that have the old one: a person decides."""
    home = filled(daemon)
    (home / "token").unlink()
    (home / "token").mkdir()
    code, said = refusal(home)
    assert code == 2, said
    assert "token" in said
    assert "Traceback" not in said


@pytest.fixture
def sealed(daemon: Served) -> Iterator[Path]:
    """A home on a disk that became read-only; for root that takes a mount, for others the folder's mode is enough."""
    home = filled(daemon)
    if os.geteuid() == 0:
        assert MOUNT
        assert UNMOUNT
        subprocess.run([MOUNT, "--bind", str(home), str(home)], check=True)
        subprocess.run([MOUNT, "-o", "remount,ro,bind", str(home)], check=True)
        yield home
        subprocess.run([UNMOUNT, str(home)], check=True)
        return
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    files = [path for path in home.rglob("*") if path.is_file()]
    for path in files + folders:
        path.chmod(0o500 if path.is_dir() else 0o400)
    yield home
    for path in folders + files:
        path.chmod(0o700)


def test_read_only_home_is_refused_with_a_reason(sealed: Path) -> None:
    """A daemon that can store nothing must not pretend to accept anything."""
    code, said = refusal(sealed)
    assert code in (2, 5), said
    assert str(sealed) in said
    assert "Traceback" not in said
