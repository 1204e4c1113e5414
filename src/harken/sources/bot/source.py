"""A bot as a source: one door, no feeds, the sender of its replies, and how it is doing.

It opens nothing until something is posted or answered. Above is the daemon, which serves the door and closes this.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from harken.clock import Clock
from harken.errors import NeedsPerson, UserError
from harken.sources.bot.door import BotDoor, BotHealth, BotKeys
from harken.sources.bot.sender import AppTokens, BotSender
from harken.sources.bot.settings import KIND, BotSettings, messaging_endpoint, read_settings
from harken.sources.check import CheckContext, CheckReport, ask_once
from harken.sources.source import NamedSource, Source, SourceEntry, SourceHealth, SourceState


class BotSource(NamedSource):
    """One bot. `secret` looks its secret up."""

    def __init__(
        self,
        settings: BotSettings,
        secret: Callable[[], str],
        clock: Clock,
        *,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(settings.name, KIND, settings.address)
        self.settings = settings
        self.keys = BotKeys(settings.openid_url, clock, verify=verify)
        self.tokens = AppTokens(settings, secret, clock, verify=verify)
        self._health = BotHealth(clock)
        self._sender = BotSender(settings, self.tokens, clock, health=self._health, verify=verify)
        self._door = BotDoor(settings, self.keys, self._health, clock)

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

    Without its secret the bot still gets messages: only answers wait for it.
    """
    secret = partial(entry.secret, settings.secret)
    source = BotSource(settings, secret, entry.clock, verify=entry.certificates(settings.ca))
    try:
        secret()
    except (UserError, NeedsPerson) as exc:
        source.waits(f"{exc.message} {exc.hint}")
    return source


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Ask for a token and for the keys, once, within some seconds."""
    settings = read_settings(entry.name, entry.table)

    async def ask() -> CheckReport:
        bot = make_bot(settings, entry)
        try:
            keys = await bot.keys.count()
            await bot.tokens.token()
        finally:
            await bot.aclose()
        count = "1 key" if keys == 1 else f"{keys} keys"
        endpoint = messaging_endpoint(entry.public_url)
        posted = (
            f"The messaging endpoint is {endpoint}."
            if endpoint
            else "Set hooks.public_url, so that it can be posted to."
        )
        found = f"Microsoft gives the bot a token, and {count} to check posts with. {posted}"
        return CheckReport(state=SourceState.LISTENING, address=settings.address, found=found)

    return ask_once(settings.address, ask, context.seconds, late="Microsoft does not answer in time.")
