"""Trying an account at Microsoft: signed in as whom, one question of the kind that the daemon asks, and what was found.

The account is the daemon's own, so that what works here works there. Of what is found only numbers and times are
told, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from harken.sources.check import CheckContext, CheckReport, ask_once, sentence
from harken.sources.microsoft.account import MicrosoftAccount, open_account
from harken.sources.microsoft.notifications import with_notices
from harken.sources.microsoft.settings import GraphSettings
from harken.sources.source import SourceEntry, SourceState

MAX_CHARS: Final = 200


def check_account(
    settings: GraphSettings,
    entry: SourceEntry,
    context: CheckContext,
    look: Callable[[MicrosoftAccount], Awaitable[str]],
) -> CheckReport:
    """Ask once, within some seconds."""
    with_notices(settings, entry.public_url)
    account = open_account(settings, entry)

    async def ask() -> CheckReport:
        report = CheckReport(state=SourceState.LISTENING, address=settings.address, found="")
        if not await account.sign_in.look():
            return replace(report, state=SourceState.NEEDS_PERSON, reason=sentence(account.sign_in.action))
        found = await look(account)
        await account.sign_in.look()  # an Agent User is known after its first token
        return replace(report, found=found)

    async def asked() -> CheckReport:
        async with account.client:
            return await ask()

    report = ask_once(settings.address, asked, context.seconds, late="Microsoft does not answer in time.")
    return replace(report, server=account.sign_in.title)


def rows_of(page: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the rows of a page."""
    value = page.get("value")
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def moment_of(item: object, now: datetime) -> str:
    """Say when something was written, today by the hour only, as far as the service says it in a way to be read."""
    stamp = item.get("createdDateTime") if isinstance(item, Mapping) else None
    try:
        moment = datetime.fromisoformat(str(stamp)[:MAX_CHARS]).astimezone()
    except ValueError:
        return "-"
    today = now.astimezone()
    if moment.date() == today.date():
        return f"{moment:%H:%M}"
    return f"{moment:%m-%d %H:%M}" if moment.year == today.year else f"{moment:%Y-%m-%d %H:%M}"
