"""Gemini CLI run headless and fenced. Starts nothing: says how, and reads what it prints.

The run has a home of its own, so nothing of the person's is there: no hooks, extensions, servers, skills, commands,
policies or GEMINI.md. Their sign-in is linked into it, and the choice of a model copied. The folder's own `.gemini` and
`.env` stay unread, because the folder is not trusted while settings are loaded; where a run has MCP servers it is
trusted right after that, since Gemini connects to none otherwise. It then reads `.gemini/.env`, and every GEMINI.md
wherever it leads: a folder with the first, or with the second leading out, is refused. Only the tools of the rule are
registered at all, and a policy of the highest order denies every other call. It knows paths as they are written: where
a run may edit, no link may be another name for what it must not change.

A trial has no fence: `TRIAL` says what replaces the model, and how the host is asked something.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.hosts.gemini.hooks import NAME
from harken.hosts.run_environment import (
    MAX_NAME,
    MAX_SAID,
    NETWORK,
    HostOutput,
    brief,
    carried,
    dotenv_values,
    environment,
    held_parts,
    plain_prompt,
    table,
    unfit,
    unsayable,
    word,
)
from harken.hosts.trial_recipe import KEY, ModelOverrides, TrialRecipe, write_file
from harken.runs.held import folded, is_held
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

TITLE: Final = "Gemini CLI"
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
    *NETWORK,
)
_SIGN_IN: Final = ("oauth_creds.json", "google_accounts.json", "gemini-credentials.json")
_CLOUD_SIGN_IN: Final = ".config/gcloud/application_default_credentials.json"
# Gemini looks for GEMINI.md up to the folder that holds such a file. It is longer than a name can be: none does.
_NO_SUCH_FILE: Final = "no-such-file-" * 24
_INSTRUCTIONS: Final = "gemini.md"
_MAX_FILES: Final = 200_000

_DENIALS: Final = frozenset({"policy_violation", "tool_not_registered", "path_not_in_workspace"})
_OUTSIDE: Final = "Path not in workspace"
_EXITS: Final[Mapping[int, str]] = MappingProxyType({41: "Gemini CLI is not signed in."})
_ERRORS: Final[Mapping[str, str]] = MappingProxyType(
    {"FatalTurnLimitedError": "It was ended: it took all the turns that it has."}
)
_MAX_TEXT: Final = 4_000

SHELL: Final = "run_shell_command"
_SEARCH: Final = "grep_search"
_GLOB: Final = "glob"
_TOOLS: Final[Mapping[Ability, tuple[str, ...]]] = MappingProxyType(
    {
        Ability.READ_FILE: ("read_file",),
        Ability.LIST_FILES: ("list_directory", _GLOB),
        Ability.SEARCH_FILES: (_SEARCH,),
        Ability.EDIT_FILE: ("replace", "write_file"),
        Ability.EDIT_INSTRUCTIONS: (),
        Ability.SHELL: (SHELL,),
        Ability.SHELL_PREFIX: (SHELL,),
    }
)
EDITING: Final = frozenset(_TOOLS[Ability.EDIT_FILE])
OWN: Final = (
    "list_directory",
    _GLOB,
    _SEARCH,
    "replace",
    "write_file",
    "web_fetch",
    "google_web_search",
    "write_todos",
)
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_./:=@,+%^~-]+")

# Policies see arguments as JSON with a zero byte on both sides of each pair. No pattern may nest what repeats, or
# Gemini leaves the whole rule out. Of a command, only characters that mean nothing to a shell are let through.
_PLAIN_ARGUMENTS: Final = r"[ A-Za-z0-9_./:=@,+%^~'-]{0,2000}"
# By these git, asked to read, writes a file, starts a program, or reads what is not in the repository.
_OF_GIT: Final = (
    *("--ou", "--ext-", "--textc", "--exec", "--open", "--upload-p", "--receive-p", "--no-index", "--contents"),
    *("--config", "--git-dir", "--work-tree", "--help", "-O"),
)
# Gemini hands a pattern to `git grep` as it is: one that begins with a dash would be an option, and can be a command.
# What git and grep do not understand is searched by Gemini itself, which follows links out of the folder.
_PLAIN_PATTERN: Final = r"(?!-)[ \w\u00a0-\uffff./:=@,#%&;!~<>'|^$*+-]{1,400}"
# The names that `glob` finds are not held to the folder: neither whole paths, nor steps upwards, however spelled.
_PLAIN_GLOB: Final = r"(?![/~:!^-])[^\x00\\()\[\]]{1,400}"
_UPWARDS: Final = r"(?:\.\.|\{[.,/}]|,[.,/}])"
_NOT_CHANGED: Final = (
    "A run does not change .git, the settings of agents and editors, or what they take for instructions."
)
_LIMITED: Final[Mapping[str, str]] = {
    SHELL: "Only plain commands that were named are allowed, without anything that means something to a shell.",
    _SEARCH: "Only plain patterns are allowed: no brackets, no backslash, no dash in front, files in this folder.",
    **dict.fromkeys(EDITING, _NOT_CHANGED),
    _GLOB: "Only patterns for files in this folder are allowed: no path from the root, no step upwards.",
}
MAX_PATTERN: Final = 2_048  # characters, beyond which Gemini leaves a rule out
_MAX_JOINED: Final = 1_500
_DENY_ALL: Final = 980
_DENY_REST: Final = 985
_ALLOW: Final = 990
_DENY: Final = 999


class GeminiSandbox(Sandbox):
    """How Gemini CLI runs fenced."""

    host = NAME
    program = "gemini"
    variables = _VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why Gemini CLI cannot be fenced to these tools; empty when it can."""
        if said := unsayable(TITLE, tools, words=_PLAIN_WORD, any_command=SHELL):
            return said
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
            stdin=plain_prompt(work.prompt).encode(errors="replace"),
            files=files,
            is_turn_limited=True,
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return GeminiOutput()


SANDBOX: Final[Sandbox] = GeminiSandbox()


def _check_folder(work: SandboxRequest, person: Path) -> None:
    """Raise `UserError` for a folder in which Gemini could be led astray by what is there."""
    can_edit = not set(built_in(work.tools)).isdisjoint(EDITING)
    found = next(_variables(work.workdir, person), None) if work.servers else None
    if found is None and (work.servers or can_edit):
        found = next((file for file in _links(work.workdir) if _leads_astray(work, file, can_edit=can_edit)), None)
    if found is not None:
        hint = "Run the rule in another folder, with another agent, or with other tools."
        raise UserError(f"{TITLE} would go where no listed tool leads: {found}.", hint)


def _variables(workdir: Path, person: Path) -> Iterator[Path]:
    """Yield the files of variables that Gemini would take over, where they are not the person's own."""
    theirs = person.resolve()
    files = (folder / _FOLDER / ".env" for folder in (workdir, *workdir.parents) if folder != theirs)
    yield from filter(os.path.lexists, files)


def _links(workdir: Path) -> Iterator[Path]:
    looked_at = 0
    for folder, folders, names in os.walk(workdir):
        looked_at += len(folders) + len(names)
        if looked_at > _MAX_FILES:
            hint = "Run the rule in a smaller folder, or with another agent."
            raise UserError(f"{workdir} has too many files to check for {TITLE}.", hint)
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


class GeminiOutput(HostOutput):
    """The output of one run."""

    title = TITLE

    def __init__(self) -> None:
        super().__init__()
        self._said = ""
        self._is_calling = False

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        return (*self._flush(), *super().finish(stderr, exit_code))

    def reason(self, exit_code: int) -> str:
        """Return what a code means with which the host ends."""
        return _EXITS.get(exit_code, "")

    def read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        """Yield what an object on a line tells."""
        match event.get("type"):
            case "message" if event.get("role") == "assistant":
                self._said = (self._said + word(event.get("content")))[:MAX_SAID]
            case "tool_use":
                yield from self._flush()
                yield self._use(event)
            case "tool_result":
                yield from self._result(event)
            case "error" if event.get("severity") == "error":
                yield OutputEvent(OutputKind.ERROR, word(event.get("message"))[:_MAX_TEXT])
            case "result":
                yield from self._end(event)
            case _:
                pass

    def _use(self, event: Mapping[str, object]) -> OutputEvent:
        name = word(event.get("tool_name"))[:MAX_NAME]
        self.remember(event.get("tool_id"), name, event.get("parameters"))
        self._is_calling = True
        return OutputEvent(OutputKind.TOOL, brief(event.get("parameters")), name)

    def _result(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        name, about = self.called(event.get("tool_id"))
        if self._is_calling:
            self._is_calling = False
            yield OutputEvent(OutputKind.TURN)
        if error := table(event.get("error")):
            text = word(error.get("message"))[:_MAX_TEXT]
            if error.get("type") in _DENIALS or text.startswith(_OUTSIDE):
                yield OutputEvent(OutputKind.DENIED, text, name, about)

    def _end(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        said = self._said
        yield from self._flush()
        if error := table(event.get("error")):
            known = _ERRORS.get(word(error.get("type")))
            yield OutputEvent(OutputKind.ERROR, known or word(error.get("message"))[:_MAX_TEXT])
        else:
            yield OutputEvent(OutputKind.TURN)
            yield OutputEvent(OutputKind.ANSWER, said)

    def _flush(self) -> Iterator[OutputEvent]:
        said, self._said = self._said, ""
        if said.strip():
            yield OutputEvent(OutputKind.TEXT, said)


def alias(server: str) -> str:
    """Return the name of a server in the run: policies take what follows the first underscore for the tool."""
    return re.sub(r"[^A-Za-z0-9-]", "-", server)


def built_in(tools: Sequence[Tool]) -> list[str]:
    """Return the names of Gemini's own tools that some tools need."""
    return sorted({name for tool in tools if not tool.server for name in _TOOLS.get(tool.ability, (tool.name,))})


def policy(tools: Sequence[Tool]) -> str:
    """Return a policy file that allows these tools and denies all others."""
    rules = [_rule("*", "deny", _DENY_ALL)]
    for name in built_in(tools):
        if name not in _LIMITED:
            rules.append(_rule(name, "allow", _ALLOW))
        else:
            rules.append(_rule(name, "deny", _DENY_REST, says=_LIMITED[name]))
            rules.extend(_limits(name, tools))
    if not any(tool.ability is Ability.SHELL for tool in tools):
        # A folder inside may be a repository that came with it, and its settings may name programs.
        rules.append(_rule(SHELL, "deny", _DENY, _begins("dir_path", r'(?!"\.?"\x00)')))
    for tool in tools:
        if tool.ability is Ability.SHELL:
            rules.append(_rule(SHELL, "allow", _ALLOW, _begins("command", '"'), is_redirected=True))
        elif tool.ability is Ability.SHELL_PREFIX:
            rules.append(_rule(SHELL, "allow", _ALLOW, _is("command", _command(tool.prefix))))
        elif tool.server:
            rules.append(_rule(tool.name, "allow", _ALLOW, server=alias(tool.server)))
    return "\n".join(rules)


def _command(prefix: Sequence[str]) -> str:
    words = re.escape(" ".join(prefix)).replace(r"\ ", " ")
    if prefix[0].rpartition("/")[2] != "git":
        return rf'{words}(?=[ "]){_PLAIN_ARGUMENTS}'
    # Quotes may stand anywhere in a word.
    options = "|".join("'*".join(map(re.escape, option)) for option in _OF_GIT)
    return rf"""{words}(?=[ "])(?![^"]* '*(?:{options})){_PLAIN_ARGUMENTS}"""


def _limits(name: str, tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the rules for a tool with arguments that can lead out of the folder."""
    match name:
        case "glob":
            yield _rule(name, "allow", _ALLOW, _is("pattern", _PLAIN_GLOB))
            yield _rule(name, "deny", _DENY, _begins("pattern", rf"[^\x00]*{_UPWARDS}"))
        case "grep_search":
            yield _rule(name, "allow", _ALLOW, _is("pattern", _PLAIN_PATTERN))
            yield _rule(name, "deny", _DENY, _begins("include_pattern", rf'(?!"{_PLAIN_GLOB}"\x00)'))
            yield _rule(name, "deny", _DENY, _begins("include_pattern", rf"[^\x00]*{_UPWARDS}"))
        case "replace" | "write_file":
            yield _rule(name, "allow", _ALLOW, _begins("file_path", '"'))
            for held in _joined([_either_case(part) for part in folded(held_parts(tools))]):
                pattern = _begins("file_path", rf'[^\x00]*["/](?:{held})[/"]')
                yield _rule(name, "deny", _DENY, pattern, says=_NOT_CHANGED)
        case _:
            # It would live on when the run has ended.
            yield _rule(name, "deny", _DENY, _begins("is_background", r"(?!false\x00)"))


def _joined(patterns: Sequence[str]) -> Iterator[str]:
    """Yield the patterns as few that fit any of them, none of which is too long."""
    joined = ""
    for each in patterns:
        if joined and len(joined) + len(each) > _MAX_JOINED:
            yield joined
            joined = ""
        joined = f"{joined}|{each}" if joined else each
    yield joined


def _either_case(text: str) -> str:
    return "".join(f"[{char}{char.upper()}]" if char.isalpha() else re.escape(char) for char in text)


def _is(argument: str, pattern: str) -> str:
    return _begins(argument, rf'"{pattern}"\x00')


def _begins(argument: str, pattern: str) -> str:
    return rf'\x00"{argument}":{pattern}'


def _rule(
    tool: str,
    decision: str,
    priority: int,
    pattern: str = "",
    *,
    server: str = "",
    says: str = "",
    is_redirected: bool = False,
) -> str:
    fields = {"toolName": tool, "decision": decision, "mcpName": server, "argsPattern": pattern, "denyMessage": says}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value]
    lines += ["allowRedirection = true"] if is_redirected else []
    return "\n".join(("[[rule]]", f"priority = {priority}", *lines, ""))


def _trial_overrides(url: str) -> ModelOverrides:
    # How to sign in can be set by neither an argument nor a variable: see `prepare_folder`.
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    without = frozenset({"GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"})
    return ModelOverrides(argv=("--model", "gemini-2.5-flash"), env=env, without=without)


def _prepare_trial_folder(project: Path) -> None:
    write_file(project / ".gemini" / "settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})


def _prepare_trial(user: Path, project: Path, _url: str) -> None:
    write_file(
        user / ".gemini" / "settings.json",
        {
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "ui": {"theme": "Default"},
        },
    )
    write_file(user / ".gemini" / "trustedFolders.json", {str(project): "TRUST_FOLDER"})


TRIAL: Final = TrialRecipe(
    overrides=_trial_overrides,
    prepare=_prepare_trial,
    prepare_folder=_prepare_trial_folder,
    headless_argv=lambda prompt: ("--approval-mode", "yolo", "-p", prompt),
    interactive_argv=("--approval-mode", "yolo"),
    quiet={"GEMINI_TELEMETRY_ENABLED": "false", "NO_BROWSER": "true"},
    ready="Type your message",
)
