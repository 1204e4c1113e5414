"""A mail account from the command line: added and tried, with no password in any command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from harken.sources.imap.settings import ImapSetup, read_settings
from harken.sources.imap.source import senders_line
from tests.cli.rig import Rig
from tests.cli.terminal_session import ENTER, TerminalSession
from tests.mailserver.dovecot import USER, Dovecot, serving
from tests.mailserver.sink import sinking
from tests.sources.imap.rig import NAME, VOUCHED, keep_password, mail
from tests.sources.setup_rig import setup_context


@pytest.fixture
def server() -> Iterator[Dovecot]:
    """A mail server with an empty mailbox."""
    with serving() as dovecot:
        yield dovecot


def test_an_account_is_added_and_tried(tmp_path: Path, server: Dovecot) -> None:
    """Two commands from nothing to an account that works."""
    rig = Rig(tmp_path / "home")
    place = ("--host", "127.0.0.1", "--port", str(server.port), "--security", "none", "--user", USER)
    with sinking() as sink:
        out = ("--smtp-host", "127.0.0.1", "--smtp-port", str(sink.port), "--smtp-security", "none")
        added = rig.run("source", "add", "imap", NAME, *place, *out, "--password", "env:MAIL_PASSWORD")
        assert added.code == 0, added
        assert "The secret env:MAIL_PASSWORD is not set." in added.err
        assert "Anybody can write any sender into a mail. Until you set authserv_id nobody is believed" in added.err
        assert f"Agents can answer through 127.0.0.1, as {USER}" in added.err
        tried = rig.run("source", "test", NAME)
        assert tried.code == 1
        assert "The secret env:MAIL_PASSWORD is not set." in tried.out
        keep_password(rig.home)
        server.deliver(mail("One."), mail("Two."))
        found = rig.json("source", "test", NAME)
        assert found["state"] == "listening"
        assert found["found"] == (
            "Mails: INBOX 2; told at once. Folders: Sent, INBOX. Senders are unverified: nobody vouches for them in "
            "most of the newest mails. Answers leave through 127.0.0.1."
        )
        assert sink.signed_in == [USER]
        assert sink.mails == []
    assert server.flags() == ["", ""]


def test_who_vouches_for_senders_is_found_and_believed_if_the_person_says_so(tmp_path: Path, server: Dovecot) -> None:
    """Nobody knows this name by heart, and without it no sender counts."""
    server.deliver(*(mail(f"Mail {number}.", VOUCHED) for number in range(3)))
    rig = Rig(tmp_path / "home")
    rig.home.mkdir(mode=0o700)
    keep_password(rig.home)
    place = ("--host", "127.0.0.1", "--port", str(server.port), "--security", "none")
    kept = ("--password", "env:MAIL_PASSWORD")
    added = rig.run("source", "add", "imap", "first", *place, *kept, "--user", USER)
    assert "mx.example.org vouches for senders: set authserv_id to it, if it is your provider's." in added.err
    assert "mx.example.org vouches for senders: set authserv_id to it" in rig.json("source", "test", "first")["found"]
    assert "authserv_id" not in (rig.home / "config.toml").read_text()
    with TerminalSession(rig, "source", "add", "imap", "second", *place, *kept, columns=200) as person:
        person.sees("Who signs in")
        person.press(f"{USER}\r".encode())
        person.sees("The server that sends answers")
        person.press(ENTER)
        person.sees("Believe it only if that is a name of your provider.", "Believe it? [Y/n]")
        person.press(ENTER)
        person.sees("It is believed if mx.example.org vouches for it, else it is unverified.")
        assert person.leaves() == 0
    assert 'authserv_id = "mx.example.org"' in (rig.home / "config.toml").read_text()


def test_a_relay_without_a_sign_in_is_added_and_tried(tmp_path: Path, server: Dovecot) -> None:
    """Where a server has neither AUTH nor STARTTLS, two words are enough."""
    rig = Rig(tmp_path / "home")
    rig.home.mkdir(mode=0o700)
    keep_password(rig.home)
    place = ("--host", "127.0.0.1", "--port", str(server.port), "--security", "none", "--user", USER)
    with sinking(has_auth=False) as relay:
        out = ("--smtp-host", "127.0.0.1", "--smtp-port", str(relay.port), "--smtp-security", "none")
        rig.run("source", "add", "imap", "first", *place, *out, "--password", "env:MAIL_PASSWORD")
        tried = rig.run("source", "test", "first")
        assert tried.code == 1
        assert "127.0.0.1 offers no way to sign in." in tried.out
        rig.run("source", "add", "imap", NAME, *place, *out, "--smtp-auth", "none", "--password", "env:MAIL_PASSWORD")
        found = rig.json("source", "test", NAME)
    assert found["state"] == "listening"
    assert found["found"].endswith("Answers leave through 127.0.0.1, without a sign-in.")


def test_answers_that_anybody_on_the_way_could_read_are_warned_of() -> None:
    """A relay in the clear may be right within a company; nobody should use it unknowingly."""
    relay = {**WANTED, "smtp_host": "relay.example.org", "smtp_security": "none", "smtp_auth": "none"}
    said = "Warning: answers reach relay.example.org unencrypted: who is on the way can read them."
    assert said in what_to_know(relay)
    assert not any("unencrypted" in line for line in what_to_know({**relay, "smtp_host": "127.0.0.1"}))


def what_to_know(values: Mapping[str, object]) -> Sequence[str]:
    """Return what a person is told after an account was added."""
    setup, context = ImapSetup(), setup_context()
    return setup.outcome(NAME, values, setup.entry(NAME, values, context), context).notes


KEPT = "env:MAIL_PASSWORD"
WANTED = {"host": "imap.example.org", "user": USER, "password": KEPT, "trust_from": True}


def test_believing_every_sender_is_possible_and_warned_of() -> None:
    """Somebody whose own server refuses forged mail may want it; nobody should do it unknowingly."""
    entry = ImapSetup().entry(NAME, WANTED, setup_context())
    assert entry["trust_from"] is True
    assert (
        "Warning: Anybody can write any sender into a mail. With trust_from it is believed" in what_to_know(WANTED)[-1]
    )
    settings = read_settings(NAME, entry)
    assert senders_line(settings, []).startswith("Warning: every sender is believed without proof")


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ([], "mx.example.org vouches for senders."),
        ([[], ["mx.example.org; dmarc=fail"]], "mx.example.org vouches for senders."),
        (
            [[], ["mx2.example.org; dmarc=pass"]],
            "Senders are unverified: mx.example.org is in none of the newest 2 mails, check authserv_id.",
        ),
    ],
)
def test_a_name_that_is_in_no_mail_is_told(checks: list[list[str]], said: str) -> None:
    """With a slip in it no sender would ever count, and nothing else would say why."""
    settings = read_settings(NAME, {**MIN, "authserv_id": "mx.example.org"})
    assert senders_line(settings, checks) == said


MIN = {"kind": "imap", "host": "imap.example.org", "user": USER, "password": "env:MAIL_PASSWORD"}


def test_what_is_missing_is_asked_for_by_name(tmp_path: Path) -> None:
    """A script gets an error instead of a question."""
    rig = Rig(tmp_path / "home")
    done = rig.run("source", "add", "imap", NAME, "--host", "imap.example.org", "--user", USER)
    assert done.code == 2
    assert "Missing option '--password'." in done.err
