"""Webhooks, declared: what other services post."""

from __future__ import annotations

from typing import Final

from harken.plugins import LazyPart
from harken.sources.source import SourceKind, Speakers

KIND: Final = SourceKind(
    name="webhook",
    title="Webhook",
    summary="An address that GitHub, GitLab, Slack and any program that signs can post to.",
    speakers=Speakers.MACHINES,
    read_settings=LazyPart("harken.sources.webhook.settings:read_settings"),
    answers=False,
    make=LazyPart("harken.sources.webhook.source:make_source"),
    setup=LazyPart("harken.sources.webhook.settings:WebhookSetup"),
    check=LazyPart("harken.sources.webhook.source:check"),
)
