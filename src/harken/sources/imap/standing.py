"""How one folder is doing, and how its source is as a whole. It opens nothing and decides no waits.

What it tells people is true at any moment: a folder that nobody can read is not hidden by another that is read well.
Above is `source.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.errors import HarkenError, NeedsPerson
from harken.model import Draft
from harken.sources.source import SourceHealth, SourceState

# The first of these that a folder is in, is how the source is.
_WORST_FIRST: Final = (
    SourceState.NEEDS_PERSON,
    SourceState.RETRYING,
    SourceState.CONNECTING,
    SourceState.LISTENING,
    SourceState.SILENT,
    SourceState.STOPPED,
)


class ImapStanding:
    """The state and the counts of one folder."""

    def __init__(self, folder: str, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._state = SourceState.CONNECTING
        self._reason = ""
        self._found = ""
        self._pace = ""
        self._since = clock.now()
        self._next_try: datetime | None = None
        self._last_message_at: datetime | None = None
        self._reconnects = 0
        self._gaps = 0
        self._known = 0
        self._counts: dict[str, int] = {}

    def begins(self) -> None:
        """Take note that somebody follows from now on."""
        self._enter(SourceState.CONNECTING)

    def found(self, count: int) -> None:
        """Take note of how many mails were there before the first look, which are not taken."""
        mails = "1 mail was" if count == 1 else f"{count:,} mails were"
        self._found = f"{self._folder}: {mails} there before, and not taken." if count else ""

    def listens(self, pace: str) -> None:
        """Take note that the folder was read to its end, and how soon new mail is known from now on."""
        self._reconnects += self._state is SourceState.RETRYING
        self._pace = pace
        self._enter(SourceState.LISTENING, self._found)

    def retries(self, error: HarkenError, seconds: float) -> None:
        """Take note why the folder could not be read, and when it is tried again."""
        self._enter(SourceState.RETRYING, error.message, self._clock.now() + timedelta(seconds=seconds))

    def needs_person(self, error: NeedsPerson) -> None:
        """Take note what a person must do first."""
        todo = error.action or error.hint
        self._enter(SourceState.NEEDS_PERSON, f"{error.message} To do: {todo}." if todo else error.message)

    def lost_place(self) -> None:
        """Take note that it is not known what came before: the checkpoint could not be read."""
        self._gaps += 1

    def stops(self) -> None:
        """Take note that nobody follows any more; what a person must do is still to be done."""
        if self._state is not SourceState.NEEDS_PERSON:
            self._enter(SourceState.STOPPED)

    def stored(self, drafts: Sequence[Draft], *, known: int) -> None:
        """Take note of what was stored."""
        for draft in drafts:
            self._counts[draft.channel] = self._counts.get(draft.channel, 0) + 1
        if drafts:
            self._last_message_at = self._clock.now()
        self._known += known

    def health(self) -> SourceHealth:
        """Return how the folder is doing now."""
        return SourceHealth(
            state=self._state,
            reason=self._reason,
            since=self._since,
            next_try=self._next_try,
            last_message_at=self._last_message_at,
            reconnects=self._reconnects,
            gaps=self._gaps,
            known=self._known,
            counts=dict(self._counts),
            pace=self._pace,
        )

    def _enter(self, state: SourceState, reason: str = "", next_try: datetime | None = None) -> None:
        if state is not self._state:
            self._since = self._clock.now()
        self._state, self._reason, self._next_try = state, reason, next_try


def together(healths: Sequence[SourceHealth]) -> SourceHealth:
    """Return how a source is whose folders are so: as its worst folder, with the counts of all."""
    worst = min(healths, key=lambda health: _WORST_FIRST.index(health.state))
    reasons = [health.reason for health in healths if health.state is worst.state and health.reason]
    counts: dict[str, int] = {}
    for health in healths:
        for channel, count in health.counts.items():
            counts[channel] = counts.get(channel, 0) + count
    return SourceHealth(
        state=worst.state,
        reason=" ".join(dict.fromkeys(reasons)),
        since=worst.since,
        next_try=worst.next_try,
        last_message_at=max((each.last_message_at for each in healths if each.last_message_at), default=None),
        reconnects=sum(health.reconnects for health in healths),
        gaps=sum(health.gaps for health in healths),
        known=sum(health.known for health in healths),
        counts=counts,
        pace=worst.pace,
    )
