"""How a plan looks on the screen and as JSON: what would change in which file, which commands would run.

It prints and decides nothing. Files belong to other programs and hold what their owners wrote: shown like any text
from outside, with nothing in it that could act on the terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from harken.cli.hints import at_home
from harken.cli.output import BOLD, CYAN, DIM, INDENT, RED, Screen
from harken.control.client import Result
from harken.display import one_line, visible
from harken.hosts.connect.apply import is_change
from harken.hosts.connect.plan import CheckFinding, CommandStep, ConnectPlan, FileEdit, InstalledProgram
from harken.hosts.registry import short, title_of

GREEN = "32"
CONTEXT_LINES = 2


def heading(screen: Screen, host: str, found: InstalledProgram | None, project: Path | None) -> str:
    """Return the line above what concerns one host."""
    where = f" in {short(project)}" if project else ""
    known = f" {one_line(found.version)} ({short(found.program)})" if found else " (not installed)"
    return screen.paint(f"{title_of(host)}{where}", BOLD) + screen.paint(known, DIM)


def show_plan(screen: Screen, plan: ConnectPlan) -> None:
    """Print what a plan changes: diffs, files of our own by name, commands, and what to know."""
    changes = [step for step in plan.steps if isinstance(step, FileEdit) and is_change(step)]
    for change in changes:
        if not change.is_ours:
            screen.line(f"  {short(change.path)}  {screen.paint(one_line(change.why), DIM)}")
            for line in diff_lines(change):
                screen.line(INDENT + _painted(screen, line))
    own = [change for change in changes if change.is_ours]
    if own:
        screen.line("  Files of Harken's own:")
        screen.table([("  " + _deed(change), short(change.path), change.why) for change in own])
    commands = [step for step in plan.steps if isinstance(step, CommandStep)]
    if commands:
        screen.line("  Commands:")
        for step in commands:
            screen.line(f"{INDENT}{one_line(shlex.join(step.argv))}  {screen.paint(one_line(step.why), DIM)}")
    show_notes(screen, plan.notes)


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
        screen.line(f"  {mark}  {screen.fit(finding.what, 6)}")
        if finding.hint and not finding.is_good:
            screen.text("  " + at_home(finding.hint))


def diff_lines(change: FileEdit) -> Iterator[str]:
    """Yield the lines of a unified diff, without the names of the files."""
    before, after = _lines(change.before), _lines(change.after)
    for number, line in enumerate(unified_diff(before, after, n=CONTEXT_LINES, lineterm="")):
        if number > 1:
            yield line
    if before == after and change.before != change.after:
        yield "(only the line ends, or whether there is a file at all)"


def plan_record(plan: ConnectPlan) -> Result:
    """Return a plan as JSON."""
    changes = [step for step in plan.steps if isinstance(step, FileEdit) and is_change(step)]
    return {
        "changes": [
            {
                "path": str(change.path),
                "what": _deed(change),
                "why": change.why,
                "is_ours": change.is_ours,
                "diff": [] if change.is_ours else list(diff_lines(change)),
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


def _deed(change: FileEdit) -> str:
    if change.before is None:
        return "create"
    return "remove" if change.after is None else "change"


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def _painted(screen: Screen, line: str) -> str:
    style = {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")
    text = visible(line).replace("\n", " ")
    return screen.paint(text, style) if style else text
