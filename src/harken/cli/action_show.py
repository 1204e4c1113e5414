"""How actions look on the screen: what one would do, what was answered, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from harken.automation import ANY_AGENT, DEFAULT_TOOLS, OWN_FOLDER
from harken.cli.output import BOLD, RED, Screen, note_to_person, width_of
from harken.cli.rule_show import glance, show_message
from harken.control.client import Result
from harken.display import one_line
from harken.hosts.registry import short, title_of

MINUTE = 60
PROMPT_CHARS = 1_000


class RunOptions(msgspec.Struct, frozen=True):
    """What a person wants to be run, as far as they said."""

    rule: str
    agent: str
    tools: tuple[str, ...]
    workdir: Path | None
    prompt: str

    def arguments(self) -> Result:
        """Return it as the verb takes it."""
        folder = str(self.workdir.resolve()) if self.workdir else ""
        return {
            "rule": self.rule,
            "agent": self.agent,
            "tools": list(self.tools),
            "workdir": folder,
            "prompt": self.prompt,
        }


def show_wish(screen: Screen, wish: RunOptions, rule: Result | None) -> None:
    """Print what would run: what was said, else what the rule says."""
    said = wish.arguments()
    known = rule or {"agent": "", "runs_on": "", "tools": [], "workdir": "", "cannot_run": ""}
    tools = said["tools"] or known["tools"] or DEFAULT_TOOLS
    agent = said["agent"] or known["runs_on"] or known["agent"]
    screen.table(_order_rows(agent, said["workdir"] or known["workdir"], tools))
    if known["cannot_run"] and not (wish.agent or wish.tools):
        screen.flow(f"cannot run: {known['cannot_run']}", "  ", 2, RED)


def show_waiting(screen: Screen, actions: Sequence[Result]) -> None:
    """Print the questions that wait, each with the time that is left."""
    for each in actions:
        head = f"{one_line(each['id'])}  {one_line(each['rule'])}  {left(each['expires_at'])}"
        screen.line(screen.paint(screen.fit(head), BOLD))
        rows = _order_rows(each["runs_on"], each["folder"], each["tools"])
        screen.table([*rows, ("message", glance(each["message"]))])
        screen.line("  it is told:")
        for line in _shortened(each["prompt"]).splitlines():
            screen.line(screen.fit(f"    {one_line(line)}"))
    if actions:
        note_to_person("Answer: harken channel confirm ACTION, or harken channel confirm ACTION no")
    else:
        note_to_person("Nothing waits for your answer.")


def show_action(screen: Screen, action: Result) -> None:
    """Print an action: what it is about, what it does, and what follows."""
    show_message(screen, action["message"])
    if action["state"] in ("queued", "started", "waiting"):
        screen.table(_order_rows(action["runs_on"], action["folder"], action["tools"]))
    head = f"{one_line(action['id'])}  {screen.paint(one_line(action['state']), BOLD)}  "
    taken = width_of(f"{one_line(action['id'])}  {one_line(action['state'])}  ")
    screen.line(head + screen.fit(what_follows(action), taken))


def what_follows(action: Result) -> str:
    """Return what becomes of an action, in a few words."""
    if action["run"]:
        return f"runs as {action['run']}: harken run follow {action['run']}"
    if action["state"] == "queued":
        return f"starts when {title_of(action['agent']) if action['agent'] else 'an agent'} is free"
    if action["state"] == "waiting":
        return f"waits for your answer, {left(action['expires_at'])}: harken channel confirm {action['id']}"
    if action["state"] == "declined":
        return "nothing runs"
    return str(action["reason"])


def left(stamp: str | None, now: datetime | None = None) -> str:
    """Return how much time is left until then."""
    if not stamp:
        return "no end"
    seconds = (datetime.fromisoformat(stamp) - (now or datetime.now().astimezone())).total_seconds()
    if seconds <= 0:
        return "time is over"
    return f"{seconds / MINUTE:.0f} min left" if seconds >= 2 * MINUTE else f"{seconds:.0f} s left"


def _shortened(prompt: str) -> str:
    """Return what an agent is told, as far as a screen has room, and how much more there is."""
    more = len(prompt) - PROMPT_CHARS
    return prompt if more <= 0 else f"{prompt[:PROMPT_CHARS]}\n… and {more} characters more"


def _order_rows(agent: str, workdir: str, tools: Sequence[str]) -> list[tuple[str, str]]:
    rows = [
        ("agent", title_of(agent) if agent else ANY_AGENT),
        ("folder", short(Path(workdir)) if workdir else OWN_FOLDER),
        ("tools", ", ".join(tools)),
    ]
    rows += [("to know", "a shell is not fenced: it can do what you can do")] if "shell" in tools else []
    return rows
