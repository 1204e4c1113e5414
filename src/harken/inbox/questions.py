"""What was asked and not answered, by people and by hosts, and the replies on their way out, as people see them.

A question is closed by its answer; here is only what is done by hand. When a person is reminded is the ladder's
business, and sending that of the outbox (both in `dispatch`); answering is in `inbox.py`.

An approval is a question of a host. Only the owner answers it. The host's own question stays where it is: whatever goes
wrong here, the host asks there, and nothing is allowed. The connection that asks is `surfaces/hooks.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import unified_diff
from typing import Final

from harken.clock import Clock, Signal
from harken.display import legible, visible
from harken.errors import Unavailable, UserError
from harken.inbox.caller import Caller, bounded
from harken.inbox.results import ReplyRow
from harken.ingest.policy import ApprovalRule, ApprovalRuling, approval_rule
from harken.model import (
    APPROVALS,
    Approval,
    ApprovalAnswer,
    ApprovalChoice,
    ApprovalId,
    ApprovalRequest,
    ApprovalState,
    AskedQuestion,
    Consumer,
    Mailbox,
    MessageId,
    OutboxId,
    answers_in,
    asked_questions,
)
from harken.store.contract import Store
from harken.store.contract.outbox import OutboxStore
from harken.store.contract.questions import Question, QuestionCount

__all__ = [
    "Approvals",
    "Question",
    "QuestionCount",
    "Questions",
    "WaitingSummary",
    "ago",
    "answer_text",
    "asked_parts",
    "asked_questions",
    "asks",
    "sentence",
]

MAX_LISTED: Final = 500
BY_PERSON: Final = "you"
BY_RULE: Final = "rule {}"  # of those in the settings, counted from 1
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


def ago(since: datetime, now: datetime) -> str:
    """Return how long ago something was, roughly: `25 min`, `2 h`, `3 d`."""
    passed = max(now - since, timedelta(0))
    if passed < _HOUR:
        return f"{passed // timedelta(minutes=1)} min"
    return f"{passed // _HOUR} h" if passed < 2 * _DAY else f"{passed // _DAY} d"


def sentence(count: int, oldest: datetime | None, now: datetime) -> str:
    """Return how much waits for an answer, and since when, in words."""
    if not count or oldest is None:
        return "nothing waits for an answer"
    said = "1 waits for an answer" if count == 1 else f"{count} wait for an answer"
    if now - oldest < timedelta(minutes=1):
        return said
    return f"{said}, {'for' if count == 1 else 'oldest'} {ago(oldest, now)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSummary:
    """How much waits for an answer: in total, since when, and where."""

    count: int = 0
    oldest: datetime | None = None
    mailboxes: Sequence[QuestionCount] = ()
    sentence: str = ""


class Questions:
    """The use cases around open questions."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, mailboxes: Collection[Mailbox] | None = None, limit: int = 50) -> Sequence[Question]:
        """Return what waits for an answer, the oldest first."""
        return await self._store.questions.open(bounded(limit, MAX_LISTED, "limit"), mailboxes=mailboxes)

    async def waiting(self, among: Collection[Mailbox] | None = None) -> WaitingSummary:
        """Return how much waits, in some mailboxes or in all."""
        counts = [each for each in await self._store.questions.counts() if among is None or each.mailbox in among]
        count, oldest = sum(each.count for each in counts), min((each.oldest for each in counts), default=None)
        said = sentence(count, oldest, self._clock.now())
        return WaitingSummary(count=count, oldest=oldest, mailboxes=counts, sentence=said)

    async def of(self, messages: Collection[MessageId]) -> Sequence[Question]:
        """Return those of some messages that wait for an answer, the oldest first."""
        return await self._store.questions.open(MAX_LISTED, messages=messages) if messages else []

    async def owed(self, mailboxes: Collection[Mailbox], consumer: Consumer, limit: int) -> Sequence[Question]:
        """Return what waits in some mailboxes, was seen by a consumer, and has no answer on its way."""
        found = [each for each in await self.list(mailboxes, limit) if each.is_seen and not each.has_reply]
        seen = await self._store.deliveries.seen_by([each.message.id for each in found]) if found else {}
        return [each for each in found if consumer in seen[each.message.id]]

    def how_long(self, question: Question) -> str:
        """Return for how long a question waits, roughly."""
        return ago(question.message.received_at, self._clock.now())

    async def settle(self, caller: Caller, refs: Sequence[str]) -> Sequence[MessageId]:
        """Say that these need no answer (any more); return them. Raises `NotFound` before anything is changed."""
        caller.require_owner("say that nothing waits for an answer")
        messages = [(await self._store.messages.get(ref)).id for ref in refs]
        await self._store.questions.settle(messages, BY_PERSON)
        return messages


MAX_ASKED_BYTES: Final = 200_000
"""How long a host's question may be, so that each surface can show it whole."""

MAX_ASKED_DEPTH: Final = 50  # of lists in lists: what can be read once may be too deep to be shown somewhere else
MAX_REASON_CHARS: Final = 2_000
LOOK_EVERY_SECONDS: Final = 5.0
RESTARTED: Final = "Harken was restarted; the host asks in its own terminal"
_OLD, _NEW = ("old_string", "oldString", "old_str"), ("new_string", "newString", "new_str")
_CONTEXT_LINES: Final = 3


def asked_parts(arguments: Mapping[str, object]) -> Sequence[tuple[str, str]]:
    """Return everything that a tool is to be given, as people read it: an edit as its diff. Pure."""
    if questions := asked_questions(arguments):
        others = {name: value for name, value in arguments.items() if name != "questions"}
        return [
            *((legible(each.header or "question"), _question_text(each)) for each in questions),
            *asked_parts(others),
        ]
    old, new = (next((name for name in names if isinstance(arguments.get(name), str)), "") for names in (_OLD, _NEW))
    parts = [(name, _as_text(value)) for name, value in arguments.items() if not (old and new and name in (old, new))]
    if old and new:
        # Other characters end a line for Python, and not for what reads the file: they are a part of the change.
        texts = [str(arguments[name]) for name in (old, new)]
        is_ended = all(text.endswith("\n") for text in texts)
        before, after = (text[: -1 if is_ended else None].split("\n") for text in texts)
        lines = list(unified_diff(before, after, n=_CONTEXT_LINES, lineterm=""))[2:]
        parts.append(("change", "\n".join(lines) or "(none)"))
    return [(legible(name), legible(text)) for name, text in parts]


def _question_text(asked: AskedQuestion) -> str:
    lines = [f"- {label}: {about}" if about else f"- {label}" for label, about in asked.options]
    several = ["(several may be chosen)"] if asked.takes_several else []
    return legible("\n".join([asked.text, *lines, *several]))


def asks(request: ApprovalRequest) -> str:
    """Return what a host asks, as the end of a sentence that begins with its name."""
    if ApprovalChoice.ANSWER in request.choices:
        return "asks you a question"
    return f"asks whether it may use {request.tool}"


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_ASKED_DEPTH):
        level = [inner for each in level for inner in _inner(each)]
    return bool(level)


def _inner(value: object) -> Collection[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


class Approvals:
    """The use cases around what hosts ask before their agents use a tool."""

    def __init__(self, store: Store, clock: Clock, rules: Callable[[], Sequence[ApprovalRule]] = lambda: ()) -> None:
        self._store = store.approvals
        self._changes = store.changes
        self._clock = clock
        self._rules = rules

    async def begin(self) -> None:
        """Withdraw what an earlier daemon of this home asked: no host waits for it any more."""
        for left in await self._store.list([ApprovalState.OPEN], is_own=True):
            await self._store.withdraw(left.id, RESTARTED)

    async def ask(self, request: ApprovalRequest, patience: timedelta) -> Approval:
        """Store what a host asks, and answer it where a rule refuses it.

        Raises `HarkenError` for what cannot be shown, or one question too many.
        """
        request = replace(
            request,
            tool=legible(request.tool),
            folder=legible(request.folder),
            why=legible(request.why),
            always=legible(request.always),
        )
        if _is_deep(request.arguments):
            raise UserError("The question is too deep to be shown elsewhere.", "Answer it in the terminal.")
        said = json.dumps([request.arguments, request.tool, request.folder, request.why, request.always])
        if len(said) > MAX_ASKED_BYTES:
            raise UserError("The question is too long to be shown elsewhere.", "Answer it in the terminal.")
        found = approval_rule(request, self._rules())
        if found is None:
            return await self._store.ask(request, patience)
        number, rule = found
        if rule.answer is ApprovalRuling.ASK:
            choices = tuple(choice for choice in request.choices if choice is not ApprovalChoice.ALWAYS)
            return await self._store.ask(replace(request, choices=choices, always=""), patience)
        reason = visible(rule.reason.strip()) if request.carries_reason else ""
        return await self._store.ask(request, patience, refused_by=BY_RULE.format(number), reason=reason)

    @property
    def rules(self) -> Sequence[ApprovalRule]:
        """The rules in force, in their order."""
        return self._rules()

    async def wait(self, asked: Approval) -> Approval:
        """Return an approval as soon as it can no longer be answered."""
        changed = Signal()
        with self._changes.listen(changed.ring, only=[APPROVALS]):
            while True:
                found = await self._store.get(asked.id)
                if found.state is not ApprovalState.OPEN:
                    return found
                if found.is_late(self._clock.now()):
                    await self._store.expire()
                    continue
                left = (found.expires_at - self._clock.now()).total_seconds()
                await changed.wait(max(0.0, min(left, LOOK_EVERY_SECONDS)))

    async def withdraw(self, asked: ApprovalId, because: str) -> Approval:
        """Say that a host no longer asks, or did not take the answer."""
        return await self._store.withdraw(asked, because)

    async def obey(self, asked: ApprovalId, evidence: str) -> Approval:
        """Say by what it is known that a host did what was answered."""
        return await self._store.obey(asked, evidence)

    async def list(self, caller: Caller, *, is_open: bool = True, limit: int = MAX_LISTED) -> Sequence[Approval]:
        """Return what waits for the person, or also what is over; the oldest first."""
        caller.require_owner("see what hosts ask you")
        states = [ApprovalState.OPEN] if is_open else []
        found = [self._now(each) for each in await self._store.list(states, limit=bounded(limit, MAX_LISTED, "limit"))]
        return [each for each in found if not (is_open and each.state.is_over)]

    async def get(self, caller: Caller, ref: str) -> Approval:
        """Return one, by its id or a unique beginning of it."""
        caller.require_owner("see what hosts ask you")
        return self._now(await self._store.get(ref.strip()))

    def _now(self, found: Approval) -> Approval:
        """Return an approval as it is now: what is late is over, also while nothing can be stored."""
        return found.expire(self._clock.now()) or found

    async def show(self, asked: Collection[Approval], surface: str) -> None:
        """Note that a surface has shown some of them to the person; one that cannot be noted is shown all the same."""
        with suppress(Unavailable):
            for each in asked:
                if each.state is ApprovalState.OPEN and surface not in each.shown:
                    await self._store.show(each.id, surface)

    async def answer(
        self, caller: Caller, asked: ApprovalId, choice: str, *, digest: str, reason: str = "", through: str
    ) -> Approval:
        """Answer a question of a host; the first answer counts, and only to what was shown: `digest` names that.

        Raises `Conflict` for one that is over, or asks something else; then nothing was answered.
        """
        caller.require_owner("answer what a host asks you")
        try:
            chosen = ApprovalChoice(choice)
        except ValueError as exc:
            known = ", ".join(each.value for each in ApprovalChoice)
            raise UserError(f"There is no answer {choice[:40]!r}.", f"Answers: {known}.") from exc
        if reason and chosen not in (ApprovalChoice.NO, ApprovalChoice.ANSWER):
            raise UserError("Only a refusal has a reason.", "Leave the reason out, or answer no.")
        if len(reason) > MAX_REASON_CHARS:
            raise UserError("The reason is too long.", f"Use at most {MAX_REASON_CHARS} characters.")
        found = await self._store.get(asked)
        if chosen is ApprovalChoice.ANSWER and chosen in found.request.choices:
            reason = answer_text(found.request, reason)
        elif reason and not found.request.carries_reason:
            raise UserError("Its host passes no reason on to the agent.", "Leave the reason out, or send a message.")
        return await self._store.answer(
            ApprovalAnswer(
                approval=asked,
                session=found.request.session,
                digest=digest,
                choice=chosen,
                by=f"token {caller.holder}" if caller.holder else BY_PERSON,
                through=through,
                reason=visible(reason.strip()),
            )
        )


def answer_text(asked: ApprovalRequest, said: str) -> str:
    """Return the answers to an agent's questions as they are stored. Raises `UserError` unless each has one."""
    answers, count = answers_in(asked.arguments, visible(said.strip())), len(asked_questions(asked.arguments))
    if not answers:
        what = "a question" if count == 1 else f"{count} questions"
        raise UserError(f"It asks {what}.", "Answer each on a line of its own: with an option, or in other words.")
    return "\n".join(", ".join(each) for each in answers)


STATES = ("queued", "sent", "parked")


class Replies:
    """The use cases around the outbox."""

    def __init__(self, outbox: OutboxStore) -> None:
        self._outbox = outbox

    async def list(self, state: str = "") -> Sequence[ReplyRow]:
        """Return the newest replies, of one state, or what has not left."""
        if state and state not in STATES:
            raise UserError(f"There is no state {state[:40]!r}.", f"States: {', '.join(STATES)}.")
        if state:
            return await self._outbox.list(state=state)
        return [*await self._outbox.list(state="parked"), *await self._outbox.list(state="queued")]

    async def retry(self, caller: Caller, replies: Sequence[str], *, is_unsent: bool) -> Sequence[ReplyRow]:
        """Let parked replies be tried once more, now. Raises `NotFound` before anything is changed.

        With `is_unsent` the person has looked, and none of them was sent.
        """
        caller.require_owner("have replies sent again")
        return await self._outbox.retry([OutboxId(each.strip()) for each in replies], is_unsent=is_unsent)
