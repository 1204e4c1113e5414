"""A bot as a source: one door, no feeds, and the sender of its replies.

It opens nothing until something is posted or answered. Above is the daemon, which serves the door and closes this.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

from harken.clock import Clock
from harken.sources.base import Feed, SourceHealth
from harken.sources.bot.door import BotDoor, BotKeys
from harken.sources.bot.sender import AppTokens, BotSender
from harken.sources.bot.settings import KIND, BotSettings
from harken.sources.bot.standing import BotStanding


class BotSource:
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
        self.name = settings.name
        self.keys = BotKeys(settings.openid_url, clock, verify=verify)
        self.tokens = AppTokens(settings, secret, clock, verify=verify)
        self._standing = BotStanding(clock)
        self.sender = BotSender(settings, self.tokens, clock, standing=self._standing, verify=verify)
        self._door = BotDoor(settings, self.keys, self._standing, clock)

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return KIND

    @property
    def address(self) -> str:
        """Where it is posted to."""
        return self.settings.address

    def feeds(self) -> Sequence[Feed]:
        """Return nothing: what is new is posted, not fetched."""
        return ()

    def doors(self) -> tuple[BotDoor, ...]:
        """Return its only door."""
        return (self._door,)

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return self._standing.health()

    def waits(self, reason: str) -> None:
        """Take note of why replies wait for a person."""
        self._standing.waits(reason)

    async def aclose(self) -> None:
        """Close its connections."""
        await self.keys.aclose()
        await self.tokens.aclose()
