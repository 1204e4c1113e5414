"""What hooks and wakes carried to one session, and what its later events prove. Pure.

What a hook of a host says about a session is a `HookEvent`, in words of our own.
The rules of proof stand in docs/explanation/delivery.md; this module decides them for what hooks and wakes carried,
`proof` for what tool results carried, and does what follows. A turn runs from a prompt to its end. A model that
calls a tool has read the prompt; one that ends a turn has read all of it. But an event may also belong to the step that
carried a message (tools that run side by side), or follow an interruption. A wake is queued by the host, which reads it
when it likes. And nothing is proven of a text while it is not known that the host has it. What stays unproven is
offered again.

A prompt or a host's record that holds the marks around a text holds the text too; an id alone proves nothing, because
any text may quote it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Self

import msgspec

from harken.model import DeliveryId

MAX_CARRIERS = 1_000
FRAME_CHARS = 620  # what stands around a text, at most
OPENING_CHARS = 900  # what stands before and after all of them, and room for the list of what does not fit
BLOCK_CHARS = 300  # of a text that goes with a prompt on one line


def width(text: str) -> int:
    """Return the length of a text as most hosts count it: in UTF-16 code units."""
    return len(text.encode("utf-16-le", "replace")) // 2


def on_one_line(text: str) -> str:
    """Return a text without its line ends."""
    return " ".join(text.split())


def beginning(delivery: str) -> str:
    """Return the line above a text that is told."""
    return f"--- {delivery} begins"


def end(delivery: str) -> str:
    """Return the line below a text: if it is there, the text was not cut off."""
    return f"--- {delivery} ends"


def line_mark(delivery: str) -> str:
    """Return what stands before a text of one line."""
    return f"] ({delivery}) "


def holds(record: str | bytes, delivery: str) -> bool:
    """Whether a prompt, or a line of a host's record, holds the text of a delivery as Harken gives it.

    In a record it may be inside of JSON, once or twice; none of the marks has a letter that JSON would change. Harken's
    own results are JSON too: there the id follows the field that names the sender, which no ledger has. Ingest defuses
    all these marks in texts of others.
    """
    if isinstance(record, bytes):
        # Records are long, and most lines of them hold nothing of ours.
        return delivery.encode() in record and holds(record.decode("utf-8", "replace"), delivery)
    text = record
    begun = text.find(beginning(delivery))
    if 0 <= begun < text.rfind(end(delivery)) or line_mark(delivery) in text:
        return True
    quote = r'\\*"'
    result = (
        rf'treat_as{quote}: ?{quote}[^"\\]*{quote}, ?{quote}delivery_id{quote}: ?{quote}{re.escape(delivery)}{quote}'
    )
    return re.search(result, text) is not None


class TurnPhase(StrEnum):
    """When in a turn something was carried."""

    OPENING = "opening"  # with a prompt, or with what keeps a turn going: the model reads it before its next step
    STEP = "step"  # between two tool calls
    WAKE = "wake"  # from outside, to start a turn: the host queues it


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnVerdict:
    """What an event means for what was carried before it."""

    proven: Sequence[DeliveryId] = ()
    evidence: str = ""
    released: Sequence[str] = ()  # carriers whose turn was interrupted: nobody knows whether they arrived
    # Carriers that were given up and that the host shows after all, with what they carry.
    returned: Mapping[str, Collection[DeliveryId]] = field(default_factory=dict[str, Collection[DeliveryId]])


class CarrierRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An open carrier, as it is kept over a restart of the daemon."""

    name: str
    deliveries: tuple[DeliveryId, ...]
    carriage: TurnPhase
    turn: str = ""
    is_printed: bool = False


@dataclass(slots=True, kw_only=True)
class _OpenCarrier:
    deliveries: tuple[DeliveryId, ...]
    carriage: TurnPhase
    turn: str  # in which turn, where the host names them
    is_printed: bool = False  # the host's own process has it; before that no event proves it
    is_inherited: bool = False  # carried before a restart: which events were missed since, nobody knows

    def is_in(self, prompt: str) -> bool:
        """Whether a prompt holds all of it."""
        return bool(self.deliveries) and all(holds(prompt, delivery) for delivery in self.deliveries)

    def is_of(self, turn: str) -> bool:
        """Whether an event of a turn can be one of the turn that carried this."""
        if self.is_inherited:
            return bool(turn) and self.turn == turn
        return not (self.turn and turn) or self.turn == turn


class TurnLog:
    """The carriers of one session that have no proof yet."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenCarrier] = {}
        self._given_up: dict[str, _OpenCarrier] = {}  # a host may show them late, after a long tool

    @classmethod
    def inherited(cls, records: Collection[CarrierRecord]) -> Self:
        """Return the log of a session that goes on after a restart.

        What was not confirmed to be printed is left out: it is not known any more whether the host has it.
        """
        log = cls()
        for record in records:
            if record.is_printed or record.carriage is TurnPhase.WAKE:
                log._open[record.name] = _OpenCarrier(
                    deliveries=record.deliveries,
                    carriage=record.carriage,
                    turn=record.turn,
                    is_printed=record.is_printed,
                    is_inherited=True,
                )
        return log

    @property
    def records(self) -> Sequence[CarrierRecord]:
        """The open carriers, to be kept over a restart."""
        return [
            CarrierRecord(name=name, deliveries=c.deliveries, carriage=c.carriage, turn=c.turn, is_printed=c.is_printed)
            for name, c in self._open.items()
        ]

    @property
    def carried(self) -> Collection[DeliveryId]:
        """What has no proof yet."""
        return [delivery for carried in self._open.values() for delivery in carried.deliveries]

    @property
    def has_wakes(self) -> bool:
        """Whether a wake is unproven: the host's record may show it at any time."""
        return any(carried.carriage is TurnPhase.WAKE for carried in self._open.values())

    @property
    def carriers(self) -> Collection[str]:
        """Who carried it."""
        return tuple(self._open)

    def carry(self, carrier: str, deliveries: Collection[DeliveryId], carriage: TurnPhase, *, turn: str = "") -> None:
        """Note what a hook or a wake is about to hand over."""
        if deliveries and len(self._open) < MAX_CARRIERS:
            self._open[carrier] = _OpenCarrier(deliveries=tuple(deliveries), carriage=carriage, turn=turn)

    def inherit(self, carrier: str, delivery: DeliveryId, turn: str, *, is_printed: bool = True) -> None:
        """Before a restart, the result of a call carried this, in a turn that may have been interrupted since."""
        known = self._open.get(carrier)
        deliveries = (*known.deliveries, delivery) if known is not None else (delivery,)
        self._open[carrier] = _OpenCarrier(
            deliveries=deliveries, carriage=TurnPhase.STEP, turn=turn, is_printed=is_printed, is_inherited=True
        )

    def confirm(self, carrier: str) -> None:
        """The host's own process has what a carrier carried: from now on its events can prove it."""
        if carried := self._open.get(carrier):
            carried.is_printed = True

    def forget(self, carrier: str) -> bool:
        """A carrier did not arrive; return whether it had no proof yet."""
        return self._open.pop(carrier, None) is not None

    def submitted(self, prompt: str, turn: str = "", *, recorded: Collection[str] = ()) -> TurnVerdict:
        """A prompt came. What the host has `recorded` is proven; what the prompt itself shows begins this turn.

        A turn that had ended left nothing open. So what is still open was carried in one that was interrupted, unless
        the host says that this prompt came in the middle of the very same turn.
        """
        proven = [delivery for delivery in self.carried if delivery in recorded]
        late = {name: carried for name, carried in self._given_up.items() if carried.is_in(prompt)}
        for name in late:
            del self._given_up[name]
        self._open |= late
        released = list[str]()
        for carrier, carried in tuple(self._open.items()):
            carried.deliveries = tuple(delivery for delivery in carried.deliveries if delivery not in proven)
            is_shown = carried.is_in(prompt)
            if is_shown:
                # It is what this turn begins with: read when the turn goes on, gone when it is taken back.
                self._open[carrier] = _OpenCarrier(
                    deliveries=carried.deliveries, carriage=TurnPhase.OPENING, turn=turn, is_printed=True
                )
            is_lost = carried.carriage is not TurnPhase.WAKE and not is_shown and not (turn and carried.turn == turn)
            if is_lost or not carried.deliveries:
                del self._open[carrier]
            if is_lost and carried.deliveries:
                released.append(carrier)
        returned = {name: carried.deliveries for name, carried in late.items()}
        return TurnVerdict(
            proven=proven, evidence="in a prompt or the transcript", released=released, returned=returned
        )

    def stepped(self, turn: str = "", *, is_step: bool) -> TurnVerdict:
        """A tool has run; with `is_step` this is known to be another model step than the last such event."""
        kinds = {TurnPhase.OPENING, TurnPhase.STEP} if is_step else {TurnPhase.OPENING}
        return TurnVerdict(proven=self._take(kinds, turn), evidence="later step")

    def ended(self, turn: str = "", *, recorded: Collection[str] = ()) -> TurnVerdict:
        """The model is done with the turn: it has read everything in it, and what the host has `recorded`."""
        proven = self._take({TurnPhase.OPENING, TurnPhase.STEP}, turn)
        return TurnVerdict(proven=[*proven, *self.written(recorded).proven], evidence="end of turn")

    def written(self, recorded: Collection[str]) -> TurnVerdict:
        """The host has `recorded` what was carried, in whichever turn it was."""
        done = [name for name, carried in self._open.items() if set(carried.deliveries) <= set(recorded)]
        proven = [delivery for carrier in done for delivery in self._open.pop(carrier).deliveries]
        return TurnVerdict(proven=proven, evidence="in the transcript")

    def give_up_wakes(self) -> Sequence[str]:
        """Wait no longer for the proof of wakes; return their carriers."""
        carriers = [carrier for carrier, carried in self._open.items() if carried.carriage is TurnPhase.WAKE]
        self._given_up |= {carrier: self._open.pop(carrier) for carrier in carriers}
        if len(self._given_up) > MAX_CARRIERS:
            self._given_up.clear()
        return carriers

    def _take(self, kinds: Collection[TurnPhase], turn: str) -> list[DeliveryId]:
        carriers = [name for name, c in self._open.items() if c.carriage in kinds and c.is_printed and c.is_of(turn)]
        return [delivery for carrier in carriers for delivery in self._open.pop(carrier).deliveries]


class Halt(StrEnum):
    """Why a session does not go on by itself."""

    WAITS = "waits"  # its host asks its person: for a permission, an answer, a plan
    FINISHED = "finished"  # its turn has ended, and nothing of Harken's held it up
    FAILED = "failed"  # its turn ended with an error
    LIMITED = "limited"  # its turn ended at a usage limit

    @property
    def words(self) -> str:
        """What is said of such a session, after its name."""
        return _HALT_WORDS[self]


_HALT_WORDS: Final[Mapping[Halt, str]] = MappingProxyType(
    {
        Halt.WAITS: "waits for you",
        Halt.FINISHED: "has finished",
        Halt.FAILED: "stopped with an error",
        Halt.LIMITED: "hit its usage limit",
    }
)


class SessionHalt(msgspec.Struct, frozen=True, kw_only=True):
    """A halt of one session: since when, and what its host says of it. It lasts until the session works again."""

    kind: Halt
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    reason: str = ""
    is_told: bool = False  # the person was told, or need not be


class HookMoment(StrEnum):
    """When a hook runs. These are the names in the commands that `connect` writes."""

    START = "start"  # a conversation begins, is resumed or cleared
    PROMPT = "prompt"  # the person, or a wake, submitted a prompt
    TOOL = "tool"  # between two tool calls
    STOP = "stop"  # the agent is about to end its turn
    END = "end"  # the conversation is over
    BELL = "bell"  # the session's bell changed while it was idle or busy
    HALT = "halt"  # the host asks its person something, or a turn failed


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """One run of a hook."""

    moment: HookMoment
    native: str = ""  # the host's own id of the conversation
    pid: int = 0  # the host's process where it names it; 0: found by ancestry
    cwd: str = ""
    turn: str = ""  # the host's own id of the turn: two events with the same one have no interruption between them
    prompt: str = ""  # what was submitted: delivery ids in it prove what a wake carried
    transcript: str = ""  # path of the host's own record of the conversation
    results: tuple[str, ...] | None = None  # of `tool`: the deliveries in Harken's own result; None: it cannot tell
    is_subagent: bool = False  # what it would be given goes to a helper of the agent, who cannot answer
    is_step: bool = False  # of `tool`: this runs once per model step, so an earlier one was another step
    is_interrupted: bool = False  # of `stop`: the person ended the turn; nothing can be said, nothing is proven
    is_compacted: bool = False  # of `start`: the same turn goes on with a shorter history
    keeps_running: bool = False  # of `end`: the process goes on with another conversation (a cleared one)
    halt: Halt | None = None  # of `halt` and `stop`, where the host says so; None of `halt`: what it asked was answered
    reason: str = ""  # of a halt: the words of the host, or of its agent
