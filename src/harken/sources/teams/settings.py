"""What a person configures of Teams: `[sources.NAME]` with that kind, and how it is set up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from msgspec.structs import force_setattr

from harken.sources.microsoft.settings import POLL, AccountSetup, GraphSettings
from harken.sources.settings import SettingKey, WrongSetting

POLL_SECONDS: Final = 8.0
PLACEHOLDER: Final = "An agent is working on this."  # said by an Agent User: it has a name of its own
MAX_PLACEHOLDER_CHARS: Final = 500


def _sentence(text: str) -> str:
    if len(text) > MAX_PLACEHOLDER_CHARS or not text.isprintable():
        raise WrongSetting("is not a text of one line.")
    return text.strip()


class TeamsSettings(GraphSettings, frozen=True, kw_only=True):
    """Teams of one account."""

    what = kind = "teams"
    title = "Teams"
    permissions = MappingProxyType(
        {
            "User.Read": "to know who signed in",
            "Chat.ReadWrite": "to read your chats, and to change what Harken itself wrote there",
            "ChatMessage.Send": "to answer in a chat",
        }
    )

    poll: Annotated[float, POLL] = POLL_SECONDS
    watched: Annotated[
        tuple[str, ...], SettingKey('A list of the only chats, by id or topic, such as ["Release"].')
    ] = ()
    muted: Annotated[tuple[str, ...], SettingKey('A list of chats or people to leave out, such as ["Lunch"].')] = ()
    placeholder: Annotated[
        str | None,
        SettingKey(
            "What a chat is told while an agent works; empty: nothing.",
            wanted=f'at most {MAX_PLACEHOLDER_CHARS} characters, or "" for none',
            read=_sentence,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # In a person's name nothing is said that nobody asked for.
        usual = PLACEHOLDER if self.is_agent else ""
        force_setattr(self, "placeholder", usual if self.placeholder is None else self.placeholder)


read_settings: Final = TeamsSettings.read


class TeamsSetup(AccountSetup):
    """How Teams is set up."""

    def __init__(self) -> None:
        super().__init__(TeamsSettings)

    def warnings(self, entry: Mapping[str, object]) -> list[str]:
        """Say what Microsoft thinks of polling."""
        poll = entry.get("poll")
        seconds = poll if isinstance(poll, float) else POLL_SECONDS
        said = (
            "Microsoft's terms let an app poll Teams for messages once a day, and it may slow down or stop one that "
            f"polls more often. Harken looks every {seconds:g} seconds at what is new only: use --poll to be slower."
        )
        return [said]
