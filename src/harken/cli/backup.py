"""The verbs `backup` and `restore`: everything Harken knows in one private file, and back into an empty home.

A backup is taken from the files, with or without a daemon that goes on writing them. What it holds is in
`setup/archive.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import IO, Final

import click

from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.progress import QUIET_SECONDS
from harken.cli.verbs import verb
from harken.display import size_text
from harken.errors import Conflict, NotFound, UserError

STREAM: Final = "-"
LEFT_OUT: Final = "tokens, sign-ins, secrets, the file env, logs, and what connects your agents"


@verb("backup")
@click.argument("file", metavar="FILE|-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--replace", is_flag=True, help="Replace an existing file.")
def backup(asked: Invocation, *, file: str, replace: bool) -> None:
    """Back up messages, journal, settings and rules to a private .tar.gz file, while Harken runs.

    `-` writes it to stdout. The backup is a consistent snapshot, also of a store in PostgreSQL, without tokens,
    sign-ins, secrets and logs.
    """
    from harken.cli.authority import refuse_agent
    from harken.setup.archive import pack
    from harken.setup.backup import backup_target
    from harken.setup.store import copier

    refuse_agent(asked, "make backups")
    home = asked.home
    take = copier(home, os.environ, _Progress().told)
    if file == STREAM and (asked.as_json or sys.stdout.isatty()):
        raise UserError("Stdout cannot hold a backup here.", "Name a file, or send it to another program.")
    path = None if file == STREAM else Path(os.path.normpath(Path.cwd() / file))
    if path is not None and path.exists() and not replace:
        raise Conflict(f"{path} is there already.", "Choose another name, or add --replace.")
    with backup_target(path) as (stream, work):
        about, count = pack(home, stream, work, take)
    size = path.stat().st_size if path else 0
    if asked.gave_json({"file": str(path), "bytes": size, "files": count, "last_event": about.last_event}):
        return
    where = f"{path} ({size_text(size)})" if path else "stdout"
    say = note_to_person if path is None else asked.screen.line
    say(f"Backed up {home.path} to {where}: {count} files, up to event {about.last_event}.")
    say(f"Not in it: {LEFT_OUT}.")


@verb("restore")
@click.argument("file", metavar="FILE|-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask, and take no settings that could act.")
@click.option("--with-settings", "takes_settings", is_flag=True, help="Also take its settings, rules and decisions.")
def restore(asked: Invocation, *, file: str, is_agreed: bool, takes_settings: bool) -> None:
    """Restore a backup into an empty home.

    A damaged backup, or one of a newer Harken, changes nothing. Shows what its settings, rules and decisions would
    run, open, connect to and trust, and asks; without a yes, they are parked in separate files. Unfinished replies
    and runs may have finished since the backup, so they are held back and shown. Afterwards, sign in to your sources
    again and connect your agents.
    """
    from harken.cli.authority import refuse_agent
    from harken.cli.recover import held_record, show_held, show_parked
    from harken.setup.backup import refuse_used
    from harken.setup.backup import restore as restore_home

    refuse_agent(asked, "restore backups")
    home = asked.home
    with _source(file) as stream:
        refuse_used(home)
        done = restore_home(home, stream, lambda powers: takes_settings or _takes(asked, powers, is_agreed=is_agreed))
    about, held, powers, parked = done.about, done.held, done.powers, done.parked
    if asked.as_json:
        said = {"home": str(home.path), "files": done.files, "last_event": about.last_event}
        found = [{"would": what, "with": detail} for what, detail in powers]
        parts = {"settings": found, "parked_settings": list(parked), "was_in": done.was_in}
        asked.print_json({**said, **parts, **held_record(held)})
        return
    asked.screen.line(
        f"Restored {home.path}: {done.files} files, up to event {about.last_event} of {about.created_at}."
    )
    asked.screen.line(f"Not in a backup: {LEFT_OUT}.")
    show_held(asked.screen, held)
    show_parked(asked.screen, home.path, powers, parked)
    if done.was_in:
        asked.screen.line("The backup is of a store in PostgreSQL. It is in this home now, in harken.db.")
        asked.screen.hint(f"To move it into an empty schema there: harken store move {done.was_in}")
    asked.screen.hint("Next: harken up")
    asked.screen.hint("Sign in to sources again: harken source login NAME")
    asked.screen.hint("Connect your agents again: harken connect")


def _takes(asked: Invocation, powers: Sequence[tuple[str, str]], *, is_agreed: bool) -> bool:
    """Ask whether settings that could act are taken; with --yes they are not."""
    if is_agreed:
        return False
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            f"The settings of this backup could act ({powers[0][0]} {powers[0][1]}),"
            " and there is no terminal to ask in.",
            "Say --yes to park them and take the messages, or --with-settings to take all.",
        )
    asked.screen.line("The settings, rules and decisions of this backup would")
    asked.screen.table(powers)
    return click.confirm("Take them too? If not, the messages are restored and the rest is parked", default=False)


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
