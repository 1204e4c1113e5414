"""How Copilot CLI is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, MODEL, ModelOverrides, TrialRecipe, write_file


def _overrides(url: str) -> ModelOverrides:
    env = {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_MODEL": MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }
    return ModelOverrides(env=env, without=frozenset({"COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_WIRE_API"}))


def _prepare(user: Path, project: Path, _url: str) -> None:
    write_file(
        user / ".copilot" / "config.json", {"trustedFolders": [str(project)], "firstLaunchAt": "2026-01-05T09:00:00Z"}
    )


TRIAL: Final = TrialRecipe(
    overrides=_overrides,
    prepare=_prepare,
    headless_argv=lambda prompt: ("--allow-all-tools", "--no-ask-user", "-p", prompt),
    interactive_argv=("--allow-all-tools",),
    ready="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
)
