"""How `harken watch` looks: one line for what happened, and the banner of what waits and runs. Pure.

All names and texts are from outside. The mark of trust stands after the bracket, which no channel can close, and no
name can carry it; every line of an agent's is in the envelope AUTO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from harken.automation import consent
from harken.cli.messages import standing
from harken.cli.output import (
    BOLD,
    CYAN,
    DIM,
    MIN_WIDTH,
    RED,
    Screen,
    clock_time,
    cut,
    in_brackets,
    place_of,
    sender_of,
    width_of,
    wrapped,
)
from harken.cli.run_show import BY_HAND, EDGE, MARK, lasted
from harken.cli.watch.news import OF_QUESTIONS, REMARK, View
from harken.control.client import Result
from harken.display import one_line
from harken.hosts.registry import short, title_of

YELLOW: Final = "33"
CHOSEN, OTHER = "▸ ", "  "
RULE_WIDTH: Final = 24
MIN_ROWS: Final = 5  # with fewer, the hint would take the place of what waits
TELL: Final = '→ tell your agent: "check the inbox"'
PIPE_WIDTH: Final = 40
HELP: Final = (
    "up, down  choose what waits or runs (also k, j)",
    "y, n      answer the chosen question of a rule",
    "Esc       end the chosen run, or the only one; with several, press it twice",
    "r, d      answer the chosen message; say that it needs no answer",
    "Enter     show what is chosen whole, else the newest message; it is read then",
    "u         show what is unread, also what an earlier watch has shown",
    "m         mark what was shown as seen",
    "p         pause the rules, or let them go on",
    "q         leave; what runs goes on",
    "★ is from you, ? is from a sender that nobody has allowed.",
)


def message_line(screen: Screen, record: Result) -> str:
    """Return a message on one line: where and when, who, the first line of what, and its number."""
    stamp = in_brackets(record["channel"] or record["source"], clock_time(record["ts"]))
    who = sender_of(record) + ":"
    place = f"  {place_of(record)}"
    taken = width_of(f'{stamp} {who} ""{place}')
    text = first_line(record["content_text_sanitized"])
    if screen.width and screen.width - taken < MIN_WIDTH // 2:
        return screen.fit(f'{stamp} {who} "{text}"')
    return (
        f'{screen.paint(stamp, CYAN)} {screen.paint(who, BOLD)} "{screen.fit(text, taken)}"{screen.paint(place, DIM)}'
    )


def first_line(text: str) -> str:
    """Return the first line that says something, and whether more follows."""
    lines = [line for line in text.split("\n") if line.strip()]
    return (lines[0] + (" …" if len(lines) > 1 else "")) if lines else ""


def event_line(screen: Screen, event: Result, known: Mapping[str, Result]) -> str:
    """Return what happened, on one line; `known` are the messages that were seen lately."""
    kind = event["kind"]
    if kind == "received":
        return message_line(screen, event["message"])
    if kind == REMARK:
        return screen.paint(screen.fit(f"-- {event['text']}"), DIM)
    if kind in ("paused", "resumed"):
        return screen.paint(screen.fit("-- Rules are paused." if kind == "paused" else "-- Rules go on."), DIM)
    if kind == "approval":
        return screen.paint(screen.fit(_approval_told(event)), YELLOW if event["change"] == "asked" else DIM)
    about = _about(known.get(event["message_id"]), event["message_id"])
    text, style = _told_of(event, about)
    return screen.paint(screen.fit(text), style)


def _told_of(event: Result, about: str) -> tuple[str, str]:
    """Return what happened to a message, and in which style."""
    match event["kind"]:
        case "judged":
            return _judged(event, about), YELLOW
        case "run":
            return _run_told(event, about), BOLD if event["state"] in _FINE else RED
        case kind if kind in OF_QUESTIONS:
            return f"-- {_question_told(event)}  {about}", DIM
        case _:
            reason = f": {event['reason']}" if event["reason"] else ""
            return f"-- {event['action']} {event['state']}{reason}  {about}", DIM


def _approval_told(event: Result) -> str:
    name = event["approval"]
    match event["change"]:
        case "asked":
            return f"!! {title_of(event['host'])} asks to use {event['tool']}  {name}  harken approve {name}"
        case "answered":
            return f"-- {name} answered: {event['choice']}, by {event['by']}"
        case change:
            return f"-- {name} {change}: {event['because']}"


_FINE: Final = frozenset({"running", "done"})


def _question_told(event: Result) -> str:
    if event["kind"] == "settled":
        return f"no longer waits for an answer ({event['by']})"
    return f"still waits for an answer, told by {event['how']}"


def _judged(event: Result, about: str) -> str:
    if event["mode"] == "confirm":
        return f"!! {event['rule']} asks  {event['action']}  {about}  harken channel confirm {event['action']}"
    if event["mode"] == "auto":
        return f"!! {event['rule']} runs by itself  {event['action']}  {about}"
    return f"!! {event['rule']}: {about}"


def _run_told(event: Result, about: str) -> str:
    reason = f": {event['reason']}" if event["reason"] else ""
    denied = f", {len(event['denied'])} denied" if event["denied"] else ""
    what = f"{event['run']} {event['state']}{reason}{denied}"
    return f"{EDGE}{what}  {event['rule'] or BY_HAND}  {title_of(event['agent'])}  {about}"


def _about(record: Result | None, name: str) -> str:
    if record is None:
        return one_line(name)
    text = record["text"] if "text" in record else record["content_text_sanitized"]
    return one_line(f"{place_of(record)} {sender_of(record)}: {first_line(text)}")


def banner(screen: Screen, view: View, chosen: str | None, *, note: str, rows: int, now: datetime) -> list[str]:
    """Return the banner: what waits, what runs, what was told, and how things stand, in at most so many rows.

    Where there are no keys, nothing can be chosen: `chosen` is None.
    """
    foot = [screen.paint(screen.fit(f"-- {note}"), BOLD)] if note else []
    if view.unread and view.away_since is None and rows >= MIN_ROWS and not 0 < screen.width < len(TELL):
        foot.append(screen.paint(TELL, CYAN))
    foot.append(_standing(screen, view, has_keys=chosen is not None))
    foot = foot[-rows:] if rows > 1 else foot[:1]
    blocks = [_action(screen, each, chosen, now) for each in view.asked]
    blocks += [_run(screen, each, chosen, now, view.last_lines.get(each["id"], "")) for each in view.runs]
    blocks += [_question(screen, each, chosen) for each in view.questions]
    told = [screen.paint(screen.fit(f"{OTHER}! {_told(each)}"), YELLOW) for each in view.told]
    room = rows - len(foot)
    place = view.ids.index(chosen) if chosen in view.ids else 0
    lines = _fitted(blocks, place, room)
    if len(lines) < room and (lines or told):
        lines = [screen.paint("─" * (screen.width or PIPE_WIDTH), DIM), *lines]
    lines += told[: max(0, room - len(lines))]
    return [*lines, *foot]


def _fitted(blocks: Sequence[Sequence[str]], place: int, room: int) -> list[str]:
    """Return whole blocks when they fit, else the heads around the chosen one with that one whole."""
    if sum(map(len, blocks)) <= room:
        return [line for block in blocks for line in block]
    if room <= 0:
        return []
    spare = min(len(blocks[place]), room)
    others = room - spare
    first = max(0, min(place - others // 2, len(blocks) - 1 - others))
    lines: list[str] = []
    for number in range(first, min(len(blocks), first + others + 1)):
        lines += blocks[number][:spare] if number == place else blocks[number][:1]
    return lines[:room]


def _question(screen: Screen, question: Result, chosen: str | None) -> list[str]:
    record = question["message"]
    is_chosen = record["id"] == chosen
    about = _about(record, record["id"])
    words = f"{record['id']}  waits {question['how_long']}  {about}"
    head = _head(screen, f"{CHOSEN if is_chosen else OTHER}{words}", is_chosen=is_chosen)
    if not is_chosen:
        return [head]
    keys = "Enter shows it, r answers it, d: it needs no answer"
    return [head, screen.fit(f"    {keys}  {standing(question)}")]


def _action(screen: Screen, action: Result, chosen: str | None, now: datetime) -> list[str]:
    is_chosen = action["id"] == chosen
    left = countdown(action["expires_at"], now)
    head = f"{CHOSEN if is_chosen else OTHER}{action['id']}  {_rule(action)}  {left}  "
    head += _about(action["message"], action["message_id"])
    folder = short(Path(action["folder"])) if action["folder"] else ""
    may = consent(title_of(action["runs_on"]) if action["runs_on"] else "", folder, action["tools"])
    keys = "y runs it, n does not: " if is_chosen else ""
    keys = f"harken channel confirm {action['id']}: " if chosen is None else keys
    # Whole, in as many lines as it takes: nobody should say yes to what was cut off.
    said = one_line(f"{keys}{may}")
    lines = list(wrapped(said, max(MIN_WIDTH, screen.width - 4))) if screen.width else [said]
    return [_head(screen, head, is_chosen=is_chosen), *(f"    {line}" for line in lines)]


def _run(screen: Screen, run: Result, chosen: str | None, now: datetime, last: str) -> list[str]:
    seconds = (now - datetime.fromisoformat(run["started_at"])).total_seconds()
    where = short(Path(run["workdir"])) if run["workdir"] else "a folder of its own"
    head = f"{CHOSEN if run['id'] == chosen else OTHER}AUTO {run['id']}  {lasted(max(0.0, seconds))}  {_rule(run)}  "
    head += f"{title_of(run['agent'])} in {where}"
    line = screen.fit(f"    {MARK}{last}" if last else f"    {MARK}it has said nothing yet")
    return [_head(screen, head, is_chosen=run["id"] == chosen), screen.paint(line, DIM)]


def _head(screen: Screen, text: str, *, is_chosen: bool) -> str:
    return screen.paint(screen.fit(text), BOLD) if is_chosen else screen.fit(text)


def _rule(thing: Result) -> str:
    return cut(one_line(thing["rule"] or BY_HAND), RULE_WIDTH)


def _told(action: Result) -> str:
    return f"{_rule(action)} {clock_time(action['created_at'])}  {_about(action['message'], action['message_id'])}"


def _standing(screen: Screen, view: View, *, has_keys: bool) -> str:
    if view.away_since is not None:
        since = f"{view.away_since:%H:%M:%S}"
        return screen.paint(screen.fit(f"Not connected since {since}. Start the daemon: harken up"), RED)
    words = [f"{view.unread} unread"]
    words += ["RULES PAUSED"] if view.is_paused else []
    words += [f"{len(view.asked)} wait for you"] if view.asked else []
    words += [f"{len(view.runs)} running"] if view.runs else []
    words += [view.waiting if has_keys else f"{view.waiting}: harken waiting"] if view.waiting else []
    words += [f"{view.queued} queued"] if view.queued else []
    words += ["rules not in force, see: harken rules check"] if view.problem else []
    words += ["? help", "q leave"] if has_keys else []
    return screen.paint(screen.fit(" · ".join(words)), CYAN)


def countdown(stamp: str | None, now: datetime) -> str:
    """Return the time that is left until then, to the second."""
    if not stamp:
        return "no end"
    seconds = int((datetime.fromisoformat(stamp) - now).total_seconds())
    return f"{seconds // 60}:{seconds % 60:02} left" if seconds > 0 else "time is over"
