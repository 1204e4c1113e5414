"""What a person configures of a folder of notes: `[sources.NAME]` with `kind = "bulletin"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from harken.sources.settings import SettingsTable, SourceSettings, keys_of, setting


class BulletinKeys(SourceSettings, frozen=True, kw_only=True):
    """The keys, each with what it means and the option of `harken source add bulletin` that sets it."""

    folder: Annotated[str, setting("The folder of notes.", example="/srv/notes", flag="--folder", metavar="DIR")]
    poll: Annotated[float, setting("Seconds from one look to the next.", flag="--poll", metavar="SECONDS")] = 1.0
    secret: Annotated[
        str,
        setting("Where the word is kept that every note ends with.", flag="--secret", metavar="REF", is_secret=True),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulletinSettings:
    """One folder of notes."""

    name: str
    folder: Path
    poll: float
    secret: str = ""  # where it is kept


def read_settings(name: str, entry: Mapping[str, object]) -> BulletinSettings:
    """Return the settings of the source `name`, or raise a `UserError` that names the key."""
    table = SettingsTable(name, entry)
    table.refuse_unknown(keys_of(BulletinKeys), "a folder of notes")
    return BulletinSettings(
        name=name,
        folder=Path(table.text("folder", "a folder, such as /srv/notes", is_required=True)),
        poll=table.seconds("poll", 1.0, 0.01, 3_600.0),
        secret=table.reference("secret", "where it is kept, such as env:WORD") if "secret" in entry else "",
    )
