"""Mail in a real daemon: heard, judged by who vouches for it, answered, and not lost by a SIGKILL."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest

from harken.testing import DaemonProcess
from harken.testing.daemon import Json
from tests.cli.rig import Rig
from tests.loss.rig import until
from tests.mailserver.dovecot import USER, Dovecot, serving
from tests.mailserver.sink import Sink, sinking
from tests.sources.imap.rig import NAME, VOUCHED, keep_password, mail

BURST = 200
STOPPED_SECONDS = 10.0  # far less than anybody waits for a server
QUIET = "quiet"  # a source and its folder, from where no answer leaves


@dataclass(frozen=True, slots=True)
class Account:
    """A daemon that listens to two folders of an account, and the servers behind it."""

    rig: Rig
    daemon: DaemonProcess
    server: Dovecot
    sink: Sink

    def heard(self, *texts: str) -> list[Json]:
        """Wait until mails that end so are in the inbox, and return them in order."""

        def look() -> Json:
            rows = self.daemon.call("list", limit=500)["messages"]
            found = {row["content_text_sanitized"].splitlines()[-1]: row for row in rows}
            return all(text in found for text in texts) and [found[text] for text in texts]

        rows: list[Json] = until(look)
        return rows


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """One for all that do not harm it: a daemon takes a while to start."""
    with serving() as server, sinking() as sink:
        server.deliver(folder=QUIET)
        out = f'smtp_host = "127.0.0.1"\nsmtp_port = {sink.port}\nsmtp_security = "none"'
        home = home_of(
            tmp_path_factory.mktemp("mail"),
            entry(server, f'authserv_id = "mx.example.org"\n{out}'),
            entry(server, f'folders = ["{QUIET}"]\ntrust = "known"', name=QUIET),
        )
        with running(home) as daemon:
            yield Account(Rig(home), daemon, server, sink)


def entry(server: Dovecot, more: str = 'trust = "known"', name: str = NAME) -> str:
    """Return the configuration of one mail account."""
    return (
        f'[sources.{name}]\nkind = "imap"\nhost = "127.0.0.1"\nport = {server.port}\nsecurity = "none"\n'
        f'user = "{USER}"\npassword = "env:MAIL_PASSWORD"\n{more}\n'
    )


def home_of(folder: Path, *entries: str) -> Path:
    """Write the configuration of a home."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("\n".join(entries))
    keep_password(home)
    return home


@contextmanager
def running(home: Path) -> Iterator[DaemonProcess]:
    """A daemon that listens to all that is configured."""
    daemon = DaemonProcess(home).start()
    try:
        until(lambda: all(each["state"] == "listening" for each in daemon.call("source_list")["sources"]))
        yield daemon
    finally:
        daemon.kill()


def texts(daemon: DaemonProcess) -> list[str]:
    """Return the last lines of all messages."""
    found = daemon.call("list", limit=500)["messages"]
    return [row["content_text_sanitized"].splitlines()[-1] for row in found]


def test_a_daemon_that_is_killed_while_it_reads_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """What was read and not stored is read again; what was stored is not stored twice."""
    with serving() as server:
        home = home_of(tmp_path, entry(server))
        with running(home) as daemon:
            server.deliver(*(mail(f"Mail {number}.") for number in range(BURST)))
            until(lambda: texts(daemon))
        with running(home) as daemon:
            until(lambda: len(texts(daemon)) >= BURST)
            assert sorted(texts(daemon)) == sorted(f"Mail {number}." for number in range(BURST))


def test_a_daemon_stops_at_once_while_a_server_says_nothing(tmp_path: Path) -> None:
    """A thread that waits for a word must not keep the person waiting too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        daemon = DaemonProcess(home_of(tmp_path, entry(Dovecot(tmp_path, port=silent.getsockname()[1])))).start()
        connection, _ = silent.accept()
        with connection:
            begin = monotonic()
            assert daemon.stop() == 0
            assert monotonic() - begin < STOPPED_SECONDS


def test_a_mail_reaches_the_inbox_and_is_answered(account: Account) -> None:
    """The whole way: from the server into the inbox, and the answer back to who asked."""
    account.server.deliver(mail("Can you look?", "Message-ID: <asked@example.net>", subject="The build"))
    (message,) = account.heard("Can you look?")
    found = (message["from"], message["channel"], message["sender_id"])
    assert found == ("Bob", "email", "unverified:bob@example.net")
    account.rig.ok("reply", message["id"], "It is fixed.")
    (answer,) = until(account.sink.read)
    assert (answer["To"], answer["In-Reply-To"], answer["Subject"]) == (
        "bob@example.net",
        "<asked@example.net>",
        "Re: The build",
    )


def test_a_mail_with_a_pairing_code_admits_its_sender_if_somebody_vouches_for_them(account: Account) -> None:
    """Whoever has the code and writes from an address of their own gets in; who only writes the address does not."""
    code = account.rig.json("pair")["code"]
    account.server.deliver(
        mail("Dan, or anybody.", sender="dan@example.net", subject=f"Here: {code}"),
        mail("Dan, vouched for.", VOUCHED, sender="dan@example.net", subject=f"Here: {code}"),
        mail("Eve, vouched for.", VOUCHED, sender="eve@example.net", subject=f"Here: {code}"),
    )
    rows = account.heard("Dan, or anybody.", "Dan, vouched for.", "Eve, vouched for.")
    assert [row["trust"] for row in rows] == ["unknown", "known", "unknown"]
    status = account.rig.json("status")
    assert {"source": NAME, "sender": "dan@example.net", "trust": "known"} in status["senders"]
    (refused,) = status["refused_pairings"]
    assert (refused["sender"], refused["reason"]) == ("unverified:dan@example.net", "nobody vouches for the sender")
    said = account.rig.ok("status")
    assert "Sent a pairing code and were not admitted:" in said
    assert "unverified:dan@example.net" in said


def test_a_rule_about_an_address_holds_for_who_is_vouched_for_and_nobody_else(account: Account) -> None:
    """Whoever writes the owner's address into a mail is not the owner, and does not hide the owner's mail."""
    account.rig.ok("allow", "bob@example.net", "--source", NAME, "--as-owner")
    account.rig.ok("allow", "unverified:carol@example.net", "--source", NAME)
    account.server.deliver(
        mail("Anybody as Bob, with his id.", "Message-ID: <1@example.net>"),
        mail("Bob, vouched for.", VOUCHED, "Message-ID: <1@example.net>"),
        mail("Anybody as Carol.", sender="carol@example.net"),
    )
    found = account.heard("Bob, vouched for.", "Anybody as Bob, with his id.", "Anybody as Carol.")
    assert [(row["sender_id"], row["trust"]) for row in found] == [
        ("bob@example.net", "owner"),
        ("unverified:bob@example.net", "unknown"),
        ("unverified:carol@example.net", "known"),
    ]


def test_an_account_without_a_way_out_cannot_be_answered_and_says_so(account: Account) -> None:
    """An answer that could never leave must be refused where it is written."""
    account.server.deliver(mail("Who answers?"), folder=QUIET)
    (message,) = account.heard("Who answers?")
    done = account.rig.run("reply", message["id"], "Nobody.")
    assert done.code != 0
    assert QUIET in done.err
