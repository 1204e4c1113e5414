"""What a person configures of Outlook: `[sources.NAME]` with that kind, and how it is set up."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Final

from msgspec.structs import force_setattr

from harken.errors import UserError
from harken.sources.microsoft.settings import MAX_ADDRESSES, AccountSetup, GraphSettings, mail_address
from harken.sources.settings import SettingKey, WrongSetting

INBOX: Final = "inbox"


def _address(text: str) -> str:
    if not mail_address(text):
        raise WrongSetting("is not a mail address.")
    return mail_address(text)


class OutlookSettings(GraphSettings, frozen=True, kw_only=True):
    """Outlook of one account."""

    what = kind = "outlook"
    title = "Outlook"
    permissions = MappingProxyType(
        {
            "User.Read": "to know who signed in",
            "Mail.Read": "to read your mail",
            "Mail.Send": "to answer a mail",
        }
    )

    folders: Annotated[tuple[str, ...], SettingKey('A list of folders, such as ["inbox"].', noun="folder")] = (INBOX,)
    addresses: Annotated[
        tuple[str, ...],
        SettingKey(
            'A list of the account\'s mail addresses besides those that Microsoft tells, such as ["team@example.org"].',
            noun="mail address",
            read=_address,
        ),
    ] = ()
    trust_from: Annotated[bool, SettingKey("Believe every sender, without proof.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "folders", tuple(dict.fromkeys(self.folders)) or (INBOX,))
        force_setattr(self, "addresses", tuple(dict.fromkeys(self.addresses)))

    def check(self) -> None:
        """Refuse more addresses than an account can have."""
        super().check()
        if len(self.addresses) > MAX_ADDRESSES:
            raise UserError(f"{self.dotted('addresses')} is too long.", f"Name at most {MAX_ADDRESSES} addresses.")


read_settings: Final = OutlookSettings.read


class OutlookSetup(AccountSetup):
    """How Outlook is set up."""

    def __init__(self) -> None:
        super().__init__(OutlookSettings)
