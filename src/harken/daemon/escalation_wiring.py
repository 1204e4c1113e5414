"""Joins what waits for you to what can be told: agents by a message, the desktop, a phone.

The ladder for unanswered questions says when its steps are due; that a session does not go on is told at once, by
`HaltNotices`. What is said is made here, from counts, names and times; text of a message stands in a toast only,
shortened, and what a host says of a halt where you let it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import PurePath
from typing import Final

import anyio.to_thread

from harken.clock import Clock, Signal
from harken.config.settings import Settings
from harken.dispatch.escalation import Escalation, LadderStep, ReminderLadder, ReminderWay, Tell, climbing
from harken.dispatch.toast import HaltNote, Phone, Show, Toast, safe_text
from harken.errors import HarkenError
from harken.hosts.registry import host_title
from harken.inbox.questions import ago, sentence
from harken.ingest.intake import Intake
from harken.ingest.sanitise import one_line
from harken.model import LOCAL, ApprovalState, Attention, Draft, Mailbox, Priority, Sender
from harken.processes import last_key
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.sessions.turns import Halt, SessionHalt
from harken.store.contract import Store
from harken.store.contract.people import Mute
from harken.store.contract.questions import ApprovalStore, Question

SENDER: Final = Sender("harken", "Harken")
CHANNEL: Final = "reminders"
MAX_NAMED: Final = 5
PUSHING: Final = frozenset({Attention.WAKE, Attention.BOUNDARY})
WHO_CHARS: Final = 40
TEXT_CHARS: Final = 80
SETTLED_AFTER: Final = timedelta(seconds=2)  # a turn that has ended may go on at once with what waited for its end
HALT_LOOK_SECONDS: Final = 60.0
SOON_SECONDS: Final = 0.1
SESSIONS_PAGE: Final = "/sessions"

_log = logging.getLogger("harken.halts")


Mutes = Callable[[datetime], Sequence[Mute]]
"""Returns the mutes in force at a time."""


def escalation(
    store: Store,
    clock: Clock,
    settings: Settings,
    *,
    intake: Intake,
    mutes: Mutes,
    show: Show,
    secret: Callable[[str], str],
    phones: Sequence[Tell] = (),
) -> Escalation:
    """Return the loop as it is configured. `secret` resolves a reference; `phones` are more ways to the phone."""
    waiting = settings.waiting
    rungs = climbing(
        (
            LadderStep(ReminderWay.AGENT, waiting.remind_after),
            LadderStep(ReminderWay.TOAST, waiting.toast_after if settings.toasts.enabled else timedelta(0)),
            LadderStep(ReminderWay.PHONE, waiting.phone_after if waiting.phone or phones else timedelta(0)),
        )
    )
    ways: dict[ReminderWay, Tell] = {
        ReminderWay.AGENT: _to_agents(intake, clock, mutes),
        ReminderWay.TOAST: _to_desktop(show, clock),
    }
    if waiting.phone:
        phones = [*phones, _to_phone(waiting.phone, clock, secret)]
    if phones:
        ways[ReminderWay.PHONE] = _to_any(phones)
    return Escalation(store.questions, clock, ReminderLadder(rungs=rungs, quiet=settings.toasts.quiet_hours), ways)


TellHalt = Callable[[HaltNote], Awaitable[bool]]
"""Tells of a halt in one way; returns whether somebody may have seen it. May raise a `HarkenError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YourTraces:
    """Tells when you were last at the page, or in the terminal of a process; None where that is not known."""

    at_page: Callable[[], datetime | None]
    in_terminal: Callable[[int], datetime | None] = last_key


def when_told(halt: SessionHalt, last_here: datetime | None, active_for: timedelta) -> datetime | None:
    """Return when you are told of a halt; None when you were there after it began. Pure.

    A key that you pressed just before it says that you may still look: you are told when you have stopped.
    """
    due = halt.at + SETTLED_AFTER
    if last_here is None or not active_for:
        return due
    return None if last_here >= halt.at else max(due, last_here + active_for)


class HaltNotices:
    """Tells you at once of sessions that do not go on, each halt once, unless you are there already.

    In quiet hours nothing is told; what still halts after them is. A question that a host asks as an approval is told
    as that.
    """

    def __init__(
        self,
        sessions: Sessions,
        approvals: ApprovalStore,
        clock: Clock,
        settings: Settings,
        *,
        tells: Sequence[TellHalt],
        traces: YourTraces,
    ) -> None:
        self._sessions = sessions
        self._approvals = approvals
        self._clock = clock
        self._told_kinds = frozenset(settings.halts.tell)
        self._active_for = settings.halts.active_for
        self._quiet = settings.toasts.quiet_hours
        self._tells = tells
        self._traces = traces

    async def run(self) -> None:
        """Tell, for ever."""
        changed = Signal()
        with self._sessions.observing(changed.ring):
            while True:
                await changed.wait(await self.look())

    async def look(self) -> float:
        """Tell what is due; return in how many seconds something else may be, at the latest."""
        now, due, wait = self._clock.now(), list[tuple[Session, SessionHalt]](), HALT_LOOK_SECONDS
        for session in self._sessions.live():
            if (halt := session.halt) is None or halt.is_told:
                continue
            at = when_told(halt, await self._last_here(session), self._active_for)
            if at is None or halt.kind not in self._told_kinds:
                self._settle(session)
            elif at > now:
                wait = min(wait, (at - now).total_seconds() + SOON_SECONDS)
            else:
                due.append((session, halt))
        if due and not (self._quiet is not None and self._quiet.covers(now.astimezone())):
            await self._tell(due)
        return wait

    async def _last_here(self, session: Session) -> datetime | None:
        """Return when you were last at a session's terminal or at the page; of a satellite's the first is not known."""
        typed = None if session.satellite else await anyio.to_thread.run_sync(self._traces.in_terminal, session.pid)
        return max(filter(None, (typed, self._traces.at_page())), default=None)

    async def _tell(self, due: Sequence[tuple[Session, SessionHalt]]) -> None:
        asked = {each.request.session for each in await self._approvals.list([ApprovalState.OPEN], is_own=True)}
        fresh = [each for each in due if not (each[1].kind is Halt.WAITS and each[0].key in asked)]
        for session, _ in due:
            self._settle(session)
        notes = [_halt_note(*each) for each in sorted(fresh, key=lambda each: each[1].at)]
        for note in notes if len(notes) <= MAX_NAMED else [_halts_note(notes)]:
            for tell in self._tells:
                try:
                    await tell(note)
                except HarkenError as exc:
                    _log.warning("a halt was not told: %s", exc.message)

    def _settle(self, session: Session) -> None:
        session.note_halt_told()
        self._sessions.note_change(session.key)


def _halt_note(session: Session, halt: SessionHalt) -> HaltNote:
    place = one_line(PurePath(session.cwd).name, WHO_CHARS)
    title = f"{host_title(session.host)}{f' in {place}' if place else ''} {halt.kind.words}"
    # Each session has a place of its own: a phone shows one line of it, the newest.
    name = sha256(session.key.encode("utf-8", "replace")).hexdigest()[:12]
    return HaltNote(title=title, reason=halt.reason, path=f"{SESSIONS_PAGE}#halt-{name}")


def _halts_note(notes: Sequence[HaltNote]) -> HaltNote:
    lines = "\n".join(each.title for each in notes[:MAX_NAMED])
    return HaltNote(title=f"{len(notes)} sessions do not go on", reason=lines, path=SESSIONS_PAGE)


def halt_notices(
    sessions: Sessions,
    store: Store,
    clock: Clock,
    settings: Settings,
    *,
    show: Show,
    secret: Callable[[str], str],
    traces: YourTraces,
    phones: Sequence[TellHalt] = (),
) -> HaltNotices:
    """Return the loop as it is configured: the desktop where toasts are on, and every phone."""

    async def to_desktop(note: HaltNote) -> bool:
        return await show(Toast(safe_text(note.title), safe_text(one_line(note.reason, TEXT_CHARS))))

    async def to_phone(note: HaltNote) -> bool:
        return await Phone(secret(settings.waiting.phone)).tell(note.title, "Open Harken to see it.")

    desktop: list[TellHalt] = [to_desktop] if settings.toasts.enabled else []
    services: list[TellHalt] = [to_phone] if settings.waiting.phone else []
    return HaltNotices(
        sessions,
        store.approvals,
        clock,
        settings,
        tells=[*desktop, *phones, *services],
        traces=traces,
    )


def _title(questions: Sequence[Question], now: datetime) -> str:
    return sentence(len(questions), questions[0].message.received_at, now)


def _who(question: Question) -> str:
    message = question.message
    return f"{one_line(message.sender.label, WHO_CHARS)} in {one_line(message.channel or message.source, WHO_CHARS)}"


def _to_agents(intake: Intake, clock: Clock, mutes: Mutes) -> Tell:
    async def tell(questions: Sequence[Question]) -> bool:
        muted = {(mute.kind, mute.name) for mute in mutes(clock.now())}
        by_mailbox: defaultdict[Mailbox, list[Question]] = defaultdict(list)
        for question in questions:
            message = question.message
            is_muted = ("channel", message.channel) in muted or ("sender", message.sender.id) in muted
            # What may only go with prompts goes there, with what waits; a reminder must not push further than it may.
            if message.attention in PUSHING and not is_muted:
                by_mailbox[message.mailbox].append(question)
        await intake.accept([_reminder(mailbox, asked, clock.now()) for mailbox, asked in by_mailbox.items()])
        return bool(by_mailbox)

    return tell


def _reminder(mailbox: Mailbox, questions: Sequence[Question], now: datetime) -> Draft:
    """Return what an agent is told. No name and no word of the sender: it is Harken that speaks here."""
    lines = [f"{_title(questions, now)}. Answer with the reply tool; if no answer is needed, tell your user."]
    lines += [f"- {each.message.id}, {ago(each.message.received_at, now)} ago" for each in questions[:MAX_NAMED]]
    if len(questions) > MAX_NAMED:
        lines.append(f"- and {len(questions) - MAX_NAMED} more")
    wakes = any(question.message.attention is Attention.WAKE for question in questions)
    return Draft(
        source=LOCAL,
        sender=SENDER,
        text="\n".join(lines),
        channel=CHANNEL,
        mailbox=mailbox,
        # What is said on this machine wakes; at low priority it waits for the next boundary.
        priority=Priority.NORMAL if wakes else Priority.LOW,
    )


def _to_desktop(show: Show, clock: Clock) -> Tell:
    async def tell(questions: Sequence[Question]) -> bool:
        oldest = questions[0]
        body = f"{_who(oldest)}: {one_line(oldest.message.text, TEXT_CHARS)}\nSee all: harken waiting"
        return await show(Toast(_title(questions, clock.now()), safe_text(body)))

    return tell


def _to_any(phones: Sequence[Tell]) -> Tell:
    """Return what tells in several ways; it fails only where each of them does."""

    async def tell(questions: Sequence[Question]) -> bool:
        is_told, failures = False, list[HarkenError]()
        for each in phones:
            try:
                is_told = await each(questions) or is_told
            except HarkenError as exc:
                failures.append(exc)
        if failures and not is_told:
            raise failures[0]
        return is_told

    return tell


def _to_phone(reference: str, clock: Clock, secret: Callable[[str], str]) -> Tell:
    async def tell(questions: Sequence[Question]) -> bool:
        # Looked up each time: whoever puts it right need not restart anything.
        phone = Phone(secret(reference))
        names = sorted({_who(question) for question in questions})[:MAX_NAMED]
        return await phone.tell(_title(questions, clock.now()), "\n".join(names))

    return tell
