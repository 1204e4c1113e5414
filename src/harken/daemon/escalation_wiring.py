"""Joins the ladder for unanswered questions to what can be told: agents by a message, the desktop, a phone.

What is said is made here, from counts, names and times; text of a message stands in a toast only, shortened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from harken.clock import Clock
from harken.config.settings import Settings
from harken.dispatch.escalation import Escalation, LadderStep, ReminderLadder, ReminderWay, Tell, climbing
from harken.dispatch.toast import Phone, Show, Toast, safe_text
from harken.errors import HarkenError
from harken.inbox.questions import ago, sentence
from harken.ingest.intake import Intake
from harken.ingest.sanitise import one_line
from harken.model import LOCAL, Attention, Draft, Mailbox, Priority, Sender
from harken.store.contract import Store
from harken.store.contract.people import Mute
from harken.store.contract.questions import Question

SENDER: Final = Sender("harken", "Harken")
CHANNEL: Final = "reminders"
MAX_NAMED: Final = 5
PUSHING: Final = frozenset({Attention.WAKE, Attention.BOUNDARY})
WHO_CHARS: Final = 40
TEXT_CHARS: Final = 80


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
