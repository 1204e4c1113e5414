"""The verb `rules`: what is in force, what is wrong with the file, and what the rules make of messages.

Looking and trying only: nothing here runs anything. `check` and `schema` ask no daemon. Answering and pausing are in
`actions`.
"""

from __future__ import annotations

import click

from harken.cli.complete import completer
from harken.cli.invocation import Invocation
from harken.cli.output import note_to_person
from harken.cli.times import Length
from harken.cli.verbs import lists, verb, verb_command, verb_option
from harken.display import counted
from harken.times import LENGTHS

LIST, RELOAD = "rules", "rules_reload"
TEST_SECONDS = 300.0


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
    from harken.cli.rule_check import check_file

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
    from harken.rules.schema import json_schema

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


for _verb in (list_rules, check, reload, test, explain, schema):
    rules.add_command(_verb)
lists(rules)
