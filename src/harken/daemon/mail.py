"""From settings to a mail account: a source over IMAP, with the sender of its answers.

Imported only when such a source is configured. The secret is looked up each time somebody signs in. Above is
`sources.py`; below is the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from harken.config.home import Home
from harken.config.secrets import resolve
from harken.daemon.certificates import believed
from harken.daemon.entry import Entry
from harken.errors import UserError
from harken.sources.base import Source
from harken.sources.imap.connection import Credentials
from harken.sources.imap.settings import ImapSettings, read_settings
from harken.sources.imap.source import ImapSource


def make_source(entry: Entry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    settings = read_settings(entry.name, entry.table)
    try:
        return ImapSource(settings, credentials_of(settings, entry.home, entry.environ), entry.clock)
    except UserError as exc:
        # The certificates that are to be believed cannot be read.
        return entry.unready(exc, settings.place)


def credentials_of(settings: ImapSettings, home: Home, environ: Mapping[str, str]) -> Credentials:
    """Return who signs in; the secret is not looked up yet."""
    return Credentials(
        source=settings.name,
        user=settings.user,
        look_up=partial(resolve, settings.secret, home, environ),
        is_token=settings.is_token,
        trust=believed(settings.ca, settings.name, home, environ),
    )
