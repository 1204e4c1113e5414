"""From settings to the policy of ingest: what configuration says about senders, routes and attention. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harken.config.settings import Settings
from harken.daemon.sources import attention_of, is_machine, trust_of
from harken.errors import UserError
from harken.inbox.caller import CHANNELS_ID
from harken.ingest.prepare import IngestPolicy
from harken.ingest.route import AttentionRule
from harken.model import LOCAL, OWNER_ID, Attention, SenderRule, Trust


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


def refuse_missing(settings: Settings) -> None:
    """Refuse what can be written in the configuration and is not there yet: ignoring it would lose mail."""
    if settings.store.url != "sqlite":
        raise UserError("This version of Harken stores in SQLite only.", 'Set store.url = "sqlite", or leave it out.')


def _rules(senders: Sequence[str], trust: Trust) -> list[SenderRule]:
    pairs = (entry.partition(":") for entry in senders)
    return [SenderRule(source, sender, trust) for source, _, sender in pairs]
