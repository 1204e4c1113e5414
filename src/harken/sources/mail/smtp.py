"""One mail leaves over SMTP. Foreign errors end here, cut by what is to be done next.

A server that says no for now is asked again, one that says no is not, a refused sign-in waits for a person. Until the
mail itself is handed over it surely has not left; a connection that is lost after that leaves it open: nothing in SMTP
tells. Above is `sender.py`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiosmtplib
import anyio
import anyio.to_thread

from harken.errors import HarkenError, NeedsPerson, Refused, Unavailable, Uncertain
from harken.sources.mail.settings import LOGIN, NONE, STARTTLS, TLS, Server
from harken.sources.mail.signing_in import Credentials

CALL_SECONDS: Final = 60.0
SEND_SECONDS: Final = 300.0
QUIT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 30.0
MOST_SAID: Final = 200

_LEAST: Final = 200
_PASSING: Final = 400
_LASTING: Final = 500
_SIGN_IN_FIRST: Final = 530


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A mail in its envelope."""

    sender: str
    recipients: Sequence[str]
    mail: bytes


async def hand_over(
    server: Server, credentials: Credentials, letter: Letter, note: Callable[[], Awaitable[None]]
) -> None:
    """Sign in and hand a mail over, with `note` right before it may leave.

    Raises `Unavailable`, `NeedsPerson` or `Refused` if it surely has not left, `Uncertain` if it may have.
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


async def try_sign_in(server: Server, credentials: Credentials) -> None:
    """Sign in and leave; raises as handing over does."""
    client = _client(server, credentials)
    try:
        with _in_time(server, CALL_SECONDS):
            await _sign_in(client, server, credentials)
    finally:
        client.close()


def _client(server: Server, credentials: Credentials) -> aiosmtplib.SMTP:
    return aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.security == TLS,
        start_tls=server.security == STARTTLS,
        tls_context=credentials.context(),
        timeout=CALL_SECONDS,
        local_hostname="localhost",  # the name of this machine is nobody's business
    )


async def _sign_in(client: aiosmtplib.SMTP, server: Server, credentials: Credentials) -> None:
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
            raise Unavailable(f"{server.host} does not sign in now: {said}", "it is tried again") from exc
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


def _unreached(server: Server, exc: OSError | ValueError) -> Unavailable:
    """Return why nobody was spoken to, as precisely as the library lets one know."""
    cause = exc.__cause__ if isinstance(exc, aiosmtplib.SMTPConnectError) else exc
    again = "it is tried again"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unavailable(
            f"The certificate of {server.host} is not believed: {cause.verify_message}.", "name its authority with ca"
        )
    if isinstance(cause, ssl.SSLError):
        return Unavailable(f"{server.host} answers, and not with TLS.", "check smtp_port and smtp_security")
    if isinstance(exc, TimeoutError):
        return Unavailable(f"{server.host} does not answer in time.", again)
    if isinstance(exc, aiosmtplib.SMTPConnectError) and isinstance(cause, aiosmtplib.SMTPServerDisconnected):
        return Unavailable(f"{server.host} ended the connection without a word.", again)
    if isinstance(exc, aiosmtplib.SMTPServerDisconnected):
        return Unavailable(f"The connection to {server.host} was lost.", again)
    reason = _reason(cause) if isinstance(cause, OSError) else ""
    return Unavailable(f"{server.host} cannot be reached{f': {reason}' if reason else ''}.", again)


def _reason(error: OSError) -> str:
    """Return the system's word for what went wrong; asyncio puts its own before it."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or ""


def _not_offered(client: aiosmtplib.SMTP, server: Server, source: str) -> NeedsPerson:
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


async def _announce(client: aiosmtplib.SMTP, server: Server, credentials: Credentials, letter: Letter) -> None:
    """Sign in and say from whom and to whom a mail comes: whatever goes wrong here, it has not left."""
    with _in_time(server, SEND_SECONDS):
        await _sign_in(client, server, credentials)
        try:
            size = [f"size={len(letter.mail)}"] if client.supports_extension("size") else []
            await client.mail(letter.sender, options=size)
            await _name_recipients(client, server, letter.recipients)
        except aiosmtplib.SMTPResponseException as exc:
            raise _answer(server, exc.code, exc.message) from exc
        except (aiosmtplib.SMTPNotSupported, UnicodeError) as exc:
            raise Refused(f"{server.host} cannot carry this mail.", "answer it in your mail program") from exc
        except (aiosmtplib.SMTPException, OSError, ValueError) as exc:
            raise Unavailable(f"The connection to {server.host} was lost.", "it is tried again") from exc


async def _name_recipients(client: aiosmtplib.SMTP, server: Server, recipients: Sequence[str]) -> None:
    """Name everybody; raises if the server takes nobody."""
    refused: list[aiosmtplib.SMTPRecipientRefused] = []
    for recipient in recipients:
        try:
            await client.rcpt(recipient)
        except aiosmtplib.SMTPRecipientRefused as exc:
            refused.append(exc)
    if len(refused) == len(recipients):
        raise _answer(server, refused[0].code, refused[0].message) from refused[0]


async def _send(client: aiosmtplib.SMTP, server: Server, mail: bytes) -> None:
    try:
        with anyio.fail_after(SEND_SECONDS):
            await client.data(mail)
    except (aiosmtplib.SMTPException, OSError) as exc:
        if isinstance(exc, aiosmtplib.SMTPResponseException) and exc.code >= _PASSING:
            raise _answer(server, exc.code, exc.message) from exc
        raise Uncertain(
            f"The connection to {server.host} was lost while the answer was handed over; it may have left.",
            "it is looked for among the sent mails, and sent again if it is not there",
            retry_after=AGAIN_SECONDS,
        ) from exc


@contextmanager
def _in_time(server: Server, seconds: float) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as exc:
        raise Unavailable(f"{server.host} does not answer in time.", "it is tried again") from exc


def _answer(server: Server, code: int, said: str) -> HarkenError:
    if code == _SIGN_IN_FIRST and not server.has_auth:
        return NeedsPerson(
            f"{server.host} wants a sign-in: {code} {_said(said)}",
            f'set smtp_auth = "{LOGIN}", or take it out',
            action="take smtp_auth out of the source",
        )
    if code < _LEAST:
        return Unavailable(f"{server.host} said something that is not SMTP: {_said(said)}", "check smtp_port")
    text = f"{server.host} says {code}: {_said(said)}"
    if code < _LASTING:
        return Unavailable(text, "it is tried again", retry_after=AGAIN_SECONDS)
    return Refused(text, "answer it in your mail program")


def _said(text: str) -> str:
    line = " ".join(text.split())[:MOST_SAID]
    return "".join(char for char in line if char.isprintable()) or "without a word"
