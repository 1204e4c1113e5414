"""Building a database from the journal: each line does again what its event did, in the order of the numbers.

Lines come from files that people may have touched: one that cannot be understood, or is about what is not there, is
counted and left out, and never ends the work. What a line does not tell is not made up. It changes a file that no
daemon has open. What is left of a damaged database is read by `recovery`; what must not be done again is held back by
`snapshot`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from harken.automation import ActionState, Mode, Outcome
from harken.errors import NotFound
from harken.model import (
    WATCH,
    Approval,
    ApprovalChoice,
    ApprovalId,
    ApprovalRequest,
    ApprovalState,
    Attention,
    Consumer,
    Mailbox,
    Message,
    MessageId,
    MessageKind,
    NewMessage,
    Priority,
    Schedule,
    Sender,
    TaskId,
    Trust,
    fresh_id,
)
from harken.store.contract.automation import CONFIRM_EXPIRES
from harken.store.contract.events import RECOVERY
from harken.store.journal import JournalLine, number_of
from harken.store.sql import (
    approvals,
    conversations,
    enrollment,
    messages,
    offers,
    outbox,
    people,
    questions,
    retention,
    rules,
    tasks,
    transaction,
)
from harken.store.sql.transaction import Transaction, encode_json, to_micros
from harken.store.sqlite.connection import connect, translated

INSERT_EVENT: Final = "INSERT INTO events (n, at, kind, message, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
PLACE: Final = "SELECT mailbox, seq FROM messages WHERE id = ?"
TAKEN: Final = "SELECT 1 FROM messages WHERE id = ? OR (mailbox = ? AND seq = ?)"
OFFERED: Final = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until) VALUES (?, ?, ?, ?, ?, 'offered', ?, ?, '', 1, ?, 0)
ON CONFLICT (consumer, mailbox, seq) DO UPDATE SET offers = offers + 1, surface = excluded.surface,
    session = excluded.session, offered_at = excluded.offered_at WHERE state = 'offered'
"""
SEEN: Final = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, seen_at, evidence) VALUES (?, ?, ?, ?, ?, 'seen', ?, '', '', 1, ?, 0, ?, ?)
ON CONFLICT (consumer, mailbox, seq) DO UPDATE SET state = 'seen', seen_at = excluded.seen_at,
    evidence = excluded.evidence WHERE state = 'offered'
"""
WITHDRAWN: Final = "DELETE FROM deliveries WHERE message = ? AND session = ? AND state = 'offered' AND offers = 1"
ANSWERED: Final = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, seen_at, evidence, answered_at)
VALUES (?, ?, ?, ?, ?, 'answered', 'reply', '', '', 1, ?, 0, ?, 'reply', ?)
ON CONFLICT (consumer, mailbox, seq) DO UPDATE SET state = 'answered', answered_at = excluded.answered_at,
    evidence = iif(seen_at IS NULL, 'reply', evidence), seen_at = coalesce(seen_at, excluded.seen_at)
"""
REPLY: Final = """
INSERT OR IGNORE INTO outbox (id, message, body, author, state, attempts, created_at, due_at)
VALUES (?, ?, ?, ?, 'queued', 0, ?, ?)
"""
REPLY_PARKED: Final = "UPDATE outbox SET state = 'parked', error = ? WHERE id = ? AND state <> 'sent'"
REPLY_RETRIED: Final = "UPDATE outbox SET state = 'queued', error = '' WHERE id = ? AND state = 'parked'"
TEXTLESS: Final = "SELECT count(*) FROM outbox WHERE state <> 'sent' AND body = ''"
FORGET_TEXTLESS: Final = "DELETE FROM outbox WHERE state <> 'sent' AND body = ''"
FORGET_RANGE: Final = "SELECT id FROM messages WHERE mailbox = ? AND seq BETWEEN ? AND ?"
FORGET: Final = (
    *("DELETE FROM messages WHERE id = ?", "DELETE FROM deliveries WHERE message = ?"),
    *("DELETE FROM outbox WHERE message = ?", "DELETE FROM questions WHERE message = ?"),
)
ACTION: Final = """
INSERT INTO actions (id, rule, mode, message, state, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""
ACTION_STATE: Final = "UPDATE actions SET state = ?, decided_by = ?, decided_at = ?, reason = ? WHERE id = ?"
ACTION_STARTED: Final = "UPDATE actions SET state = 'started', run = ? WHERE id = ?"
RUN: Final = """
INSERT INTO runs (id, action, rule, message, agent, workdir, tools, state, started_at, pid, leftover, turns, denied,
    answer, reason, ancestry) VALUES (?, ?, ?, ?, ?, '', '[]', 'running', ?, 0, '[]', 0, '[]', '', '', ?)
ON CONFLICT (id) DO NOTHING
"""
RUN_END: Final = """
UPDATE runs SET state = ?, ended_at = ?, exit_code = ?, turns = ?, denied = ?, reason = ? WHERE id = ?
"""
VERDICT: Final = """
INSERT OR IGNORE INTO verdicts (message, rule, place, mode, outcome, reason, earlier, digest, action, at)
VALUES (?, ?, (SELECT count(*) FROM verdicts WHERE message = ?), ?, ?, ?, ?, ?, ?, ?)
"""
PAUSED: Final = "UPDATE rule_state SET revision = revision + 1, is_paused = ?"
HEADS: Final = (
    "UPDATE mailboxes SET head = max(head, (SELECT coalesce(max(seq), 0) FROM messages WHERE mailbox = name))"
)
CURSORS: Final = """
SELECT c.consumer, c.mailbox, b.head FROM cursors c JOIN mailboxes b ON b.name = c.mailbox WHERE c.seq < b.head
"""
THERE: Final = """
SELECT seq FROM messages WHERE mailbox = :mailbox AND seq > :cursor
UNION SELECT seq FROM deliveries WHERE consumer = :consumer AND mailbox = :mailbox AND seq > :cursor
"""
LOST: Final = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, reason) VALUES (?, ?, ?, ?, '', 'expired', '', '', '', 0, 0, 0, 'lost with the database')
"""
SET_IDENTITY: Final = "UPDATE identity SET id = ?, epoch = ?, moved_to = ''"
COUNT: Final = "SELECT count(*) FROM messages"
ABSENT: Final = "SELECT (SELECT coalesce(sum(head), 0) FROM mailboxes) - (SELECT count(*) FROM messages)"
_STATES: Final[Mapping[Mode, ActionState]] = {
    Mode.NOTIFY: ActionState.TOLD,
    Mode.CONFIRM: ActionState.WAITING,
    Mode.AUTO: ActionState.QUEUED,
}
_NOT_OURS: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, msgspec.ValidationError)


@dataclass(slots=True)
class RebuildReport:
    """What was done again, and what could not be."""

    lines: int = 0
    messages: int = 0  # that are there now
    missing_lines: int = 0  # numbers without a line
    strange_lines: int = 0  # cannot be understood, or are about what is not there
    nameless_messages: int = 0  # received, and their line does not hold them
    lost_messages: int = 0  # numbers of mailboxes without a message, and no retention took it
    replies_without_text: int = 0  # not sent, and not to be sent any more
    tasks_without_folder: int = 0
    earlier_lines: int = 0  # of versions that wrote less
    has_rules_to_reload: bool = False  # some were in force, and which is not known


class Rebuild:
    """An open database that lines are applied to. Use it inside `with`; it commits when that ends well."""

    def __init__(self, database: Path) -> None:
        self._connection = connect(f"{database}")
        self.report = RebuildReport()
        self._absent = 0  # numbers of mailboxes without a message that are accounted for

    def __enter__(self) -> Self:
        with translated():
            # Nothing of it is of use before it is complete: it is synced as a whole then.
            self._connection.execute("PRAGMA synchronous = OFF")
            self._connection.execute("BEGIN IMMEDIATE")
            self._absent = self._count_absent()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with closing(self._connection), translated():
            self._connection.execute("COMMIT" if kind is None else "ROLLBACK")

    @property
    def connection(self) -> sqlite3.Connection:
        """The open database, for what is salvaged."""
        return self._connection

    def replay(self, lines: Iterable[JournalLine], after: int) -> None:
        """Do again what lines tell, the first of them with the number that follows `after`."""
        newest = after
        for line in lines:
            number = number_of(line)
            self.report.missing_lines += max(0, number - newest - 1)
            newest = max(newest, number)
            self.report.lines += 1
            self.report.earlier_lines += "store" not in line
            with translated():
                self._connection.execute("SAVEPOINT line")
                try:
                    self._apply(line)
                except (*_NOT_OURS, NotFound, sqlite3.IntegrityError):
                    self._connection.execute("ROLLBACK TO line")
                    self.report.strange_lines += 1
                self._connection.execute("RELEASE line")
                self._keep(line)

    def finish(self, store_id: str, epoch: int) -> None:
        """Let the database be consistent in itself: heads, cursors, and who it is."""
        with translated():
            self._connection.execute(HEADS)
            self.report.replies_without_text = int(self._connection.execute(TEXTLESS).fetchone()[0])
            self._connection.execute(FORGET_TEXTLESS)
            self.report.lost_messages = max(0, self._count_absent() - self._absent)
            self._close_gaps()
            self._connection.execute(SET_IDENTITY, (store_id, epoch))
            conversations.fill(Transaction(self._connection, datetime.now(UTC)))
            self.report.has_rules_to_reload = self._connection.execute(rules.TEXT).fetchone()[0] == ""
            self.report.messages = int(self._connection.execute(COUNT).fetchone()[0])

    def _close_gaps(self) -> None:
        """Let numbers without a message be over for everyone: what is unread is counted by numbers."""
        now = Transaction(self._connection, datetime.now(UTC))
        for consumer, mailbox, head in self._connection.execute(CURSORS).fetchall():
            offers.advance(now, consumer, mailbox)
            start = offers.cursor_of(self._connection, consumer, mailbox)
            named = {"consumer": consumer, "mailbox": mailbox, "cursor": start}
            there = {int(row[0]) for row in self._connection.execute(THERE, named)}
            for seq in range(start + 1, head + 1):
                if seq not in there:
                    self._connection.execute(LOST, (consumer, mailbox, seq, fresh_id("d-")))
            offers.advance(now, consumer, mailbox)

    def _count_absent(self) -> int:
        return int(self._connection.execute(ABSENT).fetchone()[0])

    def _keep(self, line: JournalLine) -> None:
        """Keep the event itself, so that the numbers go on above it."""
        try:
            at, kind = to_micros(_moment(line["at"])), str(line["kind"])
        except _NOT_OURS:
            at, kind = 0, "unknown"
        record = line.get("message")
        message = record.get("id") if isinstance(record, dict) else None
        dropped = {"n", "at", "kind", "message", "store"}
        data = {name: value for name, value in line.items() if name not in dropped}
        self._connection.execute(INSERT_EVENT, (number_of(line), at, kind, message, encode_json(data)))

    def _apply(self, line: JournalLine) -> None:
        tx = Transaction(self._connection, _moment(line["at"]))
        said: Mapping[str, Any] = line
        match line["kind"]:
            case "received":
                self._received(tx, said)
            case "offered" | "seen" | "withdrawn" | "expired" | "refused" | "consumer":
                _deliver(tx, said)
            case "answered" | "replied" | "parked" | "retried":
                _reply(tx, said)
            case "access" | "muted" | "unmuted" | "put_away" | "cleared":
                _decide(tx, said)
            case "task":
                self._task(tx, said)
            case "settled" | "triage" | "sorted":
                _sort(tx, said)
            case "judged" | "action" | "run" | "paused" | "resumed" | "rules":
                _react(tx, said)
            case "approval" | "scheduled" as kind:
                (_approve if kind == "approval" else _schedule)(tx, said)
            case "pruned":
                self._absent += _prune(tx, said)
            case _:
                pass

    def _received(self, tx: Transaction, said: Mapping[str, Any]) -> None:
        record, needed = said.get("message"), said.get(RECOVERY, {})
        if not record:
            self.report.nameless_messages += 1
            return
        message = message_of(record, needed.get("upstream_id", ""))
        if tx.execute(TAKEN, (message.id, message.mailbox, message.seq)).fetchone() is None:
            store_message(tx, message)
        tx.execute(messages.SCHEDULED_FORGET, (message.id,))
        if "key" in needed:
            tx.execute(messages.ADD_KEYS[1], (bytes.fromhex(needed["key"]), message.id))
        if "checkpoint" in needed:
            source, feed, value = map(str, needed["checkpoint"])
            tx.execute(messages.SAVE_CHECKPOINT, (source, feed, value))
        if "author" in needed:
            offers.own(tx, Consumer(needed["author"]), message)
        if needed.get("is_question"):
            asked = (message.id, message.mailbox, message.source, message.conversation, message.sender.id)
            tx.execute(questions.ASK, (*asked, tx.now_micros, tx.now_micros))

    def _task(self, tx: Transaction, said: Mapping[str, Any]) -> None:
        task = TaskId(said["task"])
        match said["change"]:
            case "created" if RECOVERY in said:
                had = said[RECOVERY]
                row = (had["dir"], had["repo"], had["branch"], had["agent"], bool(had["has_worktree"]))
                tx.execute(tasks.INSERT, (task, said["title"], *row, tx.now_micros, tx.holder.machine))
                for peer in said["peers"]:
                    tx.execute(tasks.LINK, tasks.pair(task, TaskId(peer)))
            case "created":
                self.report.tasks_without_folder += 1
            case "linked" | "unlinked" as change:
                tx.execute(tasks.LINK if change == "linked" else tasks.UNLINK, tasks.pair(task, TaskId(said["other"])))
            case "started":
                tx.execute(tasks.START, (tx.now_micros, task))
            case "done":
                tx.execute(tasks.FINISH, (tx.now_micros, task))
            case "removed":
                tx.execute(tasks.REMOVE, (tx.now_micros, task))
                tx.execute(tasks.UNLINK_ALL, (task, task))
            case _:
                pass


def store_message(tx: Transaction, message: Message) -> None:
    """Store a message in its place, and let its mailbox reach so far."""
    head = tx.execute(transaction.HEAD, (message.mailbox,)).fetchone()
    if head is None:
        tx.execute(transaction.NEW_CURSOR, (WATCH, message.mailbox))
    tx.execute(transaction.SET_HEAD, (message.mailbox, max(message.seq, head[0] if head else 0)))
    tx.execute(transaction.INSERT[1], transaction.row_of(message, to_micros(message.received_at)))


def message_of(record: Mapping[str, Any], upstream_id: str) -> Message:
    """Return the message that a record in the journal tells of."""
    name = record["from"] if record["from"] != record["sender_id"] else ""
    return Message(
        id=MessageId(_text(record["id"])),
        mailbox=Mailbox(_text(record["mailbox"])),
        seq=int(record["seq"]),
        received_at=_moment(record["received_at"]),
        source=_text(record["source"]),
        sender=Sender(_text(record["sender_id"]), _text(name)),
        text=_text(record["content_text_sanitized"]),
        trust=Trust(record["trust"]),
        attention=Attention(record["attention"]),
        channel=_text(record["channel"]),
        conversation=_text(record["chat_id"]),
        thread=_text(record["thread"]),
        kind=MessageKind(record["kind"]),
        priority=Priority(record["priority"]),
        upstream_id=_text(upstream_id),
        sent_at=_moment(record["ts"]) if record["ts"] != record["received_at"] else None,
        refers_to=None if record["refers_to"] is None else MessageId(_text(record["refers_to"])),
        meta=msgspec.convert(record["meta"], dict[str, str]),
    )


def _decide(tx: Transaction, said: Mapping[str, Any]) -> None:
    match said["kind"]:
        case "access" if said["trust"] is None:
            tx.execute(people.FORGET_SENDER, (said["source"], said["sender"]))
        case "access":
            tx.execute(people.SET_SENDER, (said["source"], said["sender"], Trust(said["trust"]).value))
        case "muted":
            until = None if said["until"] is None else to_micros(_moment(said["until"]))
            tx.execute(people.SET_MUTE, (said["what"], said["name"], until))
        case "put_away":
            for key in map(_text, said["keys"]):
                tx.execute(*((people.PUT_AWAY, (key, tx.now_micros)) if said["is_on"] else (people.TAKE_BACK, (key,))))
        case "cleared":
            tx.execute(people.CLEAR, (said["message_id"],))
        case _:
            tx.execute(people.END_MUTE, (said["what"], said["name"]))


def _sort(tx: Transaction, said: Mapping[str, Any]) -> None:
    if said["kind"] == "settled":
        tx.execute(questions.SETTLE, (said["message_id"],))
        return
    if said["kind"] == "sorted":
        conversations.sort_seen(tx)
        return
    until = None if said["until"] is None else _moment(said["until"])
    conversations.replay(tx, said["message_id"], said["state"], until)


def _deliver(tx: Transaction, said: Mapping[str, Any]) -> None:
    kind = said["kind"]
    if kind == "consumer":
        _enroll(tx, said)
        return
    if kind == "withdrawn":
        for message in said["messages"]:
            tx.execute(WITHDRAWN, (message, said["session"]))
        return
    consumer, touched = said["consumer"], set[str]()
    pairs = said["deliveries"].items() if "deliveries" in said else ((None, message) for message in said["ids"])
    for delivery, message in pairs:
        mailbox, seq = _place(tx, message)
        place = (consumer, mailbox, seq)
        tx.execute(transaction.NEW_CURSOR, (consumer, mailbox))
        if kind == "offered":
            tx.execute(OFFERED, (*place, delivery, message, said["surface"], said["session"], tx.now_micros))
        elif kind == "seen":
            evidence = said["evidence"]
            tx.execute(SEEN, (*place, delivery, message, evidence, tx.now_micros, tx.now_micros, evidence))
        elif kind == "expired":
            tx.execute(retention.EXPIRE, (*place, message, tx.now_micros, retention.REASON))
        else:
            tx.execute(tasks.REFUSE, (*place, message, tx.now_micros, said["reason"]))
        touched.add(mailbox)
    for mailbox in touched if kind != "offered" else ():
        offers.advance(tx, consumer, mailbox)


def _enroll(tx: Transaction, said: Mapping[str, Any]) -> None:
    consumer, mailbox, start = said["consumer"], said["mailbox"], int(said["begins_after"])
    left_out = said.get("left_out") or {}
    if tx.execute(offers.CURSOR, (consumer, mailbox)).fetchone() is not None:
        return
    counted = (left_out.get("older"), left_out.get("surplus"), left_out.get("up_to"))
    tx.execute(enrollment.BEGIN, (consumer, mailbox, start, *counted))
    named = {"consumer": consumer, "mailbox": mailbox, "cursor": start, "now": tx.now_micros}
    tx.connection.execute(enrollment.SEEN_ELSEWHERE, named)
    offers.advance(tx, consumer, mailbox)


def _reply(tx: Transaction, said: Mapping[str, Any]) -> None:
    reply = said["reply"]
    match said["kind"]:
        case "answered":
            consumer, message = said["consumer"], said["message_id"]
            mailbox, seq = _place(tx, message)
            text = said.get(RECOVERY, {}).get("text", "")
            tx.execute(REPLY, (reply, message, text, said["author"], tx.now_micros, tx.now_micros))
            is_reader = consumer != "rules"
            if is_reader:
                tx.execute(transaction.NEW_CURSOR, (consumer, mailbox))
            answered = (consumer, mailbox, seq, said["delivery"], message)
            tx.execute(ANSWERED, (*answered, tx.now_micros, tx.now_micros, tx.now_micros))
            if is_reader:
                offers.advance(tx, consumer, mailbox)
        case "replied":
            tx.execute(outbox.SENT, (said["upstream_id"], reply))
        case "parked":
            tx.execute(REPLY_PARKED, (said["error"], reply))
        case _:
            tx.execute(REPLY_RETRIED, (reply,))


def _react(tx: Transaction, said: Mapping[str, Any]) -> None:
    match said["kind"]:
        case "judged":
            _judge(tx, said)
        case "action":
            _make_action(tx, said, ActionState(said["state"]))
            decided_at = tx.now_micros if said["by"] else None
            row = (ActionState(said["state"]).value, said["by"], decided_at, said["reason"], said["action"])
            tx.execute(ACTION_STATE, row)
        case "run":
            ancestry = encode_json([said["rule"]])
            row = (said["run"], said["action"], said["rule"], said["message_id"], said["agent"])
            tx.execute(RUN, (*row, tx.now_micros, ancestry))
            tx.execute(ACTION_STARTED, (said["run"], said["action"]))
            if said["state"] != "running":
                how = (said["state"], tx.now_micros, said["exit_code"], said["turns"], encode_json(said["denied"]))
                tx.execute(RUN_END, (*how, said["reason"], said["run"]))
        case "rules":
            # There were some. Which ones a person says again: whoever may write the file must not decide it.
            tx.execute(rules.KEEP_TEXT, ("",))
        case kind:
            tx.execute(PAUSED, (kind == "paused",))


def _approve(tx: Transaction, said: Mapping[str, Any]) -> None:
    approval, at, change = ApprovalId(_text(said["approval"])), tx.now, said["change"]
    if change == "asked":
        needed = said[RECOVERY]
        request = msgspec.convert(needed["request"], ApprovalRequest)
        found = Approval(id=approval, request=request, asked_at=at, expires_at=_moment(needed["expires_at"]))
        approvals.insert(tx, found)
        return
    found = approvals.find_exactly(tx.connection, approval)
    if change == "shown":
        found = replace(found, shown=(*found.shown, _text(said["surface"])))
    elif change == "answered":
        choice, by = ApprovalChoice(said["choice"]), _text(said["by"])
        answer = {"choice": choice, "answered_by": by, "through": _text(said["through"]), "reason": said["reason"]}
        found = replace(found, state=ApprovalState.ANSWERED, answered_at=at, **answer)
    else:
        found = replace(found, state=ApprovalState(change), ended_at=at, because=_text(said["because"]))
    approvals.update(tx, found)


def _schedule(tx: Transaction, said: Mapping[str, Any]) -> None:
    message = MessageId(_text(said["message_id"]))
    if said["change"] == "withdrawn":
        tx.execute(messages.SCHEDULED_WITHDRAW, (_text(said["by"]), tx.now_micros, message))
        return
    needed = said[RECOVERY]
    new = msgspec.convert(needed["message"], NewMessage)
    messages.insert_scheduled(tx, message, new, msgspec.convert(needed["schedule"], Schedule))
    if new.dedup_key is not None:
        tx.execute(messages.ADD_KEYS[1], (new.dedup_key, message))


def _judge(tx: Transaction, said: Mapping[str, Any]) -> None:
    message, rule, outcome = said["message_id"], said["rule"], Outcome(said["outcome"])
    digest = bytes.fromhex(said.get(RECOVERY, {}).get("digest", ""))
    row = (message, rule, message, Mode(said["mode"]).value, outcome.value, said["reason"], said["earlier"], digest)
    if not tx.execute(VERDICT, (*row, said["action"], tx.now_micros)).rowcount:
        return
    found = tx.execute(rules.RECEIVED_AT, (message,)).fetchone()
    received_at = int(found[0]) if found else tx.now_micros
    tx.execute(rules.COUNT, (rule, outcome.value, received_at))
    if outcome is Outcome.FIRED:
        for each in {b"", digest}:
            tx.execute(rules.BEGIN_WINDOW, (rule, each, message, received_at))
        _make_action(tx, said, _STATES[Mode(said["mode"])])


def _make_action(tx: Transaction, said: Mapping[str, Any], state: ActionState) -> None:
    expires_at = to_micros(tx.now + CONFIRM_EXPIRES) if state is ActionState.WAITING else None
    row = (said["action"], said["rule"], Mode(said["mode"]).value, said["message_id"], state.value)
    tx.execute(ACTION, (*row, tx.now_micros, expires_at))


def _prune(tx: Transaction, said: Mapping[str, Any]) -> int:
    """Remove what retention removed; return how many numbers that were."""
    count = 0
    conversations.fill(tx)  # as retention does: a conversation that goes on keeps what was done about it
    for mailbox, ranges in said.get("ranges", {}).items():
        for first, last in ranges:
            count += last - first + 1
            for (message,) in tx.execute(FORGET_RANGE, (mailbox, first, last)).fetchall():
                for statement in FORGET:
                    tx.execute(statement, (message,))
    return count


def _place(tx: Transaction, message: object) -> tuple[str, int]:
    """Return where a message is; raises `TypeError` when it is nowhere."""
    mailbox, seq = tx.execute(PLACE, (message,)).fetchone()
    return mailbox, seq


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(_text(text))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
