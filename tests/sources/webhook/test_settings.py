"""What is written in config.toml: everything that is wrong is said before anything is posted."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from harken.errors import UserError
from harken.sources.webhook.preset import preset_names
from harken.sources.webhook.settings import MAX_BYTES, WINDOW_SECONDS, read_settings


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_and_a_secret_are_enough(preset: str) -> None:
    """Everything else has a default that a service can be given as it is."""
    settings = read_settings("ci", {"kind": "webhook", "preset": preset, "secret": "env:CI", "trust": "known"})
    assert (settings.preset.name, settings.path, settings.secrets) == (preset, "/hooks/ci", ("env:CI",))
    assert (settings.max_bytes, settings.window, settings.channels) == (MAX_BYTES, WINDOW_SECONDS, frozenset())
    assert settings.preset.where


def test_several_secrets_may_be_named() -> None:
    """So that one can follow another."""
    settings = read_settings("ci", {"preset": "github", "secrets": ["env:OLD", "file:secrets/ci"], "channels": ["*"]})
    assert (settings.secrets, settings.channels) == (("env:OLD", "file:secrets/ci"), frozenset())


def test_mistakes_name_the_key_and_what_would_do() -> None:
    """And a secret that was pasted is not repeated."""
    github = {"preset": "github", "secret": "env:CI"}
    generic = {"preset": "generic", "secret": "env:CI"}
    mistakes: list[dict[str, Any]] = [
        {"secret": "env:CI"},
        {"preset": "gitea", "secret": "env:CI"},
        {"preset": "github"},
        {"preset": "github", "secret": "hunter2hunter2"},
        {"preset": "github", "secret": 5},
        {**github, "secrets": ["env:B"]},
        {"preset": "github", "secrets": []},
        {"preset": "github", "secrets": ["env:A"] * 9},
        {**github, "chanels": ["push"]},
        {**github, "channels": "push"},
        {**github, "text": "a.b"},
        {**github, "max_bytes": 10},
        {**github, "window": "5m"},
        {**generic, "text": "a["},
        {**generic, "text": "a" * 1_001},
        {**generic, "text": "(" * 900},
        {**generic, "id": ""},
        {**generic, "scheme": "none"},
        {**generic, "header": "X Y"},
        {**generic, "encoding": "base32"},
    ]
    said = []
    for entry in mistakes:
        with pytest.raises(UserError) as caught:
            read_settings("ci", entry)
        assert caught.value.hint
        assert "hunter2" not in caught.value.message + caught.value.hint
        said.append(caught.value.message)
    assert said == snapshot(
        [
            "sources.ci.preset is missing.",
            "sources.ci.preset is 'gitea'.",
            "sources.ci.secret is missing.",
            "sources.ci.secret does not say where it is kept.",
            "sources.ci.secret does not say where it is kept.",
            "sources.ci.secret and sources.ci.secrets are both there.",
            "sources.ci.secrets is empty or too long.",
            "sources.ci.secrets is empty or too long.",
            "sources.ci.chanels is not a setting of a webhook.",
            "sources.ci.channels is not a list of texts.",
            'sources.ci.text has no meaning with preset = "github".',
            "sources.ci.max_bytes is 10.",
            "sources.ci.window is '5m'.",
            "sources.ci.text is not a JMESPath expression: a[",
            "sources.ci.text is longer than 1000 characters.",
            "sources.ci.text is not a JMESPath expression: (((((((((((((((((((((((((((((((((((((((…",
            "sources.ci.id is not a text of one line.",
            "sources.ci.scheme is 'none'.",
            "sources.ci.header cannot be the name of a header.",
            "sources.ci.encoding is 'base32'.",
        ]
    )
