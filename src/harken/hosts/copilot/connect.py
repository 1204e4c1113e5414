"""How Copilot CLI is connected: a plugin of ours in Harken's home, and two entries in Copilot's settings that name it.

Copilot has commands that write the same two entries. They are not used: they drop every comment in the file, and what
they leave behind when asked to remove them is not what was there. Its settings are changed in place instead, and
Copilot is asked afterwards whether it sees the plugin. What a server says of itself does not reach its model, so
agents are told by a block in the instructions that it reads. Nothing is written here: see `hosts/connect/plan.py`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files as resources
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken import __version__
from harken.errors import UserError
from harken.hosts.connect.command import SERVER, find_program, hook_line, mcp_command, output_of, packaged_version
from harken.hosts.connect.edits import block_remove, json_append, json_remove, json_remove_items, json_set, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.instructions_block import AGENTS_FILE, is_told, told, untold, with_block
from harken.hosts.connect.plan import (
    CheckFinding,
    ConnectOptions,
    Connector,
    ConnectPlan,
    FileEdit,
    InstalledProgram,
    InstallTarget,
    RemoteEntry,
    RemoteInbox,
)
from harken.hosts.connect.remote import SettingsEntry
from harken.hosts.copilot.hooks import NAME
from harken.hosts.instructions import ANY_HOST, SKILLS, Abilities, skill_text
from harken.sessions.turns import HookMoment

MARKETPLACE: Final = "harken-copilot"
PLUGIN: Final = "harken"
PLUGIN_ID: Final = f"{PLUGIN}@{MARKETPLACE}"
TOOL_PREFIX: Final = f"{SERVER}-"

EXTENSION: Final = "extension"
WAITER: Final = "waiter"
ASKS: Final = "permissionRequest"
NO_WAKE: Final = ""

ARMING_WORDS: Final = "Please start Harken's waiter"
CATALOGUE: Final = ".github/plugin/marketplace.json"
EXTENSION_SETTINGS: Final = f"{PLUGIN}/extensions/{PLUGIN}/harken.json"
# An extension of its own: who refuses what Copilot asks about it at its start still has the other one.
ANSWERER: Final = f"{PLUGIN}/extensions/{PLUGIN}-approvals"

# Our tools that reach nobody but are not read-only, so that Copilot asks before each. A hook could answer for the
# person, but its word would also beat what they have refused by a rule of their own.
QUIET_TOOLS: Final = ("inbox_pull", "inbox_read", "wait_for_inbound_message", "ack", "check_inbox", "channels")
TELLING_TOOLS: Final = ("reply", "send_to_task", "send_to_peer")  # it asks before these too, and should

_DESCRIPTION: Final = "The inbox of this agent: messages from people, machines and other agents."
_HOOKS: Final[Mapping[str, HookMoment]] = MappingProxyType(
    {
        "sessionStart": HookMoment.START,
        "userPromptSubmitted": HookMoment.PROMPT,
        "postToolUse": HookMoment.TOOL,
        "postToolUseFailure": HookMoment.TOOL,
        "agentStop": HookMoment.STOP,
        "notification": HookMoment.HALT,
        "sessionEnd": HookMoment.END,
    }
)
# Copilot waits for a hook before it goes on; a daemon that hangs must not hold up a person for long.
_HOOK_SECONDS: Final = 10

PROGRAM: Final = "copilot"
_PACKAGE: Final = "@github/copilot"

_WAKES: Final[Mapping[str, str]] = MappingProxyType(
    {
        EXTENSION: (
            "An extension in the plugin starts a turn. No model call but that turn, and about 70 MB of memory per "
            "session. Copilot calls extensions experimental."
        ),
        WAITER: (
            "The agent keeps a waiting command in the background. Nothing experimental, but a short model call at the "
            "start of every conversation, and one more after each message, to start it again. That one command runs "
            "without a question, also where a rule of yours refuses shells."
        ),
    }
)
_MARKETPLACE: Final = ("extraKnownMarketplaces", MARKETPLACE)
_ENABLED: Final = ("enabledPlugins", PLUGIN_ID)
_STARTS: Final = ("hooks", "sessionStart")
_NO_HOOKS: Final = ("disableAllHooks",)
_TOLD: Final = ".github/instructions/harken.instructions.md"
_FOR_ALL: Final = b'---\napplyTo: "**"\n---\n\n'  # Copilot gives such a file to its model whatever it works on
_EXCLUDED: Final = (b"/.github/copilot/settings.local.json", f"/{_TOLD}".encode())


def folder(place: InstallTarget) -> Path:
    """Return where the marketplace is; a project has one of its own, because its wake may be another."""
    if place.project is None:
        return place.harken / "plugins" / NAME
    mark = hashlib.sha256(str(place.project).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return place.harken / "plugins" / f"{NAME}-{mark}"


def abilities(wake: str) -> Abilities:
    """Return what Copilot can do with Harken when it is connected with this wake."""
    return Abilities(tool_prefix=TOOL_PREFIX, can_be_woken=wake != NO_WAKE)


def files(place: InstallTarget, wake: str) -> Mapping[str, bytes]:
    """Return the files of the marketplace by their names in it."""
    can = abilities(wake)
    parts = {
        f"{PLUGIN}/.mcp.json": _json({"mcpServers": {SERVER: _server(place)}}),
        f"{PLUGIN}/hooks/hooks.json": _json({"version": 1, "hooks": _hooks(place, wake)}),
        **{f"{PLUGIN}/skills/{name}/SKILL.md": skill_text(can, name).encode() for name in SKILLS},
    }
    manifest = {
        "name": PLUGIN,
        "version": __version__,
        "description": _DESCRIPTION,
        "skills": "skills/",
        "hooks": "hooks/hooks.json",
        "mcpServers": ".mcp.json",
    }
    if wake == EXTENSION or place.has_approvals:
        manifest["extensions"] = "extensions/"
    if wake == EXTENSION:
        parts[f"{PLUGIN}/extensions/{PLUGIN}/extension.mjs"] = _script("extension.mjs")
        parts[EXTENSION_SETTINGS] = _json({"home": str(place.harken)})
    if place.has_approvals:
        parts[f"{ANSWERER}/extension.mjs"] = _script("approvals.mjs")
        parts[f"{ANSWERER}/harken.json"] = _json({"home": str(place.harken)})
    plugin = {"name": PLUGIN, "source": f"./{PLUGIN}", "description": _DESCRIPTION, "version": __version__}
    catalogue = {"name": MARKETPLACE, "owner": {"name": "Harken"}, "plugins": [plugin]}
    return {CATALOGUE: _json(catalogue), f"{PLUGIN}/plugin.json": _json(manifest), **parts}


def waiter_command(place: InstallTarget) -> str:
    """Return the command that an agent starts in the background to be woken."""
    return shlex.join(_waiter(place))


def arming(place: InstallTarget) -> Mapping[str, object]:
    """Return the hook that has the waiter started when Copilot starts: a prompt, which it takes from settings only."""
    prompt = (
        f"{ARMING_WORDS} with the bash tool, exactly as written here, with mode "
        '"async", detach true and the description "Harken waiter": '
        f"{waiter_command(place)}\n"
        "It ends when a message for this session arrives, and its output is that message. "
        "Nothing else is to be done now; an answer of one word is enough."
    )
    return {"type": "prompt", "prompt": prompt}


def is_arming(hook: object) -> bool:
    """Whether a hook in the settings is the one that starts a waiter of ours."""
    return isinstance(hook, dict) and str(hook.get("prompt", "")).startswith(ARMING_WORDS)


def _waiter(place: InstallTarget, *more: str) -> tuple[str, ...]:
    return (place.python, "-I", "-S", str(place.edge / "wait.py"), "--home", str(place.harken), NAME, *more)


def _server(place: InstallTarget) -> Mapping[str, object]:
    program, *arguments = mcp_command(place)
    return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}


def _hooks(place: InstallTarget, wake: str) -> Mapping[str, list[Mapping[str, object]]]:
    hooks = {event: [_hook(hook_line(place, NAME, moment))] for event, moment in _HOOKS.items()}
    if wake == WAITER:
        command = waiter_command(place)
        hooks[ASKS] = [_hook(_guarded(_waiter(place, "--allow", command)), matcher="^bash$")]
        # Of several that hold up the end of a turn, Copilot hears the last: messages go before reminders.
        hooks["agentStop"].insert(0, _hook(_guarded(_waiter(place, "--remind", command))))
    return hooks


def _hook(line: str, matcher: str = "") -> Mapping[str, object]:
    hook: dict[str, object] = {"type": "command", "bash": line, "timeoutSec": _HOOK_SECONDS}
    return hook | {"matcher": matcher} if matcher else hook


def _guarded(command: tuple[str, ...]) -> str:
    """Return a line that is silent where the interpreter or the script is gone."""
    return f"[ -x {shlex.quote(command[0])} ] && [ -f {shlex.quote(command[3])} ] || exit 0; exec {shlex.join(command)}"


def _script(name: str) -> bytes:
    return resources("harken.hosts.copilot").joinpath("files", name).read_bytes()


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


class _CopilotConnector(Connector):
    """Connects GitHub Copilot CLI."""

    name = NAME

    @property
    def wakes(self) -> Mapping[str, str]:
        """The ways to be woken that a person may choose."""
        return _WAKES

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program."""
        program = find_program(place, PROGRAM)
        if program is None:
            return None
        version = packaged_version(program, _PACKAGE) or _told_version(program, place)
        return InstalledProgram(program=Path(program), version=version)

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake and options.wake not in _WAKES:
            raise UserError(f"Copilot CLI has no wake {options.wake[:40]!r}.", f"Choose one of: {', '.join(_WAKES)}.")
        _check_project(place)
        changes, blocks = _telling(place, options.wake)
        file = settings_file(place)
        before = read(file)
        after = json_set(before, _MARKETPLACE, _source(place), file=file)
        after = json_set(after, _ENABLED, value=True, file=file)
        steps = [
            *_file_changes(place, files(place, options.wake)),
            FileEdit(path=file, before=before, after=_armed(after, place, options.wake, file), why="names the plugin"),
            *_hidden(place),
            *changes,
        ]
        return ConnectPlan(host=NAME, steps=steps, notes=_notes(place, options), blocks=blocks)

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take our entries out of the settings as they are now."""
        file, told_in = settings_file(place), instructions_file(place)
        before = read(file)
        after = json_remove_items(before, _STARTS, is_arming, file=file)
        for path in (_MARKETPLACE, _ENABLED):
            after = json_remove(after, path, file=file)
        steps = [
            FileEdit(path=file, before=before, after=after, why="without the plugin"),
            *_file_changes(place, {}),
            *_hidden(place, is_hidden=False),
            _own_change(told_in, None) if place.project else untold(place, NAME, told_in),
        ]
        return ConnectPlan(host=NAME, steps=steps)

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look whether the files are current and whether Copilot lists the plugin."""
        file = settings_file(place)
        data = read(file)
        is_named = (
            json_value(data, _MARKETPLACE, file=file) == _source(place)
            and json_value(data, _ENABLED, file=file) is True
        )
        again = "Run `harken connect copilot-cli` again."
        findings = [CheckFinding.of(f"{file} names the plugin", again, is_good=is_named)]
        if not is_named:
            return findings
        is_current = not [*_file_changes(place, files(place, _chosen_wake(place)))]
        findings.append(CheckFinding.of("the plugin is current", again, is_good=is_current))
        if json_value(data, _NO_HOOKS, file=file) is True:
            hint = f"Take disableAllHooks out of {file}: without hooks messages wait until the agent asks."
            findings.append(CheckFinding(what="hooks are on", is_good=False, hint=hint))
        if _chosen_wake(place) == WAITER or place.has_approvals:
            others = json_value(data, ("hooks", ASKS), file=file)
            hint = f"There is one in {file}. Of several, Copilot obeys the last: it may allow what another refused."
            findings.append(CheckFinding.of("no other hook answers what Copilot asks", hint, is_good=not others))
        if place.project is None:
            findings += _listed(place, data)
        return findings


CONNECTOR: Final[Connector] = _CopilotConnector()


def _servers_file(place: InstallTarget) -> Path:
    if place.project is not None:
        raise UserError("Copilot CLI has servers on other machines for every folder.", "Leave out --project.")
    return _state(place) / "mcp-config.json"


def _remote_server(inbox: RemoteInbox) -> Mapping[str, object]:
    headers = {"Authorization": f"Bearer ${{{inbox.variable}}}"}
    return {"type": "http", "url": inbox.url, "headers": headers, "tools": ["*"]}


REMOTE: Final[RemoteEntry] = SettingsEntry(file=_servers_file, keys=("mcpServers", SERVER), value=_remote_server)


def settings_file(place: InstallTarget) -> Path:
    """Return the settings that are changed: a person's, or those of a project that are not shared with others."""
    if place.project is not None:
        return place.project / ".github" / "copilot" / "settings.local.json"
    return _state(place) / "settings.json"


def instructions_file(place: InstallTarget) -> Path:
    """Return the file that Copilot gives to its model: a person's, or one of ours among those of a project."""
    return place.project / _TOLD if place.project else _state(place) / "copilot-instructions.md"


def _telling(place: InstallTarget, wake: str) -> tuple[Sequence[FileEdit], Sequence[Path]]:
    """Return how the agent is told, and the files with a block that others may share.

    A project has a file of ours, unless Copilot reads the block there anyway: the person's own, or in AGENTS.md.
    """
    own = instructions_file(place)
    if place.project is None:
        return (told(place, NAME, own, abilities(wake)),), (own,)
    shared = place.project / AGENTS_FILE
    if is_told(instructions_file(replace(place, project=None))):
        return (_own_change(own, None),), ()
    if is_told(shared):
        return (_own_change(own, None), told(place, NAME, shared, ANY_HOST)), (shared,)
    return (_own_change(own, abilities(wake)),), ()


def _own_change(path: Path, abilities: Abilities | None) -> FileEdit:
    """Return our file in a project with the block, or without it; what was added to it stays."""
    before = read(path)
    if abilities is not None:
        after: bytes | None = with_block(_FOR_ALL if before is None else before, abilities, path)
    else:
        after = block_remove(before, file=path)
        after = None if after == _FOR_ALL else after
    return FileEdit(path=path, before=before, after=after, why="what the agent is told in this project")


def _state(place: InstallTarget) -> Path:
    named = place.environ.get("COPILOT_HOME", "")
    return Path(named) if named else place.user / ".copilot"


def _source(place: InstallTarget) -> Mapping[str, object]:
    return {"source": {"source": "directory", "path": str(folder(place))}}


def _check_project(place: InstallTarget) -> None:
    """Raise for a folder in which Copilot would not read what we write."""
    if place.project is None or (place.project / ".git").exists():
        return
    root = next((parent for parent in place.project.parents if (parent / ".git").exists()), None)
    hint = f"Use --project {root}" if root else "Run `git init` there, or connect without --project."
    raise UserError(
        f"Copilot CLI reads settings only at the root of a git repository, which {place.project} is not.", hint
    )


def _hidden(place: InstallTarget, *, is_hidden: bool = True) -> Iterator[FileEdit]:
    """Yield what keeps the settings of one person in a project out of everybody's repository, or no longer does."""
    if place.project is None or not (place.project / ".git").is_dir():
        return
    path = place.project / ".git" / "info" / "exclude"
    before = read(path)
    lines = [line for line in (before or b"").splitlines(keepends=True) if line.strip() not in _EXCLUDED]
    after = b"".join(lines)
    if is_hidden:
        gap = b"" if not after or after.endswith(b"\n") else b"\n"
        after += gap + b"".join(line + b"\n" for line in _EXCLUDED)
    there = set(_EXCLUDED).intersection((before or b"").split())
    if there != set(_EXCLUDED if is_hidden else ()):
        yield FileEdit(path=path, before=before, after=after or None, why="what git leaves alone here")


def _armed(data: bytes | None, place: InstallTarget, wake: str, file: Path) -> bytes | None:
    """Return the settings with the prompt that starts the waiter, or without it."""
    wanted = arming(place) if wake == WAITER else None
    data = json_remove_items(data, _STARTS, lambda hook: is_arming(hook) and hook != wanted, file=file)
    return data if wanted is None else json_append(data, _STARTS, wanted, file=file)


def _file_changes(place: InstallTarget, wanted: Mapping[str, bytes]) -> Iterator[FileEdit]:
    """Yield what differs in the marketplace; files that an earlier choice left there go."""
    root = folder(place)
    places = [replace(place, has_approvals=choice) for choice in (False, True)]
    known = {name for wake in (NO_WAKE, *_WAKES) for each in places for name in files(each, wake)}
    for name in sorted(known | set(wanted)):
        before, after = read(root / name), wanted.get(name)
        if before != after:
            yield FileEdit(path=root / name, before=before, after=after, why="the plugin", is_ours=True)


def _chosen_wake(place: InstallTarget) -> str:
    """Return the wake of the plugin that is in place."""
    root = folder(place)
    if read(root / EXTENSION_SETTINGS) is not None:
        return EXTENSION
    hooks = read(root / PLUGIN / "hooks" / "hooks.json") or b""
    return WAITER if b"--remind" in hooks else NO_WAKE


def _notes(place: InstallTarget, options: ConnectOptions) -> Sequence[str]:
    quiet, telling = ", ".join(QUIET_TOOLS), ", ".join(TELLING_TOOLS)
    allowing = f"--allow-tool '{SERVER}({QUIET_TOOLS[0]})'"
    notes = [
        f"Copilot asks before it calls {quiet}; these reach nobody: allow them there, or {allowing}.",
        f"It also asks before {telling}.",
        "While any plugin is enabled, Copilot loads extensions in interactive sessions, also those of your own.",
        "Sessions that are open now are reached after they are started again.",
    ]
    if options.wake:
        notes.insert(0, f"Wake: {_WAKES[options.wake]}")
    else:
        notes.insert(0, "An idle session is not woken: it gets its messages with its next prompt.")
    if place.has_approvals:
        notes.append(
            "What Copilot asks before it uses a tool is shown in Harken too, and the first answer counts. For that, an "
            "extension has to handle permission requests: Copilot asks whether it may, once in each repository, and "
            "does not start it if you say no. It takes about 70 MB of memory per session."
        )
    if place.project is not None:
        is_hidden = (place.project / ".git").is_dir()
        git = "git is told to leave it alone" if is_hidden else "keep it out of your commits"
        notes.append(
            "This folder only, on this machine only, by .github/copilot/settings.local.json: Copilot reads it where "
            f"you trust the folder, and {git}, and the file with instructions beside it."
        )
    return notes


def _told_version(program: str, place: InstallTarget) -> str:
    words = output_of((program, "--version"), place.environ, is_all=False).split()
    return next((word.rstrip(".") for word in words if word[:1].isdigit()), "")


def _listed(place: InstallTarget, settings: bytes | None) -> Sequence[CheckFinding]:
    """Ask Copilot which plugins it sees, in a copy of its settings: it would leave traces beside the real ones."""
    program = find_program(place, PROGRAM)
    if program is None:
        return [CheckFinding(what="Copilot CLI is installed", is_good=False, hint="Install it, or put it on the PATH.")]
    caches = (place.environ.get("XDG_CACHE_HOME") or place.user / ".cache", place.user / "Library" / "Caches")
    if not any(Path(cache, "copilot").exists() for cache in caches):
        return []  # it never ran here, and would unpack itself into this home just to answer
    with tempfile.TemporaryDirectory(prefix="harken-") as scratch:
        (Path(scratch) / "settings.json").write_bytes(settings or b"{}")
        environ = {**place.environ, "HOME": str(place.user), "COPILOT_HOME": scratch, "COPILOT_AUTO_UPDATE": "false"}
        said = output_of((program, "plugin", "list"), environ, is_all=False)
    hint = "Run `copilot plugin list` and `harken connect copilot-cli` again."
    return [CheckFinding.of("Copilot lists the plugin", hint, is_good=PLUGIN_ID in said)]
