"""Outlook, declared: the mail of an account at Microsoft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup
    from harken.sources.sign_in import SourceSignIn


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken.sources.outlook.settings import read_settings

    read_settings(name, entry)


def _make(entry: SourceEntry) -> Source:
    from harken.sources.outlook.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken.sources.outlook.setup import OutlookSetup

    return OutlookSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.outlook.setup import check

    return check(entry, context)


def _sign_in(entry: SourceEntry) -> SourceSignIn:
    from harken.sources.microsoft.account import PersonSignIn, open_account
    from harken.sources.outlook.settings import read_settings

    return PersonSignIn(open_account(read_settings(entry.name, entry.table), entry))


KIND: Final = SourceKind(
    name="outlook",
    title="Outlook",
    summary="The mail of an account in Outlook or Exchange Online.",
    speakers=Speakers.PEOPLE,
    check_settings=_check_settings,
    make=_make,
    can_answer=lambda _name, _entry: True,
    setup=_setup,
    check=_check,
    sign_in=_sign_in,
    channel="email",
)
