"""The verbs for what needs you, the oldest first, for putting an entry away, and for how everything is at a glance.

Where each entry comes from is known elsewhere: approvals, actions that ask, questions, replies that could not be sent,
sources that do not listen, agents and rules that cannot run, unknown senders. `needs_of` joins them, for the page too.
What is put away stays away for this occasion: a source that fails again, or a sender who writes again, is shown again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Final

from harken.automation import ActionState
from harken.errors import UserError
from harken.hosts.registry import host_title
from harken.inbox.automation import ActionDetails, StuckAutomation
from harken.inbox.caller import Grant, Role
from harken.inbox.questions import asked_parts, asks
from harken.model import LOCAL, Approval, Message, timestamp
from harken.sources.source import SourceReport, SourceState
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about

MAX_EACH: Final = 100
MAX_LOOKED_AT: Final = 50  # conversations, for senders whom nobody knows
MAX_KEY: Final = 400
_TROUBLE: Final = frozenset({SourceState.NEEDS_PERSON, SourceState.RETRYING, SourceState.SILENT})


class NeedKind(StrEnum):
    """What needs you."""

    APPROVAL = "approval"
    CONFIRM = "confirm"
    QUESTION = "question"
    REPLY = "reply"
    SIGN_IN = "sign-in"
    SOURCE = "source"
    SENDER = "sender"
    AGENT = "agent"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One entry: what it is, since when, and what it is about. `ref` is what its main action names, `refs` all of them.

    `key` names this occasion; `said` is a sentence, and `about` is text of others, which is not to be trusted.
    """

    key: str
    kind: NeedKind
    said: str
    since: datetime | None
    ref: str
    about: str = ""
    message: Message | None = None
    approval: Approval | None = None
    action: ActionDetails | None = None
    refs: Sequence[str] = ()


async def needs_of(context: CallContext) -> Sequence[Need]:
    """Return what needs the person and was not put away, the oldest first.

    A phone of theirs is told what it can act on: what asks for a yes only where it may approve, never how Harken is.
    """
    if context.caller.is_device:
        found = [*await _asking(context), *await _open_questions(context)]
    else:
        context.caller.require_owner("see what needs you")
        found = await _everything(context)
    away = await context.access.put_away_keys()
    return sorted((each for each in found if each.key not in away), key=_age)


async def _everything(context: CallContext) -> list[Need]:
    return [
        *await _asking(context),
        *await _open_questions(context),
        *(
            Need(
                key=f"reply:{row.id}:{row.attempts}",
                kind=NeedKind.REPLY,
                said=(
                    f"An event could not be posted to the subscriber {row.author!r}"
                    if row.subscription
                    else f"A reply to {row.message.sender.label} could not be sent"
                ),
                since=row.created_at,
                ref=row.id,
                about=row.error,
                message=row.message,
            )
            for row in (await context.replies.list("parked"))[:MAX_EACH]
        ),
        *(_source(report) for report in context.sources() if report.health.state in _TROUBLE),
        *_stuck(await context.automation.stuck()),
        *_strangers(await _unknown(context)),
    ]


async def _open_questions(context: CallContext) -> Sequence[Need]:
    return list(_questions([each.message for each in await context.questions.list(limit=MAX_EACH)]))


async def _asking(context: CallContext) -> Sequence[Need]:
    """Return what asks for a yes or no."""
    if not context.caller.may("approve", Grant.APPROVE):
        return []
    caller = context.caller.doing("approvals", Grant.APPROVE)
    waiting = await context.automation.actions([ActionState.WAITING], limit=MAX_EACH)
    return [
        *(
            Need(
                key=f"approval:{asked.id}",
                kind=NeedKind.APPROVAL,
                said=f"{host_title(asked.request.host)} {asks(asked.request)}",
                since=asked.asked_at,
                ref=asked.id,
                about="\n".join(text for _, text in asked_parts(asked.request.arguments)),
                approval=asked,
            )
            for asked in await context.approvals.list(caller, limit=MAX_EACH)
        ),
        *(
            Need(
                key=f"confirm:{told.action.id}",
                kind=NeedKind.CONFIRM,
                said=f"The rule {told.action.rule} asks whether to run an agent",
                since=told.action.created_at,
                ref=told.action.id,
                about=told.message.text if told.message else "",
                message=told.message,
                action=told,
            )
            for told in waiting
        ),
    ]


def _age(need: Need) -> tuple[bool, datetime]:
    return (need.since is None, need.since or datetime.max.replace(tzinfo=UTC))


def _questions(messages: Sequence[Message]) -> Iterator[Need]:
    """Yield each conversation in which there are questions once, by the newest of them: one more is a new occasion."""
    grouped: dict[tuple[str, str], list[Message]] = {}
    for message in sorted(messages, key=lambda each: each.received_at):
        grouped.setdefault((message.source, message.thread or message.id), []).append(message)
    for asked in grouped.values():
        newest = asked[-1]
        what = "an answer" if len(asked) == 1 else f"{len(asked)} answers"
        yield Need(
            key=f"question:{newest.id}",
            kind=NeedKind.QUESTION,
            said=f"{newest.sender.label} waits for {what}",
            since=asked[0].received_at,
            ref=newest.id,
            about=newest.text,
            message=newest,
            refs=[each.id for each in asked],
        )


def _stuck(found: StuckAutomation) -> Iterator[Need]:
    """Yield each agent that rules cannot start, and each rule that no agent can run."""
    waits = f", so {found.waiting} {'run waits' if found.waiting == 1 else 'runs wait'}" if found.waiting else ""
    for held in found.held:
        yield Need(
            key=f"agent:{held.agent}:{timestamp(held.since)}",
            kind=NeedKind.AGENT,
            said=f"Nobody is signed in to {held.agent}{waits}. Sign in to it",
            since=held.since,
            ref=held.run,
            about=held.reason,
        )
    for name, why in found.unable.items():
        yield Need(
            key=f"rule:{sha256(f'{name} {why}'.encode('utf-8', 'replace')).hexdigest()[:16]}:{found.missed[name]}",
            kind=NeedKind.RULE,
            said=f"The rule {name} can neither ask nor run: install an agent, or change the rule",
            since=None,
            ref=name,
            about=why,
        )


def _source(report: SourceReport) -> Need:
    health = report.health
    is_sign_in = health.state is SourceState.NEEDS_PERSON
    since = timestamp(health.since) if health.since else ""
    what = "needs you before anything arrives" if is_sign_in else "does not listen"
    return Need(
        key=f"source:{report.name}:{health.state.value}:{since}",
        kind=NeedKind.SIGN_IN if is_sign_in else NeedKind.SOURCE,
        said=f"The source {report.name} {what}",
        since=health.since,
        ref=report.name,
        about=health.reason,
    )


async def _unknown(context: CallContext) -> Sequence[Message]:
    """Return the newest of each open conversation with an unknown sender that was not decided about."""
    found = await context.conversations.list("open", limit=MAX_LOOKED_AT)
    return await context.access.undecided([each.newest for each in found if each.newest.source != LOCAL])


def _strangers(messages: Sequence[Message]) -> Iterator[Need]:
    """Yield each sender once, with the newest that they said."""
    seen: set[tuple[str, str]] = set()
    for message in messages:
        who = (message.source, message.sender.id)
        if who in seen:
            continue
        seen.add(who)
        yield Need(
            key=f"sender:{message.id}",
            kind=NeedKind.SENDER,
            said=f"{message.sender.label} of {message.source} is unknown, so their messages are not pushed",
            since=message.received_at,
            ref=message.id,
            about=message.text,
            message=message,
        )


class GetStatus(Arguments):
    """Show what needs you, your agents and your sources."""


class ListNeeds(Arguments):
    """Show what needs you, oldest first: approvals, rules, questions, failed replies, sources, unknown senders."""


class PutAway(Arguments):
    """Put entries of `needs` away. The next occasion is shown again."""

    keys: Annotated[list[str], about("Their keys.")]
    is_undone: Annotated[bool, about("Show them again.", flag="--undo")] = False


async def _needs(context: CallContext, _a: ListNeeds) -> object:
    found = await needs_of(context)
    return {
        "needs": [
            {
                "key": each.key,
                "kind": each.kind.value,
                "said": each.said,
                "since": shapes.moment(each.since),
                "ref": each.ref,
                "refs": list(each.refs or [each.ref]),
                "about": each.about,
            }
            for each in found
        ],
        "count": len(found),
    }


async def _put_away(context: CallContext, a: PutAway) -> object:
    if not a.keys or any(not key or len(key) > MAX_KEY for key in a.keys):
        raise UserError("Which entry?", "Name its key, as `harken needs --json` shows it.")
    await context.access.put_away(context.caller, a.keys, is_undone=a.is_undone)
    return {"keys": a.keys}


async def _status(context: CallContext, _a: GetStatus) -> object:
    is_person = context.caller.role is Role.OWNER
    needs = await needs_of(context) if is_person else ()
    asked = [each for each in needs if each.kind is NeedKind.APPROVAL]
    return {
        "daemon": dict(context.daemon()),
        **shapes.status(await context.inbox.status()),
        "rules": shapes.automation_summary(await context.automation.summary()),
        "waiting": shapes.waiting(await context.questions.waiting()),
        # An agent is not told what needs the person, nor who has events posted where.
        "callbacks": [shapes.callback(each) for each in await context.callbacks()] if is_person else None,
        "needs": {"count": len(needs)} if is_person else None,
        "approvals": {
            "count": len(asked),
            "oldest": shapes.moment(asked[0].since if asked else None),
            "rules": len(context.approvals.rules) if is_person else 0,
        },
    }


NEED_VERBS: Final = (
    Verb("needs", ListNeeds, _needs),
    Verb("put_away", PutAway, _put_away),
    Verb("status", GetStatus, _status),
)
