"""The declaration that the entry point names. Every command imports it, so it names its parts and imports none."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="bulletin",
    title="Notes",
    summary="A folder of notes: each file that appears is a message.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("harken_bulletin.settings:read_settings"),
    make=LazyPart("harken_bulletin.source:make_source"),
    setup=LazyPart("harken_bulletin.setup:BulletinSetup"),
    check=LazyPart("harken_bulletin.source:check"),
)
