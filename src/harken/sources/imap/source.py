"""Folders of a mail account as a source: each is followed over a connection of its own, for ever.

A folder is read to its end, then the server is asked to say when something changes; where it cannot, it is asked now
and then. Every batch carries the place behind it, so that it may be stopped at any moment. The first look only learns
what was there before. `check` connects once as the daemon does, and tells only names and numbers. Above is the daemon,
below is `connection.py`.

The server numbers mails; a number means nothing once the folder's validity has changed. So a checkpoint also knows
times: `since` is the newest mail that was there before the source listened, `heard` the newest mail so far, and from
these a folder is read anew without taking what was there before. What is heard twice then, the store knows by its
upstream id, which no number is part of. All times are the server's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson, Unavailable, UserError
from harken.model import Draft
from harken.sources.check import CheckContext, CheckReport, ask_once
from harken.sources.feed import Backoff, FeedTiming, RecordedFeed, checkpoint_of, read_checkpoint, worst_of
from harken.sources.imap.connection import Credentials, IdleUnsupported, ImapLink, ImapRow, OpenedFolder
from harken.sources.imap.messages import ArrivedMail, checks_of, draft_of, has_word_of, proposed
from harken.sources.imap.sender import SmtpSender, is_own, try_sign_in
from harken.sources.imap.settings import IMAP, ImapSettings, read_settings
from harken.sources.source import Batch, NamedSource, Source, SourceEntry, SourceHealth, SourceState

# Mail can be moved into a folder after it came: what is read anew begins a while before the newest that was heard.
OVERLAP: Final = timedelta(days=7)
MAX_KNOWN: Final = 200
LAST_UID: Final = 0xFFFF_FFFF
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION: Final = 1
# Servers end a connection that says nothing for half an hour, and some routers forget it after ten minutes.
IDLE_SECONDS: Final = 9 * 60.0
MAX_BYTES: Final = 25_000_000  # of a mail; a longer one is announced
BATCH_BYTES: Final = 8_000_000
BATCH_MAILS: Final = 20
PAGE: Final = 500  # mails whose size is asked for at once
NEWEST: Final = 200  # mails whose ids are remembered of those that were there before
MAX_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 60.0
MAX_FAILURES: Final = 3  # of reading one mail, before only its head is read
DROPS: Final = 3  # connections in a row that end while waiting for news, before the server is asked instead
MAX_FOLDERS: Final = 20
NEWEST_CHECKED: Final = 20  # mails that are asked who vouches for their senders
VOUCHER_SECONDS: Final = 10.0


class ImapCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a folder was read."""

    version: int = _VERSION
    validity: int = msgspec.field(name="uidvalidity")
    last: int = msgspec.field(name="last_uid")  # the highest number that was heard, or was there before
    since: datetime = _BEGINNING
    heard: datetime = _BEGINNING
    known: tuple[str, ...] = ()  # ids of mails that came in the very second of `since`, before anybody listened

    def text(self) -> str:
        """Return it as a checkpoint."""
        return checkpoint_of(self)

    def is_of(self, validity: int, next_uid: int) -> bool:
        """Whether the numbers still mean the same mails."""
        return self.validity == validity and self.last < next_uid

    def after(self, rows: Iterable[ImapRow], present: datetime) -> ImapCheckpoint:
        """Return the place behind these mails. A mail that claims to be from the future moves no time."""
        every = list(rows)
        times = [row.received_at for row in every if row.received_at <= present]
        return replace(self, last=max([self.last, *(row.uid for row in every)]), heard=max([self.heard, *times]))

    def anew(self, validity: int, next_uid: int) -> ImapCheckpoint:
        """Return the place behind everything in a folder with numbers that have changed their meaning."""
        return replace(self, validity=validity, last=next_uid - 1)

    @property
    def oldest(self) -> datetime:
        """From when on mails count, if the folder is read anew."""
        return max(self.since, self.heard - OVERLAP) if self.heard > _BEGINNING + OVERLAP else self.since

    def news(self, rows: Sequence[ImapRow]) -> list[ImapRow]:
        """Return the mails that are to be heard if the folder is read anew, oldest first."""
        fresh = [row for row in rows if row.received_at >= self.oldest and not self._was_there(row)]
        return sorted(fresh, key=lambda row: row.uid)

    def _was_there(self, row: ImapRow) -> bool:
        return row.received_at == self.since and row.message_id in self.known


def first_place(
    validity: int, next_uid: int, newest: Sequence[ImapRow], *, since: datetime | None = None
) -> ImapCheckpoint:
    """Return where listening begins, told the newest mails of a folder, or from when on mails are taken."""
    if since is not None:
        return ImapCheckpoint(validity=validity, last=next_uid - 1, since=since)
    latest = max((row.received_at for row in newest), default=_BEGINNING)
    known = tuple(row.message_id for row in newest if row.received_at == latest and row.message_id)
    return ImapCheckpoint(validity=validity, last=next_uid - 1, since=latest, heard=latest, known=known[-MAX_KNOWN:])


def read_place(checkpoint: str) -> ImapCheckpoint | None:
    """Return the place that a checkpoint names, or None if it names none."""
    read = read_checkpoint(checkpoint, ImapCheckpoint)
    if read is None:
        return None
    is_dated = read.since.tzinfo is not None and read.heard.tzinfo is not None
    is_numbered = 0 <= read.validity <= LAST_UID and 0 <= read.last <= LAST_UID
    return read if read.version == _VERSION and is_dated and is_numbered else None


class ImapSource(NamedSource):
    """The mail of one account."""

    def __init__(
        self, settings: ImapSettings, credentials: Credentials, clock: Clock, timing: FeedTiming | None = None
    ) -> None:
        super().__init__(settings.name, IMAP, settings.place)
        self.settings = settings
        self._feeds = tuple(
            ImapFolderFeed(folder, settings, credentials, clock, timing or FeedTiming()) for folder in settings.folders
        )
        self._sender = SmtpSender(settings, credentials, clock) if settings.can_answer else None

    @property
    def sender(self) -> SmtpSender | None:
        """How mails are answered; None where it is not said how mail leaves."""
        return self._sender

    def feeds(self) -> tuple[ImapFolderFeed, ...]:
        """Return its streams, one for each folder."""
        return self._feeds

    def health(self) -> SourceHealth:
        """Return how it is doing now."""
        return worst_of([feed.health() for feed in self._feeds])


class ImapFolderFeed(RecordedFeed):
    """The mail that comes into one folder."""

    def __init__(
        self, folder: str, settings: ImapSettings, credentials: Credentials, clock: Clock, timing: FeedTiming
    ) -> None:
        super().__init__(folder, clock)
        self._folder = folder
        self._settings = settings
        self._credentials = credentials
        self._clock = clock
        self._timing = timing
        self._found = ""  # what was there before anybody listened, for people
        self._place: ImapCheckpoint | None = None
        self._backoff = Backoff(timing.chance, most_seconds=MAX_SECONDS)
        self._drops = 0
        self._is_asked = False  # the server does not push: it is asked now and then
        self._is_careful = False  # mails are read one by one
        self._trouble = (0, 0)  # the mail that was last not handed over, and how often

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield the mails that come, in order, reconnecting by itself."""
        self._health.begins()
        self._place = read_place(checkpoint)
        if checkpoint and self._place is None:
            self._health.lost()
        try:
            while True:
                begun = self._timing.monotonic()
                try:
                    async with aclosing(self._connected()) as batches:
                        async for batch in batches:
                            yield batch
                except Unavailable as error:
                    has_stood = self._timing.monotonic() - begun >= STEADY_SECONDS
                    seconds = self._next_wait(has_stood=has_stood)
                    self._health.retries(error.message, seconds)
                    await self._timing.wait(seconds)
        except NeedsPerson as error:
            self._health.needs_person(error)
            raise
        finally:
            self._health.stops()

    async def _connected(self) -> AsyncGenerator[Batch, None]:
        """Yield what is new over one connection, until it is lost."""
        async with ImapLink(self._settings.imap, self._credentials) as link:
            opened = await link.look_at(self._folder)
            async with aclosing(self._settle(link, opened)) as batches:
                async for batch in batches:
                    yield batch
            while True:
                self._health.listens(self._found, pace=self._pace(link))
                await self._hear(link)
                async with aclosing(self._news(link)) as batches:
                    async for batch in batches:
                        yield batch

    async def _settle(self, link: ImapLink, opened: OpenedFolder) -> AsyncGenerator[Batch, None]:
        """Yield what came before this connection, and find the place to go on from."""
        place = self._place
        if place is not None and place.is_of(opened.validity, opened.next_uid):
            async with aclosing(self._news(link)) as batches:
                async for batch in batches:
                    yield batch
            return
        if place is None:
            place = await self._begin(link, opened)
            rows = await self._from(link, place) if self._settings.since else []
        else:
            rows = await self._from(link, place)
        # Until all of it is stored the old place counts: what is read again then, the store knows.
        for some in _portions(rows):
            yield Batch(drafts=await self._drafts(link, some))
        self._place = place.anew(opened.validity, opened.next_uid).after(rows, self._clock.now())
        yield Batch(checkpoint=self._place.text())

    async def _begin(self, link: ImapLink, opened: OpenedFolder) -> ImapCheckpoint:
        if self._settings.since is not None:
            return first_place(opened.validity, opened.next_uid, (), since=self._clock.now() - self._settings.since)
        self._found = _not_taken(self._folder, opened.count)
        newest = (await link.search("ALL"))[-NEWEST:] if opened.count else []
        rows = await link.rows(newest, has_ids=True) if newest else []
        return first_place(opened.validity, opened.next_uid, rows)

    async def _from(self, link: ImapLink, place: ImapCheckpoint) -> list[ImapRow]:
        """Return the mails of a folder that is read anew. The server tells days only, in an unknown time zone."""
        uids = await link.search("SINCE", (place.oldest - timedelta(days=1)).date())
        rows: list[ImapRow] = []
        for begin in range(0, len(uids), PAGE):
            rows += await link.rows(uids[begin : begin + PAGE], has_ids=True)
        return place.news(rows)

    async def _news(self, link: ImapLink) -> AsyncGenerator[Batch, None]:
        """Yield the mails behind the place, each batch with the place behind it."""
        place = self._place
        if place is None:
            return
        uids = [uid for uid in await link.search("UID", f"{place.last + 1}:*") if uid > place.last]
        for begin in range(0, len(uids), PAGE):
            asked = uids[begin : begin + PAGE]
            for some in _portions(await link.rows(asked)):
                drafts = await self._drafts(link, some)
                place = place.after(some, self._clock.now())
                yield Batch(drafts=drafts, checkpoint=place.text())
                self._place = place

    async def _drafts(self, link: ImapLink, rows: Sequence[ImapRow]) -> list[Draft]:
        small = [row.uid for row in rows if row.size <= MAX_BYTES]
        bodies: dict[int, bytes] | None = None
        if small and not self._is_careful:
            # If this fails, one mail may be the reason: next time they are read one by one.
            self._is_careful = True
            bodies = await link.read(small, MAX_BYTES)
        drafts: list[Draft] = []
        for row in rows:
            if bodies is not None and row.size <= MAX_BYTES:
                raw = bodies.get(row.uid)
                arrival = None if raw is None else ArrivedMail(raw=raw, received_at=row.received_at)
            else:
                arrival = await self._arrival(link, row)
            if arrival is not None and not is_own(draft := await self._draft(arrival), self._settings):
                drafts.append(draft)
        self._is_careful = False
        return drafts

    async def _draft(self, arrival: ArrivedMail) -> Draft:
        return await anyio.to_thread.run_sync(
            partial(
                draft_of,
                arrival,
                source=self._settings.name,
                folder=self._folder,
                authserv_id=self._settings.authserv_id,
                trusts_from=self._settings.trust_from,
                addresses=self._settings.addresses,
            )
        )

    async def _arrival(self, link: ImapLink, row: ImapRow) -> ArrivedMail | None:
        """Return one mail, as much of it as the server hands over; None if it is not there any more."""
        uid, times = row.uid, self._trouble[1] if self._trouble[0] == row.uid else 0
        is_head_only = row.size > MAX_BYTES or times >= MAX_FAILURES
        if times >= 2 * MAX_FAILURES:
            # Others wait behind it, so it is announced instead.
            raw: bytes | None = (
                f"Subject: a mail that the server does not hand over (number {uid} in {self._folder})\n\n".encode()
            )
        else:
            try:
                found = await (link.heads([uid]) if is_head_only else link.read([uid], MAX_BYTES))
            except Unavailable:
                self._trouble = (uid, times + 1)
                raise
            raw = found.get(uid)
        return None if raw is None else ArrivedMail(raw=raw, received_at=row.received_at, is_head_only=is_head_only)

    def _pace(self, link: ImapLink) -> str:
        self._is_asked = self._is_asked or not link.can_push
        return f"looks every {self._settings.poll:g} s" if self._is_asked else "told by the server"

    async def _hear(self, link: ImapLink) -> None:
        """Return when there may be something new."""
        if self._is_asked:
            await self._timing.wait(self._settings.poll)
            await link.breathe()
            return
        try:
            await link.wait(IDLE_SECONDS)
        except IdleUnsupported:
            self._is_asked = True
        except Unavailable:
            self._drops += 1
            self._is_asked = self._drops >= DROPS
            raise

    def _next_wait(self, *, has_stood: bool) -> float:
        if has_stood:
            self._backoff.was_good()
            self._drops = 0
        return self._backoff.next_wait()


def _not_taken(folder: str, count: int) -> str:
    """Say how many mails were there before the first look, which are not taken."""
    mails = "1 mail was" if count == 1 else f"{count:,} mails were"
    return f"{folder}: {mails} there before, and not taken." if count else ""


def _portions(rows: Sequence[ImapRow]) -> Iterator[list[ImapRow]]:
    """Yield mails in order, as many at a time as may be held in memory."""
    some: list[ImapRow] = []
    size = 0
    for row in rows:
        if some and (len(some) >= BATCH_MAILS or size + row.size > BATCH_BYTES):
            yield some
            some, size = [], 0
        some.append(row)
        size += row.size
    if some:
        yield some


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return ImapSource(settings, credentials_of(settings, entry), entry.clock)
    except UserError as exc:
        # The certificates that are to be believed cannot be read.
        return entry.unready(exc, settings.place)


def credentials_of(settings: ImapSettings, entry: SourceEntry) -> Credentials:
    """Return who signs in; the secret is not looked up yet."""
    return Credentials(
        source=settings.name,
        user=settings.user,
        look_up=partial(entry.secret, settings.secret),
        is_token=settings.is_token,
        trust=entry.certificates(settings.ca),
    )


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Connect and ask once, within some seconds."""
    settings = read_settings(entry.name, entry.table)

    async def ask() -> CheckReport:
        who = credentials_of(settings, entry)
        found = f"{await _look(settings, who)} {await _answers(settings, who)}"
        return CheckReport(state=SourceState.LISTENING, address=settings.place, found=found)

    late = f"{settings.imap.host} does not answer in time."
    return ask_once(settings.place, ask, context.seconds, late=late)


def find_voucher(settings: ImapSettings, entry: SourceEntry) -> str:
    """Return the server that vouches for senders in most of the newest mails; empty if none is found now."""
    try:
        who = credentials_of(settings, entry)
        who.secret()  # it is often put in its place later, and nobody need connect before
        return anyio.run(_voucher, settings, who)
    except (HarkenError, TimeoutError):
        return ""


async def _voucher(settings: ImapSettings, who: Credentials) -> str:
    with anyio.fail_after(VOUCHER_SECONDS):
        async with ImapLink(settings.imap, who) as link:
            return proposed(await _checks(settings, link))


async def _look(settings: ImapSettings, who: Credentials) -> str:
    async with ImapLink(settings.imap, who) as link:
        counted = [f"{folder} {(await link.look_at(folder)).count:,}" for folder in settings.folders]
        every = await link.folders()
        told = "told at once" if link.can_push else f"asked every {settings.poll:g} s"
        senders = senders_line(settings, await _checks(settings, link))
    names = ", ".join(every[:MAX_FOLDERS])
    more = f" and {len(every) - MAX_FOLDERS} more" if len(every) > MAX_FOLDERS else ""
    return f"Mails: {', '.join(counted)}; {told}. Folders: {names}{more}. {senders}"


async def _checks(settings: ImapSettings, link: ImapLink) -> list[list[str]]:
    """Return what was found about the senders of the newest mails."""
    await link.look_at(settings.folders[0])
    newest = (await link.search("ALL"))[-NEWEST_CHECKED:]
    heads = await link.heads(newest) if newest else {}
    return [checks_of(heads[uid]) for uid in sorted(heads)]


def senders_line(settings: ImapSettings, checks: Sequence[Sequence[str]]) -> str:
    """Return how far senders can be believed, told what was found about the senders of some mails."""
    name = settings.authserv_id
    if settings.trust_from:
        return "Warning: every sender is believed without proof, because trust_from is set."
    if name and checks and not any(has_word_of(results, name) for results in checks):
        return f"Senders are unverified: {name} is in none of the newest {len(checks)} mails, check authserv_id."
    if name:
        return f"{name} vouches for senders."
    if found := proposed(checks):
        return f"{found} vouches for senders: set authserv_id to it, if it is your provider's."
    return "Senders are unverified: nobody vouches for them in most of the newest mails."


async def _answers(settings: ImapSettings, who: Credentials) -> str:
    if settings.smtp is None:
        return "It cannot be answered: smtp_host is not set."
    await try_sign_in(settings.smtp, who)
    without = "" if settings.smtp.has_auth else ", without a sign-in"
    plain = ", unencrypted" if settings.smtp.is_readable_on_the_way else ""
    return f"Answers leave through {settings.smtp.host}{without}{plain}."
