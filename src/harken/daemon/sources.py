"""From settings to sources: each entry of `[sources]` becomes one, with its secrets resolved.

A source whose secret is missing does not keep the daemon from starting: it is there, and says what a person must do.
What is written wrongly is refused at start, as every setting is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, TypeVar, runtime_checkable

from harken.clock import Clock
from harken.config.home import Home
from harken.config.secrets import resolve
from harken.config.settings import Settings
from harken.dispatch.outbox import ReplySender
from harken.errors import NeedsPerson, UserError
from harken.model import Attention, Trust
from harken.sources.base import Feed, Source, SourceHealth, SourceReport, SourceState
from harken.sources.graph.settings import KINDS as GRAPH_KINDS
from harken.sources.graph.settings import GraphSettings
from harken.sources.graph.settings import read_settings as read_graph_settings
from harken.sources.mcp.settings import read_settings
from harken.sources.mcp.source import KIND, McpSource

_Choice = TypeVar("_Choice", Trust, Attention)

# `Bearer env:CI_TOKEN`: many programs keep the token without the word before it.
_MAY_BE_SECRET = frozenset({"url", "headers", "env", "args"})
_REFERENCE = re.compile(r"(?P<scheme>(?:[A-Za-z]+ )?)(?P<reference>(?:env|file|keyring):.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UnreadySource:
    """A source that cannot be opened before a person has acted."""

    name: str
    kind: str
    reason: str
    address: str = ""

    def feeds(self) -> Sequence[Feed]:
        """Return nothing: there is nothing to follow yet."""
        return ()

    def health(self) -> SourceHealth:
        """Say what is missing."""
        return SourceHealth(state=SourceState.NEEDS_PERSON, reason=self.reason)


@runtime_checkable
class Answerable(Protocol):
    """A source that can also be answered, over connections of its own."""

    name: str
    sender: ReplySender | None

    async def aclose(self) -> None:
        """Close its connections."""
        ...


def senders_of(sources: Sequence[Source]) -> dict[str, ReplySender]:
    """Return how the sources that can be answered are answered."""
    return {each.name: each.sender for each in sources if isinstance(each, Answerable) and each.sender is not None}


def announcers_of(settings: Settings) -> frozenset[str]:
    """Return the sources that are heard only: what other MCP servers announce cannot be answered."""
    return frozenset(name for name, entry in settings.sources.items() if entry.get("kind") == KIND)


async def close_sources(sources: Sequence[Source]) -> None:
    """Close what is open beyond the feeds."""
    for each in sources:
        if isinstance(each, Answerable):
            await each.aclose()


def make_sources(settings: Settings, home: Home, clock: Clock, environ: Mapping[str, str]) -> list[Source]:
    """Return the configured sources. Raises `UserError` for an entry that is written wrongly."""
    return [
        _make(name, entry, home, clock, environ) for name, entry in settings.sources.items() if _is_enabled(name, entry)
    ]


def _is_enabled(name: str, entry: Mapping[str, object]) -> bool:
    is_on = entry.get("enabled", True)
    if not isinstance(is_on, bool):
        raise UserError(f"sources.{name}.enabled is {str(is_on)[:40]!r}.", "Use true or false.")
    return is_on


def report(source: Source, settings: Settings) -> SourceReport:
    """Return what people are told about a source."""
    return SourceReport(
        name=source.name,
        kind=source.kind,
        address=source.address,
        health=source.health(),
        trust=trust_of(source.name, settings),
        attention=attention_of(source.name, settings),
    )


def trust_of(name: str, settings: Settings) -> Trust:
    """Return how far what comes through a source is trusted, where nothing is decided about its sender."""
    entry = settings.sources[name]
    trust = _choice(Trust, entry, "trust", name, settings.trust.default)
    if trust is Trust.OWNER:
        raise UserError(f"sources.{name} cannot be trusted as you are.", 'Use trust = "known" or "unknown".')
    return trust


def attention_of(name: str, settings: Settings) -> Attention:
    """Return how far what comes through a source may push."""
    entry = settings.sources[name]
    return _choice(Attention, entry, "attention", name, settings.attention.get(name, Attention.PROMPT))


def _choice(kind: type[_Choice], entry: Mapping[str, object], key: str, name: str, default: _Choice) -> _Choice:
    found = entry.get(key, default.value)
    for choice in kind:
        if choice.value == found:
            return choice
    known = ", ".join(choice.value for choice in kind)
    raise UserError(f"sources.{name}.{key} is {str(found)[:40]!r}.", f"Use one of: {known}.")


def _make(name: str, entry: Mapping[str, object], home: Home, clock: Clock, environ: Mapping[str, str]) -> Source:
    kind = str(entry.get("kind"))
    if kind in GRAPH_KINDS:
        return _make_account(read_graph_settings(name, entry), home, clock, environ)
    if kind != KIND:
        raise UserError(
            f"This version of Harken has no sources of kind {kind!r}.",
            f"Take [sources.{name}] out of config.toml, or use kind = {', '.join((KIND, *GRAPH_KINDS))}.",
        )
    secrets: set[str] = set()

    def resolved(value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            # Among arguments the address of a file is what it is; as a header it can only be a reference.
            return [item if str(item).startswith("file://") else resolved(item) for item in value]
        if isinstance(value, str) and (found := _REFERENCE.fullmatch(value)):
            secret = resolve(found["reference"], home, environ)
            secrets.add(secret)
            return found["scheme"] + secret
        return value

    # Elsewhere a text that looks like a reference is something else, such as the address of a resource.
    may_hold = {key: value for key, value in entry.items() if key in _MAY_BE_SECRET}
    try:
        known = {**entry, **{key: resolved(value) for key, value in may_hold.items()}}
        return McpSource(read_settings(name, known, secrets), clock)
    except (UserError, NeedsPerson) as exc:
        if not _has_references(may_hold):
            raise
        # A secret is missing, or is not what it should be; what is written in the settings may be right.
        return UnreadySource(name, kind, f"{exc.message} {exc.hint}")


def _make_account(settings: GraphSettings, home: Home, clock: Clock, environ: Mapping[str, str]) -> Source:
    # On use: what signs in takes long to import, and few have such a source.
    make: Callable[[GraphSettings, Home, Clock, Mapping[str, str]], Source]
    make = import_module("harken.daemon.graph").make_graph_source
    try:
        return make(settings, home, clock, environ)
    except (UserError, NeedsPerson) as exc:
        # What is kept elsewhere is missing: the certificate of an Agent User.
        return UnreadySource(settings.name, settings.kind, f"{exc.message} {exc.hint}", settings.address)


def _has_references(value: object) -> bool:
    """Whether something in an entry is looked up elsewhere."""
    if isinstance(value, Mapping):
        return any(_has_references(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_references(item) for item in value)
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None
