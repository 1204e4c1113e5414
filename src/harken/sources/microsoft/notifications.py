"""Change notifications of Microsoft Graph: asked for, renewed, received, and passed on to the feeds.

`Subscriptions` asks Microsoft to tell of changes and renews that, `NoticeDoor` takes what it posts, and `ChangeSignal`
is what a feed waits on between two looks: the time, or a notice. While notices come, the time between two looks is
long; it is kept only as a net for what got lost. When the net finds something that no notice told of, the feed goes
back to its usual pace until the next notice.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from harken.clock import Clock
from harken.errors import Forbidden, HarkenError, NotFound, Unavailable, UserError
from harken.model import Draft, timestamp
from harken.sources.feed import doubled
from harken.sources.http import part
from harken.sources.microsoft.client import GraphClient, GraphTiming
from harken.sources.microsoft.settings import GraphSettings
from harken.sources.payload import Json, iso_moment, items, text_of
from harken.sources.source import Accept, Batch, DoorAnswer, PostedRequest

FOLDER: Final = "/graph/"

_Account = TypeVar("_Account", bound=GraphSettings)

NET_SECONDS: Final = 300.0  # between two looks while word comes
FOLD_SECONDS: Final = 1.0  # word that comes while the feed looks is folded into one more look, so much later
MAX_CHATS: Final = 200

Wait: TypeAlias = Callable[[float], Awaitable[None]]

MAX_BYTES: Final = 262_144
MAX_TOKEN_CHARS: Final = 1_024
MAX_ENTRIES: Final = 1_000  # anybody can post; each is compared with each secret
ACCEPTED: Final = 202

_CHAT: Final = re.compile(r"chats\('([^'/]{1,256})'\)/messages\b", re.IGNORECASE)

FEED: Final = "notices"
# Microsoft allows three days for chats and seven for mail. What nobody could delete should not be told for that long.
LIFE: Final = timedelta(hours=24)
MIN_LIFE: Final = timedelta(minutes=2)
LOOK_SECONDS: Final = 60.0  # a machine that slept does not know that time has passed
FIRST_RETRY_SECONDS: Final = 60.0
LAST_RETRY_SECONDS: Final = 900.0
MIN_GAP: Final = timedelta(seconds=10)  # however often Microsoft asks
MAX_PAGES: Final = 3
MAX_LEFTOVERS: Final = 10
END_SECONDS: Final = 2.0
SECRET_BYTES: Final = 32

_PATH: Final = "/subscriptions"
_REMOVED: Final = "subscriptionRemoved"
_CHALLENGE: Final = "reauthorizationRequired"

_log = logging.getLogger("harken.sources.microsoft")


def path_of(name: str) -> str:
    """Return the path of the door of a source."""
    return f"{FOLDER}{name}"


def with_notices(settings: _Account, public_url: str) -> _Account:
    """Return the settings with the address that Microsoft posts to, if it shall; raises `UserError` if it cannot."""
    if not settings.notifications:
        return settings
    if not public_url.startswith("https://"):
        raise UserError(
            f"sources.{settings.name}.notifications needs an https address at which Microsoft reaches this machine.",
            "Set hooks.public_url to that of your tunnel or reverse proxy, or take notifications out.",
        )
    return replace(settings, notice_url=f"{public_url.rstrip('/')}{path_of(settings.name)}")


class InterruptibleWait:
    """A wait that can be ended from elsewhere, also before it begins. One task waits."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None
        self.is_ended = False

    def end(self) -> None:
        """End the wait, or the next one if there is none."""
        self.is_ended = True
        if self._scope is not None:
            self._scope.cancel()

    async def take(self, wait: Wait, seconds: float) -> bool:
        """Wait, and return whether it was ended before its time."""
        if not self.is_ended:
            try:
                with anyio.CancelScope() as self._scope:
                    await wait(seconds)
            finally:
                self._scope = None
        was_ended, self.is_ended = self.is_ended, False
        return was_ended


class ChangeSignal:
    """Word of changes for one feed, and whether it can be relied upon."""

    def __init__(self) -> None:
        self._rest = InterruptibleWait()
        self._chats: set[str] = set()
        self._is_subscribed = False
        self._is_doubted = False
        self._was_told = False  # the look that goes on, or went on last, follows a word
        self._was_net = False  # it follows a long wait in which no word came
        self._is_whole = True

    @property
    def works(self) -> bool:
        """Whether Microsoft tells of changes, as far as is known."""
        return self._is_subscribed and not self._is_doubted

    @property
    def is_doubted(self) -> bool:
        """Whether something was found lately that no notification told of."""
        return self._is_subscribed and self._is_doubted

    def begins(self) -> None:
        """Take note that word will come from now on; what changed before is looked for at once."""
        self._is_subscribed, self._is_doubted = True, False
        self._rest.end()

    def ends(self) -> None:
        """Take note that no word will come."""
        if self._is_subscribed:
            self._is_subscribed = False
            self._rest.end()

    def tell(self, chat_id: str = "") -> None:
        """Pass on that something changed, in this chat if one is named."""
        self._is_doubted = False
        if chat_id and len(self._chats) < MAX_CHATS:
            self._chats.add(chat_id)
        self._rest.end()

    def take(self) -> frozenset[str]:
        """Return the chats that were named since the last look, which begins now."""
        chats = frozenset(self._chats)
        self._chats.clear()
        return chats

    def found(self, count: int, *, is_whole: bool = True) -> None:
        """Take note of how much a look found that is new, and whether it read all that it should."""
        self._is_whole = is_whole
        if count and self._was_net:
            self._is_doubted = True

    def seconds(self, usual: float) -> float:
        """Return how long the feed will wait if no word comes."""
        return max(NET_SECONDS, usual) if self._can_wait else usual

    @property
    def _can_wait(self) -> bool:
        # After a word once more at the usual pace: it can come before what it is about can be read.
        return self.works and self._is_whole and not self._was_told

    async def rest(self, wait: Wait, usual: float) -> None:
        """Wait until the next look is due."""
        if self._rest.is_ended:
            await wait(min(FOLD_SECONDS, usual))
            self._rest.is_ended = False
            self._was_told, self._was_net = True, False
            return
        is_net = self._can_wait
        self._was_told = await self._rest.take(wait, self.seconds(usual))
        self._was_net = is_net and not self._was_told


@dataclass(frozen=True, slots=True)
class ChangeTopic:
    """What a feed is told of: a resource of Graph, and which changes."""

    resource: Callable[[], str]
    changes: str
    tidings: ChangeSignal


class _Notice(msgspec.Struct, rename="camel"):
    client_state: str | None = None
    lifecycle_event: str | None = None
    resource: str | None = None


class _NoticeBody(msgspec.Struct):
    value: list[_Notice]


@dataclass(frozen=True, slots=True)
class NoticeListener:
    """Who is told by the posts that carry a secret: of a change, in a chat if one is named, or of its own event."""

    secret: Callable[[], str]  # empty: there is none, and nothing carries it
    changed: Callable[[str], None]
    happened: Callable[[str], None]


class NoticeDoor:
    """The door of one source."""

    def __init__(self, name: str, listeners: Sequence[NoticeListener]) -> None:
        self._path = path_of(name)
        self._listeners = listeners
        self.refusals = 0

    @property
    def path(self) -> str:
        """Its path."""
        return self._path

    @property
    def max_bytes(self) -> int:
        """How long a body may be."""
        return MAX_BYTES

    async def take(self, posted: PostedRequest, _accept: Accept) -> DoorAnswer:
        """Answer the handshake, or pass word on; raises `Forbidden` if none of it carries a secret of ours."""
        token = posted.query.get("validationToken")
        if token is not None:
            return _said_back(token)
        entries = _read(posted.body)
        if len(entries) > MAX_ENTRIES:
            raise UserError("There are more notifications than Microsoft sends at once.", "nothing was done")
        heard = [self._hear(entry) for entry in entries]
        if not any(heard):
            self.refusals += 1
            raise Forbidden("It does not prove that Microsoft sent it.", "nothing was done")
        return DoorAnswer(status=ACCEPTED)

    def _hear(self, entry: _Notice) -> bool:
        found = [each for each in self._listeners if _is_same(each.secret(), entry.client_state or "")]
        for listener in found:
            if entry.lifecycle_event:
                listener.happened(entry.lifecycle_event)
            else:
                listener.changed(_chat_of(entry.resource or ""))
        return bool(found)


def _said_back(token: str) -> DoorAnswer:
    if not 0 < len(token) <= MAX_TOKEN_CHARS or not token.isprintable():
        raise UserError("The token of a handshake cannot be said back.", "Microsoft's are short and printable")
    return DoorAnswer(status=200, body=token.encode(), media_type="text/plain; charset=utf-8")


def _read(body: bytes) -> list[_Notice]:
    try:
        return msgspec.json.decode(body, type=_NoticeBody).value
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise UserError("A notification cannot be read.", "nothing was done") from exc


def _is_same(secret: str, said: str) -> bool:
    return bool(secret) and hmac.compare_digest(secret.encode(), said.encode(errors="replace"))


def _chat_of(resource: str) -> str:
    found = _CHAT.search(resource)
    return found[1] if found else ""


@dataclass(slots=True)
class _Subscription:
    topic: ChangeTopic
    secret: str = field(default="", repr=False)
    id: str = ""
    account: str = ""  # who was signed in when it was made
    due: datetime | None = None  # None: at once
    tended: datetime | None = None
    failures: int = 0
    reason: str = ""


class Subscriptions:
    """The subscriptions of one source, and its door."""

    def __init__(
        self,
        settings: GraphSettings,
        client: GraphClient,
        clock: Clock,
        topics: Sequence[ChangeTopic],
        me: Callable[[], str],
        *,
        timing: GraphTiming | None = None,
    ) -> None:
        self._name = settings.name
        self._url = settings.notice_url
        self._client = client
        self._clock = clock
        self._me = me
        self._timing = timing or GraphTiming()
        self._rest = InterruptibleWait()
        self._kept = [_Subscription(topic) for topic in topics]
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

    def _listener(self, kept: _Subscription) -> NoticeListener:
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

        return NoticeListener(lambda: kept.secret, kept.topic.tidings.tell, happened)

    def _seconds(self) -> float:
        now = self._clock.now()
        soonest = min((kept.due or now for kept in self._kept), default=now)
        return min(max((soonest - now).total_seconds(), 1.0), LOOK_SECONDS)

    async def _tend(self, kept: _Subscription) -> None:
        now = self._clock.now()
        if kept.account != self._me():
            kept.id, kept.due, kept.tended = "", None, None
        if kept.due is None and kept.tended is not None:
            kept.due = kept.tended + MIN_GAP
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
        life = min(max(granted - self._clock.now(), MIN_LIFE), LIFE)
        kept.due = self._clock.now() + life / 2
        # What changed while nobody told of it is looked for now.
        kept.topic.tidings.begins()

    def _failed(self, kept: _Subscription, error: HarkenError) -> None:
        seconds = doubled(FIRST_RETRY_SECONDS, kept.failures, LAST_RETRY_SECONDS)
        if isinstance(error, Unavailable):
            seconds = max(seconds, error.retry_after)
        kept.failures += 1
        kept.due = self._clock.now() + timedelta(seconds=seconds)
        if kept.reason != error.message:
            _log.warning("%s: Microsoft does not tell of changes: %s", self._name, error.message)
        kept.reason = error.message
        kept.topic.tidings.ends()

    async def _renew(self, kept: _Subscription) -> datetime:
        try:
            said = await self._client.patch(f"{_PATH}/{part(kept.id)}", self._until(), lane="")
        except NotFound:
            kept.id = ""
            return await self._create(kept)
        return self._granted(said)

    async def _create(self, kept: _Subscription) -> datetime:
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
        return iso_moment(text_of(said, "expirationDateTime")) or self._clock.now() + LIFE

    async def _delete_leftovers(self) -> None:
        """Delete unknown subscriptions to our address, as far as that can be done: they end by themselves."""
        ours = {kept.id for kept in self._kept}
        with suppress(HarkenError):
            found: list[str] = []
            async with aclosing(self._client.pages(_PATH, lane="", most_pages=MAX_PAGES)) as pages:
                async for page in pages:
                    found += [str(row.get("id")) for row in items(page) if row.get("notificationUrl") == self._url]
            for leftover in [each for each in found if each not in ours][:MAX_LEFTOVERS]:
                with suppress(NotFound):
                    await self._client.delete(f"{_PATH}/{part(leftover)}", lane="")

    async def _end(self) -> None:
        for kept in self._kept:
            kept.topic.tidings.ends()
            if kept.id:
                with suppress(HarkenError):
                    await self._client.delete(f"{_PATH}/{part(kept.id)}", lane="")
            kept.id, kept.due, kept.tended = "", None, None
