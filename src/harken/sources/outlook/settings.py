"""What a person configures of Outlook: `[sources.NAME]` with that kind, and how it is set up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from harken.sources.microsoft.settings import AccountKeys, AccountKind, AccountSetup, GraphSettings, read_account
from harken.sources.settings import setting


class OutlookKeys(AccountKeys, frozen=True, kw_only=True):
    """The keys of Outlook."""

    folders: Annotated[tuple[str, ...], setting("The folders to read.", example='["inbox"]')] = ("inbox",)
    addresses: Annotated[
        tuple[str, ...],
        setting("Addresses of the account besides those that the service tells.", example='["a@b.org"]'),
    ] = ()
    trust_from: Annotated[bool, setting("Believe every sender, without proof.")] = False


OUTLOOK: Final = AccountKind(
    name="outlook",
    title="Outlook",
    keys=OutlookKeys,
    poll_seconds=60.0,
    permissions=MappingProxyType(
        {
            "User.Read": "to know who signed in",
            "Mail.Read": "to read your mail",
            "Mail.Send": "to answer a mail",
        }
    ),
)


def read_settings(name: str, entry: Mapping[str, object]) -> GraphSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    return read_account(OUTLOOK, name, entry)


class OutlookSetup(AccountSetup):
    """How Outlook is set up."""

    def __init__(self) -> None:
        super().__init__(OUTLOOK)
