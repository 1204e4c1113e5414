"""How a folder of notes is set up: one question."""

from __future__ import annotations

from harken.sources.settings import options_of
from harken.sources.setup import SetupContext, SetupValues, SourceSetup, text_of, written
from harken_bulletin.settings import BulletinSettings


class BulletinSetup(SourceSetup):
    """The options and the question of `harken source add bulletin`."""

    options = options_of(BulletinSettings)
    help_text = "Add a folder of notes; its name is bulletin unless you say so."

    def usual_name(self, values: SetupValues) -> str:
        """Return the kind's own name."""
        del values
        return "bulletin"

    def missing(self, values: SetupValues) -> str:
        """Return the option that a folder of notes cannot do without."""
        return "" if values.get("folder") else "--folder"

    def ask(self, name: str, values: SetupValues, context: SetupContext) -> SetupValues:
        """Ask for the folder."""
        del name
        return {**values, "folder": text_of(values, "folder") or context.console.prompt("The folder of notes")}

    def entry(self, name: str, values: SetupValues, context: SetupContext) -> dict[str, object]:
        """Return what is written."""
        del name, context
        return written("bulletin", values)
