"""The verbs that look at Harken itself: `status`, whose function is in `status.py`, `stats` and `journal`."""

from __future__ import annotations

import sys
from time import monotonic, sleep

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import Screen, clock_time, json_text, sender_of
from harken.cli.status import LEFT_OUT, left_out_row, show_section
from harken.cli.verbs import light_command, verb, verb_command, verb_option
from harken.control.client import DaemonClient, Result
from harken.display import one_line, reader_name
from harken.errors import Unavailable

POLL_SECONDS = 0.3
AWAY_SECONDS = 15.0
PAGE = 500


@light_command("status")
@click.option("--all", "is_all", is_flag=True, help="Include the daemon, its store, and each reader's position.")
def status() -> None:
    """Exits with 5 if no daemon is running, and does not start one."""


@verb_command("stats")
@verb_option("stats", "consumer", shell_complete=completer("consumers"))
def stats(asked: Invocation, *, consumer: str) -> None:
    found = asked.ask("stats", consumer=consumer)
    if asked.gave_json(found):
        return
    oldest = f", the oldest from {clock_time(found['oldest_ts'])}" if found["oldest_ts"] else ""
    asked.screen.line(f"{found['depth']} unread for {reader_name(found['consumer'])}{oldest}.")
    asked.screen.table([(name or "-", str(count)) for name, count in found["unread_by_channel"].items()])
    if found["dropped_total"]:
        asked.screen.line(f"{found['dropped_total']} could not be kept while the store was away.")
    show_section(asked.screen, LEFT_OUT, [left_out_row(each) for each in found["left_out"]])


@verb("journal")
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("--limit", "-n", default=20, show_default=True, help="Start with this many of the newest events.")
def journal(asked: Invocation, *, follow: bool, limit: int) -> None:
    """Show the journal: everything that happened.

    With --follow, --json prints one event per line.
    """
    with asked.daemon() as daemon:
        last = daemon.ask("journal", after=-1)["last"]
        page = _events(daemon, max(0, last - max(0, limit)), last)
    if asked.as_json and not follow:
        asked.print_json(page)
        return
    _show_events(asked, page["events"])
    if follow:
        _follow(asked, page["last"])


def _events(daemon: DaemonClient, after: int, last: int) -> Result:
    events: list[Result] = []
    while after < last:
        page = daemon.ask("journal", after=after, limit=PAGE)
        if not page["events"]:
            break
        events += page["events"]
        after = page["last"]
    return {"events": events, "last": max(after, last)}


def _follow(asked: Invocation, last: int) -> None:
    """Show events as they come. A daemon that is restarted is waited for, but none is started to be looked at."""
    away_until = monotonic() + AWAY_SECONDS
    with asked.daemon(can_start=False) as daemon:
        while True:
            try:
                page = daemon.ask("journal", after=last, limit=PAGE)
            except Unavailable:
                if monotonic() > away_until:
                    raise
                page = {"events": [], "last": last}
            else:
                away_until = monotonic() + AWAY_SECONDS
            _show_events(asked, page["events"])
            last = page["last"]
            if len(page["events"]) < PAGE:
                sleep(POLL_SECONDS)


def _show_events(asked: Invocation, events: list[Result]) -> None:
    for event in events:
        asked.screen.line(json_text(event) if asked.as_json else _event_line(asked.screen, event))
    sys.stdout.flush()


def _event_line(screen: Screen, event: Result) -> str:
    shown = {"n", "at", "kind", "message"}
    words = [f"{key}={_plain(value)}" for key, value in event.items() if key not in shown and value not in ("", None)]
    if record := event.get("message"):
        words.append(f"{record['id']} {sender_of(record)}: {record['content_text_sanitized']}")
    head = f"{event['n']} {clock_time(event['at'])} {one_line(event['kind'])} "
    return screen.paint(head, "2") + screen.fit(" ".join(words), len(head))


def _plain(value: object) -> str:
    if isinstance(value, dict | list):
        return ",".join(str(item) for item in (value.values() if isinstance(value, dict) else value))
    return str(value)
