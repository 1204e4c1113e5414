"""Trying a source: the same connection as the daemon's, for a few seconds, with nothing stored.

The secrets are looked for where a daemon in the background looks for them, so that what works here works there.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import aclosing
from typing import Final

import anyio

from harken.cli.client import Result
from harken.cli.source_config import entry_named
from harken.cli.start import VARIABLES
from harken.clock import SystemClock
from harken.config.home import Home
from harken.config.settings import Settings
from harken.daemon.sources import make_sources
from harken.model import timestamp
from harken.sources.base import Feed, Source, SourceHealth, SourceState
from harken.sources.bot.settings import KIND as BOT
from harken.sources.imap.settings import IMAP
from harken.sources.microsoft.settings import KINDS as GRAPH_KINDS

LOOK_SECONDS: Final = 0.05


def try_source(home: Home, name: str, seconds: float) -> Result:
    """Listen to a source for some seconds; return how it went."""
    entry = entry_named(home, name)
    if entry.get("kind") in GRAPH_KINDS:
        from harken.cli.account_test import try_account

        return try_account(home, name, seconds)
    if entry.get("kind") == BOT:
        from harken.cli.source_bot import try_bot

        return try_bot(home, name, seconds)
    if entry.get("kind") == "webhook":
        from harken.cli.source_webhook import try_webhook

        return try_webhook(home, name)
    if entry.get("kind") == IMAP:
        from harken.cli.mail_test import try_mail

        return try_mail(home, name, seconds)
    # One that is turned off can be tried before it is turned on.
    settings = Settings(sources={name: {**entry, "enabled": True}})
    environ = {variable: os.environ[variable] for variable in VARIABLES if variable in os.environ}
    (source,) = make_sources(settings, home, SystemClock(), environ)
    return anyio.run(_listen, source, seconds)


async def _listen(source: Source, seconds: float) -> Result:
    heard = Counter[str]()
    health = source.health()

    async def follow(feed: Feed) -> None:
        async with aclosing(feed.follow("")) as batches:
            async for batch in batches:
                heard.update(draft.channel for draft in batch.drafts)

    async def watch() -> None:
        nonlocal health
        while True:
            # Kept while it runs: one that was stopped says nothing else.
            health = _latest(health, source.health())
            await anyio.sleep(LOOK_SECONDS)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as watching:
            watching.start_soon(watch)
            async with anyio.create_task_group() as following:
                for feed in source.feeds():
                    following.start_soon(follow, feed)
            # None can push: there is nothing to wait for.
            health = _latest(health, source.health())
            watching.cancel_scope.cancel()
    return _result(source, health, heard)


def _latest(before: SourceHealth, now: SourceHealth) -> SourceHealth:
    return before if now.state is SourceState.STOPPED else now


def _result(source: Source, health: SourceHealth, heard: Counter[str]) -> Result:
    return {
        "name": source.name,
        "kind": source.kind,
        "address": source.address,
        "state": health.state.value,
        "reason": health.reason,
        "server": health.server,
        "messages": heard.total(),
        "counts": dict(sorted(heard.items())),
        "dropped": dict(sorted(health.dropped.items())),
        "too_long": health.too_long,
        "last_message_at": None if health.last_message_at is None else timestamp(health.last_message_at),
    }
