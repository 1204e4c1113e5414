"""What a person writes about a mail account: read as meant, and every mistake named with what would do."""

from __future__ import annotations

from datetime import timedelta

from harken.sources.imap.settings import ImapSettings, MailServer, read_settings

KEPT = "env:MAIL"
MIN: dict[str, object] = {"kind": "imap", "host": "imap.example.org", "user": "ann", "password": KEPT}


def read(**more: object) -> ImapSettings:
    """Return the settings of an account."""
    return read_settings("post", {**MIN, **more})


def test_the_least_that_must_be_said_is_enough_to_listen() -> None:
    """A private way and the inbox are what everybody wants; without a way out nothing is answered."""
    assert read() == ImapSettings(name="post", host="imap.example.org", user="ann", password=KEPT)
    assert (read().imap, read().secret) == (MailServer(host="imap.example.org", port=993), KEPT)
    assert not read().can_answer


def test_everything_can_be_said() -> None:
    """Each setting ends up where it belongs."""
    said = read(
        security="starttls",
        folders=["inbox", "Lists", "Lists"],
        poll=30,
        since="7d",
        ca="ca.pem",
        authserv_id="MX.example.org",
        smtp_host="smtp.example.org",
        smtp_security="starttls",
        save_sent=True,
        **{"from": "ann@example.org"},
    )
    assert said.imap == MailServer(host="imap.example.org", port=143, security="starttls")
    assert said.smtp == MailServer(host="smtp.example.org", port=587, security="starttls")
    assert (said.user, said.address, said.secret) == ("ann", "ann@example.org", KEPT)
    assert (said.folders, said.poll, said.since) == (("INBOX", "Lists"), 30.0, timedelta(days=7))
    assert (said.ca, said.authserv_id, said.save_sent) == ("ca.pem", "mx.example.org", True)


def test_where_mail_leaves_is_known_of_large_providers() -> None:
    """A person who gives the address of one need not look up the other."""
    said = read(host="imap.gmail.com", user="ann@gmail.com")
    assert (said.smtp, said.address) == (MailServer(host="smtp.gmail.com", port=465), "ann@gmail.com")
    assert said.can_answer


def test_who_vouches_for_senders_is_known_of_gmail_and_asked_of_all_others() -> None:
    """The safe side is the default: where nobody is named, nobody counts as who they say."""
    gmail = {"host": "imap.gmail.com", "user": "ann@gmail.com"}
    assert read(**gmail).authserv_id == "mx.google.com"
    assert read(**gmail, authserv_id="other.example").authserv_id == "other.example"
    trusting = read(**gmail, trust_from=True)
    assert (trusting.authserv_id, trusting.trust_from) == ("", True)
    assert (read().authserv_id, read().trust_from) == ("", False)


RELAY = {"smtp_host": "relay.example.org", "from": "ann@example.org"}


def test_a_relay_without_a_sign_in_may_be_used_in_the_clear_if_both_are_said() -> None:
    """No password is sent, and that the text of answers can be read on the way is what two words ask for."""
    server = MailServer(host="relay.example.org", port=25, security="none", has_auth=False)
    assert read(**RELAY, smtp_security="none", smtp_auth="none").smtp == server
    private = read(**RELAY, smtp_auth="none").smtp
    assert private == MailServer(host="relay.example.org", port=465, security="tls", has_auth=False)
    assert read(**RELAY, smtp_auth="login").smtp == read(**RELAY).smtp


def test_a_token_is_named_like_a_password() -> None:
    """OAuth 2 is what large providers want."""
    entry = {key: value for key, value in MIN.items() if key != "password"}
    said = read_settings("post", {**entry, "token": "file:token"})
    assert (said.secret, said.is_token) == ("file:token", True)
