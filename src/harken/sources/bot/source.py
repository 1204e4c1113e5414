"""A bot as a source: one door, no feeds, and the sender of its replies.

It opens nothing until something is posted or answered. Above is the daemon, which serves the door and closes this.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from harken.clock import Clock
from harken.errors import NeedsPerson, UserError
from harken.sources.bot.door import BotDoor, BotKeys
from harken.sources.bot.health import BotHealth
from harken.sources.bot.sender import AppTokens, BotSender
from harken.sources.bot.settings import KIND, BotSettings, read_settings
from harken.sources.source import Source, SourceEntry, SourceHealth


class BotSource(Source):
    """One bot. `secret` looks its secret up."""

    def __init__(
        self,
        settings: BotSettings,
        secret: Callable[[], str],
        clock: Clock,
        *,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = settings
        self.keys = BotKeys(settings.openid_url, clock, verify=verify)
        self.tokens = AppTokens(settings, secret, clock, verify=verify)
        self._health = BotHealth(clock)
        self._sender = BotSender(settings, self.tokens, clock, health=self._health, verify=verify)
        self._door = BotDoor(settings, self.keys, self._health, clock)

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.settings.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return KIND

    @property
    def address(self) -> str:
        """Where it is posted to."""
        return self.settings.address

    @property
    def sender(self) -> BotSender:
        """How people are answered."""
        return self._sender

    def doors(self) -> tuple[BotDoor, ...]:
        """Return its only door."""
        return (self._door,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._health.read()

    def waits(self, reason: str) -> None:
        """Take note of why replies wait for a person."""
        self._health.waits(reason)

    async def aclose(self) -> None:
        """Close its connections."""
        await self.keys.aclose()
        await self.tokens.aclose()


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return make_bot(settings, entry)
    except (UserError, NeedsPerson) as exc:
        return entry.unready(exc, settings.address)


def make_bot(settings: BotSettings, entry: SourceEntry) -> BotSource:
    """Return the source of these settings; raises `UserError` when certificates it needs are missing.

    A secret that is missing keeps nobody from writing to the bot: only answers wait for it.
    """
    secret = partial(entry.secret, settings.secret)
    source = BotSource(settings, secret, entry.clock, verify=entry.certificates(settings.ca))
    try:
        secret()
    except (UserError, NeedsPerson) as exc:
        source.waits(f"{exc.message} {exc.hint}")
    return source
