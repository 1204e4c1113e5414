"""What `doctor` looks at: is everything in place, is it current, and what has been proven. It changes nothing.

What a surface has delivered is asked of a daemon that runs; none is started to be looked at. Each host is looked at
by its own module, which asks the host itself where it can.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from harken import __version__
from harken.cli.connecting import NEEDS_FIXING, Target, targets
from harken.cli.hints import at_home
from harken.cli.output import BOLD, DIM, Screen, clock_time
from harken.cli.planned import finding_record, found_record, heading, show_findings
from harken.cli.verbs import Invocation
from harken.config.load import load
from harken.control.client import Daemon, NoDaemon, Result
from harken.display import one_line
from harken.errors import HarkenError, UserError
from harken.hosts.apply import is_change, verify
from harken.hosts.names import short
from harken.hosts.plan import CommandStep, Finding, Wishes
from harken.hosts.record import records

ASK_SECONDS = 10.0
ANSWERS = "the daemon answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was found out about one host: where it is connected, and whether that is in order."""

    target: Target
    findings: Sequence[tuple[Path | None, Finding]]  # by the project they are about
    is_connected: bool


def check_up(asked: Invocation, names: Sequence[str]) -> None:
    """Look at Harken and some hosts, show it, and end with 1 when something needs fixing."""
    found = targets(asked, names, None)
    healths = [health_of(asked, target) for target in found]
    facts, own, surfaces = _harken(asked)
    if asked.as_json:
        asked.print_json(
            {
                "harken": facts | {"findings": [finding_record(finding) for finding in own]},
                "hosts": [_record(health, surfaces) for health in healths],
            }
        )
    else:
        _show(asked.screen, facts, own)
        for health in healths:
            _show_host(asked.screen, health, surfaces)
    every = [*own, *(finding for health in healths for _, finding in health.findings)]
    if any(not finding.is_good for finding in every):
        click.get_current_context().exit(NEEDS_FIXING)


def health_of(asked: Invocation, target: Target) -> Health:
    """Look at one host, for the person and in every project where it is connected."""
    own = list(_connection(target)) if is_connected(target) else []
    findings: list[tuple[Path | None, Finding]] = [(None, finding) for finding in own]
    for record in records(asked.home.path):
        if record.host == target.connector.name and record.project:
            project = Path(record.project)
            place = record.place(replace(target.place, project=project))
            inside = replace(target, place=place, record=record)
            findings += [(project, finding) for finding in _connection(inside)]
    return Health(target=target, findings=findings, is_connected=bool(findings))


def is_connected(target: Target) -> bool:
    """Whether it was connected, by our record or by entries in its files."""
    if target.record is not None:
        return True
    try:
        return any(is_change(step) for step in target.connector.removal(target.place).steps)
    except UserError:
        return False  # a file that cannot be understood: `connect` says so


def _connection(target: Target) -> Iterator[Finding]:
    name, record, project = target.connector.name, target.record, target.place.project
    again = f"harken connect {name}" + (f" --project {project}" if project else "")
    if project is not None and not project.is_dir():
        yield Finding(what=f"{project} is there", is_good=False, hint=f"Run: harken disconnect {name} --project …")
        return
    if not target.found:
        yield Finding(
            what="it is installed", is_good=False, hint=f"Install it, put it on the PATH, or: harken disconnect {name}"
        )
    if record is None:
        yield Finding(what="connected by this home", is_good=False, hint=f"Its entries are of another. Run: {again}")
    elif not record.is_whole:
        yield Finding(what="connecting was finished", is_good=False, hint=f"It was interrupted. Run: {again}")
    try:
        plan = target.connector.plan(target.place, Wishes(wake=record.wake if record else ""))
    except HarkenError as exc:
        yield Finding(what="its settings can be read", is_good=False, hint=f"{exc.message} {exc.hint}")
        return
    stale = [step for step in plan.steps if is_change(step)]
    about = [step.why if isinstance(step, CommandStep) else f"{short(step.path)} ({step.why})" for step in stale]
    other = f" It was connected with {record.python}." if record and record.python != target.place.python else ""
    hint = f"Not as this Harken would write it: {', '.join(about)}.{other} Run: {again}" if stale else ""
    yield Finding(what="connected and current", is_good=not stale, hint=hint)
    if target.found:
        yield from verify(target.connector, target.place)


def _harken(asked: Invocation) -> tuple[Result, list[Finding], list[Result]]:
    """Return what there is to know of Harken itself, what is wrong with it, and what its surfaces have proven."""
    facts: Result = {"version": __version__, "home": str(asked.home.path), "python": sys.executable, "daemon": None}
    findings = [_interpreter(record.python, record.host) for record in records(asked.home.path) if record.python]
    findings = [finding for finding in findings if not finding.is_good]
    findings += _settings(asked)
    findings += _database(asked)
    surfaces: list[Result] = []
    try:
        with Daemon(asked.home, can_start=False) as daemon:
            facts["daemon"] = daemon.ask_within(ASK_SECONDS, "status")["daemon"]
            surfaces = _evidence(daemon)
    except NoDaemon:
        if asked.home.down_file.exists():
            hint = "It was stopped with `harken down`: agents do not start it. Run: harken up"
            findings.append(Finding(what="the daemon is allowed to start", is_good=False, hint=hint))
    except HarkenError as exc:
        findings.append(Finding(what=ANSWERS, is_good=False, hint=f"{exc.message} {exc.hint}"))
    if facts["daemon"] and facts["daemon"]["version"] != __version__:
        hint = f"It is version {facts['daemon']['version']}. Run: harken up"
        findings.append(Finding(what="the daemon is of this version", is_good=False, hint=hint))
    return facts, findings, surfaces


def _settings(asked: Invocation) -> list[Finding]:
    """Return what is wrong with the settings: with those a daemon cannot start."""
    try:
        load(asked.home, {}, {})
    except HarkenError as exc:
        return [Finding(what="the settings in config.toml are valid", is_good=False, hint=f"{exc.message} {exc.hint}")]
    return []


def _database(asked: Invocation) -> list[Finding]:
    """Return what is wrong inside the database: what nobody reads for long nobody misses for long."""
    from harken.store.sqlite.connection import refuse_damage_inside

    if not asked.home.database.exists() and asked.home.identity_file.exists():
        hint = "harken.db is gone. Put it back where it was, or build it anew: harken down, then harken recover"
        return [Finding(what="the database is there", is_good=False, hint=hint)]
    try:
        if asked.home.database.exists():
            refuse_damage_inside(asked.home.database)
    except HarkenError as exc:
        return [Finding(what="the database is whole", is_good=False, hint=f"{exc.message} {exc.hint}")]
    return []


def _evidence(daemon: Daemon) -> list[Result]:
    try:
        found: list[Result] = daemon.ask_within(ASK_SECONDS, "evidence")["surfaces"]
    except HarkenError:
        return []  # an older daemon has no such verb
    return found


def _interpreter(python: str, host: str) -> Finding:
    is_there = os.access(python, os.X_OK)
    hint = "" if is_there else f"It is gone, and sessions cannot start Harken. Run: harken connect {host}"
    return Finding(what=f"the interpreter {python}", is_good=is_there, hint=hint)


def _surfaces_of(health: Health, surfaces: Sequence[Result]) -> list[Result]:
    return [surface for surface in surfaces if surface["consumer"] == health.target.connector.name]


def _record(health: Health, surfaces: Sequence[Result]) -> Result:
    return {
        "host": health.target.connector.name,
        "found": found_record(health.target.found),
        "is_connected": health.is_connected,
        "findings": [
            {**finding_record(finding), "project": str(project) if project else None}
            for project, finding in health.findings
        ],
        "surfaces": _surfaces_of(health, surfaces),
    }


def _show(screen: Screen, facts: Result, findings: Sequence[Finding]) -> None:
    screen.line(screen.paint(f"Harken {facts['version']}", BOLD))
    daemon = facts["daemon"]
    absent = "does not run: what was delivered is not known"
    unwell = "runs, and cannot say how it is: see below"
    is_unwell = any(each.what == ANSWERS for each in findings)
    state = f"runs (process {daemon['pid']})" if daemon else unwell if is_unwell else absent
    rows = [("home", facts["home"]), ("python", facts["python"]), ("daemon", state)]
    if daemon and "toasts" in daemon:  # an older daemon has none
        rows.append(("toasts", daemon["toasts"]))
    screen.table(rows)
    show_findings(screen, findings)


def _show_host(screen: Screen, health: Health, surfaces: Sequence[Result]) -> None:
    target = health.target
    screen.line(heading(screen, target.connector.name, target.found, None))
    if not health.is_connected:
        if target.found:
            screen.line(screen.paint(at_home(f"  Not connected. Run: harken connect {target.connector.name}"), DIM))
        return
    for project in dict.fromkeys(project for project, _ in health.findings):
        screen.line(f"  In {short(project)}:" if project else "  In every session:")
        show_findings(screen, [finding for place, finding in health.findings if place == project])
    own = _surfaces_of(health, surfaces)
    if own:
        screen.line("  What its surfaces have proven:")
        screen.table([("  " + one_line(row["surface"]), _proof(row)) for row in own])


def _proof(row: Result) -> str:
    counted = f"{row['offered']} offered, {row['seen']} seen"
    if row["seen"]:
        how = f" by {row['evidence']}" if row["evidence"] else ""
        return f"{counted}, last {clock_time(row['last_seen_at'])}{how}"
    return f"{counted}, not proven yet" if row["offered"] else "not used yet"
