"""The verb `retention`: how long messages are kept and what is over that; and `retention run`, which removes it now.

The daemon does the same by itself, now and then. What was not seen becomes expired first, and stays to be seen.
"""

from __future__ import annotations

from datetime import timedelta

import click

from harken.cli.invocation import Invocation
from harken.cli.output import Screen, note_to_person
from harken.cli.progress import Progress
from harken.cli.verbs import or_subcommand, verb, verb_command
from harken.control.client import DaemonClient, Result

ROUND_SECONDS = 300.0
MAX_ROUNDS = 100_000


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
