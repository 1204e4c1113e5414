"""Qwen Code run headless and fenced. Starts nothing: says how, and reads what it prints.

It runs in its bare mode, which reads no settings at all, neither of the person nor of the folder: no hooks, servers,
extensions, skills, commands, instructions. What is needed of the person's settings to sign in and to choose a model is
handed over as arguments and variables, and their sign-in file is linked into a home of the run's own. Bare mode has few
tools; those that the rule does not name are excluded. Reading is confined by asking: a path outside the folder, links
included, needs a permission, and a run has no person to give it. Changing files and commands cannot be fenced like
that, so these are refused.

A trial has no fence: `TRIAL` says what replaces the model, and how the host is asked something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.hosts.qwen.hooks import NAME
from harken.hosts.run_environment import (
    MAX_CALLS,
    MAX_SAID,
    MAX_TEXT,
    NETWORK,
    HostOutput,
    brief,
    carried,
    dotenv_values,
    environment,
    plain,
    plain_prompt,
    row,
    table,
    target,
    unfit,
    without_keys,
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
    ToolServer,
)
from harken.runs.tools import Ability, Tool

TITLE: Final = "Qwen Code"
_FOLDER: Final = ".qwen"
_SIGN_IN: Final = "oauth_creds.json"
_SERVERS: Final = "servers.json"
_READ: Final = "read_file"
_EXCLUDED: Final = ("edit", "notebook_edit", "run_shell_command", "get_goal", "update_goal")
_UNTRUSTING: Final = json.dumps({"$version": 4, "security": {"folderTrust": {"enabled": True}}})
# Which variables hold the key and the address for each way to sign in.
_NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
        "openai-responses": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
        "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        "gemini": ("GEMINI_API_KEY", "GEMINI_BASE_URL"),
        "vertex-ai": ("GOOGLE_API_KEY", "GOOGLE_VERTEX_BASE_URL"),
    }
)
_VARIABLES: Final = (
    *sorted({name for names in _NAMES.values() for name in names}),
    "OPENAI_MODEL",
    "ANTHROPIC_MODEL",
    "GEMINI_MODEL",
    "GOOGLE_MODEL",
    "QWEN_MODEL",
    "BAILIAN_CODING_PLAN_API_KEY",
    "DASHSCOPE_API_KEY",
    "DEEPSEEK_API_KEY",
    "MODELSCOPE_API_KEY",
    "OPENROUTER_API_KEY",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    *NETWORK,
)
_CANNOT: Final[Mapping[Ability, str]] = MappingProxyType(
    {
        Ability.LIST_FILES: "lists files outside the folder too",
        Ability.SEARCH_FILES: "has no search in the mode that is fenced",
        Ability.EDIT_FILE: "follows links out of the folder when it changes files",
        Ability.EDIT_INSTRUCTIONS: "follows links out of the folder when it changes files",
        Ability.SHELL: "shows the key of the model to its commands",
        Ability.SHELL_PREFIX: "runs commands beside the one that is named",
    }
)

_DENIED: Final = re.compile(
    r"requires permission to use|denied by permission rules|is not listed in the active core tools|"
    r'^Tool "[\s\S]+" (?:not found|is a built-in tool that is disabled)|bridge refused'
)
_TURNS_EXIT: Final = 53


class QwenSandbox(Sandbox):
    """How Qwen Code runs fenced."""

    host = NAME
    program = "qwen"
    variables = _VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why Qwen Code cannot be fenced to these tools; empty when it can."""
        for tool in tools:
            if tool.ability in _CANNOT:
                return f"{TITLE} cannot be fenced to {tool.text[:60]}: it {_CANNOT[tool.ability]}."
        return unfit(TITLE, tools, (_READ,))

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it."""
        person = Path(work.environ.get("HOME") or Path.home())
        folder = Path(work.environ.get("QWEN_HOME") or person / _FOLDER)
        flags, sign_in = _sign_in(work, person, folder)
        own = {
            **sign_in,
            "HOME": str(work.private),
            "QWEN_HOME": str(work.private / _FOLDER),
            "QWEN_CODE_SIMPLE": "1",
            "QWEN_CODE_NO_RELAUNCH": "true",
            "QWEN_USAGE_STATISTICS_ENABLED": "false",
            "NO_COLOR": "1",
        }
        env = environment(work, _VARIABLES, own)
        files = [
            RunFile(f"{_FOLDER}/{_SIGN_IN}", RunFileKind.LINK, target=folder / _SIGN_IN),
            # Before it knows that it is bare, Qwen loads the `.env` of a folder that it trusts.
            RunFile(f"{_FOLDER}/settings.json", RunFileKind.FILE, _UNTRUSTING),
            RunFile(
                f"{_FOLDER}/trustedFolders.json", RunFileKind.FILE, json.dumps({str(work.workdir): "DO_NOT_TRUST"})
            ),
        ]
        if work.servers:
            files.append(RunFile(_SERVERS, RunFileKind.FILE, _servers(work, env)))
        return SandboxCommand(
            argv=(work.program, *_fence(work), *flags),
            env=env,
            stdin=plain_prompt(work.prompt).encode(errors="replace"),
            files=tuple(files),
            is_turn_limited=True,
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return QwenOutput()


SANDBOX: Final[Sandbox] = QwenSandbox()


def _fence(work: SandboxRequest) -> list[str]:
    excluded = _EXCLUDED if any(tool.ability is Ability.READ_FILE for tool in work.tools) else (_READ, *_EXCLUDED)
    argv = ["--bare", "--approval-mode", "default", "--output-format", "stream-json", "--chat-recording", "false"]
    argv += ["--max-session-turns", str(work.max_turns)]
    argv += [part for name in excluded for part in ("--exclude-tools", name)]
    if work.servers:
        argv += ["--mcp-config", str(work.private / _SERVERS)]
        allowed = [f"mcp__{plain(tool.server)}__{tool.name}" for tool in work.tools if tool.server]
        argv += [part for name in allowed for part in ("--allowed-tools", name)]
    return argv


def _servers(work: SandboxRequest, env: Mapping[str, str]) -> str:
    """Return the file with the run's servers, each with the tools that exist in the run."""
    entries = {
        plain(name): {
            **_entry(server, env),
            "includeTools": sorted({tool.name for tool in work.tools if tool.server == name}),
        }
        for name, server in work.servers.items()
    }
    return json.dumps({"mcpServers": entries})


def _entry(server: ToolServer, env: Mapping[str, str]) -> dict[str, object]:
    if server.url:
        return {"url" if server.is_sse else "httpUrl": server.url, "headers": dict(server.headers)}
    command, *arguments = server.command
    return {"command": command, "args": arguments, "env": without_keys(server, env)}


def _sign_in(work: SandboxRequest, person: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables that say who the person is and which model answers."""
    theirs = carried(folder / "settings.json", ("security", "model", "modelProviders", "env"))
    known = {**dotenv_values((folder / ".env", person / ".env"), _VARIABLES), **_words(theirs.get("env"))}
    known |= {name: value for name, value in work.environ.items() if value}
    auth = table(table(theirs.get("security")).get("auth"))
    kind, model = word(auth.get("selectedType")), word(table(theirs.get("model")).get("name"))
    providers = [table(each) for each in row(table(theirs.get("modelProviders")).get(kind))]
    provider = next((each for each in providers if each.get("id") == model), {})
    key_name, url_name = _NAMES.get(kind, ("", ""))
    key = known.get(word(provider.get("envKey")), "") or word(auth.get("apiKey"))
    given = {key_name: key, url_name: word(provider.get("baseUrl")) or word(auth.get("baseUrl"))}
    kept = {name: known[name] for name in _VARIABLES if name in known}
    flags = (("--auth-type", kind), ("--model", model))
    return (
        [part for flag, value in flags if value for part in (flag, value)],
        {**kept, **{name: value for name, value in given.items() if name and value}},
    )


def _words(value: object) -> dict[str, str]:
    return {name: word(each) for name, each in table(value).items() if word(each)}


class QwenOutput(HostOutput):
    """The output of one run."""

    title = TITLE

    def __init__(self) -> None:
        super().__init__()
        self._denied: set[str] = set()

    def reason(self, exit_code: int) -> str:
        """Return what a code means with which the host ends."""
        return "It was ended: it took all the turns that it has." if exit_code == _TURNS_EXIT else ""

    def read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        """Yield what an object on a line tells."""
        parts = [table(part) for part in row(table(event.get("message")).get("content"))]
        match event.get("type"):
            case "assistant":
                for part in parts:
                    yield from self._said(part)
                yield OutputEvent(OutputKind.TURN)
            case "user":
                for part in parts:
                    yield from self._result(part)
            case "result":
                yield from self._end(event)
            case _:
                pass

    def _said(self, part: Mapping[str, object]) -> Iterator[OutputEvent]:
        if part.get("type") == "text" and word(part.get("text")).strip():
            yield OutputEvent(OutputKind.TEXT, word(part.get("text"))[:MAX_SAID])
        elif part.get("type") == "tool_use":
            name = word(part.get("name"))[:MAX_TEXT]
            self.remember(part.get("id"), name, part.get("input"))
            yield OutputEvent(OutputKind.TOOL, brief(part.get("input")), name)

    def _result(self, part: Mapping[str, object]) -> Iterator[OutputEvent]:
        call = word(part.get("tool_use_id"))[:MAX_TEXT]
        text = word(part.get("content"))
        if part.get("is_error") is True and _DENIED.search(text) and len(self._denied) < MAX_CALLS:
            self._denied.add(call)
            name, about = self.called(call)
            yield OutputEvent(OutputKind.DENIED, text[:MAX_TEXT], name, about)

    def _end(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        for denial in map(table, row(event.get("permission_denials"))):
            if word(denial.get("tool_use_id")) not in self._denied:
                name = word(denial.get("tool_name"))[:MAX_TEXT]
                yield OutputEvent(OutputKind.DENIED, "", name, target(denial.get("tool_input")))
        if event.get("is_error") is True:
            yield OutputEvent(
                OutputKind.ERROR, word(table(event.get("error")).get("message"))[:MAX_TEXT] or "Qwen Code failed."
            )
        else:
            yield OutputEvent(OutputKind.ANSWER, word(event.get("result"))[:MAX_SAID])


def _trial_overrides(url: str) -> ModelOverrides:
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    # Settings of the person win over the environment, arguments over both.
    given = ("--auth-type", "openai", "--model", MODEL, "--openai-base-url", f"{url}/v1", "--openai-api-key", KEY)
    return ModelOverrides(argv=given, env=env)


def _prepare_trial(user: Path, _project: Path, _url: str) -> None:
    write_file(
        user / ".qwen" / "settings.json",
        {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "ui": {"theme": "Default"},
        },
    )


TRIAL: Final = TrialRecipe(
    overrides=_trial_overrides,
    prepare=_prepare_trial,
    headless_argv=lambda prompt: ("--approval-mode", "yolo", "-p", prompt),
    interactive_argv=("--approval-mode", "yolo"),
    ready="Type your message",
)
