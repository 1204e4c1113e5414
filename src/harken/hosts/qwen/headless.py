"""Qwen Code run headless and fenced. Starts nothing: says how, and reads what it prints.

It runs in its bare mode, which reads no settings at all, neither of the person nor of the folder: no hooks, servers,
extensions, skills, commands, instructions. What is needed of the person's settings to sign in and to choose a model is
handed over as arguments and variables, and their sign-in file is linked into a home of the run's own.
Bare mode has few tools; those that the rule does not name are excluded. Reading is confined by asking: whatever lies
outside the folder, links included, needs a permission that nobody is there to give. Changing files and commands cannot
be fenced like that, so these are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.hosts.qwen.hooks import NAME
from harken.hosts.qwen.output import QwenOutput
from harken.hosts.run_environment import (
    carried,
    dotenv_values,
    environment,
    plain,
    row,
    table,
    unfit,
    without_keys,
    word,
)
from harken.runs.sandbox import OutputReader, RunFile, RunFileKind, Sandbox, SandboxCommand, SandboxRequest, ToolServer
from harken.runs.tools import Ability, Tool

TITLE: Final = "Qwen Code"
PROGRAM: Final = "qwen"
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
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
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


@dataclass(frozen=True, slots=True)
class QwenSandbox:
    """How Qwen Code runs fenced."""

    host: str = NAME
    program: str = PROGRAM
    variables: Sequence[str] = _VARIABLES

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
            stdin=_plain(work.prompt).encode(errors="replace"),
            files=tuple(files),
            is_turn_limited=True,
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return QwenOutput()


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


def _plain(prompt: str) -> str:
    """Return the prompt so that Qwen puts no file in place of `@path`, and takes none for one of its commands."""
    escaped = re.sub(r"(?<!\\)@", r"\\@", prompt)
    return f" {escaped}" if escaped.startswith("/") else escaped


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


SANDBOX: Final[Sandbox] = QwenSandbox()
