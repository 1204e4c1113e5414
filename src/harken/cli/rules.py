"""The verb `rules`: what is in force, what is wrong with the file, and what the rules make of messages.

Looking and trying only: nothing here runs anything. `check` and `schema` ask no daemon. Answering and pausing are in
`actions`. A file that is checked may hold anything: what was found in it is printed like any text from outside.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import BOLD, DIM, RED, Screen, cut, note_to_person, width_of, wrapped
from harken.cli.rule_show import begin_hint
from harken.cli.verbs import Length, lists, verb, verb_command, verb_option
from harken.control.client import Result
from harken.display import counted, one_line
from harken.errors import NotFound, UserError
from harken.hosts.registry import short
from harken.times import LENGTHS

if TYPE_CHECKING:
    from harken.rules.load import RuleFault

LIST, RELOAD = "rules", "rules_reload"
TEST_SECONDS = 300.0
MAX_BYTES = 2 * 1024 * 1024  # more than any file that is accepted, so that the reader says what is wrong with it
STDIN = "-"
FOUND_WIDTH = 40
MIN_ACCEPTED = 40
GAP = 2
HEADS = ("rule", "field", "found", "accepted")


@click.group()
def rules() -> None:
    """Manage the rules that react to messages: list, check, load and test them."""


@verb_command("rules", "list")
def list_rules(asked: Invocation) -> None:
    look(asked, LIST)


@verb("check")
@click.argument("file", metavar="[FILE]", default="", type=click.Path(dir_okay=False, allow_dash=True))
def check(asked: Invocation, *, file: str) -> None:
    """Check a rules file and report every mistake; exits with 2 if there is one.

    FILE defaults to triggers.json in the home; `-` reads stdin. Needs no daemon, and changes nothing.
    """
    check_file(asked, file)


@verb_command("rules_reload", "reload")
def reload(asked: Invocation) -> None:
    look(asked, RELOAD)


@verb_command("rules_test", "test")
@click.option("--since", default="7d", show_default=True, type=Length(), help=f"How far back: {LENGTHS}.")
@verb_option("rules_test", "rule", metavar="NAME", shell_complete=completer("rule_names"))
@verb_option("rules_test", "limit", show_default=True)
@verb_option("rules_test", "all")
def test(asked: Invocation, *, limit: int, **options: str | float | bool) -> None:
    from harken.cli.rule_show import show_test

    with asked.daemon() as daemon:
        found = daemon.ask_within(TEST_SECONDS, "rules_test", limit=limit, **options)
    if asked.gave_json(found):
        return
    show_test(asked.screen, found, is_all=bool(options["all"]))
    if found["looked_at"] and not found["messages"]:
        note_to_person("No rule matches any of them. To see why for one message: harken rules explain MESSAGE")
    if found["looked_at"] >= limit:
        note_to_person(f"Only the newest {limit} messages were checked. For more, use --limit.")


@verb_command("rules_explain", "explain")
@click.argument("message", metavar="MESSAGE", shell_complete=completer("messages"))
def explain(asked: Invocation, *, message: str) -> None:
    """MESSAGE is a message id, its beginning, or #seq."""
    from harken.cli.rule_show import show_explained

    with asked.daemon() as daemon:
        found = daemon.ask("rules_explain", message=message)
        if asked.gave_json(found):
            return
        actions = daemon.ask("actions", message=found["message"]["id"])["actions"]
    show_explained(asked.screen, found, actions)


@verb("schema")
def schema(asked: Invocation) -> None:
    """Print the JSON Schema of the rules file, for editors."""
    from harken.hosts.registry import host_names
    from harken.rules.load import json_schema

    asked.print_json(json_schema(host_names()))


def look(asked: Invocation, method: str) -> None:
    """Ask for the rules in force, or for the file to be put in force, and show them."""
    from harken.cli.rule_show import show_rules

    found = asked.ask(method)
    if asked.gave_json(found):
        return
    show_rules(asked.screen, found, asked.home_option)
    if method == RELOAD:
        note_to_person(f"In force: {counted(len(found['rules']), 'rule')}.")


def check_file(asked: Invocation, file: str) -> None:
    """Say what is wrong with a file of rules, and end with 2 when something is."""
    from harken.rules.load import InvalidRules, load

    name, data = _read(asked, file)
    faults: Sequence[RuleFault] = ()
    warnings: Sequence[RuleFault] = ()
    count = 0
    try:
        found = load(data)
        warnings, count = found.warnings, len(found.rules)
    except InvalidRules as exc:
        faults = exc.faults
    if asked.as_json:
        records = {"faults": [_record(each) for each in faults], "warnings": [_record(each) for each in warnings]}
        asked.print_json({"file": name, "is_good": not faults, "rules": count, **records})
    else:
        _show(asked.screen, name, faults, RED)
        _show(asked.screen, name, warnings, DIM)
        _sum_up(asked.screen, len(faults), len(warnings), count)
    if faults:
        click.get_current_context().exit(UserError.exit_code)


def _read(asked: Invocation, file: str) -> tuple[str, bytes]:
    if file == STDIN:
        return "stdin", sys.stdin.buffer.read(MAX_BYTES)
    path = Path(file) if file else asked.home.triggers_file
    if not file and path.exists():
        from harken.rules.judge import read_file

        # As the daemon reads it: it refuses a file that others can write.
        return short(path), read_file(path)
    try:
        with path.open("rb") as stream:
            return str(path) if file else short(path), stream.read(MAX_BYTES)
    except FileNotFoundError as exc:
        hint = "Look at the name." if file else begin_hint(path, asked.home_option)
        raise NotFound(f"There is no file {path}.", hint) from exc


def _record(fault: RuleFault) -> Result:
    return {
        "rule": fault.rule,
        "field": fault.field,
        "found": fault.found,
        "accepted": fault.accepted,
        "line": fault.line,
        "column": fault.column,
        "sentence": fault.sentence,
    }


def _show(screen: Screen, name: str, faults: Sequence[RuleFault], style: str) -> None:
    if not faults:
        return
    rows = [HEADS, *(_row(each) for each in faults)]
    sizes = [max(width_of(row[i]) for row in rows) + GAP for i in range(len(HEADS) - 1)]
    room = screen.width - GAP - sum(sizes)
    if room >= MIN_ACCEPTED:
        for row in rows:
            _show_row(screen, row, sizes, room, BOLD if row is HEADS else style)
        return
    for each in faults:
        _show_lines(screen, name, each, style)


def _show_row(screen: Screen, row: tuple[str, ...], sizes: Sequence[int], room: int, style: str) -> None:
    head = "".join(word + " " * (size - width_of(word)) for word, size in zip(row[:-1], sizes, strict=True))
    first, *more = wrapped(row[-1], room)
    screen.line("  " + screen.paint(head + first, style))
    for line in more:
        screen.line("  " + " " * sum(sizes) + screen.paint(line, style))


def _show_lines(screen: Screen, name: str, fault: RuleFault, style: str) -> None:
    if not screen.width:
        screen.line(one_line(f"{name}{_place(fault)}: {replace(fault, line=0).sentence}"))
        return
    head = "  ".join(one_line(word) for word in (fault.rule, fault.field) if word) or "the file"
    screen.line(screen.paint(screen.fit(head), style))
    screen.text(f"found: {fault.found}" if fault.found else "found: nothing")
    screen.text(f"accepted: {fault.accepted}")


def _row(fault: RuleFault) -> tuple[str, ...]:
    found = cut(one_line(fault.found), FOUND_WIDTH) + (f" (line {fault.line})" if fault.line else "")
    return (one_line(fault.rule) or "-", one_line(fault.field) or "-", found, one_line(fault.accepted))


def _place(fault: RuleFault) -> str:
    return f":{fault.line}:{fault.column}" if fault.line else ""


def _sum_up(screen: Screen, faults: int, warnings: int, rules: int) -> None:
    if faults:
        note_to_person(f"{counted(faults, 'fault')}. The file is not loaded until it has none.")
        return
    more = f", {counted(warnings, 'warning')}" if warnings else ""
    screen.line(f"ok: {counted(rules, 'rule')}{more}")


for _verb in (list_rules, check, reload, test, explain, schema):
    rules.add_command(_verb)
lists(rules)
