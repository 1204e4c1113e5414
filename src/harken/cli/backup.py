"""The verbs `backup` and `restore`: everything Harken knows in one private file, and back into an empty home.

A backup is taken from the files, with or without a daemon that goes on writing them. What it holds is in `archive.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp, mkstemp
from time import monotonic
from typing import IO, Final

import click

from harken.cli.output import note_to_person
from harken.cli.verbs import Invocation, verb
from harken.config.home import Home, disk_error, ensure, write_private
from harken.control.slow_notice import QUIET_SECONDS
from harken.errors import Conflict, NotFound, UserError

STREAM: Final = "-"
THOUSAND: Final = 1000
WORKING: Final = ".restore-"
LEFT_OUT: Final = "tokens, sign-ins, secrets, the file env, logs, and what connects your agents"
DATABASE: Final = "harken.db"
MAY_BE_THERE: Final = frozenset({"run", "logs", "reserve"})  # what a daemon leaves, and nobody would miss


@verb("backup")
@click.argument("file", metavar="FILE|-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
def backup(asked: Invocation, *, file: str, replace: bool) -> None:
    """Copy messages, journal, settings and rules into one private .tar.gz file, while Harken runs.

    - writes it to stdout. It is one consistent moment. Tokens, sign-ins, secrets and logs are not in it.
    """
    from harken.cli.authority import refuse_agent
    from harken.setup.archive import pack

    refuse_agent(asked, "make backups")
    home = asked.home
    if not home.database.exists():
        raise NotFound(f"There is nothing to back up in {home.path}.", "Name another home with --home.")
    if file == STREAM and (asked.as_json or sys.stdout.isatty()):
        raise UserError("Stdout cannot hold a backup here.", "Name a file, or send it to another program.")
    path = None if file == STREAM else Path(os.path.normpath(Path.cwd() / file))
    if path is not None and path.exists() and not replace:
        raise Conflict(f"{path} is there already.", "Choose another name, or say --replace.")
    with _target(path) as (stream, work):
        about, count = pack(home, stream, work, _Progress().told)
    size = path.stat().st_size if path else 0
    if asked.as_json:
        asked.print_json({"file": str(path), "bytes": size, "files": count, "last_event": about.last_event})
        return
    where = f"{path} ({human(size)})" if path else "stdout"
    say = note_to_person if path is None else asked.screen.line
    say(f"Backed up {home.path} to {where}: {count} files, up to event {about.last_event}.")
    say(f"Not in it: {LEFT_OUT}.")


@verb("restore")
@click.argument("file", metavar="FILE|-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--yes", "is_agreed", is_flag=True, help="Ask nothing; take no settings that could act.")
@click.option("--with-settings", "takes_settings", is_flag=True, help="Take its settings, rules and decisions too.")
def restore(asked: Invocation, *, file: str, is_agreed: bool, takes_settings: bool) -> None:
    """Unpack a backup into a home that is empty.

    Checks it first: a damaged backup, or one of a newer Harken, changes nothing. Shows what its settings, rules and
    decisions would run, open, connect to and trust, and asks; without a yes these are parked in files beside. Replies
    and runs that were not over may have been since: they are held back, and shown. Sign in to your sources again, and
    connect your agents, afterwards.
    """
    from harken.cli.authority import refuse_agent
    from harken.cli.restore_show import held_record, show_held, show_parked
    from harken.config.lock import single_instance
    from harken.setup.archive import unpack
    from harken.setup.restore_powers import park, powers_in
    from harken.store.identity import identity_text
    from harken.store.sqlite.decisions import disown
    from harken.store.sqlite.identity import begin_epoch
    from harken.store.sqlite.restore_guard import hold

    refuse_agent(asked, "restore backups")
    home = asked.home
    _refuse_used(home)
    with _source(file) as stream:
        ensure(home)
        with single_instance(home.lock_file):
            _refuse_used(home)
            work = Path(mkdtemp(prefix=WORKING, dir=home.path))
            try:
                about, count = unpack(stream, work)
                held = hold(work / DATABASE)
                powers = powers_in(work, DATABASE)
                is_taken = takes_settings or not powers or _takes(asked, powers, is_agreed=is_agreed)
                parked = [] if is_taken else park(work, DATABASE)
                disown(work / DATABASE, Home(work).journal_dir)
                write_private(Home(work).identity_file, identity_text(begin_epoch(work / DATABASE)))
                _move(work, home)
            except OSError as exc:
                raise disk_error("write", home.path, exc) from exc
            finally:
                shutil.rmtree(work, ignore_errors=True)
    if asked.as_json:
        said = {"home": str(home.path), "files": count, "last_event": about.last_event}
        found = [{"would": what, "with": detail} for what, detail in powers]
        asked.print_json({**said, "settings": found, "parked_settings": parked, **held_record(held)})
        return
    asked.screen.line(f"Restored {home.path}: {count} files, up to event {about.last_event} of {about.created_at}.")
    asked.screen.line(f"Not in a backup: {LEFT_OUT}.")
    show_held(asked.screen, held)
    show_parked(asked.screen, home.path, powers, parked)
    asked.screen.hint("Next: harken up")
    asked.screen.hint("Sign in to sources again: harken source login NAME")
    asked.screen.hint("Connect your agents again: harken connect")


def _takes(asked: Invocation, powers: Sequence[tuple[str, str]], *, is_agreed: bool) -> bool:
    """Ask whether settings that could act are taken; with --yes they are not."""
    if is_agreed:
        return False
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            f"The settings of this backup could act ({powers[0][0]} {powers[0][1]}), and nobody can be asked here.",
            "Say --yes to park them and take the messages, or --with-settings to take all.",
        )
    asked.screen.line("The settings, rules and decisions of this backup would")
    asked.screen.table(powers)
    return click.confirm("Take them too? If not, the messages are restored and the rest is parked", default=False)


def human(size: float) -> str:
    """Return a size as people say it."""
    for unit in ("bytes", "KB", "MB"):
        if size < THOUSAND:
            return f"{size:.0f} {unit}"
        size /= THOUSAND
    return f"{size:.1f} GB"


@contextmanager
def _target(path: Path | None) -> Iterator[tuple[IO[bytes], Path]]:
    """Open stdout, or a private file that appears under its name only when it is complete; and a folder to work in."""
    if path is None:
        with TemporaryDirectory(prefix="harken-backup-") as work:
            yield sys.stdout.buffer, Path(work)
            sys.stdout.buffer.flush()
        return
    try:
        with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as work:
            descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporary = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    yield stream, Path(work)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(path)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise disk_error("write", path, exc) from exc


@contextmanager
def _source(file: str) -> Iterator[IO[bytes]]:
    if file == STREAM:
        yield sys.stdin.buffer
        return
    path = Path(file)
    if not path.is_file():
        raise NotFound(f"There is no file {path}.", "Name a file that `harken backup` wrote.")
    with path.open("rb") as stream:
        yield stream


def _refuse_used(home: Home) -> None:
    """Refuse a home in which anything is: a backup never mixes with it."""
    try:
        found = sorted(home.path.iterdir())
    except FileNotFoundError:
        return
    except OSError as exc:
        raise disk_error("read", home.path, exc) from exc
    used = [path for path in found if path.name not in MAY_BE_THERE and not _is_bare(path)]
    if used:
        raise Conflict(
            f"{home.path} is not empty: {used[0].name} is there.",
            "Restore into a new home with --home, or move this one away.",
        )


def _is_bare(path: Path) -> bool:
    """Whether there is nothing in it: an empty folder, or what a restore that was killed had not moved yet."""
    return path.is_dir() and not path.is_symlink() and (path.name.startswith(WORKING) or not any(path.iterdir()))


def _move(work: Path, home: Home) -> None:
    """Let the files be the home's. The database comes last: a home without it is seen to be incomplete."""
    for path in sorted(work.iterdir(), key=lambda each: each.name == DATABASE):
        place = home.path / path.name
        if path.is_dir() and place.is_dir():
            place.rmdir()  # empty: that was looked at
        path.rename(place)


class _Progress:
    """Says how far the copy is, to a person who waits."""

    def __init__(self) -> None:
        self._said_at = monotonic()
        self._is_watched = sys.stderr.isatty()

    def told(self, left: int, total: int) -> None:
        """Say it now and then."""
        if self._is_watched and total and monotonic() - self._said_at > QUIET_SECONDS:
            self._said_at = monotonic()
            print(f"\rcopying the database: {100 * (total - left) // total} %", end="", file=sys.stderr, flush=True)
            if not left:
                print(file=sys.stderr)
