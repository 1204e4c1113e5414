"""How sources look on the screen. What servers say of themselves is text from outside: one safe line each."""

from __future__ import annotations

from types import MappingProxyType

from harken.cli.output import BOLD, CYAN, DIM, INDENT, RED, clock_time
from harken.display import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from harken.cli.output import Screen
    from harken.control.client import Result

GREEN = "32"
_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"listening": GREEN, "connecting": CYAN, "elsewhere": CYAN, "retrying": RED, "needs person": RED}
)


def show_sources(screen: Screen, found: Sequence[Result], indent: str = "") -> None:
    """Print each source: its state, why it is not listening, and what came."""
    for each in found:
        _head(screen, each, indent)
        for line in details(each):
            screen.flow(line, indent + INDENT, len(indent + INDENT))


def show_trial(screen: Screen, trial: Result) -> None:
    """Print how a trial went."""
    _head(screen, trial)
    if trial["reason"]:
        screen.flow(trial["reason"])
    if found := trial.get("found"):
        screen.flow(found)
        return
    came = trial["messages"]
    if trial["state"] == "listening" or came:
        said = (
            "Nothing was announced meanwhile."
            if not came
            else f"{_times(came, 'message')} came: {counted(trial['counts'])}"
        )
        screen.flow(said)
    if trial["too_long"]:
        screen.flow(f"longer than 8 MB, and given up: {trial['too_long']}")
    if trial["dropped"]:
        screen.flow(f"left out: {counted(trial['dropped'])}")


def details(found: Result) -> list[str]:
    """Return what is said of a source below its first line."""
    lines = [found["reason"]] if found["reason"] else []
    if found["next_try"]:
        lines.append(f"tried again at {clock_time(found['next_try'])}")
    if looked := _looked(found):
        lines.append(looked)
    if found["throttled_until"] and found["throttled_until"] != found["next_try"]:
        lines.append(f"asked to wait until {clock_time(found['throttled_until'])}")
    facts = [f"last message {clock_time(found['last_message_at'])}" if found["last_message_at"] else "no message yet"]
    facts += [found["pace"]] if found.get("pace") and found["state"] == "listening" else []
    facts += [_times(found["reconnects"], "reconnect")] if found["reconnects"] else []
    lines.append(", ".join(facts))
    if found["gaps"]:
        lines.append(f"{_times(found['gaps'], 'gap')}: what was announced meanwhile is not known")
    if found["too_long"]:
        lines.append(f"given up because they are longer than 8 MB: {found['too_long']}")
    if found["counts"]:
        lines.append(f"since the daemon started: {counted(found['counts'])}")
    if found["known"]:
        lines.append(f"announced again, and not stored again: {found['known']}")
    if found["dropped"]:
        lines.append(f"left out: {counted(found['dropped'])}")
    return lines


def counted(counts: Mapping[str, int]) -> str:
    """Say how many there are of each, the most first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name or '-'} {count}" for name, count in ordered)


def _looked(found: Result) -> str:
    """Say when a source that has to look did, and when it does again."""
    if not found["last_poll"]:
        return ""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    ago = max(0, round((now - datetime.fromisoformat(found["last_poll"])).total_seconds()))
    said = f"looked {_span(ago)} ago"
    if found["next_poll"]:
        ahead = round((datetime.fromisoformat(found["next_poll"]) - now).total_seconds())
        said += f", again in {_span(ahead)}" if ahead > 0 else ", looks again now"
    return said


def _span(seconds: int) -> str:
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _head(screen: Screen, found: Result, indent: str = "") -> None:
    words = "needs you" if found["state"] == "needs person" else one_line(found["state"])
    state = screen.paint(words, _COLOURS.get(found["state"], DIM))
    server = f"  {found['server']}" if found["server"] else ""
    taken = f"{indent}{one_line(found['name'])}  {words}  "
    rest = screen.fit(f"{found['address']}{server}", len(taken))
    line = f"{indent}{screen.paint(one_line(found['name']), BOLD)}  {state}  {screen.paint(rest, DIM)}"
    screen.line(line.rstrip())


def _times(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
