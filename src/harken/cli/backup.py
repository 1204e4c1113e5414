"""The verbs `backup`, `restore` and `recover`: everything Harken knows, into one private file and back.

A backup is taken from the files, with or without a daemon that goes on writing them. `recover` builds a lost database
anew from the journal and what is left of the old one, which stays, under another name; it shows first what it found and
what it would do. What is done is in `setup/backup.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Final

import click

from harken.cli.authority import agree
from harken.cli.invocation import Invocation
from harken.cli.output import Screen, note_to_person
from harken.cli.progress import QUIET_SECONDS
from harken.cli.verbs import verb
from harken.config.home import Home, ensure, write_private
from harken.config.satellite import refuse_on_satellite
from harken.control.client import Result
from harken.display import size_text
from harken.errors import Conflict, NotFound, UserError

if TYPE_CHECKING:
    from harken.store.sqlite.recovery import RecoveryPlan, RecoveryResult
    from harken.store.sqlite.snapshot import HeldWork

STREAM: Final = "-"
LEFT_OUT: Final = "tokens, sign-ins, secrets, the file env, logs, and what connects your agents"
KEPT: Final = "harken.db.lost-"
WORDS: Final[Mapping[str, str]] = {
    "missing": "harken.db is gone.",
    "damaged": "harken.db is damaged.",
    "older than the journal": "harken.db is older than the journal.",
    "of another home, or from before a restore": "harken.db is of another home, or from before a restore.",
}
SOURCES: Final[Mapping[str, str]] = {
    "missing": "from the journal",
    "damaged": "from the journal, and from what can still be read of the damaged one",
    "older than the journal": "from the old one and the lines of the journal that it lacks",
    "of another home, or from before a restore": "from the journal; nothing is taken from that one",
}


@verb("backup")
@click.argument("file", metavar="FILE|-", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--replace", is_flag=True, help="Replace an existing file.")
def backup(asked: Invocation, *, file: str, replace: bool) -> None:
    """Back up messages, journal, settings and rules to a private .tar.gz file, while Harken runs.

    `-` writes it to stdout. The backup is a consistent snapshot, also of a store in PostgreSQL, without tokens,
    sign-ins, secrets and logs.
    """
    refuse_on_satellite(asked.home, "a backup")
    from harken.cli.authority import refuse_agent
    from harken.setup.backup import backup_target, pack
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
    refuse_on_satellite(asked.home, "restoring")
    from harken.cli.authority import refuse_agent
    from harken.cli.backup import held_record, show_held, show_parked
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


@verb("recover")
@click.option("--dry-run", is_flag=True, help="Show what was found and what would happen, without doing it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--from-journal", "is_left_behind", is_flag=True, help="Give up a PostgreSQL store that is lost.")
def recover(asked: Invocation, *, dry_run: bool, yes: bool, is_left_behind: bool) -> None:
    """Rebuild a lost, damaged or outdated database from the journal.

    Keeps the old files under another name. Unfinished replies and runs may have finished since, so they are held back
    and shown. A store in PostgreSQL is kept by its server; if that is lost, --from-journal rebuilds what this home's
    daemon committed, in harken.db.
    """
    refuse_on_satellite(asked.home, "recovery")
    from harken.cli.authority import refuse_agent
    from harken.setup.backup import exchange, locked, work_folder
    from harken.store.sqlite import recovery

    refuse_agent(asked, "recover the database")
    home = asked.home
    if not home.path.is_dir():
        raise NotFound(f"There is no home {home.path}.", "Name another one with --home.")
    is_shared = _is_shared(home, is_left_behind=is_left_behind)
    ensure(home)
    with locked(home), work_folder(home) as work:
        plan = recovery.survey(home.database, home.journal_dir, home.identity_file, work)
        if plan.condition is recovery.Condition.WHOLE:
            _use_file(home, is_due=is_shared and not dry_run)
            _say_whole(asked)
            return
        _refuse_empty(plan)
        kept = f"{KEPT}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        if dry_run and asked.as_json:
            asked.print_json({"state": "planned", **_plan_record(plan)})
            return
        if not asked.as_json:
            _show_plan(asked.screen, plan, home, kept)
        if dry_run:
            return
        agree(asked, "Recover it now?", is_agreed=yes)
        done = recovery.recover(plan, home.journal_dir, work)
        for step in exchange(home, work / recovery.NEW, done, kept):
            step()
        _use_file(home, is_due=is_shared)
        files = sorted(path.name for path in home.path.glob(f"{kept}*"))
    if asked.as_json:
        asked.print_json({"state": "recovered", **_plan_record(plan), "kept": files, **_record(done)})
    else:
        _show(asked.screen, done, is_shared=is_shared)


def _is_shared(home: Home, *, is_left_behind: bool) -> bool:
    """Whether the store of a home is in PostgreSQL; raises `UserError` unless the person wants to leave it behind."""
    from harken.config.load import is_elsewhere

    is_shared = is_elsewhere(home)
    if is_shared and not is_left_behind:
        raise UserError(
            "The store of this home is in PostgreSQL, and its server keeps it.",
            "Restore it with the tools of PostgreSQL. If it is gone for good, take what the journal of this home has: "
            "harken recover --from-journal",
        )
    return is_shared


def _use_file(home: Home, *, is_due: bool) -> None:
    """Let the home have its store in harken.db."""
    from harken.config.settings import StoreSettings
    from harken.setup.backup import name_store

    if is_due:
        write_private(home.config_file, name_store(home.config_file, StoreSettings()).decode())


def _refuse_empty(plan: RecoveryPlan) -> None:
    from harken.store.sqlite.recovery import Condition

    if not plan.last_line and plan.condition is not Condition.DAMAGED:
        raise NotFound("There is no journal to recover from.", "Restore a backup: harken restore FILE --home DIR")


def _say_whole(asked: Invocation) -> None:
    if asked.as_json:
        asked.print_json({"state": "whole"})
    else:
        asked.screen.line(
            "The database is whole and has everything that is in the journal: there is nothing to recover."
        )


def _plan_record(plan: RecoveryPlan) -> Result:
    return {
        "found": plan.condition.value,
        "first_line": plan.first_line,
        "last_line": plan.last_line,
        "unknown_messages": plan.traces.unknown_messages,
    }


def _show_plan(screen: Screen, plan: RecoveryPlan, home: Home, kept: str) -> None:
    from harken.store.sqlite.connection import files_of

    screen.line(WORDS[plan.condition.value])
    if plan.last_line:
        screen.line(f"The journal has the events {plan.first_line} to {plan.last_line}.")
    screen.line("What will be done:")
    screen.line(f"  build harken.db anew, {SOURCES[plan.condition.value]}")
    for path, place in zip(files_of(home.database), files_of(home.path / kept), strict=True):
        if path.exists():
            screen.line(f"  keep the old {path.name} as {place.name}")


def _record(done: RecoveryResult) -> Result:
    report = done.report
    return {
        "messages": report.messages,
        "lines": report.lines,
        "has_rules_to_reload": report.has_rules_to_reload,
        "salvaged_rows": done.salvaged_rows,
        "salvaged_messages": done.salvaged_messages,
        "lost": {
            "messages": report.lost_messages,
            "nameless_messages": report.nameless_messages,
            "missing_lines": report.missing_lines,
            "strange_lines": report.strange_lines,
            "earlier_lines": report.earlier_lines,
            "replies_without_text": report.replies_without_text,
            "tasks_without_folder": report.tasks_without_folder,
        },
        **held_record(done.held),
    }


def _show(screen: Screen, done: RecoveryResult, *, is_shared: bool) -> None:
    report = done.report
    screen.line(f"Recovered. Messages in the database: {report.messages}; lines of the journal read: {report.lines}.")
    if done.salvaged_rows:
        screen.line(f"Read from the damaged database: {done.salvaged_rows} rows.")
    for count, words in (
        (report.lost_messages, "messages are lost: no line has them any more"),
        (report.nameless_messages, "messages had been removed before their line was written"),
        (report.missing_lines, "events have no line"),
        (report.strange_lines, "lines cannot be understood, or are about messages that are not there"),
        (
            report.replies_without_text,
            "replies had not left; their texts are not in the journal, and they do not leave",
        ),
        (report.tasks_without_folder, "tasks have no folder in the journal, and are not there any more"),
    ):
        if count:
            screen.line(f"{count} {words}.")
    if report.earlier_lines:
        screen.line(f"{report.earlier_lines} lines are of an earlier version, which did not write down what tells")
        screen.line("duplicates and how far sources were read: what these yield again may come twice.")
    if report.has_rules_to_reload:
        screen.line("Rules were in force, and the journal does not say which.")
        screen.hint("Check triggers.json, then put it in force: harken rules reload")
    show_held(screen, done.held)
    if is_shared:
        screen.line("Events without a line may be of daemons that shared the store: their homes have their lines.")
        screen.line("This home has its store in harken.db now. Other homes that shared the one in PostgreSQL have not.")
        screen.hint("To share this one, move it into an empty schema: harken store move URL")
    screen.hint("Next: harken up")


def held_record(held: HeldWork) -> Result:
    """Return what was held back, for programs."""
    return {
        "parked_replies": held.replies,
        "held_actions": [
            {"id": each.id, "state": each.state.value, "rule": each.rule, "message_id": each.message}
            for each in held.actions
        ],
        "interrupted_runs": [
            {"id": each.id, "rule": each.rule, "message_id": each.message, "agent": each.agent} for each in held.runs
        ],
        "unjudged": held.unjudged,
    }


def show_parked(screen: Screen, home: Path, powers: Sequence[tuple[str, str]], parked: Sequence[str]) -> None:
    """Print what was not put in force, and where it is."""
    if not parked:
        return
    screen.line("Not put in force, because it would")
    screen.table(powers)
    screen.line(f"It is parked in {home}, where nothing reads it: {', '.join(parked)}.")
    screen.hint("Copy what you want into config.toml and triggers.json, then: harken rules reload")
    screen.hint("Senders are admitted one by one: harken allow. Or restore into another home with --with-settings.")


def show_held(screen: Screen, held: HeldWork) -> None:
    """Print what was held back; nothing when nothing was."""
    if held.replies:
        screen.hint(f"{held.replies} replies waited to leave and may have left since; they are parked: harken status")
    if held.actions:
        screen.line(f"Actions that had not run then, and may have run since: {len(held.actions)}.")
        screen.table([(each.id, each.state.value, each.rule or "by hand", each.message) for each in held.actions])
        screen.line("None of them runs by itself.")
        if any(each.rule for each in held.actions):
            screen.hint("To run what a rule asked for now: harken channel run MESSAGE --rule RULE")
        if not all(each.rule for each in held.actions):
            screen.hint("To run what you asked for by hand now: harken channel run MESSAGE --agent HOST …")
    if held.runs:
        screen.line(f"Runs that were going on then: {len(held.runs)}.")
        screen.table([(each.id, each.state.value, each.rule or "by hand", each.message) for each in held.runs])
        screen.hint("None of them is begun again. See one: harken run show RUN")
    if held.unjudged:
        screen.line(f"Messages that rules had perhaps not looked at yet, and now will not: {held.unjudged}.")
        screen.hint("See them: harken list. To let a rule act on one: harken channel run MESSAGE --rule RULE")
