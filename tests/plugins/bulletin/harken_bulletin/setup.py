"""How a folder of notes is set up: one question."""

from __future__ import annotations

from harken.sources.settings import options_of
from harken.sources.setup import SetupContext, SetupValues, SourceSetup, text_of
from harken_bulletin.settings import BulletinSettings


class BulletinSetup(SourceSetup):
    """The options and the question of `harken source add bulletin`."""

    kind = default_name = "bulletin"
    needed = ("folder",)
    options = options_of(BulletinSettings)
    help_text = "Add a folder of notes; its name is bulletin unless you say so."

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask for the folder."""
        del name
        return {**values, "folder": text_of(values, "folder") or context.console.prompt("The folder of notes")}
