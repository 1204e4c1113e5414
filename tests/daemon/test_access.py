"""Only the user whose daemon it is reaches it, and only that user can read its files."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from tests.loss.rig import WAIT_SECONDS, Served, agent_of
from tests.second_account import SecondAccount, open_way_to


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


def test_another_user_cannot_connect(daemon: Served, second_account: SecondAccount) -> None:
    """The folder is closed, so the socket cannot even be named."""
    daemon.start()
    open_way_to(daemon.home)
    assert second_account.do("dial", path=daemon.socket) == {"error": "PermissionError"}


def test_another_user_reads_and_changes_nothing_in_the_home(daemon: Served, second_account: SecondAccount) -> None:
    """Neither a message nor the token, the lock or the journal; also not when it knows every name."""
    daemon.start()
    daemon.call("send", text="private")
    open_way_to(daemon.home)
    found = [daemon.home, *daemon.home.rglob("*")]
    assert {daemon.home / name for name in ("harken.db", "token", "run", "run/lock", "journal")} <= set(found)
    for path in found:
        for deed in ("read", "write"):
            assert second_account.do(deed, path=str(path)) == {"error": "PermissionError"}, (deed, path)


def test_another_user_is_refused_when_the_folders_were_opened_by_mistake(
    daemon: Served, second_account: SecondAccount
) -> None:
    """`chmod -R 777` happens; the daemon asks the kernel who is calling and does not serve others."""
    daemon.start()
    daemon.call("send", text="private")
    open_way_to(daemon.home)
    for path in [daemon.home, *daemon.home.rglob("*")]:
        path.chmod(0o777)
    said = second_account.do("dial", path=daemon.socket)["answer"]
    assert '"code":"refused"' in said
    assert "private" not in said
    assert daemon.call("list")["messages"]


def test_folder_of_another_user_is_not_used(daemon: Served, home: Path, account_name: str) -> None:
    """Whoever owns the folder could replace what is in it."""
    home.mkdir(mode=0o700)
    other = pwd.getpwnam(account_name)
    os.chown(home, other.pw_uid, other.pw_gid)
    daemon.start(side="after", at=1_000_000)
    assert daemon.is_gone(WAIT_SECONDS)
    assert "belongs to another user" in daemon.errors()
    assert list(home.iterdir()) == []
