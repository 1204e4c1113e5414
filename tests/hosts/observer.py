"""Compares what Harken's journal says about messages with what the model's wire really carried.

It sends each message with a mark at its beginning and its end, and notes what happens. `check` then says of each
whether it was called seen before its whole text had arrived, whether it was not although it had, whether it came a
second time without a mark, and whether it never came. Whoever plays a situation says what its forecast had to be, and
how it had to come. When something is wrong, the failure shows everything in the order in which it happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from harken.clock import SystemClock
from harken.testing.daemon import DaemonProcess
from harken.trial.exchange import ModelRequest
from tests.hosts.stage import Stage
from tests.hosts.wire import Appearance, WireLog, is_whole, new_text, words
from tests.loss.rig import until

Json: TypeAlias = Any
"""Whatever the JSON says."""

# How long the ledger may take to learn what has happened: hooks run after the model's last answer.
PROOF_SECONDS: Final = 30.0
# How long a text may take to the model once it could go: ten times what a host needs on a quiet machine.
ARRIVAL_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
_KINDS: Final = frozenset({"offered", "seen", "withdrawn", "answered", "expired"})
_MILLISECOND: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message that was sent, and what was said about it then."""

    id: str
    mark: str
    text: str
    when: str  # in words: what the host was doing
    sent_at: datetime
    outlook: str
    sentence: str
    place: int  # how many requests there were when it was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line of the journal about deliveries of this host."""

    at: datetime
    kind: str
    messages: frozenset[str]
    said: str  # the surface, the session or the evidence


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened, for the timeline."""

    at: datetime
    what: str


@dataclass(slots=True)
class Observer:
    """What is known about the messages that were sent on one stage."""

    stage: Stage
    messages: list[SentMessage] = field(default_factory=list[SentMessage])
    problems: list[str] = field(default_factory=list[str])
    notes: list[TimelineEntry] = field(default_factory=list[TimelineEntry])
    unknowable: set[str] = field(default_factory=set[str])
    wire: WireLog = field(default_factory=WireLog)
    clock: SystemClock = field(default_factory=SystemClock)
    place: int = 0  # how many requests there were when it began
    _unproven: set[str] = field(default_factory=set[str])  # waited for once, and not again
    _read: tuple[int, Sequence[JournalEntry]] = (0, ())

    def __post_init__(self) -> None:
        self.place = len(self.stage.model.requests)

    def send(self, when: str, *options: str, about_chars: int = 0) -> SentMessage:
        """Send a message as a person does; `when` says in words what the host is doing."""
        mark, text = new_text(about_chars)
        return self._sent(
            when, mark, text, lambda: json.loads(self.stage.harken("send", "--json", *options, "--", text))
        )

    def send_at(self, daemon: DaemonProcess, when: str) -> SentMessage:
        """Send a message on the main machine of a satellite."""
        mark, text = new_text(0)
        return self._sent(when, mark, text, lambda: daemon.call("send", text=text))

    def _sent(self, when: str, mark: str, text: str, send: Callable[[], Json]) -> SentMessage:
        # Before: a session may be woken before whoever sent the message is told that it was accepted.
        at, place = self.clock.now(), len(self.stage.model.requests)
        sent = send()
        message = SentMessage(
            id=str(sent["id"]),
            mark=mark,
            text=text,
            when=when,
            sent_at=at,
            outlook=str(sent["forecast"]["outlook"]),
            sentence=str(sent["forecast"]["sentence"]),
            place=place,
        )
        self.messages.append(message)
        return message

    def note(self, what: str) -> None:
        """Put something into the timeline."""
        self.notes.append(TimelineEntry(self.clock.now(), what))

    def blame(self, what: str) -> None:
        """Keep something that is wrong, and go on: the failure at the end tells all of it."""
        self.note(f"WRONG: {what}")
        self.problems.append(what)

    def leave_open(self, *messages: SentMessage) -> None:
        """Let it be unknown whether these arrived: their host was killed, or their daemon, before it could be proven.

        They may be offered again, and have to be seen in the end like all others.
        """
        self.unknowable.update(message.id for message in messages)

    def expect_outlook(self, message: SentMessage, *outlooks: str) -> None:
        """Require that the forecast of a message was one of these."""
        if message.outlook not in outlooks:
            wanted = " or ".join(outlooks)
            self.blame(f"{_name(message)}: the forecast is {message.outlook} ({message.sentence}), not {wanted}")

    def expect_in(self, message: SentMessage, asked: ModelRequest | None, what: str) -> None:
        """Require that a request holds a message whole; `what` says which request it is."""
        if asked is None:
            self.blame(f"{_name(message)}: there was no {what}")
        elif not is_whole(asked, message.text):
            how = "is cut in" if asked.count(message.mark) else "is not in"
            self.blame(f"{_name(message)} ({message.sentence}) {how} {what}, request {asked.number}")

    def expect_arrival(self, message: SentMessage, what: str, seconds: float = ARRIVAL_SECONDS) -> ModelRequest | None:
        """Require that a message reaches the model within a time; `what` says why it should."""
        try:
            return self.stage.model.wait_for(lambda asked: is_whole(asked, message.text), seconds, after=message.place)
        except TimeoutError:
            self.blame(f"{_name(message)} ({message.sentence}) did not come within {seconds:g} s: {what}")
            return None

    def expect_plain(self, *messages: SentMessage) -> None:
        """Require that messages were offered once, and shown without the mark of a repeat."""
        for message in messages:
            offers = [entry for entry in self.entries() if entry.kind == "offered" and message.id in entry.messages]
            taken_back = sum(entry.kind == "withdrawn" and message.id in entry.messages for entry in self.entries())
            if len(offers) - taken_back != 1:
                by = ", ".join(entry.said for entry in offers) or "nothing"
                self.blame(f"{_name(message)} was offered {len(offers) - taken_back} times instead of once: {by}")
            if any(appearance.is_marked for appearance in self.appearances(message)):
                self.blame(f"{_name(message)} is marked as a repeat, although it was shown once")

    def expect_once(self, message: SentMessage) -> None:
        """Require that a message came into one conversation once, with a mark or without."""
        if len(came := self.appearances(message)) > 1:
            where = ", ".join(str(each.request.number) for each in came)
            self.blame(f"{_name(message)} was told {len(came)} times, in the requests {where}")

    def expect_unwoken(self, message: SentMessage) -> None:
        """Require that nothing tried to wake a session for a message."""
        ways = [e.said for e in self.entries() if e.kind == "offered" and message.id in e.messages]
        if woken := [way for way in ways if way.startswith(("wake: ", "claude channel"))]:
            self.blame(f"{_name(message)} was offered to wake a session that needs no waking: {', '.join(woken)}")

    def appearances(self, message: SentMessage) -> Sequence[Appearance]:
        """Return where a message came into a conversation."""
        self.wire.take(self.stage.model.requests)
        return self.wire.appearances(message.text)

    def entries(self) -> Sequence[JournalEntry]:
        """Return what the journal says about deliveries to this host; its files are read when they have grown."""
        paths = sorted((self.stage.store_home / "journal").glob("*.jsonl"))
        size = sum(path.stat().st_size for path in paths)
        if size != self._read[0]:
            self._read = size, list(_entries(paths, self.stage.host.name))
        return self._read[1]

    def seen_at(self, message: SentMessage) -> datetime | None:
        """Return since when a message is called seen; None while it is not."""
        times = [
            entry.at for entry in self.entries() if entry.kind in {"seen", "answered"} and message.id in entry.messages
        ]
        return min(times, default=None)

    def settle(self) -> None:
        """Wait until what has arrived is called seen; what can not be known is left out."""
        known = self.unknowable | self._unproven
        arrived = [m for m in self.messages if m.id not in known and self.appearances(m)]
        end = time.monotonic() + PROOF_SECONDS
        for message in arrived:
            left = max(0.0, end - time.monotonic())
            try:
                until(partial(self.seen_at, message), "it is called seen", left, pause_seconds=LOOK_SECONDS)
            except AssertionError:
                self._unproven.add(message.id)
                self.blame(f"{_name(message)} has arrived, and is not called seen after {PROOF_SECONDS:g} s")

    def check(self) -> None:
        """Find what is wrong with the messages at the end: each has to have arrived, and to be called seen."""
        for message in self.messages:
            came, seen = self.appearances(message), self.seen_at(message)
            self.problems += [f"{_name(message)} {wrong}" for wrong in faults(came, seen)]
            if not came and any(asked.count(message.mark) for asked in self.stage.model.conversation):
                self.problems.append(f"{_name(message)} reached the model in parts only")

    def report(self) -> str:
        """Return everything that is wrong, and what happened; nothing when all is well."""
        wrong = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"{self.stage.host.name}:\n{wrong}\n\n{self.timeline()}" if wrong else ""

    def timeline(self) -> str:
        """Return what happened, in order, one line each."""
        moments = sorted(self._moments(), key=lambda moment: moment.at)
        start = moments[0].at if moments else self.clock.now()
        return "\n".join(f"{(each.at - start).total_seconds():8.3f}  {each.what}" for each in moments)

    def _moments(self) -> Iterator[TimelineEntry]:
        yield from self.notes
        for message in self.messages:
            yield TimelineEntry(message.sent_at, f"{_name(message)} is sent: {message.outlook} ({message.sentence})")
        names = {message.id: _name(message) for message in self.messages}
        for entry in self.entries():
            ours = ", ".join(names[each] for each in sorted(entry.messages) if each in names)
            if ours:
                yield TimelineEntry(entry.at, f"journal: {entry.kind} {ours} {entry.said}")
        came = [(message, each) for message in self.messages for each in self.appearances(message)]
        for number, requests in enumerate(self.wire.conversations):
            for asked in (each for each in requests if each.number >= self.place):
                new = [
                    f"{_name(message)}{' as a repeat' if each.is_marked else ''} ({each.role})"
                    for message, each in came
                    if each.request.number == asked.number
                ]
                cut = [f"{_name(m)} CUT" for m in self.messages if asked.count(m.mark) and not is_whole(asked, m.text)]
                held = ", ".join([*new, *cut]) or "nothing new"
                last = next((word for word in reversed(words(asked)) if word.startswith("PROMPT")), "no prompt")
                yield TimelineEntry(
                    asked.arrived_at, f"model: request {asked.number}, conversation {number}, {last}: {held}"
                )


def faults(came: Sequence[Appearance], seen: datetime | None) -> Iterator[str]:
    """Say what is wrong with a message that came into conversations like this and is called seen since then."""
    if seen is not None and not came:
        yield "is called seen, and no request holds it whole: false"
    elif seen is not None and seen < _to_millisecond(came[0].request.arrived_at):
        early = (came[0].request.arrived_at - seen).total_seconds()
        yield f"was called seen {early:.3f} s before a request held it whole: false"
    elif not came:
        yield "never reached a model: it is lost"
    elif seen is None:
        yield "has arrived, and is not called seen in the end"
    for again in came[1:]:
        if not again.is_marked:
            yield f"came again in request {again.request.number} without a mark"


def _entries(paths: Iterable[Path], consumer: str) -> Iterator[JournalEntry]:
    """Read the journal's files: they are there whether a daemon runs or not. A line without an end is being written."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            entry: Mapping[str, Json] = json.loads(line) if line.endswith("\n") else {"kind": ""}
            if entry["kind"] in _KINDS and entry.get("consumer", consumer) == consumer:
                yield JournalEntry(
                    at=datetime.fromisoformat(entry["at"]).astimezone(UTC),
                    kind=entry["kind"],
                    messages=frozenset(_messages(entry)),
                    said=" ".join(str(entry[name]) for name in ("surface", "evidence", "session") if entry.get(name)),
                )


def _messages(entry: Mapping[str, Json]) -> Collection[str]:
    if "deliveries" in entry:
        return list(entry["deliveries"].values())
    return [
        *entry.get("messages", ()),
        *entry.get("ids", ()),
        *([entry["message_id"]] if "message_id" in entry else []),
    ]


def _to_millisecond(moment: datetime) -> datetime:
    """Return a time as the journal writes it."""
    return moment.replace(microsecond=moment.microsecond // _MILLISECOND * _MILLISECOND)


def _name(message: SentMessage) -> str:
    return f"{message.mark[:8]} [{message.when}]"
