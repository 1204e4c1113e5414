"""What hooks and wakes carried to one session, and what its later events prove. Pure.

A turn runs from a prompt to its end. Whoever calls a tool has read the prompt; whoever ends a turn has read all of it.
But an event may also belong to the step that carried a message (tools that run side by side), or follow an
interruption: such events prove nothing, and what stays unproven is offered again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from harken.model import DeliveryId

MAX_CARRIERS = 1_000


class Carriage(Enum):
    """When in a turn something was carried."""

    OPENING = auto()  # with a prompt, or with what keeps a turn going: the model reads it before its next step
    STEP = auto()  # between two tool calls
    WAKE = auto()  # from outside, to start a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an event means for what was carried before it."""

    proven: Sequence[DeliveryId] = ()
    evidence: str = ""
    released: Sequence[str] = ()  # carriers whose turn was interrupted: nobody knows whether they arrived


@dataclass(slots=True, kw_only=True)
class _Carried:
    deliveries: tuple[DeliveryId, ...]
    carriage: Carriage
    turn: str  # in which turn, where the host names them
    ends_needed: int | None  # how many turns must end before this is proven; None: their end proves nothing

    def is_of(self, turn: str) -> bool:
        """Whether an event of a turn can be one of the turn that carried this."""
        return not (self.turn and turn) or self.turn == turn


class TurnLog:
    """The carriers of one session that have no proof yet."""

    def __init__(self) -> None:
        self._open: dict[str, _Carried] = {}
        self._given_up: set[DeliveryId] = set()  # a host may show them late, after a long tool

    @property
    def carried(self) -> Collection[DeliveryId]:
        """What has no proof yet."""
        return [delivery for carried in self._open.values() for delivery in carried.deliveries]

    @property
    def carriers(self) -> Collection[str]:
        """Who carried it."""
        return tuple(self._open)

    def carry(
        self,
        carrier: str,
        deliveries: Collection[DeliveryId],
        carriage: Carriage,
        *,
        turn: str = "",
        is_busy: bool = False,
        is_echoed: bool = False,
    ) -> None:
        """Note what a hook or a wake handed over.

        A wake that meets a busy session is read in its next turn. One that is echoed comes back as a prompt of the
        host: nothing but that shows that it arrived.
        """
        if not deliveries or len(self._open) >= MAX_CARRIERS:
            return
        needed = None if is_echoed else 2 if carriage is Carriage.WAKE and is_busy else 1
        self._open[carrier] = _Carried(deliveries=tuple(deliveries), carriage=carriage, turn=turn, ends_needed=needed)

    def forget(self, carrier: str) -> None:
        """A carrier did not arrive."""
        self._open.pop(carrier, None)

    def submitted(self, prompt: str, turn: str = "", *, recorded: Collection[str] = ()) -> Verdict:
        """A prompt came. What the host has `recorded` is proven; what the prompt itself shows begins this turn.

        A turn that had ended left nothing open. So what is still open was carried in one that was interrupted, unless
        the host says that this prompt came in the middle of the very same turn.
        """
        proven = [delivery for delivery in self.carried if delivery in recorded]
        late = [delivery for delivery in self._given_up if delivery in prompt]
        self._given_up -= set(late)
        released = []
        for carrier, carried in tuple(self._open.items()):
            carried.deliveries = tuple(delivery for delivery in carried.deliveries if delivery not in proven)
            is_shown = bool(carried.deliveries) and all(delivery in prompt for delivery in carried.deliveries)
            if is_shown:
                # It is what this turn begins with: read when the turn goes on, gone when it is taken back.
                carried.carriage, carried.turn, carried.ends_needed = Carriage.OPENING, turn, 1
            elif carried.carriage is Carriage.WAKE:
                # This prompt begins a turn of its own: its end says nothing about what the wake carried.
                carried.ends_needed = None if carried.ends_needed is None else carried.ends_needed + 1
            is_lost = carried.carriage is not Carriage.WAKE and not is_shown and not (turn and carried.turn == turn)
            if is_lost or not carried.deliveries:
                del self._open[carrier]
            if is_lost and carried.deliveries:
                released.append(carrier)
        return Verdict(proven=[*proven, *late], evidence="in a prompt or the transcript", released=released)

    def stepped(self, turn: str = "", *, is_step: bool) -> Verdict:
        """A tool has run; with `is_step` this is known to be another model step than the last such event."""
        kinds = {Carriage.OPENING, Carriage.STEP} if is_step else {Carriage.OPENING}
        proven = self._take(kinds, turn)
        if is_step:
            # A wake that began this very turn has been read by then; one with a prompt after it did not begin it.
            begun = [name for name, c in self._open.items() if c.carriage is Carriage.WAKE and c.ends_needed == 1]
            proven += [delivery for carrier in begun for delivery in self._open.pop(carrier).deliveries]
        return Verdict(proven=proven, evidence="later step")

    def ended(self, turn: str = "", *, recorded: Collection[str] = ()) -> Verdict:
        """The model is done with the turn: it has read everything in it, and what the host has `recorded`."""
        proven = self._take({Carriage.OPENING, Carriage.STEP}, turn)
        return Verdict(proven=[*proven, *self.written(recorded).proven], evidence="end of turn")

    def written(self, recorded: Collection[str]) -> Verdict:
        """The host has `recorded` what wakes carried, in whichever turn it was."""
        wakes = [(name, carried) for name, carried in self._open.items() if carried.carriage is Carriage.WAKE]
        done = [name for name, carried in wakes if set(carried.deliveries) <= set(recorded)]
        proven = [delivery for carrier in done for delivery in self._open.pop(carrier).deliveries]
        return Verdict(proven=proven, evidence="in the transcript")

    def closed(self) -> Verdict:
        """The turn is over, nothing held it up: a wake that began it, or waited for as many to end, has been read."""
        done = []
        for carrier, carried in self._open.items():
            if carried.carriage is Carriage.WAKE and carried.ends_needed is not None:
                carried.ends_needed -= 1
                done += [carrier] if carried.ends_needed <= 0 else []
        proven = [delivery for carrier in done for delivery in self._open.pop(carrier).deliveries]
        return Verdict(proven=proven, evidence="end of turn")

    def give_up_wakes(self) -> Sequence[str]:
        """Wait no longer for the proof of wakes; return their carriers."""
        carriers = [carrier for carrier, carried in self._open.items() if carried.carriage is Carriage.WAKE]
        for carrier in carriers:
            self._given_up.update(self._open.pop(carrier).deliveries)
        if len(self._given_up) > MAX_CARRIERS:
            self._given_up.clear()
        return carriers

    def _take(self, kinds: Collection[Carriage], turn: str) -> list[DeliveryId]:
        carriers = [name for name, carried in self._open.items() if carried.carriage in kinds and carried.is_of(turn)]
        return [delivery for carrier in carriers for delivery in self._open.pop(carrier).deliveries]
