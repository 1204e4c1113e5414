"""What `harken watch` knows of the daemon: what is new since it last looked, and how things stand.

The journal says what is new; only when it does, or after a while, is the rest asked for. A daemon that is away is
waited for, and what came meanwhile is told once. It does not know how anything is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Final

from harken.config.home import write_private
from harken.control.client import DaemonClient, Result
from harken.display import one_line
from harken.errors import HarkenError, Unavailable

ANSWER_SECONDS: Final = 5.0
STALE_SECONDS: Final = 20.0
PAGE: Final = 500
NEWEST: Final = 100
MAX_UNREAD: Final = 20
MAX_TOLD: Final = 3
MAX_OPEN: Final = 64
MAX_OUTPUTS: Final = 8
MAX_QUESTIONS: Final = 5
TOLD_LATELY: Final = timedelta(hours=1)
OF_QUESTIONS: Final = frozenset({"reminded", "escalated", "settled"})
_SHOWN_KINDS: Final = frozenset({"received", "judged", "action", "run", "paused", "resumed", "approval"}) | OF_QUESTIONS
REMARK: Final = "remark"
OWN_MAILBOXES: Final = frozenset({"inbox", "replies"})
TRIAL: Final = "trial:"
PERSON: Final = "watch"  # what the person is called as a consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFilter:
    """Which messages a person wants to see."""

    channels: frozenset[str] = frozenset()  # any of these; empty: every one
    source: str = ""
    has_all: bool = False  # the mailboxes of tasks too

    def fits(self, record: Result) -> bool:
        """Whether a message is wanted."""
        mailbox: str = record["mailbox"]
        if mailbox.startswith(TRIAL) or not (self.has_all or mailbox in OWN_MAILBOXES):
            return False
        if self.channels and record["channel"] not in self.channels:
            return False
        return self.source in ("", record["source"])


class PrintedPlaces:
    """How far each mailbox was printed, in a file: who starts `watch` again is not shown the same lines again.

    What was printed is unread all the same. A watch that shows other messages has places of its own.
    """

    def __init__(self, file: Path, wanted: WatchFilter) -> None:
        self._file = file
        self._key = " ".join([*sorted(wanted.channels), wanted.source, "all" if wanted.has_all else ""]).strip()
        self._places: dict[str, int] = self._read().get(self._key, {})

    def without(self, records: Sequence[Result], heads: Mapping[str, int]) -> list[Result]:
        """Return those that were not printed; a place beyond the end is of another store, and counts for nothing."""
        known = {mailbox: seq for mailbox, seq in self._places.items() if seq <= heads.get(mailbox, seq)}
        return [each for each in records if each["seq"] > known.get(each["mailbox"], 0)]

    def note(self, records: Sequence[Result]) -> None:
        """Remember that messages were printed."""
        if not records:
            return
        self._places = {**self._places, **{each["mailbox"]: each["seq"] for each in records}}
        with suppress(HarkenError):  # at worst something is printed twice
            write_private(self._file, json.dumps({**self._read(), self._key: self._places}))

    def _read(self) -> dict[str, dict[str, int]]:
        try:
            found: dict[str, dict[str, int]] = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How things stand."""

    asked: Sequence[Result] = ()  # what rules ask the person, the oldest first
    runs: Sequence[Result] = ()  # what is going on, the oldest first
    told: Sequence[Result] = ()  # what rules told lately, the newest first
    questions: Sequence[Result] = ()  # messages that wait for an answer, the oldest first
    waiting: str = ""  # how many they are in all, in words
    unread: int = 0
    queued: int = 0
    is_paused: bool = False
    problem: str = ""  # why the rules in the file are not in force
    last_lines: Mapping[str, str] = field(default_factory=dict[str, str])
    away_since: datetime | None = None

    @property
    def ids(self) -> list[str]:
        """What can be chosen, in the order in which it is shown."""
        questions = [each["message"]["id"] for each in self.questions]
        return [each["id"] for each in (*self.asked, *self.runs)] + questions


class News:
    """Asks one daemon, and remembers how far it has been told."""

    def __init__(self, daemon: DaemonClient, wanted: WatchFilter, printed: PrintedPlaces | None = None) -> None:
        self._daemon = daemon
        self._wanted = wanted
        self._printed = printed
        self._last = 0
        self._seen_at = 0.0
        self._begun: frozenset[str] = frozenset()
        self._places: dict[str, int] = {}
        self.printed_before = 0  # how many unread messages `begin` left out
        self.has_more = False  # whether there is more than was told
        self.is_stale = False  # whether something was asked for that changes how things stand
        self.view = View()

    def begin(self) -> list[Result]:
        """Return what is unread and was not printed before, and stand at what comes from now on."""
        self._last = self.ask("journal", after=-1)["last"]
        self._see()
        unread = self.unread()
        # What came between the two questions is in both answers.
        self._begun = frozenset(each["id"] for each in unread)
        shown = unread[max(0, len(unread) - min(self.view.unread, MAX_UNREAD)) :]
        if self._printed is None:
            return shown
        places = self.ask("status")["consumers"]
        fresh = self._printed.without(shown, {each["mailbox"]: each["head"] for each in places})
        self._printed.note(fresh)
        self.printed_before = len(unread) - len(fresh)
        return fresh

    def unread(self) -> list[Result]:
        """Return what is unread among the newest messages that are wanted, the oldest first."""
        asked = [self.ask("list", channel=each, limit=NEWEST)["messages"] for each in self._wanted.channels or {""}]
        newest = sorted((each for page in asked for each in page), key=lambda each: str(each["received_at"]))
        return [each for each in newest if PERSON not in each["consumed_by"] and self._wanted.fits(each)]

    def look(self) -> list[Result]:
        """Return what happened since, as events of the journal, with a remark when the daemon was away."""
        try:
            return self._look()
        except Unavailable:
            self.has_more = False
            if self.view.away_since is not None:
                return []
            self.view = replace(self.view, away_since=datetime.now().astimezone())
            return [{"kind": REMARK, "text": "The daemon is away. What comes meanwhile is shown when it is back."}]

    def act(self, verb: str, /, **params: object) -> Result:
        """Ask for something that changes how things stand."""
        self.is_stale = True
        return self.ask(verb, **params)

    def ask(self, verb: str, /, **params: object) -> Result:
        """Ask a verb, and wait no longer for its answer than a person would."""
        return self._daemon.ask_within(ANSWER_SECONDS, verb, **params)

    def _look(self) -> list[Result]:
        page = self.ask("journal", after=self._last, limit=PAGE)
        found = page["events"]
        remarks: list[Result] = []
        if self._daemon.tries > 1 or self.view.away_since is not None:
            remarks.append({"kind": REMARK, "text": "The daemon was restarted."})
            self.is_stale = True
            # A store that was replaced counts from one again.
            self._last = min(self._last, self.ask("journal", after=-1)["last"])
        self._last = page["last"] if found else self._last
        self.has_more = len(found) >= PAGE
        if found or self.is_stale or monotonic() - self._seen_at > STALE_SECONDS:
            self._see()
        self._hear()
        self.view = replace(self.view, away_since=None)
        shown = [each for each in found if self._is_shown(each)]
        if self._printed is not None:
            self._printed.note([each["message"] for each in shown if each["kind"] == "received"])
        return [*remarks, *shown]

    def _is_shown(self, event: Result) -> bool:
        if event["kind"] == "judged":
            return bool(event["outcome"] == "fired")
        if event["kind"] == "approval":
            return bool(event["change"] != "shown")
        if event["kind"] != "received":
            return event["kind"] in _SHOWN_KINDS
        # Of a message that is no longer stored there is only the event.
        record: Result = event.get("message") or {}
        return bool(record) and record["id"] not in self._begun and self._wanted.fits(record)

    def _see(self) -> None:
        rules = self.ask("status")["rules"]
        earliest = datetime.now().astimezone() - TOLD_LATELY
        told = self.ask("actions", state="told", limit=MAX_TOLD)["actions"]
        waiting = self.ask("questions", limit=MAX_QUESTIONS)
        self.view = replace(
            self.view,
            asked=self.ask("actions", state="waiting", limit=MAX_OPEN)["actions"][::-1],
            runs=self.ask("runs", running=True, limit=MAX_OPEN)["runs"][::-1],
            told=[each for each in told if datetime.fromisoformat(each["created_at"]) > earliest],
            questions=waiting["questions"],
            waiting=waiting["sentence"] if waiting["count"] else "",
            unread=self.ask("stats")["depth"],
            queued=rules["queued"],
            is_paused=rules["is_paused"],
            problem=rules["problem"],
        )
        self.is_stale = False
        self._seen_at = monotonic()

    def _hear(self) -> None:
        """Keep the last line of what each run printed."""
        runs = [each["id"] for each in self.view.runs[:MAX_OUTPUTS]]
        self._places = {name: place for name, place in self._places.items() if name in runs}
        lines = {name: text for name, text in self.view.last_lines.items() if name in runs}
        for name in runs:
            page = self.ask("run_output", run=name, after=self._places.get(name, 0), wait=0)
            self._places[name] = page["next"]
            said = [text for each in page["lines"] if (text := _words(each))]
            lines |= {name: said[-1]} if said else {}
        self.view = replace(self.view, last_lines=lines)


def _words(line: Result) -> str:
    if line["kind"] in ("begin", "end", "turn"):
        return ""
    last = next((each for each in reversed(line["text"].split("\n")) if each.strip()), "")
    denied = "DENIED " if line["kind"] == "denied" else ""
    return one_line(f"{denied}{line['tool']} {last}").strip()
