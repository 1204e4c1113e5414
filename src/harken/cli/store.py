"""The verbs `store show` and `store move`: where messages are kept, and moving them to PostgreSQL or back.

They work on the store itself and ask no daemon. What a move does, and in which order, is in `setup/store.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from harken.cli.authority import refuse_agent
from harken.cli.invocation import Invocation
from harken.cli.output import human
from harken.cli.progress import Progress
from harken.cli.verbs import lists, verb
from harken.control.client import Result
from harken.errors import UserError

if TYPE_CHECKING:  # it brings both stores, and `--help` names these verbs too
    from harken.setup.store import MoveReport

NAMED: Final = ("url", "schema", "password")


@click.group()
def store() -> None:
    """Show where your messages are stored, and move them."""


@verb("show")
def show(asked: Invocation) -> None:
    """Show where messages are stored, how many there are, and how much space they take."""
    from harken.config.load import load
    from harken.setup.doctor import describe

    found = describe(asked.home, load(asked.home, {}, os.environ).settings.store, os.environ)
    said = {
        "backend": found.backend,
        "place": found.place,
        "schema": found.schema,
        "store": str(found.contents.identity),
        "moved_to": found.contents.moved_to,
        "bytes": found.size,
        "counts": dict(found.contents.counts),
    }
    if asked.gave_json(said):
        return
    rows = [("store", found.place), ("id", f"{found.contents.identity}"), ("schema", f"{found.schema}")]
    rows += [("size", human(found.size)), *((name, f"{count}") for name, count in found.contents.counts.items())]
    asked.screen.table(rows)
    if found.contents.moved_to:
        asked.screen.line(f"Not in use: the store is {found.contents.moved_to}.")


@verb("move")
@click.argument("url", metavar="URL|sqlite")
@click.option("--schema", metavar="NAME", default=None, help="The schema in PostgreSQL (default: harken).")
@click.option(
    "--password",
    metavar="REFERENCE",
    default="",
    help="A reference to its password, such as env:NAME.",
)
@click.option("--dry-run", is_flag=True, help="Show what would happen, without doing it.")
def move(asked: Invocation, *, url: str, schema: str | None, password: str, dry_run: bool) -> None:
    """Move the store to PostgreSQL, or back into this home's file.

    URL is a value of store.url: postgresql://USER@HOST/DATABASE without a password, a reference to a URL, or sqlite.
    Stop Harken first. Copies everything, compares the copy, and switches to it. The old store is kept, marked as moved;
    no daemon opens it. If a move is interrupted, run the same command again to finish it.
    """
    from harken.config.load import load
    from harken.config.settings import StoreSettings
    from harken.setup import store as stores

    refuse_agent(asked, "move the store")
    loaded = load(asked.home, {}, os.environ)
    for name in NAMED:
        if loaded.origins[f"store.{name}"].startswith("environment"):
            raise UserError(
                f"HARKEN_STORE_{name.upper()} is set, and would count for more than config.toml.",
                "Unset it, then move.",
            )
    named = {"store.url": url, "store.schema": schema or StoreSettings().schema, "store.password": password}
    wanted, progress = load(asked.home, named, os.environ).settings.store, Progress()
    plan = stores.plan_move(
        asked.home,
        loaded.settings.store,
        wanted,
        os.environ,
        lambda table, done, total: progress.say(f"copying {table}: {done} of {total}"),
    )
    report = stores.move(plan, is_dry=dry_run)
    progress.end("copied and compared")
    if asked.gave_json(_record(report, is_dry=dry_run)):
        return
    _say(asked, report, is_dry=dry_run)


store.add_command(show)
store.add_command(move)
lists(store, "show")


def _record(report: MoveReport, *, is_dry: bool) -> Result:
    return {
        "state": "planned" if is_dry else "moved",
        "from": report.source,
        "to": report.target,
        "store": str(report.contents.identity),
        "counts": dict(report.contents.counts),
        "rows": {name: each.count for name, each in report.sums.items()},
    }


def _say(asked: Invocation, report: MoveReport, *, is_dry: bool) -> None:
    messages, events = (report.contents.counts[name] for name in ("messages", "events"))
    if is_dry:
        asked.screen.line(f"It would be moved from what is {report.source}")
        asked.screen.line(f"to what is {report.target}: {messages} messages, {events} events.")
        return
    asked.screen.line(f"The store is {report.target} now: {messages} messages, {events} events.")
    if report.sums:
        rows = sum(each.count for each in report.sums.values())
        asked.screen.line(f"All {rows} rows of {len(report.sums)} tables are there, compared by number and hash.")
    asked.screen.line(f"What is {report.source} is kept as it was, and no daemon opens it.")
    asked.screen.hint("Next: harken up. Words are found again as soon as they are indexed.")
    asked.screen.hint(f"To go back: harken down, then harken store move {report.way_back}")
    asked.screen.line(f"To remove the old one when you are sure: {report.removal}")
