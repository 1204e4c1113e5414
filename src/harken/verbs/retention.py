"""The verbs for what is kept: export and retention."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from harken.errors import UserError
from harken.inbox.retention import ExportedMessage, ExportFilter
from harken.verbs import shapes
from harken.verbs.verb import Arguments, CallContext, Verb, about, position


class Export(Arguments):
    """Give a page of a mailbox, oldest first."""

    mailbox: Annotated[str, about("The mailbox.")] = "inbox"
    after: Annotated[int, position("Only sequence numbers above this.")] = 0
    limit: Annotated[int, about("Maximum number.")] = 500
    channel: Annotated[str, about("Only this channel.")] = ""
    source: Annotated[str, about("Only from this source.")] = ""
    sender: Annotated[str, about("Only from this sender: the id or the name.")] = ""
    since: Annotated[str, about("Only what was received at this time or later, as ISO 8601.")] = ""
    until: Annotated[str, about("Only what was received before this time, as ISO 8601.")] = ""
    ledger: Annotated[bool, about("Include each message's ledger and replies.", flag="--with-ledger")] = False


class Retention(Arguments):
    """Show how long messages are kept, and what is over the limits."""


class RetentionRun(Arguments):
    """Do one round of retention; ask again until nothing is left to do."""


async def _export(context: CallContext, a: Export) -> object:
    context.caller.require_owner("export messages")
    chosen = ExportFilter(
        mailbox=a.mailbox,
        channel=a.channel,
        source=a.source,
        sender=a.sender,
        since=_moment("since", a.since),
        until=_moment("until", a.until),
    )
    page = await context.retention.export(chosen, a.after, a.limit, has_ledger=a.ledger)
    return {"messages": [_kept(each) for each in page]}


def _kept(each: ExportedMessage) -> dict[str, object]:
    record = shapes.message(each.message, each.seen_by)
    if each.ledger is None or each.replies is None:
        return record
    return {**record, "ledger": list(map(shapes.entry, each.ledger)), "replies": list(map(shapes.reply, each.replies))}


def _moment(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise UserError(f"{name} is not a time: {text[:40]!r}.", "Write it like 2026-01-05T09:00:00Z.") from exc
    if found.tzinfo is None:
        raise UserError(f"{name} has no time zone: {text[:40]!r}.", "End it with Z or +01:00.")
    return found


async def _retention(context: CallContext, _a: Retention) -> object:
    limits = context.retention.limits
    return {
        "max_messages": limits.max_count,
        "max_age_seconds": limits.max_age_seconds,
        "expired_stays_seconds": limits.expired_stays_seconds,
        "mailboxes": [
            {
                "mailbox": each.mailbox,
                "stored": each.stored,
                "over": each.over,
                "to_expire": each.to_expire,
                "to_delete": each.to_delete,
            }
            for each in await context.retention.excess()
        ],
    }


async def _retention_run(context: CallContext, _a: RetentionRun) -> object:
    done = await context.retention.prune(context.caller)
    return {"expired": done.expired, "deleted": done.deleted}


RETENTION_VERBS: Final = (
    Verb("export", Export, _export),
    Verb("retention", Retention, _retention),
    Verb("retention_run", RetentionRun, _retention_run),
)
