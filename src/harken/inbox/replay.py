"""What mailboxes and consumers looked like at a time: the events up to then, added up.

Pure: it is given the lines of the journal in order, wherever they come from. A line that cannot be read is None and
never an error, because people may have touched the files. One byte is kept per message and consumer and the text of the
newest messages only, so it grows with what the store kept at that time and not with the events. What a line does not
say is not made up: what is missing is counted. Leases are not journaled, so `offered` says that a message was handed
over and not proven, not whether that still held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from harken.model import AGENT, NOT_AGENTS, RULES, RUN, TASK, WATCH, DeliveryState

# The places are what a byte in a row means; queued is what a row is filled with.
_STATES: Final = (
    DeliveryState.QUEUED,
    DeliveryState.OFFERED,
    DeliveryState.SEEN,
    DeliveryState.ANSWERED,
    DeliveryState.EXPIRED,
    DeliveryState.REFUSED,
)
_QUEUED, _OFFERED, _SEEN, _ANSWERED, _EXPIRED, _REFUSED = range(len(_STATES))
_PROGRAMS: Final = (AGENT, TASK, RUN)
_ONE_MORE: Final = bytes(min(value + 1, 255) for value in range(256))
_WHOLE: Final = bytes(255 * (value == 1) for value in range(256))
_MAX_MAILBOXES: Final = 1 << 24
_MAX_SEQ: Final = 1 << 30  # a line that says more is damaged: no memory is taken for it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerThen:
    """A consumer's place in a mailbox, and in which state each message was for it; `unread` is what was not final."""

    consumer: str
    cursor: int
    unread: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageThen:
    """A message that was there: its record, and its state for everyone it was not settled for from the start."""

    record: Mapping[str, object]
    states: Mapping[str, str]
    is_pruned: bool  # removed since


@dataclass(frozen=True, slots=True, kw_only=True)
class MailboxThen:
    """A mailbox: `there` messages of the `head` it had got by then, of which retention has removed `pruned` since.

    `messages` are the newest of them, oldest first.
    """

    name: str
    head: int
    there: int
    pruned: int
    consumers: Sequence[ConsumerThen]
    messages: Sequence[MessageThen]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntoldPart:
    """What the events do not tell.

    `missing` events have no line; `nameless` messages were received, and all that is left of them is that; `strange`
    are events about messages without a line of their arrival; `removed` were removed by then or since.
    """

    missing: int = 0
    nameless: int = 0
    strange: int = 0
    removed: int = 0


@dataclass(slots=True)
class _ConsumerRow:
    """One consumer in one mailbox: a byte for each message, by its number."""

    states: bytearray = field(default_factory=bytearray)
    begins_after: int = 0
    has_cursor: bool = False

    def get(self, seq: int) -> int:
        return self.states[seq] if seq < len(self.states) else _QUEUED

    def put(self, seq: int, state: int) -> None:
        if seq >= len(self.states):
            self.states.extend(bytes(seq + 1 - len(self.states)))
        self.states[seq] = state


@dataclass(slots=True)
class _MailboxRows:
    """One mailbox."""

    newest: deque[tuple[int, msgspec.Raw]]
    head: int = 0
    number: int = 0
    stored: bytearray = field(default_factory=lambda: bytearray(1))  # by number: 1 while a message is there
    ids: list[str] = field(default_factory=lambda: [""])  # by number
    since: bytearray = field(default_factory=bytearray)  # by number: 1 for what was removed after the time
    rows: dict[str, _ConsumerRow] = field(default_factory=dict[str, _ConsumerRow])

    def row(self, consumer: str) -> _ConsumerRow:
        found = self.rows.get(consumer)
        if found is None:
            found = self.rows[consumer] = _ConsumerRow()
        return found

    def add(self, seq: int, name: str, record: msgspec.Raw) -> None:
        self.head = max(self.head, seq)
        if (more := seq + 1 - len(self.stored)) > 0:
            self.stored.extend(bytes(more))
            self.ids.extend([""] * more)
        self.stored[seq], self.ids[seq] = 1, name
        self.newest.append((seq, record))

    def is_stored(self, seq: int) -> bool:
        return seq < len(self.stored) and self.stored[seq] == 1


class JournalReplay:
    """Adds up events. `mailbox` and `consumer` leave out all others; `most` is how many messages are kept of each."""

    def __init__(self, *, mailbox: str = "", consumer: str = "", most: int = 50) -> None:
        self._mailbox = mailbox
        self._consumer = consumer
        self._most = most
        self._boxes: dict[str, _MailboxRows] = {}
        self._order: list[_MailboxRows] = []
        self._places: dict[str, int] = {}  # of each message that is there: its number, and that of its mailbox
        self._offers: dict[str, dict[str, str]] = {}  # by message and consumer: the session of an unproven offer
        self._authors: dict[str, str] = {}  # of replies that have not left
        self._last = 0
        self._acts: Mapping[str, Callable[[ReplayLine], None]] = {
            "received": self._receive,
            "consumer": self._enroll,
            "offered": self._offer,
            "seen": self._see,
            "withdrawn": self._withdraw,
            "answered": self._answer,
            "replied": self._leave,
            "expired": lambda line: self._end(line, _EXPIRED),
            "refused": lambda line: self._end(line, _REFUSED),
            "pruned": self._prune,
            "recovered": self._recover,
        }
        self._missing = self._nameless = self._strange = self._removed = 0

    def add(self, line: ReplayLine) -> None:
        """Take in the event that follows."""
        self._missing += max(0, line.n - self._last - 1)
        self._last = max(self._last, line.n)
        if act := self._acts.get(line.kind):
            act(line)

    def add_later(self, line: ReplayLine) -> None:
        """Take in an event from after the time: only what retention took since matters."""
        if line.kind != "pruned":
            return
        self._removed += line.deleted if not line.ranges else 0
        for name, ranges in line.ranges.items():
            if box := self._boxes.get(name):
                box.since.extend(bytes(len(box.stored) - len(box.since)))
                for seq in _numbers(ranges, len(box.stored)):
                    box.since[seq] = box.stored[seq]

    def mailboxes(self) -> Sequence[MailboxThen]:
        """Return what was there, by name. What was said in trials is nobody's."""
        return [
            self._then(name, box)
            for name, box in sorted(self._boxes.items())
            if name == self._mailbox or not name.startswith("trial:")
        ]

    def unknown(self) -> UntoldPart:
        """Return what the events do not tell."""
        return UntoldPart(missing=self._missing, nameless=self._nameless, strange=self._strange, removed=self._removed)

    # -- events -----------------------------------------------------------------------------------------------

    def _receive(self, line: ReplayLine) -> None:
        found = arrived(line)
        if found is None:
            self._nameless += 1
            return
        if not self._is_wanted(found.mailbox) or not 0 < found.seq < _MAX_SEQ:
            return
        box = self._box(found.mailbox)
        box.add(found.seq, found.id, msgspec.Raw(bytes(line.message)))
        # The person reads every mailbox from its beginning.
        box.row(WATCH).has_cursor = True
        self._places[found.id] = found.seq * _MAX_MAILBOXES + box.number

    def _enroll(self, line: ReplayLine) -> None:
        if not self._is_wanted(line.mailbox):
            return
        box = self._box(line.mailbox)
        others = [row for name, row in box.rows.items() if name not in (*NOT_AGENTS, line.consumer)]
        mine = box.row(line.consumer)
        mine.has_cursor, mine.begins_after = True, line.begins_after
        # What an agent has seen by then is not for a new one.
        for row in others:
            for seq in range(line.begins_after + 1, len(row.states)):
                if row.states[seq] in (_SEEN, _ANSWERED) and box.is_stored(seq) and mine.get(seq) == _QUEUED:
                    mine.put(seq, _EXPIRED)

    def _offer(self, line: ReplayLine) -> None:
        for message in line.deliveries.values():
            if self._put(line.consumer, message, _OFFERED):
                self._offers.setdefault(message, {})[line.consumer] = line.session

    def _see(self, line: ReplayLine) -> None:
        for message in line.deliveries.values():
            if (place := self._place(message)) is not None:
                row = place[0].row(line.consumer)
                # Whoever marks what was never offered begins to read with it.
                row.has_cursor |= row.get(place[1]) == _QUEUED
            self._put(line.consumer, message, _SEEN)

    def _withdraw(self, line: ReplayLine) -> None:
        for message in line.messages:
            offers = self._offers.get(message, {})
            # A session that got another name meanwhile took its offers along, and no line says so.
            named = [consumer for consumer, holder in offers.items() if holder == line.session] or list(offers)
            if named:
                self._put(named[-1], message, _QUEUED)

    def _end(self, line: ReplayLine, state: int) -> None:
        for message in line.ids:
            self._put(line.consumer, message, state)

    def _answer(self, line: ReplayLine) -> None:
        if line.reply:
            self._authors[line.reply] = line.author
        if (place := self._place(line.message_id)) is not None and line.consumer != RULES:
            place[0].row(line.consumer).has_cursor = True
        self._put(line.consumer, line.message_id, _ANSWERED)

    def _leave(self, line: ReplayLine) -> None:
        author = self._authors.pop(line.reply, "")
        # What the person answered to someone on this machine is a message there, which they need not be told.
        if author and not author.startswith(_PROGRAMS) and line.upstream_id in self._places:
            self._put(WATCH, line.upstream_id, _SEEN)

    def _prune(self, line: ReplayLine) -> None:
        self._removed += line.deleted if not line.ranges else 0
        for name, ranges in line.ranges.items():
            if box := self._boxes.get(name):
                for seq in _numbers(ranges, len(box.stored)):
                    self._places.pop(box.ids[seq], None)
                    self._offers.pop(box.ids[seq], None)
                    box.stored[seq], box.ids[seq] = 0, ""

    def _recover(self, line: ReplayLine) -> None:
        # The database knew of no event at all: it is another one, and nothing is in its mailboxes.
        if line.events_lost >= line.n - 1:
            for found in (self._boxes, self._order, self._places, self._offers, self._authors):
                found.clear()

    def _put(self, consumer: str, message: str, state: int) -> bool:
        if (place := self._place(message)) is None:
            # Of a mailbox that was left out nothing is known either.
            self._strange += 0 if self._mailbox else 1
            return False
        box, seq = place
        box.row(consumer).put(seq, state)
        if state != _OFFERED and (offers := self._offers.get(message)):
            offers.pop(consumer, None)
            if not offers:
                del self._offers[message]
        return True

    def _place(self, message: str) -> tuple[_MailboxRows, int] | None:
        place = self._places.get(message)
        if place is None:
            return None
        seq, number = divmod(place, _MAX_MAILBOXES)
        return self._order[number], seq

    def _is_wanted(self, mailbox: str) -> bool:
        return self._mailbox in ("", mailbox)

    def _box(self, name: str) -> _MailboxRows:
        if name not in self._boxes:
            self._boxes[name] = _MailboxRows(deque(maxlen=max(1, self._most)), number=len(self._order))
            self._order.append(self._boxes[name])
        return self._boxes[name]

    # -- what it comes to -------------------------------------------------------------------------------------

    def _then(self, name: str, box: _MailboxRows) -> MailboxThen:
        rows = {who: row for who, row in sorted(box.rows.items()) if self._consumer in ("", who)}
        return MailboxThen(
            name=name,
            head=box.head,
            there=box.stored.count(1),
            pruned=box.since.count(1),
            consumers=[_consumer(who, row, box) for who, row in rows.items() if row.has_cursor],
            messages=[
                MessageThen(
                    record=msgspec.json.decode(record, type=dict[str, object]),
                    states=dict(_states(rows, seq)),
                    is_pruned=seq < len(box.since) and box.since[seq] == 1,
                )
                for seq, record in box.newest
                if box.is_stored(seq)
            ],
        )


def _numbers(ranges: Iterable[tuple[int, int]], end: int) -> Iterable[int]:
    for first, last in ranges:
        yield from range(max(1, first), min(last + 1, end))


def _states(rows: Mapping[str, _ConsumerRow], seq: int) -> Iterable[tuple[str, str]]:
    for who, row in rows.items():
        state = row.get(seq)
        # What lies before a reader's beginning was never for it, and whoever has no cursor waits for nothing.
        if state != _QUEUED or (row.has_cursor and seq > row.begins_after):
            yield who, _STATES[state].value


def _consumer(who: str, row: _ConsumerRow, box: _MailboxRows) -> ConsumerThen:
    begin, end = row.begins_after + 1, box.head + 1
    states = _of_stored(bytes(row.states[begin:end]), bytes(box.stored[begin:end]))
    counts = {state: states.count(code) for code, state in enumerate(_STATES, start=1)}
    # The first that is not final ends what the cursor has passed; where all are, it stands at the head.
    waits = [place for code in (_QUEUED, _OFFERED) if (place := states.find(code + 1)) >= 0]
    return ConsumerThen(
        consumer=who,
        cursor=begin + min(waits) - 1 if waits else max(box.head, row.begins_after),
        unread=counts[DeliveryState.QUEUED] + counts[DeliveryState.OFFERED],
        counts={state.value: count for state, count in counts.items() if count},
    )


def _of_stored(states: bytes, stored: bytes) -> bytes:
    """Return one more than the state of each message that is there, and 0 for each that is not."""
    # As two long numbers: a loop over a million messages for each of a hundred consumers would take a minute.
    both = int.from_bytes(states.ljust(len(stored), b"\0").translate(_ONE_MORE), "little")
    return (both & int.from_bytes(stored.translate(_WHOLE), "little")).to_bytes(len(stored), "little")


class ReplayLine(msgspec.Struct, kw_only=True):
    """One event. Fields that its kind does not have are empty."""

    n: int
    at: str
    kind: str
    consumer: str = ""
    mailbox: str = ""
    begins_after: int = 0
    session: str = ""
    deliveries: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    messages: list[str] = msgspec.field(default_factory=list[str])
    ids: list[str] = msgspec.field(default_factory=list[str])
    message_id: str = ""
    reply: str = ""
    author: str = ""
    upstream_id: str = ""
    deleted: int = 0
    events_lost: int = 0
    ranges: dict[str, list[tuple[int, int]]] = msgspec.field(default_factory=dict[str, list[tuple[int, int]]])
    message: msgspec.Raw = msgspec.Raw()


class ArrivedMessage(msgspec.Struct):
    """What replay keeps of every message."""

    id: str
    mailbox: str
    seq: int


class _LineHead(msgspec.Struct):
    n: int
    at: str
    kind: str


KINDS = frozenset(
    {
        "received",
        "consumer",
        "offered",
        "seen",
        "withdrawn",
        "answered",
        "expired",
        "refused",
        "replied",
        "pruned",
        "recovered",
    }
)
"""The kinds that change what a mailbox or a consumer looks like."""

_LINE = msgspec.json.Decoder(ReplayLine)
_HEAD = msgspec.json.Decoder(_LineHead)
_ARRIVED = msgspec.json.Decoder(ArrivedMessage)


def read_line(data: bytes) -> ReplayLine | None:
    """Return an event from a line of a file; None for what is no line of a journal."""
    try:
        return _LINE.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        head = _HEAD.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    # Kinds that replay does not ask for may use a name for something else.
    return None if head.kind in KINDS else ReplayLine(n=head.n, at=head.at, kind=head.kind)


def arrived(line: ReplayLine) -> ArrivedMessage | None:
    """Return what arrived; None when the line does not say it, because the message is no longer stored."""
    if not line.message:
        return None
    try:
        return _ARRIVED.decode(line.message)
    except (msgspec.DecodeError, RecursionError):
        return None
