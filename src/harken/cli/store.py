"""The verbs of the store: `store show`, `store move` and `retention`: where messages are kept, and for how long.

`store` works on the store itself and asks no daemon. What a move does, and in which order, is in `setup/store.py`.
`retention run` removes now what the daemon removes by itself, now and then: what was not seen becomes expired first,
and stays to be seen.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from harken.cli.authority import refuse_agent
from harken.cli.invocation import Invocation
from harken.cli.output import Screen, human, note_to_person
from harken.cli.progress import Progress
from harken.cli.verbs import lists, or_subcommand, verb, verb_command
from harken.config.satellite import refuse_on_satellite
from harken.control.client import DaemonClient, Result
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.setup.store import MoveReport

NAMED: Final = ("url", "schema", "password")
ROUND_SECONDS = 300.0
MAX_ROUNDS = 100_000


@click.group()
def store() -> None:
    """Show where your messages are stored, and move them."""


@verb("show")
def show(asked: Invocation) -> None:
    """Show where messages are stored, how many there are, and how much space they take."""
    refuse_on_satellite(asked.home, "looking at the store")
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
    refuse_on_satellite(asked.home, "moving the store")
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


@or_subcommand
@verb_command("retention")
def retention(asked: Invocation) -> None:
    with asked.daemon() as daemon:
        _look(asked, daemon)


@verb("run")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
def run(asked: Invocation, *, dry_run: bool) -> None:
    """Expire and remove everything over the limits now.

    Unseen messages become expired, and are removed a week later. A message with a reply on its way stays.
    """
    with asked.daemon() as daemon:
        if dry_run:
            _look(asked, daemon)
            return
        done = _rounds(daemon)
    if asked.as_json:
        asked.print_json(done)
    else:
        asked.screen.line(f"{done['expired']} expired, {done['deleted']} removed.")


retention.add_command(run)


def _rounds(daemon: DaemonClient) -> Result:
    progress, done = Progress(), {"expired": 0, "deleted": 0}
    for _ in range(MAX_ROUNDS):
        found = daemon.ask_within(ROUND_SECONDS, "retention_run")
        done = {name: count + found[name] for name, count in done.items()}
        progress.say(f"{done['expired']} expired, {done['deleted']} removed")
        if not any(found.values()):
            break
    progress.end("")
    return done


def _look(asked: Invocation, daemon: DaemonClient) -> None:
    found = daemon.ask("retention")
    if asked.as_json:
        asked.print_json(found)
    else:
        _show(asked.screen, found)


def _show(screen: Screen, found: Result) -> None:
    age, stays = (_days(found[name]) for name in ("max_age_seconds", "expired_stays_seconds"))
    screen.line(
        f"A mailbox keeps {found['max_messages']} messages, for {age}. Expired messages stay visible for {stays}."
    )
    rows = [_row(each) for each in found["mailboxes"] if each["stored"]]
    if rows:
        screen.table([("mailbox", "stored", "over", "to expire", "to remove"), *rows])
    if any(each["to_expire"] or each["to_delete"] for each in found["mailboxes"]):
        note_to_person("The daemon does this within the hour. To do it now: harken retention run")
    elif any(each["over"] for each in found["mailboxes"]):
        note_to_person("What exceeds the limits has just expired, or has an unsent reply; it is removed later.")
    else:
        note_to_person("Nothing exceeds the limits. Change them in config.toml: store.max_messages, store.max_age")


def _row(each: Result) -> tuple[str, ...]:
    numbers = (each["stored"], each["over"], each["to_expire"], each["to_delete"])
    return (each["mailbox"], *(str(number) if number else "-" for number in numbers))


def _days(seconds: float) -> str:
    days = timedelta(seconds=seconds) / timedelta(days=1)
    return f"{days:.3g} day{'' if days == 1 else 's'}"
