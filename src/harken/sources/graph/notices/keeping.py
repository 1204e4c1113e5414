"""Keeps the subscriptions of one source alive, so that Microsoft goes on telling it of changes.

A subscription is made when the daemon starts, renewed when half of its life is over or Microsoft asks for that, and
made anew when it is gone. What an earlier daemon left at the same address is deleted first: its secret was never
written down. When Microsoft refuses, the feeds go on at their usual pace and it is tried again later. It looks like a
feed so that it runs as one does, while somebody is signed in; it yields nothing. Below are the client and `door.py`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import HarkenError, NotFound, Unavailable
from harken.model import Draft, timestamp
from harken.sources.base import Batch
from harken.sources.graph.client import GraphClient, Timing
from harken.sources.graph.notices.door import Listener, NoticeDoor
from harken.sources.graph.notices.tidings import Rest, Topic
from harken.sources.graph.settings import GraphSettings
from harken.sources.graph.verdict import Json
from harken.sources.https.address import part

FEED: Final = "notices"
# Microsoft allows three days for chats and seven for mail. What nobody could delete should not be told for that long.
LIFE: Final = timedelta(hours=24)
LEAST_LIFE: Final = timedelta(minutes=2)
LOOK_SECONDS: Final = 60.0  # a machine that slept does not know that time has passed
FIRST_RETRY_SECONDS: Final = 60.0
LAST_RETRY_SECONDS: Final = 900.0
LEAST_GAP: Final = timedelta(seconds=10)  # however often Microsoft asks
MOST_PAGES: Final = 3
MOST_LEFTOVERS: Final = 10
END_SECONDS: Final = 2.0
SECRET_BYTES: Final = 32

_PATH: Final = "/subscriptions"
_REMOVED: Final = "subscriptionRemoved"
_CHALLENGE: Final = "reauthorizationRequired"
_MOST_DOUBLINGS: Final = 4

_log = logging.getLogger("harken.sources.graph")


@dataclass(slots=True)
class _Kept:
    topic: Topic
    secret: str = field(default="", repr=False)
    id: str = ""
    account: str = ""  # who was signed in when it was made
    due: datetime | None = None  # None: at once
    tended: datetime | None = None
    failures: int = 0
    reason: str = ""


class Notices:
    """The subscriptions of one source, and its door."""

    def __init__(
        self,
        settings: GraphSettings,
        client: GraphClient,
        clock: Clock,
        topics: Sequence[Topic],
        me: Callable[[], str],
        *,
        timing: Timing | None = None,
    ) -> None:
        self._name = settings.name
        self._url = settings.notice_url
        self._client = client
        self._clock = clock
        self._me = me
        self._timing = timing or Timing()
        self._rest = Rest()
        self._kept = [_Kept(topic) for topic in topics]
        self.door = NoticeDoor(settings.name, [self._listener(kept) for kept in self._kept])

    @property
    def name(self) -> str:
        """Its name among the feeds of the source."""
        return FEED

    @property
    def works(self) -> bool:
        """Whether every feed is told of its changes."""
        return all(kept.topic.tidings.works for kept in self._kept)

    @property
    def reason(self) -> str:
        """Why it is not so, or what happened at the door, in one sentence."""
        for kept in self._kept:
            if kept.reason:
                return f"Microsoft does not tell of changes: {kept.reason}"
            if kept.topic.tidings.is_doubted:
                return "Microsoft's notifications do not arrive: check that hooks.public_url leads here."
        if count := self.door.refusals:
            return f"Refused at the door, because nothing proved that Microsoft sent it: {count}."
        return ""

    async def follow(self, _checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Keep the subscriptions, for ever."""
        try:
            while True:
                for kept in self._kept:
                    await self._tend(kept)
                yield Batch()
                await self._rest.take(self._timing.wait, self._seconds())
        finally:
            with anyio.move_on_after(END_SECONDS, shield=True):
                await self._end()

    def rest(self) -> Batch:
        """Return nothing."""
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of nothing: none of what is stored comes from here."""

    def _listener(self, kept: _Kept) -> Listener:
        def happened(event: str) -> None:
            if event == _REMOVED:
                kept.id = ""
                kept.topic.tidings.ends()
            if event in {_REMOVED, _CHALLENGE}:
                kept.due = None
                self._rest.end()
            else:
                # Something was missed, or it is an event that nobody knows yet: only a look can tell.
                kept.topic.tidings.tell()

        return Listener(lambda: kept.secret, kept.topic.tidings.tell, happened)

    def _seconds(self) -> float:
        now = self._clock.now()
        soonest = min((kept.due or now for kept in self._kept), default=now)
        return min(max((soonest - now).total_seconds(), 1.0), LOOK_SECONDS)

    async def _tend(self, kept: _Kept) -> None:
        now = self._clock.now()
        if kept.account != self._me():
            kept.id, kept.due, kept.tended = "", None, None
        if kept.due is None and kept.tended is not None:
            kept.due = kept.tended + LEAST_GAP
        if kept.due is not None and now < kept.due:
            return
        kept.tended, kept.account = now, self._me()
        try:
            granted = await (self._renew(kept) if kept.id else self._create(kept))
        except HarkenError as error:
            self._failed(kept, error)
            return
        kept.failures, kept.reason = 0, ""
        if not kept.id:
            # Microsoft has removed it meanwhile.
            kept.due = None
            return
        life = min(max(granted - self._clock.now(), LEAST_LIFE), LIFE)
        kept.due = self._clock.now() + life / 2
        # What changed while nobody told of it is looked for now.
        kept.topic.tidings.begins()

    def _failed(self, kept: _Kept, error: HarkenError) -> None:
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** min(kept.failures, _MOST_DOUBLINGS), LAST_RETRY_SECONDS)
        if isinstance(error, Unavailable):
            seconds = max(seconds, error.retry_after)
        kept.failures += 1
        kept.due = self._clock.now() + timedelta(seconds=seconds)
        if kept.reason != error.message:
            _log.warning("%s: Microsoft does not tell of changes: %s", self._name, error.message)
        kept.reason = error.message
        kept.topic.tidings.ends()

    async def _renew(self, kept: _Kept) -> datetime:
        try:
            said = await self._client.patch(f"{_PATH}/{part(kept.id)}", self._until(), lane="")
        except NotFound:
            kept.id = ""
            return await self._create(kept)
        return self._granted(said)

    async def _create(self, kept: _Kept) -> datetime:
        await self._delete_leftovers()
        # Before it is asked for: word can come before the answer does.
        kept.secret = secrets.token_urlsafe(SECRET_BYTES)
        wanted: Json = {
            "changeType": kept.topic.changes,
            "resource": kept.topic.resource(),
            "notificationUrl": self._url,
            "lifecycleNotificationUrl": self._url,
            "clientState": kept.secret,
            **self._until(),
        }
        said = await self._client.post(_PATH, wanted, lane="")
        own_id = said.get("id")
        kept.id = own_id if isinstance(own_id, str) else ""
        return self._granted(said)

    def _until(self) -> Json:
        return {"expirationDateTime": timestamp(self._clock.now() + LIFE)}

    def _granted(self, said: Json) -> datetime:
        """Return until when Microsoft says it lives: it may be shorter than was asked for."""
        try:
            granted = datetime.fromisoformat(str(said.get("expirationDateTime")))
        except ValueError:
            return self._clock.now() + LIFE
        return granted if granted.tzinfo else granted.replace(tzinfo=UTC)

    async def _delete_leftovers(self) -> None:
        """Delete what nobody here knows at our address, as far as that can be done: it ends by itself."""
        ours = {kept.id for kept in self._kept}
        with suppress(HarkenError):
            found: list[str] = []
            async with aclosing(self._client.pages(_PATH, lane="", most_pages=MOST_PAGES)) as pages:
                async for page in pages:
                    value = page.get("value")
                    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
                    found += [str(row.get("id")) for row in rows if row.get("notificationUrl") == self._url]
            for leftover in [each for each in found if each not in ours][:MOST_LEFTOVERS]:
                with suppress(NotFound):
                    await self._client.delete(f"{_PATH}/{part(leftover)}", lane="")

    async def _end(self) -> None:
        for kept in self._kept:
            kept.topic.tidings.ends()
            if kept.id:
                with suppress(HarkenError):
                    await self._client.delete(f"{_PATH}/{part(kept.id)}", lane="")
            kept.id, kept.due, kept.tended = "", None, None
