"""What a person writes about a mail account: read as meant, and every mistake named with what would do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harken.errors import UserError
from harken.sources.imap.settings import ImapSettings, MailServer, read_settings

KEPT = "env:MAIL"
PASTED = "hunter2-hunter2"
LEAST: dict[str, object] = {"kind": "imap", "host": "imap.example.org", "user": "ann", "password": KEPT}


def read(**more: object) -> ImapSettings:
    """Return the settings of an account."""
    return read_settings("post", {**LEAST, **more})


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


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ({"hots": "x"}, "sources.post.hots is not a setting of imap.", "Did you mean host?"),
        ({"host": ""}, "sources.post.host is not a text of one line.", "imap.example.org"),
        ({"host": "a/b"}, "sources.post.host is not the name of a server.", "imap.example.org"),
        ({"port": 0}, "sources.post.port is 0.", "993"),
        ({"port": True}, "sources.post.port is True.", "993"),
        ({"security": "ssl"}, "sources.post.security is 'ssl'.", "tls, starttls, none"),
        ({"security": "none"}, 'sources.post.security is "none", and imap.example.org is not this machine.', "clear"),
        ({"smtp_port": 25}, "sources.post.smtp_port needs smtp_host.", "Set smtp_host too."),
        ({"smtp_auth": "none"}, "sources.post.smtp_auth needs smtp_host.", "Set smtp_host too."),
        ({**RELAY, "smtp_auth": "no"}, "sources.post.smtp_auth is 'no'.", "login, none"),
        (
            {**RELAY, "smtp_security": "none"},
            'sources.post.smtp_security is "none", and relay.example.org is not this machine.',
            'if it wants no password, set smtp_auth = "none"',
        ),
        ({"smtp_host": "smtp.example.org"}, "sources.post.from is missing.", "address that answers are from"),
        ({"from": "a b"}, "sources.post.from is not a mail address.", "me@example.org"),
        ({"from": "a@b, c@d"}, "sources.post.from is not a mail address.", "me@example.org"),
        ({"token": "env:X"}, "sources.post has both of password and token.", "Set one"),
        ({"folders": []}, "sources.post.folders is not a list of folders.", "INBOX"),
        ({"folders": ["a\nb"]}, "sources.post.folders holds something that is not a folder.", "INBOX"),
        ({"poll": 1}, "sources.post.poll is 1.", "from 5 to 86400"),
        ({"since": "a week"}, "sources.post.since is 'a week'.", "7d"),
        ({"since": "9999d"}, "sources.post.since is '9999d'.", "366d"),
        ({"trust_from": 1}, "sources.post.trust_from is 1.", "true or false"),
        (
            {"trust_from": True, "authserv_id": "mx.example.org"},
            "sources.post has both of authserv_id and trust_from.",
            "Leave trust_from out",
        ),
        ({"save_sent": "yes"}, "sources.post.save_sent is 'yes'.", "true or false"),
    ],
)
def test_a_mistake_is_named_with_what_would_do(more: dict[str, object], message: str, hint: str) -> None:
    """Somebody corrects it in a file, without a manual."""
    with pytest.raises(UserError) as raised:
        read(**more)
    assert raised.value.message == message
    assert hint in raised.value.hint


def test_a_password_in_the_settings_is_refused_and_not_repeated() -> None:
    """The error is shown on a screen and may be sent to somebody for help."""
    with pytest.raises(UserError) as raised:
        read(password=PASTED)
    assert PASTED not in f"{raised.value.message}{raised.value.hint}"


def test_a_token_is_named_like_a_password() -> None:
    """OAuth 2 is what large providers want."""
    entry = {key: value for key, value in LEAST.items() if key != "password"}
    said = read_settings("post", {**entry, "token": "file:token"})
    assert (said.secret, said.is_token) == ("file:token", True)
