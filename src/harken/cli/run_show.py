"""How runs and their output look on the screen: always in an envelope that says AUTO.

What a run prints is text of a model that read text from outside. Each line of it begins with the envelope's mark, so
that none can pose as something else, and nothing in it can act on the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.cli.output import BOLD, CYAN, DIM, NARROW, RED, Screen, clock_time, cut, place_of, wrapped
from harken.cli.rule_show import glance
from harken.control.client import Result
from harken.display import one_line, visible
from harken.hosts.registry import short, title_of

GREEN = "32"
MARK = "┃ "
EDGE = "━━ AUTO ━━ "
BY_HAND = "by hand"
DONE = "done"
MINUTE = 60
RULE_WIDTH = 24
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tool": "tool ",
        "denied": "DENIED ",
        "error": "error: ",
        "stderr": "stderr: ",
        "answer": "answer: ",
        "changed": "file ",
        "undone": "PUT BACK ",
    }
)
_STYLES: Final[Mapping[str, str]] = MappingProxyType(
    {"tool": CYAN, "denied": RED, "error": RED, "stderr": DIM, "answer": BOLD, "undone": RED}
)
_DIFF_STYLES: Final[Mapping[str, str]] = MappingProxyType({"+": GREEN, "-": RED, "@": CYAN})
CHANGE_WIDTH = 9
ADDED = "added"
MAX_INDENT = 24  # of a line that is broken: its parts begin below one another
_OF_FILES = frozenset({"changed", "undone"})  # a line each, whatever the file is called
_LEFT_OUT = frozenset({"begin", "end", "turn"})  # the envelope itself says it


def show_runs(screen: Screen, runs: Sequence[Result]) -> None:
    """Print one line for each run."""
    is_narrow = 0 < screen.width < NARROW
    rows = [_short_row(each) if is_narrow else _row(each) for each in runs]
    screen.table(rows)


def _short_row(run: Result) -> tuple[str, ...]:
    return run["id"], run["state"], _result(run)


def _row(run: Result) -> tuple[str, ...]:
    return (
        run["id"],
        run["state"],
        cut(run["rule"] or BY_HAND, RULE_WIDTH),
        place_of(run["message"]) if run["message"] else "-",
        title_of(run["agent"]),
        clock_time(run["started_at"]),
        lasted(run["seconds"]),
        _result(run),
    )


def _result(run: Result) -> str:
    denied = f"{len(run['denied'])} denied; " if run["denied"] else ""
    return f"{denied}{run['reason'] or run['answer']}"


def lasted(seconds: float | None) -> str:
    """Return how long something took, short."""
    if seconds is None:
        return ""
    if seconds < MINUTE:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), MINUTE)
    return f"{minutes}m{rest:02}s"


def open_envelope(screen: Screen, run: Result) -> None:
    """Print what begins an envelope: the run, its rule, its agent, and its folder."""
    about = f"run {run['id']}  {run['rule'] or BY_HAND}  {title_of(run['agent'])} in {_folder(run)}"
    screen.line(screen.paint(screen.fit(EDGE + about), BOLD))


def close_envelope(screen: Screen, run: Result) -> None:
    """Print what ends an envelope: how it went."""
    words = [run["state"]]
    words += [f"exit code {run['exit_code']}"] if run["exit_code"] is not None else []
    words += [lasted(run["seconds"]), turns_of(run)]
    words += [f"{len(run['denied'])} denied"] if run["denied"] else []
    words += [run["reason"]] if run["reason"] else []
    style = GREEN if run["state"] == DONE else CYAN if run["state"] == "running" else RED
    for number, line in enumerate(_lines(screen, ", ".join(word for word in words if word), EDGE)):
        screen.line(screen.paint((EDGE if not number else MARK) + line, style))


def turns_of(run: Result) -> str:
    """Return how many turns a run took."""
    return "1 turn" if run["turns"] == 1 else f"{run['turns']} turns"


def show_output(screen: Screen, lines: Sequence[Result]) -> None:
    """Print lines of a run's output, inside its envelope."""
    for each in lines:
        if each["kind"] in _LEFT_OUT:
            continue
        text = f"{each['tool']} {each['text']}".strip() if each["tool"] else each["text"]
        text = one_line(text) if each["kind"] in _OF_FILES else text
        inside(screen, _WORDS.get(each["kind"], "") + text, _STYLES.get(each["kind"], ""))


def inside(screen: Screen, text: str, style: str = "") -> None:
    """Print text inside an envelope."""
    mark = screen.paint(MARK, BOLD)
    for line in visible(text).split("\n"):
        begin = " " * min(len(line) - len(line.lstrip(" ")), MAX_INDENT)
        for piece in _lines(screen, line[len(begin) :], MARK + begin):
            screen.line((mark + begin + (screen.paint(piece, style) if style else piece)).rstrip())


def show_run(screen: Screen, run: Result, *, has_diff: bool = False) -> None:
    """Print everything about a run: what it answers, what it could use, how it went, and what it changed."""
    open_envelope(screen, run)
    rows = {
        "message": glance(run["message"]),
        "tools": ", ".join(run["tools"]) or "none",
        "left over": ", ".join(run["leftover"]),
        "denied": "",  # a line for each
        "turns": str(run["turns"]),
        "began": clock_time(run["started_at"]),
        "ended": clock_time(run["ended_at"]) if run["ended_at"] else "",
        "reason": run["reason"],
    }
    size = max(len(name) for name in rows) + 2
    for name, value in rows.items():
        if name == "denied":
            _show_denied(screen, name.ljust(size), run["denied"])
        elif value:
            head = MARK + name.ljust(size)
            screen.line(screen.paint(MARK, BOLD) + name.ljust(size) + screen.fit(value, len(head)))
    if run["leftover"]:
        inside(screen, "Left over are tools of the agent's own that its host cannot take away.", DIM)
    if run["changes"]:
        _show_changes(screen, run["changes"], has_diff=has_diff)
    if run["answer"]:
        inside(screen, "answer:", BOLD)
        inside(screen, run["answer"])
    close_envelope(screen, run)
    if not has_diff and any(each["diff"] for each in (run["changes"] or {}).get("files", ())):
        screen.hint(f"The diff: harken run show {run['id']} --diff")


def _show_denied(screen: Screen, head: str, denied: Sequence[str]) -> None:
    """Print each call that was denied, whole: what an agent tried is why people look."""
    for each in denied:
        for piece in _lines(screen, each, MARK + head):
            screen.line(screen.paint(MARK, BOLD) + head + piece)
            head = " " * len(head)


def _show_changes(screen: Screen, changes: Result, *, has_diff: bool) -> None:
    files = changes["files"]
    inside(screen, "changed files:" if files else "no file was changed", BOLD if files else DIM)
    for each in files:
        inside(screen, f"  {each['change'].ljust(CHANGE_WIDTH)}{one_line(each['path'])}{_remark(each)}", _style(each))
        if each["aside"]:
            inside(screen, f"  {' ' * CHANGE_WIDTH}set aside: {one_line(each['aside'])}", DIM)
        for line in each["diff"].split("\n") if has_diff and each["diff"] else ():
            inside(screen, f"    {line}", _DIFF_STYLES.get(line[:1], ""))
    if changes["more"]:
        inside(screen, f"  and {changes['more']} more")
    if changes["note"]:
        inside(screen, changes["note"], DIM)


def _remark(each: Result) -> str:
    undone = "removed again" if each["change"] == ADDED else "put back"
    words = [undone] if each["is_undone"] else ["protected from runs"] if each["is_held"] else []
    words += [one_line(each["note"])] if each["note"] else []
    return f" ({', '.join(words)})" if words else ""


def _style(each: Result) -> str:
    return RED if each["is_held"] else ""


def _folder(run: Result) -> str:
    return short(Path(run["workdir"])) if run["workdir"] else "a folder of its own"


def _lines(screen: Screen, text: str, mark: str = MARK) -> list[str]:
    safe = one_line(text)
    return list(wrapped(safe, max(1, screen.width - len(mark)))) if screen.width else [safe]
