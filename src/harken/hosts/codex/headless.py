"""Codex run headless and fenced. Starts nothing: says how, and has `output` read what it prints.

The run has a home of its own with settings written for it, so nothing of the person's is there: no hooks, servers,
plugins, skills, rules or AGENTS.md. Their sign-in is linked into it, and what chooses a model and its provider is
copied. The folder is marked as untrusted, so its `.codex` and AGENTS.md stay unread. Codex has no tools for reading
files: everything it reads, it reads with its shell. So reading cannot be given without the shell. What it does on the
disk is done in the system's sandbox. That knows what is held at the top of the folder only; a hook of ours, the one
that is left, knows it in every folder, and is asked before each patch.

A trial has no fence: `TRIAL` says what replaces the model, and how the host is asked something.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import tomlkit

from harken.errors import HarkenError, UserError
from harken.hosts.codex.hooks import NAME
from harken.hosts.connect.files import read
from harken.hosts.run_environment import (
    GUARD_SECONDS,
    MAX_CALLS,
    MAX_NAME,
    MAX_SAID,
    MAX_TARGET,
    MAX_TEXT,
    edit_guard_command,
    entry,
    environment,
    held_parts,
    held_paths,
    last_line,
    plain,
    row,
    table,
    target,
    unfit,
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

SHELL: Final = "exec_command"
EDIT: Final = "apply_patch"

# Where the log quotes the model's service, over either transport.
EVENT_SOURCES: Final = ("codex_api::sse::responses", "codex_api::endpoint::responses_websocket")
LOG_LINE: Final = r"\S+ +(?:INFO|DEBUG|TRACE) "

_COMPLAINT: Final = re.compile(r"^\S+ ERROR codex_core::tools::router: error=(.*)")
_FACT: Final = re.compile(r"^\S+  INFO codex_otel\.trace_safe: event\.name=\"(?P<name>[\w.]+)\" (?P<rest>.*)")
_ANSWERED: Final = "event.kind=response.completed"
_FAILED: Final = re.compile(r"\bcall_id=(?P<call>\S+) .*\bsuccess=false\b")
_READY: Final = re.compile(r'\bcall_id="(?P<call>[^"\s]+)"')
_EVENT: Final = re.compile(rb"^\S+ TRACE \S+: [\w ]{0,40}event: (?P<event>\{.*)")
_PATCH: Final = "*** Begin Patch"
_FILE: Final = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_CALLED: Final = b"response.output_item.done"
# What each complaint means; the tool is the one named in it, or the one it is about.
_DENIALS: Final[Mapping[re.Pattern[str], str]] = MappingProxyType(
    {
        re.compile(r"unsupported call: (?P<tool>\S+)"): "",
        re.compile(r"patch rejected: "): EDIT,
        re.compile(r"Command blocked by PreToolUse hook: "): EDIT,  # the guard that the run has
        re.compile(r"(?P<tool>\w+) is unavailable in "): "",
        re.compile(r"exec_command failed .*(?:[Rr]ejected|denied)"): SHELL,
        re.compile(r"MCP tool call (?:requires approval|blocked)"): "an MCP tool",
    }
)
_NEEDS_APPROVAL: Final = ("requires approval", "user cancelled", "blocked by")
_MAX_OPEN: Final = 1_000
_NOBODY: Final = ("", "")

TITLE: Final = "Codex"
_CONFIG: Final = "config.toml"
_SIGN_IN: Final = "auth.json"
_HOOKS: Final = "hooks.json"
_TEMPORARY: Final = "scratch"  # not `tmp`: Codex keeps programs of its own there, and a shell may write here
_VARIABLES: Final = (
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
    "AZURE_OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "MISTRAL_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "CODEX_CA_CERTIFICATE",
    "SSL_CERT_FILE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
)
# Which model answers, who serves it, and how it is paid for: nothing else of a person's settings.
_CARRIED: Final = (
    "model",
    "model_provider",
    "model_providers",
    "model_catalog_json",
    "model_context_window",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "service_tier",
    "oss_provider",
    "openai_base_url",
    "chatgpt_base_url",
    "forced_login_method",
    "forced_chatgpt_workspace_id",
)
# Everything that brings tools, or text and programs of others, into a session.
_FEATURES_OFF: Final = (
    "apps",
    "auth_elicitation",
    "browser_use",
    "browser_use_external",
    "browser_use_full_cdp_access",
    "computer_use",
    "daemon_auto_start",
    "goals",
    "hooks",
    "image_generation",
    "in_app_browser",
    "in_app_chat",
    "in_app_local_automation",
    "in_app_updates",
    "memories",
    "multi_agent",
    "multi_agent_v2",
    "plugin_discovery_prefetch",
    "plugin_sharing",
    "plugins",
    "remote_plugin",
    "shell_snapshot",
    "skill_mcp_dependency_install",
    "skill_search",
    "sleep_tool",
    "tool_call_mcp_elicitation",
    "tool_suggest",
    "view_image",
    "workspace_dependencies",
)
_OWN: Final[Mapping[str, Ability]] = MappingProxyType({EDIT: Ability.EDIT_FILE, SHELL: Ability.SHELL})
_READING: Final = frozenset({Ability.READ_FILE, Ability.LIST_FILES, Ability.SEARCH_FILES})
# Questions are answered by nobody; current models call the run's tools from a program, which can do nothing else.
_ALWAYS: Final = ("request_user_input", "request_user_input_async", "exec", "wait", "clock__curr_time")
_RESOURCES: Final = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")
_SKILL: Final = re.compile(r"\$([A-Za-z0-9_][A-Za-z0-9_:.-]{0,127})")
_PROFILE: Final = "run"
_TOOL_SECONDS: Final = 120
_START_SECONDS: Final = 30
# Of its log, what says when the model has answered and what it asked for. None of these lines holds what a tool gave
# back: a file that is read could write its own.
_LOG: Final = ",".join(("error", "codex_otel.trace_safe=info", *(f"{source}=trace" for source in EVENT_SOURCES)))


class CodexOutput:
    """The output of one run."""

    def __init__(self) -> None:
        self._said = ""
        self._trouble = ""
        self._open: set[str] = set()
        self._calls: dict[str, tuple[str, str]] = {}  # what the model asked for and is not over: name, target
        self._failed = ""  # the call that failed last
        self._has_heard_errors = False
        self._is_logged = False
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells, or one of standard error."""
        if line.lstrip().startswith(b"{"):
            return tuple(self._read(entry(line)))
        self._has_heard_errors = True
        if found := _EVENT.match(line):
            self._note_call(found["event"])
            return ()
        return tuple(self._logged(line[: 4 * MAX_TEXT].decode(errors="replace")))

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        told: list[OutputEvent] = []
        if not self._has_heard_errors:
            told = [each for line in stderr.splitlines() for each in self.feed(line.encode(errors="replace"))]
        if exit_code and not self._has_failed:
            reason = self._trouble or last_line(stderr) or f"Codex ended with {exit_code}."
            told.append(OutputEvent(OutputKind.ERROR, reason))
        return told

    def _note_call(self, event: bytes) -> None:
        """Remember what the model asks for, from the words of its service."""
        item = table(entry(event).get("item")) if _CALLED in event else {}
        if call := word(item.get("call_id"))[:MAX_NAME]:
            given = word(item.get("input")) or _parsed(word(item.get("arguments"))) or item.get("action")
            self._calls[call] = (word(item.get("name"))[:MAX_NAME], _changed_by(given) or target(given))
            if len(self._calls) > MAX_CALLS:
                del self._calls[next(iter(self._calls))]

    def _logged(self, line: str) -> Iterator[OutputEvent]:
        if fact := _FACT.match(line):
            self._is_logged = True
            if fact["name"] == "codex.sse_event" and _ANSWERED in fact["rest"]:
                yield OutputEvent(OutputKind.TURN)
            elif fact["name"] == "codex.tool_result" and (failed := _FAILED.search(fact["rest"])):
                self._failed = failed["call"][:MAX_NAME]
            elif fact["name"] == "codex.tool_result_ready" and (ready := _READY.search(fact["rest"])):
                self._calls.pop(ready["call"][:MAX_NAME], None)  # over: what is denied from now on is another
        elif complaint := _COMPLAINT.match(line):
            yield from self._denied(complaint[1])

    def _denied(self, complaint: str) -> Iterator[OutputEvent]:
        for pattern, usual in _DENIALS.items():
            if found := pattern.match(complaint):
                tool = (found.groupdict().get("tool") or usual)[:MAX_NAME]
                if not self._is_logged:
                    yield OutputEvent(OutputKind.TURN)
                yield OutputEvent(OutputKind.DENIED, complaint[:MAX_TEXT], tool, self._target_of(tool))
                return

    def _target_of(self, tool: str) -> str:
        """Return what a denied call was about: the one that failed just now, else the oldest of the tool.

        A call that the model's own program made is in no answer of the model: it is about that program.
        """
        call = self._failed if self._failed in self._calls else ""
        call = call or next((each for each, (name, _) in self._calls.items() if name == tool), "")
        return self._calls.pop(call)[1] if call else next(reversed(self._calls.values()), _NOBODY)[1]

    def _read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        item = table(event.get("item"))
        match event.get("type"):
            case "item.started":
                yield from self._started(item)
            case "item.completed":
                yield from self._completed(item)
            case "turn.completed":
                if not self._is_logged:
                    yield OutputEvent(OutputKind.TURN)
                yield OutputEvent(OutputKind.ANSWER, self._said)
            case "turn.failed":
                self._has_failed = True
                text = word(table(event.get("error")).get("message")) or self._trouble
                yield OutputEvent(OutputKind.ERROR, text[:MAX_TEXT])
            case "error":
                # Often only that it tries once more: it counts if nothing better comes.
                self._trouble = word(event.get("message"))[:MAX_TEXT]
            case _:
                pass

    def _started(self, item: Mapping[str, object]) -> Iterator[OutputEvent]:
        name = _name(item)
        if not name:
            return
        if not self._open and not self._is_logged:
            yield OutputEvent(OutputKind.TURN)
        if len(self._open) < _MAX_OPEN:
            self._open.add(word(item.get("id"))[:MAX_NAME])
        yield OutputEvent(OutputKind.TOOL, _arguments(item), name)

    def _completed(self, item: Mapping[str, object]) -> Iterator[OutputEvent]:
        self._open.discard(word(item.get("id"))[:MAX_NAME])
        if item.get("type") == "agent_message":
            self._said = word(item.get("text"))[:MAX_SAID]
            yield OutputEvent(OutputKind.TEXT, self._said)
        elif reason := _held(item):
            yield OutputEvent(OutputKind.DENIED, reason, _name(item), _arguments(item)[:MAX_TARGET])


def _changed_by(given: object) -> str:
    """Return the files that a patch names; empty for anything else."""
    return ", ".join(_FILE.findall(given))[:MAX_TARGET] if isinstance(given, str) and given.startswith(_PATCH) else ""


def _parsed(arguments: str) -> object:
    """Return the arguments of a call, which are JSON in a string; as they are when they are not."""
    return entry(arguments.encode(errors="replace")) or arguments


def _name(item: Mapping[str, object]) -> str:
    match item.get("type"):
        case "command_execution":
            return SHELL
        case "file_change":
            return EDIT
        case "mcp_tool_call":
            return f"{word(item.get('server'))}/{word(item.get('tool'))}"[:MAX_NAME]
        case "web_search":
            return "web_search"
        case "collab_tool_call":
            return word(item.get("tool"))[:MAX_NAME]
        case _:
            return ""


def _arguments(item: Mapping[str, object]) -> str:
    match item.get("type"):
        case "command_execution":
            return word(item.get("command"))[:MAX_TEXT]
        case "file_change":
            return ", ".join(word(table(change).get("path")) for change in row(item.get("changes")))[:MAX_TEXT]
        case _:
            return target(item.get("arguments"))


def _held(item: Mapping[str, object]) -> str:
    """Return why a call that was begun was not let through; empty when it was."""
    status, kind = item.get("status"), item.get("type")
    if kind == "file_change" and status in {"failed", "declined"}:
        return "the change was not made"
    if kind == "command_execution" and status == "declined":
        return word(item.get("aggregated_output"))[:MAX_TEXT] or "the command was declined"
    text = word(table(item.get("error")).get("message"))
    if kind == "mcp_tool_call" and status == "failed" and any(part in text for part in _NEEDS_APPROVAL):
        return text[:MAX_TEXT]
    return ""


class CodexSandbox(Sandbox):
    """How Codex runs fenced."""

    host = NAME
    program = "codex"
    variables = _VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why Codex cannot be fenced to these tools; empty when it can."""
        abilities = _abilities(tools)
        for tool in tools:
            if tool.ability is Ability.SHELL_PREFIX:
                return f"{TITLE} cannot limit its shell to {tool.text[:60]!r}: name `shell`, or another agent."
            if tool.ability in _READING and Ability.SHELL not in abilities:
                return (
                    f"{TITLE} has no {tool.text}: it reads files with its shell only; name `shell`, or another agent."
                )
        return unfit(TITLE, tools, tuple(_OWN))

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it."""
        theirs = Path(work.environ.get("CODEX_HOME") or Path(work.environ.get("HOME") or Path.home()) / ".codex")
        carried = _carried(theirs / _CONFIG)
        variables = (*_VARIABLES, *_named_variables(carried))
        own = {name: str(work.private) for name in ("HOME", "CODEX_HOME")}
        guards = tuple(_guards(work.tools))
        return SandboxCommand(
            argv=(
                work.program,
                "exec",
                "--json",
                *(("--dangerously-bypass-hook-trust",) if guards else ()),  # the only hook there is, is ours
                "--ephemeral",
                "--ignore-rules",
                "--skip-git-repo-check",
                "--color=never",
                f"--cd={work.workdir}",
                "-",
            ),
            env=environment(work, variables, {**own, "TMPDIR": str(work.private / _TEMPORARY), "RUST_LOG": _LOG}),
            stdin=work.prompt.encode(errors="replace"),
            files=(
                RunFile(_CONFIG, RunFileKind.FILE, tomlkit.dumps({**carried, **_settings(work)})),
                RunFile(f"{_TEMPORARY}/.keep", RunFileKind.FILE),
                RunFile(_SIGN_IN, RunFileKind.LINK, target=theirs / _SIGN_IN),
                *guards,
            ),
            leftover=tuple(_leftover(work)),
            has_told_errors=True,
            log_line=LOG_LINE,
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return CodexOutput()


def _abilities(tools: Sequence[Tool]) -> frozenset[Ability]:
    return frozenset(
        _OWN.get(tool.name, tool.ability) if tool.ability is Ability.OWN else tool.ability for tool in tools
    )


def _carried(file: Path) -> dict[str, object]:
    try:
        whole = tomllib.loads((read(file) or b"").decode(errors="replace"))
    except (HarkenError, tomllib.TOMLDecodeError):
        return {}
    return {key: whole[key] for key in _CARRIED if key in whole}


def _named_variables(carried: Mapping[str, object]) -> Iterator[str]:
    """Return the variables that a provider of the person's takes its key from."""
    for provider in map(table, table(carried.get("model_providers")).values()):
        yield word(provider.get("env_key"))
        yield from map(word, table(provider.get("env_http_headers")).values())


def _settings(work: SandboxRequest) -> dict[str, object]:
    abilities = _abilities(work.tools)
    has_shell = Ability.SHELL in abilities
    can_write = _can_write(work.tools)
    return {
        "approval_policy": "never",
        **(_writing(work, has_shell=has_shell) if can_write else {"sandbox_mode": "read-only"}),
        "web_search": "disabled",
        "check_for_update_on_startup": False,
        "allow_login_shell": False,
        "project_doc_max_bytes": 0,
        "cli_auth_credentials_store": "file",
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
        "history": {"persistence": "none"},
        "agents": {"enabled": False},
        "shell_environment_policy": {"inherit": "core"},  # no keys
        "features": {**dict.fromkeys(_FEATURES_OFF, False), "shell_tool": has_shell, "hooks": can_write},
        "skills": {
            "include_instructions": False,
            "bundled": {"enabled": False},
            "config": [{"name": name, "enabled": False} for name in _skills(work.prompt)],
        },
        "projects": {str(work.workdir): {"trust_level": "untrusted"}},
        "mcp_servers": {plain(server.name): _server(work, server) for server in work.servers.values()},
    }


def _can_write(tools: Sequence[Tool]) -> bool:
    return not _abilities(tools).isdisjoint({Ability.SHELL, Ability.EDIT_FILE})


def _guards(tools: Sequence[Tool]) -> Iterator[RunFile]:
    if _can_write(tools):
        command = edit_guard_command(tools, is_nested=True)
        asked = {"matcher": EDIT, "hooks": [{"type": "command", "command": command, "timeout": GUARD_SECONDS}]}
        yield RunFile(_HOOKS, RunFileKind.FILE, json.dumps({"hooks": {"PreToolUse": [asked]}}))


def _writing(work: SandboxRequest, *, has_shell: bool) -> dict[str, object]:
    """Return the settings of a sandbox in which the folder can be changed, but for what a run does not change."""
    # Codex can only hold what is there, or could be made in a folder that is there.
    # Whoever gives a shell has not forbidden the rest.
    parts = held_paths().settings if has_shell else held_parts(work.tools)
    held = {part if (work.workdir / part).parent.is_dir() else Path(part).parts[0] for part in parts}
    files: dict[str, object] = {"/": "read", ":workspace_roots": {".": "write", **dict.fromkeys(sorted(held), "read")}}
    if has_shell:
        files[":tmpdir"] = "write"  # for what a shell throws away; a patch needs none
    profile = {"filesystem": files, "network": {"enabled": False}}
    return {"default_permissions": _PROFILE, "permissions": {_PROFILE: profile}}


def _skills(prompt: str) -> Sequence[str]:
    """Return what a prompt could name a skill of the folder by: Codex would put the skill's text into the prompt."""
    found = _SKILL.findall(prompt)
    return sorted({name for whole in found for name in (whole, whole.rstrip(":.-"))})


def _server(work: SandboxRequest, server: ToolServer) -> dict[str, object]:
    kept: dict[str, object] = {
        "enabled_tools": sorted({tool.name for tool in work.tools if tool.server == server.name}),
        "default_tools_approval_mode": "approve",
        "omit_tools_from": ["deferred"],  # else current models are not told of them
        "required": True,
        "startup_timeout_sec": _START_SECONDS,
        "tool_timeout_sec": _TOOL_SECONDS,
    }
    if server.is_sse:
        hint = "Run the rule with another agent, or give the server's newer address."
        raise UserError(f"{TITLE} does not support the older transport of the server {server.name}.", hint)
    if server.url:
        return {**kept, "url": server.url, "http_headers": dict(server.headers)}
    command, *arguments = server.command
    # A program of the person's, which keeps its things in their home.
    home = {name: value for name, value in work.environ.items() if name == "HOME"}
    return {**kept, "command": command, "args": arguments, "env": {**home, **server.env}}


def _leftover(work: SandboxRequest) -> Iterator[str]:
    yield from _ALWAYS
    if not _abilities(work.tools) & {Ability.EDIT_FILE, Ability.SHELL}:
        yield EDIT  # offered to most models; the sandbox denies every use
    if work.servers:
        yield from _RESOURCES


SANDBOX: Final[Sandbox] = CodexSandbox()


def _trial_settings(url: str) -> tuple[str, ...]:
    provider = f'{{name="trial",base_url="{url}/v1",wire_api="responses",env_key="HARKEN_TRIAL_KEY"}}'
    return (f"model_providers.trial={provider}", 'model_provider="trial"')


def _trial_overrides(url: str) -> ModelOverrides:
    # The model's name stays, because tools are offered differently for each. With these arguments no shared daemon is
    # started: the terminal does everything itself. In a sandbox that may write, the host would note in the person's
    # settings that it trusts the folder.
    argv = tuple(part for setting in _trial_settings(url) for part in ("-c", setting))
    return ModelOverrides(argv=(*argv, "--sandbox", "read-only"), env=_private_trial(url).env)


def _private_trial(_url: str) -> ModelOverrides:
    return ModelOverrides(env={"HARKEN_TRIAL_KEY": KEY})


def _prepare_trial(user: Path, project: Path, url: str) -> None:
    lines = (
        *_trial_settings(url),
        f'model="{MODEL}"',
        'sandbox_mode = "danger-full-access"',
        'approval_policy = "never"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        f"[projects.{json.dumps(str(project))}]",
        'trust_level = "trusted"',
    )
    write_file(user / ".codex" / "config.toml", "\n".join(lines) + "\n")


TRIAL: Final = TrialRecipe(
    overrides=_trial_overrides,
    private=_private_trial,
    prepare=_prepare_trial,
    headless_argv=lambda prompt: ("--skip-git-repo-check", prompt),
    verb=("exec",),
    ready="\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} Ask Codex",
)
