"""Any mail account, declared: over IMAP, and answered over SMTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken.sources.imap.settings import read_settings

    read_settings(name, entry)


def _can_answer(name: str, entry: Mapping[str, object]) -> bool:
    """Whether it is said how mail leaves."""
    from harken.sources.imap.settings import read_settings

    return read_settings(name, entry).can_answer


def _make(entry: SourceEntry) -> Source:
    from harken.sources.imap.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken.sources.imap.setup import ImapSetup

    return ImapSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.imap.check import check

    return check(entry, context)


KIND: Final = SourceKind(
    name="imap",
    title="Mail",
    summary="Any mail account, over IMAP; answered over SMTP.",
    speakers=Speakers.PEOPLE,
    check_settings=_check_settings,
    make=_make,
    can_answer=_can_answer,
    setup=_setup,
    check=_check,
    channel="email",
)
