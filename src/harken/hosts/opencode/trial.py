"""How opencode is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, MODEL, ModelOverrides, TrialRecipe, write_file


def _overrides(url: str) -> ModelOverrides:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "trial",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    model = f"trial/{MODEL}"
    content = {"model": model, "small_model": model, "enabled_providers": ["trial"], "provider": {"trial": provider}}
    return ModelOverrides(argv=("--model", model), env={"OPENCODE_CONFIG_CONTENT": json.dumps(content)})


def _prepare(user: Path, _project: Path, _url: str) -> None:
    folder = user / ".config" / "opencode"
    write_file(folder / "opencode.json", {"autoupdate": False, "share": "disabled"})
    # What it would install at each start, and nothing here uses. One that ends meanwhile leaves its lock, for which the
    # next one waits for a minute.
    (folder / "node_modules").mkdir(exist_ok=True)
    write_file(folder / "package-lock.json", {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}})


TRIAL: Final = TrialRecipe(
    overrides=_overrides,
    prepare=_prepare,
    headless_argv=lambda prompt: (prompt,),
    verb=("run",),
    quiet={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "npm_config_offline": "true",  # it waits for packages that a plugin might need
    },
    ready="Ask anything",
)
