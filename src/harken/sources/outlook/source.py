"""Outlook as a source: one feed per folder that asks for changes, reads what came, and waits for the next look.

Changes are only names of mails: each is read by its id, in the order in which they came. The checkpoint moves when a
whole round of changes has been handed over, so what stops in between is read again and known by its id. A link that the
service has forgotten is replaced by reading the folder anew. `OwnAddresses` knows which addresses are the account's
own: a sender who writes to one of them waits for an answer. Below is the Graph client, above is `daemon/source_set.py`.

A checkpoint is a link to the next changes and enough about time to begin again without that link: `since` is the newest
mail that was there before the source listened, `heard` the newest mail so far. All times are the service's, except that
nothing counts as old that came after our own start. A checkpoint belongs to an account.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, NeedsPerson, NotFound, Unavailable, UserError
from harken.model import Draft
from harken.sources.check import CheckContext, CheckReport
from harken.sources.feed import (
    MAX_ASKED_SECONDS,
    FeedTiming,
    RecordedFeed,
    checkpoint_of,
    read_checkpoint,
    wait_seconds,
)
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
from harken.sources.microsoft.client import DELTA_LINK, GraphClient
from harken.sources.microsoft.notifications import ChangeSignal, ChangeTopic
from harken.sources.microsoft.responses import MissingScope, PositionGone
from harken.sources.microsoft.sent import SentMessages
from harken.sources.microsoft.settings import MAX_ADDRESSES, mail_address
from harken.sources.outlook.mail import (
    LANE,
    OUTSIDE,
    SENT,
    UNVERIFIED,
    WHOLE,
    OutlookRow,
    address_of,
    closing_id_of,
    draft_of,
    is_invitation,
    own_id,
    quoted,
    row_of,
    unread,
)
from harken.sources.outlook.sender import OutlookSender
from harken.sources.outlook.settings import OutlookSettings, read_settings
from harken.sources.payload import Json, items
from harken.sources.source import Batch, Source, SourceEntry

# Mail can be moved into a folder after it came: what begins again reads a while that it knows already.
OVERLAP: Final = timedelta(days=7)
MAX_KNOWN: Final = 200
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION: Final = 1
PAGE: Final = 500
MAX_PAGES: Final = 2_000
MAX_AT_ONCE: Final = 10  # mails that are read before they are stored
MAX_FAILURES: Final = 3  # of reading one mail, before only its outside is asked for
MAX_TRIES: Final = 6  # before it is asked whether only that mail cannot be had
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
ASK_SECONDS: Final = 15.0  # mail waits meanwhile
KEPT: Final = timedelta(days=1)  # an Agent User never signs in anew, and is given other addresses all the same
TROUBLED: Final = timedelta(minutes=5)
# The second for accounts that have no such property: a personal one refuses to be asked for it.
_ADDRESS_FORMS: Final[tuple[Mapping[str, str], ...]] = (
    {"$select": "mail,userPrincipalName,proxyAddresses"},
    {"$select": "mail,userPrincipalName"},
)
_PASSING: Final = (Unavailable, NotFound)  # an account that was made just now is not known everywhere yet
_BY_MAIL: Final = "smtp:"  # in upper case the one that is written from; others lead elsewhere, such as `sip:`
_log = logging.getLogger("harken.sources.microsoft")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookCheckpoint:
    """How far a folder was read. Without a link it is read anew, from `since` on."""

    link: str = ""
    since: datetime = _BEGINNING
    heard: datetime = _BEGINNING
    known: tuple[str, ...] = ()  # ids of mails that came in the very second of `since`, before anybody listened
    account: str = ""  # whose folder it is; empty: it was not known

    def text(self) -> str:
        """Return it as a checkpoint."""
        written = _OutlookRecord(_VERSION, self.link, self.since, self.heard, self.known, self.account)
        return checkpoint_of(written)

    def is_of(self, account: str) -> bool:
        """Whether it is a place of this account, as far as both are known."""
        return not self.account or not account or self.account == account

    def news(self, rows: Sequence[OutlookRow]) -> list[OutlookRow]:
        """Return the mails that are to be heard, each once, oldest first."""
        oldest = self.since if self.link else max(self.since, _before(self.heard))
        once = {row.id: row for row in rows if row.id not in self.known}
        news = [row for row in once.values() if row.received_at is None or row.received_at >= oldest]
        return sorted(news, key=lambda row: (row.received_at or oldest, row.id))

    def after(self, rows: Iterable[OutlookRow], link: str, present: datetime) -> OutlookCheckpoint:
        """Return the place behind these changes. A mail that claims to be from the future moves nothing."""
        times = [row.received_at for row in rows if row.received_at is not None and row.received_at <= present]
        return replace(self, link=link, heard=max([self.heard, *times]))

    def begin_again(self) -> OutlookCheckpoint:
        """Return the place without its link, which the service does not know any more."""
        return replace(self, link="")


def first_place(rows: Sequence[OutlookRow], started: datetime) -> OutlookCheckpoint:
    """Return where listening begins, told everything that a folder held and when we began to ask."""
    old = [row for row in rows if row.received_at is not None and row.received_at < started]
    newest = max((row.received_at for row in old if row.received_at is not None), default=_BEGINNING)
    known = tuple(row.id for row in old if row.received_at == newest)[:MAX_KNOWN]
    return OutlookCheckpoint(since=newest, heard=newest, known=known)


def read_place(checkpoint: str) -> OutlookCheckpoint | None:
    """Return the place that a checkpoint names, or None if it names none."""
    read = read_checkpoint(checkpoint, _OutlookRecord)
    if read is None:
        return None
    if read.version != _VERSION or read.since.tzinfo is None or read.heard.tzinfo is None:
        return None
    return OutlookCheckpoint(link=read.link, since=read.since, heard=read.heard, known=read.known, account=read.account)


class _OutlookRecord(msgspec.Struct, array_like=True):
    version: int
    link: str
    since: datetime
    heard: datetime
    known: tuple[str, ...] = ()
    account: str = ""


def _before(moment: datetime) -> datetime:
    return max(_BEGINNING, moment - OVERLAP) if moment > _BEGINNING else _BEGINNING


@dataclass(frozen=True, slots=True)
class _OutlookAccount:
    """The account of the mail: how it is asked for, what was sent from there, and which sign-in holds since when."""

    settings: OutlookSettings
    client: GraphClient
    sent: SentMessages
    me: Callable[[], str]
    addresses: OwnAddresses
    since: Callable[[], datetime | None]


@dataclass(frozen=True, slots=True)
class _OutlookRound:
    """What one look found: the mails to read, and the place behind them."""

    news: Sequence[OutlookRow]
    place: OutlookCheckpoint


class OutlookSource(AccountSource[OutlookSettings, "OutlookFolderFeed"]):
    """The mail of one account."""

    def __init__(
        self,
        settings: OutlookSettings,
        client: GraphClient,
        clock: Clock,
        sent: SentMessages,
        me: Callable[[], str],
        *,
        upn: Callable[[], str] = str,
        since: Callable[[], datetime | None] = lambda: None,
        timing: FeedTiming | None = None,
    ) -> None:
        addresses = OwnAddresses(settings, client, clock, me=me, since=since, upn=upn)
        account = _OutlookAccount(settings, client, sent, me, addresses, since)
        timing = timing or FeedTiming()
        super().__init__(settings, [OutlookFolderFeed(folder, account, clock, timing) for folder in settings.folders])

    def topics(self) -> tuple[ChangeTopic, ...]:
        """Return what Microsoft can tell it of: what comes into each folder."""
        return tuple(ChangeTopic(feed.resource, "created", feed.tidings) for feed in self.feeds())


class OutlookFolderFeed(RecordedFeed):
    """The mail that comes into one folder."""

    def __init__(self, folder: str, account: _OutlookAccount, clock: Clock, timing: FeedTiming) -> None:
        super().__init__(folder, clock)
        self._folder = folder
        self._settings = account.settings
        self._client = account.client
        self._sent = account.sent
        self._me = account.me
        self._addresses = account.addresses
        self._since = account.since
        self._clock = clock
        self._timing = timing
        self.tidings = ChangeSignal()

    def resource(self) -> str:
        """Return what Graph calls the mail of the folder."""
        return f"/me/mailFolders({quoted(self._folder)})/messages"

    async def follow(self, checkpoint: str) -> AsyncGenerator[Batch, None]:
        """Yield the mails that come, look by look; the first look only learns what was there before."""
        self._health.begins()
        place = read_place(checkpoint)
        if checkpoint and place is None:
            self._health.lost()
        try:
            while True:
                found = await self._steadily(partial(self._look, place))
                for begin in range(0, len(found.news), MAX_AT_ONCE):
                    yield Batch(drafts=await self._drafts(found.news[begin : begin + MAX_AT_ONCE]))
                if not found.place.is_of(self._me()):
                    continue  # somebody else signed in meanwhile: what was asked for since is not theirs
                if found.place != place:
                    yield Batch(checkpoint=found.place.text())
                place = found.place
                self.tidings.found(len(found.news))
                self._health.listens()
                self._health.looked(self.tidings.seconds(self._settings.poll))
                await self.tidings.rest(self._timing.wait, self._settings.poll)
        except NeedsPerson as error:
            self._health.needs_person(error)
            raise
        finally:
            self._health.stops()

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
                self._health.retries(error.message, seconds)
                await self._timing.wait(seconds)

    async def _look(self, place: OutlookCheckpoint | None, _failures: int) -> _OutlookRound:
        if place is None or not place.is_of(self._me()):
            return await self._begin()
        try:
            rows, link = await (self._rows(place.link) if place.link else self._all_rows())
        except (PositionGone, NotFound, UserError, Forbidden):
            # Too old, of another address, or of a folder that was made anew: only a new beginning tells.
            place = place.begin_again()
            rows, link = await self._all_rows()
        if not place.is_of(self._me()):
            return await self._begin()
        place = replace(place, account=place.account or self._me())
        return _OutlookRound(place.news(rows), place.after(rows, link, self._clock.now()))

    async def _begin(self) -> _OutlookRound:
        """Learn what is there before the source listens: for the first time, or after another sign-in."""
        # The service tells whole seconds: what came in the second in which we begin, comes after.
        started = self._beginning().replace(microsecond=0)
        rows, link = await self._all_rows()
        news = [row for row in rows if row.received_at is not None and row.received_at >= started]
        first = replace(first_place(rows, started), account=self._me())
        return _OutlookRound(_in_order(news), first.after(news, link, self._clock.now()))

    def _beginning(self) -> datetime:
        """Return from when on mail is heard: since the sign-in, which may have been before the first look."""
        now = self._clock.now()
        since = self._since()
        # A folder may be named long after the sign-in: nobody wants all that came into it meanwhile.
        return now if since is None else max(since, now - OVERLAP)

    async def _all_rows(self) -> tuple[list[OutlookRow], str]:
        path = f"/me/mailFolders/{part(self._folder)}/messages/delta"
        try:
            return await self._rows(path, _CHANGES)
        except PositionGone as gone:
            raise Unavailable(
                "Microsoft dropped the state of the folder during reading.", "Harken reads it again"
            ) from gone
        except (NotFound, UserError, Forbidden) as error:
            raise NeedsPerson(
                f"The mail folder {self._folder} cannot be read: {error.message}",
                "name a folder as Microsoft does, for example inbox or archive, or by its id",
                action=f"check folders of the source {self._settings.name}",
            ) from error

    async def _rows(self, path: str, params: Mapping[str, str] | None = None) -> tuple[list[OutlookRow], str]:
        """Return everything that one round of changes names, and the link to the next round."""
        rows: list[OutlookRow] = []
        link: object = None
        prefer = {"Prefer": f"odata.maxpagesize={PAGE}"}
        pages = self._client.pages(path, params, lane=LANE, most_pages=MAX_PAGES, headers=prefer)
        async with aclosing(pages):
            async for page in pages:
                value = page.get("value")
                rows += [row for item in (value if isinstance(value, list) else ()) if (row := row_of(item))]
                link = page.get(DELTA_LINK)
        if not isinstance(link, str) or not link:
            raise Unavailable("The list of changes of a mail folder does not end.", "Harken reads it again")
        return rows, link

    async def _drafts(self, rows: Sequence[OutlookRow]) -> list[Draft]:
        await self._addresses.learn()
        read = [await self._steadily(partial(self._draft, row)) for row in rows]
        return [draft for draft in read if draft is not None]

    async def _draft(self, row: OutlookRow, failures: int) -> Draft | None:
        try:
            mail = await (self._mail(row) if failures < MAX_FAILURES else self._broken_mail(row))
        except MissingScope:
            raise
        except (NeedsPerson, Unavailable) as error:
            if (isinstance(error, Unavailable) and failures < MAX_TRIES) or not await self._is_readable():
                raise
            # Only this mail cannot be had: others wait behind it, and the person must know of it.
            mail = unread(row)
        if mail is None:
            return None
        draft = draft_of(
            mail,
            source=self._settings.name,
            folder=self._folder,
            addresses=self._addresses.read(),
            trusts_from=self._settings.trust_from,
        )
        return None if draft is not None and await self._is_ours(mail, draft) else draft

    async def _mail(self, row: OutlookRow) -> Json | None:
        """Return a mail, as much of it as can be read; None if it is not there any more."""
        path = f"/me/messages/{part(row.id)}"
        for form in _FORMS:
            try:
                mail = await self._client.get(path, form, lane=LANE)
                break
            except (NotFound, PositionGone):
                return None
            except UserError:
                continue
        else:
            return unread(row)
        if is_invitation(mail):
            with suppress(NotFound, PositionGone, UserError):
                return {**await self._client.get(path, _MEETING, lane=LANE), **mail}
        return mail

    async def _broken_mail(self, row: OutlookRow) -> Json | None:
        """Return the outside of a mail if that can be read and the rest still cannot: others wait behind it."""
        try:
            outside = await self._client.get(f"/me/messages/{part(row.id)}", _OUTSIDE, lane=LANE)
        except (NotFound, PositionGone):
            return None
        try:
            return await self._mail(row)
        except Unavailable:
            return outside

    async def _is_readable(self) -> bool:
        """Whether the folder itself answers: then what does not is one mail and not the account."""
        try:
            asked = {"$select": "id", "$top": "1"}
            await self._client.get(f"/me/mailFolders/{part(self._folder)}/messages", asked, lane=LANE)
        except (NeedsPerson, Unavailable, NotFound, PositionGone, UserError):
            return False
        return True

    async def _is_ours(self, mail: Json, draft: Draft) -> bool:
        """Whether a mail is an answer of ours that came back: one that we know of, from the account itself.

        Any sender can write its id and its last line, so the very mail must also be among the sent ones.
        """
        own = own_id(mail)
        is_known = self._sent.has(own) or self._sent.has(closing_id_of(mail))
        if not own or not is_known or draft.sender.id.startswith(UNVERIFIED):
            return False
        params = {"$filter": f"internetMessageId eq {quoted(own)}", "$select": "id,from", "$top": "1"}
        with suppress(NotFound, PositionGone, UserError):
            found = (await self._client.get(SENT, params, lane=LANE)).get("value")
            copies = found if isinstance(found, list) else []
            return any(isinstance(copy, dict) and address_of(copy) == address_of(mail) for copy in copies)
        return False


def _in_order(rows: Sequence[OutlookRow]) -> list[OutlookRow]:
    return OutlookCheckpoint().news(rows)


def make_source(entry: SourceEntry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)

    def parts(account: MicrosoftAccount, sent: SentMessages) -> AccountParts:
        client, sign_in = account.client, account.sign_in
        source = OutlookSource(
            settings, client, entry.clock, sent, sign_in.me, upn=lambda: sign_in.person.upn, since=sign_in.since
        )
        return AccountParts(source, source.topics(), OutlookSender(settings, client, sent, entry.clock))

    return make_signed_in(settings, entry, parts)


def sign_in(entry: SourceEntry) -> PersonSignIn:
    """Return how a person signs in to the account of an entry."""
    return PersonSignIn(open_account(read_settings(entry.name, entry.table), entry))


def check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    """Look into each folder once."""
    settings = read_settings(entry.name, entry.table)

    async def look(account: MicrosoftAccount) -> str:
        said: list[str] = []
        for folder in settings.folders:
            asked = {"$select": "createdDateTime", "$orderby": "receivedDateTime desc", "$top": "1"}
            page = await account.client.get(f"/me/mailFolders/{part(folder)}/messages", asked, lane="mailbox")
            rows = items(page)
            last = f"the last mail {moment_of(rows[0], entry.clock.now())}" if rows else "no mail"
            said.append(f"{folder}: {last}")
        return f"{', '.join(said)}."

    return check_account(settings, entry, context, look)


class OwnAddresses:
    """The addresses of the account that is signed in. `upn` is the name it signed in with, empty if unknown."""

    def __init__(
        self,
        settings: OutlookSettings,
        client: GraphClient,
        clock: Clock,
        *,
        me: Callable[[], str],
        since: Callable[[], datetime | None],
        upn: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._me = me
        self._since = since
        self._upn = upn
        self._asking = anyio.Lock()
        self._asked_of: tuple[str, datetime | None] | None = None
        self._again_at: datetime | None = None
        self._told: frozenset[str] = frozenset()

    def read(self) -> frozenset[str]:
        """Return what is known now of the account that is signed in now."""
        told = self._told if self._asked_of == self._sign_in() else frozenset[str]()
        return told.union(self._settings.addresses, filter(None, [mail_address(self._upn())]))

    async def learn(self) -> None:
        """Ask for them, unless that was done for this sign-in; on an error, what is known stays."""
        async with self._asking:
            sign_in = self._sign_in()
            if sign_in == self._asked_of and self._again_at is not None and self._clock.now() < self._again_at:
                return
            found = await self._ask()
            if self._sign_in() != sign_in:
                return  # somebody else signed in meanwhile: whose they are nobody can say
            is_first = sign_in != self._asked_of
            self._asked_of, self._told = sign_in, frozenset() if is_first else self._told
            self._again_at = self._clock.now() + (TROUBLED if isinstance(found, _PASSING) else KEPT)
            if not isinstance(found, HarkenError):
                self._told = found
            elif is_first:
                name = self._settings.name
                _log.info("%s: Microsoft does not tell the addresses of the account: %s", name, found.message)

    def _sign_in(self) -> tuple[str, datetime | None]:
        return self._me(), self._since()

    async def _ask(self) -> frozenset[str] | HarkenError:
        found: frozenset[str] | HarkenError = Unavailable("It does not answer in time.", "Harken asks again")
        with anyio.move_on_after(ASK_SECONDS):
            for form in _ADDRESS_FORMS:
                try:
                    return addresses_in(await self._client.get("/me", form))
                except UserError as error:
                    found = error
                except HarkenError as error:
                    return error
        return found


def addresses_in(told: Json) -> frozenset[str]:
    """Return the mail addresses in what the service says of an account; what is none is left out."""
    proxies = told.get("proxyAddresses")
    listed = proxies[:MAX_ADDRESSES] if isinstance(proxies, list) else []
    by_mail = [each[len(_BY_MAIL) :] for each in listed if isinstance(each, str) and _is_by_mail(each)]
    texts = [told.get("mail"), told.get("userPrincipalName"), *by_mail]
    return frozenset(filter(None, (mail_address(text) for text in texts if isinstance(text, str))))


def _is_by_mail(proxy: str) -> bool:
    return proxy[: len(_BY_MAIL)].lower() == _BY_MAIL
