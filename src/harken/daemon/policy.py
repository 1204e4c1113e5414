"""From settings to the policy of ingest: what configuration says about senders, routes and attention. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harken.config.settings import Settings
from harken.errors import UserError
from harken.inbox.caller import OWNER_ID
from harken.ingest.prepare import Policy
from harken.model import LOCAL, Attention, SenderRule, Trust


def configured_policy(settings: Settings) -> Policy:
    """Return the policy before the person's decisions in the store."""
    local = (SenderRule(LOCAL, OWNER_ID, Trust.OWNER),)
    return Policy(
        sender_rules=(
            *local,
            *_rules(settings.trust.owner, Trust.OWNER),
            *_rules(settings.trust.known, Trust.KNOWN),
        ),
        # Whoever reaches the local socket is the same user: people and programs there are known unless denied.
        default_trust={LOCAL: Trust.KNOWN, **dict.fromkeys(settings.sources, settings.trust.default)},
        routes=settings.routes,
        attention_rules=settings.attention_rules,
        default_attention={LOCAL: Attention.WAKE, **settings.attention},
        max_chars=settings.limits.max_message_chars,
    )


def refuse_missing(settings: Settings) -> None:
    """Refuse what can be written in the configuration and is not there yet: ignoring it would lose mail."""
    if settings.store.url != "sqlite":
        raise UserError("This version of Harken stores in SQLite only.", 'Set store.url = "sqlite", or leave it out.')
    for name, source in settings.sources.items():
        raise UserError(
            f"This version of Harken has no sources of kind {source.get('kind')!r}.",
            f"Take [sources.{name}] out of config.toml.",
        )


def _rules(senders: Sequence[str], trust: Trust) -> list[SenderRule]:
    pairs = (entry.partition(":") for entry in senders)
    return [SenderRule(source, sender, trust) for source, _, sender in pairs]
