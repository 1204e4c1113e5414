"""Reading what is left of a damaged database, table by table, and adding what the journal does not have.

SQLite's own recovery is in a shell that few systems have whole, and not in Python. So each table is read from both ends
up to the damage, and then number by number in between. Only a copy is opened. What is found is looked at again before
it is taken: a row that could not be shown would break the lists that it is in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from harken.errors import HarkenError
from harken.model import record
from harken.store.journal_reader import JournalLine
from harken.store.sqlite.connection import connect, prepare_file
from harken.store.sqlite.events import after
from harken.store.sqlite.message_rows import BY_ID, COLUMNS, from_row
from harken.store.sqlite.rebuild import TAKEN, store_message
from harken.store.sqlite.transaction import Transaction

MOST_PROBES: Final = 200_000
NUMBERED: Final[Mapping[str, str]] = {
    "messages": "n",
    "outbox": "n",
    "tasks": "n",
    "actions": "n",
    "runs": "n",
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
    "task_links": "task, other",
    "questions": "message",
    "verdicts": "message, rule",
    "rule_windows": "rule, digest",
    "rule_counts": "rule, outcome",
    "rule_state": "one",
}
ADDED: Final = (
    *("dedup", "checkpoints", "cursors", "senders", "mutes", "task_links", "rule_windows", "rule_counts"),
    *("tasks", "actions", "runs"),
)
OF_MESSAGES: Final = ("deliveries", "outbox", "questions", "verdicts")
_NUMBERS: Final = frozenset(NUMBERED.items())
TRIGGERS: Final = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
KEEP_RULES: Final = "UPDATE rule_state SET text = coalesce(nullif(text, ''), ?, text)"
MESSAGES: Final = f"SELECT {COLUMNS} FROM messages m WHERE m.n < ?1 OR ?1 IS NULL ORDER BY m.n"
PLACE: Final = "SELECT n FROM messages WHERE id = ?"


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
        between = range(first[place] + 1, min(last[place], first[place] + MOST_PROBES))
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
