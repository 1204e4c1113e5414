"""A real Dovecot on loopback, with mailboxes of its own, to be filled, broken and ended.

It runs as an ordinary process, under a user without rights where the tests run as root, because Dovecot gives nobody's
mail to root. Mail is delivered as a mail program of the system does it: a file that is moved into the Maildir.
"""

from __future__ import annotations

import grp
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

from tests.graph.certificate import write_loopback_pair

PROGRAM = shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
WHY_NOT = "Dovecot is not installed: as root, run scripts/dovecot.sh"
PAUSE_SECONDS = 0.01
READY_SECONDS = 20.0
USER = "ann@example.org"
PASSWORD = str(uuid.uuid4())

# Passing through folders is kept as a right: on some machines nobody but root may even enter the topmost.
_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--securebits=+no_setuid_fixup")
_AS_NOBODY = (*_NOBODY, "--inh-caps=+dac_override", "--ambient-caps=+dac_override") if os.geteuid() == 0 else ()

_CONFIG = """
protocols = imap
listen = 127.0.0.1
base_dir = {run}
state_dir = {run}
log_path = {root}/log
ssl = {ssl}
{certificate}
disable_plaintext_auth = no
mail_location = maildir:{mail}
mail_fsync = never
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
shutdown_clients = yes
auth_failure_delay = 0 secs
mailbox_idle_check_interval = 1 secs
{capability}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={root}/home
}}
namespace inbox {{
  inbox = yes
  separator = /
  {sent}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
"""

_SENT = """
  mailbox Sent {
    auto = subscribe
    special_use = \\Sent
  }
"""


@dataclass(slots=True)
class Dovecot:
    """A server. Its mailbox is empty at first."""

    root: Path
    certificate: str = ""
    has_idle: bool = True
    has_sent: bool = True
    port: int = 0
    tls_port: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def mail(self) -> Path:
        """The folder of the mailbox."""
        return self.root / "mail"

    def start(self) -> None:
        """Start it, and return when it answers."""
        if not self.port:
            self.port, self.tls_port = _free_ports(2)
        (self.root / "conf").write_text(self._configuration())
        _give_away(self.root)
        self._process = subprocess.Popen(
            [*_AS_NOBODY, PROGRAM or "dovecot", "-F", "-c", str(self.root / "conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = monotonic() + READY_SECONDS
        while not _answers(self.port):
            assert monotonic() < end, self.log()
            assert self._process.poll() is None, self.log()
            select.select([], [], [], PAUSE_SECONDS)

    def kill(self) -> None:
        """End it and everybody who talks to it, at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(READY_SECONDS)
            self._process = None
            # Its children end a moment later, and until then answer at their sockets: the next one would not start.
            shutil.rmtree(self.root / "run", ignore_errors=True)

    def log(self) -> str:
        """Return what it says of itself."""
        try:
            return (self.root / "log").read_text(errors="replace")[-4000:]
        except OSError:
            return "it said nothing"

    def deliver(self, *mails: bytes, folder: str = "") -> None:
        """Put mails into a folder, as they would come."""
        place = self.mail / f".{folder}" if folder else self.mail
        for name in ("tmp", "new", "cur"):
            (place / name).mkdir(parents=True, exist_ok=True)
        _give_away(place)
        for mail in mails:
            number = next(self._numbers)
            written = place / "tmp" / f"{1_700_000_000 + number}.M{number}.test"
            written.write_bytes(mail)
            _give_away(written)
            written.rename(place / "new" / written.name)

    def forget_numbers(self, folder: str = "") -> None:
        """Number the mails of a folder anew, as after a restore."""
        place = self.mail / f".{folder}" if folder else self.mail
        numbers = place / "dovecot-uidlist"
        validity = int(numbers.read_text().split()[1].removeprefix("V"))
        for file in place.glob("dovecot*"):
            if file.is_file():
                file.unlink()
        # Left alone the server would take the second, which may still be the same.
        numbers.write_text(f"3 V{validity + 1} N1\n")
        _give_away(numbers)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with everything in it."""
        shutil.rmtree(self.mail / f".{folder}")

    def flags(self) -> list[str]:
        """Return what is marked on each mail of the inbox, as Maildir writes it."""
        return [file.name.partition(":2,")[2] for part in ("new", "cur") for file in (self.mail / part).iterdir()]

    def _configuration(self) -> str:
        uid, gid = _owner()
        name, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid).gr_name
        capability = "" if self.has_idle else "imap_capability = IMAP4rev1 LITERAL+ UIDPLUS"
        pem = f"ssl_cert = <{self.certificate}\nssl_key = <{self.certificate}" if self.certificate else ""
        return _CONFIG.format(
            root=self.root,
            run=self.root / "run",
            mail=self.mail,
            ssl="yes" if pem else "no",
            certificate=pem,
            user=name,
            group=group,
            uid=uid,
            gid=gid,
            password=PASSWORD,
            capability=capability,
            sent=_SENT if self.has_sent else "",
            port=self.port,
            tls_port=self.tls_port,
        )


@contextmanager
def serving(*, has_idle: bool = True, has_tls: bool = False, has_sent: bool = True) -> Iterator[Dovecot]:
    """A Dovecot that runs for the time of the block; the test is skipped where there is none."""
    if PROGRAM is None:
        pytest.skip(WHY_NOT)
    # Not below the folder of the test: others than its owner cannot go in there.
    root = Path(tempfile.mkdtemp(prefix="hk-imap-"))
    root.chmod(0o755)
    (root / "home").mkdir()
    certificate = str(write_loopback_pair(root)[1]) if has_tls else ""
    server = Dovecot(root, certificate=certificate, has_idle=has_idle, has_sent=has_sent)
    try:
        server.deliver()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(root, ignore_errors=True)


def _owner() -> tuple[int, int]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    return pwd.getpwnam("nobody").pw_uid, grp.getgrnam("nogroup").gr_gid


def _give_away(path: Path) -> None:
    """Let the server's user own what it works with."""
    if os.geteuid() != 0:
        return
    for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
        os.chown(each, *_owner())


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS) as connection:
            return connection.recv(4) == b"* OK"
    except OSError:
        select.select([], [], [], 0.02)
        return False
