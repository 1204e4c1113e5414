"""How `restore` says what it held back: as lines with what a person can do about each, and as JSON.

It shows what the store's `holding.py` returns, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harken.cli.output import Screen
from harken.control.client import Result
from harken.store.sqlite.snapshot import HeldWork


def held_record(held: HeldWork) -> Result:
    """Return what was held back, for programs."""
    return {
        "parked_replies": held.replies,
        "held_actions": [
            {"id": each.id, "state": each.state.value, "rule": each.rule, "message_id": each.message}
            for each in held.actions
        ],
        "interrupted_runs": [
            {"id": each.id, "rule": each.rule, "message_id": each.message, "agent": each.agent} for each in held.runs
        ],
        "unjudged": held.unjudged,
    }


def show_parked(screen: Screen, home: Path, powers: Sequence[tuple[str, str]], parked: Sequence[str]) -> None:
    """Print what was not put in force, and where it is."""
    if not parked:
        return
    screen.line("Not put in force, because it would")
    screen.table(powers)
    screen.line(f"It is parked in {home}, where nothing reads it: {', '.join(parked)}.")
    screen.hint("Copy what you want into config.toml and triggers.json, then: harken rules reload")
    screen.hint("Senders are admitted one by one: harken allow. Or restore into another home with --with-settings.")


def show_held(screen: Screen, held: HeldWork) -> None:
    """Print what was held back; nothing when nothing was."""
    if held.replies:
        screen.hint(f"{held.replies} replies waited to leave and may have left since; they are parked: harken status")
    if held.actions:
        screen.line(f"Actions that had not run then, and may have run since: {len(held.actions)}.")
        screen.table([(each.id, each.state.value, each.rule or "by hand", each.message) for each in held.actions])
        screen.line("None of them runs by itself.")
        if any(each.rule for each in held.actions):
            screen.hint("To run what a rule asked for now: harken channel run MESSAGE --rule RULE")
        if not all(each.rule for each in held.actions):
            screen.hint("To run what you asked for by hand now: harken channel run MESSAGE --agent HOST …")
    if held.runs:
        screen.line(f"Runs that were going on then: {len(held.runs)}.")
        screen.table([(each.id, each.state.value, each.rule or "by hand", each.message) for each in held.runs])
        screen.hint("None of them is begun again. See one: harken run show RUN")
    if held.unjudged:
        screen.line(f"Messages that rules had perhaps not looked at yet, and now will not: {held.unjudged}.")
        screen.hint("See them: harken list. To let a rule act on one: harken channel run MESSAGE --rule RULE")
