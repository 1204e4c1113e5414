"""What a later call proves. Pure.

A model that calls a tool has read the results of its earlier steps. So a call that arrives after the answer to an
earlier one was written proves what that answer carried. A call that overlaps it proves nothing (parallel calls
belong to one step), and neither does the answer to a call that was cancelled before it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from harken.model import DeliveryId
from harken.sessions.session import Session

MAX_CARRIERS = 1_000


@dataclass(slots=True)
class _AnsweredResult:
    deliveries: list[DeliveryId] = field(default_factory=list[DeliveryId])
    turn: str = ""  # in which the call was made, where hooks tell of turns
    session: Session | None = None  # that made it: one connection may serve several

    def add(self, other: _AnsweredResult) -> None:
        """Have what another answer to the same request has."""
        self.deliveries += other.deliveries
        self.turn = self.turn or other.turn
        self.session = self.session or other.session

    def is_of(self, turn: str) -> bool:
        """Whether an event of a turn can be one of the turn that carried this."""
        return not (self.turn and turn) or self.turn == turn

    def is_of_another(self, session: Session | None) -> bool:
        """Whether another session than this one made the call."""
        return None not in (self.session, session) and self.session is not session


class CallLog:
    """Which requests of one connection carried which deliveries, and which of them were answered."""

    def __init__(self, edge: str) -> None:
        self.edge = edge
        self._open: dict[str, _AnsweredResult] = {}
        self._answered: dict[str, _AnsweredResult] = {}
        self._proven: dict[str, dict[str, _AnsweredResult]] = {}  # by the call that proves it, and the one that had it
        self._lost: set[str] = set()  # of those that are still being worked on
        self._afterwards: dict[str, list[Callable[[], None]]] = {}
        self._when_proven: dict[str, list[Callable[[], None]]] = {}

    def carrier(self, request: str) -> str:
        """Return what the store knows a request of this connection by."""
        return f"{self.edge}/{request}"

    def begin(self, request: str) -> None:
        """A call arrived: it proves what was answered by now."""
        self._lost.discard(request)
        if len(self._open) >= MAX_CARRIERS:
            return
        self._open[request] = _AnsweredResult()
        if self._answered:
            self._proven[request], self._answered = self._answered, {}

    def proven_by(self, request: str, session: Session | None = None) -> Collection[DeliveryId]:
        """Return, once, what a call of a session proved when it arrived. What another session had stays."""
        proven = self._proven.pop(request, {})
        foreign = {name: carried for name, carried in proven.items() if carried.is_of_another(session)}
        for name, carried in foreign.items():
            self._answered.setdefault(name, _AnsweredResult()).add(carried)
        return self._read({name: carried for name, carried in proven.items() if name not in foreign})

    def hand_over(self, to: Session) -> Sequence[tuple[Session, str, Collection[DeliveryId], str]]:
        """Another session speaks now: return, once, what others had, of those with hooks that tell of turns.

        That is who had it, by which carrier, what, and in which turn.
        """
        foreign = [(n, c) for n, c in self._answered.items() if c.is_of_another(to)]
        hooked = [(c.session, n, c.deliveries, c.turn) for n, c in foreign if c.session and c.session.is_hooked]
        for _session, request, _deliveries, _turn in hooked:
            del self._answered[request]
            self._when_proven.pop(request, None)
        return [(session, self.carrier(request), deliveries, turn) for session, request, deliveries, turn in hooked]

    def carry(
        self, request: str, deliveries: Collection[DeliveryId], turn: str = "", session: Session | None = None
    ) -> None:
        """A call's result, in a turn, has these. Of a call that is not open, nothing can be proven any more."""
        if request in self._open:
            self._open[request].add(_AnsweredResult(list(deliveries), turn, session))

    def afterwards(self, request: str, do: Callable[[], None]) -> None:
        """Do something when a call's answer is written, and only then. Of a call that is not open, it is never."""
        if request in self._open:
            self._afterwards.setdefault(request, []).append(do)

    def when_proven(self, request: str, do: Callable[[], None]) -> None:
        """Do something when a call's answer is proven to have been read, and only then."""
        if request in self._open:
            self._when_proven.setdefault(request, []).append(do)

    def drop(self, request: str) -> bool:
        """A call gets another result than the one that had something; return whether it had."""
        carried = self._open.get(request)
        if carried is None or not carried.deliveries:
            return False
        self._open[request] = _AnsweredResult()
        return True

    def answer(self, request: str) -> None:
        """A call's answer was written."""
        self._leave_to_next(request)
        carried = self._open.pop(request, None)
        if carried is not None and (carried.deliveries or request in self._when_proven):
            self._answered.setdefault(request, _AnsweredResult()).add(carried)
        for do in self._afterwards.pop(request, ()):
            do()

    def settle(self, turn: str = "") -> Collection[DeliveryId]:
        """A turn ended: return, once, what was answered in it. What is known to be of another one stays."""
        ended = {request: carried for request, carried in self._answered.items() if carried.is_of(turn)}
        for request in ended:
            del self._answered[request]
        return self._read(ended)

    def abandon(self, but_of: str = "") -> Collection[str]:
        """Return, once, the carriers that can no longer be proved: their turn was interrupted, or is another now.

        What may be of the turn `but_of`, which goes on, stays.
        """
        requests = [name for name, carried in self._answered.items() if not but_of or not carried.is_of(but_of)]
        for request in requests:
            del self._answered[request]
            self._when_proven.pop(request, None)
        return [self.carrier(request) for request in requests]

    def cancel(self, request: str) -> bool:
        """A call was cancelled; return whether that was before its answer. Later ones are ignored."""
        self._leave_to_next(request)
        self._afterwards.pop(request, None)
        if request not in self._answered:
            self._when_proven.pop(request, None)
        if self._open.pop(request, None) is None:
            return False
        self._lost.add(request)
        return True

    def discard(self, request: str) -> bool:
        """The client gave up a call after its answer was written; return whether that is unproven, and lost."""
        self._when_proven.pop(request, None)
        return self._answered.pop(request, None) is not None

    def is_lost(self, request: str) -> bool:
        """Return, once, whether a call was cancelled before its answer: it gets none."""
        is_lost = request in self._lost
        self._lost.discard(request)
        return is_lost

    def restore(self, carrier: str, delivery: DeliveryId, *, resent: Collection[str] = ()) -> None:
        """Before a restart of the daemon, an answered call carried this.

        A call that came while the store was asked for it proves it; one that was only sent again does not.
        """
        request = carrier.removeprefix(self.carrier(""))
        if (newer := next((each for each in self._open if each not in resent), None)) is not None:
            self._proven.setdefault(newer, {}).setdefault(request, _AnsweredResult()).deliveries.append(delivery)
        else:
            self._answered.setdefault(request, _AnsweredResult()).deliveries.append(delivery)

    def _leave_to_next(self, request: str) -> None:
        """A call that was refused as malformed has not run: what it would have proven, the next one does."""
        for carrier, carried in self._proven.pop(request, {}).items():
            self._answered.setdefault(carrier, _AnsweredResult()).add(carried)

    def _read(self, answered: Mapping[str, _AnsweredResult]) -> list[DeliveryId]:
        """It is proven that these answers were read: do what waited for that, and return what they carried."""
        for request in answered:
            for do in self._when_proven.pop(request, ()):
                do()
        return [delivery for carried in answered.values() for delivery in carried.deliveries]
