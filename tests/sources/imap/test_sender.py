"""Answers to mails: into their conversation, to whom the mail says, once as far as that can be known."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import given
from hypothesis import strategies as st

from harken.clock import Clock, SystemClock
from harken.errors import Forbidden, HarkenError, NeedsPerson, Unavailable, Uncertain, UserError
from harken.model import OWNER_ID, Draft, Sender
from harken.sources.imap.messages import ArrivedMail, draft_of
from harken.sources.imap.sender import CLOSING, SmtpSender, compose
from harken.sources.imap.settings import ImapSettings, read_settings
from harken.testing.clock import FakeClock
from tests.graph.certificate import write_loopback_pair
from tests.mailserver.dovecot import USER, Dovecot, serving
from tests.mailserver.sink import Sink, sinking
from tests.sources.imap.rig import NAME, credentials, mail, reply_to, settings_of
from tests.sources.messages_rig import stored_message

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A server that takes mail."""
    with sinking() as taking:
        yield taking


def settings(sink: Sink) -> ImapSettings:
    """Return an account whose mail nobody reads here."""
    return settings_of(Dovecot(Path(), port=1), sink)


def sender_of(chosen: ImapSettings, clock: Clock | None = None) -> SmtpSender:
    """Return who answers."""
    return SmtpSender(chosen, credentials(), clock or SystemClock())


def heard(raw: bytes) -> Draft:
    """Return a mail as it was heard."""
    return draft_of(ArrivedMail(raw=raw), source=NAME, folder="INBOX")


ASKED = mail(
    "Shall we?",
    "Message-ID: <three@example.net>",
    "In-Reply-To: <two@example.net>",
    "References: <one@example.net> <two@example.net>",
    subject="=?utf-8?q?Gr=C3=BC=C3=9Fe?=",
)


async def test_answer_of_the_person_does_not_say_that_an_agent_wrote_it(sink: Sink) -> None:
    """`harken reply` in the person's own terminal is their own word."""
    await sender_of(settings(sink)).send(replace(reply_to(heard(ASKED), "Thanks."), author=OWNER_ID))
    (answer,) = sink.read()
    assert plain(answer).strip() == "Thanks."
    html = answer.get_body(("html",))
    assert html is not None
    assert CLOSING not in html.get_content()


async def test_an_answer_goes_to_the_sender_and_into_the_conversation(sink: Sink) -> None:
    """A mail program shows it below the mail that it answers."""
    sent = await sender_of(settings(sink)).send(reply_to(heard(ASKED), "Thank **you**.\n\n<script>x</script>"))
    (answer,) = sink.read()
    assert (answer["From"], answer["To"], answer["Subject"]) == (USER, "bob@example.net", "Re: Grüße")
    assert answer["In-Reply-To"] == "<three@example.net>"
    assert answer["References"] == "<one@example.net> <two@example.net> <three@example.net>"
    assert answer["Message-ID"] == sent
    assert "Auto-Submitted" not in answer
    assert sink.recipients == [["bob@example.net"]]
    assert plain(answer).startswith("Thank **you**.")
    assert CLOSING in plain(answer)
    html = answer.get_body(("html",))
    assert html is not None
    assert "<strong>you</strong>" in html.get_content()
    assert "<script>" not in html.get_content()


def plain(answer: EmailMessage) -> str:
    """Return the plain text of a mail."""
    body = answer.get_body(("plain",))
    assert body is not None
    content = body.get_content()
    assert isinstance(content, str)
    return content


async def test_an_answer_goes_where_the_mail_says_that_answers_go(sink: Sink) -> None:
    """Somebody who writes from a robot's address names a person."""
    asked = heard(mail("Well?", "Reply-To: Carol <carol@example.net>", subject="Re: Numbers"))
    await sender_of(settings(sink)).send(reply_to(asked))
    (answer,) = sink.read()
    assert (answer["To"], answer["Subject"]) == ("carol@example.net", "Re: Numbers")


async def test_a_connection_that_is_lost_before_leaves_nothing_open(sink: Sink) -> None:
    """It surely has not left, so nobody need look for it or wait before it is tried again."""
    sink.is_cut_early = True
    with pytest.raises(Unavailable) as raised:
        await sender_of(settings(sink)).send(reply_to(heard(ASKED)))
    assert not isinstance(raised.value, Uncertain)
    assert sink.mails == []


async def test_an_answer_that_may_have_left_waits_while_nobody_can_look(sink: Sink) -> None:
    """Sent blindly it might be sent a second time; the mailbox comes back."""
    tried = replace(reply_to(heard(ASKED)), tried_at=NOW - timedelta(days=1))
    with pytest.raises(Uncertain, match="cannot be reached"):
        await sender_of(settings(sink), FakeClock(NOW)).send(tried)
    assert sink.mails == []


async def test_where_there_is_no_folder_of_sent_mail_it_is_sent_again(sink: Sink) -> None:
    """There is nothing to look at, and there never will be."""
    with serving(has_sent=False) as server:
        tried = replace(reply_to(heard(ASKED)), tried_at=NOW - timedelta(days=1))
        await sender_of(settings_of(server, sink), FakeClock(NOW)).send(tried)
    assert len(sink.mails) == 1


async def test_words_that_make_no_sense_leave_it_open(sink: Sink) -> None:
    """A server that babbles after it got a mail has not said no."""
    sink.answers = ["well, well"]
    with pytest.raises(Uncertain):
        await sender_of(settings(sink)).send(reply_to(heard(ASKED)))


@pytest.mark.parametrize(("refusing", "noted"), [("", 1), ("451 later", 1), ("550 nobody", 0)])
async def test_that_it_may_leave_is_noted_right_before_it_may(sink: Sink, refusing: str, noted: int) -> None:
    """After a crash it must be known; and what surely did not leave need not be looked for."""
    came: list[int] = []

    async def note() -> None:
        came.append(len(sink.mails))
        assert sink.named == ["bob@example.net"]

    sink.refuses_people, sink.answers = not noted, [refusing] if refusing and noted else []
    outgoing = replace(reply_to(heard(ASKED)), hand_over=note)
    with suppress(Unavailable, Forbidden):
        await sender_of(settings(sink)).send(outgoing)
    assert came == [0] * noted


@pytest.mark.parametrize(
    ("said", "kind"), [("451 later", Unavailable), ("550 no such person", Forbidden), ("554 spam", Forbidden)]
)
async def test_what_the_server_says_decides_whether_it_is_tried_again(
    sink: Sink, said: str, kind: type[HarkenError]
) -> None:
    """A full disk passes, a person who does not exist does not."""
    sink.answers = [said]
    with pytest.raises(kind, match=f"127.0.0.1 says {said[:3]}: {said[4:]}"):
        await sender_of(settings(sink)).send(reply_to(heard(ASKED)))


async def test_a_refused_password_waits_for_a_person(sink: Sink) -> None:
    """The answer is kept until somebody has acted."""
    sender = SmtpSender(settings(sink), credentials(lambda: "wr0ng-secret"), SystemClock())
    with pytest.raises(NeedsPerson) as raised:
        await sender.send(reply_to(heard(ASKED)))
    assert "wr0ng-secret" not in f"{raised.value.message} {raised.value.hint}"


Security = Literal["tls", "starttls", "none"]


def through(account: ImapSettings, port: int, security: Security, *, has_auth: bool = True) -> ImapSettings:
    """Return the settings of an account whose answers leave through a port of this machine."""
    return msgspec.structs.replace(
        account,
        smtp_host="127.0.0.1",
        smtp_port=port,
        smtp_security=security,
        smtp_auth="login" if has_auth else "none",
    )


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_an_answer_leaves_over_a_private_way(tmp_path: Path, security: Security) -> None:
    """The password goes over it; a certificate that nobody vouches for is not believed."""
    ca, certificate = write_loopback_pair(tmp_path)
    with sinking(security, certificate) as private:
        chosen = through(settings(private), private.port, security)
        trusting = replace(credentials(), trust=ssl.create_default_context(cafile=ca))
        await SmtpSender(chosen, trusting, SystemClock()).send(reply_to(heard(ASKED)))
        with pytest.raises(Unavailable):
            await sender_of(chosen).send(reply_to(heard(ASKED)))
        assert len(private.mails) == 1


async def test_nobody_there_is_a_reason_to_try_again(sink: Sink) -> None:
    """The network is away for a while."""
    gone = through(settings(sink), 1, "none")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1 cannot be reached: Connection refused\."):
        await sender_of(gone).send(reply_to(heard(ASKED)))


async def test_an_answer_leaves_through_a_relay_that_wants_no_sign_in() -> None:
    """Relays of companies have neither AUTH nor STARTTLS, and the password is none of their business."""

    def nobody_asks() -> str:
        raise AssertionError

    with sinking(has_auth=False) as relay:
        chosen = through(settings(relay), relay.port, "none", has_auth=False)
        await SmtpSender(chosen, credentials(nobody_asks), SystemClock()).send(reply_to(heard(ASKED)))
        assert len(relay.mails) == 1


@pytest.mark.parametrize(
    ("security", "offers_auth", "uses_auth", "kind", "said", "setting"),
    [
        ("none", False, True, NeedsPerson, r"127\.0\.0\.1 offers no way to sign in\.", 'smtp_auth = "none"'),
        ("starttls", True, True, NeedsPerson, "offers no STARTTLS", "smtp_security"),
        ("none", True, False, NeedsPerson, r"127\.0\.0\.1 wants a sign-in: 530 sign in first", 'smtp_auth = "login"'),
        ("tls", True, True, Unavailable, "answers, but not with TLS", "smtp_port"),
    ],
    ids=["no sign-in", "no STARTTLS", "a sign-in after all", "no TLS"],
)
async def test_a_server_that_answers_otherwise_than_it_is_set_is_not_called_unreachable(
    security: Security, *, offers_auth: bool, uses_auth: bool, kind: type[HarkenError], said: str, setting: str
) -> None:
    """Looking at the network would be in vain: the setting that helps is named. It gets neither mail nor password."""
    with sinking(has_auth=offers_auth) as server:
        sender = sender_of(through(settings(server), server.port, security, has_auth=uses_auth))
        with pytest.raises(kind, match=said) as raised:
            await sender.send(reply_to(heard(ASKED)))
    assert setting in raised.value.hint
    assert (server.mails, server.signed_in) == ([], [])


async def test_a_certificate_that_is_not_believed_is_named(tmp_path: Path) -> None:
    """The way out is the setting `ca`, and not another network."""
    with sinking("tls", write_loopback_pair(tmp_path)[1]) as private:
        chosen = through(settings(private), private.port, "tls")
        with pytest.raises(Unavailable, match=r"The certificate of .* is not trusted") as raised:
            await sender_of(chosen).send(reply_to(heard(ASKED)))
    assert "ca" in raised.value.hint


@pytest.mark.parametrize(
    ("greeting", "kind", "said"),
    [
        (b"554 no mail \x1b[31mtoday\r\n", Forbidden, "127.0.0.1 says 554: no mail [31mtoday"),
        (b"421 too many\r\n", Unavailable, "127.0.0.1 says 421: too many"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Unavailable, "127.0.0.1 said something that is not SMTP"),
        (b"", Unavailable, "127.0.0.1 closed the connection without an answer"),
    ],
)
async def test_what_a_server_says_first_is_told(greeting: bytes, kind: type[HarkenError], said: str) -> None:
    """Its own words say more than that it cannot be reached, without what a terminal would obey."""

    async def greet(stream: SocketStream) -> None:
        async with stream:
            if greeting:
                await stream.send(greeting)
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, greet)
        chosen = through(PLAIN, listener.extra(SocketAttribute.local_port), "none")
        with pytest.raises(kind) as raised:
            await sender_of(chosen).send(reply_to(heard(ASKED)))
        group.cancel_scope.cancel()
    assert raised.value.message.startswith(said)


async def test_answers_are_kept_among_the_sent_ones_where_that_is_asked_for(sink: Sink) -> None:
    """The person finds there what left in their name; and what is there is not sent again."""
    with serving() as server:
        sender = sender_of(settings_of(server, sink, save_sent=True))
        for tried_at in (None, NOW):
            await sender.send(replace(reply_to(heard(ASKED)), tried_at=tried_at))
        (kept,) = (server.mail / ".Sent" / "cur").iterdir()
        assert kept.name.endswith(":2,S")
        (answer,) = sink.read()
        assert str(answer["Message-ID"]).encode() in kept.read_bytes()


@pytest.mark.parametrize("body", ["", "  \n", "x" * 100_001])
def test_what_says_nothing_or_too_much_is_not_sent(body: str) -> None:
    """The agent can correct it."""
    with pytest.raises(UserError):
        compose(reply_to(heard(ASKED), body), PLAIN, SystemClock().now())


def test_a_mail_of_another_account_is_not_answered_here() -> None:
    """An answer in the wrong name would be worse than none."""
    with pytest.raises(Forbidden):
        compose(reply_to(replace(heard(ASKED), source="other")), PLAIN, SystemClock().now())


@pytest.mark.parametrize("address", ["unknown", "a b@c", "a@b\r\nBcc: c@d", "a@b, c@d", '"a b"@c', "@", "a@b~1;"])
def test_a_sender_without_a_plain_address_is_not_answered(address: str) -> None:
    """What could name a second recipient or begin another header names nobody."""
    with pytest.raises(Forbidden):
        compose(reply_to(replace(heard(ASKED), sender=Sender(address))), PLAIN, SystemClock().now())


PLAIN = read_settings(
    NAME, {"host": "imap.example.org", "user": USER, "password": "env:X", "smtp_host": "smtp.example.org"}
)
HEADERS = {
    *("From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References"),
    *("MIME-Version", "Content-Type"),
}


@given(
    subject=st.text(max_size=80),
    upstream_id=st.text(max_size=60),
    references=st.text(max_size=80),
    conversation=st.text(max_size=60),
    elsewhere=st.text(max_size=40),
    body=st.text(min_size=1, max_size=200).filter(str.strip),
)
def test_no_word_of_a_stranger_begins_a_header(
    *, subject: str, upstream_id: str, references: str, conversation: str, elsewhere: str, body: str
) -> None:
    """A line end in a subject must not add a recipient."""
    draft = replace(
        heard(ASKED),
        upstream_id=upstream_id,
        conversation=conversation,
        meta={"subject": subject, "references": references, "answers_go_to": elsewhere},
    )
    outgoing = replace(reply_to(draft, body), to=stored_message(draft))
    try:
        raw = compose(outgoing, PLAIN, SystemClock().now()).as_bytes()
    except Forbidden:
        return
    head = raw.partition(b"\r\n\r\n")[0].decode("utf-8", "surrogateescape")
    names = {line.partition(":")[0] for line in head.split("\r\n") if not line[:1].isspace()}
    assert names <= HEADERS
