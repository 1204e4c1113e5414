"""Outlook, declared: the mail of an account at Microsoft."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="outlook",
    title="Outlook",
    summary="The mail of an account in Outlook or Exchange Online.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("harken.sources.outlook.settings:read_settings"),
    make=LazyPart("harken.sources.outlook.source:make_source"),
    setup=LazyPart("harken.sources.outlook.settings:OutlookSetup"),
    check=LazyPart("harken.sources.outlook.source:check"),
    sign_in=LazyPart("harken.sources.outlook.source:sign_in"),
    channel="email",
)
