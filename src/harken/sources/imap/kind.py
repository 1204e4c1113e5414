"""Any mail account, declared: over IMAP, and answered over SMTP."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="imap",
    title="Mail",
    summary="Any mail account: read over IMAP, answered over SMTP.",
    speakers=Speakers.PEOPLE,
    read_settings=LazyPart("harken.sources.imap.settings:read_settings"),
    answers=LazyPart("harken.sources.imap.settings:can_answer"),
    make=LazyPart("harken.sources.imap.source:make_source"),
    setup=LazyPart("harken.sources.imap.settings:ImapSetup"),
    check=LazyPart("harken.sources.imap.source:check"),
    channel="email",
)
