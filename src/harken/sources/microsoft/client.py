"""The client of Microsoft Graph: one signed-in account, asked politely, with every answer judged.

`GraphClient` takes a lane, sends, judges the answer with `responses.py` and repeats what may be repeated. What can go
wrong that no kind of `harken.errors` says by itself is an error of its own here, so that callers can tell them apart:
begin a feed again, look before a message is sent twice, name the permission to grant. `RequestLanes` sees to how often
and how many at once, as Microsoft allows it. Below are `http.py` and `responses.py`.
"""

from __future__ import annotations

import heapq
import logging
import re
import ssl
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, Self, runtime_checkable

import anyio
import httpx2

from harken.clock import Clock
from harken.errors import Unavailable
from harken.memory import json_bytes
from harken.sources.feed import FeedTiming, wait_seconds
from harken.sources.http import REQUEST_SECONDS, ConnectionBroken, HttpAnswer, HttpWire, ServiceAddress, shown
from harken.sources.microsoft.responses import (
    PositionGone,
    ResponseDone,
    ResponseFailure,
    ResponseRefresh,
    ResponseRetry,
    RuleVerdict,
    broken_off,
    verdict_of,
)
from harken.sources.microsoft.settings import GRAPH_URL
from harken.sources.payload import Json

MAX_TRIES: Final = 5
MAX_OF_A_PAGE: Final = 2
PATIENCE_SECONDS: Final = 60.0
TOKEN_SECONDS: Final = 60.0
MAX_WAIT_SECONDS: Final = 30.0  # for a place on a lane
CHAT_SECONDS: Final = 8.0
NEXT_LINK: Final = "@odata.nextLink"
DELTA_LINK: Final = "@odata.deltaLink"

_IMMUTABLE: Final = 'IdType="ImmutableId"'
_OWN_HEADERS: Final = frozenset({"authorization", "client-request-id", "content-length", "content-type", "host"})
_SENDABLE: Final = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")

_log = logging.getLogger("harken.sources.microsoft")

CHAT: Final = "chat:"
CHATS: Final = "chats"
MAILBOX: Final = "mailbox"
MAX_IDLE_LANES: Final = 256

_ALL_CHATS: Final = "every chat"  # no lane of its own that anybody names: every chat shares it


class GraphTokens(Protocol):
    """Who signs in."""

    async def token(self, *, is_fresh: bool = False) -> str:
        """Return a token that is valid now, a new one if `is_fresh`; raises `NeedsPerson` or `Unavailable`."""
        ...


@runtime_checkable
class MeetsClaims(Protocol):
    """Who signs in, and can ask for a token that has what Graph asks for."""

    async def meet(self, claims: str) -> str:
        """Return a new token with these claims; raises `NeedsPerson` if only a person can have one."""
        ...


@dataclass(frozen=True, slots=True)
class GraphTiming(FeedTiming):
    """Where waits come from, and how long they are at most."""

    patience_seconds: float = PATIENCE_SECONDS
    request_seconds: float = REQUEST_SECONDS
    lane_seconds: float = MAX_WAIT_SECONDS
    token_seconds: float = TOKEN_SECONDS
    chat_seconds: float = CHAT_SECONDS  # in a round for one chat: the others wait for it


@dataclass(frozen=True, slots=True)
class _Call:
    """What is asked for, the same in every try."""

    method: str
    url: httpx2.URL
    lane: str
    headers: Mapping[str, str]
    body: bytes | None = None
    request_id: str = ""
    is_list: bool = False


@dataclass(slots=True)
class _Tries:
    """How far the tries of one call have come."""

    give_up_at: float
    failures: int = 0
    token: str = field(default="", repr=False)  # that the last try was made with
    refused: str = field(default="", repr=False)  # a token that was not accepted
    claims: str = field(default="", repr=False)  # what the next one must have


class GraphClient:
    """Microsoft Graph for one signed-in account. `name` is the source's, for the log."""

    def __init__(
        self,
        tokens: GraphTokens,
        clock: Clock,
        *,
        name: str,
        base_url: str = GRAPH_URL,
        verify: ssl.SSLContext | None = None,
        limits: GraphLimits | None = None,
        timing: GraphTiming | None = None,
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._name = name
        self._timing = timing or GraphTiming()
        self._address = ServiceAddress.parse(base_url, "Microsoft Graph")
        self._wire = HttpWire(self._address, verify=verify, request_seconds=self._timing.request_seconds)
        self._lanes = RequestLanes(
            limits,
            max_wait_seconds=self._timing.lane_seconds,
            wait=self._timing.wait,
            monotonic=self._timing.monotonic,
        )
        self._refreshing = anyio.Lock()
        self._throttled_until: datetime | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(self._timing.request_seconds):
            await self._wire.aclose()

    @property
    def throttled_until(self) -> datetime | None:
        """Until when Microsoft asked us to wait; None if that is over."""
        until = self._throttled_until
        return until if until is not None and until > self._clock.now() else None

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        lane: str = "",
    ) -> Json:
        """Read a path, or a link that Graph handed out; raises `PositionGone` for a position that is too old."""
        return await self._call(_Call("GET", self._address.url(path, params), lane, _with_preferences(headers)))

    async def pages(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        lane: str,
        most_pages: int,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Json, None]:
        """Yield page after page. If the last one yielded still has a `NEXT_LINK`, there was more than `most_pages`."""
        page = await self._page(path, params, headers, lane)
        followed = Counter[str]()
        while True:
            yield page
            link = page.get(NEXT_LINK)
            if not isinstance(link, str) or followed.total() + 1 >= most_pages:
                return
            # Twice is a slip of the service, and the second time leads on.
            if followed[link] >= MAX_OF_A_PAGE:
                raise Unavailable("The pages of Microsoft Graph go round in a circle.", "it is read again later")
            followed[link] += 1
            page = await self._page(link, None, headers, lane)

    async def _page(
        self, path: str, params: Mapping[str, str] | None, headers: Mapping[str, str] | None, lane: str
    ) -> Json:
        url = self._address.url(path, params)
        return await self._call(_Call("GET", url, lane, _with_preferences(headers), is_list=True))

    async def post(self, path: str, body: Json, *, lane: str, request_id: str = "") -> Json:
        """Ask for something to be done; raises `Unsure` if it may have been done and no answer said so."""
        return await self._write("POST", path, body, lane, request_id)

    async def patch(self, path: str, body: Json, *, lane: str, request_id: str = "") -> Json:
        """Change something; raises `Unsure` if it may have been changed and no answer said so."""
        return await self._write("PATCH", path, body, lane, request_id)

    async def delete(self, path: str, *, lane: str) -> None:
        """Delete something; raises `NotFound` if it is not there, `Unsure` if it may have been deleted."""
        await self._call(_Call("DELETE", self._address.url(path), lane, _with_preferences(None)))

    async def _write(self, method: str, path: str, body: Json, lane: str, request_id: str) -> Json:
        request_id = request_id or str(uuid.uuid4())
        if not _REQUEST_ID.fullmatch(request_id):
            raise ValueError("a request id is made of letters, digits and hyphens")
        headers = {**_with_preferences(None), "Content-Type": "application/json"}
        url = self._address.url(path)
        return await self._call(_Call(method, url, lane, headers, json_bytes(body), request_id))

    async def _call(self, call: _Call) -> Json:
        tries = _Tries(self._timing.monotonic() + self._timing.patience_seconds)
        while True:
            verdict = await self._try(call, tries)
            match verdict:
                case ResponseDone(body):
                    return body
                case ResponseRefresh(error, claims):
                    if tries.refused:
                        raise error
                    tries.refused, tries.claims = tries.token, claims
                case ResponseFailure(error):
                    if verdict.is_throttled and verdict.after is not None:
                        self._hold(call, verdict.after)
                    raise error
                case ResponseRetry():
                    await self._pause(call, tries, verdict)

    async def _try(self, call: _Call, tries: _Tries) -> RuleVerdict:
        tries.token = await self._token(tries)
        request_id = call.request_id or str(uuid.uuid4())
        headers = {**call.headers, "Authorization": f"Bearer {tries.token}", "client-request-id": request_id}
        async with self._lanes.use(call.lane):
            try:
                answer = await self._wire.exchange(call.method, call.url, headers, call.body)
            except ConnectionBroken as broken:
                self._log_failure(call, broken.reason, request_id, "")
                return broken_off(call.method, broken.reason, is_unsent=broken.is_unsent)
        verdict = verdict_of(call.method, answer, self._clock.now(), is_list=call.is_list)
        if not isinstance(verdict, ResponseDone):
            self._log_failure(call, f"answered {answer.status}", request_id, _told_id(answer))
        return self._within(verdict)

    def _within(self, verdict: RuleVerdict) -> RuleVerdict:
        """Keep where to begin again only if that is Graph itself."""
        if isinstance(verdict, ResponseFailure) and isinstance(verdict.error, PositionGone):
            return ResponseFailure(PositionGone(self._address.begin_again(verdict.error.location)))
        return verdict

    async def _token(self, tries: _Tries) -> str:
        try:
            with anyio.fail_after(self._timing.token_seconds):
                token = await (self._fresh(tries) if tries.refused else self._tokens.token())
        except TimeoutError as exc:
            raise Unavailable("The sign-in does not answer in time.", "Harken tries again") from exc
        if not _TOKEN.fullmatch(token):
            raise Unavailable("The sign-in yields no token that can be sent.", "sign in again")
        return token

    async def _fresh(self, tries: _Tries) -> str:
        """Return another token than the refused one: many calls may learn at once that it has expired."""
        async with self._refreshing:
            token = await self._tokens.token()
            if token != tries.refused:
                return token
            if tries.claims and isinstance(self._tokens, MeetsClaims):
                return await self._tokens.meet(tries.claims)
            return await self._tokens.token(is_fresh=True)

    async def _pause(self, call: _Call, tries: _Tries, again: ResponseRetry) -> None:
        """Wait before the next try; raises what went wrong if there is none."""
        tries.failures += 1
        seconds = wait_seconds(tries.failures, again.after, self._timing.chance)
        if again.is_throttled:
            self._hold(call, seconds)
        now = self._timing.monotonic()
        if tries.failures >= MAX_TRIES or now + seconds > tries.give_up_at:
            if isinstance(again.error, Unavailable):
                again.error.retry_after = max(again.error.retry_after, round(seconds, 3))
            raise again.error
        await self._timing.wait(seconds)

    def _hold(self, call: _Call, seconds: float) -> None:
        self._lanes.hold(call.lane, seconds)
        until = self._clock.now() + timedelta(seconds=seconds)
        self._throttled_until = max(until, self._throttled_until or until)

    def _log_failure(self, call: _Call, what: str, request_id: str, told_id: str) -> None:
        _log.info(
            "%s: %s %s: %s (client-request-id %s, request-id %s)",
            self._name,
            call.method,
            shown(call.url),
            what,
            request_id,
            told_id or "none",
        )


def _with_preferences(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of a call with the one preference that every call has, merged with its own."""
    merged = {"Accept": "application/json", "Prefer": _IMMUTABLE}
    for name, value in (headers or {}).items():
        if name.lower() in _OWN_HEADERS or not _SENDABLE.fullmatch(value):
            raise ValueError(f"the header {name} cannot be set")
        if name.lower() == "prefer":
            merged["Prefer"] = f"{_IMMUTABLE}, {value}"
        else:
            merged[name] = value
    return merged


def _told_id(answer: HttpAnswer) -> str:
    said = answer.headers.get("request-id", "")
    return said if _REQUEST_ID.fullmatch(said) else ""


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """So many places, each of which rests for a while after it was used."""

    places: int
    rest_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """What Microsoft documents: per chat, for all chats of a tenant together, for the list, and per mailbox."""

    chat: LaneLimit = LaneLimit(1, 1.0)
    all_chats: LaneLimit = LaneLimit(20, 1.0)
    chats: LaneLimit = LaneLimit(5, 1.0)
    mailbox: LaneLimit = LaneLimit(4)


@dataclass(slots=True)
class _Lane:
    limit: LaneLimit
    free: anyio.Semaphore
    ready: list[float] = field(default_factory=list)  # a heap: when each free place has rested
    held_until: float = 0.0
    users: int = 0  # who waits or works here


class RequestLanes:
    """The lanes of one signed-in account. `wait` and `monotonic` are the passing of time."""

    def __init__(
        self,
        limits: GraphLimits | None = None,
        *,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        wait: Callable[[float], Awaitable[None]] = anyio.sleep,
        monotonic: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._limits = limits or GraphLimits()
        self._max_wait = max_wait_seconds
        self._wait = wait
        self._monotonic = monotonic
        self._lanes: dict[str, _Lane] = {}

    def __len__(self) -> int:
        """How many lanes are remembered."""
        return len(self._lanes)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[None]:
        """Take a place on a lane (none for an empty name) for one request; raises `Unavailable` if that takes long."""
        taken: list[tuple[_Lane, float]] = []
        is_used = False
        try:
            with anyio.move_on_after(self._max_wait) as patience:
                # The chat first: whoever waits for it must not keep a place that other chats could use.
                for each in _lanes_of(name):
                    lane = self._lane(each)
                    taken.append((lane, await self._take(lane)))
            if patience.cancelled_caught:
                raise _busy(self._max_wait)
            is_used = True
            yield
        finally:
            for lane, ready in taken:
                # Also what was broken off counts: the service may have seen it.
                _give(lane, self._monotonic() + lane.limit.rest_seconds if is_used else ready)

    def hold(self, name: str, seconds: float) -> None:
        """Let no request begin on a lane for so long."""
        if name:
            lane = self._lane(name)
            lane.held_until = max(lane.held_until, self._monotonic() + seconds)

    async def _take(self, lane: _Lane) -> float:
        """Wait for a place and return since when it is rested."""
        lane.users += 1
        is_taken = False
        try:
            self._check_wait(lane)
            await lane.free.acquire()
            ready = heapq.heappop(lane.ready)
            try:
                while (seconds := max(ready, lane.held_until) - self._monotonic()) > 0:
                    self._check_held(lane)
                    await self._wait(seconds)
                is_taken = True
            finally:
                if not is_taken:
                    _put_back(lane, ready)
        finally:
            lane.users -= 0 if is_taken else 1
        return ready

    def _check_wait(self, lane: _Lane) -> None:
        """Refuse at once what cannot have its turn in time, so that it does not wait in vain."""
        self._check_held(lane)
        ahead = lane.users - lane.limit.places
        seconds = lane.limit.rest_seconds * (ahead // lane.limit.places)
        if seconds > self._max_wait:
            raise _busy(seconds)

    def _check_held(self, lane: _Lane) -> None:
        seconds = lane.held_until - self._monotonic()
        if seconds > self._max_wait:
            raise Unavailable(
                "Microsoft asks us to wait.", "nothing is lost: it is read later", retry_after=round(seconds, 3)
            )

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            self._forget_idle()
            limit = self._limit(name)
            lane = _Lane(limit, anyio.Semaphore(limit.places), [0.0] * limit.places)
            self._lanes[name] = lane
        return lane

    def _limit(self, name: str) -> LaneLimit:
        if name.startswith(CHAT):
            return self._limits.chat
        known = {CHATS: self._limits.chats, MAILBOX: self._limits.mailbox, _ALL_CHATS: self._limits.all_chats}
        if name not in known:
            raise ValueError(f"no such lane: {name}")
        return known[name]

    def _forget_idle(self) -> None:
        """A person may have thousands of chats, and few of them are busy."""
        if len(self._lanes) < MAX_IDLE_LANES:
            return
        now = self._monotonic()
        self._lanes = {
            name: lane for name, lane in self._lanes.items() if lane.users or max(lane.held_until, *lane.ready) > now
        }


def _give(lane: _Lane, ready: float) -> None:
    _put_back(lane, ready)
    lane.users -= 1


def _put_back(lane: _Lane, ready: float) -> None:
    heapq.heappush(lane.ready, ready)
    lane.free.release()


def _lanes_of(name: str) -> tuple[str, ...]:
    if not name:
        return ()
    return (name, _ALL_CHATS) if name.startswith(CHAT) else (name,)


def _busy(seconds: float) -> Unavailable:
    return Unavailable(
        "Too many requests to Microsoft wait for their turn.",
        "nothing is lost: Harken tries again",
        retry_after=max(round(seconds, 3), 1.0),
    )
