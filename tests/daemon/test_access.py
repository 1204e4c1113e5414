"""Only the user whose daemon it is reaches it, and only that user can read its files."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loss.rig import WAIT_SECONDS, Served, agent_of

# Run as another user: says what happened when it tried to talk to the socket.
STRANGER = """
import os, socket, sys
os.chdir(sys.argv[3])
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(10)
try:
    sock.connect(sys.argv[1])
except PermissionError:
    sys.exit("no permission")
try:
    sock.sendall(b'{"harken":1,"kind":"call"}\\n{"id":1,"method":"list"}\\n')
except BrokenPipeError:
    pass
sys.exit(sock.makefile().readline())
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_stranger(home: Path) -> str:
    """Talk to a home's socket as the user nobody, from the folder that the home is in."""
    nobody = pwd.getpwnam("nobody").pw_uid
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", STRANGER, f"{home.name}/run/harken.sock", str(nobody), str(home.parent)],
        capture_output=True,
        check=False,
        timeout=WAIT_SECONDS,
        text=True,
    )
    return done.stderr.strip()


def test_everything_in_the_home_is_private(daemon: Served) -> None:
    """Messages, the token and the log are nobody else's business, also what SQLite and the kernel put beside them."""
    daemon.start()
    with agent_of(daemon.home) as agent:
        daemon.call("send", text="private")
        agent.tool("inbox_pull")
        found = {path.relative_to(daemon.home).as_posix(): path.lstat() for path in daemon.home.rglob("*")}
    assert {"harken.db", "harken.db-wal", "harken.db-shm", "token", "run/lock", "run/harken.sock"} <= set(found)
    assert {"run/address", "run/daemon.json", "run/port", "logs/daemon.log"} <= set(found)
    assert any(name.startswith("journal/") for name in found)
    found["."] = daemon.home.lstat()
    modes = {name: (stat.S_ISDIR(status.st_mode), stat.S_IMODE(status.st_mode)) for name, status in found.items()}
    assert {name: mode for name, mode in modes.items() if mode not in ((True, 0o700), (False, 0o600))} == {}
    assert {status.st_uid for status in found.values()} == {os.geteuid()}


def test_modes_do_not_depend_on_the_umask(daemon: Served) -> None:
    """A user with an open umask is no less private."""
    previous = os.umask(0)
    try:
        daemon.home.mkdir(mode=0o777)
        daemon.start()
    finally:
        os.umask(previous)
    daemon.call("send", text="private")
    open_to_others = [path for path in [daemon.home, *daemon.home.rglob("*")] if path.lstat().st_mode & 0o077]
    assert open_to_others == []


@needs_root
def test_another_user_cannot_connect(daemon: Served) -> None:
    """The folder is closed, so the socket cannot even be named."""
    daemon.start()
    daemon.home.parent.chmod(0o755)
    assert as_stranger(daemon.home) == "no permission"


@needs_root
def test_another_user_is_refused_when_the_folders_were_opened_by_mistake(daemon: Served) -> None:
    """`chmod -R 777` happens; the daemon asks the kernel who is calling and does not serve others."""
    daemon.start()
    daemon.call("send", text="private")
    for path in [daemon.home.parent, daemon.home, *daemon.home.rglob("*")]:
        path.chmod(0o777)
    said = as_stranger(daemon.home)
    assert '"code":"refused"' in said
    assert "private" not in said
    assert daemon.call("list")["messages"]


@needs_root
def test_folder_of_another_user_is_not_used(daemon: Served, home: Path) -> None:
    """Whoever owns the folder could replace what is in it."""
    home.mkdir(mode=0o700)
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    daemon.start(side="after", at=1_000_000)
    assert daemon.is_gone(WAIT_SECONDS)
    assert "belongs to another user" in daemon.errors()
    assert list(home.iterdir()) == []
