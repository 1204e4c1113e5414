"""How Gemini CLI is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, ModelOverrides, TrialRecipe, write_file


def _overrides(url: str) -> ModelOverrides:
    # How to sign in can be set by neither an argument nor a variable: see `prepare_folder`.
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    without = frozenset({"GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"})
    return ModelOverrides(argv=("--model", "gemini-2.5-flash"), env=env, without=without)


def _prepare_folder(project: Path) -> None:
    write_file(project / ".gemini" / "settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})


def _prepare(user: Path, project: Path, _url: str) -> None:
    write_file(
        user / ".gemini" / "settings.json",
        {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "ui": {"theme": "Default"},
        },
    )
    write_file(user / ".gemini" / "trustedFolders.json", {str(project): "TRUST_FOLDER"})


TRIAL: Final = TrialRecipe(
    overrides=_overrides,
    prepare=_prepare,
    prepare_folder=_prepare_folder,
    headless_argv=lambda prompt: ("--approval-mode", "yolo", "-p", prompt),
    interactive_argv=("--approval-mode", "yolo"),
    quiet={"GEMINI_TELEMETRY_ENABLED": "false", "NO_BROWSER": "true"},
    ready="Type your message",
)
