"""Setting up and trying Teams: what is said of polling, and one look at the list of chats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harken.sources.check import CheckContext, CheckReport
from harken.sources.microsoft.setup import AccountSetup
from harken.sources.source import SourceEntry
from harken.sources.teams.settings import TEAMS, read_settings

PAGE: Final = 50


class TeamsSetup(AccountSetup):
    """How Teams is set up."""

    def __init__(self) -> None:
        super().__init__(TEAMS)

    def warnings(self, entry: Mapping[str, object]) -> list[str]:
        """Say what Microsoft thinks of polling."""
        poll = entry.get("poll")
        seconds = poll if isinstance(poll, float) else TEAMS.poll_seconds
        said = (
            "Microsoft's terms let an app poll Teams for messages once a day, and it may slow down or stop one that "
            f"polls more often. Harken looks every {seconds:g} seconds at what is new only: use --poll to be slower."
        )
        return [said]


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Look at the list of chats once."""
    # On use: what signs in takes long to import.
    from harken.sources.microsoft.account import MicrosoftAccount
    from harken.sources.microsoft.check import check_account, moment_of, rows_of
    from harken.sources.microsoft.client import NEXT_LINK

    async def look(account: MicrosoftAccount) -> str:
        newest = "lastMessagePreview/createdDateTime"
        asked = {"$expand": "lastMessagePreview", "$orderby": f"{newest} desc", "$top": str(PAGE)}
        page = await account.client.get("/me/chats", asked, lane="chats")
        rows = rows_of(page)
        if not rows:
            return "No chat is there."
        count = "1 chat" if len(rows) == 1 else f"{len(rows)} chats{' or more' if NEXT_LINK in page else ''}"
        return f"{count}, the last message {moment_of(rows[0].get('lastMessagePreview'), entry.clock.now())}."

    return check_account(read_settings(entry.name, entry.table), entry, context, look)
