"""The JSON of every result, documented and stable: what `--json`, the HTTP API and the socket give. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

import msgspec

from harken.automation import RuleVerdict
from harken.inbox.access import ConnectedMachine, TokenState
from harken.inbox.automation import AutomationSummary
from harken.inbox.callbacks import CallbackSubscription
from harken.inbox.questions import Question, WaitingSummary, asked_parts
from harken.inbox.results import (
    ChannelCard,
    Details,
    Forecast,
    HostedProgress,
    LedgerEntry,
    Omission,
    PullResult,
    ReplyRow,
    Status,
    SurfaceRecord,
    TaskProgress,
)
from harken.inbox.subscriptions import EventSubscriber
from harken.ingest.sanitise import clean, one_line
from harken.model import (
    Approval,
    Consumer,
    Delivery,
    DeliveryState,
    Draft,
    Mailbox,
    Message,
    Offer,
    ScheduledMessage,
    TextFormat,
    record,
    task_record,
    timestamp,
)
from harken.render import Piece, cut
from harken.sessions.session import Session
from harken.sources.source import SourceReport

PREVIEW_CHARS = 200

MAX_REASON = 300


def moment(value: datetime | None) -> str | None:
    """A time, or null."""
    return None if value is None else timestamp(value)


def approval(value: Approval) -> dict[str, object]:
    """What a host asks before a tool is used, and what became of it."""
    asked = value.request
    return {
        "id": value.id,
        "host": asked.host,
        "session": asked.session,
        "tool": asked.tool,
        "arguments": asked.arguments,
        "parts": [{"name": name, "text": text} for name, text in asked_parts(asked.arguments)],
        "digest": asked.digest,
        "folder": asked.folder,
        "why": asked.why,
        "choices": [choice.value for choice in asked.choices],
        "always": asked.always,
        "carries_reason": asked.carries_reason,
        "asked_at": timestamp(value.asked_at),
        "expires_at": timestamp(value.expires_at),
        "state": value.state.value,
        "shown": list(value.shown),
        "choice": value.choice.value if value.choice else "",
        "reason": value.reason,
        "answered_by": value.answered_by,
        "through": value.through,
        "answered_at": moment(value.answered_at),
        "ended_at": moment(value.ended_at),
        "because": value.because,
    }


def message(value: Message, seen_by: Sequence[Consumer] = ()) -> dict[str, object]:
    """A message, and who has seen it."""
    return record(value, seen_by)


def scheduled(value: ScheduledMessage, outlook: Forecast) -> dict[str, object]:
    """A message that waits for its time, and what it waits for."""
    waits = {
        "due_at": moment(value.schedule.due_at),
        "occasion": value.schedule.occasion.value,
        "sentence": outlook.sentence,
        "withdrawn_by": value.withdrawn_by,
        "withdrawn_at": moment(value.withdrawn_at),
    }
    return {**record(value.message), "scheduled": waits}


def offer(value: Offer) -> dict[str, object]:
    """A message that was handed out."""
    extra: dict[str, object] = {"delivery_id": value.delivery_id, "repeat": value.is_repeat}
    return {**record(value.message, value.seen_by), **extra, "answered_by": value.answered_by}


def cut_offer(value: Offer) -> dict[str, object]:
    """A message that is too long for an agent to be handed it here: its first words."""
    return cut(offer(value), "content_text_sanitized")


def channel(value: ChannelCard) -> dict[str, object]:
    """A channel, and the beginning of what was said there last."""
    line, newest = value.line, value.newest
    return {
        "source": line.source,
        "channel": line.channel,
        "count": line.count,
        "unread": line.unread,
        "last_at": moment(line.last_at),
        "cleared": line.cleared,
        "newest": None
        if newest is None
        else {"id": newest.id, "mailbox": newest.mailbox, "seq": newest.seq, "preview": newest.text[:PREVIEW_CHARS]},
    }


def pulled(value: PullResult) -> dict[str, object]:
    """What was handed out, and what does not fit."""
    messages = [*map(offer, value.offers), *map(cut_offer, value.cut)]
    return {"unread_remaining": value.remaining, "messages": messages}


def delivery(value: Delivery) -> dict[str, object]:
    """One delivery."""
    return {
        "delivery_id": value.id,
        "message_id": value.message_id,
        "consumer": value.consumer,
        "state": value.state.value,
        "surface": value.surface,
        "session": value.session,
        "machine": value.machine,
        "offers": value.offers,
        "offered_at": moment(value.offered_at),
        "seen_at": moment(value.seen_at),
        "evidence": value.evidence,
        "answered_at": moment(value.answered_at),
        "reason": value.reason,
    }


def entry(value: LedgerEntry) -> dict[str, object]:
    """One line of a ledger."""
    if value.delivery is None:
        return {"consumer": value.consumer, "state": value.state.value}
    return delivery(value.delivery)


def details(value: Details) -> dict[str, object]:
    """A message with its ledger and replies."""
    replies = [reply(row) for row in value.replies]
    seen_by = [line.consumer for line in value.ledger if line.state in (DeliveryState.SEEN, DeliveryState.ANSWERED)]
    ledger = [entry(line) for line in value.ledger]
    message = record(value.message, seen_by)
    return {"message": message, "ledger": ledger, "not_given": list(value.not_given), "replies": replies}


def reply(row: ReplyRow) -> dict[str, object]:
    """A reply in the outbox."""
    return {
        "reply_id": row.id,
        "message_id": row.message.id,
        "subscription": row.subscription,
        "state": row.state,
        "body": row.body,
        "author": row.author,
        "attempts": row.attempts,
        "error": row.error,
        "created_at": moment(row.created_at),
    }


def token(value: TokenState) -> dict[str, object]:
    """A token, without its secret."""
    item, scope = value.token, value.token.scope
    return {
        "name": item.name,
        "kind": item.kind,
        "may": sorted(scope.may) if scope else [],
        "mailboxes": list(scope.mailboxes) if scope else [],
        "consumer": scope.consumer if scope else "",
        "trust": scope.trust.value if scope and scope.trust else None,
        "state": value.state,
        "made_at": moment(item.made_at),
        "expires_at": moment(item.expires_at),
        "revoked_at": moment(item.revoked_at),
        "used_at": moment(item.used_at),
        "used_from": item.used_from,
        "bound_to": item.bound_to,
    }


def machine(value: TokenState, here: ConnectedMachine | None) -> dict[str, object]:
    """A satellite, by its token; `here` while it is linked."""
    item = value.token
    state = "here" if here else "away" if value.state == "in force" else value.state
    return {
        "name": item.name,
        "state": state if item.used_at else value.state if value.state != "in force" else "not joined yet",
        "seen_at": moment(item.used_at),
        "address": here.address if here else item.used_from,
        "version": here.version if here else "",
        "sessions": here.sessions if here else 0,
    }


def session(value: Session) -> dict[str, object]:
    """A live session."""
    return {
        "session": value.key,
        "consumer": value.consumer,
        "host": value.host,
        "client": value.client,
        "machine": value.machine,
        "cwd": value.cwd,
        "pid": value.pid,
        "presence": value.presence.value,
        "halt": value.halt and {"kind": value.halt.kind, "at": moment(value.halt.at), "reason": value.halt.reason},
        "mailboxes": list(value.mailboxes),
        "problem": "" if value.problem is None else f"{value.problem.message} {value.problem.hint}",
        "surfaces": list(value.ways),
        "can_wake": value.can_be_woken,
        "hindrance": value.hindrance,
        "is_hosted": value.is_hosted,
        "opened_at": moment(value.opened_at),
        "last_active": moment(value.last_active),
    }


def subscriber(value: EventSubscriber) -> dict[str, object]:
    """Who is subscribed to an event."""
    return {
        "consumer": value.consumer,
        "session": value.session,
        "event": value.event,
        "filter": dict(value.filter),
        "way": value.way,
        "sentence": value.sentence,
        "since": moment(value.since),
        "asked_at": moment(value.asked_at),
        "told": value.told,
        "told_at": moment(value.told_at),
    }


def callback(value: CallbackSubscription) -> dict[str, object]:
    """Who has an event posted where, without the path and the secret."""
    wanted = msgspec.json.decode(value.arguments, type=dict[str, str])
    filters = ", ".join(f"{name} {each}" for name, each in wanted.items())
    return {
        "id": value.id,
        "token": value.holder,
        "event": value.event,
        "filter": wanted,
        "to": value.place,
        "state": "suspended" if value.is_suspended else "failing" if value.failing_from else "active",
        "sentence": f"{value.event} by webhook to {value.place}{f' ({filters})' if filters else ''}",
        "since": moment(value.made_at),
        "expires_at": moment(value.expires_at),
        "told": value.told,
        "told_at": moment(value.told_at),
        "error": value.error,
    }


def task(value: TaskProgress) -> dict[str, object]:
    """A task, and how it stands."""
    item = value.task
    return {
        "id": item.id,
        "title": item.title,
        "dir": item.dir,
        "machine": item.machine,
        "branch": item.branch,
        "repo": item.repo,
        "agent": item.agent,
        "has_worktree": item.has_worktree,
        "state": value.state.value,
        "presence": value.presence,
        "pending": value.pending,
        "peers": list(item.peers),
        "mailbox": item.mailbox,
        "created_at": moment(item.created_at),
        "started_at": moment(item.started_at),
        "done_at": moment(item.done_at),
        "sessions": [session(each) for each in value.sessions],
        "hosted": hosted(value.hosted),
    }


def hosted(value: HostedProgress | None) -> dict[str, object] | None:
    """How the agent of a hosted task stands; null for a task that is not hosted."""
    if value is None:
        return None
    return {"agent": value.agent, "state": value.state.value, "problem": value.problem}


def conversation_parts(value: HostedProgress) -> dict[str, object]:
    """What a hosted agent said and did lately, the oldest first, and its plan."""
    parts = [
        {
            "kind": each.kind,
            "title": each.title,
            "status": each.status,
            "text": each.text,
            "changes": [{"path": path, "diff": diff} for path, diff in each.changes],
            "is_cut": each.is_cut,
        }
        for each in value.parts
    ]
    plan = [{"step": step, "status": status} for step, status in value.plan]
    return {"parts": parts, "plan": plan, "left_out": value.left_out}


def task_message(value: Offer, task: str) -> dict[str, object]:
    """A message of a task that was handed out."""
    return {**task_record(value, task), "delivery_id": value.delivery_id, "repeat": value.is_repeat}


def cut_task_message(value: Offer, task: str) -> dict[str, object]:
    """A message of a task that is too long for an agent to be handed it here: its first words."""
    return {**cut(task_message(value, task), "body"), "delivered_at": None}


def piece(value: Piece) -> dict[str, object]:
    """A part of a message's text, in the place of all of it."""
    message = {**record(value.message), "content_text_sanitized": value.text}
    length = len(value.message.text)
    return {"message": message, "offset": value.start, "length": length, "next_offset": value.next_start}


def source(value: SourceReport) -> dict[str, object]:
    """A configured source, and how it is doing."""
    health = value.health
    return {
        "name": value.name,
        "kind": value.kind,
        "address": value.address,
        "state": health.state.value,
        "reason": health.reason,
        "server": health.server,
        "pace": health.pace,
        "since": moment(health.since),
        "next_try": moment(health.next_try),
        "last_message_at": moment(health.last_message_at),
        "last_poll": moment(health.last_poll),
        "next_poll": moment(health.next_poll),
        "throttled_until": moment(health.throttled_until),
        "reconnects": health.reconnects,
        "gaps": health.gaps,
        "too_long": health.too_long,
        "known": health.known,
        "counts": dict(health.counts),
        "dropped": dict(health.dropped),
        "trust": value.trust.value,
        "attention": value.attention.value,
    }


def source_standing(value: SourceReport) -> dict[str, object]:
    """How a source is doing, for agents: short, and without the addresses of others."""
    health = value.health
    return {
        "name": value.name,
        "kind": value.kind,
        "state": health.state.value,
        "reason": _safe(health.reason),
        "server": _safe(health.server),
        "last_poll": moment(health.last_poll),
        "next_poll": moment(health.next_poll),
        "throttled_until": moment(health.throttled_until),
    }


def _safe(text: str) -> str:
    """Return what may hold words of the other side, so that a model reads it as no more than words."""
    return one_line(clean(text, TextFormat.PLAIN, MAX_REASON).text, MAX_REASON)


def surface_record(value: SurfaceRecord) -> dict[str, object]:
    """What is known lately about one surface of one consumer."""
    return {
        "consumer": value.consumer,
        "surface": value.surface,
        "offered": value.offered,
        "seen": value.seen,
        "last_offered_at": moment(value.last_offered_at),
        "last_seen_at": moment(value.last_seen_at),
        "evidence": value.evidence,
    }


def omissions(value: Mapping[Mailbox, Omission]) -> list[dict[str, object]]:
    """What a reader was not given when it began, by mailbox."""
    return [{"mailbox": mailbox, **asdict(each)} for mailbox, each in value.items()]


def held(value: Draft) -> dict[str, object]:
    """A draft that is not stored yet."""
    return {"source": value.source, "channel": value.channel, "from": value.sender.label, "characters": len(value.text)}


def status(value: Status) -> dict[str, object]:
    """What a person wants to know at a glance."""
    return {
        "sessions": [session(item) for item in value.sessions],
        "consumers": [
            {
                "consumer": place.consumer,
                "mailbox": place.mailbox,
                "cursor": place.cursor,
                "head": place.head,
                "unread": place.unread,
                "left_out": None if place.left_out is None else asdict(place.left_out),
            }
            for place in value.consumers
        ],
        "senders": [{"source": r.source, "sender": r.sender, "trust": r.trust.value} for r in value.senders],
        "mutes": [{"kind": m.kind, "name": m.name, "until": moment(m.until)} for m in value.mutes],
        "parked": [reply(row) for row in value.parked],
        "waiting_replies": value.waiting_replies,
        "not_stored": [held(draft) for draft in value.not_stored],
        "refused_pairings": [
            {"source": each.source, "sender": each.sender, "reason": each.reason, "at": moment(each.at)}
            for each in value.refused_pairings
        ],
        "store": dict(value.store),
    }


def waiting(value: WaitingSummary) -> dict[str, object]:
    """Return how much waits for an answer."""
    return {
        "count": value.count,
        "oldest_at": moment(value.oldest),
        "sentence": value.sentence,
        "mailboxes": [
            {"mailbox": each.mailbox, "count": each.count, "oldest_at": moment(each.oldest)} for each in value.mailboxes
        ],
    }


def question_state(value: Question, how_long: str) -> dict[str, object]:
    """Return how far a question got."""
    return {
        "how_long": how_long,
        "is_seen": value.is_seen,
        "has_reply": value.has_reply,
        "reminders": value.reminders,
    }


def verdict(it: RuleVerdict, action: str = "") -> dict[str, object]:
    """Return what a rule makes of a message."""
    return {
        "rule": it.rule,
        "mode": it.mode.value,
        "outcome": it.outcome.value,
        "reason": it.reason,
        "earlier": it.earlier,
        "action": action,
    }


def automation_summary(found: AutomationSummary) -> dict[str, object]:
    """Return how things stand, in a few numbers."""
    return {
        "rules": found.rules,
        "is_paused": found.is_paused,
        "problem": found.problem,
        "is_changed": found.is_changed,
        "cannot_run": found.cannot_run,
        "asked": found.asked,
        "oldest_asked_at": timestamp(found.oldest) if found.oldest else None,
        "queued": found.queued,
        "running": found.running,
    }
