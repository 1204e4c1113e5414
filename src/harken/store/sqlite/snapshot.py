"""Copies of the database file: taken while a daemon writes to it, looked at before one is used, held back after.

A copy is one consistent moment: it is read inside a single read transaction, which a writer in another process neither
waits for nor disturbs. What a restored copy would do again (replies that wait to leave, actions and runs that are not
over) may have happened after it was taken: replies are parked, actions and runs end in states that people see, and
whether one is done again is theirs to say. What is packed around a copy is decided above.

Which store a file is, is read while no process has it open, and raised by a restore or a recovery. Looking changes
nothing, also not the write-ahead log: what is found may be all that is left.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harken.automation import Action, ActionState, Run, RunEnd, RunState
from harken.errors import UserError
from harken.model import SenderRule, Trust
from harken.store.contract.health import StoreIdentity
from harken.store.identity import StoreTraces, read_identity
from harken.store.journal import count_synced, every_line, find_end
from harken.store.sql import actions, approvals, people, runs
from harken.store.sql.events import MOVED_TO, identity_of, last
from harken.store.sql.transaction import Transaction
from harken.store.sqlite.connection import (
    connect,
    damaged,
    log_of,
    migrations,
    prepare_file,
    refuse_damaged,
    translated,
)

PAGES_AT_ONCE: Final = 2_000
MAX_FAULTS: Final = 1
SCHEMA: Final = "SELECT type, name, sql FROM sqlite_master"
COMMENT: Final = re.compile(r"--[^\n]*")
TEXT_PARTS: Final = "messages_text_"
OWN_PARTS: Final = ("sqlite_autoindex_", "sqlite_stat")  # SQLite's, which nobody else can make

HAS_SUBSCRIPTIONS: Final = "SELECT 1 FROM sqlite_master WHERE name = 'subscriptions'"

CopyProgress = Callable[[int, int], None]
"""Called with how many pages are still to be copied, and of how many."""


def take(database: Path, target: Path, told: CopyProgress = lambda _left, _total: None) -> int:
    """Copy a database into a new private file, and return the number of the last event in it."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with translated(), closing(connect(f"{database}")) as source, closing(connect(f"{target}")) as copy:
        # The copy is of no use before it is complete: nothing of it has to survive a crash.
        copy.execute("PRAGMA synchronous = OFF")
        # From here on the source stands still for us: else the copy would begin anew with every write of others.
        source.execute("BEGIN")
        number = last(source)
        source.backup(copy, pages=PAGES_AT_ONCE, progress=lambda _status, left, total: told(left, total))
        source.execute("COMMIT")
        # Secrets that sign in the name of this store are of no use in a copy: it forgets who had events posted.
        if copy.execute(HAS_SUBSCRIPTIONS).fetchone():
            copy.execute("PRAGMA secure_delete = ON")
            copy.execute("UPDATE subscriptions SET secret = '', former = ''")
        # One file without a log beside it; whoever opens it to write turns the log on again.
        copy.execute("PRAGMA journal_mode = DELETE")
    return number


def examine(database: Path) -> int:
    """Return the schema of a database that can be used by this Harken; raises `UserError` for any other."""
    newest = migrations()[-1][0]
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute("PRAGMA query_only = ON")
        try:
            [[said]] = connection.execute(f"PRAGMA integrity_check({MAX_FAULTS})").fetchall()
            schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError as exc:
            raise damaged(str(exc)) from exc
    if said != "ok":
        raise damaged(str(said))
    if not 0 < schema <= newest:
        raise UserError(
            f"The database has schema {schema}, this Harken supports 1 to {newest}.", "Use the version that wrote it."
        )
    return schema


def refuse_foreign(database: Path) -> None:
    """Raise `UserError` for a copy from elsewhere with another schema than ours: a trigger would act in our name.

    Nothing of what the copy holds is looked at before. One of a version that is not known is left to `examine`.
    """
    with translated(), closing(connect(f"{database}")) as connection, closing(connect(":memory:")) as ours:
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
            found = _statements(connection)
        except sqlite3.DatabaseError as exc:
            raise damaged(str(exc)) from exc
        known = dict(migrations())
        if schema not in known:
            return
        for number, script in known.items():
            if number <= schema:
                ours.executescript(script)
        if found != _statements(ours):
            raise UserError(
                "Its database is not Harken's: it has additional triggers, tables or indexes.",
                "Use a backup that you made yourself; nothing was changed.",
            )


def _statements(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Return what a schema holds: its kinds, names and statements, however these are laid out."""
    rows = [(str(kind), str(name), str(sql or "")) for kind, name, sql in connection.execute(SCHEMA)]
    return frozenset(
        # The parts of an index for texts are SQLite's own, and which words make them is its business.
        (kind, name, "" if kind == "table" and name.startswith(TEXT_PARTS) else " ".join(COMMENT.sub("", sql).split()))
        for kind, name, sql in rows
        if not (kind in ("table", "index") and name.startswith(OWN_PARTS))
    )


def last_event(database: Path) -> int:
    """Return the number of the last event in a database."""
    with translated(), closing(connect(f"{database}")) as connection:
        return last(connection)


MAY_HAVE_LEFT: Final = "It waited to leave when {moment}, and may have left since."
MAY_HAVE_RUN: Final = "it was queued when {moment}, and may have run since"
MAY_BE_ANSWERED: Final = "it waited for your answer when {moment}, and may have run since"
MAY_BE_OBEYED: Final = "it was asked before {moment}, and its host decided by itself"
RAN: Final = "it ran when {moment}; how it ended is not known here"
BACKED_UP: Final = "the backup was taken"
LOST: Final = "the database was lost"
QUEUED_REPLIES: Final = "SELECT id FROM outbox WHERE state = 'queued' AND subscription = ''"
PARK: Final = "UPDATE outbox SET state = 'parked', error = ? WHERE id = ?"
# What was received and not judged yet was judged after the copy was taken: its rule may have run, too.
# Without rules nobody looks, and how far they came is not kept.
UNJUDGED: Final = """
SELECT count(*) FROM messages, rule_state WHERE rule_state.text IS NOT NULL AND messages.n > rule_state.judged
"""
SKIP: Final = """
UPDATE rule_state SET revision = revision + 1, judged = max(judged, (SELECT coalesce(max(n), 0) FROM messages))
"""
ALL: Final = -1  # as a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldWork:
    """What was held back, as it is now, the oldest first."""

    replies: int
    actions: Sequence[Action]
    runs: Sequence[Run]
    unjudged: int  # messages that rules may not have looked at yet: they do not any more


def hold(database: Path, moment: str = BACKED_UP) -> HeldWork:
    """Hold back what a copy that is to be used would do again, and bring it to the newest schema before.

    One transaction; doing it twice holds nothing back the second time. Queued replies become `parked`, queued actions
    `refused`, questions `expired`, approvals `withdrawn`, runs `interrupted`. What rules have not judged by then they
    do not judge. Journals `parked`, `action`, `approval` and `run`.
    """
    with translated():
        prepare_file(database)
        with closing(connect(f"{database}")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            tx = Transaction(connection, datetime.now(UTC))
            unjudged = int(tx.execute(UNJUDGED).fetchone()[0])
            held = HeldWork(
                replies=_park(tx, moment),
                actions=_end_actions(tx, moment),
                runs=_end_runs(tx, moment),
                unjudged=unjudged,
            )
            approvals.withdraw_all(tx, MAY_BE_OBEYED.format(moment=moment))
            tx.execute(SKIP)
            connection.execute("COMMIT")
    return held


def _park(tx: Transaction, moment: str) -> int:
    error = MAY_HAVE_LEFT.format(moment=moment)
    waiting = [str(row[0]) for row in tx.execute(QUEUED_REPLIES)]
    for reply in waiting:
        tx.execute(PARK, (error, reply))
        tx.note("parked", {"reply": reply, "error": error})
    return len(waiting)


def _end_actions(tx: Transaction, moment: str) -> list[Action]:
    """End what waits. A question too: the answer to it may come once more, out of a chat that is read again."""
    count = actions.waiting(tx.connection)
    found = actions.newest(tx.connection, (ActionState.QUEUED, ActionState.WAITING), None, count)
    return [
        actions.refuse(tx, each.id, MAY_HAVE_RUN.format(moment=moment))
        if each.state is ActionState.QUEUED
        else actions.withdraw(tx, each.id, MAY_BE_ANSWERED.format(moment=moment))
        for each in reversed(found)
    ]


def _end_runs(tx: Transaction, moment: str) -> list[Run]:
    found = runs.newest(tx.connection, is_running=True, message=None, limit=ALL)
    how = RunEnd(state=RunState.INTERRUPTED, reason=RAN.format(moment=moment))
    return [runs.end(tx, each.id, how) for each in reversed(found)]


RULES_IN_FORCE: Final = "SELECT text FROM rule_state WHERE text IS NOT NULL"
FORGET_SENDERS: Final = "DELETE FROM senders WHERE trust <> ?"
FORGET_RULES: Final = "UPDATE rule_state SET revision = revision + 1, text = NULL WHERE text IS NOT NULL"


@dataclass(frozen=True, slots=True)
class StoredDecisions:
    """The senders that the person admitted, and the text of the rules in force; empty: there are none."""

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
    row = connection.execute(RULES_IN_FORCE).fetchone()
    return StoredDecisions(admitted, str(row[0]) if row else "")


def disown(database: Path, journal: Path) -> None:
    """Note that senders admitted only by the journal of a copy are not admitted: a recovery would admit them."""
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


RAISE: Final = "UPDATE identity SET epoch = epoch + 1, moved_to = ''"
FORGET_HOLDERS: Final = (
    "DELETE FROM tokens",
    "DELETE FROM subscriptions",
    "DELETE FROM outbox WHERE subscription <> ''",
)


def look(database: Path, journal: Path, identity_file: Path) -> StoreTraces:
    """Return what lies in a home; raises `UserError` for a database that is damaged."""
    with translated():
        end = find_end(journal)
        home = read_identity(identity_file)
        log = log_of(database)
        has_log = log.exists() and log.stat().st_size > 0
        if not database.exists():
            return StoreTraces(
                has_database=False, has_log=has_log, home=home, journal=end.store, journal_end=end.number
            )
        refuse_damaged(database)
        own, newest, moved_to = _read(database)
        events, messages = count_synced(journal, newest) if end.number > newest else (0, 0)
    return StoreTraces(
        has_database=True,
        has_log=has_log,
        database=own,
        home=home,
        journal=end.store,
        journal_end=end.number,
        unknown_events=events,
        unknown_messages=messages,
        moved_to=moved_to,
    )


def begin_epoch(database: Path) -> StoreIdentity:
    """Let a copy that is put to use be a later epoch of its store: it goes other ways from here.

    It lets no machine in: a token may have been revoked since it was copied. Those who had events posted to an address
    ask again, with the cursor that they have.
    """
    with translated(), closing(connect(f"{database}")) as connection:
        connection.execute(RAISE)
        for statement in FORGET_HOLDERS:
            connection.execute(statement)
        return identity_of(connection)


def _read(database: Path) -> tuple[StoreIdentity | None, int, str]:
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        columns = {str(row[1]) for row in connection.execute("PRAGMA table_info(identity)")}
        moved_to = str(connection.execute(MOVED_TO).fetchone()[0]) if "moved_to" in columns else ""
        return identity_of(connection) if columns else None, last(connection), moved_to
