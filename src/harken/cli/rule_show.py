"""How rules, and what they decide, look on the screen. Names, reasons and messages are text from outside."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.cli.output import (
    BOLD,
    CYAN,
    DIM,
    INDENT,
    RED,
    Screen,
    clock_time,
    cut,
    in_brackets,
    note_to_person,
    place_of,
    sender_of,
    width_of,
    wrapped,
)
from harken.control.client import Result
from harken.display import counted, one_line
from harken.hosts.registry import short, title_of

GREEN = "32"
NAME_WIDTH = 24
WHERE_WIDTH = 32
NO_MATCH = "no match"
GONE = "a message that is gone"
FIRED = "fired"
EXAMPLE: Final = '{"rules": [{"name": "ci-failed", "channel": "ci", "contentRegex": "(?i)red|fail", "mode": "notify"}]}'
_STYLES: Final[Mapping[str, str]] = MappingProxyType({FIRED: GREEN, NO_MATCH: DIM, "cannot run": RED})


def begin_hint(path: Path, home_option: Sequence[str] = ()) -> str:
    """Return how to write the first rule: two lines that can be pasted into a shell."""
    reload = shlex.join(["harken", *home_option, "rules", "reload"])
    return f"Begin with this:\n\necho {shlex.quote(EXAMPLE)} > {shlex.quote(str(path))}\n{reload}"


def show_rules(screen: Screen, found: Result, home_option: Sequence[str] = ()) -> None:
    """Print the rules in force, what each did, and what stands in their way."""
    if found["is_paused"]:
        screen.hint(screen.paint("PAUSED", BOLD) + ": messages are stored, and no rule fires. harken channel resume")
    if found["problem"]:
        screen.line(screen.paint("The file is not in force:", RED))
        screen.text(found["problem"])
    elif found["is_changed"]:
        screen.hint("The file has changed since it was loaded: harken rules reload")
    _show_table(screen, found["rules"])
    for warning in found["warnings"]:
        screen.line(screen.paint(screen.fit(f"{warning['rule'] or 'the file'}: {warning['text']}"), DIM))
    if found["waiting"] or found["refused"]:
        full = f"; refused because it was full: {found['refused']}" if found["refused"] else ""
        screen.line(f"waiting: {found['waiting']} of {found['most_waiting']}{full}")
    if not found["rules"]:
        _say_how_to_begin(Path(found["path"]), home_option)


def _say_how_to_begin(path: Path, home_option: Sequence[str]) -> None:
    if path.exists():
        note_to_person(f"No rule is in force. See: harken rules check ({short(path)})")
    else:
        note_to_person(f"There are no rules. {begin_hint(path, home_option)}")


def _show_table(screen: Screen, rules: Sequence[Result]) -> None:
    rows = [_row(screen, each) for each in rules]
    sizes = [max(width_of(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for each, row in zip(rules, rows, strict=True):
        *heads, last = row
        text = "  " + "".join(f"{word}{' ' * (sizes[i] - width_of(word) + 2)}" for i, word in enumerate(heads))
        screen.line(screen.fit((text + last).rstrip()))
        if each["cannot_run"]:
            for line in _lines(screen, f"cannot run: {each['cannot_run']}"):
                screen.line(INDENT + screen.paint(line, RED))


def _row(screen: Screen, rule: Result) -> tuple[str, ...]:
    name, where = one_line(rule["name"]), one_line(where_of(rule))
    if screen.width:
        name, where = cut(name, NAME_WIDTH), cut(where, WHERE_WIDTH)
    last = f"last {clock_time(rule['last_fired_at'])}" if rule["last_fired_at"] else ""
    facts = [f"runs on {title_of(rule['runs_on'])}"] if rule["runs_on"] else []
    facts += [f"held back: {_held(rule['held'])}"] if rule["held"] else []
    return name, one_line(rule["mode"]), where, f"fired {rule['fired']}", last, one_line("; ".join(facts))


def where_of(rule: Result) -> str:
    """Return what a rule is about: mailbox, server, channel and pattern, as far as it says."""
    server, channel = rule["server"] or "*", rule["channel"] or "*"
    place = "every message" if (server, channel) == ("*", "*") else f"{server}/{channel}"
    place = place if rule["mailbox"] in ("", "inbox") else f"{rule['mailbox']}: {place}"
    return f"{place} ~ {rule['contentRegex']}" if rule["contentRegex"] else place


def _held(held: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(held.items()) if count)


def show_test(screen: Screen, found: Result, *, is_all: bool) -> None:
    """Print what the rules make of stored messages, then how often, and that nothing was run."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in found["messages"]:
        matches = [verdict for verdict in each["verdicts"] if verdict["outcome"] != NO_MATCH]
        counts.update((verdict["rule"], verdict["outcome"]) for verdict in matches)
        if matches or is_all:
            show_message(screen, each["message"])
        for verdict in each["verdicts"] if is_all else matches:
            show_verdict(screen, verdict["rule"], verdict)
    rules = dict.fromkeys(name for name, _ in counts)
    if rules:
        screen.line(screen.paint("In all:", BOLD))
        screen.table([(name, _outcomes(counts, name)) for name in rules])
    looked, fired = counted(found["looked_at"], "message"), found["fired"]
    screen.line(f"{looked} looked at: rules would have fired {counted(fired, 'time')}. Nothing was run.")


def _outcomes(counts: Counter[tuple[str, str]], rule: str) -> str:
    found = {outcome: count for (name, outcome), count in counts.items() if name == rule}
    ordered = sorted(found.items(), key=lambda item: (item[0] != FIRED, item[0]))
    return ", ".join(f"{outcome} {count}" for outcome, count in ordered)


def show_explained(screen: Screen, found: Result, actions: Sequence[Result]) -> None:
    """Print what each rule made of a message when it came, what came of that, and what it would make of it now."""
    became = {each["id"]: each for each in actions}
    show_message(screen, found["message"])
    decided = {each["rule"]: each for each in found["decided"]}
    now = {each["rule"]: each for each in found["verdicts"]}
    if not now and not decided:
        note_to_person("No rule decided about it, and there are no rules now. See: harken rules list")
    for rule in dict.fromkeys((*now, *decided)):
        mode = (now.get(rule) or decided[rule])["mode"]
        screen.line(f"  {screen.paint(one_line(rule), BOLD)}  {screen.paint(one_line(mode), DIM)}")
        if rule in decided:
            show_verdict(screen, "then", decided[rule])
            _show_action(screen, became.get(decided[rule]["action"]))
        else:
            screen.line(INDENT + screen.fit("then: nothing, it did not fit or was not there", len(INDENT)))
        if rule in now:
            show_verdict(screen, "now", now[rule])
        else:
            screen.line(INDENT + screen.fit("now: there is no such rule any more", len(INDENT)))


def _show_action(screen: Screen, action: Result | None) -> None:
    if action is None:
        return
    reason = f": {action['reason']}" if action["reason"] else ""
    run = f", run {action['run']}" if action["run"] else ""
    for line in _lines(screen, f"{action['id']}: {action['state']}{run}{reason}"):
        screen.line(INDENT + line)


def show_message(screen: Screen, message: Result | None) -> None:
    """Print which message it is about, on one line."""
    if message is None:
        screen.line(screen.paint(GONE, DIM))
        return
    place = place_of(message)
    stamp = in_brackets(place_in(message), clock_time(message["received_at"]))
    who = f"{sender_of(message)}:"
    plain = f"{place} {stamp} {who} "
    head = f"{screen.paint(place, DIM)} {screen.paint(stamp, CYAN)} {screen.paint(who, BOLD)} "
    if screen.width and screen.width - width_of(plain) < len(INDENT):
        screen.line(screen.fit(plain + message["text"]))
    else:
        screen.line((head + screen.fit(message["text"], width_of(plain))).rstrip())


def place_in(message: Result) -> str:
    """Return where a message came from."""
    return f"{message['source']}/{message['channel']}" if message["channel"] else str(message["source"])


def glance(message: Result | None) -> str:
    """Return which message it is, and the beginning of it."""
    if message is None:
        return GONE
    return f"{place_of(message)} {in_brackets(place_in(message))} {sender_of(message)}: {message['text']}"


def show_verdict(screen: Screen, who: str, verdict: Result) -> None:
    """Print one decision: the rule or the time, what was decided, and why."""
    outcome = one_line(verdict["outcome"])
    painted = screen.paint(outcome, _STYLES.get(verdict["outcome"], CYAN))
    rest = f": {verdict['reason']}" if verdict["reason"] else ""
    rest += f" ({verdict['action']})" if verdict.get("action") else ""
    first, *more = _lines(screen, f"{who}: {outcome}{rest}")
    begin = f"{one_line(who)}: "
    if first.startswith(begin + outcome):
        first = begin + painted + first.removeprefix(begin + outcome)
    for line in (first, *more):
        screen.line(INDENT + line)


def _lines(screen: Screen, text: str) -> list[str]:
    safe = one_line(text)
    return list(wrapped(safe, screen.width - len(INDENT))) if screen.width else [safe]
