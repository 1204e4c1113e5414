"""Proof: takes what events of sessions prove, and lets go of what they can prove no more.

The rules stand in docs/explanation/delivery.md. What an event means for what hooks and wakes carried is decided in
`turns`; `CallLog` decides it for what results of calls carried. A model that calls a tool has read the results of its
earlier steps. So a call that arrives after the answer to an earlier one was written proves what that answer carried. A
call that overlaps it proves nothing (parallel calls belong to one step), and neither does the answer to a call that was
cancelled before it was written. `Proofs` does what follows for the store. Nothing else moves a cursor because of what a
host did.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from harken.clock import Clock
from harken.model import Consumer, Delivery, DeliveryId, SessionKey, fresh_id
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.sessions.turns import MAX_CARRIERS, HookEvent, HookMoment, TurnVerdict
from harken.store.contract.deliveries import DeliveryStore, OpenOffer

ReadRecord = Callable[[Session], Awaitable[Collection[str]]]
"""Returns the unproven deliveries of a session whose texts its host's own record holds."""

# How carriers begin that are results of Harken's own tools, where hooks tell whose they were.
_RESULT: Final = "result/"
_TOLD: Final = re.compile(r".*/c-[0-9a-z]+", re.DOTALL)  # how carriers end that are texts; those of calls end with JSON


def text_carrier(surface: str) -> str:
    """Return a new name for a text that goes through a surface."""
    return f"{surface}/{fresh_id('c-')}"


def is_text(carrier: str) -> bool:
    """Whether a carrier is a text that was told, and not the answer to a call of an edge."""
    return carrier.startswith(("hook: ", "wake: ", _RESULT)) or _TOLD.fullmatch(carrier) is not None


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

    def begin(self, request: str, overlapping: Collection[str] = ()) -> None:
        """A call arrived: it proves what was answered by now, but for calls that were answered after it was sent."""
        self._lost.discard(request)
        if len(self._open) >= MAX_CARRIERS:
            return
        self._open[request] = _AnsweredResult()
        proven = {name: carried for name, carried in self._answered.items() if name not in overlapping}
        if proven:
            self._answered = {name: carried for name, carried in self._answered.items() if name in overlapping}
            self._proven[request] = proven

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

    def discard(self, request: str, *, is_proven_by_calls: bool = True) -> bool:
        """An answer that was written did not arrive; return whether it is unproven.

        Calls that have begun prove it, unless it is known that they cannot.
        """
        self._when_proven.pop(request, None)
        by_calls = [] if is_proven_by_calls else [each.pop(request, None) for each in self._proven.values()]
        return self._answered.pop(request, None) is not None or any(each is not None for each in by_calls)

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


class Proofs:
    """What sessions were given, and what is known to have arrived. One per daemon."""

    def __init__(self, deliveries: DeliveryStore, sessions: Sessions, clock: Clock, *, lease: timedelta) -> None:
        self._deliveries = deliveries
        self._sessions = sessions
        self._clock = clock
        self._lease = lease

    # -- what happened to an offer ----------------------------------------------------------------------------

    async def prove(
        self, deliveries: Collection[DeliveryId], evidence: str, *, consumer: Consumer | None = None
    ) -> Sequence[Delivery]:
        """Take proof that a model got these, or only those of a consumer."""
        return await self._deliveries.prove(deliveries, evidence, consumer=consumer) if deliveries else []

    async def release(self, session: SessionKey, carriers: Collection[str] | None = None) -> None:
        """Take back what was offered and did not arrive, so that it is offered again as a repeat."""
        await self._deliveries.release(session, carriers)

    async def withdraw(self, session: SessionKey, carrier: str) -> None:
        """Undo the offers of a call without a written answer."""
        await self._deliveries.withdraw(session, carrier)

    async def rename(self, session: SessionKey, to: SessionKey) -> None:
        """Let what a session was given be its under the name that is known only now."""
        await self._deliveries.transfer(session, to)

    # -- hooks and wakes --------------------------------------------------------------------------------------

    async def hear(self, session: Session, event: HookEvent, read: ReadRecord) -> bool:
        """Take what an event proves, and follow its turn; return whether its prompt is what Harken itself said."""
        await self._give_up_edges(session, event)
        if event.is_interrupted:
            session.went_idle(event.turn)
            await self._abandon_results(session)
            return False
        await self._follow_turn(session, event)
        is_own = session.says(event.prompt)
        await self._apply(session, session.judge(event, await self._recorded(session, event, read)))
        if event.moment is HookMoment.STOP and not session.shares_connection:
            await self.prove(session.settled(event.turn), "end of turn")
        await self._note_results(session, event)
        return is_own

    async def look_again(self, session: Session, read: ReadRecord) -> None:
        """Look into the host's record while a wake is unproven: many hosts write it after their hooks have run."""
        await self._apply(session, session.written(await read(session)))

    async def give_up_wakes(self, session: Session, read: ReadRecord) -> None:
        """Wait no longer for the proof of wakes: what they carried is offered again."""
        await self.look_again(session, read)
        if carriers := session.give_up_wakes():
            await self.release(session.key, carriers)

    async def leave(self, session: Session, read: ReadRecord, *, keeps_running: bool) -> None:
        """The conversation is over: what is unproven may be offered to another session."""
        await self.look_again(session, read)
        await self.release(session.key)
        self._sessions.leave(session, keeps_running=keeps_running)

    async def settle_past(self, session: Session) -> None:
        """Let the log of a session and its open offers agree after a restart.

        What an earlier daemon told it by hooks and wakes, and nothing can prove any more, is offered again.
        """
        known = session.carriers
        offers = await self._deliveries.open_offers(session.key)
        # What a result carried was known to an earlier version's store by the call that it answered.
        named = {offer.carrier for offer in offers} | {name for name in known if name.startswith(_RESULT)}
        for carrier in set(known) - named:
            session.forget_carrier(carrier)
        if lost := {offer.carrier for offer in offers if is_text(offer.carrier) and offer.carrier not in known}:
            await self.release(session.key, lost)

    async def _apply(self, session: Session, verdict: TurnVerdict) -> None:
        # What a payload names may be anybody's: a session proves what its own reader was given.
        await self.prove(verdict.proven, verdict.evidence, consumer=session.consumer)
        for carrier, deliveries in verdict.returned.items():
            # Offered to nobody else: it has arrived late, and its proof may follow.
            until = self._clock.now() + self._lease
            await self._deliveries.renew(session.key, deliveries, carrier=carrier, lease_until=until)
        if verdict.released:
            session.forget_last_told()
            await self.release(session.key, verdict.released)

    async def _recorded(self, session: Session, event: HookEvent, read: ReadRecord) -> Collection[str]:
        """Return what the host's own record proves: of a turn without an end, or of a wake that no prompt shows."""
        session.note_transcript(event.transcript)
        return await read(session) if event.moment in (HookMoment.PROMPT, HookMoment.STOP) else ()

    async def _note_results(self, session: Session, event: HookEvent) -> None:
        """Note what a result of Harken's own tools carried: the next step of this turn, or its end, proves it."""
        session.note_results(can_tell=event.results is not None)
        if event.moment is not HookMoment.TOOL or not event.results:
            return
        carrier = f"{_RESULT}{fresh_id('c-')}"
        # The call may have been taken for another conversation's: only now it is known whose it was.
        deliveries = await self._deliveries.reassign(
            [DeliveryId(each) for each in event.results],
            consumer=session.consumer,
            session=session.key,
            carrier=carrier,
        )
        session.carried_result(carrier, deliveries, event.turn)

    async def _give_up_edges(self, session: Session, event: HookEvent) -> None:
        """After a restart another turn is told of before an edge is back: what that one carried was in none of it."""
        if not (edges := session.give_up_edges(event)):
            return
        offers = await self._deliveries.open_offers(session.key)
        offers = [each for each in offers if each.carrier.split("/")[0] in edges]
        if event.moment is HookMoment.PROMPT:
            # The host's own record may show it; else the prompt lets go of it.
            for offer in offers:
                session.inherit_result(offer.carrier, offer.delivery_id, is_printed=False)
        elif offers:
            await self.release(session.key, {offer.carrier for offer in offers})

    async def _follow_turn(self, session: Session, event: HookEvent) -> None:
        """Note in which turn a session is; what tool results carried in another one is proven no more."""
        if session.take_replaced():
            await self.release(session.key)
        is_same = bool(event.turn) and event.turn == session.turn
        if event.moment in (HookMoment.START, HookMoment.PROMPT) and not is_same:
            await self._abandon_results(session)
        elif event.moment is HookMoment.TOOL and event.turn:
            # The hook of its prompt was lost.
            await self._abandon_results(session, but_of=event.turn)
        if event.moment in (HookMoment.PROMPT, HookMoment.TOOL):
            session.follow(event.turn)

    async def _abandon_results(self, session: Session, *, but_of: str = "") -> None:
        """Another turn begins, or this one was interrupted: what tool results carried in it is offered again."""
        if session.shares_connection:
            await self._abandon_unreported(session, is_going_on=bool(but_of))
            return
        carriers = [carrier for pusher in session.connections.values() for carrier in pusher.abandon(but_of)]
        if carriers:
            await self.release(session.key, carriers)

    async def _abandon_unreported(self, session: Session, *, is_going_on: bool) -> None:
        """Let go of results that no hook has told of; while the turn goes on, one may still do so."""
        if is_going_on:
            return
        # Any conversation of the process may have been taken for the one that called.
        for each in self._sessions.all_of_process(session):
            offers = await self._deliveries.open_offers(each.key)
            if carriers := {offer.carrier for offer in offers if not is_text(offer.carrier)}:
                await self.release(each.key, carriers)

    # -- calls ------------------------------------------------------------------------------------------------

    async def called(self, session: Session, log: CallLog, request: str) -> None:
        """A session calls a tool: take what that proves of earlier results."""
        # Where nobody says which conversation calls, its hooks tell which of them had a result.
        proven = log.proven_by(request, None if session.shares_connection else session)
        if not session.shares_connection:
            # The hooks of other conversations of the connection prove what those had: a call of this one does not.
            for other, carrier, deliveries, turn in log.hand_over(session):
                other.carried_result(carrier, deliveries, turn)
        # Where conversations share a connection, the call may be of another one than the result before it.
        await self.prove(() if session.reports_results else proven, "later call")

    async def resume(
        self, session: Session, log: CallLog, *, unanswered: Collection[str], resent: Collection[str]
    ) -> None:
        """An edge is back after a restart: what its answers carried can still be proven; what had none goes again.

        `unanswered` are requests with answers that were not written, or were given up; `resent` those that come once
        more.
        """
        if resent and session.is_busy:
            # Somebody waits for the answer of a call: it is still in the turn that it was in.
            session.work()
        if session.shares_connection:
            # Of which conversation they were, its hooks have not told, and do not any more.
            for each in self._sessions.all_of_process(session):
                await self.release_calls(each.key, log)
            return
        offers = await self._offers_by(session.key, log)
        lost_carriers = {log.carrier(request) for request in unanswered}
        is_awaited = session.edge_came_back(log.edge)
        lost = set[str]()
        for offer in offers:
            if offer.carrier in lost_carriers or (session.is_hooked and not is_awaited):
                # A hook that came first has told of another turn, or nobody knows which one had it.
                lost.add(offer.carrier)
            elif session.is_hooked:
                # Whether the turn that had it still goes on, its hooks or its host's record say.
                session.inherit_result(offer.carrier, offer.delivery_id)
            else:
                log.restore(offer.carrier, offer.delivery_id, resent=resent)
        if lost:
            await self.release(session.key, lost)

    async def release_calls(self, key: SessionKey, log: CallLog) -> None:
        """Offer again what went to a session through an edge and is unproven."""
        if carriers := {offer.carrier for offer in await self._offers_by(key, log)}:
            await self.release(key, carriers)

    async def _offers_by(self, key: SessionKey, log: CallLog) -> Sequence[OpenOffer]:
        """Return what went through an edge; another edge of the same session answers for the rest."""
        return [offer for offer in await self._deliveries.open_offers(key) if offer.carrier.startswith(log.carrier(""))]
