"""From settings to Teams and Outlook: a source over an account, and the sender of its replies.

Imported only when such a source is configured: what signs in takes long to import. What waits for a sign-in is
`signed_in.py`, what an account is `account.py`. Above is `sources.py`; below are the sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from harken.clock import Clock
from harken.config.home import Home
from harken.daemon.account import Account, open_account
from harken.daemon.signed_in import SignedInSource
from harken.sources.graph.outlook.sender import OutlookSender
from harken.sources.graph.outlook.source import OutlookSource
from harken.sources.graph.sent import Sent
from harken.sources.graph.settings import TEAMS, GraphSettings
from harken.sources.graph.teams.sender import TeamsSender
from harken.sources.graph.teams.source import TeamsSource


def make_graph_source(settings: GraphSettings, home: Home, clock: Clock, environ: Mapping[str, str]) -> SignedInSource:
    """Return the source of these settings; raises `UserError` when something it needs is kept elsewhere and missing."""
    account = open_account(settings, home, clock, environ)
    return _teams(account, clock) if settings.kind == TEAMS else _outlook(account, clock)


def _teams(account: Account, clock: Clock) -> SignedInSource:
    settings, client = account.settings, account.client
    sent, me = Sent(), account.sign_in.me
    source = TeamsSource(settings, client, clock, sent, me)
    sender = TeamsSender(settings, client, sent, me)
    return SignedInSource(source, account.sign_in, client, clock, sender=sender)


def _outlook(account: Account, clock: Clock) -> SignedInSource:
    settings, client = account.settings, account.client
    source = OutlookSource(settings, client, clock)
    return SignedInSource(source, account.sign_in, client, clock, sender=OutlookSender(settings, client))
