"""Tests of what starts most commands of the tests: a forked one must be like one that was started as people do it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import psutil
import pytest

from harken.testing import DaemonProcess
from harken.testing.daemon import FORK_SERVER, ForkedProcess, start_harken
from tests.conftest import SLOWEST_FILES
from tests.loss.rig import until

SECONDS: Final = 30.0
Ended: TypeAlias = tuple[int, bytes, bytes]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what is compared here")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that a test starts; it is gone afterwards."""
    own = DaemonProcess(tmp_path / "home")
    yield own
    own.stop()


def test_forked_daemon_looks_like_any_other(daemon: DaemonProcess, tmp_path: Path) -> None:
    """`harken down` and the check for processes that are left know daemons by their command line."""
    daemon.start()
    process = psutil.Process(daemon.pid)
    words = [word for word in process.cmdline() if word]
    assert words == [sys.executable, "-I", "-m", "harken", "serve", "--home", str(tmp_path / "home")]
    assert os.getpid() in [each.pid for each in process.parents()][1:]
    assert str(Path(f"/proc/{daemon.pid}/fd/0").readlink()) == os.devnull
    assert daemon.stop() == 0
    assert not psutil.pid_exists(process.pid)


def test_forked_daemon_has_the_environment_of_whoever_asks(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that sets a variable means the daemon that it starts, and not the server's."""
    monkeypatch.setenv("HARKEN_LOG_FORMAT", "json")
    daemon.start().stop()
    assert (daemon.home / "logs" / "daemon.log").read_text().startswith("{")


def test_killed_daemon_is_told_apart_from_one_that_ended(daemon: DaemonProcess) -> None:
    """Crash tests rely on it."""
    daemon.start()
    os.kill(daemon.pid, signal.SIGKILL)
    assert daemon.stop() == -signal.SIGKILL


def test_daemon_that_cannot_start_says_why(daemon: DaemonProcess) -> None:
    """What it complains of reaches the test, as with a process of its own."""
    daemon.home.mkdir()
    (daemon.home / "config.toml").write_text("nonsense =")
    with pytest.raises(RuntimeError, match=r"config\.toml"):
        daemon.start()


def test_daemon_with_a_command_of_its_own_is_not_forked(tmp_path: Path) -> None:
    """Where the way of starting matters, a test names the command."""
    assert os.environ[FORK_SERVER]
    home = tmp_path / "home"
    daemon = DaemonProcess(home, (sys.executable, "-I", "-m", "harken", "serve", "--home", str(home))).start()
    assert psutil.Process(daemon.pid).ppid() == os.getpid()
    daemon.stop()


def run(start: Callable[..., subprocess.Popen[bytes]], *words: str, env: Mapping[str, str], cwd: Path) -> Ended:
    """Run a command in one of two ways, and return its exit code and what it wrote."""
    pipe = subprocess.PIPE
    command = (sys.executable, "-m", "harken", *words)
    with start(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **env}, cwd=cwd) as process:
        assert isinstance(process, ForkedProcess) == (start is start_harken)
        out, err = process.communicate(b"from stdin", SECONDS)
    return process.returncode, out, err


def test_forked_command_ends_as_any_other(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Thousands of tests compare what a command prints and how it ends: they must not be about the server."""
    daemon.start()
    env = {"HARKEN_HOME": str(daemon.home), "TZ": "Asia/Tokyo"}
    for words in (
        ("send", "--json", "--channel", "c"),
        ("list", "--json"),
        ("nonsense",),
        ("export", "no/where.jsonl"),
    ):
        forked = run(start_harken, *words, env=env, cwd=tmp_path)
        real = run(subprocess.Popen, *words, env=env, cwd=tmp_path)
        assert [without_numbers(each) for each in forked] == [without_numbers(each) for each in real]


def without_numbers(said: bytes | int) -> bytes | int:
    """Return what a command wrote without ids and times, which differ from one to the next."""
    return re.sub(rb'"id": "[^"]*"|\d[\d:.TZ-]*', b"*", said) if isinstance(said, bytes) else said


def test_forked_command_shows_its_own_arguments_and_environment(daemon: DaemonProcess, tmp_path: Path) -> None:
    """The daemon knows an agent by what the system shows of its processes."""
    daemon.start()
    command = (sys.executable, "-m", "harken", "send", "-")  # waits for its text
    env = {"PATH": os.environ["PATH"], "HARKEN_HOME": str(daemon.home), "CLAUDECODE": "1"}
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("LC_", "LANG", "PYTHON"))}
    pipe = subprocess.PIPE
    with start_harken(command, env={**env, **kept}, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        shown = psutil.Process(process.pid)
        until(lambda: [word for word in shown.cmdline() if word] == list(command), "it is the command", SECONDS)
        until(lambda: shown.environ() == {**env, **kept}, "it has its environment", SECONDS)
        assert shown.cwd() == str(tmp_path)
        process.terminate()
        process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGTERM


def test_command_whose_start_would_differ_is_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked one would miss what an interpreter looks at only while it starts; a long line has no room there."""
    command = (sys.executable, "-m", "harken", "--version")
    assert is_forked(command)
    assert not is_forked((*command, "x" * 10_000))
    assert not is_forked(command, LANG="de_DE.UTF-8")
    assert not is_forked(command, PYTHONPATH=str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not is_forked(command)


def is_forked(command: Sequence[str], **env: str) -> bool:
    """Run a command; return whether it was forked."""
    with start_harken(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL) as process:
        return isinstance(process, ForkedProcess)


def test_forked_command_has_the_terminal_that_it_is_given(daemon: DaemonProcess) -> None:
    """Ctrl-C reaches only the program to which a terminal belongs."""
    daemon.start()
    main, side = pty.openpty()
    command = (sys.executable, "-m", "harken", "wait", "--consumer", "c", "--home", str(daemon.home))
    with start_harken(command, stdin=side, stdout=side, stderr=side, start_new_session=True) as process:
        until(lambda: os.tcgetpgrp(main) == process.pid, "it has the terminal", SECONDS)
        assert os.getsid(process.pid) == process.pid
        process.kill()
    os.close(side)
    os.close(main)


def test_the_files_that_are_begun_first_are_there() -> None:
    """A name that nothing has any more would let the slowest file be begun last."""
    assert [name for name in SLOWEST_FILES if not Path(__file__).parents[1].joinpath(name).is_file()] == []
