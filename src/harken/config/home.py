"""The folder Harken lives in: its layout, how it is found, and how private it is kept.

Everything in it is for one user: folders are 0700 and files 0600, and a folder that belongs to someone else is
refused instead of used. Where the operating system has no owners (Windows) these checks pass and the profile's own
access list protects the files. One daemon serves a home, by a lock that the kernel frees with the process. This module
does not know what the files contain.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harken.config.folder import ADDRESS_FILE, CONFIG_FILE, DAEMON_LOG, expand_folder, find_folder
from harken.errors import Conflict, HarkenError, Unavailable, UserError

PRIVATE_FOLDER = 0o700

# A unix socket's address holds 108 bytes on Linux and 104 on macOS, with the closing NUL.
MAX_SOCKET_PATH_BYTES = 100

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Home:
    """One Harken home; every path in it is named here and nowhere else."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def config_file(self) -> Path:
        """The settings."""
        return self.path / CONFIG_FILE

    @property
    def triggers_file(self) -> Path:
        """The rules."""
        return self.path / "triggers.json"

    @property
    def runs_dir(self) -> Path:
        """What runs told, a file for each."""
        return self.path / "runs"

    @property
    def work_dir(self) -> Path:
        """Folders of runs with a rule that names none."""
        return self.path / "workdirs"

    @property
    def database(self) -> Path:
        """The embedded store."""
        return self.path / "harken.db"

    @property
    def identity_file(self) -> Path:
        """Which store this home has, so that one that is gone or exchanged is missed."""
        return self.path / "store.json"

    @property
    def daemon_id_file(self) -> Path:
        """Who the daemon of this home is among those that share a store."""
        return self.path / "daemon-id"

    @property
    def reserve_file(self) -> Path:
        """Space that is given up when the disk is full."""
        return self.path / "reserve"

    @property
    def journal_dir(self) -> Path:
        """The daily journal files."""
        return self.path / "journal"

    @property
    def logs_dir(self) -> Path:
        """The log files."""
        return self.path / "logs"

    @property
    def daemon_log(self) -> Path:
        """The daemon's current log file."""
        return self.path / DAEMON_LOG

    @property
    def run_dir(self) -> Path:
        """What only matters while a daemon runs."""
        return self.path / "run"

    @property
    def lock_file(self) -> Path:
        """Held by the one daemon of this home."""
        return self.run_dir / "lock"

    @property
    def address_file(self) -> Path:
        """Where the daemon listens."""
        return self.path / ADDRESS_FILE

    @property
    def daemon_file(self) -> Path:
        """What the running daemon says about itself."""
        return self.run_dir / "daemon.json"

    @property
    def down_file(self) -> Path:
        """Here while a person wants Harken stopped: agents do not start it then."""
        return self.run_dir / "down"

    @property
    def port_file(self) -> Path:
        """The HTTP port that was picked once and is kept."""
        return self.run_dir / "port"

    @property
    def doors_port_file(self) -> Path:
        """The port for what others post, picked once and kept."""
        return self.run_dir / "hooks-port"

    @property
    def bells_dir(self) -> Path:
        """One file per host or session that has something waiting."""
        return self.run_dir / "bells"

    @property
    def sessions_dir(self) -> Path:
        """What is known of live sessions, for a restarted daemon."""
        return self.run_dir / "sessions"

    @property
    def trial_dir(self) -> Path:
        """Folders in which hosts are tried; a session inside one reads the mailbox of its trial only."""
        return self.path / "trial"

    @property
    def watched_file(self) -> Path:
        """How far `harken watch` has printed."""
        return self.run_dir / "watched.json"

    @property
    def token_file(self) -> Path:
        """The secret that HTTP callers present."""
        return self.path / "token"

    @property
    def page_sessions_file(self) -> Path:
        """The browsers that are signed in to the page."""
        return self.path / "page-sessions.json"

    @property
    def phone_sessions_file(self) -> Path:
        """The phones that are signed in to the page at the public address."""
        return self.path / "phone-sessions.json"

    @property
    def phone_push_file(self) -> Path:
        """Where notifications of the page are pushed to, and the key that signs them."""
        return self.path / "phone-push.json"

    @property
    def env_file(self) -> Path:
        """Values for `env:` references, because the daemon starts with a small environment."""
        return self.path / "env"


def find_home(flag: str | None, environ: Mapping[str, str]) -> Home:
    """Return the home that the flag, else HARKEN_HOME, else the default names; nothing is created."""
    return Home(Path(find_folder(flag, environ)))


def expand_user(text: str, environ: Mapping[str, str]) -> Path:
    """Return the path with a leading `~` replaced by the user's own folder."""
    return Path(expand_folder(text, environ))


def ensure(home: Home) -> None:
    """Create the folders of a home and make them private; raise `UserError` where that cannot be had."""
    _refuse_shared(home.path)
    for folder in (home.path, home.journal_dir, home.logs_dir, home.run_dir, home.bells_dir, home.sessions_dir):
        _make_private(folder)


def write_private(path: Path, text: str) -> None:
    """Replace a file by this text, readable by its owner only; a reader sees the old text or the new, never a part."""
    data = text.encode("utf-8", "surrogateescape")  # a path that is not UTF-8 survives the round trip
    try:
        import tempfile

        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as exc:
        raise disk_error("write", path, exc) from exc
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as exc:
        raise disk_error("write", path, exc) from exc
    finally:
        with suppress(OSError):  # after the rename there is nothing left to remove
            temporary.unlink()


def disk_error(verb: str, path: Path, exc: OSError) -> HarkenError:
    """Return what to raise when something cannot be done to a path: later helps when the disk is full."""
    sentence = f"Cannot {verb} {path}: {exc.strerror}."
    if exc.errno in _FULL:
        return Unavailable(sentence, "Free some space on that disk.", retry_after=60.0)
    return UserError(sentence, "Check who owns the folder and its permissions, or choose another home with --home.")


def socket_path(home: Home, environ: Mapping[str, str]) -> Path:
    """Return where this home's socket belongs, in a folder that exists and is private.

    The same home gives the same path by any symbolic link.
    """
    real = Path(os.path.realpath(home.path))
    import hashlib

    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:16] + ".sock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and _is_own_folder(Path(runtime)):
        wanted = Path(runtime) / "harken" / name
        if _fits(wanted):
            _make_private(wanted.parent, follow=False)
            return wanted
    wanted = Home(real).run_dir / "harken.sock"
    if _fits(wanted):
        ensure(Home(real))
        return wanted
    # Not tempfile.gettempdir(): it follows TMPDIR, which may differ between the daemon and those who look for it.
    wanted = Path(os.sep, "tmp", f"harken-{_own_id()}", name)
    _make_private(wanted.parent, follow=False)
    return wanted


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) < MAX_SOCKET_PATH_BYTES


def _own_id() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == _own_id()


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return path.is_absolute() and stat.S_ISDIR(status.st_mode) and _is_own(status)


def _refuse_shared(path: Path) -> None:
    """Refuse a folder that others need: making it private would lock them out."""
    try:
        status = path.stat()
    except OSError:
        return  # creating it will say why
    if path.parent == path or status.st_mode & stat.S_ISVTX:
        raise UserError(
            f"The folder {path} is shared with others and cannot be a Harken home.",
            "Choose a separate folder with --home or HARKEN_HOME.",
        )


def _make_private(path: Path, *, follow: bool = True) -> None:
    """Create the folder, or correct the mode of one that is ours; without `follow` a symbolic link is refused."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=PRIVATE_FOLDER)
        status = path.stat() if follow else path.lstat()
    except OSError as exc:
        raise disk_error("create", path, exc) from exc
    if not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{path} is not a folder.", "Move it away, or choose another home with --home or HARKEN_HOME.")
    if not _is_own(status):
        raise UserError(
            f"The folder {path} belongs to another user.", "Choose a folder of your own with --home or HARKEN_HOME."
        )
    try:
        if stat.S_IMODE(status.st_mode) != PRIVATE_FOLDER:
            path.chmod(PRIVATE_FOLDER)
    except OSError as exc:
        raise disk_error("make private", path, exc) from exc
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(
            f"The folder {path} cannot be written to.", "Choose a folder on a writable disk with --home or HARKEN_HOME."
        )


def _sync_folder(path: Path) -> None:
    """Make a rename survive power loss, where folders can be synced at all."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if sys.platform == "win32":  # pragma: no cover - the other half of the seam
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def single_instance(path: Path) -> Iterator[None]:
    """Hold the lock while the context is open; raises `Conflict` when another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            _lock(file)
        except OSError as exc:
            raise Conflict("Another daemon serves this home.", "See it with: harken status") from exc
        yield
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock."""
    if not path.exists():
        return False
    try:
        with single_instance(path):
            return False
    except Conflict:
        return True


def home_id(home: Home) -> str:
    """Return the id of a home, by which daemons that share a store know each other; made once."""
    import secrets

    try:
        known = home.daemon_id_file.read_text("ascii").strip()
    except FileNotFoundError:
        known = ""
    except OSError as exc:
        raise disk_error("read", home.daemon_id_file, exc) from exc
    if not known:
        known = secrets.token_hex(8)
        write_private(home.daemon_id_file, known + "\n")
    return known
