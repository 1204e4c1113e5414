"""Bots of the Bot Framework, declared: people write to one in Teams."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="bot",
    title="Bot",
    summary="A bot that people write to in Teams, made with the Bot Framework.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("harken.sources.bot.settings:read_settings"),
    make=LazyPart("harken.sources.bot.source:make_source"),
    setup=LazyPart("harken.sources.bot.settings:BotSetup"),
    check=LazyPart("harken.sources.bot.source:check"),
)
