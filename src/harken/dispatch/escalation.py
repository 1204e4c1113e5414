"""Sees to it that questions get answered: reminds the agent, then tells you on the desktop, then on the phone.

The ladder is pure: from a question, the steps and the time it says what comes next. One toast, one message to an agent
and one push to a phone tell of all questions that are due, so a burst is told once. What could not be told is tried
again later; what was told is recorded after it was, so a crash in between tells it twice rather than never. A question
that was answered meanwhile is not told of. Above is the daemon, which says how each way is gone; below is the store,
which remembers how far each question has got.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final

import anyio

from harken.automation import QuietHours
from harken.clock import Clock
from harken.errors import HarkenError
from harken.model import MessageId
from harken.store.contract.questions import Question, QuestionStore

NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)
SKEW: Final = timedelta(minutes=1)
SENDING: Final = timedelta(minutes=1)  # how long an answer on its way is waited for before looking again


class ReminderWay(StrEnum):
    """How a person is reminded."""

    AGENT = "agent"
    TOAST = "toast"
    PHONE = "phone"


@dataclass(frozen=True, slots=True)
class LadderStep:
    """One step of the ladder: a way, and how long after the question."""

    way: ReminderWay
    after: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderLadder:
    """The steps, in order of time, and the hours in which a person is left alone, by this clock."""

    rungs: Sequence[LadderStep] = ()
    quiet: QuietHours | None = None
    local: tzinfo | None = None  # None: the machine's own

    @property
    def length(self) -> timedelta:
        """How long after a question the last step is, and the quiet hours that may hold it back."""
        return max((rung.after for rung in self.rungs), default=timedelta(0)) + timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextReminder:
    """What comes next for a question: go this way now (None: none), and look at it again then."""

    way: ReminderWay | None
    due_at: datetime


def climbing(rungs: Sequence[LadderStep]) -> tuple[LadderStep, ...]:
    """Return the rungs that are wanted, in order of time; one without a time is none."""
    return tuple(sorted((rung for rung in rungs if rung.after > timedelta(0)), key=lambda rung: rung.after))


def next_move(question: Question, ladder: ReminderLadder, now: datetime) -> NextReminder:
    """Return what is to be done about an open question now: the first rung that is due and was not tried."""
    if question.has_reply:
        return NextReminder(way=None, due_at=now + SENDING)
    asked_at = question.message.received_at
    # Asked in the future: the clock was set back since. When it really was, nobody knows: it is due.
    since = asked_at if asked_at <= now + SKEW else datetime.min.replace(tzinfo=UTC)
    for number, rung in enumerate(ladder.rungs):
        if rung.way in question.tried:
            continue
        if now - since < rung.after:
            return NextReminder(way=None, due_at=since + rung.after)
        if rung.way is ReminderWay.AGENT and not question.is_seen:
            # No agent has it yet: there is nobody to remind, and delivering it is not our business.
            continue
        if rung.way is not ReminderWay.AGENT and (until := _quiet_until(ladder, now)) is not None:
            return NextReminder(way=None, due_at=until)
        return NextReminder(way=rung.way, due_at=_after(ladder, number, question, since, now))
    return NextReminder(way=None, due_at=NEVER)


def _after(ladder: ReminderLadder, number: int, question: Question, since: datetime, now: datetime) -> datetime:
    """Return when the rung after this one is due: not before its time has passed since this one, however late it is."""
    passed = ladder.rungs[number].after
    for rung in ladder.rungs[number + 1 :]:
        if rung.way not in question.tried:
            rest = rung.after - (now - since)
            return now + max(rest, rung.after - passed)
    return NEVER


def _quiet_until(ladder: ReminderLadder, now: datetime) -> datetime | None:
    """Return when the quiet hours end, None outside of them."""
    if ladder.quiet is None:
        return None
    here = now.astimezone(ladder.local)
    return ladder.quiet.until(here).astimezone(UTC) if ladder.quiet.covers(here) else None


_log = logging.getLogger("harken.escalation")

LOOK_EVERY_SECONDS: Final = 15.0
AT_ONCE: Final = 500
TRY_AGAIN: Final = timedelta(minutes=5)
KINDS: Final[Mapping[ReminderWay, str]] = {
    ReminderWay.AGENT: "reminded",
    ReminderWay.TOAST: "escalated",
    ReminderWay.PHONE: "escalated",
}

Tell = Callable[[Sequence[Question]], Awaitable[bool]]
"""Tells of questions, the oldest first; returns whether that may have been seen. May raise a `HarkenError`."""


class Escalation:
    """The loop over open questions, for one daemon. A way that is not there is passed over."""

    def __init__(
        self, questions: QuestionStore, clock: Clock, ladder: ReminderLadder, ways: Mapping[ReminderWay, Tell]
    ) -> None:
        self._questions = questions
        self._clock = clock
        self._ladder = ladder
        self._ways = ways
        self._looked_at: datetime | None = None

    async def run(self) -> None:
        """Look now and then, for ever."""
        while True:
            while await self.look() == AT_ONCE:
                pass
            await anyio.sleep(LOOK_EVERY_SECONDS)

    async def look(self) -> int:
        """Do what is due; return how many questions were looked at."""
        now = self._clock.now()
        if self._looked_at is None or now < self._looked_at - SKEW:
            # Other settings than before the start may have more steps, and a clock that was ahead put things off.
            await self._questions.wake(now + self._ladder.length + SKEW)
        self._looked_at = now
        due = await self._questions.due(now, AT_ONCE)
        told: defaultdict[ReminderWay, list[tuple[Question, NextReminder]]] = defaultdict(list)
        for question in due:
            move = next_move(question, self._ladder, now)
            if move.way is None:
                await self._questions.move([question.message.id], due_at=move.due_at)
            else:
                told[move.way].append((question, move))
        for way, pairs in told.items():
            await self._tell(way, pairs)
        return len(due)

    async def _tell(self, way: ReminderWay, pairs: Sequence[tuple[Question, NextReminder]]) -> None:
        # Others were told meanwhile, which takes its time.
        ids = [question.message.id for question, _ in pairs]
        still = {each.message.id: each for each in await self._questions.open(len(ids), messages=ids)}
        pairs = [(still[id_], move) for id_, (_, move) in zip(ids, pairs, strict=True) if id_ in still]
        pairs = [(question, move) for question, move in pairs if not question.has_reply]
        if not pairs:
            return
        questions = sorted((question for question, _ in pairs), key=lambda each: each.message.received_at)
        is_told = await self._try(way, questions)
        for question, move in pairs:
            await self._record(way, question.message.id, move.due_at, is_told=is_told)

    async def _record(self, way: ReminderWay, message: MessageId, due_at: datetime, *, is_told: bool) -> None:
        if is_told:
            await self._questions.move([message], due_at=due_at, way=way.value, kind=KINDS[way])
        elif way is ReminderWay.PHONE:
            # The last hope: it is tried until it works or the question is answered.
            await self._questions.move([message], due_at=self._clock.now() + TRY_AGAIN)
        else:
            # A machine without a desktop, or no session to remind: the next step is the one that counts.
            await self._questions.move([message], due_at=due_at, way=way.value)

    async def _try(self, way: ReminderWay, questions: Sequence[Question]) -> bool:
        tell = self._ways.get(way)
        if tell is None:
            return False
        try:
            return await tell(questions)
        except HarkenError as exc:
            _log.warning("nobody could be told of %d questions by %s: %s", len(questions), way.value, exc.message)
            return False
