"""Trying Teams or Outlook: signed in as whom, one question of each kind that the daemon asks, and what was found.

The account is the daemon's own, so that what works here works there. Of what is found only numbers and times are
told, and nothing is stored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import anyio

from harken.cli.client import Result
from harken.cli.output import clock_time
from harken.cli.source_login import account_of
from harken.config.home import Home
from harken.config.load import load
from harken.daemon.account import Account
from harken.errors import HarkenError, Unavailable
from harken.sources.base import SourceState
from harken.sources.http import part
from harken.sources.microsoft.client import NEXT_LINK
from harken.sources.microsoft.notifications import with_notices
from harken.sources.microsoft.settings import TEAMS

LEAST_SECONDS: Final = 30.0  # one answer may take as long
PAGE: Final = 50
MAX_CHARS: Final = 200


def try_account(home: Home, name: str, seconds: float) -> Result:
    """Ask once, within some seconds; return how it went."""
    account = account_of(home, name)
    with_notices(account.settings, load(home, {}, os.environ).settings.hooks.public_url)
    return anyio.run(_try, account, max(seconds, LEAST_SECONDS))


async def _try(account: Account, seconds: float) -> Result:
    state, reason, found = SourceState.LISTENING, "", ""
    async with account.client:
        try:
            with anyio.fail_after(seconds):
                if await account.sign_in.look():
                    found = await (_chats(account) if account.settings.kind == TEAMS else _folders(account))
                    await account.sign_in.look()  # an Agent User is known after its first token
                else:
                    state, reason = SourceState.NEEDS_PERSON, _sentence(account.sign_in.action)
        except TimeoutError:
            state, reason = SourceState.RETRYING, "Microsoft does not answer in time."
        except HarkenError as exc:
            is_passing = isinstance(exc, Unavailable)
            state = SourceState.RETRYING if is_passing else SourceState.NEEDS_PERSON
            reason = " ".join(filter(None, (exc.message, _sentence(exc.hint))))
    return {
        "name": account.settings.name,
        "kind": account.settings.kind,
        "address": account.settings.address,
        "state": state.value,
        "reason": reason,
        "server": account.sign_in.title,
        "found": found,
        "messages": 0,
        "counts": {},
        "dropped": {},
        "too_long": 0,
        "last_message_at": None,
    }


async def _chats(account: Account) -> str:
    newest = "lastMessagePreview/createdDateTime"
    asked = {"$expand": "lastMessagePreview", "$orderby": f"{newest} desc", "$top": str(PAGE)}
    page = await account.client.get("/me/chats", asked, lane="chats")
    rows = _rows(page)
    if not rows:
        return "No chat is there."
    count = "1 chat" if len(rows) == 1 else f"{len(rows)} chats{' or more' if NEXT_LINK in page else ''}"
    return f"{count}, the last message {_when(rows[0].get('lastMessagePreview'))}."


async def _folders(account: Account) -> str:
    said: list[str] = []
    for folder in account.settings.folders:
        asked = {"$select": "createdDateTime", "$orderby": "receivedDateTime desc", "$top": "1"}
        page = await account.client.get(f"/me/mailFolders/{part(folder)}/messages", asked, lane="mailbox")
        rows = _rows(page)
        said.append(f"{folder}: the last mail {_when(rows[0])}" if rows else f"{folder}: no mail")
    return f"{', '.join(said)}."


def _rows(page: Mapping[str, object]) -> list[Mapping[str, object]]:
    value = page.get("value")
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _when(item: object) -> str:
    """Say when something was written, as far as the service says it in a way that can be read."""
    stamp = item.get("createdDateTime") if isinstance(item, Mapping) else None
    try:
        return clock_time(stamp[:MAX_CHARS] if isinstance(stamp, str) else None)
    except ValueError:
        return "-"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
