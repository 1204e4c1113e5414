"""Answers to mails, over SMTP; kept among the sent ones if asked.

SMTP does not tell whether a mail has left over a connection that was lost. So after such a try it is looked for among
the sent mails, where many providers keep what leaves through them, for some minutes; then it is sent again, with the
same Message-ID, by which most mail programs show it once. Above is the outbox, below are `smtp.py` and `link.py`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from email.policy import SMTP
from typing import Final

from harken.clock import Clock
from harken.errors import HarkenError, Refused, Unavailable, Uncertain
from harken.model import Outgoing
from harken.sources.mail.composing import answer_id, compose, recipients
from harken.sources.mail.link import ImapLink
from harken.sources.mail.settings import MailSettings
from harken.sources.mail.signing_in import Credentials
from harken.sources.mail.smtp import Letter, hand_over

LOOKED_FOR: Final = timedelta(minutes=5)  # after a try that may have worked, before it is sent again
LOOK_AGAIN_SECONDS: Final = 30.0


class MailSender:
    """Answers the mails of one account."""

    def __init__(self, settings: MailSettings, credentials: Credentials, clock: Clock) -> None:
        self._settings = settings
        self._credentials = credentials
        self._clock = clock

    async def send(self, reply: Outgoing) -> str:
        """Answer a mail; return the answer's own id."""
        server = self._settings.smtp
        if server is None:
            raise Refused("This account cannot be answered.", f"set sources.{self._settings.name}.smtp_host")
        mail = compose(reply, self._settings, self._clock.now()).as_bytes(policy=SMTP)
        identifier = answer_id(self._settings, reply.key)
        if reply.tried_at is not None:
            if await self._has_left(identifier):
                return identifier
            if self._clock.now() - reply.tried_at < LOOKED_FOR:
                raise _unsure("It is not known yet whether the answer left.")
        letter = Letter(sender=self._settings.address, recipients=recipients(reply.to), mail=mail)
        await hand_over(server, self._credentials, letter, reply.hand_over)
        if self._settings.save_sent:
            with suppress(HarkenError):  # it has left, whatever goes wrong now
                await self._keep(identifier, mail)
        return identifier

    async def _has_left(self, identifier: str) -> bool:
        """Whether an answer is among the sent mails; raises `Uncertain` if nobody can look there now."""
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
        "it is looked for again, and sent again with the same Message-ID if it is not there",
        retry_after=LOOK_AGAIN_SECONDS,
    )


async def _has(link: ImapLink, folder: str, identifier: str) -> bool:
    await link.look_at(folder)
    return bool(await link.search("HEADER", "Message-ID", identifier))
