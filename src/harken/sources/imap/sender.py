"""Answers to mails, over SMTP; kept among the sent ones if asked.

SMTP does not tell whether a mail has left over a connection that was lost. So after such a try it is looked for among
the sent mails, where many providers keep what leaves through them, for some minutes; then it is sent again, with the
same Message-ID, by which most mail programs show it once. Above is the outbox, below is `connection.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

import aiosmtplib
import anyio
import anyio.to_thread

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, NeedsPerson, Unavailable, Uncertain, UserError
from harken.model import Draft, Message, OutgoingReply
from harken.sources.answers import closing_line, to_html
from harken.sources.imap.connection import Credentials, ImapLink
from harken.sources.imap.messages import MAX_RECIPIENTS, UNVERIFIED, is_answer, own_id_in
from harken.sources.imap.settings import LOGIN, NONE, STARTTLS, TLS, ImapSettings, MailServer, ids_in, is_address

CLOSING: Final = "Written by an AI agent on my behalf."
MAX_CHARS: Final = 100_000
MAX_SUBJECT: Final = 300

_OWN: Final = re.compile(r"<harken\.[0-9a-f]{32}@[^<>@\s]{1,255}>")

CALL_SECONDS: Final = 60.0
SEND_SECONDS: Final = 300.0
QUIT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 30.0
MAX_SAID: Final = 200

_MIN: Final = 200
_PASSING: Final = 400
_LASTING: Final = 500
_SIGN_IN_FIRST: Final = 530

LOOKED_FOR: Final = timedelta(minutes=5)  # after a try that may have worked, before it is sent again
LOOK_AGAIN_SECONDS: Final = 30.0


def answer_id(settings: ImapSettings, key: str) -> str:
    """Return the id of the answer with this key, the same each time it is tried."""
    digest = hashlib.sha256(f"{settings.name} {key}".encode()).hexdigest()[:32]
    return f"<harken.{digest}@{settings.address.rpartition('@')[2]}>"


def is_own(draft: Draft, settings: ImapSettings) -> bool:
    """Whether a mail is an answer of ours that came back; another who writes such an id only hides their own mail."""
    is_from_us = draft.sender.id.removeprefix(UNVERIFIED) == settings.address.lower()
    return is_from_us and _OWN.fullmatch(own_id_in(draft.upstream_id)) is not None


def compose(reply: OutgoingReply, settings: ImapSettings, now: datetime) -> EmailMessage:
    """Return the answer; raises `UserError` for a text that cannot be sent, `Forbidden` if it has no address."""
    text = reply.body.strip()
    if reply.to.source != settings.name:
        raise Forbidden("This mail is not from this account.", "answer a mail that came from it")
    if not text:
        raise UserError("The answer is empty.", "write a text")
    if len(text) > MAX_CHARS:
        raise UserError(f"The answer is longer than {MAX_CHARS:,} characters.", "shorten it")
    mail = EmailMessage(policy=SMTP)
    try:
        mail["From"] = Address(addr_spec=settings.address)
        mail["To"] = [Address(addr_spec=address) for address in recipients(reply.to)]
        mail["Subject"] = _subject(reply.to)
    except (MessageError, ValueError, IndexError, LookupError) as exc:
        raise Forbidden(
            "The sender of this mail has no address that can be answered.", "write to them yourself"
        ) from exc
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = answer_id(settings, reply.key)
    if earlier := _earlier(reply.to):
        mail["In-Reply-To"] = earlier[-1]
        mail["References"] = " ".join(earlier)
    closing, closing_html = ("", "") if reply.is_by_owner else (f"\n{CLOSING}\n", f"{closing_line(CLOSING)}\n")
    mail.set_content(f"{text}\n{closing}")
    mail.add_alternative(f"{to_html(text)}\n{closing_html}", subtype="html")
    return mail


def recipients(to: Message) -> list[str]:
    """Return the addresses an answer goes to: where the mail says that answers go, else its sender."""
    named = [each.strip() for each in to.meta.get("answers_go_to", "").split(",") if each.strip()]
    found = [each for each in named or [to.sender.id.removeprefix(UNVERIFIED)] if is_address(each)]
    if not found:
        raise Forbidden("The sender of this mail has no address that can be answered.", "write to them yourself")
    return found[:MAX_RECIPIENTS]


def _subject(to: Message) -> str:
    subject = " ".join(to.meta.get("subject", "").split())[:MAX_SUBJECT]
    # What still looks like an encoded word would be decoded once more, with the line ends in it.
    printable = "".join(char for char in subject if char.isprintable()).replace("=?", "= ?")
    return printable if is_answer(printable, has_original=False) else f"Re: {printable}".strip()


def _earlier(to: Message) -> list[str]:
    """Return the ids of the conversation, the mail that is answered last."""
    own = ids_in(own_id_in(to.upstream_id))[:1]
    if not own:
        return []
    before = [*ids_in(to.conversation)[:1], *ids_in(to.meta.get("references", ""))]
    return [*(each for each in dict.fromkeys(before) if each not in own), *own]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMail:
    """A mail in its envelope."""

    sender: str
    recipients: Sequence[str]
    mail: bytes


async def hand_over(
    server: MailServer, credentials: Credentials, letter: OutgoingMail, note: Callable[[], Awaitable[None]]
) -> None:
    """Sign in and hand a mail over, with `note` right before it may leave.

    Raises `Unavailable`, `NeedsPerson` or `Forbidden` if it surely has not left, `Uncertain` if it may have.
    """
    client = _client(server, credentials)
    try:
        await _announce(client, server, credentials, letter)
        await note()
        await _send(client, server, letter.mail)
        # It has left; a server that does not say goodbye in time changes nothing about that.
        with anyio.move_on_after(QUIT_SECONDS), suppress(aiosmtplib.SMTPException, OSError):
            await client.quit()
    finally:
        client.close()


async def try_sign_in(server: MailServer, credentials: Credentials) -> None:
    """Sign in and leave; raises as handing over does."""
    client = _client(server, credentials)
    try:
        with _in_time(server, CALL_SECONDS):
            await _sign_in(client, server, credentials)
    finally:
        client.close()


def _client(server: MailServer, credentials: Credentials) -> aiosmtplib.SMTP:
    return aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.security == TLS,
        start_tls=server.security == STARTTLS,
        tls_context=credentials.context(),
        timeout=CALL_SECONDS,
        local_hostname="localhost",  # the name of this machine is nobody's business
    )


async def _sign_in(client: aiosmtplib.SMTP, server: MailServer, credentials: Credentials) -> None:
    """Connect, and sign in where the server knows such a thing."""
    secret = await anyio.to_thread.run_sync(credentials.secret) if server.has_auth else ""
    try:
        await client.connect()
        if not server.has_auth:
            await _greet(client)
        elif credentials.is_token:
            await client.auth_xoauth2(credentials.user, secret)
        else:
            await client.login(credentials.user, secret)
    except aiosmtplib.SMTPAuthenticationError as exc:
        said = _said(exc.message).replace(secret, "...")
        if exc.code < _LASTING:
            raise Unavailable(f"{server.host} does not accept sign-ins now: {said}", "Harken tries again") from exc
        raise credentials.refused(server.host, said) from exc
    except aiosmtplib.SMTPResponseException as exc:
        raise _answer(server, exc.code, exc.message) from exc
    except (OSError, ValueError) as exc:
        raise _unreached(server, exc) from exc
    except aiosmtplib.SMTPException as exc:
        raise _not_offered(client, server, credentials.source) from exc


async def _greet(client: aiosmtplib.SMTP) -> None:
    try:
        await client.ehlo()
    except aiosmtplib.SMTPHeloError:
        await client.helo()


def _unreached(server: MailServer, exc: OSError | ValueError) -> Unavailable:
    """Return why no server was reached, as precisely as the library tells."""
    cause = exc.__cause__ if isinstance(exc, aiosmtplib.SMTPConnectError) else exc
    again = "Harken tries again"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unavailable(
            f"The certificate of {server.host} is not trusted: {cause.verify_message}.", "name its authority with ca"
        )
    if isinstance(cause, ssl.SSLError):
        return Unavailable(f"{server.host} answers, but not with TLS.", "check smtp_port and smtp_security")
    if isinstance(exc, TimeoutError):
        return Unavailable(f"{server.host} does not answer in time.", again)
    if isinstance(exc, aiosmtplib.SMTPConnectError) and isinstance(cause, aiosmtplib.SMTPServerDisconnected):
        return Unavailable(f"{server.host} closed the connection without an answer.", again)
    if isinstance(exc, aiosmtplib.SMTPServerDisconnected):
        return Unavailable(f"The connection to {server.host} was lost.", again)
    reason = _reason(cause) if isinstance(cause, OSError) else ""
    return Unavailable(f"{server.host} cannot be reached{f': {reason}' if reason else ''}.", again)


def _reason(error: OSError) -> str:
    """Return the system's word for what went wrong; asyncio puts its own before it."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or ""


def _not_offered(client: aiosmtplib.SMTP, server: MailServer, source: str) -> NeedsPerson:
    """Return what a server that answers does not have: the library says it in a sentence only."""
    if server.security == STARTTLS and not client.is_connected:  # connecting, which includes it, was given up
        return NeedsPerson(
            f"{server.host} offers no STARTTLS.",
            f'check smtp_port; a server of your own that has none: smtp_security = "{NONE}" and smtp_auth = "{NONE}"',
            action=f"check smtp_port and smtp_security of the source {source}",
        )
    return NeedsPerson(
        f"{server.host} offers no way to sign in.",
        f'check smtp_port and smtp_security; if it wants no sign-in, set smtp_auth = "{NONE}"',
        action=f"check smtp_security and smtp_auth of the source {source}",
    )


async def _announce(
    client: aiosmtplib.SMTP, server: MailServer, credentials: Credentials, letter: OutgoingMail
) -> None:
    """Sign in and name the sender and recipients: on an error here, the mail has not left."""
    with _in_time(server, SEND_SECONDS):
        await _sign_in(client, server, credentials)
        try:
            size = [f"size={len(letter.mail)}"] if client.supports_extension("size") else []
            await client.mail(letter.sender, options=size)
            await _name_recipients(client, server, letter.recipients)
        except aiosmtplib.SMTPResponseException as exc:
            raise _answer(server, exc.code, exc.message) from exc
        except (aiosmtplib.SMTPNotSupported, UnicodeError) as exc:
            raise Forbidden(f"{server.host} cannot send this mail.", "answer it in your mail program") from exc
        except (aiosmtplib.SMTPException, OSError, ValueError) as exc:
            raise Unavailable(f"The connection to {server.host} was lost.", "Harken tries again") from exc


async def _name_recipients(client: aiosmtplib.SMTP, server: MailServer, recipients: Sequence[str]) -> None:
    """Name every recipient; raises if the server takes none."""
    refused: list[aiosmtplib.SMTPRecipientRefused] = []
    for recipient in recipients:
        try:
            await client.rcpt(recipient)
        except aiosmtplib.SMTPRecipientRefused as exc:
            refused.append(exc)
    if len(refused) == len(recipients):
        raise _answer(server, refused[0].code, refused[0].message) from refused[0]


async def _send(client: aiosmtplib.SMTP, server: MailServer, mail: bytes) -> None:
    try:
        with anyio.fail_after(SEND_SECONDS):
            await client.data(mail)
    except (aiosmtplib.SMTPException, OSError) as exc:
        if isinstance(exc, aiosmtplib.SMTPResponseException) and exc.code >= _PASSING:
            raise _answer(server, exc.code, exc.message) from exc
        raise Uncertain(
            f"The connection to {server.host} was lost while the answer was being sent; it may have been sent.",
            "Harken looks for it among the sent mails, and sends it again if it is not there",
            retry_after=AGAIN_SECONDS,
        ) from exc


@contextmanager
def _in_time(server: MailServer, seconds: float) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as exc:
        raise Unavailable(f"{server.host} does not answer in time.", "Harken tries again") from exc


def _answer(server: MailServer, code: int, said: str) -> HarkenError:
    if code == _SIGN_IN_FIRST and not server.has_auth:
        return NeedsPerson(
            f"{server.host} wants a sign-in: {code} {_said(said)}",
            f'set smtp_auth = "{LOGIN}", or take it out',
            action="take smtp_auth out of the source",
        )
    if code < _MIN:
        return Unavailable(f"{server.host} said something that is not SMTP: {_said(said)}", "check smtp_port")
    text = f"{server.host} says {code}: {_said(said)}"
    if code < _LASTING:
        return Unavailable(text, "Harken tries again", retry_after=AGAIN_SECONDS)
    return Forbidden(text, "answer it in your mail program")


def _said(text: str) -> str:
    line = " ".join(text.split())[:MAX_SAID]
    return "".join(char for char in line if char.isprintable()) or "without a word"


class SmtpSender:
    """Answers the mails of one account."""

    def __init__(self, settings: ImapSettings, credentials: Credentials, clock: Clock) -> None:
        self._settings = settings
        self._credentials = credentials
        self._clock = clock

    async def send(self, reply: OutgoingReply) -> str:
        """Answer a mail; return the answer's own id."""
        server = self._settings.smtp
        if server is None:
            raise Forbidden("This account cannot be answered.", f"set sources.{self._settings.name}.smtp_host")
        mail = compose(reply, self._settings, self._clock.now()).as_bytes(policy=SMTP)
        identifier = answer_id(self._settings, reply.key)
        if reply.tried_at is not None:
            if await self._has_left(identifier):
                return identifier
            if self._clock.now() - reply.tried_at < LOOKED_FOR:
                raise _unsure("It is not known yet whether the answer was sent.")
        letter = OutgoingMail(sender=self._settings.address, recipients=recipients(reply.to), mail=mail)
        await hand_over(server, self._credentials, letter, reply.hand_over)
        if self._settings.save_sent:
            with suppress(HarkenError):  # it has left, whatever goes wrong now
                await self._keep(identifier, mail)
        return identifier

    async def _has_left(self, identifier: str) -> bool:
        """Whether an answer is among the sent mails; raises `Uncertain` if that cannot be looked up now."""
        try:
            async with ImapLink(self._settings.imap, self._credentials) as link:
                folder = await link.sent_folder()
                return folder in await link.folders() and await _has(link, folder, identifier)
        except Unavailable as error:
            raise _unsure(f"It is not known whether the answer left: {error.message}") from error

    async def _keep(self, identifier: str, mail: bytes) -> None:
        async with ImapLink(self._settings.imap, self._credentials) as link:
            folder = await link.sent_folder()
            # Some providers keep what leaves through them by themselves.
            if not await _has(link, folder, identifier):
                await link.keep(folder, mail)


def _unsure(message: str) -> Uncertain:
    return Uncertain(
        message,
        "Harken looks for it, and sends it again with the same Message-ID if it is not there",
        retry_after=LOOK_AGAIN_SECONDS,
    )


async def _has(link: ImapLink, folder: str, identifier: str) -> bool:
    await link.look_at(folder)
    return bool(await link.search("HEADER", "Message-ID", identifier))
