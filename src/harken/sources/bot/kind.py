"""Bots of the Bot Framework, declared: people write to one in Teams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken.sources.bot.settings import read_settings

    read_settings(name, entry)


def _make(entry: SourceEntry) -> Source:
    from harken.sources.bot.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken.sources.bot.setup import BotSetup

    return BotSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.bot.setup import check

    return check(entry, context)


KIND: Final = SourceKind(
    name="bot",
    title="Bot",
    summary="A bot of the Bot Framework, to which people write in Teams.",
    speakers=Speakers.PEOPLE,
    check_settings=_check_settings,
    make=_make,
    can_answer=lambda _name, _entry: True,
    setup=_setup,
    check=_check,
)
