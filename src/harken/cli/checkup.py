"""How `doctor` shows what `setup/doctor.py` found: on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click

from harken.cli.connecting import NEEDS_FIXING, look_for_hosts
from harken.cli.hints import at_home
from harken.cli.output import BOLD, DIM, Screen, clock_time
from harken.cli.planned import finding_record, found_record, heading, show_findings
from harken.cli.verbs import Invocation
from harken.control.client import Result
from harken.display import one_line
from harken.hosts.registry import short
from harken.setup.doctor import HostHealth, OwnHealth, health_of, own_health


def check_up(asked: Invocation, names: Sequence[str]) -> None:
    """Look at Harken and some hosts, show it, and end with 1 when something needs fixing."""
    healths = [health_of(target) for target in look_for_hosts(asked, names, None)]
    own = own_health(asked.home)
    if asked.as_json:
        asked.print_json(
            {
                "harken": own.facts | {"findings": [finding_record(finding) for finding in own.findings]},
                "hosts": [_record(health, own.surfaces) for health in healths],
            }
        )
    else:
        _show(asked.screen, own)
        for health in healths:
            _show_host(asked.screen, health, own.surfaces)
    every = [*own.findings, *(finding for health in healths for _, finding in health.findings)]
    if any(not finding.is_good for finding in every):
        click.get_current_context().exit(NEEDS_FIXING)


def _surfaces_of(health: HostHealth, surfaces: Sequence[Result]) -> list[Result]:
    return [surface for surface in surfaces if surface["consumer"] == health.target.connector.name]


def _record(health: HostHealth, surfaces: Sequence[Result]) -> Result:
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


def _show(screen: Screen, own: OwnHealth) -> None:
    facts = own.facts
    screen.line(screen.paint(f"Harken {facts['version']}", BOLD))
    daemon = facts["daemon"]
    absent = "does not run: what was delivered is not known"
    unwell = "runs, and cannot say how it is: see below"
    state = f"runs (process {daemon['pid']})" if daemon else unwell if own.is_mute else absent
    rows = [("home", facts["home"]), ("python", facts["python"]), ("daemon", state)]
    if daemon and "toasts" in daemon:  # an older daemon has none
        rows.append(("toasts", daemon["toasts"]))
    screen.table(rows)
    show_findings(screen, own.findings)


def _show_host(screen: Screen, health: HostHealth, surfaces: Sequence[Result]) -> None:
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
