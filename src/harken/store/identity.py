"""Which store is which, and whether what lies in a home belongs together.

A store has an id for its life and an epoch, which a restore or a recovery raises. The database, a file of the home and
every line of the journal carry both. So a database that is gone, is another home's or is older than its journal is
noticed at start, while copies of a whole home open. `refusal` is pure; what it judges is found by
`store/sqlite/snapshot.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from harken.display import counted
from harken.errors import UserError
from harken.memory import json_bytes
from harken.store.contract.health import StoreIdentity

_TOGETHER: Final = "harken.db, harken.db-wal and harken.db-shm"
RECOVER: Final = f"Put {_TOGETHER} back together, or build the database anew from the journal: harken recover"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraces:
    """What lies in a home: what the database, the home's own file and the journal's last line say of the store.

    `unknown_events` of the journal are not in the database and were synced to disk before anyone was told of them;
    `unknown_messages` of those are messages.
    """

    has_database: bool
    has_log: bool  # a write-ahead log with something in it
    database: StoreIdentity | None = None
    home: StoreIdentity | None = None
    journal: StoreIdentity | None = None
    journal_end: int = 0
    unknown_events: int = 0
    unknown_messages: int = 0
    moved_to: str = ""  # where the store is, if the database is a copy that is not in use


def refusal(found: StoreTraces) -> UserError | None:
    """Return why a daemon must not start over what lies there; None when it may."""
    if not found.has_database:
        return _without_database(found)
    if found.moved_to:
        return not_in_use(found.moved_to)
    if found.database is None:
        older = UserError("harken.db was written by an older Harken than this home.", RECOVER)
        return _behind(found) if found.home is None else older
    if not (found.database.may_follow(found.home) and found.database.may_follow(found.journal)):
        return _foreign(found, found.database)
    if found.journal is not None and found.database.epoch > found.journal.epoch:
        return None  # the journal is of the time before a restore: what it has beyond was left behind by decision
    return _behind(found)


def not_in_use(place: str) -> UserError:
    """Return the error for a copy that a move has left behind, or not finished yet."""
    return UserError(
        f"What is here is a copy that is not in use: the store is {place}.",
        "Let store.url name that one. If a move was cut short, give the same command again: harken store move URL",
    )


def _without_database(found: StoreTraces) -> UserError | None:
    if found.has_log:
        return UserError("harken.db is missing, but its log harken.db-wal is there; nothing was changed.", RECOVER)
    if found.journal_end:
        return UserError(
            f"harken.db is gone; the journal has {counted(found.journal_end, 'event')}. Nothing was changed.", RECOVER
        )
    if found.home is not None:
        return UserError("harken.db is gone, and so is what the journal had of it; nothing was changed.", RECOVER)
    return None


def _foreign(found: StoreTraces, database: StoreIdentity) -> UserError:
    expected = found.journal if database.may_follow(found.home) else found.home
    if expected is not None and expected.id == database.id:
        return UserError(
            f"harken.db is from before a restore or recovery (epoch {database.epoch}, this home has {expected.epoch}).",
            RECOVER,
        )
    return UserError(f"harken.db is the database of another home ({database.id}); nothing was changed.", RECOVER)


def _behind(found: StoreTraces) -> UserError | None:
    if not found.unknown_events:
        return None
    return UserError(
        f"harken.db is older than the journal, which has {counted(found.unknown_events, 'event')} more, "
        f"{counted(found.unknown_messages, 'message')} among them; nothing was changed.",
        RECOVER,
    )


def is_volatile(kind: str, data: object) -> bool:
    """Whether a power cut may take an event of this kind from the database and leave its line: it happens again."""
    if kind in {"offered", "seen", "withdrawn", "consumer", "expired", "pruned"}:
        return True
    said = data if isinstance(data, dict) else {}
    return (kind, said.get("state")) == ("action", "expired") or (kind, said.get("by")) == ("settled", "retention")


class _IdentityFile(msgspec.Struct):
    id: str
    epoch: int


def read_identity(file: Path) -> StoreIdentity | None:
    """Return what a home says its store is; None when it does not, or not in a form that can be read."""
    try:
        said = msgspec.json.decode(file.read_bytes(), type=_IdentityFile)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return StoreIdentity.parse(f"{said.id}.{said.epoch}")


def identity_text(identity: StoreIdentity) -> str:
    """Return the contents of the home's file."""
    return json_bytes(_IdentityFile(identity.id, identity.epoch)).decode() + "\n"
