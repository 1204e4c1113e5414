"""What `harken status` prints. It is imported without click, and by a screen that is written anew now and then."""

from __future__ import annotations

import os

from harken.cli.output import RED, clock_time
from harken.cli.source_show import show_sources
from harken.control.client import NoDaemon
from harken.display import YOU, author_name, counted, one_line, reader_name, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from harken.cli.invocation import Invocation
    from harken.cli.output import Screen
    from harken.control.client import Result

STATUS_SECONDS = 10.0
UNCONNECTED = "none is connected. Connect those that you have: harken connect"
LEFT_OUT = "Not given when the consumer began (see it: harken list --mailbox NAME --before SEQ)"


def status(asked: Invocation, *, is_all: bool) -> int:
    """Print what waits for you, the agents and the sources; with `is_all` also the insides. Return the exit code."""
    try:
        with asked.daemon(can_start=False) as daemon:
            found = daemon.ask_within(STATUS_SECONDS, "status")
    except NoDaemon as exc:
        if not asked.as_json:
            raise
        asked.print_json({"daemon": None})
        return exc.exit_code
    if asked.gave_json(found):
        return 0
    _show_yours(asked.screen, found)
    _show_agents(asked.screen, found)
    asked.screen.line("Sources:" if found["daemon"]["sources"] else "Sources: none configured")
    show_sources(asked.screen, found["daemon"]["sources"], "  ")
    _show_rules(asked.screen, found["rules"])
    show_section(asked.screen, "Muted", [(m["kind"], m["name"], _until(m["until"])) for m in found["mutes"]])
    if is_all:
        _show_insides(asked.screen, found)
        _show_service(asked)
    else:
        asked.screen.hint(f"Harken {one_line(found['daemon']['version'])} is running. More: harken status --all")
    return 0


def _show_yours(screen: Screen, found: Result) -> None:
    """Print what waits for you, and first what keeps messages from coming."""
    daemon = found["daemon"]
    for name, label in (
        ("store_problem", "Nothing can be stored"),
        ("port_problem", "Port"),
        ("places_problem", "Agents"),
        ("journal_problem", "Journal"),
    ):
        if daemon.get(name):
            screen.flow(daemon[name], screen.paint(f"{label}: ", RED), len(label) + 2)
    held = [(d["source"], d["channel"], d["from"], f"{d['characters']} characters") for d in found["not_stored"]]
    show_section(screen, "Not stored, because the store is away", held)
    show_section(screen, "Parts that keep failing", list(daemon["parked_loops"].items()))
    unread = sum(place["unread"] for place in found["consumers"] if reader_name(place["consumer"]) == YOU)
    if unread:
        screen.hint(f"{unread} unread for you: harken pull")
    # An earlier version of the daemon does not say it, and an agent is not told.
    if (approvals := found.get("approvals") or {"count": 0})["count"]:
        which = "agent asks" if approvals["count"] == 1 else "agents ask"
        since = clock_time(approvals["oldest"])
        screen.hint(f"{approvals['count']} {which} before a tool is used, since {since}: harken approve")
    if rules := approvals.get("rules", 0):
        screen.line(f"{counted(rules, 'rule')} in the settings: what agents ask is refused, or asked each time.")
    needs = (found.get("needs") or {"count": 0})["count"]
    if needs:
        screen.hint(f"{counted(needs, 'thing')} {'needs' if needs == 1 else 'need'} you: harken needs")
    if found["waiting"]["count"]:
        screen.hint(f"{one_line(found['waiting']['sentence'])}: harken waiting")
    if asked := found["rules"]["asked"]:
        since = clock_time(found["rules"]["oldest_asked_at"])
        waits = "1 run waits for your yes, since" if asked == 1 else f"{asked} runs wait for your yes, the oldest since"
        screen.hint(f"{waits} {since}: harken channel confirm")
    parked = [(reply["reply_id"], reply["message_id"], reply["error"]) for reply in found["parked"]]
    show_section(screen, "Replies that could not be sent", parked)
    refused = [
        (r["sender"], _from(r["source"]), f"{clock_time(r['at'])}: {r['reason']}") for r in found["refused_pairings"]
    ]
    show_section(screen, "Sent a pairing code and were not admitted", refused)
    if not (unread or needs or found["waiting"]["count"] or asked or parked or refused):
        screen.line("Nothing needs you.")


def _show_agents(screen: Screen, found: Result) -> None:
    """Print the sessions, and what waits for agents."""
    if found["sessions"]:
        screen.line("Agents:")
        has_machines = any(item.get("machine") for item in found["sessions"])
        screen.table([_session_row(item, has_machines=has_machines) for item in found["sessions"]])
    else:
        is_connected = _has_connections(found["daemon"]["home"])
        screen.hint(f"Agents: {'no session is open' if is_connected else UNCONNECTED}")
    deaf = [(item["consumer"], item["session"], item["problem"]) for item in found["sessions"] if item["problem"]]
    show_section(screen, "Sessions that read nothing", deaf)
    followed = [
        (each["consumer"], each["sentence"], f"told {each['told']}, since {clock_time(each['since'])}")
        for each in found["daemon"].get("subscriptions", [])
    ]
    posted = [
        (each["token"], each["sentence"], each["error"] or f"told {each['told']}", f"{each['state']}")
        for each in found["callbacks"] or ()
    ]
    show_section(screen, "Subscribed to events", followed)
    show_section(screen, "Events are posted", posted)
    waits = [
        (place["consumer"], place["mailbox"], f"{place['unread']} unread")
        for place in found["consumers"]
        if place["unread"] and reader_name(place["consumer"]) != YOU
    ]
    show_section(screen, "Waits for agents", waits)


def _has_connections(home: str) -> bool:
    """Whether `connect` has written into the settings of any agent: it joins when it is started."""
    try:
        with os.scandir(f"{home}/connected") as files:  # without `pathlib`, which costs more than all the rest
            return any(each.name.endswith(".json") for each in files)
    except FileNotFoundError:
        return False


def _show_rules(screen: Screen, rules: Result) -> None:
    if not any(rules[key] for key in ("rules", "running", "problem", "is_changed")):
        return
    parts = [f"{rules['rules']} in force" + (", paused" if rules["is_paused"] else "")]
    parts += [f"{rules[key]} {word}" for key, word in (("queued", "queued"), ("running", "running")) if rules[key]]
    screen.line(f"Rules: {', '.join(parts)}")
    if count := rules["cannot_run"]:
        screen.hint(f"  {counted(count, 'rule')} can neither ask nor run, for want of an agent: harken rules list")
    if rules["is_changed"] and not rules["problem"]:
        screen.hint("  triggers.json has changed since it was put in force: harken rules reload")
    if rules["problem"]:
        first, *others = rules["problem"].splitlines()
        screen.line(screen.paint("  triggers.json is not in force: ", RED) + screen.fit(first, 33))
        if others:
            screen.hint(f"  {counted(len(others), 'more fault')}: harken rules check")


def _show_insides(screen: Screen, found: Result) -> None:
    """Print the daemon, its store, how far each reader is, and who is let in."""
    daemon = found["daemon"]
    since = clock_time(daemon["started_at"])
    screen.line(f"Harken {one_line(daemon['version'])} has been running since {since} (process {daemon['pid']}).")
    # What there is none of says nothing; without it the line fits a narrow terminal.
    some = {name: count for name, count in found["store"].items() if count or name == "messages"}
    lag = some.pop("not_indexed", 0)
    size = some.pop("bytes", 0)
    words = [_counted(count, name.replace("_", " ")) for name, count in some.items()]
    counts = ", ".join([*words, *([size_text(size)] if size else [])])
    public = [("public", daemon["public_url"])] if daemon.get("public_url") else []
    rows = [("address", daemon["url"]), *public, ("home", daemon["home"]), ("store", f"{daemon['store']}: {counts}")]
    screen.table([(name, str(value)) for name, value in rows])
    show_section(screen, "Machines", [_machine_row(each) for each in daemon.get("daemons", [])])
    if lag:
        screen.line(f"Not indexed yet, so not found by search: {_counted(lag, 'messages')}")
    if found["waiting_replies"]:
        screen.line(f"Replies on their way: {found['waiting_replies']}")
    show_section(screen, "Consumers", [_consumer_row(item) for item in found["consumers"]], "none yet")
    short = [place for place in found["consumers"] if place["left_out"] and place["left_out"]["up_to"]]
    left_out = [(place["consumer"], place["left_out"] | {"mailbox": place["mailbox"]}) for place in short]
    show_section(screen, LEFT_OUT, [(reader_name(name), *left_out_row(omission)) for name, omission in left_out])
    show_section(screen, "Browsers that are signed in", [browser_row(each) for each in daemon.get("browsers", [])])
    senders = [(r["sender"], author_name(r["trust"]), _from(r["source"])) for r in found["senders"]]
    show_section(screen, "Senders", senders)


def _show_service(asked: Invocation) -> None:
    from harken.hosts.registry import short
    from harken.setup.service import installed

    if (file := installed(asked.home, os.environ)) is not None:
        asked.screen.hint(f"Service: {short(file)}; see harken service status")


def show_section(screen: Screen, title: str, rows: Sequence[tuple[str, ...]], nothing: str = "") -> None:
    """Print rows below a title, or that there is nothing."""
    if rows:
        screen.line(f"{title}:")
        screen.table(rows)
    elif nothing:
        screen.line(f"{title}: {nothing}")


def _session_row(session: Result, *, has_machines: bool) -> tuple[str, ...]:
    active = f"active {clock_time(session['last_active'])}"
    wake = "can be woken" if session["can_wake"] else session["hindrance"]
    where = [session.get("machine", "")] if has_machines else []
    doing = session["presence"]
    if session["halt"]:
        from harken.sessions.turns import Halt

        doing = f"{doing}, {Halt(session['halt']['kind']).words}"
    return (session["consumer"], doing, *where, active, session["session"], session["cwd"], wake)


def _machine_row(daemon: Result) -> tuple[str, ...]:
    since, seen = clock_time(daemon["started_at"]), clock_time(daemon["seen_at"])
    when = f"since {since}" if daemon["is_here"] else f"gone, last seen {seen}"
    return (daemon["machine"], f"version {daemon['version']}", when, daemon["id"])


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


def left_out_row(left_out: Result) -> tuple[str, ...]:
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


def browser_row(browser: Result) -> tuple[str, ...]:
    """Return what is said of a browser in a line."""
    since, used = clock_time(browser["began_at"]), clock_time(browser["used_at"])
    return (browser["id"], browser["browser"], f"since {since}", f"last used {used}")
