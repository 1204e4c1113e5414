"""Connecting, disconnecting and checking hosts as a person sees it: shown, asked about, done, verified.

It starts no daemon: the first session of a connected host does. An agent may do neither (`authority.py`). How a
host is connected is its module's business, doing and undoing that of `hosts/connect/apply.py`, checking that of
`setup/doctor.py`. Files belong to other programs and hold what their owners wrote: they are shown like any text from
outside.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harken.cli.authority import agree, refuse_agent
from harken.cli.invocation import Invocation
from harken.cli.output import (
    BOLD,
    CYAN,
    DIM,
    INDENT,
    RED,
    Screen,
    at_home,
    clock_time,
    note_to_person,
    width_of,
    wrapped,
)
from harken.control.client import Result
from harken.control.start import is_reachable
from harken.display import one_line, visible
from harken.errors import HarkenError
from harken.hosts.connect.apply import DisconnectResult, apply, file_outcomes, undo, verify
from harken.hosts.connect.plan import (
    CheckFinding,
    CommandStep,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    RemoteInbox,
    Step,
)
from harken.hosts.connect.record import shared_blocks
from harken.hosts.connect.targets import ConnectJob, ConnectTarget, job_of, targets
from harken.hosts.registry import short, title_of
from harken.setup.doctor import HostHealth, OwnHealth, health_of, own_health

NEEDS_FIXING = 1  # the exit code when something was found that is not as it should be
GREEN = "32"
DRY_RUN = "Say --yes; `connect --dry-run` shows it."


def look_for_hosts(
    asked: Invocation, names: Sequence[str], project: Path | None, remote: RemoteInbox | None = None
) -> list[ConnectTarget]:
    """Return the hosts with what is known of them; a person who waits is told what for."""
    if len(names) > 1 and sys.stderr.isatty():
        note_to_person("Looking for agents …")
    return targets(asked.home.path, names, project, remote=remote)


def connect_targets(
    asked: Invocation,
    found: Sequence[ConnectTarget],
    *,
    wake: str | None,
    has_approvals: bool | None = None,
    is_dry: bool,
    is_agreed: bool,
) -> None:
    """Show, ask, write and verify. Of several hosts, one that cannot be connected does not stop the others."""
    refuse_agent(asked, "connect hosts")
    is_alone = len(found) == 1
    jobs = [job_of(target, wake, is_alone=is_alone, has_approvals=has_approvals) for target in found]
    for job in jobs:
        if not asked.as_json:
            _show(asked, job)
    if not is_dry and any(job.is_todo for job in jobs):
        agree(asked, "Connect?", is_agreed=is_agreed, hint=DRY_RUN)
    results = [_planned(job) if is_dry else _connected(asked, job, is_alone=len(jobs) == 1) for job in jobs]
    if asked.as_json:
        asked.print_json({"hosts": results})
    elif any(result["state"] == "connected" for result in results):
        starts = any(job.target.remote is None for job in jobs) and not is_reachable(asked.home)
        first = " The first of them starts Harken in the background." if starts else ""
        asked.screen.line(f"New sessions use it.{first}")
    if any(result["error"] or not all(row["is_good"] for row in result["findings"]) for result in results):
        click.get_current_context().exit(NEEDS_FIXING)


def _planned(job: ConnectJob) -> Result:
    state = "failed" if job.error else "planned" if job.is_todo else "current"
    return _result(job, state, [], job.error)


def _connected(asked: Invocation, job: ConnectJob, *, is_alone: bool) -> Result:
    """Write and verify one host, and say so."""
    if job.error:
        return _result(job, "failed", [], job.error)
    target = job.target
    try:
        if job.is_todo:
            apply(job.plan, target.place, job.options, _progress)
        if target.found and sys.stderr.isatty():
            note_to_person(f"Checking that {target.name} sees it …")
        findings = list(verify(target.connector, target.place)) if target.found else []
    except HarkenError as exc:
        if is_alone:
            raise
        note_to_person(f"{target.name}: {exc.message} {exc.hint}")
        return _result(job, "failed", [], exc)
    if not asked.as_json:
        asked.screen.line(f"{target.name} is {'connected' if job.is_todo else 'connected and current'}.")
        show_findings(asked.screen, findings)
    return _result(job, "connected" if job.is_todo else "current", findings, None)


def _result(job: ConnectJob, state: str, findings: Sequence[CheckFinding], error: HarkenError | None) -> Result:
    project = job.target.place.project
    return {
        "host": job.target.connector.name,
        "project": str(project) if project else None,
        "url": remote.url if (remote := job.target.remote) else None,
        "state": state,
        "found": found_record(job.target.found),
        **plan_record(job.plan),
        "findings": [finding_record(finding) for finding in findings],
        "error": error.as_dict() if error else None,
    }


def disconnect_targets(asked: Invocation, found: Sequence[ConnectTarget], *, is_agreed: bool) -> None:
    """Show, ask, and take back."""
    refuse_agent(asked, "disconnect hosts")
    removals = [None if target.record else target.connector.removal(target.place) for target in found]
    todo = [plan is None or bool(plan.steps) for plan in removals]
    if not asked.as_json:
        for target, plan, is_todo in zip(found, removals, todo, strict=True):
            _show_removal(asked, target, plan, is_todo=is_todo)
    if any(todo):
        agree(asked, "Disconnect?", is_agreed=is_agreed, hint=DRY_RUN)
    results: list[Result] = []
    for target, is_todo in zip(found, todo, strict=True):
        done = undo(target.connector, target.place, _progress) if is_todo else DisconnectResult()
        results.append(
            {
                "host": target.connector.name,
                "project": str(target.place.project) if target.place.project else None,
                "state": "disconnected" if is_todo else "not_connected",
                "restored": [str(path) for path in done.restored],
                "cleaned": [str(path) for path in done.cleaned],
                "notes": list(done.notes),
            }
        )
        if not asked.as_json and is_todo:
            asked.screen.line(f"{target.name} is disconnected.")
            show_notes(asked.screen, done.notes)
    if asked.as_json:
        asked.print_json({"hosts": results})
    elif not found:
        asked.screen.line("No host is connected.")
    if any(result["notes"] for result in results):
        click.get_current_context().exit(NEEDS_FIXING)


def _show(asked: Invocation, job: ConnectJob) -> None:
    screen, target = asked.screen, job.target
    screen.line(heading(screen, target.connector.name, target.found, target.place.project))
    if job.error:
        screen.text(f"Cannot be connected: {job.error.message}\n{job.error.hint}")
    elif not job.is_todo:
        screen.line("  Nothing to change.")
        show_notes(screen, job.plan.notes)
    else:
        show_plan(screen, job.plan)
        unused = [(f"  --wake {way}", cost) for way, cost in target.connector.wakes.items() if way != job.options.wake]
        if unused:
            screen.line("  Other ways to be woken:")
            screen.table(unused)


def _show_removal(asked: Invocation, target: ConnectTarget, plan: ConnectPlan | None, *, is_todo: bool) -> None:
    screen = asked.screen
    if not is_todo:
        screen.line(f"{target.name} is not connected.")
        return
    screen.line(screen.paint(target.name, BOLD))
    if plan is not None:
        show_plan(screen, plan)
    elif target.record:
        shared = shared_blocks(target.place.harken, target.record.key)
        outcomes = file_outcomes(target.record, shared)
        for outcome in dict.fromkeys(outcomes.values()):
            screen.line(f"  {outcome.value}:")
            for path in (path for path, becomes in outcomes.items() if becomes is outcome):
                screen.text(short(path))
        commands = [one_line(shlex.join(deed.undo)) for deed in reversed(target.record.deeds) if deed.undo]
        if commands:
            screen.line("  Commands:")
        for command in commands:
            screen.text(command)


def _progress(step: Step) -> None:
    if isinstance(step, CommandStep) and sys.stderr.isatty():
        note_to_person(f"{one_line(shlex.join(step.argv))} …")


def heading(screen: Screen, host: str, found: InstalledProgram | None, project: Path | None) -> str:
    """Return the line above what concerns one host."""
    where = f" in {short(project)}" if project else ""
    known = f" {one_line(found.version)} ({short(found.program)})" if found else " (not installed)"
    return screen.paint(f"{title_of(host)}{where}", BOLD) + screen.paint(known, DIM)


def show_plan(screen: Screen, plan: ConnectPlan) -> None:
    """Print what a plan changes: diffs, files of our own by name, commands, and what to know."""
    changes = [step for step in plan.steps if isinstance(step, FileEdit)]
    for change in changes:
        if not change.is_ours:
            _show_reason(screen, f"  {short(change.path)}", change.why)
            for line in change.diff():
                screen.line(INDENT + _painted(screen, line))
    own = [change for change in changes if change.is_ours]
    if own:
        screen.line(f"  Files of Harken's own ({', '.join(dict.fromkeys(one_line(change.why) for change in own))}):")
        for change in own:
            screen.text(f"{change.deed}  {short(change.path)}")
    commands = [step for step in plan.steps if isinstance(step, CommandStep)]
    if commands:
        screen.line("  Commands:")
        for step in commands:
            screen.text(one_line(shlex.join(step.argv)))
            _show_reason(screen, "", step.why)
    show_notes(screen, plan.notes)


def _show_reason(screen: Screen, what: str, why: str) -> None:
    """Print what is done, and why, beside it where there is room."""
    beside = f"{what}  {one_line(why)}"
    if what and (not screen.width or width_of(beside) <= screen.width):
        screen.line(f"{what}  {screen.paint(one_line(why), DIM)}")
        return
    if what:
        screen.line(what)
    for piece in wrapped(one_line(why), screen.width - 2 * len(INDENT)) if screen.width else (one_line(why),):
        screen.line(f"{2 * INDENT}{screen.paint(piece, DIM)}")


def show_notes(screen: Screen, notes: Sequence[str]) -> None:
    """Print what people should know."""
    if notes:
        screen.line("  To know:")
        for note in notes:
            screen.text(f"- {note}")


def show_findings(screen: Screen, findings: Sequence[CheckFinding]) -> None:
    """Print what was looked at, and what to do about what is not right."""
    for finding in findings:
        mark = screen.paint("ok", GREEN) if finding.is_good else screen.paint("no", RED)
        screen.flow(finding.what, f"  {mark}  ", 6)
        if finding.hint and not finding.is_good:
            screen.text("  " + at_home(finding.hint))


def plan_record(plan: ConnectPlan) -> Result:
    """Return a plan as JSON."""
    changes = [step for step in plan.steps if isinstance(step, FileEdit)]
    return {
        "changes": [
            {
                "path": str(change.path),
                "what": change.deed,
                "why": change.why,
                "is_ours": change.is_ours,
                "diff": [] if change.is_ours else list(change.diff()),
            }
            for change in changes
        ],
        "commands": [
            {"argv": list(step.argv), "why": step.why} for step in plan.steps if isinstance(step, CommandStep)
        ],
        "notes": list(plan.notes),
    }


def found_record(found: InstalledProgram | None) -> Result | None:
    """Return an installed program as JSON."""
    return {"program": str(found.program), "version": found.version} if found else None


def finding_record(finding: CheckFinding) -> Result:
    """Return something that was looked at as JSON."""
    return {"what": finding.what, "is_good": finding.is_good, "hint": at_home(finding.hint)}


def _painted(screen: Screen, line: str) -> str:
    style = {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")
    text = visible(line).replace("\n", " ")
    return screen.paint(text, style) if style else text


NO_HOST = (
    "No agent that Harken connects by itself is installed here. Install one and run: harken connect\n"
    "Any other MCP client can start: harken mcp"
)


def check_up(asked: Invocation, names: Sequence[str]) -> None:
    """Look at Harken and some hosts, show it, and end with 1 when something needs fixing."""
    healths = [health_of(target) for target in look_for_hosts(asked, names, None)]
    own = own_health(asked.home)
    if asked.as_json:
        asked.print_json(
            {
                "harken": own.facts | {"findings": [finding_record(finding) for finding in own.findings]},
                "hosts": [_record(health, own) for health in healths],
            }
        )
    else:
        _show_doctor(asked.screen, own)
        for health in healths:
            _show_host(asked.screen, health, own)
        if not any(health.target.found for health in healths):
            asked.screen.hint(NO_HOST)
    every = [*own.findings, *(finding for health in healths for _, finding in health.findings)]
    if any(not finding.is_good for finding in every):
        click.get_current_context().exit(NEEDS_FIXING)


def _asked_by(health: HostHealth, own: OwnHealth) -> Result | None:
    return next((each for each in own.approvals if each["host"] == health.target.connector.name), None)


def _surfaces_of(health: HostHealth, surfaces: Sequence[Result]) -> list[Result]:
    return [surface for surface in surfaces if surface["consumer"] == health.target.connector.name]


def _record(health: HostHealth, own: OwnHealth) -> Result:
    return {
        "host": health.target.connector.name,
        "found": found_record(health.target.found),
        "is_connected": health.is_connected,
        "url": remote.url if (remote := health.target.remote) else None,
        "findings": [
            {**finding_record(finding), "project": str(project) if project else None}
            for project, finding in health.findings
        ],
        "surfaces": _surfaces_of(health, own.surfaces),
        "approvals": _asked_by(health, own),
    }


def _show_doctor(screen: Screen, own: OwnHealth) -> None:
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


def _show_host(screen: Screen, health: HostHealth, own: OwnHealth) -> None:
    target = health.target
    screen.line(heading(screen, target.connector.name, target.found, None))
    if not health.is_connected:
        if target.found:
            screen.line(screen.paint(at_home(f"  Not connected. Run: harken connect {target.connector.name}"), DIM))
        return
    for project in dict.fromkeys(project for project, _ in health.findings):
        where = f"In {short(project)}" if project else "In every session"
        by = f", by URL at {one_line(remote.url)}" if project is None and (remote := target.remote) else ""
        screen.line(f"  {where}{by}:")
        show_findings(screen, [finding for place, finding in health.findings if place == project])
    if target.place.has_approvals:
        screen.line(f"  What it asks can be answered elsewhere: {_asked(_asked_by(health, own))}.")
    if rows := _surfaces_of(health, own.surfaces):
        screen.line("  What its surfaces have proven:")
        screen.table([("  " + one_line(row["surface"]), _proof(row)) for row in rows])


def _asked(found: Result | None) -> str:
    """Return what the answers of its questions have proven."""
    if found is None:
        return "not asked yet"
    if not found["obeyed"]:
        return f"{found['asked']} asked, no answer proven yet"
    return f"{found['asked']} asked, {found['obeyed']} answers proven, last {clock_time(found['last_obeyed_at'])}"


def _proof(row: Result) -> str:
    counted = f"{row['offered']} offered, {row['seen']} seen"
    if row["seen"]:
        how = f" by {row['evidence']}" if row["evidence"] else ""
        return f"{counted}, last {clock_time(row['last_seen_at'])}{how}"
    return f"{counted}, not proven yet" if row["offered"] else "not used yet"
