"""Putting a database that was built anew in place of one that is gone, damaged or too old. The old files stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from harken.config.home import Home, disk_error, write_private
from harken.config.lock import single_instance
from harken.errors import Conflict
from harken.store.identity import identity_text
from harken.store.sqlite.connection import files_of
from harken.store.sqlite.recovery import RecoveryResult

WORKING: Final = ".recover-"


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """Keep daemons away."""
    with ExitStack() as held:
        try:
            held.enter_context(single_instance(home.lock_file))
        except Conflict as exc:
            raise Conflict("A daemon serves this home.", "Stop it first: harken down") from exc
        yield


@contextmanager
def work_folder(home: Home) -> Iterator[Path]:
    """Make a private folder on the same disk, gone at the end."""
    try:
        work = Path(mkdtemp(prefix=WORKING, dir=home.path))
    except OSError as exc:
        raise disk_error("write", home.path, exc) from exc
    try:
        yield work
    except OSError as exc:
        raise disk_error("write", work, exc) from exc
    finally:
        shutil.rmtree(work, ignore_errors=True)


def exchange(home: Home, new: Path, done: RecoveryResult, kept: str) -> Sequence[Callable[[], object]]:
    """Return the steps that put the new database in place, and the old files aside, together.

    After a stop between two of them the old database or the new one is under the name, and it can begin again.
    """
    (old, aside), *beside = zip(files_of(home.database), files_of(home.path / kept), strict=True)
    # The log before the database: a new one under the old log would be taken for the old one.
    return [
        partial(_give_second_name, old, aside),
        *(partial(_put_aside, path, place) for path, place in beside),
        partial(new.replace, home.database),
        # Last: a database of a later epoch opens in a home that does not know it yet, and not the other way round.
        partial(write_private, home.identity_file, identity_text(done.identity)),
    ]


def _give_second_name(path: Path, name: Path) -> None:
    """Let a file have another name too; where a disk has no such thing, copy it."""
    if not path.exists() or name.exists():
        return
    try:
        name.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, name)


def _put_aside(path: Path, name: Path) -> None:
    if path.exists():
        path.rename(name)
