"""Setting up and trying Outlook: one look into each folder."""

from __future__ import annotations

from harken.sources.check import CheckContext, CheckReport
from harken.sources.microsoft.setup import AccountSetup
from harken.sources.outlook.settings import OUTLOOK, read_settings
from harken.sources.source import SourceEntry


class OutlookSetup(AccountSetup):
    """How Outlook is set up."""

    def __init__(self) -> None:
        super().__init__(OUTLOOK)


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Look into each folder once."""
    # On use: what signs in takes long to import.
    from harken.sources.http import part
    from harken.sources.microsoft.account import MicrosoftAccount
    from harken.sources.microsoft.check import check_account, moment_of, rows_of

    async def look(account: MicrosoftAccount) -> str:
        said: list[str] = []
        for folder in account.settings.folders:
            asked = {"$select": "createdDateTime", "$orderby": "receivedDateTime desc", "$top": "1"}
            page = await account.client.get(f"/me/mailFolders/{part(folder)}/messages", asked, lane="mailbox")
            rows = rows_of(page)
            last = f"the last mail {moment_of(rows[0], entry.clock.now())}" if rows else "no mail"
            said.append(f"{folder}: {last}")
        return f"{', '.join(said)}."

    return check_account(read_settings(entry.name, entry.table), entry, context, look)
