"""The verb `recover`: a database that is gone, damaged or too old is built anew, from the journal and what is left.

It shows first what it found and what it would do. The old files stay, together, under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from harken.cli.authority import agree
from harken.cli.invocation import Invocation
from harken.cli.output import Screen
from harken.cli.verbs import verb
from harken.config.home import Home, ensure
from harken.control.client import Result
from harken.errors import NotFound

if TYPE_CHECKING:  # it brings the whole store, and `--help` names this verb too
    from harken.store.sqlite.recovery import RecoveryPlan, RecoveryResult

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


@verb("recover")
@click.option("--dry-run", is_flag=True, help="Show what was found and what would happen, without doing it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def recover(asked: Invocation, *, dry_run: bool, yes: bool) -> None:
    """Rebuild a lost, damaged or outdated database from the journal.

    Keeps the old files under another name. Unfinished replies and runs may have finished since, so they are held back
    and shown.
    """
    from harken.cli.authority import refuse_agent
    from harken.setup.backup import exchange, locked, work_folder
    from harken.setup.doctor import refuse_elsewhere
    from harken.store.sqlite import recovery

    refuse_agent(asked, "recover the database")
    home = asked.home
    if not home.path.is_dir():
        raise NotFound(f"There is no home {home.path}.", "Name another one with --home.")
    refuse_elsewhere(home, "recover")
    ensure(home)
    with locked(home), work_folder(home) as work:
        plan = recovery.survey(home.database, home.journal_dir, home.identity_file, work)
        if plan.condition is recovery.Condition.WHOLE:
            _say_whole(asked)
            return
        if not plan.last_line and plan.condition is not recovery.Condition.DAMAGED:
            raise NotFound("There is no journal to recover from.", "Restore a backup: harken restore FILE --home DIR")
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
        files = sorted(path.name for path in home.path.glob(f"{kept}*"))
    if asked.as_json:
        asked.print_json({"state": "recovered", **_plan_record(plan), "kept": files, **_record(done)})
    else:
        _show(asked.screen, done)


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
    from harken.cli.restore_show import held_record

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


def _show(screen: Screen, done: RecoveryResult) -> None:
    from harken.cli.restore_show import show_held

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
    screen.hint("Next: harken up")
