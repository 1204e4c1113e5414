"""What is gathered of a chat over many pages: all of it, in order, also in parts and while it changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harken.sources.teams.messages import ChatMessage, TeamsChat
from harken.sources.teams.polling import OVERLAP_MS, ChatBacklog

PAGE = 4
PAGES_AT_ONCE = 2
CHAT = TeamsChat("c")
START = 1_000_000


def written(number: int, at: int) -> ChatMessage:
    """Return a message that was written then."""
    return ChatMessage(str(number), at, at, is_deleted=False, is_edited=False, json={})


def read_on(backlog: ChatBacklog, world: Sequence[ChatMessage]) -> bool:
    """Read some pages as the service hands them out, newest first; return whether that was all."""
    inside = [each for each in world if each.modified > backlog.after and each.modified < (backlog.end or 10**15)]
    inside.sort(key=lambda each: (each.modified, each.id), reverse=True)
    reached = backlog.oldest
    most = (PAGES_AT_ONCE << backlog.doublings) * PAGE
    for start in range(0, min(len(inside), most), PAGE):
        backlog.take(inside[start : start + PAGE])
    return not (len(inside) > most and backlog.leads_on(reached))


@given(st.lists(st.integers(0, 40_000), max_size=80), st.integers(5, 40))
def test_everything_is_found_in_order_however_little_is_held(gaps: list[int], most_held: int) -> None:
    """Pages come newest first; a part is passed on only when nothing older is missing."""
    at = START
    world: list[ChatMessage] = []
    for number, gap in enumerate(gaps):
        at += gap // 1_000 * (1_000 if gap % 3 else 1)
        world.append(written(number, at))
    backlog: ChatBacklog | None = ChatBacklog(CHAT, START - OVERLAP_MS, most_held=most_held)
    got: list[str] = []
    for _ in range(1_000):
        if backlog is None:
            break
        if not read_on(backlog, world):
            continue
        changes = backlog.changes()
        assert [each.modified for each in changes.messages] == sorted(each.modified for each in changes.messages)
        got += [each.id for each in changes.messages if each.id not in got]
        assert {each.id for each in world if changes.until and each.modified <= changes.until} <= set(got)
        backlog = backlog.rest()
    assert backlog is None
    order = {each.id: each.modified for each in world}
    assert sorted(got, key=int) == [each.id for each in world]
    assert [order[each] for each in got] == sorted(order.values())


def test_of_a_flood_each_page_is_asked_for_at_most_twice() -> None:
    """Microsoft counts requests: what was put down once is asked for as one piece."""
    world = [written(number, START + number * 100_000) for number in range(400)]
    backlog: ChatBacklog | None = ChatBacklog(CHAT, START - OVERLAP_MS, most_held=100)
    steps = parts = 0
    while backlog is not None and steps < len(world):
        steps += 1
        if read_on(backlog, world):
            parts += 1
            backlog = backlog.rest()
    assert parts >= 4
    assert steps <= 2 * len(world) / (PAGE * PAGES_AT_ONCE) + 3 * parts
