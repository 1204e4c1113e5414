"""How Copilot CLI runs fenced: a list of the tools that it has at all, and a home of its own that is made anew.

Isolation: `COPILOT_HOME` is a folder of the run, so that no hooks, servers, plugins, skills, instructions or approvals
of the person are found; instructions of a project are turned off, and its settings and servers are not read, because
the folder is not trusted there. The sign-in is kept: variables, the system's keyring, `gh`, and what the person's
`config.json` says about accounts are taken over, as is the choice of a model.
Confinement: the file tools stay in the folder, links included; the folder for temporary files is closed too. Of its
hooks two are left: guards of our own, of a run that may run some commands, and of what is held where it may edit.

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
    NETWORK,
    HostOutput,
    brief,
    carried,
    edit_guard_command,
    environment,
    first_line,
    guard_command,
    plain,
    row,
    servers_file,
    table,
    unfit,
    unsayable,
    word,
)
from harken.hosts.trial_recipe import KEY, MODEL, ModelOverrides, TrialRecipe, write_file
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

TITLE: Final = "Copilot CLI"
_SECRETS: Final = (
    "COPILOT_GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "COPILOT_PROVIDER_API_KEY",
    "COPILOT_PROVIDER_API_KEY_COMMAND",
    "COPILOT_PROVIDER_BEARER_TOKEN",
    "COPILOT_PROVIDER_HEADERS",
)
VARIABLES: Final = (
    *_SECRETS,
    "COPILOT_PROVIDER_BASE_URL",
    "COPILOT_PROVIDER_TYPE",
    "COPILOT_PROVIDER_WIRE_API",
    "COPILOT_PROVIDER_TRANSPORT",
    "COPILOT_PROVIDER_AZURE_API_VERSION",
    "COPILOT_PROVIDER_MODEL_ID",
    "COPILOT_PROVIDER_WIRE_MODEL",
    "COPILOT_PROVIDER_MAX_PROMPT_TOKENS",
    "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS",
    "COPILOT_MODEL",
    "COPILOT_AUTO_TIER",
    "COPILOT_OFFLINE",
    "COPILOT_GH_HOST",
    "GH_HOST",
    "GH_CONFIG_DIR",
    "XDG_CACHE_HOME",  # where it has unpacked itself
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",  # where the keyring is reached, with the next
    "DBUS_SESSION_BUS_ADDRESS",
    *NETWORK,
)
_SETTINGS: Final = ("model", "contextTier", "autoTier", "effortLevel", "storeTokenPlaintext", "proxyUrl")
_ACCOUNT: Final = ("lastLoggedInUser", "loggedInUsers", "copilotTokens", "authTokens")
_NAMES: Final[Mapping[Ability, tuple[str, ...]]] = MappingProxyType(
    {
        Ability.READ_FILE: ("view",),
        Ability.LIST_FILES: ("glob",),
        Ability.SEARCH_FILES: ("grep", "rg"),  # the one or the other, by the model
        Ability.EDIT_FILE: ("create", "edit", "apply_patch"),
        Ability.SHELL: ("bash", "read_bash", "stop_bash"),
        Ability.SHELL_PREFIX: ("bash",),
    }
)
_OWN: Final = ("view", "glob", "grep", "create", "edit")
_WRITING: Final = frozenset({"create", "edit", "apply_patch"})
_NONE: Final = "harken-no-tool"  # no such tool: an empty list would offer them all
_HOME: Final = "copilot"

_DENIED: Final = "denied"
_TOOL: Final = "Tool '"
_GONE: Final = "does not exist."
_BLOCKED: Final = "Command blocked:"


class CopilotSandbox(Sandbox):
    """Copilot CLI, fenced."""

    host = "copilot-cli"
    program = "copilot"
    variables = VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why it cannot be fenced to these tools."""
        return unsayable(TITLE, tools) or unfit(TITLE, tools, _OWN)

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it."""
        home = Path(work.environ.get("COPILOT_HOME") or Path(work.environ.get("HOME", "/"), ".copilot"))
        given = {server: {"tools": _of_server(work.tools, server)} for server in work.servers}
        return SandboxCommand(
            argv=_argv(work),
            env=environment(
                work,
                VARIABLES,
                {"COPILOT_HOME": str(work.private / _HOME), "COPILOT_AUTO_UPDATE": "false", "NO_COLOR": "1"},
            ),
            stdin=work.prompt.encode("utf-8", "replace"),
            files=(
                RunFile(f"{_HOME}/settings.json", RunFileKind.FILE, json.dumps(_settings(work, home))),
                RunFile(f"{_HOME}/config.json", RunFileKind.FILE, json.dumps(carried(home / "config.json", _ACCOUNT))),
                RunFile(f"{_HOME}/mcp-config.json", RunFileKind.FILE, servers_file(work.servers, given)),
                *_guards(work.tools),
            ),
            keys=(home / "config.json",),
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return CopilotOutput()


SANDBOX: Final[Sandbox] = CopilotSandbox()


def _argv(work: SandboxRequest) -> tuple[str, ...]:
    available = ",".join(dict.fromkeys(_available(work.tools))) or _NONE
    return (
        work.program,
        "--no-ask-user",
        *("--output-format", "json"),
        *("--log-level", "none"),
        "--disable-builtin-mcps",
        "--disable-client-telemetry",
        "--no-custom-instructions",
        "--disallow-temp-dir",
        f"--available-tools={available}",
        *dict.fromkeys(_allowed(work.tools)),
        f"--secret-env-vars={','.join(_SECRETS)}",
    )


def _settings(work: SandboxRequest, home: Path) -> dict[str, object]:
    has_guards = any(_asked(work.tools))
    quiet = {"memory": False, "disableAllHooks": not has_guards, "ide": {"autoConnect": False}}
    return {**carried(home / "settings.json", _SETTINGS), **quiet}


def _guards(tools: Sequence[Tool]) -> Iterator[RunFile]:
    if asked := list(_asked(tools)):
        hooks = {"version": 1, "hooks": {"preToolUse": asked}}
        yield RunFile(f"{_HOME}/hooks/guards.json", RunFileKind.FILE, json.dumps(hooks))


def _asked(tools: Sequence[Tool]) -> Iterator[dict[str, object]]:
    guards = {"bash": guard_command(tools)}
    if not _WRITING.isdisjoint(_available(tools)):
        guards["|".join(sorted(_WRITING))] = edit_guard_command(tools)
    for matcher, command in guards.items():
        if command:
            yield {"type": "command", "bash": command, "matcher": matcher, "timeoutSec": GUARD_SECONDS}


def _of_server(tools: Sequence[Tool], server: str) -> list[str]:
    return [tool.name for tool in tools if tool.server == server]


def _available(tools: Sequence[Tool]) -> Iterator[str]:
    for tool in tools:
        if tool.ability is Ability.MCP:
            yield f"{plain(tool.server)}-{tool.name}"
        elif tool.ability is Ability.OWN:
            yield tool.name
        else:
            yield from _NAMES.get(tool.ability, ())


def _allowed(tools: Sequence[Tool]) -> Iterator[str]:
    if not _WRITING.isdisjoint(_available(tools)):
        yield "--allow-tool=write"
    for tool in tools:
        if tool.ability is Ability.MCP:
            yield f"--allow-tool={plain(tool.server)}({tool.name})"
        elif tool.ability is Ability.SHELL_PREFIX:
            # The host knows programs only; the guard knows the words.
            yield f"--allow-tool=shell({tool.prefix[0]}:*)"
        elif tool.ability is Ability.SHELL:
            # Besides commands this allows what they redirect; tools that are not available stay so.
            yield "--allow-all-tools"


class CopilotOutput(HostOutput):
    """Reads the output of one run."""

    title = TITLE

    def __init__(self) -> None:
        super().__init__()
        self._answer = ""
        self._error = ""

    def read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        """Yield what an object on a line tells."""
        data = table(event.get("data"))
        match event.get("type"):
            case "assistant.message":
                yield from self._said(data)
            case "tool.execution_complete":
                yield from self._result(data)
            case "assistant.turn_end":
                yield OutputEvent(OutputKind.TURN)
            case "session.error":
                self._error = word(data.get("message"))
            case _:
                pass

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return its last word, or why it failed."""
        if exit_code == 0:
            return (OutputEvent(OutputKind.ANSWER, self._answer),)
        said = f"{self.title} ended with {exit_code} and said nothing."
        return (OutputEvent(OutputKind.ERROR, self._error or first_line(stderr) or said),)

    def _said(self, data: Mapping[str, object]) -> Iterator[OutputEvent]:
        text, calls = word(data.get("content")), row(data.get("toolRequests"))
        if text:
            yield OutputEvent(OutputKind.TEXT, text)
        if text and not calls:
            self._answer = text
        for call in map(table, calls):
            name = word(call.get("name"))
            self.remember(call.get("toolCallId"), name, call.get("arguments"))
            yield OutputEvent(OutputKind.TOOL, brief(call.get("arguments")), name)

    def _result(self, data: Mapping[str, object]) -> Iterator[OutputEvent]:
        error = table(data.get("error"))
        message = word(error.get("message"))
        is_gone = message.startswith(_TOOL) and _GONE in message
        is_denied = error.get("code") == _DENIED or is_gone or message.startswith(_BLOCKED)
        if data.get("success") is False and is_denied:
            name, about = self.called(data.get("toolCallId"))
            yield OutputEvent(OutputKind.DENIED, tool=name, target=about)


def _trial_overrides(url: str) -> ModelOverrides:
    env = {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_MODEL": MODEL,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }
    return ModelOverrides(env=env, without=frozenset({"COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_WIRE_API"}))


def _prepare_trial(user: Path, project: Path, _url: str) -> None:
    write_file(
        user / ".copilot" / "config.json", {"trustedFolders": [str(project)], "firstLaunchAt": "2026-01-05T09:00:00Z"}
    )


TRIAL: Final = TrialRecipe(
    overrides=_trial_overrides,
    prepare=_prepare_trial,
    headless_argv=lambda prompt: ("--allow-all-tools", "--no-ask-user", "-p", prompt),
    interactive_argv=("--allow-all-tools",),
    ready="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
)
