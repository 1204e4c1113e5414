"""The ladder: what is done, and when, about a question that nobody answers.

First the agent that was given it is reminded, then the person is told on the desktop, then on the phone. Pure: from a
question, the steps and the time it says what comes next. `escalation.py` does it; the store remembers how far each
question has got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final

from harken.rules.rule import QuietHours
from harken.store.contract.questions import Question

NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)
SKEW: Final = timedelta(minutes=1)
SENDING: Final = timedelta(minutes=1)  # how long an answer on its way is waited for before looking again


class ReminderWay(StrEnum):
    """How somebody is reminded."""

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
