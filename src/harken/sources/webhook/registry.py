"""The presets by their names, but for `generic`, which is made of its settings.

A preset that is added is one module in `presets/` and one line here. Above are `settings.py` and the commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harken.sources.webhook.preset import Preset
from harken.sources.webhook.presets import alertmanager, github, gitlab, jira, sentry, slack, standard

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        each.name: each
        for each in (
            github.PRESET,
            gitlab.PRESET,
            slack.PRESET,
            alertmanager.PRESET,
            jira.PRESET,
            sentry.PRESET,
            standard.PRESET,
        )
    }
)
