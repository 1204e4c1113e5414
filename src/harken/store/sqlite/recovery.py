"""Recovering a store: what is wrong with the one in a home, and a new database from what is left and the journal.

It reads the files of a home, copies first what it opens, and writes into a folder of its own. Moving the result into
its place, and asking before, is the command's business. SQLite's own recovery is in a shell that few systems have
whole, and not in Python: so each table of a damaged database is read from both ends up to the damage, and then number
by number in between. What is found is looked at again before it is taken: a row that could not be shown would break the
lists that it is in.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from harken.errors import HarkenError, UserError
from harken.model import record
from harken.store.contract.health import StoreIdentity
from harken.store.identity import StoreTraces, refusal
from harken.store.journal import JournalLine, lines_after, number_of
from harken.store.sql import conversations, offers, people
from harken.store.sql.events import after, identity_of
from harken.store.sql.transaction import BY_ID, COLUMNS, Transaction, from_row
from harken.store.sqlite.connection import connect, log_of, migrations, prepare_file, refuse_damaged, translated
from harken.store.sqlite.rebuild import TAKEN, Rebuild, RebuildReport, store_message
from harken.store.sqlite.snapshot import LOST, HeldWork, hold, last_event, look, take

COPY: Final = "copy.db"
SALVAGED: Final = "salvaged.db"
NEW: Final = "harken.db"


class Condition(Enum):
    """What is wrong with the database of a home."""

    WHOLE = "whole"
    MISSING = "missing"
    DAMAGED = "damaged"
    OLDER = "older than the journal"
    FOREIGN = "of another home, or from before a restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """What is to be done; `identity` is that of the new database, its epoch included."""

    condition: Condition
    traces: StoreTraces
    identity: StoreIdentity | None
    first_line: int  # of the journal
    last_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """What came of it."""

    identity: StoreIdentity
    report: RebuildReport
    salvaged_rows: int
    salvaged_messages: int  # that the journal did not have
    held: HeldWork


def survey(database: Path, journal: Path, identity_file: Path, work: Path) -> RecoveryPlan:
    """Find out what is wrong. `work` is an empty private folder with room for the database."""
    condition = _condition_of_file(database, work)
    if condition is Condition.DAMAGED:
        missing = work / "none.db"
        found = look(missing, journal, identity_file)
    else:
        found = look(work / COPY if database.exists() else database, journal, identity_file)
    if condition is Condition.WHOLE:
        condition = _condition_of_contents(found)
    line = next(lines_after(journal, 0), None)
    return RecoveryPlan(
        condition=condition,
        traces=found,
        identity=_next_identity(found, is_used=condition is not Condition.FOREIGN),
        first_line=0 if line is None else number_of(line),
        last_line=found.journal_end,
    )


def recover(plan: RecoveryPlan, journal: Path, work: Path) -> RecoveryResult:
    """Build the new database in the folder that was surveyed in, under the name `NEW`."""
    new = work / NEW
    rows, added = 0, 0
    if plan.condition in {Condition.OLDER, Condition.WHOLE}:
        take(work / COPY, new)
        prepare_file(new)
        start = last_event(new)
    else:
        prepare_file(new)
        start = max(0, plan.first_line - 1) if plan.condition is Condition.DAMAGED else 0
    with translated(), Rebuild(new) as rebuild:
        if plan.condition is Condition.DAMAGED:
            rows = salvage(work / COPY, work / SALVAGED)
            first = first_in_both(work / SALVAGED, lines_after(journal, start))
            added = add_messages(rebuild.connection, work / SALVAGED, before=first)
        rebuild.replay(lines_after(journal, start), start)
        if plan.condition is Condition.DAMAGED:
            rebuild.replay(events_after(work / SALVAGED, plan.last_line), plan.last_line)
            added += add_messages(rebuild.connection, work / SALVAGED)
            add_rest(rebuild.connection, work / SALVAGED)
        own = plan.identity or StoreIdentity(identity_of(rebuild.connection).id, 1)
        rebuild.finish(own.id, own.epoch)
        tx = Transaction(rebuild.connection, datetime.now(UTC))
        tx.note("recovered", {"events_lost": rebuild.report.missing_lines})
    held = hold(new, LOST)
    with new.open("rb") as built:
        os.fsync(built.fileno())
    return RecoveryResult(identity=own, report=rebuild.report, salvaged_rows=rows, salvaged_messages=added, held=held)


def _condition_of_file(database: Path, work: Path) -> Condition:
    """Look at a copy whether the file is whole: opening a damaged one could make it worse."""
    if not database.exists():
        return Condition.MISSING
    copy = work / COPY
    for source, target in ((database, copy), (log_of(database), log_of(copy))):
        if source.exists():
            shutil.copyfile(source, target)
    newest = migrations()[-1][0]
    try:
        refuse_damaged(copy)
        with closing(connect(f"{copy}")) as connection:
            schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
            said = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
    except (UserError, sqlite3.DatabaseError):
        return Condition.DAMAGED
    if schema > newest:
        raise UserError(
            f"The database has schema {schema}, this Harken supports {newest}.",
            "Install the newer Harken again: it is not damaged.",
        )
    return Condition.WHOLE if said == ["ok"] and schema else Condition.DAMAGED


def _condition_of_contents(found: StoreTraces) -> Condition:
    if refusal(found) is None:
        return Condition.WHOLE
    known = [each for each in (found.home, found.journal) if each is not None]
    is_own = all(found.database is not None and found.database == each for each in known)
    return Condition.OLDER if is_own else Condition.FOREIGN


def _next_identity(found: StoreTraces, *, is_used: bool) -> StoreIdentity | None:
    known = [each for each in (found.journal, found.home, found.database if is_used else None) if each is not None]
    if not known:
        return None
    own = known[0].id
    return StoreIdentity(own, 1 + max(each.epoch for each in known if each.id == own))


MAX_PROBES: Final = 200_000
NUMBERED: Final[Mapping[str, str]] = {
    "messages": "n",
    "outbox": "n",
    "tasks": "n",
    "actions": "n",
    "runs": "n",
    "approvals": "n",
    "scheduled": "n",
    "events": "n",
}
KEYED: Final[Mapping[str, str]] = {
    "mailboxes": "name",
    "dedup": "key",
    "checkpoints": "source, feed",
    "cursors": "consumer, mailbox",
    "deliveries": "consumer, mailbox, seq",
    "senders": "source, sender",
    "mutes": "kind, name",
    "put_away": "key",
    "task_links": "task, other",
    "questions": "message",
    "conversations": "source, thread",
    "channels": "source, channel",
    "verdicts": "message, rule",
    "rule_windows": "rule, digest",
    "rule_counts": "rule, outcome",
    "rule_state": "one",
}
ADDED: Final = (
    *("dedup", "checkpoints", "cursors", "senders", "mutes", "task_links", "rule_windows", "rule_counts"),
    *("tasks", "actions", "runs", "approvals", "put_away", "scheduled"),
)
OF_MESSAGES: Final = ("deliveries", "outbox", "questions", "verdicts")
_NUMBERS: Final = frozenset(NUMBERED.items())
TRIGGERS: Final = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
KEEP_RULES: Final = "UPDATE rule_state SET text = coalesce(nullif(text, ''), ?, text)"
MESSAGES: Final = f"SELECT {COLUMNS} FROM messages m WHERE m.n < ?1 OR ?1 IS NULL ORDER BY m.n"
PLACE: Final = "SELECT n FROM messages WHERE id = ?"
OWN: Final = "SELECT consumer FROM deliveries WHERE message = ? AND surface = 'own'"
TRIAGED: Final = """
SELECT c.triage, c.until, c.is_marked, c.source, c.thread, m.id FROM conversations c LEFT JOIN messages m
    ON m.n = c.through_n WHERE c.triage <> '' OR c.is_marked
"""
# What the journal tells comes before it.
TRIAGE: Final = """
UPDATE conversations SET triage = ?1, until = ?2, is_marked = ?3, through_n = coalesce((
    SELECT n FROM messages WHERE id = ?6), 0) WHERE source = ?4 AND thread = ?5 AND triage = ''
"""
CLEARED: Final = """
SELECT m.id FROM channels c JOIN messages m ON m.n = (
    SELECT max(t.n) FROM messages t WHERE t.source = c.source AND t.channel = c.channel AND t.n <= c.cleared_n)
"""


def salvage(damaged: Path, target: Path) -> int:
    """Read what can be read of a copy into a new database; return how many rows that were."""
    prepare_file(target)
    count = 0
    with closing(connect(f"{target}")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for (trigger,) in connection.execute(TRIGGERS).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        for table, key in {**NUMBERED, **KEYED}.items():
            with suppress(sqlite3.Error), closing(_open(damaged)) as source:
                count += _copy_table(source, connection, table, key)
    return count


def events_after(salvaged: Path, number: int) -> Iterator[JournalLine]:
    """Yield what the journal had not got yet, as its lines would be."""
    with closing(connect(f"{salvaged}")) as connection:
        while found := after(connection, number, 500):
            for event in found:
                told = {"message": record(event.message)} if event.message is not None else {}
                at = event.at.isoformat()
                yield {"n": event.n, "at": at, "kind": event.kind, "store": "", **event.data, **told}
            number = found[-1].n


def first_in_both(salvaged: Path, lines: Iterable[JournalLine]) -> int | None:
    """Return the place, in the order of the database, of the first message that these lines tell of and it has."""
    with closing(connect(f"{salvaged}")) as connection:
        for line in lines:
            message = line.get("message")
            if isinstance(message, Mapping):
                row = connection.execute(PLACE, (message.get("id"),)).fetchone()
                if row is not None:
                    return int(row[0])
    return None


def add_messages(connection: sqlite3.Connection, salvaged: Path, *, before: int | None = None) -> int:
    """Add messages that are not there, only those before a place in the order if it is given; return how many."""
    count = 0
    with closing(connect(f"{salvaged}")) as source:
        for row in source.execute(MESSAGES, (before,)):
            try:
                message = from_row(row)
            except (TypeError, ValueError, HarkenError, OverflowError):
                continue
            tx = Transaction(connection, message.received_at)
            if tx.execute(TAKEN, (message.id, message.mailbox, message.seq)).fetchone() is None:
                store_message(tx, message)
                for (author,) in source.execute(OWN, (message.id,)):
                    # Whose word it is is asked for as soon as it is put into its conversation.
                    offers.own(tx, author, message)
                count += 1
    return count


def add_rest(connection: sqlite3.Connection, salvaged: Path) -> None:
    """Add what else is not there, of messages that are."""
    with closing(connect(f"{salvaged}")) as source:
        for table in (*ADDED, *OF_MESSAGES):
            columns = [name for name in _columns(source, table) if (table, name) not in _NUMBERS]
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            for row in source.execute(f"SELECT {names} FROM {table}"):
                if table in OF_MESSAGES and not _has(connection, row[columns.index("message")]):
                    continue
                with suppress(sqlite3.IntegrityError):
                    connection.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", row)
        conversations.fill(Transaction(connection, datetime.now(UTC)))
        for row in source.execute(TRIAGED):
            with suppress(sqlite3.IntegrityError):
                connection.execute(TRIAGE, row)
        for row in source.execute(CLEARED):
            connection.execute(people.CLEAR, row)
        [[text]] = source.execute("SELECT text FROM rule_state").fetchall() or [[None]]
        connection.execute(KEEP_RULES, (text,))


def _has(connection: sqlite3.Connection, message: object) -> bool:
    return connection.execute(BY_ID, (message,)).fetchone() is not None


def _open(damaged: Path) -> sqlite3.Connection:
    connection = connect(f"{damaged}")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.text_factory = _text
    return connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]


def _copy_table(source: sqlite3.Connection, target: sqlite3.Connection, table: str, key: str) -> int:
    known = set(_columns(target, table))
    columns = [name for name in _columns(source, table) if name in known]
    if not columns:
        return 0
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    insert = f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})"
    ends: list[Any] = []
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{name} {direction}" for name in key.split(", "))
        ends.append(_read(source, target, f"SELECT {names} FROM {table} ORDER BY {order}", insert))
    (up, first, is_whole), (down, last, _) = ends
    count: int = up if is_whole else up + down
    if not is_whole and table in NUMBERED and first is not None and last is not None:
        place = columns.index(NUMBERED[table])
        between = range(first[place] + 1, min(last[place], first[place] + MAX_PROBES))
        one = f"SELECT {names} FROM {table} WHERE {NUMBERED[table]} = ?"
        for number in between:
            count += _read(source, target, one, insert, (number,))[0]
    return count


def _read(
    source: sqlite3.Connection, target: sqlite3.Connection, select: str, insert: str, values: Sequence[object] = ()
) -> tuple[int, Sequence[Any] | None, bool]:
    """Copy rows up to the damage; return how many, the last of them, and whether there was none."""
    count, last = 0, None
    try:
        for row in source.execute(select, tuple(values)):
            with suppress(sqlite3.IntegrityError):
                target.execute(insert, row)
            count, last = count + 1, row
    except (sqlite3.Error, OverflowError):
        return count, last, False
    return count, last, True
