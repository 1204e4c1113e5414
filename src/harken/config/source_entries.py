"""From a table of `[sources]` to what its source is made with: secrets and paths resolved as the home says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from harken.clock import Clock
from harken.config.home import Home, expand_user
from harken.config.secrets import resolve
from harken.sources.source import SourceEntry


def source_entry(
    name: str,
    table: Mapping[str, object],
    *,
    home: Home,
    clock: Clock,
    environ: Mapping[str, str],
    public_url: str = "",
) -> SourceEntry:
    """Return the entry of a source; nothing is looked up yet."""
    return SourceEntry(
        name=name,
        table=table,
        clock=clock,
        folder=home.path,
        secret=partial(resolve, home=home, environ=environ),
        locate=lambda path: home.path / expand_user(path, environ),
        public_url=public_url,
    )
