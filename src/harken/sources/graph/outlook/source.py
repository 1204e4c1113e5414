"""Outlook as a source: one feed per folder that asks for changes, reads what came, and waits for the next look.

Changes are only names of mails: each is read by its id, in the order in which they came. The checkpoint moves when a
whole round of changes has been handed over, so whatever stops in between is read again and known by its id. A link
that the service has forgotten is replaced by reading the folder anew. Below is the Graph client, above is
`daemon/feeding.py`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio

from harken.clock import Clock
from harken.errors import NeedsPerson, NotFound, Refused, Unavailable, UserError
from harken.model import Draft
from harken.sources.base import Batch, SourceHealth
from harken.sources.graph.address import part
from harken.sources.graph.client import DELTA_LINK, GraphClient
from harken.sources.graph.failures import Gone
from harken.sources.graph.outlook.marker import has_reference
from harken.sources.graph.outlook.place import Place, Row, first_place, read_place
from harken.sources.graph.outlook.reading import OUTSIDE, WHOLE, draft_of, is_invitation, row_of
from harken.sources.graph.outlook.standing import Standing, together
from harken.sources.graph.retrying import MAX_ASKED_SECONDS, wait_seconds
from harken.sources.graph.settings import OUTLOOK, GraphSettings
from harken.sources.graph.verdict import Json

LANE: Final = "mailbox"
SENT: Final = "/me/mailFolders/sentitems/messages"
PAGE: Final = 500
MOST_PAGES: Final = 2_000
MOST_AT_ONCE: Final = 10  # mails that are read before they are stored
MOST_FAILURES: Final = 3  # of reading one mail, before it is asked whether only that mail is broken

_CHANGES: Final[Mapping[str, str]] = {"changeType": "created", "$select": "id,receivedDateTime"}
# Asked in this order, until one is not too much: everything, without the attachments, only the outside.
_OUTSIDE: Final[Mapping[str, str]] = {"$select": ",".join(OUTSIDE)}
_FORMS: Final[tuple[Mapping[str, str], ...]] = (
    {"$select": ",".join(WHOLE), "$expand": "attachments($select=id,name,contentType,size,isInline)"},
    {"$select": ",".join(WHOLE)},
    _OUTSIDE,
)
_MEETING: Final[Mapping[str, str]] = {"$expand": "microsoft.graph.eventMessage/event"}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the waits come from: chance, and a way to wait."""

    chance: Callable[[], float] = random.random
    wait: Callable[[float], Awaitable[None]] = anyio.sleep


@dataclass(frozen=True, slots=True)
class _Round:
    """What one look found: the mails to read, and the place behind them."""

    news: Sequence[Row]
    place: Place


class OutlookSource:
    """The mail of one account."""

    def __init__(
        self, settings: GraphSettings, client: GraphClient, clock: Clock, timing: Timing | None = None
    ) -> None:
        self.settings = settings
        folders = dict.fromkeys(settings.folders or ("inbox",))
        self._feeds = tuple(FolderFeed(folder, settings, client, clock, timing or Timing()) for folder in folders)

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.settings.name

    @property
    def kind(self) -> str:
        """Its kind in the configuration."""
        return OUTLOOK

    @property
    def address(self) -> str:
        """Where Graph is, without anything secret."""
        return self.settings.address

    def feeds(self) -> tuple[FolderFeed, ...]:
        """Return its streams, one for each folder."""
        return self._feeds

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return together([feed.health() for feed in self._feeds])


class FolderFeed:
    """The mail that comes into one folder."""

    def __init__(self, folder: str, settings: GraphSettings, client: GraphClient, clock: Clock, timing: Timing) -> None:
        self._folder = folder
        self._settings = settings
        self._client = client
        self._clock = clock
        self._timing = timing
        self._standing = Standing(clock)

    @property
    def name(self) -> str:
        """Its name, under which checkpoints are kept."""
        return self._folder

    def health(self) -> SourceHealth:
        """Return how the folder is doing now."""
        return self._standing.health()

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield the mails that come, look by look; the first look only learns what was there before."""
        self._standing.begins()
        place = read_place(checkpoint)
        if checkpoint and place is None:
            self._standing.lost_place()
        try:
            while True:
                found = await self._steadily(partial(self._look, place))
                for begin in range(0, len(found.news), MOST_AT_ONCE):
                    yield Batch(drafts=await self._drafts(found.news[begin : begin + MOST_AT_ONCE]))
                if found.place != place:
                    yield Batch(checkpoint=found.place.text())
                place = found.place
                self._standing.listens()
                await self._timing.wait(self._settings.poll)
        except NeedsPerson as error:
            self._standing.needs_person(error)
            raise
        finally:
            self._standing.stops()

    def rest(self) -> Batch:
        """Return nothing: what was not handed over is read again."""
        return Batch()

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored of a batch."""
        self._standing.stored(drafts, known=known)

    async def _steadily(self, work: Callable[[int], Awaitable[_T]]) -> _T:
        """Do something that may not work now, until it does; it is told how often it has failed."""
        failures = 0
        while True:
            try:
                return await work(failures)
            except Unavailable as error:
                failures += 1
                asked = min(error.retry_after, MAX_ASKED_SECONDS)
                seconds = max(asked, wait_seconds(failures, None, self._timing.chance))
                self._standing.retries(error, seconds)
                await self._timing.wait(seconds)

    async def _look(self, place: Place | None, _failures: int) -> _Round:
        if place is None:
            # The service tells whole seconds: what came in the second in which we begin, comes after.
            started = self._clock.now().replace(microsecond=0)
            rows, link = await self._all_rows()
            news = [row for row in rows if row.received_at is not None and row.received_at >= started]
            return _Round(_in_order(news), first_place(rows, started).after(news, link, self._clock.now()))
        try:
            rows, link = await (self._rows(place.link) if place.link else self._all_rows())
        except (Gone, NotFound, UserError, Refused):
            # Too old, of another address, or of a folder that was made anew: only a new beginning tells.
            place = place.begin_again()
            rows, link = await self._all_rows()
        return _Round(place.news(rows), place.after(rows, link, self._clock.now()))

    async def _all_rows(self) -> tuple[list[Row], str]:
        path = f"/me/mailFolders/{part(self._folder)}/messages/delta"
        try:
            return await self._rows(path, _CHANGES)
        except Gone as gone:
            raise Unavailable("Microsoft forgets the folder while it is read.", "it is read again") from gone
        except (NotFound, UserError, Refused) as error:
            raise NeedsPerson(
                f"The mail folder {self._folder} cannot be read: {error.message}",
                "name a folder as Microsoft does, for example inbox or archive, or by its id",
                action=f"check folders of the source {self._settings.name}",
            ) from error

    async def _rows(self, path: str, params: Mapping[str, str] | None = None) -> tuple[list[Row], str]:
        """Return everything that one round of changes names, and the link to the next round."""
        rows: list[Row] = []
        link: object = None
        prefer = {"Prefer": f"odata.maxpagesize={PAGE}"}
        pages = self._client.pages(path, params, lane=LANE, most_pages=MOST_PAGES, headers=prefer)
        async with aclosing(pages):
            async for page in pages:
                value = page.get("value")
                rows += [row for item in (value if isinstance(value, list) else ()) if (row := row_of(item))]
                link = page.get(DELTA_LINK)
        if not isinstance(link, str) or not link:
            raise Unavailable("The changes of a mail folder have no end.", "they are read again")
        return rows, link

    async def _drafts(self, rows: Sequence[Row]) -> list[Draft]:
        read = [await self._steadily(partial(self._draft, row)) for row in rows]
        return [draft for draft in read if draft is not None]

    async def _draft(self, row: Row, failures: int) -> Draft | None:
        mail = await (self._mail(row) if failures < MOST_FAILURES else self._broken_mail(row))
        draft = draft_of(mail, source=self._settings.name, folder=self._folder) if mail else None
        if draft is not None and has_reference(draft.text) and await self._has_sent(draft.upstream_id):
            return None
        return draft

    async def _mail(self, row: Row) -> Json | None:
        """Return a mail, as much of it as can be read; None if it is not there any more."""
        path = f"/me/messages/{part(row.id)}"
        for form in _FORMS:
            try:
                mail = await self._client.get(path, form, lane=LANE)
                break
            except (NotFound, Gone):
                return None
            except UserError:
                continue
        else:
            return {"id": row.id, "bodyPreview": ""}
        if is_invitation(mail):
            with suppress(NotFound, Gone, UserError):
                return {**await self._client.get(path, _MEETING, lane=LANE), **mail}
        return mail

    async def _broken_mail(self, row: Row) -> Json | None:
        """Return the outside of a mail if that can be read and the rest still cannot: others wait behind it."""
        try:
            outside = await self._client.get(f"/me/messages/{part(row.id)}", _OUTSIDE, lane=LANE)
        except (NotFound, Gone):
            return None
        try:
            return await self._mail(row)
        except Unavailable:
            return outside

    async def _has_sent(self, upstream_id: str) -> bool:
        """Whether a mail left from this account: only then its reference says that it is ours."""
        params = {"$filter": f"internetMessageId eq {quoted(upstream_id)}", "$select": "id", "$top": "1"}
        with suppress(NotFound, Gone, UserError):
            return bool((await self._client.get(SENT, params, lane=LANE)).get("value"))
        return False


def quoted(text: str) -> str:
    """Return a text as Graph's filters write one."""
    return "'" + text.replace("'", "''") + "'"


def _in_order(rows: Sequence[Row]) -> list[Row]:
    return Place().news(rows)
