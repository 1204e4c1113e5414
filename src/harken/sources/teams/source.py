"""The chats of Teams as a source: one feed that asks for the list of chats every few seconds, and reads what changed.

Each batch comes with the checkpoint that follows it, so the next start of the daemon goes on there; what was read and
not stored is read again. Microsoft's failures are waited out here; only what a person must do is raised. Above is
`daemon/source_set.py`; which chats are read and what they say is decided in `polling.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from functools import partial
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, Unavailable
from harken.sources.check import CheckContext, CheckReport
from harken.sources.feed import RecordedFeed, doubled
from harken.sources.http import part
from harken.sources.microsoft.account import (
    AccountParts,
    AccountSource,
    MicrosoftAccount,
    PersonSignIn,
    check_account,
    make_signed_in,
    moment_of,
    open_account,
)
from harken.sources.microsoft.client import NEXT_LINK, GraphClient, GraphTiming
from harken.sources.microsoft.notifications import ChangeSignal, ChangeTopic
from harken.sources.microsoft.sent import SentMessages
from harken.sources.payload import items
from harken.sources.source import Batch, Source, SourceEntry
from harken.sources.teams.messages import TeamsChat
from harken.sources.teams.polling import ChatPoll
from harken.sources.teams.sender import TeamsSender
from harken.sources.teams.settings import TeamsSettings, read_settings

FEED: Final = "chats"
CHATS_AT_ONCE: Final = 16
MAX_WAIT_SECONDS: Final = 900.0
MIN_WAIT_SECONDS: Final = 1.0
PAGE: Final = 50

_MAX_DOUBLINGS: Final = 3


class TeamsSource(AccountSource[TeamsSettings, "ChatsFeed"]):
    """The chats of one account."""

    def __init__(
        self,
        settings: TeamsSettings,
        client: GraphClient,
        clock: Clock,
        sent: SentMessages,
        me: Callable[[], str],
        *,
        since: Callable[[], datetime | None] = lambda: None,
        timing: GraphTiming | None = None,
    ) -> None:
        timing = timing or GraphTiming()
        polling = partial(
            ChatPoll,
            settings,
            client,
            sent,
            me,
            timing.monotonic,
            since=since,
            now=clock.now,
            chat_limit=lambda _chat: anyio.move_on_after(timing.chat_seconds),
        )
        self._me = me
        super().__init__(settings, [ChatsFeed(settings, clock, timing, polling)])

    def topics(self) -> tuple[ChangeTopic, ...]:
        """Return what Microsoft can tell it of: all chats at once, also those that there will be."""
        return tuple(ChangeTopic(self._all_messages, "created,updated,deleted", feed.tidings) for feed in self.feeds())

    def _all_messages(self) -> str:
        return f"/users/{part(me)}/chats/getAllMessages" if (me := self._me()) else "/me/chats/getAllMessages"


class ChatsFeed(RecordedFeed):
    """What is said in the chats of one account."""

    def __init__(
        self, settings: TeamsSettings, clock: Clock, timing: GraphTiming, open_polling: Callable[[], ChatPoll]
    ) -> None:
        super().__init__(FEED, clock)
        self._settings = settings
        self._timing = timing
        self._open_polling = open_polling
        self._failures = 0
        self.tidings = ChangeSignal()

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield what is said, edited and deleted in the chats, for ever."""
        self._health.begins()
        polling = self._open_polling()
        last = checkpoint
        try:
            if checkpoint:
                polling.begin(checkpoint)
            while True:
                begun = self._timing.monotonic()
                todo = await self._look(polling, self.tidings.take())
                found = 0
                for start in range(0, max(len(todo), 1), CHATS_AT_ONCE):
                    drafts = await polling.read(todo[start : start + CHATS_AT_ONCE])
                    found += len(drafts)
                    if start + CHATS_AT_ONCE >= len(todo):
                        polling.complete()
                    place = polling.checkpoint()
                    if drafts or place != last:
                        last = place
                        yield Batch(drafts=drafts, checkpoint=place)
                if polling.missing is not None:
                    raise polling.missing
                self.tidings.found(found, is_whole=polling.is_complete)
                await self._rest(begun)
        except NeedsPerson as error:
            self._health.waits_for(f"{error.message} {error.action or error.hint}".strip())
            raise
        finally:
            self._health.stops()

    async def _look(self, polling: ChatPoll, told: frozenset[str]) -> list[TeamsChat]:
        """Ask for the list until it is answered."""
        while True:
            try:
                todo = await polling.look(told)
            except NeedsPerson:
                raise
            except HarkenError as error:
                self._failures += 1
                longest = self._settings.poll * 2.0**_MAX_DOUBLINGS
                asked = error.retry_after if isinstance(error, Unavailable) else 0.0
                seconds = max(doubled(self._settings.poll, self._failures - 1, longest), asked)
                seconds = min(seconds, MAX_WAIT_SECONDS)
                self._health.retries(error.message, seconds)
                await self._timing.wait(seconds)
            else:
                self._failures = 0
                closed = polling.closed
                self._health.listens(f"{closed} of the chats cannot be read" if closed else "")
                self._health.looked()
                return todo

    async def _rest(self, begun: float) -> None:
        used = self._timing.monotonic() - begun
        seconds = max(self._settings.poll - used, MIN_WAIT_SECONDS)
        self._health.due_in(self.tidings.seconds(seconds))
        await self.tidings.rest(self._timing.wait, seconds)


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)

    def parts(account: MicrosoftAccount, sent: SentMessages) -> AccountParts:
        client, sign_in = account.client, account.sign_in
        source = TeamsSource(settings, client, entry.clock, sent, sign_in.me, since=sign_in.since)
        sender = TeamsSender(settings, client, sent, sign_in.me, entry.clock)
        return AccountParts(source, source.topics(), sender, sender if settings.placeholder else None)

    return make_signed_in(settings, entry, parts)


def sign_in(entry: SourceEntry) -> PersonSignIn:
    """Return how a person signs in to the account of an entry."""
    return PersonSignIn(open_account(read_settings(entry.name, entry.table), entry))


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Look at the list of chats once."""

    async def look(account: MicrosoftAccount) -> str:
        newest = "lastMessagePreview/createdDateTime"
        asked = {"$expand": "lastMessagePreview", "$orderby": f"{newest} desc", "$top": str(PAGE)}
        page = await account.client.get("/me/chats", asked, lane="chats")
        rows = items(page)
        if not rows:
            return "No chat is there."
        count = "1 chat" if len(rows) == 1 else f"{len(rows)} chats{' or more' if NEXT_LINK in page else ''}"
        return f"{count}, the last message {moment_of(rows[0].get('lastMessagePreview'), entry.clock.now())}."

    return check_account(read_settings(entry.name, entry.table), entry, context, look)
