"""From settings to sources: each entry of `[sources]` becomes one, with its secrets resolved.

A source whose secret is missing does not keep the daemon from starting: it is there, and says what a person must do.
What is written wrongly is refused at start, as every setting is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Final, Protocol, TypeVar, runtime_checkable

from harken.clock import Clock
from harken.config.home import Home
from harken.config.settings import Settings
from harken.daemon.entry import Entry
from harken.dispatch.outbox import ReplySender
from harken.dispatch.placeholder import Placeholding
from harken.errors import UserError
from harken.model import Attention, Trust
from harken.sources.base import Source, SourceReport
from harken.sources.imap.settings import read_settings as read_mail_settings
from harken.sources.microsoft.sent import MAX_IDS
from harken.store.contract import Store

MCP, WEBHOOK, IMAP = "mcp", "webhook", "imap"
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        MCP: "harken.daemon.mcp_servers",
        "teams": "harken.daemon.graph",
        "outlook": "harken.daemon.graph",
        "bot": "harken.daemon.bot",
        IMAP: "harken.daemon.mail",
        WEBHOOK: "harken.daemon.webhook",
    }
)
"""The module that makes each kind of source, by `make_source`."""

_Choice = TypeVar("_Choice", Trust, Attention)


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


@runtime_checkable
class HoldsPlaces(Protocol):
    """A source that may hold the places of answers."""

    name: str
    holder: Placeholding | None


@runtime_checkable
class Remembers(Protocol):
    """A source that must know its own words when it hears them."""

    name: str

    def remember(self, upstream_ids: Sequence[str]) -> None:
        """Take note of what was sent before, the oldest first."""
        ...


def holders_of(sources: Sequence[Source]) -> dict[str, Placeholding]:
    """Return who holds the places of answers, of the sources where that is wanted."""
    return {each.name: each.holder for each in sources if isinstance(each, HoldsPlaces) and each.holder is not None}


async def recall_sent(sources: Sequence[Source], store: Store) -> None:
    """Tell the sources what was sent through them before the daemon started."""
    for each in sources:
        if isinstance(each, Remembers):
            each.remember(await store.outbox.sent_ids(each.name, MAX_IDS))


def announcers_of(settings: Settings) -> frozenset[str]:
    """Return the sources that are heard only: what other MCP servers announce and webhooks say cannot be answered."""
    silent = {name for name, entry in settings.sources.items() if entry.get("kind") in (MCP, WEBHOOK)}
    mail = {name: entry for name, entry in settings.sources.items() if entry.get("kind") == IMAP}
    # A mail account is heard only where it is not said how mail leaves.
    return frozenset(silent | {name for name, entry in mail.items() if not read_mail_settings(name, entry).can_answer})


async def close_sources(sources: Sequence[Source]) -> None:
    """Close what is open beyond the feeds."""
    for each in sources:
        if isinstance(each, Answerable):
            await each.aclose()


def make_sources(settings: Settings, home: Home, clock: Clock, environ: Mapping[str, str]) -> list[Source]:
    """Return the configured sources. Raises `UserError` for an entry that is written wrongly."""
    return [
        _make(
            Entry(
                name=name,
                table=table,
                home=home,
                clock=clock,
                environ=environ,
                public_url=settings.hooks.public_url,
            )
        )
        for name, table in settings.sources.items()
        if _is_enabled(name, table)
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
    """Return how far what comes through a source may push: what people write wakes, what machines say does not."""
    entry = settings.sources[name]
    usual = Attention.PROMPT if is_machine(name, settings) else Attention.WAKE
    return _choice(Attention, entry, "attention", name, settings.attention.get(name, usual))


def is_machine(name: str, settings: Settings) -> bool:
    """Whether it is programs that speak through a source: other MCP servers, webhooks."""
    return settings.sources[name].get("kind") in (MCP, WEBHOOK)


def _choice(kind: type[_Choice], entry: Mapping[str, object], key: str, name: str, default: _Choice) -> _Choice:
    found = entry.get(key, default.value)
    for choice in kind:
        if choice.value == found:
            return choice
    known = ", ".join(choice.value for choice in kind)
    raise UserError(f"sources.{name}.{key} is {str(found)[:40]!r}.", f"Use one of: {known}.")


def _make(entry: Entry) -> Source:
    module = KINDS.get(entry.kind)
    if module is None:
        raise UserError(
            f"This version of Harken has no sources of kind {entry.kind!r}.",
            f"Take [sources.{entry.name}] out of config.toml, or use kind = {', '.join(KINDS)}.",
        )
    # On use: what signs in or checks signatures takes long to import, and few have each of them.
    make: Callable[[Entry], Source] = import_module(module).make_source
    return make(entry)
