"""Webhooks, declared: what other services post."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harken.sources.source import Source, SourceEntry, SourceKind, Speakers

if TYPE_CHECKING:
    from harken.sources.check import CheckContext, CheckReport
    from harken.sources.setup import SourceSetup


def _check_settings(name: str, entry: Mapping[str, object]) -> None:
    from harken.sources.webhook.settings import read_settings

    read_settings(name, entry)


def _make(entry: SourceEntry) -> Source:
    from harken.sources.webhook.source import make_source

    return make_source(entry)


def _setup() -> SourceSetup:
    from harken.sources.webhook.setup import WebhookSetup

    return WebhookSetup()


def _check(entry: SourceEntry, context: CheckContext) -> CheckReport:
    from harken.sources.webhook.setup import check

    return check(entry, context)


KIND: Final = SourceKind(
    name="webhook",
    title="Webhook",
    summary="An address that GitHub, GitLab, Slack and others post to, and anything that signs.",
    speakers=Speakers.MACHINES,
    check_settings=_check_settings,
    make=_make,
    can_answer=lambda _name, _entry: False,
    setup=_setup,
    check=_check,
)
