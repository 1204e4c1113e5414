"""The verb `config show`: every setting, its value and where it came from. It asks no daemon."""

from __future__ import annotations

import os

import click

from harken.cli.output import json_text, note_to_person
from harken.cli.verbs import Invocation, verb


@click.group()
def config() -> None:
    """Look at the settings."""


@verb("show")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
def show(asked: Invocation, *, origin: bool) -> None:
    """Show every setting as config.toml, the environment and the defaults give it."""
    from harken.config.load import describe, load

    loaded = load(asked.home, {}, os.environ)
    rows = describe(loaded)
    if asked.as_json:
        asked.print_json({"settings": rows, "warnings": list(loaded.warnings)})
        return
    shown = [(str(row["name"]), json_text(row["value"])) for row in rows]
    asked.screen.table([(*pair, str(row["origin"])) if origin else pair for pair, row in zip(shown, rows, strict=True)])
    for warning in loaded.warnings:
        note_to_person(warning)
    if any(value.startswith("environment") for value in loaded.origins.values()):
        note_to_person("The environment counts for `harken serve`; a daemon in the background has one of its own.")


config.add_command(show)
