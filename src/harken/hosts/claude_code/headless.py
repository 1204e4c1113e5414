"""How Claude Code runs fenced: its restricted mode, a list of its tools, and a home for its settings that is made anew.

Isolation: the run has a configuration folder of its own, and is told to read no settings of a person or a project, no
servers but ours, no instructions, commands or plugins. Managed settings of the machine's owner hold as always. The
sign-in stays where the person has it, and is renewed there: the host can be told of that place apart from the rest.
The choice of a model, and commands that fetch a key, are taken over from the person's settings.
Confinement: restricted mode keeps the file tools in the folder, links included; it never writes `.git` and the like.

A trial has no fence: `TRIAL` says what replaces the model, and how the host is asked something.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.hosts.run_environment import (
    GUARD_SECONDS,
    MAX_CALLS,
    NETWORK,
    HostOutput,
    brief,
    carried,
    environment,
    first_line,
    guard_command,
    held_parts,
    plain,
    row,
    servers_file,
    table,
    target,
    unfit,
    unsayable,
    without_keys,
    word,
)
from harken.hosts.trial_recipe import KEY, ModelOverrides, TrialRecipe, write_file
from harken.runs.sandbox import (
    OutputEvent,
    OutputKind,
    OutputReader,
    RunFile,
    RunFileKind,
    Sandbox,
    SandboxCommand,
    SandboxRequest,
)
from harken.runs.tools import Ability, Tool

TITLE: Final = "Claude Code"
VARIABLES: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_FOUNDRY_RESOURCE",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_BEARER_TOKEN_BEDROCK",
    *NETWORK,
)
_SETTINGS: Final = (
    "model",
    "modelOverrides",
    "effortLevel",
    "apiKeyHelper",
    "awsAuthRefresh",
    "awsCredentialExport",
    "gcpAuthRefresh",
)
_ACCOUNT: Final = ("oauthAccount", "primaryApiKey", "customApiKeyResponses")
_QUIET: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            "CLAUDE_CODE_DISABLE_ATTACHMENTS",  # else the model is told that the user mentioned what a message did
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
            "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
            "CLAUDE_CODE_DISABLE_CRON",
            "CLAUDE_CODE_DISABLE_FILE_MENTIONS",  # else `@path` in a message reads the file
            "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS",  # else names of branches and commits are read without any tool
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_AUTOUPDATER",
            "DISABLE_ERROR_REPORTING",
            "DISABLE_TELEMETRY",
        ),
        "1",
    )
)
_NAMES: Final[Mapping[Ability, tuple[str, ...]]] = MappingProxyType(
    {
        Ability.READ_FILE: ("Read",),
        Ability.LIST_FILES: ("Glob",),
        Ability.SEARCH_FILES: ("Grep",),
        Ability.EDIT_FILE: ("Edit", "Write"),
        Ability.SHELL: ("Bash",),
        Ability.SHELL_PREFIX: ("Bash",),
    }
)
# Any command is only for a rule that says `shell`.
_OWN: Final = ("Read", "Glob", "Grep", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch")
_HELD: Final = frozenset({"Read", "Glob", "Grep", "Bash"})  # need no permission in the folder, or have one of their own
_EDITING: Final = frozenset({"Edit", "Write", "NotebookEdit"})
_CONFIG: Final = "claude"
_SETTINGS_FILE: Final = "settings.json"
_SERVERS_FILE: Final = "servers.json"

_GONE: Final = "No such tool available:"
_HELD_BACK: Final = "PreToolUse:"
_REASONS: Final = (
    ("error_max_turns", "It used all the turns that it was given."),
    ("error_max_budget_usd", "It used all the money that it was given."),
)


class ClaudeCodeSandbox(Sandbox):
    """Claude Code, fenced."""

    host = "claude-code"
    program = "claude"
    variables = VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why it cannot be fenced to these tools."""
        return unsayable(TITLE, tools) or unfit(TITLE, tools, _OWN)

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it."""
        home = Path(work.environ.get("CLAUDE_CONFIG_DIR") or Path(work.environ.get("HOME", "/"), ".claude"))
        env = _env(work, home)
        more = {name: {"env": without_keys(each, env)} for name, each in work.servers.items() if each.command}
        servers = [RunFile(_SERVERS_FILE, RunFileKind.FILE, servers_file(work.servers, more))] if work.servers else []
        return SandboxCommand(
            argv=_argv(work),
            env=env,
            # What begins with a line break is no command of the host's.
            stdin=b"\n" + work.prompt.encode("utf-8", "replace"),
            files=(
                RunFile(_SETTINGS_FILE, RunFileKind.FILE, json.dumps(_settings(work, home))),
                RunFile(f"{_CONFIG}/.claude.json", RunFileKind.FILE, json.dumps(_account(work, home))),
                *servers,
            ),
            is_turn_limited=True,
            keys=(home / ".credentials.json", home / "settings.json"),
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return ClaudeCodeOutput()


SANDBOX: Final[Sandbox] = ClaudeCodeSandbox()


def _argv(work: SandboxRequest) -> tuple[str, ...]:
    servers = ("--mcp-config", str(work.private / _SERVERS_FILE)) if work.servers else ()
    return (
        work.program,
        "--print",
        *("--output-format", "stream-json", "--verbose"),
        "--restricted",
        *("--setting-sources", ""),
        *("--settings", str(work.private / _SETTINGS_FILE)),
        "--strict-mcp-config",
        *servers,
        *("--permission-mode", "dontAsk"),
        *("--tools", ",".join(dict.fromkeys(_built_in(work.tools)))),
        "--disable-slash-commands",
        "--no-session-persistence",
        *("--max-turns", str(work.max_turns)),
    )


def _env(work: SandboxRequest, home: Path) -> dict[str, str]:
    # What a person's settings say wins over their environment, as in their own sessions.
    said = table(carried(home / "settings.json", ("env",)).get("env"))
    theirs = {name: value for name, value in said.items() if name in VARIABLES and isinstance(value, str)}
    return environment(
        work,
        VARIABLES,
        {
            **theirs,
            **_QUIET,
            "CLAUDE_CONFIG_DIR": str(work.private / _CONFIG),
            # Empty means the usual place, which has another name in a keychain than the same folder by its path.
            "CLAUDE_SECURESTORAGE_CONFIG_DIR": work.environ.get("CLAUDE_CONFIG_DIR", ""),
        },
    )


def _settings(work: SandboxRequest, home: Path) -> dict[str, object]:
    permissions = {"allow": list(_allowed(work.tools))}
    if not _EDITING.isdisjoint(_built_in(work.tools)):
        permissions["deny"] = [f"Edit(**/{part}{end})" for part in held_parts(work.tools) for end in ("", "/**")]
    own = {"permissions": permissions, "crossSessionInbound": "refuse"}
    return {**carried(home / "settings.json", _SETTINGS), **own, **_guard(work.tools)}


def _account(work: SandboxRequest, home: Path) -> dict[str, object]:
    file = home / ".claude.json" if work.environ.get("CLAUDE_CONFIG_DIR") else home.parent / ".claude.json"
    return {"hasCompletedOnboarding": True, **carried(file, _ACCOUNT)}


def _built_in(tools: Sequence[Tool]) -> Iterator[str]:
    for tool in tools:
        yield from (tool.name,) if tool.ability is Ability.OWN else _NAMES.get(tool.ability, ())


def _allowed(tools: Sequence[Tool]) -> Iterator[str]:
    for tool in tools:
        if tool.ability is Ability.MCP:
            yield f"mcp__{plain(tool.server)}__{plain(tool.name)}"
        elif tool.ability is Ability.SHELL:
            yield "Bash"
        elif tool.ability is Ability.SHELL_PREFIX:
            yield f"Bash({' '.join(tool.prefix)}:*)"
    yield from dict.fromkeys(name for name in _built_in(tools) if name not in _HELD)


def _guard(tools: Sequence[Tool]) -> dict[str, object]:
    command = guard_command(tools)
    asked = {"type": "command", "command": command, "timeout": GUARD_SECONDS}
    return {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [asked]}]}} if command else {}


class ClaudeCodeOutput(HostOutput):
    """Reads the output of one run."""

    title = TITLE

    def __init__(self) -> None:
        super().__init__()
        self._denied: dict[str, None] = {}
        self._message = ""
        self._has_ended = False

    def read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        """Yield what an object on a line tells."""
        match event.get("type"):
            case "assistant":
                yield from self._said(table(event.get("message")))
            case "user":
                yield from self._results(table(event.get("message")))
            case "system" if event.get("subtype") == "permission_denied":
                yield from self._refused(word(event.get("tool_use_id")), word(event.get("tool_name")), None)
            case "result":
                yield from self._end(event)
            case _:
                pass

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return why it failed, when its output did not say so."""
        if self._has_ended:
            return ()
        said = first_line(stderr) or f"{self.title} ended with {exit_code} and said nothing."
        return (OutputEvent(OutputKind.ERROR, said),)

    def _said(self, message: Mapping[str, object]) -> Iterator[OutputEvent]:
        if self._message and self._message != word(message.get("id")):
            yield OutputEvent(OutputKind.TURN)
        self._message = word(message.get("id"))
        for block in map(table, row(message.get("content"))):
            if block.get("type") == "text" and block.get("text"):
                yield OutputEvent(OutputKind.TEXT, word(block.get("text")))
            elif block.get("type") == "tool_use":
                name = word(block.get("name"))
                self.remember(block.get("id"), name, block.get("input"))
                yield OutputEvent(OutputKind.TOOL, brief(block.get("input")), name)

    def _results(self, message: Mapping[str, object]) -> Iterator[OutputEvent]:
        for block in map(table, row(message.get("content"))):
            text = word(block.get("content"))
            if block.get("is_error") is True and (_GONE in text[:100] or text.startswith(_HELD_BACK)):
                yield from self._refused(word(block.get("tool_use_id")), "", None)

    def _refused(self, call: str, name: str, given: object) -> Iterator[OutputEvent]:
        if call not in self._denied:
            called, about = self.called(call)
            self._denied[call] = None
            if len(self._denied) > MAX_CALLS:
                del self._denied[next(iter(self._denied))]
            yield OutputEvent(OutputKind.DENIED, tool=name or called, target=about or target(given))

    def _end(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        self._has_ended = True
        for denial in map(table, row(event.get("permission_denials"))):
            name, given = word(denial.get("tool_name")), denial.get("tool_input")
            yield from self._refused(word(denial.get("tool_use_id")), name, given)
        if self._message:
            yield OutputEvent(OutputKind.TURN)
        text = word(event.get("result"))
        subtype = word(event.get("subtype"))
        if subtype == "success" and event.get("is_error") is not True:
            yield OutputEvent(OutputKind.ANSWER, text)
        else:
            reason = next((reason for name, reason in _REASONS if name == subtype), "")
            yield OutputEvent(
                OutputKind.ERROR, reason or text or f"Claude Code failed: {subtype or 'no reason given'}."
            )


def _trial_overrides(url: str) -> ModelOverrides:
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


def _private_trial(url: str) -> ModelOverrides:
    return ModelOverrides(env={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY})


def _prepare_trial(user: Path, project: Path, _url: str) -> None:
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
_TRIAL_TOOLS: Final = "Bash,mcp__harken__*,mcp__plugin_harken_harken__*"

TRIAL: Final = TrialRecipe(
    overrides=_trial_overrides,
    private=_private_trial,
    prepare=_prepare_trial,
    headless_argv=lambda prompt: ("--allowedTools", _TRIAL_TOOLS, "-p", prompt),
    interactive_argv=("--allowedTools", _TRIAL_TOOLS),
    quiet={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
    },
    fed_argv=("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    ready="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
)
