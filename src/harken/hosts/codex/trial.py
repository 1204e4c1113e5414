"""How Codex is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, MODEL, ModelOverrides, TrialRecipe, write_file


def _settings(url: str) -> tuple[str, ...]:
    provider = f'{{name="trial",base_url="{url}/v1",wire_api="responses",env_key="HARKEN_TRIAL_KEY"}}'
    return (f"model_providers.trial={provider}", 'model_provider="trial"')


def _overrides(url: str) -> ModelOverrides:
    # The model's name stays, because tools are offered differently for each. With these arguments no shared daemon is
    # started: the terminal does everything itself. In a sandbox that may write, the host would note in the person's
    # settings that it trusts the folder.
    argv = tuple(part for setting in _settings(url) for part in ("-c", setting))
    return ModelOverrides(argv=(*argv, "--sandbox", "read-only"), env=_private(url).env)


def _private(_url: str) -> ModelOverrides:
    return ModelOverrides(env={"HARKEN_TRIAL_KEY": KEY})


def _prepare(user: Path, project: Path, url: str) -> None:
    lines = (
        *_settings(url),
        f'model="{MODEL}"',
        'sandbox_mode = "danger-full-access"',
        'approval_policy = "never"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        f"[projects.{json.dumps(str(project))}]",
        'trust_level = "trusted"',
    )
    write_file(user / ".codex" / "config.toml", "\n".join(lines) + "\n")


TRIAL: Final = TrialRecipe(
    overrides=_overrides,
    private=_private,
    prepare=_prepare,
    headless_argv=lambda prompt: ("--skip-git-repo-check", prompt),
    verb=("exec",),
    ready="\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} Ask Codex",
)
