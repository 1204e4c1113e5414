"""The verbs `config show` and `reload`: every setting with where it came from, and taking them over."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harken.cli.invocation import Invocation
from harken.cli.output import json_text, note_to_person
from harken.cli.verbs import lists, verb
from harken.display import one_line


@click.group()
def config() -> None:
    """Show the settings."""


@verb("show")
@click.option("--origin", is_flag=True, help="Include where each value comes from.")
def show(asked: Invocation, *, origin: bool) -> None:
    """Show every setting, from config.toml, the environment and the defaults."""
    from harken.config.load import describe, load
    from harken.hosts.registry import short

    loaded = load(asked.home, {}, os.environ)
    rows = describe(loaded)
    if asked.gave_json({"settings": rows, "warnings": list(loaded.warnings)}):
        return
    shown = [(str(row["name"]), json_text(row["value"])) for row in rows]
    origins = [short(Path(str(row["origin"]))) for row in rows]
    asked.screen.table([(*pair, where) if origin else pair for pair, where in zip(shown, origins, strict=True)])
    for warning in loaded.warnings:
        note_to_person(warning)
    if any(value.startswith("environment") for value in loaded.origins.values()):
        note_to_person("This environment applies to `harken serve`; a daemon in the background has its own.")


config.add_command(show)
lists(config, "show")


@verb("reload")
def reload(asked: Invocation) -> None:
    """Apply changes in config.toml, and report what changed.

    Applies all changes or, if there is a mistake, none. Sources, trust, routes and attention take effect at once;
    reports what needs a restart.
    """
    from harken.cli.authority import refuse_agent

    refuse_agent(asked, "change the settings")
    found = asked.ask("reload")
    if asked.gave_json(found):
        return
    sources = (("added", "Listened to from now on"), ("changed", "Made anew"), ("removed", "Listened to no longer"))
    retried = ("retried", "Tried again, because it waited for you")
    for key, said in (*sources, retried, ("settings", "Taken over")):
        if found[key]:
            asked.screen.line(f"{said}: {', '.join(map(one_line, found[key]))}")
    if not any(found.values()):
        asked.screen.line("Nothing has changed.")
    if found["restart"]:
        note_to_person(f"After a restart only (harken down && harken up): {', '.join(found['restart'])}")
