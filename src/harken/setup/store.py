"""The store of a home: where it is, what is in it, and moving it to the other backend.

A move copies first, into a store that says it is not in use. Then the old one says where the store is, the new one that
it is in use, and config.toml names it, in this order. Killed between two of these steps, no daemon opens either; the
same command does what is left. Until the old one was marked it is untouched, and goes on as if nothing had been tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harken.config.home import Home, home_id, write_private
from harken.config.load import is_elsewhere, load, target_of
from harken.config.settings import StoreSettings
from harken.display import counted
from harken.errors import Conflict, NotFound, UserError
from harken.setup.backup import StoreCopier, locked, name_store, words_for
from harken.store.contract.health import StoreIdentity
from harken.store.identity import identity_text, not_in_use, read_identity, refusal
from harken.store.sqlite.connection import files_of, put_in_place
from harken.store.sqlite.snapshot import CopyProgress, look, take
from harken.store.sqlite.transfer import (
    RowSum,
    StoreContents,
    TransferProgress,
    contents_of,
    contents_of_file,
    mark_file,
    place_of_file,
    reading_file,
    transfer,
    writing_file,
)

if TYPE_CHECKING:  # importing it here is what this module puts off
    from harken.store.postgres.connection import PostgresTarget

EMBEDDED: Final = StoreSettings().url
DRAFT: Final = "harken.db.moving"
COPIED: Final = "the copy is whole"
MARKED: Final = "the old store is marked as moved"
OPENED: Final = "the new store is in use"


def copier(home: Home, environ: Mapping[str, str], told: CopyProgress) -> StoreCopier:
    """Return what copies the store of a home, while daemons go on."""
    # A home with settings that cannot be read is backed up all the same.
    target = target_of(home, load(home, {}, environ).settings.store, environ) if is_elsewhere(home) else None
    if target is not None:
        return partial(_copy_postgres, target, told)
    if not home.database.exists():
        raise NotFound(f"There is nothing to back up in {home.path}.", "Name another home with --home.")
    return lambda copy: take(home.database, copy, told)


def _copy_postgres(target: PostgresTarget, told: CopyProgress, copy: Path) -> int:
    from harken.store.postgres.transfer import reading_moment

    with reading_moment(target) as source, writing_file(copy) as end:
        known = contents_of(source.connection)
        if known.moved_to:
            raise not_in_use(known.moved_to)
        transfer(
            source, end, end.tables(), lambda _table, done, total: told(total - done, total), daemon="", moved_to=""
        )
        return known.last_event


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMove:
    """What is moved where: the PostgreSQL at one end, the home at the other, and the settings of before and after.

    `told` hears of rows, `done` of every step that lasts.
    """

    home: Home
    target: PostgresTarget
    current: StoreSettings
    wanted: StoreSettings
    told: TransferProgress
    done: Callable[[str], None] = lambda _step: None

    @property
    def is_to_file(self) -> bool:
        """Whether it goes from PostgreSQL into the home."""
        return self.wanted.url == EMBEDDED


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """What was moved, or would be; `sums` of each table, none where an earlier try had copied it."""

    source: str
    target: str
    contents: StoreContents
    sums: Mapping[str, RowSum]
    way_back: str  # the words for `store move`
    removal: str  # of the old one, for the person to do


def plan_move(
    home: Home,
    current: StoreSettings,
    wanted: StoreSettings,
    environ: Mapping[str, str],
    told: TransferProgress,
) -> StoreMove:
    """Return the move from the store that is configured to another one; raises where there is none to make."""
    here, there = target_of(home, current, environ), target_of(home, wanted, environ)
    if None not in (here, there) and _is_in_file(home):
        here = None  # config.toml names the server already
    if here == there:
        raise Conflict("The store is there already.", "See it: harken store show")
    if here is not None and there is not None:
        raise UserError(
            "A store is not moved from one PostgreSQL to another.",
            "Move it in two steps: harken store move sqlite, then harken store move URL; or use pg_dump.",
        )
    target = here or there
    if target is None:
        raise Conflict("The store is there already.", "See it: harken store show")
    return StoreMove(home=home, target=target, current=current, wanted=wanted, told=told)


def _is_in_file(home: Home) -> bool:
    """Whether the messages of a home are in its own file, whatever its settings say."""
    found = contents_of_file(home.database)
    return found is not None and not found.moved_to and found.identity == read_identity(home.identity_file)


def move(wanted: StoreMove, *, is_dry: bool = False) -> MoveReport:
    """Move the store of a home that no daemon serves; `is_dry`: say what would be moved, or refuse it."""
    with locked(wanted.home):
        report = _to_file(wanted, is_dry=is_dry) if wanted.is_to_file else _to_postgres(wanted, is_dry=is_dry)
        if not is_dry:
            _name_in_config(wanted, report.contents.identity)
        return report


def _to_postgres(wanted: StoreMove, *, is_dry: bool) -> MoveReport:
    from harken.store.postgres.transfer import keeping_writers_out, place_of

    database, target = wanted.home.database, wanted.target
    here, there = place_of_file(database), place_of(target)
    known = _judged_file(wanted.home)
    sums: dict[str, RowSum] = {}
    report = MoveReport(
        source=here, target=there, contents=known, sums=sums, way_back=EMBEDDED, removal=f"delete {database}"
    )
    with keeping_writers_out(target, is_made=True) as end:
        is_left = _is_left(known, contents_of(end.connection), here, there)
        if is_dry:
            return report
        if is_left:
            daemon = home_id(wanted.home)
            with reading_file(database) as source:
                sums |= transfer(source, end, source.tables(), wanted.told, daemon=daemon, moved_to=here)
            end.commit()
    wanted.done(COPIED)
    mark_file(database, there)
    wanted.done(MARKED)
    with keeping_writers_out(target, is_made=False) as end:
        end.mark_here("")
    wanted.done(OPENED)
    return report


def _to_file(wanted: StoreMove, *, is_dry: bool) -> MoveReport:
    from harken.store.postgres.transfer import keeping_writers_out, place_of

    database, target = wanted.home.database, wanted.target
    here, there = place_of(target), place_of_file(database)
    sums: dict[str, RowSum] = {}
    with keeping_writers_out(target, is_made=False) as source:
        known = contents_of(source.connection)
        is_left = _is_left(known, contents_of_file(database), here, there)
        report = MoveReport(
            source=here,
            target=there,
            contents=known,
            sums=sums,
            way_back=words_for(wanted.current),
            removal=f"DROP SCHEMA {target.schema} CASCADE, in that database",
        )
        if is_dry:
            return report
        if is_left:
            draft = database.with_name(DRAFT)
            with writing_file(draft) as end:
                sums |= transfer(source, end, end.tables(), wanted.told, daemon="", moved_to=here)
            for leftover in files_of(database)[1:]:
                leftover.unlink(missing_ok=True)
            put_in_place(draft, database)
            wanted.done(COPIED)
            source.mark_here(there)
    wanted.done(MARKED)
    mark_file(database, "")
    wanted.done(OPENED)
    return report


def _judged_file(home: Home) -> StoreContents:
    """Refuse a home with files that do not belong together, as a daemon would; return what its database holds."""
    found = look(home.database, home.journal_dir, home.identity_file)
    if not found.moved_to and (error := refusal(found)):
        raise error
    contents = contents_of_file(home.database)
    if contents is None:
        raise NotFound(f"There is no store in {home.path}.", "Name another home with --home; or start it: harken up")
    return contents


def _is_left(known: StoreContents, found: StoreContents | None, here: str, there: str) -> bool:
    """Whether it has to be copied still; raises where the target is taken, or the store was moved elsewhere."""
    is_same = found is not None and found.identity == known.identity
    if known.moved_to:
        is_copied = is_same and found is not None and found.last_event >= known.last_event
        if known.moved_to != there or not is_copied or (found is not None and found.moved_to not in {"", here}):
            raise not_in_use(known.moved_to)
        return False
    if found is None or found.is_empty or (is_same and found.moved_to == here):
        return True
    state = f"a copy that was moved {found.moved_to}" if found.moved_to else "in use"
    size = counted(found.counts["messages"], "message")
    raise Conflict(
        f"There is a store {there} already ({found.identity}, {size}, {state}); nothing was changed.",
        "Name another database or --schema, or take away what is there.",
    )


def _name_in_config(wanted: StoreMove, identity: StoreIdentity) -> None:
    """Let the home know which store it has, and config.toml where it is, in one step."""
    write_private(wanted.home.identity_file, identity_text(identity))
    write_private(wanted.home.config_file, name_store(wanted.home.config_file, wanted.wanted).decode())
