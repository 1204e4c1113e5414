"""One mail leaves over SMTP. Foreign errors end here, cut by what is to be done next.

A server that says no for now is asked again, one that says no is not, a refused sign-in waits for a person. Until the
mail itself is handed over it surely has not left; a connection that is lost after that leaves it open: nothing in SMTP
tells. Above is `sender.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiosmtplib
import anyio
import anyio.to_thread

from harken.errors import HarkenError, NeedsPerson, Refused, Unavailable, Uncertain
from harken.sources.mail.settings import STARTTLS, TLS, Server
from harken.sources.mail.signing_in import Credentials

CALL_SECONDS: Final = 60.0
SEND_SECONDS: Final = 300.0
QUIT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 30.0
MOST_SAID: Final = 200

_PASSING: Final = 400
_LASTING: Final = 500


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
    secret = await anyio.to_thread.run_sync(credentials.secret)
    try:
        await client.connect()
        if credentials.is_token:
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
    except aiosmtplib.SMTPNotSupported as exc:
        raise NeedsPerson(
            f"{server.host} offers no way to sign in that is known here.",
            "check smtp_host, smtp_port and smtp_security",
            action=f"check smtp_security of the source {credentials.source}",
        ) from exc
    except (aiosmtplib.SMTPException, OSError, ValueError) as exc:
        raise Unavailable(f"{server.host} cannot be reached.", "it is tried again") from exc


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
    text = f"{server.host} says {code}: {_said(said)}"
    if code < _LASTING:
        return Unavailable(text, "it is tried again", retry_after=AGAIN_SECONDS)
    return Refused(text, "answer it in your mail program")


def _said(text: str) -> str:
    line = " ".join(text.split())[:MOST_SAID]
    return "".join(char for char in line if char.isprintable()) or "without a word"
