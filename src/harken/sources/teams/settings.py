"""What a person configures of Teams: `[sources.NAME]` with that kind, and how it is set up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from harken.sources.microsoft.settings import AccountKeys, AccountKind, AccountSetup, GraphSettings, read_account
from harken.sources.settings import setting


class TeamsKeys(AccountKeys, frozen=True, kw_only=True):
    """The keys of Teams."""

    watched: Annotated[
        tuple[str, ...], setting("Only these chats, by id or topic; else all.", example='["Release"]')
    ] = ()
    muted: Annotated[tuple[str, ...], setting("Not these chats or people.", example='["Lunch"]')] = ()
    placeholder: Annotated[str, setting("What a chat is told while an agent works; empty: nothing.")] = ""


TEAMS: Final = AccountKind(
    name="teams",
    title="Teams",
    keys=TeamsKeys,
    poll_seconds=8.0,
    permissions=MappingProxyType(
        {
            "User.Read": "to know who signed in",
            "Chat.ReadWrite": "to read your chats, and to change what Harken itself wrote there",
            "ChatMessage.Send": "to answer in a chat",
        }
    ),
)


def read_settings(name: str, entry: Mapping[str, object]) -> GraphSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    return read_account(TEAMS, name, entry)


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
