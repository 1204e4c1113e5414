"""An SMTP server on loopback that keeps what it is handed, signs people in, and fails as it is told to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.mailserver.dovecot import PASSWORD, USER


@dataclass(slots=True)
class Sink:
    """What came, and how the next mails are answered."""

    port: int = 0
    mails: list[bytes] = field(default_factory=list[bytes])
    recipients: list[list[str]] = field(default_factory=list[list[str]])
    signed_in: list[str] = field(default_factory=list[str])
    answers: list[str] = field(default_factory=list[str])  # to the next mails; then all are taken
    named: list[str] = field(default_factory=list[str])  # everybody to whom a mail was announced
    refuses_people: bool = False
    is_cut_early: bool = False  # the connection ends before a mail can be handed over
    is_cut: bool = False  # the connection ends after a mail was taken, before that is said
    is_open: bool = False  # whoever can connect may hand mail over, as at a relay of a company

    def read(self) -> list[EmailMessage]:
        """Return the mails as the email package reads them."""
        return [message_from_bytes(mail, policy=default) for mail in self.mails]

    async def announce(
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Say whether a mail may go to somebody."""
        self.named.append(address)
        if self.is_cut_early and server.transport is not None:
            server.transport.close()
        if self.refuses_people:
            return "550 nobody of that name"
        envelope.rcpt_tos.append(address)
        return "250 known"

    async def take(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Take a mail of somebody who has signed in, or of anybody."""
        if not session.authenticated and not self.is_open:
            return "530 sign in first"
        if self.answers:
            return self.answers.pop(0)
        content = envelope.content or b""
        self.mails.append(content.encode() if isinstance(content, str) else content)
        self.recipients.append(list(envelope.rcpt_tos))
        if self.is_cut and server.transport is not None:
            self.is_cut = False
            server.transport.close()
        return "250 taken"

    def sign_in(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, who: object
    ) -> AuthResult:
        """Let the one person in."""
        expected = LoginPassword(USER.encode(), PASSWORD.encode())
        is_good = who == expected
        if is_good:
            self.signed_in.append(USER)
        return AuthResult(success=is_good, handled=False)


@contextmanager
def sinking(security: str = "none", certificate: Path | None = None, *, has_auth: bool = True) -> Iterator[Sink]:
    """A sink for the time of the block; with a certificate the way to it is private.

    Without `has_auth` it has no way to sign in, and takes mail from everybody.
    """
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as free:
        sink = Sink(port=free.getsockname()[1], is_open=not has_auth)
    # The library finds what to call by names of its own.
    handler = type(
        "Handler", (), {"handle_DATA": staticmethod(sink.take), "handle_RCPT": staticmethod(sink.announce)}
    )()
    controller = Controller(
        handler,
        hostname="127.0.0.1",
        port=sink.port,
        authenticator=sink.sign_in,
        auth_require_tls=not has_auth,  # without TLS there is no AUTH then
        ssl_context=context if security == "tls" else None,
        tls_context=context if security == "starttls" else None,
        require_starttls=security == "starttls",
    )
    controller.start()
    try:
        yield sink
    finally:
        controller.stop()
