"""`run/` or what lies in it is removed: at most one daemon serves a home, and it is the one that others find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harken.config.home import Home
from harken.control.stop import daemons_of, is_daemon
from tests.cli.rig import Rig
from tests.loss.rig import CALL_HELLO, WAIT_SECONDS, DaemonStarter, Served, Wire, check_journal, export, texts, until

NOTICE_SECONDS = 10.0  # it looks every second; the rest is the machine's


def whole(run: Path) -> None:
    """Remove the folder."""
    shutil.rmtree(run)


def moved(run: Path) -> None:
    """Give the folder another name."""
    run.rename(run.with_name("run.old"))


def lock(run: Path) -> None:
    """Remove the lock."""
    (run / "lock").unlink()


def other_lock(run: Path) -> None:
    """Put another file in the lock's place."""
    (run / "new").touch()
    (run / "new").rename(run / "lock")


def socket(run: Path) -> None:
    """Remove the socket."""
    (run / "harken.sock").unlink()


@pytest.mark.parametrize("remove", [whole, moved, lock, other_lock, socket])
def test_daemon_whose_lock_or_socket_is_gone_leaves(daemon: Served, remove: Callable[[Path], None]) -> None:
    """Nothing keeps a second one out any more, or nobody finds the first: it must not stay for ever."""
    daemon.start()
    daemon.call("send", text="before")
    remove(daemon.home / "run")
    assert daemon.is_gone(NOTICE_SECONDS), "it serves on"
    assert "gone or another daemon's" in (daemon.home / "logs" / "daemon.log").read_text()
    daemon.start()
    assert texts(export(daemon, "inbox")) == ["before"]


def test_second_daemon_keeps_what_is_its_own_when_the_first_leaves(starter: DaemonStarter, daemon: Served) -> None:
    """The first one cleans up behind itself: the socket and the address under those names are the second one's by then.

    From the moment on in which the lock is gone the first one accepts nothing: two writers would write one journal.
    """
    daemon.start()
    daemon.call("send", text="first")
    with Wire(daemon.socket, CALL_HELLO) as wire:
        wire.say({"id": 1, "method": "status", "params": {}})
        assert wire.line()
        shutil.rmtree(daemon.home / "run")
        wire.say({"id": 2, "method": "send", "params": {"text": "to the first"}})
        assert b'"unavailable"' in wire.line()
        with starter.daemon(daemon.home) as second:
            second.start()
            second.call("send", text="to the second")
            assert daemon.is_gone(WAIT_SECONDS)
            assert second.facts["pid"] == second.pid
            second.call("send", text="after")
            assert texts(export(second, "inbox")) == ["first", "to the second", "after"]
            check_journal(second)


def test_down_stops_every_daemon_of_the_home(home: Path) -> None:
    """Also one that nothing in the home leads to: a person who says `down` wants the home to be still."""
    rig = Rig(home)
    rig.ok("up")
    first = rig.pid
    assert daemons_of(Home(home)) == [first]
    assert daemons_of(Home(home.with_name("other"))) == []
    shutil.rmtree(home / "run")
    rig.ok("down")
    until(lambda: not Path(f"/proc/{first}").exists(), "it is gone")
    assert daemons_of(Home(home)) == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/python3 -I -m harken serve --home /h --detached", True),
        ("/venv/bin/python /venv/bin/harken serve", True),
        ("/venv/bin/harken serve --home /h", True),
        ("/venv/bin/harken --json --home serve serve", True),
        ("/venv/bin/harken --home serve up", False),
        ("python3 -I -S edge/launch.py python3 -I -m harken serve --home /h", False),
        ("/venv/bin/harken send serve", False),
        ("vim harken serve", False),
        ("", False),
    ],
)
def test_daemon_is_known_by_its_command(command: str, *, expected: bool) -> None:
    """Whatever else runs must not be ended."""
    assert is_daemon(command.split()) is expected
