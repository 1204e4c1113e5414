"""From settings to a webhook: its secrets are looked up, and one that is missing is said and waits for a person.

Imported only when such a source is configured. Above is `sources.py`; below is the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harken.config.home import Home
from harken.config.secrets import resolve
from harken.daemon.entry import Entry
from harken.errors import NeedsPerson, UserError
from harken.sources.webhook.settings import WebhookSettings, read_settings
from harken.sources.webhook.signing import Keys
from harken.sources.webhook.source import WebhookSource

MIN_SECRET_CHARS: Final = 8
MIN_KEY_BYTES: Final = 8


def make_source(entry: Entry) -> WebhookSource:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return WebhookSource(settings, keys_of(settings, entry.home, entry.environ), entry.clock)
    except (UserError, NeedsPerson) as exc:
        # What is kept elsewhere is missing or no secret; what is written here may be right.
        return WebhookSource(settings, (), entry.clock, f"{exc.message} {exc.hint}")


def keys_of(settings: WebhookSettings, home: Home, environ: Mapping[str, str]) -> Keys:
    """Return the keys that may have signed; raises `UserError` or `NeedsPerson` when a secret cannot be had."""
    keys: list[bytes] = []
    for reference in settings.secrets:
        secret = resolve(reference, home, environ)
        if len(secret) < MIN_SECRET_CHARS:
            raise UserError(
                f"A secret of sources.{settings.name} has fewer than {MIN_SECRET_CHARS} characters.",
                "Make a longer one: anybody could guess it.",
            )
        keys += settings.preset.keys(secret)
    # The text may be long and the key in it short.
    if any(len(key) < MIN_KEY_BYTES for key in keys):
        raise UserError(
            f"A secret of sources.{settings.name} holds a key of fewer than {MIN_KEY_BYTES} bytes.",
            "Make a longer one: anybody could guess it.",
        )
    return tuple(keys)
