"""Lanes: Microsoft's limits are kept, in the order of arrival, and nobody waits longer than the bound."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.errors import Unavailable
from harken.sources.microsoft.client import MAX_IDLE_LANES, MAX_WAIT_SECONDS, GraphLimits, LaneLimit, RequestLanes

SECONDS: Final = 10
ROUNDS: Final = 12

Request: TypeAlias = Callable[[], Coroutine[None, None, None]]


async def settle() -> None:
    """Let everybody come to where they wait: nothing here takes more rounds of the loop than that."""
    for _ in range(ROUNDS):
        await anyio.lowlevel.checkpoint()


@dataclass
class Hours:
    """Time that passes only when everybody waits: to the next moment that somebody waits for."""

    now: float = 100.0
    alarms: list[tuple[float, int, anyio.Event]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def monotonic(self) -> float:
        """Return the present."""
        return self.now

    async def wait(self, seconds: float) -> None:
        """Wait until that moment has come."""
        event = anyio.Event()
        heapq.heappush(self.alarms, (self.now + seconds, next(self.numbers), event))
        await event.wait()

    async def run(self, *actions: Request) -> None:
        """Start the actions in order and let time pass until all are done."""
        left = len(actions)

        async def follow(action: Request) -> None:
            nonlocal left
            try:
                await action()
            finally:
                left -= 1

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                for action in actions:
                    group.start_soon(follow, action)
                    await settle()
                while left:
                    await self.next()

    async def next(self) -> None:
        """Let time pass to the next alarm, if there is one."""
        await settle()
        if self.alarms:
            moment, _, event = heapq.heappop(self.alarms)
            self.now = max(self.now, moment)
            event.set()
        await settle()


@dataclass
class Traffic:
    """Requests on lanes, and when each began and ended."""

    hours: Hours = field(default_factory=Hours)
    limits: GraphLimits = field(default_factory=GraphLimits)
    spans: list[tuple[str, int, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes = RequestLanes(self.limits, wait=self.hours.wait, monotonic=self.hours.monotonic)

    def request(self, lane: str, number: int, lasts: float) -> Request:
        """Return a request that takes so long."""

        async def make() -> None:
            async with self.lanes.use(lane):
                began = self.hours.now
                if lasts:
                    await self.hours.wait(lasts)
            self.spans.append((lane, number, began, self.hours.now))

        return make

    def most_within(self, lane: str, seconds: float) -> int:
        """Return how many requests at most the service can have counted within so many seconds."""
        spans = sorted((began, ended) for name, _, began, ended in self.spans if name.startswith(lane))
        # The service counts a request somewhere between its beginning and its end: the worst is late, then early.
        return max(
            sum(1 for began, ended in spans if ended >= late and began < late + seconds - 1e-9) for _, late in spans
        )


async def test_a_chat_is_asked_once_a_second_whenever_the_service_counts() -> None:
    """One request per second and chat is all that Microsoft allows; a slow answer may have been counted late."""
    traffic = Traffic()
    await traffic.hours.run(*(traffic.request("chat:1", number, 0.4) for number in range(5)))
    assert [number for _, number, _, _ in traffic.spans] == [0, 1, 2, 3, 4]
    assert traffic.most_within("chat:1", 1.0) == 1
    assert traffic.hours.now == pytest.approx(100 + 5 * 0.4 + 4 * 1.0)


async def test_chats_do_not_wait_for_each_other() -> None:
    """Fifteen chats that changed are read at once."""
    traffic = Traffic()
    await traffic.hours.run(*(traffic.request(f"chat:{number}", number, 0.0) for number in range(15)))
    assert traffic.hours.now == 100.0


async def test_all_chats_together_stay_below_the_limit_of_the_tenant() -> None:
    """Twenty requests per second for all chats of an app in a tenant: more would throttle colleagues too."""
    traffic = Traffic()
    await traffic.hours.run(*(traffic.request(f"chat:{number}", number, 0.1) for number in range(60)))
    assert traffic.most_within("chat:", 1.0) == 20


async def test_the_list_of_chats_and_the_mailbox_have_limits_of_their_own() -> None:
    """Five a second for the list; four at once, however fast, for the mailbox."""
    traffic = Traffic()
    lists = [traffic.request("chats", number, 0.1) for number in range(12)]
    mails = [traffic.request("mailbox", number, 0.5) for number in range(12)]
    await traffic.hours.run(*lists, *mails)
    assert traffic.most_within("chats", 1.0) == 5
    at_once = [
        sum(1 for lane, _, began, ended in traffic.spans if lane == "mailbox" and began <= moment < ended)
        for _, _, moment, _ in traffic.spans
    ]
    assert max(at_once) == 4
    assert max(ended for lane, _, _, ended in traffic.spans if lane == "mailbox") == pytest.approx(101.5)


async def test_no_lane_is_no_limit() -> None:
    """Some requests are so rare that nobody counts them."""
    traffic = Traffic()
    await traffic.hours.run(*(traffic.request("", number, 0.1) for number in range(50)))
    assert traffic.hours.now == pytest.approx(100.1)


async def test_an_unknown_lane_is_a_mistake() -> None:
    """A typing error would switch a limit off."""
    with pytest.raises(ValueError, match="no such lane"):
        async with RequestLanes().use("chat"):
            pass


async def test_a_held_lane_lets_nobody_begin_and_others_pass() -> None:
    """Microsoft said how long; whoever asks on that lane meanwhile is throttled for longer."""
    traffic = Traffic()
    traffic.lanes.hold("chat:1", 20.0)
    traffic.lanes.hold("chat:1", 5.0)
    await traffic.hours.run(traffic.request("chat:1", 1, 0.0), traffic.request("chat:2", 2, 0.0))
    assert [(number, began) for _, number, began, _ in traffic.spans] == [(2, 100.0), (1, 120.0)]


async def test_a_lane_that_is_held_for_long_says_so_at_once() -> None:
    """Whoever would wait in vain does better to come back."""
    traffic = Traffic()
    traffic.lanes.hold("mailbox", MAX_WAIT_SECONDS + 5)
    with pytest.raises(Unavailable) as caught:
        await traffic.request("mailbox", 1, 0.0)()
    assert caught.value.retry_after == MAX_WAIT_SECONDS + 5


async def test_a_lane_that_is_held_while_somebody_waits_on_it_tells_them_too() -> None:
    """The one in front was throttled: those behind learn it when their turn comes, and leave their place free."""
    traffic = Traffic()
    refusals: list[float] = []

    async def in_front() -> None:
        async with traffic.lanes.use("chat:1"):
            await traffic.hours.wait(1.0)
            traffic.lanes.hold("chat:1", 300.0)

    async def behind() -> None:
        with pytest.raises(Unavailable) as caught:
            await traffic.request("chat:1", 1, 0.0)()
        refusals.append(caught.value.retry_after)

    await traffic.hours.run(in_front, behind, behind)
    assert refusals == [300.0, 300.0]
    traffic.hours.now += 300
    await traffic.hours.run(traffic.request("chat:1", 2, 0.0))
    assert [(number, began) for _, number, began, _ in traffic.spans] == [(2, 401.0)]


async def test_what_cannot_have_its_turn_in_time_is_turned_away_at_once() -> None:
    """A queue of minutes is no queue: the feed reads the rest in its next round."""
    traffic = Traffic()
    most = int(MAX_WAIT_SECONDS)
    turned_away: list[int] = []

    def ask(number: int) -> Request:
        async def make() -> None:
            try:
                await traffic.request("chat:1", number, 0.0)()
            except Unavailable:
                turned_away.append(number)
                assert traffic.hours.now == 100.0

        return make

    # The first one ends before the others come, so the place rests and nobody is on it.
    await traffic.hours.run(*(ask(number) for number in range(most + 5)))
    assert turned_away == [most + 2, most + 3, most + 4]
    assert traffic.hours.now == 100.0 + most + 1


async def test_a_wait_ends_at_its_bound_whatever_others_do() -> None:
    """Somebody who keeps a place must not stop everybody behind."""
    lanes = RequestLanes(GraphLimits(mailbox=LaneLimit(1)), max_wait_seconds=0.05)
    with anyio.fail_after(SECONDS):
        async with lanes.use("mailbox"):
            with pytest.raises(Unavailable):
                async with lanes.use("mailbox"):
                    pytest.fail("two at once")
        async with lanes.use("mailbox"):
            pass


async def test_whoever_leaves_while_waiting_takes_nothing_along() -> None:
    """A source is stopped at any moment: the next one gets its turn as if the other had never come."""
    traffic = Traffic()

    async def leave() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(traffic.request("chat:1", 2, 0.0))
                await traffic.hours.wait(0.5)
                scope.cancel()

    stays = traffic.request("chat:1", 3, 0.0)
    await traffic.hours.run(traffic.request("chat:1", 1, 0.0), leave, stays)
    assert [(number, began) for _, number, began, _ in traffic.spans] == [(1, 100.0), (3, 101.0)]


async def test_a_chat_that_waits_for_the_others_and_leaves_has_not_used_its_second() -> None:
    """It asked nothing of the service."""
    traffic = Traffic(limits=GraphLimits(all_chats=LaneLimit(1)))

    async def leave() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(traffic.request("chat:2", 2, 0.0))
                await traffic.hours.wait(0.5)
                scope.cancel()

    await traffic.hours.run(traffic.request("chat:1", 1, 0.75), leave)
    await traffic.hours.run(traffic.request("chat:2", 3, 0.0))
    assert [(number, began) for _, number, began, _ in traffic.spans] == [(1, 100.0), (3, 100.75)]


async def test_a_request_that_failed_counts_too() -> None:
    """The service counted it before it failed."""
    traffic = Traffic()

    async def fail() -> None:
        with pytest.raises(ConnectionError):
            async with traffic.lanes.use("chat:1"):
                raise ConnectionError

    await traffic.hours.run(fail, traffic.request("chat:1", 1, 0.0))
    assert [began for _, _, began, _ in traffic.spans] == [101.0]


async def test_lanes_of_quiet_chats_are_forgotten_and_their_rest_is_not() -> None:
    """Thousands of chats must not stay in memory; the few that were just asked still rest."""
    traffic = Traffic(limits=GraphLimits(all_chats=LaneLimit(1_000)))
    for number in range(5 * MAX_IDLE_LANES):
        traffic.hours.now += 0.1
        await traffic.request(f"chat:{number}", number, 0.0)()
    assert len(traffic.lanes) <= MAX_IDLE_LANES
    last = 5 * MAX_IDLE_LANES - 1
    before = traffic.hours.now
    traffic.lanes.hold("chat:held", 10_000.0)
    for number in range(MAX_IDLE_LANES):
        await traffic.request(f"chat:new-{number}", number, 0.0)()
    await traffic.hours.run(traffic.request(f"chat:{last}", -1, 0.0))
    assert traffic.spans[-1][2] == pytest.approx(before + 1.0)
    with pytest.raises(Unavailable):
        await traffic.request("chat:held", 0, 0.0)()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["chat:1", "chat:2", "chats"]),
            st.floats(0, 2),
            st.integers(0, 300).map(lambda each: each / 100),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_limits_hold_and_order_is_kept_whatever_comes(plan: list[tuple[str, float, float]]) -> None:
    """However long requests take and whenever they come."""
    traffic = Traffic()

    def ask(number: int, lane: str, lasts: float, comes: float) -> Request:
        async def make() -> None:
            await traffic.hours.wait(comes)
            await traffic.request(lane, number, lasts)()

        return make

    async def run() -> None:
        await traffic.hours.run(*(ask(number, *each) for number, each in enumerate(plan)))

    anyio.run(run)
    assert len(traffic.spans) == len(plan)
    for lane, most in (("chat:1", 1), ("chat:2", 1), ("chats", 5)):
        if any(name == lane for name, *_ in plan):
            assert traffic.most_within(lane, 1.0) <= most
    for lane in ("chat:1", "chat:2"):
        began = [number for _, number, _, _ in sorted((s for s in traffic.spans if s[0] == lane), key=lambda s: s[2])]
        came = sorted((n for n, each in enumerate(plan) if each[0] == lane), key=lambda n: (plan[n][2], n))
        assert began == came
