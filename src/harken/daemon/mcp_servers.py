"""From an entry to an MCP server that is listened to, with its secrets resolved wherever they may stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harken.config.secrets import resolve
from harken.daemon.entry import Entry
from harken.errors import NeedsPerson, UserError
from harken.sources.base import Source
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import McpSource

# `Bearer env:CI_TOKEN`: many programs keep the token without the word before it.
_MAY_BE_SECRET: Final = frozenset({"url", "headers", "env", "args"})
_REFERENCE: Final = re.compile(r"(?P<scheme>(?:[A-Za-z]+ )?)(?P<reference>(?:env|file|keyring):.+)", re.DOTALL)


def make_source(entry: Entry) -> Source:
    """Return the source of an entry; raises `UserError` for what is written wrongly."""
    secrets: set[str] = set()

    def resolved(value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            # Among arguments the address of a file is what it is; as a header it can only be a reference.
            return [item if str(item).startswith("file://") else resolved(item) for item in value]
        if isinstance(value, str) and (found := _REFERENCE.fullmatch(value)):
            secret = resolve(found["reference"], entry.home, entry.environ)
            secrets.add(secret)
            return found["scheme"] + secret
        return value

    # Elsewhere a text that looks like a reference is something else, such as the address of a resource.
    may_hold = {key: value for key, value in entry.table.items() if key in _MAY_BE_SECRET}
    try:
        known = {**entry.table, **{key: resolved(value) for key, value in may_hold.items()}}
        return McpSource(read_settings(entry.name, known, secrets), entry.clock)
    except (UserError, NeedsPerson) as exc:
        if not _has_references(may_hold):
            raise
        # A secret is missing, or is not what it should be; what is written in the settings may be right.
        return entry.unready(exc)


def _has_references(value: object) -> bool:
    """Whether something in an entry is looked up elsewhere."""
    if isinstance(value, Mapping):
        return any(_has_references(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_references(item) for item in value)
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None
