"""How each agent host is started for a trial: what replaces its model, and how it is asked something.

`overrides` are the arguments and variables that replace the model and nothing else; they write nothing into a person's
settings. `prepare` writes what a new, private home needs so that the host starts without asking who you are; it is
never used on a person's own. Both were found by running the hosts, and are run by the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KEY: Final = "trial-key-that-opens-nothing"
MODEL: Final = "mock-model"
TERMINAL: Final = "xterm-256color"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What replaces the model of a host, and only that."""

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()  # variables that would lead to another model

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the model replaced in it."""
        kept = {name: value for name, value in environ.items() if name not in self.without}
        return {**kept, **self.env}


def _nothing(_project: Path) -> None:
    """Write nothing: most hosts need no folder for a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How one host is started."""

    name: str  # in `hosts.base.HOSTS`
    program: str  # what its command is called
    overrides: Callable[[str], Overrides]  # from the model's address: for a home that knows nothing of the trial
    prepare: Callable[[Path, Path, str], None]  # writes into a private home, for a project folder and a model
    headless_argv: Callable[[str], tuple[str, ...]]  # from a prompt
    private: Callable[[str], Overrides] | None = None  # what a prepared home still needs; None: all of `overrides`
    furnish: Callable[[Path], None] = (
        _nothing  # writes into a folder of the trial's own, for a host that reads it there
    )
    interactive_argv: tuple[str, ...] = ()
    verb: tuple[str, ...] = ()  # comes before the overrides when headless
    quiet: Mapping[str, str] = field(default_factory=dict)  # keeps a private host off the network
    ready: str = ""  # what the screen shows once a prompt can be typed

    @property
    def needs_folder(self) -> bool:
        """Whether the model is only replaced in a folder of the trial's own, which was furnished."""
        return self.furnish is not _nothing

    def for_private(self, model_url: str) -> Overrides:
        """Return what replaces the model in a home that was prepared."""
        return (self.private or self.overrides)(model_url)

    def environment(self, model_url: str, user: Path, path: str) -> dict[str, str]:
        """Return a whole environment for a prepared home; nothing of the person's own gets in."""
        base = {"HOME": str(user), "PATH": path, "TERM": TERMINAL, "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
        return {**base, **self.quiet, **self.for_private(model_url).env}

    def headless(self, program: Path, prompt: str, overrides: Overrides, *extra: str) -> tuple[str, ...]:
        """Return the command that asks one thing and ends."""
        return (str(program), *self.verb, *overrides.argv, *extra, *self.headless_argv(prompt))

    def interactive(self, program: Path, overrides: Overrides, *extra: str) -> tuple[str, ...]:
        """Return the command for a terminal."""
        return (str(program), *overrides.argv, *self.interactive_argv, *extra)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _claude_overrides(url: str) -> Overrides:
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
    return Overrides(argv=argv, env=env, without=frozenset({"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"}))


def _claude_private(url: str) -> Overrides:
    return Overrides(env={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY})


def _claude_prepare(user: Path, project: Path, _url: str) -> None:
    _write(
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
_CLAUDE_TOOLS: Final = "Bash,mcp__harken__*,mcp__plugin_harken_harken__*"

CLAUDE_CODE: Final = Launch(
    name="claude-code",
    program="claude",
    overrides=_claude_overrides,
    private=_claude_private,
    prepare=_claude_prepare,
    headless_argv=lambda prompt: ("--allowedTools", _CLAUDE_TOOLS, "-p", prompt),
    interactive_argv=("--allowedTools", _CLAUDE_TOOLS),
    quiet={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
    },
    ready="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
)


def _copilot_overrides(url: str) -> Overrides:
    env = {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_MODEL": MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }
    return Overrides(env=env, without=frozenset({"COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_WIRE_API"}))


def _copilot_prepare(user: Path, project: Path, _url: str) -> None:
    _write(
        user / ".copilot" / "config.json", {"trustedFolders": [str(project)], "firstLaunchAt": "2026-01-05T09:00:00Z"}
    )


COPILOT_CLI: Final = Launch(
    name="copilot-cli",
    program="copilot",
    overrides=_copilot_overrides,
    prepare=_copilot_prepare,
    headless_argv=lambda prompt: ("--allow-all-tools", "--no-ask-user", "-p", prompt),
    interactive_argv=("--allow-all-tools",),
    ready="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
)


def _codex_settings(url: str) -> tuple[str, ...]:
    provider = f'{{name="trial",base_url="{url}/v1",wire_api="responses",env_key="HARKEN_TRIAL_KEY"}}'
    return (f"model_providers.trial={provider}", 'model_provider="trial"')


def _codex_overrides(url: str) -> Overrides:
    # The model's name stays, because tools are offered differently for each. With these arguments no shared daemon is
    # started: the terminal does everything itself. In a sandbox that may write, the host would note in the person's
    # settings that it trusts the folder.
    argv = tuple(part for setting in _codex_settings(url) for part in ("-c", setting))
    return Overrides(argv=(*argv, "--sandbox", "read-only"), env=_codex_private(url).env)


def _codex_private(_url: str) -> Overrides:
    return Overrides(env={"HARKEN_TRIAL_KEY": KEY})


def _codex_prepare(user: Path, project: Path, url: str) -> None:
    lines = (
        *_codex_settings(url),
        f'model="{MODEL}"',
        'sandbox_mode = "danger-full-access"',
        'approval_policy = "never"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        f"[projects.{json.dumps(str(project))}]",
        'trust_level = "trusted"',
    )
    _write(user / ".codex" / "config.toml", "\n".join(lines) + "\n")


CODEX: Final = Launch(
    name="codex",
    program="codex",
    overrides=_codex_overrides,
    private=_codex_private,
    prepare=_codex_prepare,
    headless_argv=lambda prompt: ("--skip-git-repo-check", prompt),
    verb=("exec",),
    ready="\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} Ask Codex",
)


def _gemini_overrides(url: str) -> Overrides:
    # How to sign in can be set by neither an argument nor a variable: see `furnish`.
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    without = frozenset({"GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"})
    return Overrides(argv=("--model", "gemini-2.5-flash"), env=env, without=without)


def _gemini_furnish(project: Path) -> None:
    _write(project / ".gemini" / "settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})


def _gemini_prepare(user: Path, project: Path, _url: str) -> None:
    _write(
        user / ".gemini" / "settings.json",
        {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "ui": {"theme": "Default"},
        },
    )
    _write(user / ".gemini" / "trustedFolders.json", {str(project): "TRUST_FOLDER"})


GEMINI_CLI: Final = Launch(
    name="gemini-cli",
    program="gemini",
    overrides=_gemini_overrides,
    prepare=_gemini_prepare,
    furnish=_gemini_furnish,
    headless_argv=lambda prompt: ("--approval-mode", "yolo", "-p", prompt),
    interactive_argv=("--approval-mode", "yolo"),
    quiet={"GEMINI_TELEMETRY_ENABLED": "false", "NO_BROWSER": "true"},
    ready="Type your message",
)


def _opencode_overrides(url: str) -> Overrides:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "trial",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    model = f"trial/{MODEL}"
    content = {"model": model, "small_model": model, "enabled_providers": ["trial"], "provider": {"trial": provider}}
    return Overrides(argv=("--model", model), env={"OPENCODE_CONFIG_CONTENT": json.dumps(content)})


def _opencode_prepare(user: Path, _project: Path, _url: str) -> None:
    folder = user / ".config" / "opencode"
    _write(folder / "opencode.json", {"autoupdate": False, "share": "disabled"})
    # What it would install at each start, and nothing here uses. One that ends meanwhile leaves its lock, for which the
    # next one waits for a minute.
    (folder / "node_modules").mkdir(exist_ok=True)
    _write(folder / "package-lock.json", {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}})


OPENCODE: Final = Launch(
    name="opencode",
    program="opencode",
    overrides=_opencode_overrides,
    prepare=_opencode_prepare,
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


def _qwen_overrides(url: str) -> Overrides:
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    # Settings of the person win over the environment, arguments over both.
    given = ("--auth-type", "openai", "--model", MODEL, "--openai-base-url", f"{url}/v1", "--openai-api-key", KEY)
    return Overrides(argv=given, env=env)


def _qwen_prepare(user: Path, _project: Path, _url: str) -> None:
    _write(
        user / ".qwen" / "settings.json",
        {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "ui": {"theme": "Default"},
        },
    )


QWEN_CODE: Final = Launch(
    name="qwen-code",
    program="qwen",
    overrides=_qwen_overrides,
    prepare=_qwen_prepare,
    headless_argv=lambda prompt: ("--approval-mode", "yolo", "-p", prompt),
    interactive_argv=("--approval-mode", "yolo"),
    ready="Type your message",
)

LAUNCHES: Final[Mapping[str, Launch]] = {
    launch.name: launch for launch in (CLAUDE_CODE, COPILOT_CLI, CODEX, GEMINI_CLI, OPENCODE, QWEN_CODE)
}
