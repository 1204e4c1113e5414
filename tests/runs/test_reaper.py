"""The process between the daemon and a run's program: the program cannot tell that it is there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from harken.processes import UNLIMITED
from harken.runs import mark
from tests.loss.rig import until

if sys.platform == "linux":
    from harken.runs import reaper
else:
    pytest.skip("there is none elsewhere", allow_module_level=True)

SECONDS: Final = 20.0
RUN: Final = "r-8h2k4m"
LIBRARYS_OWN: Final = 0b11 << 31  # signals that no program can use
ENVIRON: Final[Mapping[str, str]] = {"PATH": os.defpath, "LANG": "C.UTF-8", "HARKEN_RUN": RUN}


@contextmanager
def reaped(*argv: str) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """Start a program below a reaper; yield the reaper, and the end of its line that a daemon has."""
    ours, theirs = socket.socketpair()
    words = (sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno()), str(mark.limit_of(RUN)), *argv)
    pipe = subprocess.PIPE
    with ours:
        with theirs:
            process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRON, pass_fds=[theirs.fileno()], text=True
            )
        with process:
            yield process, ours


def said_by(*argv: str) -> str:
    """Return what a program says below a reaper."""
    with reaped(*argv) as (process, _):
        said, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, errors) == (0, "")
        return said


def test_program_has_the_environment_signals_and_files_that_it_would_have() -> None:
    """A host that finds signals ignored, or a file more than usual, behaves in ways that nobody has tried."""
    assert dict(line.split("=", 1) for line in said_by("env").splitlines()) == ENVIRON
    signals = said_by("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status").splitlines()
    assert [int(line.split()[1], 16) & ~LIBRARYS_OWN for line in signals] == [0, 0]
    files = ("sh", "-c", "cd /proc/$$/fd; echo *")
    assert said_by(*files) == subprocess.run(files, capture_output=True, text=True, check=True).stdout


def test_program_leads_a_session_of_its_own() -> None:
    """What it sends to its own group must not reach whoever is to end it."""
    pid, session = said_by("sh", "-c", "echo $$; ps -o sid= $$").split()
    assert pid == session


def test_limit_of_a_run_is_kept_whatever_a_process_does() -> None:
    """By that it is known when nothing else tells whose it is."""
    attempt = "ulimit -x unlimited 2>/dev/null; exec setsid -w env -i cat /proc/self/limits"
    (line,) = [line for line in said_by("bash", "-c", attempt).splitlines() if "file locks" in line]
    assert mark.run_of_limit(int(line.split()[4])) == RUN


@pytest.mark.parametrize("outer", [1000, mark.limit_of("r-000000")], ids=["an account with a limit", "in a run"])
def test_run_has_a_limit_of_its_own_where_the_daemon_has_a_lower_one(outer: int) -> None:
    """Else its processes had the same limit as the person's, and were known by nothing that they cannot take away."""
    script = 'ulimit -x "$1"; shift; exec "$@"'
    program = ("bash", "-c", "ulimit -Hx")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started = (sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno()), str(mark.limit_of(RUN)), *program)
        words = ("bash", "-c", script, "sh", str(outer), *started)
        said = subprocess.run(words, pass_fds=[theirs.fileno()], capture_output=True, check=True, timeout=SECONDS)
    assert int(said.stdout) < outer


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -ABRT $$", -6), ("kill -KILL $$", -9)])
def test_reaper_ends_as_its_program_did(script: str, code: int) -> None:
    """How a run ended is told to people from that."""
    with reaped("sh", "-c", script) as (process, _):
        assert process.wait(SECONDS) == code


def test_why_a_program_could_not_be_started_is_told() -> None:
    """The person is told what is missing."""
    with reaped("/nowhere/at/all") as (process, line):
        assert os.strerror(int(line.recv(16))) == "No such file or directory"
        assert process.wait(SECONDS) == 1


def test_output_is_over_when_the_program_closes_it() -> None:
    """Held open by another, whoever reads it would wait for the end of the program."""
    with reaped("sh", "-c", "exec 0<&- 1>&- 2>&-; exec sleep 600") as (process, _):
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert process.poll() is None
        process.terminate()
        assert process.wait(SECONDS) == -15


@pytest.mark.parametrize("how", ["the daemon is gone", "a signal", "another signal"])
def test_everything_below_ends_when_it_is_told_to(how: str, tmp_path: Path) -> None:
    """A program that was left alone would go on without anybody who watches it."""
    note = tmp_path / "pid"
    script = (
        f"trap '' TERM; setsid -f sh -c 'trap \"\" TERM HUP; echo $$ >{note}~; mv {note}~ {note}; sleep 600'; sleep 600"
    )
    with reaped("sh", "-c", script) as (process, line):
        until(note.exists, "the program's child")
        below = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(int(note.read_text()))]
        if how == "the daemon is gone":
            line.close()
        else:
            process.send_signal(15 if how == "a signal" else 10)
        process.wait(SECONDS)
        assert psutil.wait_procs(below, SECONDS)[1] == []


def test_process_whose_first_thread_has_ended_is_found() -> None:
    """It looks dead in the list of processes, and goes on."""
    ending = "import ctypes, threading, sys; threading.Thread(target=sys.stdin.read).start(); print(flush=True);"
    ending += "ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen(
        [sys.executable, "-c", ending], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, "its first thread to end")
        assert process.pid in reaper.parents()
        reaper.kill_all(lambda: [process.pid])
        process.wait(SECONDS)
        assert process.pid not in reaper.parents()


@pytest.mark.parametrize("limit", [0, 1024, 4242, UNLIMITED])
def test_limits_of_others_mark_no_run(limit: int) -> None:
    """An administrator may have set one."""
    assert mark.run_of_limit(limit) == ""
    assert mark.run_of_limit(mark.limit_of(RUN)) == RUN
