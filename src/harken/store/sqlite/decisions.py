"""What the person decided and a copy of the store still holds: whom they admitted, and the rules in force.

For a copy that is to be used elsewhere: it changes a file that no daemon has open, like `restore_guard`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harken.model import SenderRule, Trust
from harken.store.journal_reader import every_line
from harken.store.sqlite import people
from harken.store.sqlite.connection import connect
from harken.store.sqlite.errors import translated
from harken.store.sqlite.transaction import Transaction

RULES: Final = "SELECT text FROM rule_state WHERE text IS NOT NULL"
FORGET_SENDERS: Final = "DELETE FROM senders WHERE trust <> ?"
FORGET_RULES: Final = "UPDATE rule_state SET revision = revision + 1, text = NULL WHERE text IS NOT NULL"


@dataclass(frozen=True, slots=True)
class StoredDecisions:
    """Whom the person admitted, and the text of the rules in force; empty: there are none."""

    senders: Sequence[SenderRule]
    rules: str


def decided_in(database: Path) -> StoredDecisions:
    """Return what was decided, of a copy that has the newest schema."""
    with translated(), closing(connect(f"{database}")) as connection:
        return _decided(connection)


def forget_decisions(database: Path) -> StoredDecisions:
    """Take back what was decided, and return it. Who was denied stays so."""
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        decided = _decided(connection)
        connection.execute(FORGET_SENDERS, (Trust.UNKNOWN.value,))
        connection.execute(FORGET_RULES)
        connection.execute("COMMIT")
    return decided


def _decided(connection: sqlite3.Connection) -> StoredDecisions:
    admitted = [each for each in people.senders(connection) if each.trust is not Trust.UNKNOWN]
    row = connection.execute(RULES).fetchone()
    return StoredDecisions(admitted, str(row[0]) if row else "")


def disown(database: Path, journal: Path) -> None:
    """Note that whom only the journal of a copy admits is not admitted: a recovery would do again what it tells."""
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        tx = Transaction(connection, datetime.now(UTC))
        known = {(each.source, each.sender) for each in people.senders(connection)}
        for source, sender in dict.fromkeys(_named_in(journal)):
            if (source, sender) not in known:
                tx.note("access", {"source": source, "sender": sender, "trust": Trust.UNKNOWN.value})
        connection.execute("COMMIT")


def _named_in(journal: Path) -> Iterator[tuple[str, str]]:
    for line in every_line(journal):
        source, sender = line.get("source"), line.get("sender")
        if line.get("kind") == "access" and isinstance(source, str) and isinstance(sender, str):
            yield source, sender
