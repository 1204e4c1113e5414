"""How Claude Code is started for a trial: what replaces its model, and how it is asked something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from harken.hosts.trial_recipe import KEY, ModelOverrides, TrialRecipe, write_file


def _overrides(url: str) -> ModelOverrides:
    # A token, because a key makes the host ask whether to use it. What a person's settings say wins over the
    # environment, and these settings win over theirs: the switches to other clouds are turned off in both.
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "CLAUDE_CODE_USE_BEDROCK": "0",
        "CLAUDE_CODE_USE_VERTEX": "0",
        "CLAUDE_CODE_USE_FOUNDRY": "0",
    }
    argv = ("--settings", json.dumps({"env": env}))
    return ModelOverrides(argv=argv, env=env, without=frozenset({"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"}))


def _private(url: str) -> ModelOverrides:
    return ModelOverrides(env={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY})


def _prepare(user: Path, project: Path, _url: str) -> None:
    write_file(
        user / ".claude.json",
        {
            "hasCompletedOnboarding": True,
            "lastOnboardingVersion": "99.0.0",
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
        },
    )


# A pattern over all servers is not allowed; these are the names our server has, alone and in a plugin.
_TOOLS: Final = "Bash,mcp__harken__*,mcp__plugin_harken_harken__*"

TRIAL: Final = TrialRecipe(
    overrides=_overrides,
    private=_private,
    prepare=_prepare,
    headless_argv=lambda prompt: ("--allowedTools", _TOOLS, "-p", prompt),
    interactive_argv=("--allowedTools", _TOOLS),
    quiet={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
    },
    fed_argv=("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    ready="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
)
