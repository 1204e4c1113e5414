"""opencode run headless and fenced. Starts nothing: says how, and has `output` read what it prints.

The run has a home, settings, data and state of its own, so nothing of the person's is there: no plugins, servers,
agents, commands, skills or instructions. Their sign-in is linked into it; what chooses a model and its provider is
copied; their cache is shared, for it holds what providers are made of. opencode's own fence ends at the repository and
does not follow links, so every tool is denied by the settings, and `files/fence.js` opens those of the rule, for paths
in the folder. The folder's own settings are not read, but plugins in it would run: such a folder is refused.

A trial has no fence: `TRIAL` says what replaces the model, and how the host is asked something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.hosts.opencode.hooks import NAME
from harken.hosts.run_environment import (
    MAX_NAME,
    MAX_TEXT,
    NETWORK,
    HostOutput,
    brief,
    carried,
    entry,
    environment,
    held_parts,
    plain,
    table,
    target,
    unfit,
    unsayable,
    word,
)
from harken.hosts.trial_recipe import KEY, MODEL, ModelOverrides, TrialRecipe, write_file
from harken.runs.held import folded
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

TITLE: Final = "opencode"
AGENT: Final = "harken"
_CONFIG: Final = "config/opencode"
_SIGN_INS: Final = ("auth.json", "mcp-auth.json")
_VARIABLES: Final = (
    "OPENCODE_API_KEY",
    "OPENCODE_AUTH_CONTENT",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_VERTEX_LOCATION",
    "AZURE_API_KEY",
    "AZURE_RESOURCE_NAME",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_REGION",
    "CEREBRAS_API_KEY",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "XAI_API_KEY",
    "ZHIPU_API_KEY",
    *NETWORK,
)
_CARRIED: Final = ("model", "small_model", "provider", "enabled_providers", "disabled_providers")
_FILES: Final = ("config.json", "opencode.json", "opencode.jsonc")
_QUIET: Final[Mapping[str, str]] = MappingProxyType(
    {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_CLAUDE_CODE": "1",
        "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "npm_config_offline": "true",  # else it waits at every start for a package that our plugin does not use
    }
)
_PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "XDG_CONFIG_HOME": ".config",
        "XDG_DATA_HOME": ".local/share",
        "XDG_STATE_HOME": ".local/state",
        "XDG_CACHE_HOME": ".cache",
    }
)
# The host's own tools for each ability; its permission `edit` stands for the last three.
_TOOLS: Final[Mapping[Ability, Sequence[str]]] = MappingProxyType(
    {
        Ability.READ_FILE: ("read",),
        Ability.LIST_FILES: ("glob", "list"),
        Ability.SEARCH_FILES: ("grep",),
        Ability.EDIT_FILE: ("edit", "write", "apply_patch"),
        Ability.SHELL: ("bash",),
        Ability.SHELL_PREFIX: ("bash",),
    }
)
_OWN: Final = ("apply_patch", "edit", "glob", "grep", "list", "read", "todowrite", "webfetch", "websearch", "write")
_EDITS: Final = frozenset(_TOOLS[Ability.EDIT_FILE])
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_.,:=+@%/-]+")
_IN_SETTINGS: Final = re.compile(r"\{(env|file):([^{}\"]+)\}")
_CAN_NAME_PLUGINS: Final = re.compile(rb"plugin|\\u|\{file:", re.IGNORECASE)
_KEY: Final = re.compile(r"KEY|TOKEN|SECRET|AUTH", re.IGNORECASE)
_TOOL_MS: Final = 120_000

_DENIALS: Final = (
    "harken: ",
    "The user has specified a rule which prevents",
    "The user rejected permission",
    "Model tried to call unavailable tool",
)
_INVALID: Final = "invalid"
# Names that every object of its language has: no tools, but opencode looks them up as if they were.
_INHERITED: Final = frozenset(
    (
        *("__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__", "constructor"),
        *("hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"),
    )
)
_MAX_SAID: Final = 256_000


class OpencodeSandbox(Sandbox):
    """How opencode runs fenced."""

    host = NAME
    program = "opencode"
    variables = _VARIABLES

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why opencode cannot be fenced to these tools; empty when it can."""
        if said := unsayable(TITLE, tools, words=_PLAIN_WORD, any_command="bash"):
            return said
        names = sorted({plain(tool.server) for tool in tools if tool.server})
        if any(other.startswith(f"{name}_") for name in names for other in names):
            return f"{TITLE} cannot tell the tools of the servers {', '.join(names)} apart: rename one of them."
        return unfit(TITLE, tools, _OWN)

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it; raises `UserError` for a folder with plugins, which opencode would run."""
        _check_folder(work.workdir)
        home = Path(work.environ.get("HOME") or Path.home())
        theirs = _settings_of(work.environ, home)
        data = Path(work.environ.get("XDG_DATA_HOME") or home / ".local/share") / "opencode"
        variables = (*_VARIABLES, *(name for kind, name in _IN_SETTINGS.findall(json.dumps(theirs)) if kind == "env"))
        own = {
            **_QUIET,
            "HOME": str(work.private),
            "XDG_CONFIG_HOME": str(work.private / "config"),
            "XDG_DATA_HOME": str(work.private / "data"),
            "XDG_STATE_HOME": str(work.private / "state"),
            "XDG_CACHE_HOME": work.environ.get("XDG_CACHE_HOME") or str(home / ".cache"),
            "SHELL": "/bin/sh",
        }
        fence = files(__package__).joinpath("files/fence.js").read_text(encoding="utf-8")
        return SandboxCommand(
            # Without a title it would ask the model for one.
            argv=(work.program, "run", "--format", "json", "--agent", AGENT, "--title", "run"),
            env=environment(work, variables, own),
            stdin=work.prompt.encode(errors="replace"),
            files=(
                RunFile(f"{_CONFIG}/opencode.json", RunFileKind.FILE, json.dumps({**theirs, **_settings(work)})),
                RunFile(f"{_CONFIG}/fence.json", RunFileKind.FILE, json.dumps(_fence(work, variables))),
                RunFile(f"{_CONFIG}/plugins/fence.js", RunFileKind.FILE, fence),
                *(RunFile(f"data/opencode/{name}", RunFileKind.LINK, target=data / name) for name in _SIGN_INS),
            ),
        )

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        return OpencodeOutput()


SANDBOX: Final[Sandbox] = OpencodeSandbox()


def _check_folder(workdir: Path) -> None:
    for folder in (workdir, *workdir.parents):
        if found := next(_plugins(folder), None):
            hint = "Run the rule in another folder, or with another agent."
            raise UserError(f"opencode would run the plugins of the folder, outside of every fence: {found}.", hint)
        if (folder / ".git").exists():
            return


def _plugins(folder: Path) -> Iterator[Path]:
    own = folder / ".opencode"
    yield from (own / name for name in ("plugin", "plugins") if (own / name).exists())
    for file in (place / name for place in (folder, own) for name in _FILES[1:]):
        try:
            # A letter may be written by its number, and a part of the file stand in another.
            if _CAN_NAME_PLUGINS.search(file.read_bytes()):
                yield file
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield file  # what cannot be read here may be read there


def _settings_of(environ: Mapping[str, str], home: Path) -> dict[str, object]:
    """Return what chooses the person's model, from all the places where opencode looks for it."""
    folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    places = [folder / name for name in _FILES]
    if environ.get("OPENCODE_CONFIG"):
        places.append(Path(environ["OPENCODE_CONFIG"]))
    found = [_rooted(carried(file, _CARRIED), file.parent, home) for file in places]
    given = entry(environ.get("OPENCODE_CONFIG_CONTENT", "").encode(errors="replace"))
    found.append({key: given[key] for key in _CARRIED if key in given})
    providers = {name: each for settings in found for name, each in table(settings.get("provider")).items()}
    merged = {key: value for settings in found for key, value in settings.items()}
    return {**merged, "provider": providers} if providers else merged


def _rooted(settings: Mapping[str, object], folder: Path, home: Path) -> dict[str, object]:
    """Return settings with references to files that mean the same from another home."""

    def root(found: re.Match[str]) -> str:
        if found[1] == "env":
            return found[0]
        name = found[2].strip()
        path = home / name[2:] if name.startswith("~/") else folder / name
        return f"{{file:{json.dumps(str(path))[1:-1]}}}"

    return dict(table(entry(_IN_SETTINGS.sub(root, json.dumps(settings)).encode())))


def _settings(work: SandboxRequest) -> dict[str, object]:
    agent = {"mode": "primary", "steps": work.max_turns, "permission": {"*": "deny"}}
    return {
        "$schema": "https://opencode.ai/config.json",
        "agent": {AGENT: agent},
        "autoupdate": False,
        "formatter": False,  # these two would start programs that the folder chooses
        "lsp": False,
        "mcp": {plain(server.name): _server(server, work.environ) for server in work.servers.values()},
        "permission": {"*": "deny"},
        "share": "disabled",
        "snapshot": False,
    }


def _server(server: ToolServer, environ: Mapping[str, str]) -> dict[str, object]:
    kept: dict[str, object] = {"enabled": True, "timeout": _TOOL_MS}
    if server.url:
        return {**kept, "type": "remote", "url": server.url, "headers": dict(server.headers), "oauth": False}
    # A program of the person's, which keeps its things in their home, and may have to be fetched.
    home = environ.get("HOME") or str(Path.home())
    places = {name: environ.get(name) or f"{home}/{usual}" for name, usual in _PLACES.items()}
    own = {"HOME": home, **places, "npm_config_offline": "false", **server.env}
    return {**kept, "type": "local", "command": list(server.command), "environment": own}


def _fence(work: SandboxRequest, variables: Sequence[str]) -> dict[str, object]:
    built_in = {name for tool in work.tools for name in _built_in(tool)}
    of_servers = {f"{plain(tool.server)}_{plain(tool.name)}" for tool in work.tools if tool.ability is Ability.MCP}
    is_shell = any(tool.ability is Ability.SHELL for tool in work.tools)
    opened = {"edit" if name in _EDITS else name for name in built_in} | of_servers
    return {
        "agent": AGENT,
        "builtIn": sorted(built_in),
        "folder": str(work.workdir),
        "held": folded(held_parts(work.tools)),
        "isShell": is_shell,
        "keys": sorted(name for name in variables if _KEY.search(name) and work.environ.get(name)),
        "permission": {
            "*": "deny",
            **dict.fromkeys(sorted(opened), "allow"),
            # A shell goes where it likes; all other tools are held in the folder by the plugin.
            "external_directory": "allow" if is_shell else "deny",
        },
        "prefixes": [tool.prefix for tool in work.tools if tool.ability is Ability.SHELL_PREFIX],
        "tools": sorted(built_in | of_servers),
    }


def _built_in(tool: Tool) -> Sequence[str]:
    return (tool.name,) if tool.ability is Ability.OWN else _TOOLS.get(tool.ability, ())


class OpencodeOutput(HostOutput):
    """The output of one run."""

    title = TITLE

    def __init__(self) -> None:
        super().__init__()
        self._said = ""

    def read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        """Yield what an object on a line tells."""
        part = table(event.get("part"))
        match event.get("type"):
            case "text":
                self._said = word(part.get("text"))[:_MAX_SAID]
                yield OutputEvent(OutputKind.TEXT, self._said)
            case "tool_use":
                yield from _called(part)
            case "step_finish":
                yield OutputEvent(OutputKind.TURN)
                if part.get("reason") != "tool-calls":
                    yield OutputEvent(OutputKind.ANSWER, self._said)
            case "error":
                yield OutputEvent(OutputKind.ERROR, _trouble(table(event.get("error"))))
            case _:
                pass


def _called(part: Mapping[str, object]) -> Iterator[OutputEvent]:
    state = table(part.get("state"))
    given = table(state.get("input"))
    tool = word(part.get("tool"))
    name = (word(given.get("tool")) if tool == _INVALID else tool)[:MAX_NAME] or _INVALID
    # What the model called that is not there is told without its arguments.
    error = word(given.get("error")) if tool == _INVALID else word(state.get("error"))
    about = "" if tool == _INVALID else target(given)
    if tool == _INVALID or error.startswith(_DENIALS) or (error and tool in _INHERITED):
        yield OutputEvent(OutputKind.DENIED, error[:MAX_TEXT], name, about)
    else:
        yield OutputEvent(OutputKind.TOOL, brief(given), name)


def _trouble(error: Mapping[str, object]) -> str:
    text = word(table(error.get("data")).get("message")) or word(error.get("message")) or word(error.get("name"))
    return text[:MAX_TEXT] or "opencode failed and did not say why."


def _trial_overrides(url: str) -> ModelOverrides:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "trial",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    model = f"trial/{MODEL}"
    content = {"model": model, "small_model": model, "enabled_providers": ["trial"], "provider": {"trial": provider}}
    return ModelOverrides(argv=("--model", model), env={"OPENCODE_CONFIG_CONTENT": json.dumps(content)})


def _prepare_trial(user: Path, _project: Path, _url: str) -> None:
    folder = user / ".config" / "opencode"
    write_file(folder / "opencode.json", {"autoupdate": False, "share": "disabled"})
    # What it would install at each start, and nothing here uses. One that ends meanwhile leaves its lock, for which the
    # next one waits for a minute.
    (folder / "node_modules").mkdir(exist_ok=True)
    write_file(folder / "package-lock.json", {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}})


TRIAL: Final = TrialRecipe(
    overrides=_trial_overrides,
    prepare=_prepare_trial,
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
