"""From settings to the policy of ingest: what configuration says about senders, routes and attention. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from harken.config.settings import Settings
from harken.errors import UserError
from harken.inbox.caller import CHANNELS_ID
from harken.ingest.policy import AttentionRule, IngestPolicy
from harken.model import LOCAL, OWNER_ID, Attention, SenderRule, Trust
from harken.sources.registry import kinds
from harken.sources.source import Speakers

_Choice = TypeVar("_Choice", Trust, Attention)


def configured_policy(settings: Settings) -> IngestPolicy:
    """Return the policy before the person's decisions in the store."""
    # What a person injects is not their word but that of machines: data, that comes between two tool calls.
    local = (SenderRule(LOCAL, OWNER_ID, Trust.OWNER), SenderRule(LOCAL, CHANNELS_ID, Trust.UNKNOWN))
    injected = AttentionRule(Attention.BOUNDARY, source=LOCAL, sender=CHANNELS_ID, allow_unknown=True)
    return IngestPolicy(
        sender_rules=(
            *local,
            *_rules(settings.trust.owner, Trust.OWNER),
            *_rules(settings.trust.known, Trust.KNOWN),
        ),
        machines=frozenset(name for name in settings.sources if is_machine(name, settings)),
        # Whoever reaches the local socket is the same user: people and programs there are known unless denied.
        default_trust={LOCAL: Trust.KNOWN, **{name: trust_of(name, settings) for name in settings.sources}},
        routes=settings.routes,
        # Whoever configures a server wants to hear of it: what it announces goes with prompts, trusted or not. Where
        # people write, everyone can: a stranger there is only counted.
        attention_rules=(
            injected,
            *settings.attention_rules,
            *(
                AttentionRule(attention=attention_of(name, settings), source=name, allow_unknown=True)
                for name in settings.sources
                if is_machine(name, settings)
            ),
        ),
        default_attention={
            LOCAL: Attention.WAKE,
            **settings.attention,
            **{name: attention_of(name, settings) for name in settings.sources},
        },
    )


def trust_of(name: str, settings: Settings) -> Trust:
    """Return how far what comes through a source is trusted, where nothing is decided about its sender."""
    entry = settings.sources[name]
    trust = _choice(Trust, entry, "trust", name, settings.trust.default)
    if trust is Trust.OWNER:
        raise UserError(f"sources.{name} cannot be trusted like you.", 'Use trust = "known" or "unknown".')
    return trust


def attention_of(name: str, settings: Settings) -> Attention:
    """Return how far what comes through a source may push: what people write wakes, what machines say does not."""
    entry = settings.sources[name]
    usual = Attention.PROMPT if is_machine(name, settings) else Attention.WAKE
    return _choice(Attention, entry, "attention", name, settings.attention.get(name, usual))


def is_machine(name: str, settings: Settings) -> bool:
    """Whether it is programs that speak through a source."""
    kind = kinds().by_name.get(str(settings.sources[name].get("kind")))
    return kind is not None and kind.speakers is Speakers.MACHINES


def _choice(kind: type[_Choice], entry: Mapping[str, object], key: str, name: str, default: _Choice) -> _Choice:
    found = entry.get(key, default.value)
    for choice in kind:
        if choice.value == found:
            return choice
    known = ", ".join(choice.value for choice in kind)
    raise UserError(f"sources.{name}.{key} is {str(found)[:40]!r}.", f"Use one of: {known}.")


def _rules(senders: Sequence[str], trust: Trust) -> list[SenderRule]:
    pairs = (entry.partition(":") for entry in senders)
    return [SenderRule(source, sender, trust) for source, _, sender in pairs]
