"""What a person configures of a folder of notes: `[sources.NAME]` with `kind = "bulletin"`."""

from __future__ import annotations

from typing import Annotated, Final

from harken.sources.settings import SettingKey, SourceSettings


class BulletinSettings(SourceSettings, frozen=True, kw_only=True):
    """One folder of notes: each key with what it means, and the option of `harken source add bulletin` that sets it."""

    what = "a folder of notes"

    folder: Annotated[str, SettingKey("The folder of notes, such as /srv/notes.", metavar="DIR")]
    poll: Annotated[float, SettingKey("From one look to the next.", metavar="SECONDS", least=0.01, most=3_600)] = 1.0
    secret: Annotated[
        str, SettingKey("Where the word is kept that every note ends with.", metavar="REF", is_secret=True)
    ] = ""


read_settings: Final = BulletinSettings.read
