"""Tells a session what waits for it, in one text: chosen to fit, offered, rendered, and accounted for.

Hooks, wakes and the claude channel use it. Choosing comes before offering, so what does not fit stays queued and is
only announced. Whether the text arrived, the carrier of it has to say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import anyio

from harken import render
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Questions
from harken.model import Attention, DeliveryId, Message, MessageId, Trust
from harken.sessions.proof import text_carrier
from harken.sessions.session import Session
from harken.sessions.turns import TurnPhase, width

PUSHING = frozenset({Attention.WAKE, Attention.BOUNDARY})
MAX_MESSAGES = 50
BLOCK_MESSAGES = 5
MAX_OWED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTextRequest:
    """What a text for a session must be: for which surface, how long, in which voice, in which phase of its turn."""

    surface: str
    most_chars: int
    phase: TurnPhase
    speaks_as_user: bool = False  # bodies of the owner only: the model takes it for its user's word
    has_block: bool = False  # the most recent channel messages go along
    is_new_turn: bool = False  # what was announced in the last turn may be announced again


@dataclass(frozen=True, slots=True, kw_only=True)
class HookText:
    """A text, and what it carries."""

    text: str = ""
    carrier: str = ""
    deliveries: tuple[DeliveryId, ...] = ()
    messages: tuple[Message, ...] = ()  # those that it tells whole
    noticed: frozenset[MessageId] = frozenset()  # announced without their text
    told_before: tuple[MessageId | None, frozenset[MessageId]] = (None, frozenset())  # `Session.last_told` before this


NO_TEXT = HookText()


class HookComposer:
    """Makes the texts."""

    def __init__(self, inbox: Inbox, questions: Questions) -> None:
        self._inbox = inbox
        self._questions = questions

    async def tell(self, session: Session, request: HookTextRequest, *, turn: str = "") -> HookText:
        """Offer what waits and fits, and return the text for it; empty when there is nothing to say."""
        if session.problem is not None:
            return NO_TEXT
        carrier, is_done = text_carrier(request.surface), False
        try:
            told = await self._tell(session, request, carrier, turn)
            is_done = True
        finally:
            if not is_done:
                # The store went away, or nobody waits for it any more: what was offered so far is in no text.
                with anyio.CancelScope(shield=True):
                    await self._inbox.proofs.withdraw(session.key, carrier)
        return told

    async def _tell(self, session: Session, request: HookTextRequest, carrier: str, turn: str) -> HookText:
        if request.is_new_turn:
            session.forget_notices()
        if request.phase is TurnPhase.WAKE:
            session.begin_wake()
        block, deliveries, told_before = "", list[DeliveryId](), session.last_told
        if request.has_block and not request.speaks_as_user:
            block, deliveries = await self._block(session, request.surface, carrier)
        block = "\n\n".join(part for part in (block, await self._owed(session) if request.has_block else "") if part)
        room = request.most_chars - width(block) - 2
        # What was only announced because of the voice may come whole through another one; what is too long may not.
        known = session.told_of if request.speaks_as_user else session.too_long
        # Where no block may be shown, what would have stood in it is told like the rest: whole only from the owner.
        reach = PUSHING | {Attention.PROMPT} if request.has_block and request.speaks_as_user else PUSHING
        waiting = await self._inbox.waiting(session.reader, reach, MAX_MESSAGES, without=known)
        is_least = len(waiting) >= MAX_MESSAGES
        bodies = [m for m in waiting if not request.speaks_as_user or m.trust is Trust.OWNER]
        chosen = render.fitting(_urgent_first(bodies), room)
        offers = await self._inbox.hand_over(session.reader, chosen, surface=request.surface, carrier=carrier)
        taken = {message.id for message in chosen}
        if not request.speaks_as_user:
            session.note_too_long([message.id for message in waiting if message.id not in taken])
        left = [m for m in waiting if m.id not in taken and m.id not in session.told_of]
        noticed = frozenset(message.id for message in left)
        is_listed = not request.speaks_as_user
        told = render.telling(offers, left, most_chars=room, is_listed=is_listed, is_least=is_least)
        text = "\n\n".join(part for part in (told, block) if part)
        deliveries += [offer.delivery_id for offer in offers]
        notice = render.announcement(left, is_listed=is_listed, is_least=is_least) if left else ""
        session.announce(noticed, notice)
        session.carry(carrier, deliveries, request.phase, turn=turn)
        if not text:
            return NO_TEXT
        return HookText(
            text=text,
            carrier=carrier,
            deliveries=tuple(deliveries),
            messages=tuple(offer.message for offer in offers),
            noticed=noticed,
            told_before=told_before,
        )

    async def take_back(self, session: Session, told: HookText) -> None:
        """The text did not arrive: what it carried is queued as before."""
        session.not_carried(told.carrier, told.noticed, told.told_before)
        if told.deliveries:
            await self._inbox.proofs.withdraw(session.key, told.carrier)

    async def give_up(self, session: Session, told: HookText) -> None:
        """The text may have arrived: what it carried is offered again, as a repeat."""
        session.not_carried(told.carrier, told.noticed)
        if told.deliveries:
            await self._inbox.proofs.release(session.key, [told.carrier])

    async def _block(self, session: Session, surface: str, carrier: str) -> tuple[str, list[DeliveryId]]:
        """Return the channel messages that go with a prompt, unless nothing changed since the last one."""
        recent = await self._inbox.recent(session.reader, BLOCK_MESSAGES)
        # What is shown cut was not given: it stays queued, and can be pulled whole.
        whole = [message for message in recent if render.fits_a_line(message)]
        offers = await self._inbox.hand_over(session.reader, whole, surface=surface, carrier=carrier)
        deliveries = {offer.message.id: offer.delivery_id for offer in offers}
        shown = {message.id for message in recent}
        waiting = await self._inbox.waiting(session.reader, {Attention.PROMPT}, MAX_MESSAGES)
        older = [message for message in waiting if message.id not in shown]
        # What the person cleared before this agent saw it is not shown, and waits: that is told like any news.
        newest = max((*reversed(recent), *older), key=lambda message: message.received_at, default=None)
        if newest is None or (not deliveries and await self._is_known(session, newest, recent)):
            return "", []
        session.show_block(newest.id)
        is_least = len(waiting) >= MAX_MESSAGES
        if not recent:
            return render.still_waiting(len(older), is_least=is_least), []
        return render.channel_block(recent, deliveries, len(older), is_least=is_least), list(deliveries.values())

    async def _is_known(self, session: Session, newest: Message, recent: Sequence[Message]) -> bool:
        if newest.id == session.last_told[0]:
            return True
        return newest in recent and await self._was_told(session, recent)

    async def _owed(self, session: Session) -> str:
        """Return the line about what waits for this agent's answer, unless it was told the same before."""
        found = await self._questions.owed(session.mailboxes, session.consumer, MAX_OWED)
        is_news = session.owe(frozenset(each.message.id for each in found))
        if not found or not is_news:
            return ""
        names = [each.message.id for each in found]
        return render.owed_line(names, self._questions.how_long(found[0]), is_least=len(found) >= MAX_OWED)

    async def _was_told(self, session: Session, recent: Sequence[Message]) -> bool:
        """Whether an earlier daemon gave a session all of these: this one did not hear it begin."""
        if session.last_told[0] is not None or "start" in session.moments:
            return False
        seen = await self._inbox.seen_by(recent)
        return all(session.consumer in seen[message.id] for message in recent)


def _urgent_first(messages: Collection[Message]) -> Sequence[Message]:
    return sorted(messages, key=lambda message: message.priority.value != "high")
