"""What a feed waits on: no word is lost, whenever it comes, and none makes the feed look without a pause."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from harken.sources.microsoft.notifications import FOLD_SECONDS, MAX_CHATS, NET_SECONDS, ChangeSignal

USUAL: Final = 8.0
MAX_PAUSES: Final = 3
SECONDS: Final = 5


def _run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(SECONDS):
            await work

    anyio.run(bounded)


class Waits:
    """Waits that take no time but are remembered."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def wait(self, seconds: float) -> None:
        """Be over at once."""
        self.asked.append(seconds)
        await anyio.lowlevel.checkpoint()


@given(word=st.lists(st.booleans(), max_size=20))
def test_after_a_word_the_next_look_is_never_far(word: list[bool]) -> None:
    """For any order of words and looks: a word that came before or during a look is followed by one soon."""

    async def go() -> None:
        tidings, waits = ChangeSignal(), Waits()
        tidings.begins()
        tidings.take()
        await tidings.rest(waits.wait, USUAL)
        for is_told in word:
            tidings.take()
            if is_told:
                tidings.tell("chat")
            tidings.found(0)
            before = tidings.take() if is_told else frozenset()
            await tidings.rest(waits.wait, USUAL)
            assert before == (frozenset({"chat"}) if is_told else frozenset())
            if is_told:
                assert waits.asked[-1] == FOLD_SECONDS
            assert waits.asked[-1] <= NET_SECONDS

    _run(go())


def test_word_ends_a_long_wait() -> None:
    """A feed that waits for minutes looks in the moment in which it is tidings."""

    async def go() -> None:
        tidings, waits = ChangeSignal(), Waits()
        tidings.begins()
        for _ in range(MAX_PAUSES):
            await tidings.rest(waits.wait, USUAL)
        assert waits.asked == [FOLD_SECONDS, USUAL, NET_SECONDS]
        async with anyio.create_task_group() as group:
            group.start_soon(tidings.rest, _for_ever, USUAL)
            await anyio.wait_all_tasks_blocked()
            tidings.tell()

    _run(go())


def test_the_end_of_word_ends_a_long_wait() -> None:
    """Whoever is not told any more must not wait as if it were."""

    async def go() -> None:
        tidings, waits = ChangeSignal(), Waits()
        tidings.begins()
        for _ in range(MAX_PAUSES - 1):
            await tidings.rest(waits.wait, USUAL)
        async with anyio.create_task_group() as group:
            group.start_soon(tidings.rest, _for_ever, USUAL)
            await anyio.wait_all_tasks_blocked()
            tidings.ends()
        assert not tidings.works
        assert tidings.seconds(USUAL) == USUAL

    _run(go())


def test_a_pace_that_was_chosen_slower_stays() -> None:
    """Somebody who looks once an hour does not want to look every five minutes because of notifications."""
    tidings = ChangeSignal()
    tidings.begins()
    assert tidings.seconds(3_600.0) == 3_600.0


def test_not_more_chats_are_remembered_than_can_be_read() -> None:
    """What is beyond shows in the list of chats."""
    tidings = ChangeSignal()
    for number in range(2 * MAX_CHATS):
        tidings.tell(str(number))
    assert len(tidings.take()) == MAX_CHATS
    assert tidings.take() == frozenset()


async def _for_ever(_seconds: float) -> None:
    await anyio.sleep_forever()
