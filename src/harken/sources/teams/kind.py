"""Teams, declared: the chats of an account at Microsoft."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="teams",
    title="Teams",
    summary="The chats of an account in Microsoft Teams.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("harken.sources.teams.settings:read_settings"),
    make=LazyPart("harken.sources.teams.source:make_source"),
    setup=LazyPart("harken.sources.teams.settings:TeamsSetup"),
    check=LazyPart("harken.sources.teams.source:check"),
    sign_in=LazyPart("harken.sources.teams.source:sign_in"),
    channel="teams",
)
