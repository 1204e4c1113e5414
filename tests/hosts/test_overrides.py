"""A trial in a person's own configuration: their settings name another model, and ours answers all the same.

This is what the live checks stand on. Their settings are read, never written, and no request leaves for their model.
"""

from __future__ import annotations

import json
from pathlib import Path

from harken.trial.exchange import in_order
from harken.trial.model import MockModel
from tests.hosts.stage import PATH, Stage
from tests.hosts.story import assert_once, marker


def settings_of_a_person(name: str, user: Path, other: str) -> dict[Path, str]:
    """Return settings files in which a person has chosen another model; a host without any takes it from variables."""
    provider = f'[model_providers.other]\nname="other"\nbase_url="{other}/v1"\nwire_api="responses"\nenv_key="OTHER"\n'
    # Two hosts complete a settings file that lacks its first line, whoever starts them.
    opencode = {
        "$schema": "https://opencode.ai/config.json",
        "model": "other/m",
        "autoupdate": False,
        "provider": {"other": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": other}, "models": {"m": {}}}},
    }
    qwen = {"auth": {"selectedType": "openai", "apiKey": "theirs", "baseUrl": f"{other}/v1"}}
    files = {
        "claude-code": {".claude/settings.json": json.dumps({"env": {"ANTHROPIC_BASE_URL": other}})},
        "codex": {".codex/config.toml": f'model_provider="other"\nmodel="theirs"\n{provider}'},
        "gemini-cli": {".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "oauth-personal"}}})},
        "opencode": {".config/opencode/opencode.json": json.dumps(opencode)},
        "qwen-code": {
            ".qwen/settings.json": json.dumps({"$version": 4, "security": qwen, "model": {"name": "theirs"}})
        },
    }
    return {user / path: content for path, content in files.get(name, {}).items()}


def test_a_trial_replaces_the_model_that_a_person_has_chosen(bare_stage: Stage) -> None:
    """A live check that reached the person's model would cost them money and tell us nothing."""
    prompt, answer = marker(), marker()
    recipe, model = bare_stage.recipe, bare_stage.model
    model.follow(in_order(then=answer))
    with MockModel() as other:
        files = settings_of_a_person(bare_stage.host.name, bare_stage.user, other.url)
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        recipe.prepare_folder(bare_stage.project)
        overrides = recipe.overrides(model.url)
        theirs = {
            "ANTHROPIC_API_KEY": "theirs",
            "COPILOT_PROVIDER_BASE_URL": f"{other.url}/v1",
            "GOOGLE_API_KEY": "theirs",
            "HOME": str(bare_stage.user),
            "OPENAI_BASE_URL": f"{other.url}/v1",
            "PATH": PATH,
        }
        argv = recipe.headless(bare_stage.program, prompt, overrides)
        done = bare_stage.run(argv, overrides.applied(theirs))
        assert answer in done.stdout
        assert_once(bare_stage, prompt)
        assert other.requests == ()
        assert other.strays == ()
        assert {path: path.read_text() for path in files} == files
