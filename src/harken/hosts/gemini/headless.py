"""Gemini CLI run headless and fenced. Starts nothing: says how, and reads what it prints.

The run has a home of its own, so nothing of the person's is there: no hooks, extensions, servers, skills, commands,
policies or GEMINI.md. Their sign-in is linked into it, and the choice of a model copied. The folder's own `.gemini` and
`.env` stay unread, because the folder is not trusted while settings are loaded; where a run has MCP servers it is
trusted right after that, since Gemini connects to none otherwise. It then reads `.gemini/.env`, and every GEMINI.md
wherever it leads: a folder with the first, or with the second leading out, is refused. Only the tools of the rule are
registered at all, and a policy of the highest order denies every other call. It knows paths as they are written: where
a run may edit, no link may be another name for what it must not change.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.hosts.gemini.hooks import NAME
from harken.hosts.gemini.output import GeminiOutput
from harken.hosts.gemini.policy import EDITING, OWN, SHELL, alias, built_in, is_plain_command, policy
from harken.hosts.held import held_parts
from harken.hosts.run_environment import carried, dotenv_values, environment, table, unfit
from harken.runs.held import is_held
from harken.runs.sandbox import OutputReader, RunFile, RunFileKind, Sandbox, SandboxCommand, SandboxRequest, ToolServer
from harken.runs.tools import Ability, Tool

TITLE: Final = "Gemini CLI"
PROGRAM: Final = "gemini"
_FOLDER: Final = ".gemini"
_VARIABLES: Final = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY_AUTH_MECHANISM",
    "GEMINI_MODEL",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GENAI_API_VERSION",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_PROJECT_ID",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GEMINI_CLI_USE_COMPUTE_ADC",
    "GEMINI_FORCE_FILE_STORAGE",
    "CLOUD_SHELL",
    "DBUS_SESSION_BUS_ADDRESS",  # the key may be in the system's keyring
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
)
_SIGN_IN: Final = ("oauth_creds.json", "google_accounts.json", "gemini-credentials.json")
_CLOUD_SIGN_IN: Final = ".config/gcloud/application_default_credentials.json"
# Gemini looks for GEMINI.md up to the folder that holds such a file. It is longer than a name can be: none does.
_NO_SUCH_FILE: Final = "no-such-file-" * 24
_INSTRUCTIONS: Final = "gemini.md"
_MOST_FILES: Final = 200_000


@dataclass(frozen=True, slots=True)
class GeminiSandbox:
    """How Gemini CLI runs fenced."""

    host: str = NAME
    program: str = PROGRAM
    variables: Sequence[str] = _VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why Gemini CLI cannot be fenced to these tools; empty when it can."""
        for tool in tools:
            if tool.ability is Ability.SHELL_PREFIX and not is_plain_command(tool.prefix):
                return f"{TITLE} cannot be fenced to {tool.text[:60]!r}: name the command in plain words."
            if tool.ability is Ability.OWN and tool.name == SHELL:
                return f"{SHELL} is any command: write `shell`, or name the commands as in shell:git log."
        names = {tool.server for tool in tools if tool.server}
        if len({alias(name) for name in names}) < len(names):
            return f"{TITLE} cannot tell the servers {', '.join(sorted(names))} apart: rename one of them."
        return unfit(TITLE, tools, OWN)

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it; raises `UserError` for a folder that would lead Gemini astray."""
        person = Path(work.environ.get("GEMINI_CLI_HOME") or work.environ.get("HOME") or Path.home())
        names = sorted({alias(name) for name in work.servers})
        argv = [work.program, "--output-format", "stream-json", "--approval-mode", "default"]
        _check_folder(work, person)
        if names:
            argv += ["--skip-trust", *(part for name in names for part in ("--allowed-mcp-server-names", name))]
        files = (
            RunFile(f"{_FOLDER}/settings.json", RunFileKind.FILE, json.dumps(_settings(work, person), indent=2)),
            RunFile(f"{_FOLDER}/policies/run.toml", RunFileKind.FILE, policy(work.tools)),
            *(RunFile(f"{_FOLDER}/{name}", RunFileKind.LINK, target=person / _FOLDER / name) for name in _SIGN_IN),
            RunFile(_CLOUD_SIGN_IN, RunFileKind.LINK, target=Path(work.environ.get("HOME", person)) / _CLOUD_SIGN_IN),
        )
        return SandboxCommand(
            argv=tuple(argv),
            env=_environment(work, person),
            stdin=_plain(work.prompt).encode(errors="replace"),
            files=files,
            is_turn_limited=True,
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return GeminiOutput()


def _check_folder(work: SandboxRequest, person: Path) -> None:
    """Raise `UserError` for a folder in which Gemini could be led astray by what is there."""
    can_edit = not set(built_in(work.tools)).isdisjoint(EDITING)
    found = next(_variables(work.workdir, person), None) if work.servers else None
    if found is None and (work.servers or can_edit):
        found = next((file for file in _links(work.workdir) if _leads_astray(work, file, can_edit=can_edit)), None)
    if found is not None:
        hint = "Run the rule in another folder, with another agent, or with other tools."
        raise UserError(f"{TITLE} would go where no tool was to lead it: {found}.", hint)


def _variables(workdir: Path, person: Path) -> Iterator[Path]:
    """Yield the files of variables that Gemini would take over, where they are not the person's own."""
    theirs = person.resolve()
    files = (folder / _FOLDER / ".env" for folder in (workdir, *workdir.parents) if folder != theirs)
    yield from filter(os.path.lexists, files)


def _links(workdir: Path) -> Iterator[Path]:
    looked_at = 0
    for folder, folders, names in os.walk(workdir):
        looked_at += len(folders) + len(names)
        if looked_at > _MOST_FILES:
            hint = "Run the rule in a smaller folder, or with another agent."
            raise UserError(f"{workdir} has too many files to be looked through for {TITLE}.", hint)
        yield from (file for name in (*folders, *names) if (file := Path(folder, name)).is_symlink())


def _leads_astray(work: SandboxRequest, link: Path, *, can_edit: bool) -> bool:
    """Whether a link is instructions from elsewhere, or another name for what a run does not change."""
    try:
        end = link.resolve()
    except (OSError, RuntimeError):
        return False  # in a circle
    if not end.is_relative_to(work.workdir):
        return bool(work.servers) and link.name.casefold() == _INSTRUCTIONS
    return can_edit and _is_held(work, end) and not _is_held(work, link)


def _is_held(work: SandboxRequest, path: Path) -> bool:
    return is_held(path.relative_to(work.workdir).as_posix(), held_parts(work.tools))


def _plain(prompt: str) -> str:
    """Return the prompt so that Gemini puts no file in place of `@path`, and takes none for one of its commands."""
    escaped = re.sub(r"(?<!\\)@", r"\\@", prompt)
    return f" {escaped}" if escaped.startswith("/") else escaped


def _settings(work: SandboxRequest, person: Path) -> dict[str, object]:
    # Who they are and which model answers; nothing else of theirs.
    theirs = carried(person / _FOLDER / "settings.json", ("security", "model", "modelConfigs", "billing"))
    auth = _some(table(theirs.pop("security", None)).get("auth"), "selectedType", "useExternal")
    model = _some(theirs.pop("model", None), "name")
    return {
        **theirs,
        "advanced": {"ignoreLocalEnv": True, "autoConfigureMemory": False},
        "context": {"includeDirectoryTree": False, "memoryBoundaryMarkers": [_NO_SUCH_FILE]},
        "experimental": {"enableAgents": False, "autoMemory": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "plan": {"enabled": False}},
        "hooksConfig": {"enabled": False},
        "ide": {"enabled": False},
        "mcp": {"allowed": sorted(map(alias, work.servers))},
        "mcpServers": {alias(name): _server(work, server) for name, server in work.servers.items()},
        "model": {**model, "maxSessionTurns": work.max_turns},
        "privacy": {"usageStatisticsEnabled": False},
        # Not trusted, by the environment; trust being off as a feature is what lets it start there.
        "security": {
            "auth": auth,
            "folderTrust": {"enabled": False},
            "environmentVariableRedaction": {"enabled": True},
        },
        "skills": {"enabled": False},
        "telemetry": {"enabled": False},
        "tools": {"core": built_in(work.tools)},
    }


def _some(value: object, *keys: str) -> dict[str, object]:
    return {key: each for key, each in table(value).items() if key in keys}


def _server(work: SandboxRequest, server: ToolServer) -> dict[str, object]:
    names = sorted({tool.name for tool in work.tools if tool.server == server.name})
    kept: dict[str, object] = {"includeTools": names}
    if server.url:
        kind = "sse" if server.is_sse else "http"
        return {**kept, "url": _literal(server.url), "type": kind, "headers": _literals(server.headers)}
    command, *arguments = map(_literal, server.command)
    return {**kept, "command": command, "args": arguments, "env": _literals(server.env)}


def _literal(value: str) -> str:
    """Return a value of a setting in which a dollar sign names no variable: none is set, and a dollar instead."""
    return value.replace("$", "${NO_SUCH_VARIABLE:-$}")


def _literals(values: Mapping[str, str]) -> dict[str, str]:
    """Return the same where Gemini looks for variables a second time, and a backslash prevents it."""
    return {name: _literal(value.replace("$", r"\$")) for name, value in values.items()}


def _environment(work: SandboxRequest, person: Path) -> dict[str, str]:
    # As Gemini does: a key may stand in a file of the home instead.
    kept = dotenv_values((person / _FOLDER / ".env", person / ".env"), _VARIABLES)
    own = {
        **{name: value for name, value in kept.items() if not work.environ.get(name)},
        "HOME": str(work.private),
        "GEMINI_CLI_HOME": str(work.private),
        "GEMINI_CLI_TRUST_WORKSPACE": "false",
        "GEMINI_CLI_NO_RELAUNCH": "true",  # else it starts itself once more, and a signal ends only one of the two
        "GEMINI_TELEMETRY_ENABLED": "false",
        "NO_BROWSER": "true",
        "NO_COLOR": "1",
    }
    return environment(work, _VARIABLES, own)


SANDBOX: Final[Sandbox] = GeminiSandbox()
