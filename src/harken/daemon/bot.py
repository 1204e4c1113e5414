"""From settings to a bot: its secret is looked up when it is needed.

Imported only when such a source is configured. Above is `sources.py`, and the command that tries a bot; below is the
source.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from harken.clock import Clock
from harken.config.home import Home
from harken.config.secrets import resolve
from harken.daemon.certificates import believed
from harken.daemon.entry import Entry
from harken.errors import NeedsPerson, UserError
from harken.sources.base import Source
from harken.sources.bot.settings import BotSettings, read_settings
from harken.sources.bot.source import BotSource


def make_source(entry: Entry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return make_bot_source(settings, entry.home, entry.clock, entry.environ)
    except (UserError, NeedsPerson) as exc:
        return entry.unready(exc, settings.address)


def make_bot_source(settings: BotSettings, home: Home, clock: Clock, environ: Mapping[str, str]) -> BotSource:
    """Return the source of these settings; raises `UserError` when certificates it needs are missing.

    A secret that is missing keeps nobody from writing to the bot: only answers wait for it.
    """
    secret = partial(resolve, settings.secret, home, environ)
    source = BotSource(settings, secret, clock, verify=believed(settings.ca, settings.name, home, environ))
    try:
        secret()
    except (UserError, NeedsPerson) as exc:
        source.waits(f"{exc.message} {exc.hint}")
    return source
