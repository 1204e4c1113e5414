"""From settings to Teams and Outlook: a source over an account, and the sender of its replies.

Imported only when such a source is configured: what signs in takes long to import. What waits for a sign-in is
`signed_in.py`, what an account is `account.py`. Above is `sources.py`; below are the sources.
"""

from __future__ import annotations

from collections.abc import Sequence

from harken.clock import Clock
from harken.daemon.account import Account, open_account
from harken.daemon.entry import Entry
from harken.daemon.signed_in import SignedInSource
from harken.errors import NeedsPerson, UserError
from harken.sources.base import Source
from harken.sources.microsoft.notifications import ChangeTopic, Subscriptions, with_notices
from harken.sources.microsoft.sent import SentMessages
from harken.sources.microsoft.settings import TEAMS, read_settings
from harken.sources.outlook.sender import OutlookSender
from harken.sources.outlook.source import OutlookSource
from harken.sources.teams.sender import TeamsSender
from harken.sources.teams.source import TeamsSource


def make_source(entry: Entry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = with_notices(read_settings(entry.name, entry.table), entry.public_url)
    try:
        account = open_account(settings, entry.home, entry.clock, entry.environ)
    except (UserError, NeedsPerson) as exc:
        # What is kept elsewhere is missing: the certificate of an Agent User.
        return entry.unready(exc, settings.address)
    return _teams(account, entry.clock) if settings.kind == TEAMS else _outlook(account, entry.clock)


def _teams(account: Account, clock: Clock) -> SignedInSource:
    settings, client = account.settings, account.client
    sent, me = SentMessages(), account.sign_in.me
    source = TeamsSource(settings, client, clock, sent, me, since=account.sign_in.since)
    sender = TeamsSender(settings, client, sent, me, clock)
    holder = sender if settings.placeholder else None
    notices = _notices(account, clock, source.topics())
    return SignedInSource(
        source, account.sign_in, client, clock, sender=sender, sent=sent, holder=holder, notices=notices
    )


def _outlook(account: Account, clock: Clock) -> SignedInSource:
    settings, client = account.settings, account.client
    sent = SentMessages()
    sign_in = account.sign_in
    source = OutlookSource(
        settings, client, clock, sent, sign_in.me, upn=lambda: sign_in.person.upn, since=sign_in.since
    )
    sender = OutlookSender(settings, client, sent, clock)
    notices = _notices(account, clock, source.topics())
    return SignedInSource(source, account.sign_in, client, clock, sender=sender, sent=sent, notices=notices)


def _notices(account: Account, clock: Clock, topics: Sequence[ChangeTopic]) -> Subscriptions | None:
    if not account.settings.notice_url:
        return None
    return Subscriptions(account.settings, account.client, clock, topics, account.sign_in.me)
