"""The chats of Teams as a source: one feed that asks for the list of chats every few seconds, and reads what changed.

Each batch comes with the checkpoint that follows it, so the next start of the daemon goes on there; what was read and
not stored is read again. Microsoft's failures are waited out here; only what a person must do is raised. Which chats
are read and what they say is decided in `polling.py`.

`TeamsSender` sends answers into the chats, each once, and holds places for them. Graph takes no key that would make a
second try the same message: after a try that may have worked, the chat is looked through with `SentLookup` for what was
sent. `ChatLocks` lets one at a time write in a chat. Above are `daemon/source_set.py` and the outbox.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, NeedsPerson, NotFound, Unavailable, Uncertain, UserError
from harken.model import Message, MessageId, OutgoingReply, timestamp
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
from harken.sources.microsoft.client import CHAT, NEXT_LINK, GraphClient, GraphTiming
from harken.sources.microsoft.notifications import ChangeSignal, ChangeTopic
from harken.sources.microsoft.responses import OutcomeUnknown
from harken.sources.microsoft.sent import SentMessages, reference, words
from harken.sources.payload import Json, items, text_of, within
from harken.sources.source import Batch, Source, SourceEntry
from harken.sources.teams.messages import (
    ANSWERED_ELSEWHERE,
    NOT_ANSWERED,
    ReplyContent,
    TeamsChat,
    answer,
    place_mark,
    sender_of,
    standing_in,
    upstream_id,
    whom_to_name,
)
from harken.sources.teams.polling import ChatPoll
from harken.sources.teams.settings import TeamsSettings, read_settings

FEW_PAGES: Final = 4  # where nothing can be there that must be found
MAX_PAGES: Final = 100
MAX_REMEMBERED: Final = 1_000  # answers and places
MAX_CLEARED: Final = 3  # of one message: each daemon that ended may have left one
LOOK_AGAIN_SECONDS: Final = 15.0
SETTLED: Final = timedelta(seconds=60)  # by then a try that got no answer is in the chat, or will never be

_SKEW: Final = timedelta(hours=1)  # how far our clock may be from the service's
_PLACED: Final = timedelta(hours=3)  # how long before an answer its place may have been held


@dataclass(slots=True)
class _ChatLock:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class ChatLocks:
    """Which reply is next in each chat. A chat without one is not remembered."""

    def __init__(self) -> None:
        self._turns: dict[str, _ChatLock] = {}

    @asynccontextmanager
    async def of(self, chat_id: str) -> AsyncIterator[None]:
        """Have a chat for oneself until the block ends."""
        turn = self._turns.setdefault(chat_id, _ChatLock())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[chat_id]


@dataclass(frozen=True, slots=True)
class SentLookup:
    """Ids of what was found. `is_whole` is false if nothing was found, and not everything was looked at."""

    answer: str = ""
    place: str = ""
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SentQuery:
    """What is looked for: its account, its references, and after when it must have been written."""

    chat_id: str
    author: str
    answer: str  # its reference; empty: only the place
    places: Collection[str]  # what may stand in its place, as it was written
    after: datetime
    most_pages: int
    but: frozenset[str] = frozenset()  # ids of what stands in no place, whatever the service shows of it still


async def find_trace(client: GraphClient, wanted: SentQuery) -> SentLookup:
    """Return what a chat holds, the newest first: an answer is newer than its place."""
    params = {
        "$top": "50",
        "$orderby": "lastModifiedDateTime desc",
        "$filter": f"lastModifiedDateTime gt {timestamp(wanted.after)}",
    }
    lane = f"{CHAT}{wanted.chat_id}"
    path = f"/chats/{part(wanted.chat_id)}/messages"
    has_more = False
    async with aclosing(client.pages(path, params, lane=lane, most_pages=wanted.most_pages)) as pages:
        async for page in pages:
            ours = [message for message in items(page) if _is_of(wanted.author, message)]
            found = SentLookup(_ending_with(ours, wanted.answer), _saying(ours, wanted.places, wanted.but))
            if found != SentLookup():
                return found
            has_more = NEXT_LINK in page
    return SentLookup(is_whole=not has_more)


def _is_of(author: str, message: Json) -> bool:
    sender = sender_of(message)
    return sender is not None and sender.id == author and not text_of(message, "deletedDateTime")


def _ending_with(messages: Sequence[Json], mark: str) -> str:
    """Return the id of the first message that ends with a reference, or nothing."""
    wanted = words(mark)
    return next((text_of(each, "id") for each in messages if wanted and _words_of(each).endswith(wanted)), "")


def _saying(messages: Sequence[Json], texts: Collection[str], but: Collection[str]) -> str:
    """Return the id of the first message that says one of these and nothing else, or nothing."""
    wanted = {words(text) for text in texts}
    found = (text_of(each, "id") for each in messages if _words_of(each) in wanted)
    return next((own for own in found if own not in but), "")


def _words_of(message: Json) -> str:
    return words(text_of(within(message, "body"), "content"))


class TeamsSender:
    """Answers in the chats of one account."""

    def __init__(
        self, settings: TeamsSettings, client: GraphClient, sent: SentMessages, me: Callable[[], str], clock: Clock
    ) -> None:
        self._settings = settings
        self._client = client
        self._sent = sent
        self._me = me
        self._clock = clock
        self._answers: dict[MessageId, str] = {}  # that were begun, with their ids as soon as they are in the chat
        self._held: dict[MessageId, str] = {}  # ids of what we put into places, which a look may not show at once
        self._turns = ChatLocks()

    async def send(self, reply: OutgoingReply) -> str:
        """Send a reply once and return its upstream id; raises `Uncertain` if it may be there and is not found."""
        chat_id = self._chat_of(reply.to)
        mark = reference(reply.key)
        named = whom_to_name(reply.to, self._account())
        is_for_person = not (self._settings.is_agent or reply.is_by_owner)
        content = answer(reply.body, mark, is_for_person=is_for_person, named=named)
        async with self._turns.of(chat_id):
            _remember(self._answers, reply.to.id, self._answers.get(reply.to.id, ""))
            found = await self._look_for(reply, mark)
            place = found.place or self._held.get(reply.to.id, "")
            if found.answer:
                own = found.answer
                await self._take_back(chat_id, found.place)
            else:
                self._check_settled(reply, found)
                own = await (self._put_in(reply, place, content, mark) if place else self._post(reply, content, mark))
            self._held.pop(reply.to.id, None)
            _remember(self._answers, reply.to.id, own)
        own_id = upstream_id(chat_id, own)
        self._sent.note(own_id)
        return own_id

    async def hold_place(self, message: Message) -> None:
        """Say in the chat of a message that an agent works on it, once, unless it is being answered."""
        chat_id = self._chat_of(message)
        async with self._turns.of(chat_id):
            if not self._settings.placeholder or message.id in self._answers:
                return
            place = (await self._look_for_place(message)).place
            if not place:
                content = self._standing_in(message, self._settings.placeholder)
                with self._sent.pending(content.html):
                    place = await self._posted(chat_id, content, f"placeholder:{message.id}", _noted_nowhere)
                    place = place or (await self._look_for_place(message)).place
                    if not place:
                        raise _uncertain()
                    self._sent.note(upstream_id(chat_id, place))
            _remember(self._held, message.id, place)

    async def leave_place(self, message: Message) -> None:
        """Say where an answer was promised that there is none yet; one that comes later is still edited in."""
        chat_id = self._chat_of(message)
        async with self._turns.of(chat_id):
            # Never over an answer: what we remember to stand there may have become one by a try that got no answer.
            if self._answers.get(message.id):
                return
            if place := (await self._look_for_place(message)).place:
                await self._edit(chat_id, place, self._standing_in(message, NOT_ANSWERED), _noted_nowhere)

    async def clear_place(self, message: Message, answers: Collection[str]) -> None:
        """Delete what promises an answer that is elsewhere in the chat, or say so where it cannot be deleted."""
        chat_id = self._chat_of(message)
        async with self._turns.of(chat_id):
            # The service may still show as a placeholder what an edit has made the answer.
            stay = {each.removeprefix(upstream_id(chat_id, "")) for each in answers} | {
                self._answers.get(message.id, "")
            }
            for _ in range(MAX_CLEARED):
                place = (await self._look_for_place(message, frozenset(stay))).place
                if not place:
                    return
                stay.add(place)
                try:
                    await self._delete(chat_id, place)
                except (Unavailable, OutcomeUnknown):
                    raise
                except NotFound:
                    continue  # somebody else took it away
                except HarkenError:
                    await self._edit(chat_id, place, self._standing_in(message, ANSWERED_ELSEWHERE), _noted_nowhere)

    def _standing_in(self, message: Message, text: str) -> ReplyContent:
        return standing_in(text, place_mark(message.id), is_for_person=not self._settings.is_agent)

    def _chat_of(self, message: Message) -> str:
        if message.source != self._settings.name or not message.conversation:
            raise Forbidden("This message did not come from a chat of this account.", "answer it where it came from")
        return message.conversation

    def _account(self) -> str:
        """Return the account: without it, an answer that is there already could not be told."""
        if me := self._me():
            return me
        raise Unavailable("It is not known yet who is signed in.", "Harken tries again", retry_after=LOOK_AGAIN_SECONDS)

    def _check_settled(self, reply: OutgoingReply, found: SentLookup) -> None:
        """Let nothing be sent that an earlier try may still send, or may have sent unseen."""
        if reply.tried_at is not None and (abs(self._clock.now() - reply.tried_at) < SETTLED or not found.is_whole):
            raise _uncertain()

    async def _put_in(self, reply: OutgoingReply, place: str, content: ReplyContent, mark: str) -> str:
        """Edit the answer into its place. Only if that is refused for good it becomes a message of its own."""
        chat_id = reply.to.conversation
        try:
            await self._edit(chat_id, place, content, reply.hand_over)
        except OutcomeUnknown:
            if found := (await self._look_for(reply, mark)).answer:
                return found
            raise _uncertain() from None
        except Unavailable:
            raise
        except HarkenError:
            # The place is gone, or it cannot be edited here, as in chats with other organisations.
            own = await self._post(reply, content, mark)
            await self._take_back(chat_id, place)
            return own
        return place

    async def _edit(
        self, chat_id: str, message_id: str, content: ReplyContent, hand_over: Callable[[], Awaitable[None]]
    ) -> None:
        path = f"/chats/{part(chat_id)}/messages/{part(message_id)}"
        self._sent.note(upstream_id(chat_id, message_id))

        async def write(body: Json) -> Json:
            await hand_over()
            return await self._client.patch(path, body, lane=f"{CHAT}{chat_id}")

        await _write(write, content)

    async def _take_back(self, chat_id: str, message_id: str) -> None:
        """Delete what stands in the place of an answer that is elsewhere, if that can be done."""
        if message_id:
            with suppress(HarkenError):
                await self._delete(chat_id, message_id)

    async def _delete(self, chat_id: str, message_id: str) -> None:
        path = f"/users/{part(self._account())}/chats/{part(chat_id)}/messages/{part(message_id)}/softDelete"
        self._sent.note(upstream_id(chat_id, message_id))
        await self._client.post(path, {}, lane=f"{CHAT}{chat_id}")

    async def _post(self, reply: OutgoingReply, content: ReplyContent, mark: str) -> str:
        chat_id = reply.to.conversation
        with self._sent.pending(content.html), self._sent.pending(content.plain):
            own = await self._posted(chat_id, content, reply.key, reply.hand_over)
            own = own or (await self._look_for(reply, mark)).answer
            if own:
                # While it is still expected, so that there is no moment at which nobody knows it.
                self._sent.note(upstream_id(chat_id, own))
                return own
        raise _uncertain()

    async def _posted(
        self, chat_id: str, content: ReplyContent, key: str, hand_over: Callable[[], Awaitable[None]]
    ) -> str:
        """Send a message and return its id; nothing if it is not known whether it was sent."""
        request_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"harken:{key}"))
        path = f"/chats/{part(chat_id)}/messages"

        async def write(body: Json) -> Json:
            await hand_over()
            return await self._client.post(path, body, lane=f"{CHAT}{chat_id}", request_id=request_id)

        try:
            return text_of(await _write(write, content), "id")
        except OutcomeUnknown:
            return ""

    async def _look_for(self, reply: OutgoingReply, mark: str) -> SentLookup:
        """Look for a reply: it is newer than what it answers and, but for how clocks differ, than its row."""
        after = _said_at(reply.to)
        if reply.created_at is not None:
            after = max(after, reply.created_at - (_PLACED if self._settings.placeholder else _SKEW))
        return await self._look(reply.to, mark, after, FEW_PAGES if reply.tried_at is None else MAX_PAGES)

    async def _look_for_place(self, message: Message, but: frozenset[str] = frozenset()) -> SentLookup:
        return await self._look(message, "", _said_at(message), FEW_PAGES, but)

    async def _look(
        self, to: Message, mark: str, after: datetime, most_pages: int, but: frozenset[str] = frozenset()
    ) -> SentLookup:
        wanted = SentQuery(
            chat_id=to.conversation,
            author=self._account(),
            answer=mark,
            # All of what we wrote there: in a person's name, they may have quoted it under words of their own.
            places=frozenset(
                self._standing_in(to, text).html for text in (self._settings.placeholder, NOT_ANSWERED) if text
            ),
            after=after,
            most_pages=most_pages,
            but=but,
        )
        return await find_trace(self._client, wanted)


async def _write(write: Callable[[Json], Awaitable[Json]], content: ReplyContent) -> Json:
    """Write a text; if it is refused with the name of a person in it, without."""
    try:
        return await write(content.json)
    except UserError:
        if not content.mentions:
            raise
    return await write(content.plain_json)


async def _noted_nowhere() -> None:
    """Do nothing: what stands in the place of an answer may be written again."""


def _said_at(message: Message) -> datetime:
    return message.sent_at or message.received_at - _SKEW


def _uncertain() -> Uncertain:
    return Uncertain(
        "It is not certain yet whether the reply is in the chat.",
        "Harken looks for it, and sends it again if it is not there",
        retry_after=LOOK_AGAIN_SECONDS,
    )


def _remember(known: dict[MessageId, str], message: MessageId, upstream: str) -> None:
    known[message] = upstream
    if len(known) > MAX_REMEMBERED:
        del known[next(iter(known))]


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
