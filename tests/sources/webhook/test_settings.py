"""What is written in config.toml: everything that is wrong is said before anything is posted."""

from __future__ import annotations

import pytest

from harken.sources.webhook.preset import preset_names
from harken.sources.webhook.settings import DEFAULT_MAX_BYTES, WINDOW_SECONDS, read_settings


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_and_a_secret_are_enough(preset: str) -> None:
    """Everything else has a default that a service can be given as it is."""
    settings = read_settings("ci", {"kind": "webhook", "preset": preset, "secret": "env:CI", "trust": "known"})
    assert (settings.preset.name, settings.path, settings.secrets) == (preset, "/hooks/ci", ("env:CI",))
    assert (settings.max_bytes, settings.window, settings.channels) == (DEFAULT_MAX_BYTES, WINDOW_SECONDS, frozenset())
    assert settings.preset.where


def test_several_secrets_may_be_named() -> None:
    """So that one can follow another."""
    settings = read_settings("ci", {"preset": "github", "secrets": ["env:OLD", "file:secrets/ci"], "channels": ["*"]})
    assert (settings.secrets, settings.channels) == (("env:OLD", "file:secrets/ci"), frozenset())
