"""The home folder: how it is found, its layout, and that nobody else can look into it."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.config.home import (
    MAX_SOCKET_PATH_BYTES,
    Home,
    disk_error,
    ensure,
    expand_user,
    find_home,
    socket_path,
    write_private,
)
from harken.errors import HarkenError, Unavailable, UserError
from tests.examples import examples

posix = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc or /dev/full")


def mode(path: Path) -> int:
    """The permission bits of a path."""
    return stat.S_IMODE(path.lstat().st_mode)


def foreign_folder(tmp_path: Path) -> Path:
    """A folder that belongs to somebody else, whoever runs the tests."""
    if os.geteuid() != 0:
        return Path("/usr")
    folder = tmp_path / "foreign"
    folder.mkdir()
    os.chown(folder, 54321, 54321)
    return folder


@pytest.mark.parametrize(
    ("flag", "environ", "expected"),
    [
        ("/a/b", {"HARKEN_HOME": "/c", "HOME": "/home/u"}, "/a/b"),
        (None, {"HARKEN_HOME": "/c", "HOME": "/home/u"}, "/c"),
        (None, {"HOME": "/home/u"}, "/home/u/.harken"),
        (None, {"HARKEN_HOME": "", "HOME": "/home/u"}, "/home/u/.harken"),
        ("~", {"HOME": "/home/u"}, "/home/u"),
        ("~/x", {"HOME": "/home/u"}, "/home/u/x"),
        (None, {"HARKEN_HOME": "~/y", "HOME": "/home/u"}, "/home/u/y"),
        ("/a/../b", {}, "/b"),
    ],
)
def test_flag_comes_before_environment_before_default(flag: str | None, environ: dict[str, str], expected: str) -> None:
    """Hosts filter the environment, so the flag that `connect` wrote has to win."""
    assert find_home(flag, environ) == Home(Path(expected))


def test_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon changes its folder; a relative home would then be another one."""
    monkeypatch.chdir(tmp_path)
    assert find_home("here", {}).path == tmp_path / "here"


@pytest.mark.parametrize("flag", ["", "/a/\nb", "/a/\x1b[31m", "/a\0b", "~no-such-user-here/x"])
def test_home_that_cannot_be_meant_is_refused(flag: str) -> None:
    """An unset shell variable or a stray control character must not choose a home by accident."""
    with pytest.raises(UserError) as caught:
        find_home(flag, {"HOME": "/home/u"})
    assert caught.value.hint
    assert caught.value.message.isprintable()


def test_tilde_falls_back_to_the_account_without_home_variable() -> None:
    """A daemon started with a fixed, small environment still finds the user's folder."""
    assert expand_user("~/x", {}) == Path.home() / "x"


def test_layout_is_what_the_documentation_says() -> None:
    """Other programs (hooks in `sh`, editors, backups) rely on these names."""
    home = Home(Path("/h"))
    names = {name: str(getattr(home, name)) for name in dir(Home) if not name.startswith("_") and name != "path"}
    assert names == {
        "daemon_id_file": "/h/daemon-id",
        "identity_file": "/h/store.json",
        "page_sessions_file": "/h/page-sessions.json",
        "phone_push_file": "/h/phone-push.json",
        "phone_sessions_file": "/h/phone-sessions.json",
        "reserve_file": "/h/reserve",
        "runs_dir": "/h/runs",
        "watched_file": "/h/run/watched.json",
        "work_dir": "/h/workdirs",
        "address_file": "/h/run/address",
        "bells_dir": "/h/run/bells",
        "sessions_dir": "/h/run/sessions",
        "config_file": "/h/config.toml",
        "daemon_file": "/h/run/daemon.json",
        "down_file": "/h/run/down",
        "daemon_log": "/h/logs/daemon.log",
        "database": "/h/harken.db",
        "env_file": "/h/env",
        "journal_dir": "/h/journal",
        "lock_file": "/h/run/lock",
        "logs_dir": "/h/logs",
        "doors_port_file": "/h/run/hooks-port",
        "port_file": "/h/run/port",
        "run_dir": "/h/run",
        "token_file": "/h/token",
        "trial_dir": "/h/trial",
        "triggers_file": "/h/triggers.json",
    }


@posix
def test_folders_are_created_private_whatever_the_umask(tmp_path: Path) -> None:
    """The journal holds people's messages: nobody else on the machine may list or read it."""
    home = Home(tmp_path / "deep" / "home")
    before = os.umask(0)
    try:
        ensure(home)
    finally:
        os.umask(before)
    folders = [home.path, home.journal_dir, home.logs_dir, home.run_dir, home.bells_dir]
    assert [mode(folder) for folder in folders] == [0o700] * 5


@posix
@pytest.mark.parametrize("loose", [0o755, 0o777, 0o500, 0o000])
def test_modes_of_existing_folders_are_corrected(tmp_path: Path, loose: int) -> None:
    """A home made by hand with the usual umask would be readable by everyone."""
    home = Home(tmp_path / "home")
    home.journal_dir.mkdir(parents=True)
    home.journal_dir.chmod(loose)
    home.path.chmod(0o755)
    ensure(home)
    ensure(home)
    assert (mode(home.path), mode(home.journal_dir)) == (0o700, 0o700)


def test_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The error has to say so instead of failing later with a path inside the file."""
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(UserError, match="not a folder") as caught:
        ensure(Home(path))
    assert caught.value.hint
    assert path.read_text() == "mine"


@posix
def test_home_of_another_user_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Somebody else could read everything and plant a configuration that makes them the owner."""
    folder = foreign_folder(tmp_path)
    before = mode(folder)
    with pytest.raises(UserError, match="another user") as caught:
        ensure(Home(folder))
    assert caught.value.hint
    assert mode(folder) == before
    assert not (folder / "journal").exists()


@posix
@pytest.mark.parametrize("name", ["/", "shared"])
def test_shared_folder_is_never_made_private(tmp_path: Path, name: str) -> None:
    """HARKEN_HOME=/tmp run by root would lock everyone else out of /tmp."""
    folder = tmp_path / name
    if name == "shared":
        folder.mkdir()
        folder.chmod(0o1777)
    before = mode(folder)
    with pytest.raises(UserError, match="shared"):
        ensure(Home(folder))
    assert mode(folder) == before


@linux
@pytest.mark.parametrize("path", ["/proc/harken-home", "/proc/self/fdinfo"])
def test_home_that_cannot_be_written_is_refused(path: str) -> None:
    """Also root meets file systems that take no files; a sentence is better than a traceback."""
    with pytest.raises(UserError) as caught:
        ensure(Home(Path(path)))
    assert path in caught.value.message
    assert caught.value.hint


@posix
def test_private_file_is_0600_and_replaces_a_loose_one(tmp_path: Path) -> None:
    """The token must not inherit the mode of a file that was there before."""
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write_private(path, "new\r\nline\n")
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert path.read_bytes() == b"new\r\nline\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "token"]


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_private_file_gives_back_any_file_name(tmp_path: Path, data: bytes) -> None:
    """Paths need not be UTF-8; an address file that cannot hold one would stop the daemon."""
    path = tmp_path / "address"
    write_private(path, os.fsdecode(data))
    assert path.read_bytes() == data


def test_reader_never_sees_half_a_private_file(tmp_path: Path) -> None:
    """A host reads the address file while the daemon replaces it."""
    path = tmp_path / "address"
    texts = {"a" * 200_000, "b" * 200_000}
    write_private(path, "a" * 200_000)
    stop = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        for text in texts:
            write_private(path, text)
    stop.set()
    reader.join(5)
    assert not reader.is_alive()
    assert seen
    assert seen <= texts


def test_failed_private_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    """A rename onto a folder fails after the temporary file was written."""
    target = tmp_path / "taken"
    target.mkdir()
    with pytest.raises(UserError, match="Cannot write"):
        write_private(target, "text")
    assert list(tmp_path.iterdir()) == [tmp_path / "taken"]


def test_private_write_into_missing_folder_is_a_user_error(tmp_path: Path) -> None:
    """Foreign exceptions become ours at the seam."""
    with pytest.raises(UserError, match="Cannot write"):
        write_private(tmp_path / "no" / "file", "text")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, Unavailable), (errno.EDQUOT, Unavailable), (errno.EACCES, UserError)]
)
def test_full_disk_is_unavailable_not_a_mistake_of_the_user(number: int, kind: type[HarkenError]) -> None:
    """Trying again later helps against a full disk and against nothing else, so the caller has to be told which."""
    error = disk_error("write", Path("/h/token"), OSError(number, "the reason"))
    assert type(error) is kind
    assert error.message == "Cannot write /h/token: the reason."
    assert error.hint


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the one XDG_RUNTIME_DIR names: as short, because a socket's path is bounded."""
    folder = tmp_path_factory.mktemp("x")
    folder.chmod(0o700)
    return folder


def expected_name(home: Home) -> str:
    """The socket's name, computed independently."""
    return hashlib.sha256(os.fsencode(os.path.realpath(home.path))).hexdigest()[:16] + ".sock"


@posix
def test_socket_is_in_the_runtime_folder_when_there_is_one(tmp_path: Path, runtime: Path) -> None:
    """The runtime folder is private, local and emptied at logout: the right place for a socket."""
    home = Home(tmp_path / "home")
    wanted = runtime / "harken" / expected_name(home)
    if len(os.fsencode(wanted)) >= MAX_SOCKET_PATH_BYTES:
        pytest.skip("the temporary folder's own path is too long")
    assert socket_path(home, {"XDG_RUNTIME_DIR": str(runtime)}) == wanted
    assert mode(runtime / "harken") == 0o700


@posix
def test_every_way_to_a_home_leads_to_one_socket(tmp_path: Path, runtime: Path) -> None:
    """Two names for one home must not make two daemons."""
    ensure(Home(tmp_path / "home"))
    (tmp_path / "link").symlink_to(tmp_path / "home")
    for environ in ({"XDG_RUNTIME_DIR": str(runtime)}, {}):
        ways = {socket_path(Home(tmp_path / name), environ) for name in ("home", "link", "link/../home")}
        assert len(ways) == 1
        assert socket_path(Home(tmp_path / "other"), environ) not in ways


@posix
@pytest.mark.parametrize("runtime_dir", ["", "relative", "/no/such/folder", "/etc/passwd", "\0", "foreign"])
def test_runtime_folder_that_is_not_ours_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime_dir: str
) -> None:
    """`su` keeps XDG_RUNTIME_DIR of the other user: their folder must not get our socket."""
    (tmp_path / "relative").mkdir()
    monkeypatch.chdir(tmp_path)
    name = str(foreign_folder(tmp_path)) if runtime_dir == "foreign" else runtime_dir
    path = socket_path(Home(tmp_path / "home"), {"XDG_RUNTIME_DIR": name})
    fallback = Path(os.sep, "tmp", f"harken-{os.geteuid()}", path.name)
    assert path in (tmp_path / "home" / "run" / "harken.sock", fallback)


@posix
@pytest.mark.parametrize("length", [40, 70, 79, 80, 81, 82, 83, 84, 85, 120, 200])
def test_socket_path_always_fits_the_address(tmp_path: Path, length: int) -> None:
    """Above 108 bytes binding fails; that must not depend on how deep the home lies."""
    base = os.path.realpath(tmp_path)
    home = Home(Path(base) / ("h" * max(1, length - len(base) - 1)))
    runtime = tmp_path / ("x" * 120)
    runtime.mkdir()
    path = socket_path(home, {"XDG_RUNTIME_DIR": str(runtime)})
    in_home = home.run_dir / "harken.sock"
    assert len(os.fsencode(path)) < MAX_SOCKET_PATH_BYTES
    assert (path == in_home) == (len(os.fsencode(in_home)) < MAX_SOCKET_PATH_BYTES)
    assert mode(path.parent) == 0o700


@posix
def test_planted_link_in_the_runtime_folder_is_refused(tmp_path: Path, runtime: Path) -> None:
    """A link would let someone choose where our socket appears."""
    (tmp_path / "elsewhere").mkdir()
    (runtime / "harken").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="not a folder"):
        socket_path(Home(tmp_path / "home"), {"XDG_RUNTIME_DIR": str(runtime)})
