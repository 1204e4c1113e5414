"""Answers in the chats of Teams, each once, and the places that are held for them.

Graph takes no key that would make a second try the same message: after a try that may have worked, the chat is looked
through with `SentLookup` for what was sent. `ChatLocks` lets one at a time write in a chat. Above is the outbox.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, NotFound, Unavailable, Uncertain, UserError
from harken.model import Message, MessageId, OutgoingReply, timestamp
from harken.sources.http import part
from harken.sources.microsoft.client import CHAT, NEXT_LINK, GraphClient
from harken.sources.microsoft.responses import OutcomeUnknown
from harken.sources.microsoft.sent import SentMessages, reference, words
from harken.sources.payload import Json, items, text_of, within
from harken.sources.teams.messages import (
    ANSWERED_ELSEWHERE,
    NOT_ANSWERED,
    ReplyContent,
    answer,
    place_mark,
    sender_of,
    standing_in,
    upstream_id,
    whom_to_name,
)
from harken.sources.teams.settings import TeamsSettings

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
