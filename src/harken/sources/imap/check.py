"""Trying a mail account: its folders, how much is in them, who vouches for senders, a sign-in where answers leave.

The connection is the daemon's own kind, with secrets from where the daemon looks for them, so that what works here
works there. Of what is found only names and numbers are told, and nothing is stored or changed. Who vouches is also
looked for when an account is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from harken.errors import HarkenError
from harken.sources.check import CheckContext, CheckReport, ask_once
from harken.sources.imap.connection import Credentials, ImapLink
from harken.sources.imap.messages import checks_of, has_word_of, proposed
from harken.sources.imap.sender import try_sign_in
from harken.sources.imap.settings import ImapSettings, read_settings
from harken.sources.imap.source import credentials_of
from harken.sources.source import SourceEntry, SourceState

MOST_FOLDERS: Final = 20
NEWEST: Final = 20  # mails that are asked who vouches for their senders
VOUCHER_SECONDS: Final = 10.0


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Connect and ask once, within some seconds."""
    settings = read_settings(entry.name, entry.table)

    async def ask() -> CheckReport:
        who = credentials_of(settings, entry)
        found = f"{await _look(settings, who)} {await _answers(settings, who)}"
        return CheckReport(state=SourceState.LISTENING, address=settings.place, found=found)

    late = f"{settings.imap.host} does not answer in time."
    return ask_once(settings.place, ask, context.seconds, late=late)


def find_voucher(settings: ImapSettings, entry: SourceEntry) -> str:
    """Return who vouches for senders in most of the newest mails; empty if nobody does or nobody can look now."""
    try:
        who = credentials_of(settings, entry)
        who.secret()  # it is often put in its place later, and nobody need connect before
        return anyio.run(_voucher, settings, who)
    except (HarkenError, TimeoutError):
        return ""


async def _voucher(settings: ImapSettings, who: Credentials) -> str:
    with anyio.fail_after(VOUCHER_SECONDS):
        async with ImapLink(settings.imap, who) as link:
            return proposed(await _checks(settings, link))


async def _look(settings: ImapSettings, who: Credentials) -> str:
    async with ImapLink(settings.imap, who) as link:
        counted = [f"{folder} {(await link.look_at(folder)).count:,}" for folder in settings.folders]
        every = await link.folders()
        told = "told at once" if link.can_push else f"asked every {settings.poll:g} s"
        senders = senders_line(settings, await _checks(settings, link))
    names = ", ".join(every[:MOST_FOLDERS])
    more = f" and {len(every) - MOST_FOLDERS} more" if len(every) > MOST_FOLDERS else ""
    return f"Mails: {', '.join(counted)}; {told}. Folders: {names}{more}. {senders}"


async def _checks(settings: ImapSettings, link: ImapLink) -> list[list[str]]:
    """Return what was found about the senders of the newest mails."""
    await link.look_at(settings.folders[0])
    newest = (await link.search("ALL"))[-NEWEST:]
    heads = await link.heads(newest) if newest else {}
    return [checks_of(heads[uid]) for uid in sorted(heads)]


def senders_line(settings: ImapSettings, checks: Sequence[Sequence[str]]) -> str:
    """Return how far senders can be believed, told what was found about the senders of some mails."""
    name = settings.authserv_id
    if settings.trust_from:
        return "Warning: every sender is believed without proof, because trust_from is set."
    if name and checks and not any(has_word_of(results, name) for results in checks):
        return f"Senders are unverified: {name} is in none of the newest {len(checks)} mails, check authserv_id."
    if name:
        return f"{name} vouches for senders."
    if found := proposed(checks):
        return f"{found} vouches for senders: set authserv_id to it, if it is your provider's."
    return "Senders are unverified: nobody vouches for them in most of the newest mails."


async def _answers(settings: ImapSettings, who: Credentials) -> str:
    if settings.smtp is None:
        return "It cannot be answered: smtp_host is not set."
    await try_sign_in(settings.smtp, who)
    without = "" if settings.smtp.has_auth else ", without a sign-in"
    plain = ", unencrypted" if settings.smtp.is_readable_on_the_way else ""
    return f"Answers leave through {settings.smtp.host}{without}{plain}."
