"""How Magpie is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, ModelOverrides, TrialRecipe, write_file


def _prepare(user: Path, _project: Path, _url: str) -> None:
    write_file(user / ".magpie" / "settings.json", {"welcome": False})


TRIAL: Final = TrialRecipe(
    overrides=lambda url: ModelOverrides(env={"MAGPIE_MODEL": url, "MAGPIE_KEY": KEY}),
    prepare=_prepare,
    headless_argv=lambda prompt: ("--headless", "--prompt", prompt),
    ready="Magpie>",
)
