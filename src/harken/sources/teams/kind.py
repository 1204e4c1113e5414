"""Teams, declared: the chats of an account at Microsoft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup
    from harken.sources.sign_in import SourceSignIn


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken.sources.teams.settings import read_settings

    read_settings(name, entry)


def _make(entry: SourceEntry) -> Source:
    from harken.sources.teams.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken.sources.teams.setup import TeamsSetup

    return TeamsSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.teams.setup import check

    return check(entry, context)


def _sign_in(entry: SourceEntry) -> SourceSignIn:
    from harken.sources.microsoft.account import PersonSignIn, open_account
    from harken.sources.teams.settings import read_settings

    return PersonSignIn(open_account(read_settings(entry.name, entry.table), entry))


KIND: Final = SourceKind(
    name="teams",
    title="Teams",
    summary="The chats of an account in Microsoft Teams.",
    speakers=Speakers.PEOPLE,
    check_settings=_check_settings,
    make=_make,
    can_answer=lambda _name, _entry: True,
    setup=_setup,
    check=_check,
    sign_in=_sign_in,
    channel="teams",
)
