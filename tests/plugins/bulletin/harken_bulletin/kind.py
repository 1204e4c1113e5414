"""The declaration that the entry point names. It is imported by every command, so all else is imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken_bulletin.settings import read_settings

    read_settings(name, entry)


def _make(entry: SourceEntry) -> Source:
    from harken_bulletin.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken_bulletin.setup import BulletinSetup

    return BulletinSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.check import listen
    from harken_bulletin.source import make_source

    return listen(make_source(entry), context.seconds)


KIND: Final = SourceKind(
    name="bulletin",
    title="Notes",
    summary="A folder of notes: each file that appears is a message.",
    speakers=Speakers.PEOPLE,
    check_settings=_check_settings,
    make=_make,
    can_answer=lambda _name, _entry: True,
    setup=_setup,
    check=_check,
)
