"""How Qwen Code is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, MODEL, ModelOverrides, TrialRecipe, write_file


def _overrides(url: str) -> ModelOverrides:
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    # Settings of the person win over the environment, arguments over both.
    given = ("--auth-type", "openai", "--model", MODEL, "--openai-base-url", f"{url}/v1", "--openai-api-key", KEY)
    return ModelOverrides(argv=given, env=env)


def _prepare(user: Path, _project: Path, _url: str) -> None:
    write_file(
        user / ".qwen" / "settings.json",
        {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "ui": {"theme": "Default"},
        },
    )


TRIAL: Final = TrialRecipe(
    overrides=_overrides,
    prepare=_prepare,
    headless_argv=lambda prompt: ("--approval-mode", "yolo", "-p", prompt),
    interactive_argv=("--approval-mode", "yolo"),
    ready="Type your message",
)
