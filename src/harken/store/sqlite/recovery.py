"""Recovering a store: what is wrong with the one in a home, and a new database from what is left and the journal.

It reads the files of a home, copies first what it opens, and writes into a folder of its own. Moving the result into
its place, and asking before, is the command's business.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.store.contract.health import StoreIdentity
from harken.store.identity import StoreTraces, refusal
from harken.store.journal_reader import lines_after, number_of
from harken.store.sqlite.connection import connect, log_of, migrations, prepare_file, refuse_damaged
from harken.store.sqlite.errors import translated
from harken.store.sqlite.identity import identity_of, look
from harken.store.sqlite.rebuild import Rebuild, RebuildReport
from harken.store.sqlite.restore_guard import LOST, HeldWork, hold
from harken.store.sqlite.salvage import add_messages, add_rest, events_after, first_in_both, salvage
from harken.store.sqlite.snapshot import last_event, take
from harken.store.sqlite.transaction import Transaction

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
    """What is to be done; `identity` is whose store the new database is, its epoch included."""

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
            f"The database has schema {schema}, this Harken knows {newest}.",
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
