"""The verbs that look at Harken itself: `status`, `stats` and `journal`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from time import monotonic, sleep

import click

from harken.cli.complete import consumers
from harken.cli.open import browser_row
from harken.cli.output import Screen, clock_time, json_text, sender_of
from harken.cli.source_show import show_sources
from harken.cli.verbs import Invocation, verb, verb_command, verb_option
from harken.control.client import DaemonClient, NoDaemon, Result
from harken.display import author_name, one_line, reader_name
from harken.errors import Unavailable
from harken.hosts.registry import short

POLL_SECONDS = 0.3
AWAY_SECONDS = 15.0
PAGE = 500
STATUS_SECONDS = 10.0
LEFT_OUT = "Not given when the consumer began (see it: harken list --mailbox NAME --before SEQ)"


@verb_command("status")
def status(asked: Invocation) -> None:
    """Exits with 5 when no daemon runs, and does not start one."""
    from harken.setup.service import installed

    try:
        with asked.daemon(can_start=False) as daemon:
            found = daemon.ask_within(STATUS_SECONDS, "status")
    except NoDaemon as exc:
        if not asked.as_json:
            raise
        asked.print_json({"daemon": None})
        click.get_current_context().exit(exc.exit_code)
    if asked.gave_json(found):
        return
    _show_status(asked.screen, found)
    if (file := installed(asked.home, os.environ)) is not None:
        asked.screen.hint(f"Service: {short(file)}; see harken service status")


@verb_command("stats")
@verb_option("stats", "consumer", shell_complete=consumers)
def stats(asked: Invocation, *, consumer: str) -> None:
    found = asked.ask("stats", consumer=consumer)
    if asked.gave_json(found):
        return
    oldest = f", the oldest from {clock_time(found['oldest_ts'])}" if found["oldest_ts"] else ""
    asked.screen.line(f"{found['depth']} unread for {reader_name(found['consumer'])}{oldest}.")
    asked.screen.table([(name or "-", str(count)) for name, count in found["unread_by_channel"].items()])
    if found["dropped_total"]:
        asked.screen.line(f"{found['dropped_total']} could not be kept while the store was away.")
    _section(asked.screen, LEFT_OUT, [_left_out_row(each) for each in found["left_out"]])


@verb("journal")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--limit", "-n", default=20, show_default=True, help="Begin with this many of the newest events.")
def journal(asked: Invocation, *, follow: bool, limit: int) -> None:
    """Show what happened.

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


def _show_status(screen: Screen, found: Result) -> None:
    daemon = found["daemon"]
    since = clock_time(daemon["started_at"])
    screen.line(f"Harken {one_line(daemon['version'])} runs since {since} (process {daemon['pid']}).")
    # What there is none of says nothing; without it the line fits a narrow terminal.
    some = {name: count for name, count in found["store"].items() if count or name == "messages"}
    lag = some.pop("not_indexed", 0)
    counts = ", ".join(_counted(count, name.replace("_", " ")) for name, count in some.items())
    rows = [("address", daemon["url"]), ("home", daemon["home"]), ("store", f"{daemon['store']}: {counts}")]
    screen.table([(name, str(value)) for name, value in rows])
    if daemon["store_problem"]:
        screen.line(screen.paint("Nothing can be stored: ", "31") + screen.fit(daemon["store_problem"], 23))
    if lag:
        screen.line(f"Not indexed yet, so not found by search: {_counted(lag, 'messages')}")
    if daemon.get("port_problem"):
        screen.line(screen.paint("Port: ", "31") + screen.fit(daemon["port_problem"], 6))
    _section(screen, "Sessions", [_session_row(item) for item in found["sessions"]], "none is connected")
    unread = [(item["consumer"], item["session"], item["problem"]) for item in found["sessions"] if item["problem"]]
    _section(screen, "Sessions that read nothing", unread)
    _section(screen, "Consumers", [_consumer_row(item) for item in found["consumers"]], "none yet")
    short = [place for place in found["consumers"] if place["left_out"] and place["left_out"]["up_to"]]
    left_out = [(place["consumer"], place["left_out"] | {"mailbox": place["mailbox"]}) for place in short]
    _section(screen, LEFT_OUT, [(reader_name(name), *_left_out_row(omission)) for name, omission in left_out])
    _section(screen, "Browsers that are signed in", [browser_row(each) for each in daemon.get("browsers", [])])
    screen.line("Sources:" if daemon["sources"] else "Sources: none configured")
    show_sources(screen, daemon["sources"], "  ")
    _section(screen, "Senders", [(r["sender"], author_name(r["trust"]), _from(r["source"])) for r in found["senders"]])
    refused = [
        (r["sender"], _from(r["source"]), f"{clock_time(r['at'])}: {r['reason']}") for r in found["refused_pairings"]
    ]
    _section(screen, "Sent a pairing code and were not admitted", refused)
    _section(screen, "Muted", [(m["kind"], m["name"], _until(m["until"])) for m in found["mutes"]])
    _show_rules(screen, found["rules"])
    if found["waiting"]["count"]:
        screen.hint(f"{one_line(found['waiting']['sentence'])}: harken waiting")
    _show_troubles(screen, found)


def _show_rules(screen: Screen, rules: Result) -> None:
    if not any(rules[key] for key in ("rules", "asked", "running", "problem", "is_changed")):
        return
    parts = [f"{rules['rules']} in force" + (", paused" if rules["is_paused"] else "")]
    parts += [f"{rules[key]} {word}" for key, word in (("queued", "queued"), ("running", "running")) if rules[key]]
    screen.line(f"Rules: {', '.join(parts)}")
    if rules["asked"]:
        since = clock_time(rules["oldest_asked_at"])
        screen.hint(f"  {rules['asked']} wait for your answer, the oldest since {since}: harken channel confirm")
    if rules["is_changed"] and not rules["problem"]:
        screen.hint("  triggers.json has changed since it was put in force: harken rules reload")
    if rules["problem"]:
        screen.line(screen.paint("  triggers.json is not in force: ", "31") + screen.fit(rules["problem"], 33))


def _show_troubles(screen: Screen, found: Result) -> None:
    daemon = found["daemon"]
    if found["waiting_replies"]:
        screen.line(f"Replies on their way: {found['waiting_replies']}")
    parked = [(reply["reply_id"], reply["message_id"], reply["error"]) for reply in found["parked"]]
    _section(screen, "Replies that could not be sent", parked)
    _section(screen, "Parts that keep failing", list(daemon["parked_loops"].items()))
    held = [(d["source"], d["channel"], d["from"], f"{d['characters']} characters") for d in found["not_stored"]]
    _section(screen, "Not stored, because the store is away", held)
    if daemon["journal_problem"]:
        screen.line(screen.paint("Journal: ", "31") + screen.fit(daemon["journal_problem"], 9))


def _section(screen: Screen, title: str, rows: Sequence[tuple[str, ...]], nothing: str = "") -> None:
    if rows:
        screen.line(f"{title}:")
        screen.table(rows)
    elif nothing:
        screen.line(f"{title}: {nothing}")


def _session_row(session: Result) -> tuple[str, ...]:
    active = f"active {clock_time(session['last_active'])}"
    wake = "can be woken" if session["can_wake"] else session["hindrance"]
    return (session["consumer"], session["presence"], active, session["session"], session["cwd"], wake)


def _consumer_row(place: Result) -> tuple[str, ...]:
    return (
        reader_name(place["consumer"]),
        place["mailbox"],
        f"{place['unread']} unread",
        f"at #{place['cursor']} of {place['head']}",
    )


def _counted(count: int, names: str) -> str:
    """Return a number of things, of which the plural is given."""
    singular = {"deliveries": "delivery", "mailboxes": "mailbox"}.get(names, names.removesuffix("s"))
    return f"{count} {singular if count == 1 else names}"


def _left_out_row(left_out: Result) -> tuple[str, ...]:
    """Say how much a consumer was not given when it began, why, and where that is."""
    reasons = ((left_out["surplus"], "too many"), (left_out["older"], "older"))
    return (
        left_out["mailbox"],
        ", ".join(f"{count} {reason}" for count, reason in reasons if count),
        f"before #{left_out['up_to'] + 1}",
    )


def _from(source: str) -> str:
    return "from any source" if source == "*" else f"from {source}"


def _until(stamp: str | None) -> str:
    return f"until {clock_time(stamp)}" if stamp else "until unmuted"
