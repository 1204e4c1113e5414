"""Connecting and disconnecting as a person sees it: shown, asked about, done, verified.

It starts no daemon: the first session of a connected host does. An agent may do neither (`authority.py`). How a
host is connected is its module's business, doing and undoing that of `hosts/connect/apply.py`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harken.cli.authority import refuse_agent
from harken.cli.output import BOLD, note_to_person
from harken.cli.planned import (
    finding_record,
    found_record,
    heading,
    plan_record,
    show_findings,
    show_notes,
    show_plan,
)
from harken.cli.verbs import Invocation
from harken.control.client import Result
from harken.control.start import is_reachable
from harken.display import one_line
from harken.errors import HarkenError, UserError
from harken.hosts.connect.apply import DisconnectResult, apply, file_outcomes, is_change, undo, verify
from harken.hosts.connect.plan import CheckFinding, CommandStep, ConnectPlan, Step
from harken.hosts.connect.record import shared_blocks
from harken.hosts.registry import short
from harken.setup.connect import ConnectJob, ConnectTarget, job_of, targets

NEEDS_FIXING = 1  # the exit code when something was found that is not as it should be


def look_for_hosts(asked: Invocation, names: Sequence[str], project: Path | None) -> list[ConnectTarget]:
    """Return the hosts with what is known of them; a person who waits is told what for."""
    if len(names) > 1 and sys.stderr.isatty():
        note_to_person("Looking for agent hosts …")
    return targets(asked.home.path, names, project)


def connect_targets(
    asked: Invocation, found: Sequence[ConnectTarget], *, wake: str | None, is_dry: bool, is_agreed: bool
) -> None:
    """Show, ask, write and verify. Of several hosts, one that cannot be connected does not stop the others."""
    refuse_agent(asked, "connect hosts")
    jobs = [job_of(target, wake, is_alone=len(found) == 1) for target in found]
    for job in jobs:
        if not asked.as_json:
            _show(asked, job)
    if not is_dry and any(job.is_todo for job in jobs):
        _agree(asked, "Connect?", is_agreed=is_agreed)
    results = [_planned(job) if is_dry else _connected(asked, job, is_alone=len(jobs) == 1) for job in jobs]
    if asked.as_json:
        asked.print_json({"hosts": results})
    elif any(result["state"] == "connected" for result in results):
        first = "" if is_reachable(asked.home) else " The first of them starts Harken in the background."
        asked.screen.line(f"Sessions that you start from now on have it.{first}")
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
            note_to_person(f"Looking whether {target.name} sees it …")
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
    todo = [plan is None or any(is_change(step) for step in plan.steps) for plan in removals]
    if not asked.as_json:
        for target, plan, is_todo in zip(found, removals, todo, strict=True):
            _show_removal(asked, target, plan, is_todo=is_todo)
    if any(todo):
        _agree(asked, "Disconnect?", is_agreed=is_agreed)
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
        screen.table([(short(path), outcome.value) for path, outcome in file_outcomes(target.record, shared).items()])
        for deed in reversed(target.record.deeds):
            if deed.undo:
                screen.line(f"  {one_line(shlex.join(deed.undo))}")


def _agree(asked: Invocation, question: str, *, is_agreed: bool) -> None:
    if is_agreed:
        return
    if asked.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "This needs your yes, and nobody can be asked here.", "Say --yes; `connect --dry-run` shows it."
        )
    if not click.confirm(question, default=True):
        asked.screen.line("Nothing was changed.")
        click.get_current_context().exit(NEEDS_FIXING)


def _progress(step: Step) -> None:
    if isinstance(step, CommandStep) and sys.stderr.isatty():
        note_to_person(f"{one_line(shlex.join(step.argv))} …")
