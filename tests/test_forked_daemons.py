"""Tests of what starts most daemons of the tests: a forked one must be like one that was started as people do it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harken.testing import DaemonProcess
from harken.testing.daemon import FORK_SERVER

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
    assert process.ppid() != os.getpid()
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
