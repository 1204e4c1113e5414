"""How opencode is connected: two entries in its settings, the MCP server and what the agent is told, and our plugin.

opencode reads `config.json`, `opencode.json` and `opencode.jsonc` of its folder, the last one winning, and then the
file that OPENCODE_CONFIG names. The entries go where one of ours stands already, else into the file that wins. The
agent is told by a file of its own, named under `instructions`: an AGENTS.md that we made would hide a CLAUDE.md, which
opencode reads only where there is no other. A project needs none where the person's own has the block, or an AGENTS.md
that is there for another host. To be asked anything, opencode is run in a folder of its own: it leaves traces in every
home. Nothing is written here; plans are, see `hosts/connect/plan.py`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from harken.errors import UserError
from harken.hosts.connect.command import find_program, mcp_command, output_of, packaged_version
from harken.hosts.connect.edits import json_append, json_remove, json_remove_items, json_set, json_value
from harken.hosts.connect.files import read
from harken.hosts.connect.instructions_block import AGENTS_FILE, is_told, told, untold
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
from harken.hosts.instructions import ANY_HOST, Abilities
from harken.hosts.opencode.hooks import NAME

PROGRAM: Final = "opencode"
_PACKAGE: Final = "opencode-ai"
ENTRY: Final = ("mcp", "harken")
INSTRUCTIONS: Final = ("instructions",)
ABILITIES: Final = Abilities(tool_prefix="harken_")
SCHEMA: Final = "https://opencode.ai/config.json"
# A call may wait 55 seconds for a message, and opencode gives it 60 unless told.
TIMEOUT_MS: Final = 70_000

_DEFAULT: Final = "opencode.json"
_PLUGIN: Final = "plugins/harken.js"
_TOLD: Final = "harken.md"
_FIRST_LINE: Final = b"// Harken in opencode."
_BLANK: Final = '"HARKEN_HOME"'
_CHOICE: Final = '"HARKEN_APPROVALS"'
_AGAIN: Final = "Run `harken connect opencode` again."


class OpencodeConnector(Connector):
    """Connects opencode. It is woken by the plugin, which costs nothing."""

    name = NAME

    def find(self, place: InstallTarget) -> InstalledProgram | None:
        """Return the installed program."""
        program = find_program(place, PROGRAM)
        if program is None:
            return None
        version = packaged_version(program, _PACKAGE) or _said(place, program, "--version").strip()
        return InstalledProgram(program=Path(program), version=version)

    def plan(self, place: InstallTarget, options: ConnectOptions) -> ConnectPlan:
        """Return what connecting would do now."""
        if options.wake:
            raise UserError("opencode is woken by its plugin; there is nothing to choose.", "Leave out --wake.")
        file = settings_file(place)
        before = read(file)
        # opencode adds this line by itself, and the file would no longer be the one that was written.
        start = json_set(None, ("$schema",), SCHEMA, file=file) if before is None else before
        after = _with_told(json_set(start, ENTRY, _entry(place), file=file), place, file)
        why = "the MCP server, and where the agent is told about it"
        path = _plugin_file(place)
        script = read(path)
        if script is not None and not script.startswith(_FIRST_LINE):
            raise UserError(f"{path} is not a file of Harken's.", "Give it another name; nothing was changed.")
        changes, blocks = _telling(place)
        steps = [
            FileEdit(path=file, before=before, after=after, why=why),
            FileEdit(path=path, before=script, after=plugin_text(place), why="the plugin", is_ours=True),
            *changes,
        ]
        return ConnectPlan(host=NAME, steps=steps, notes=tuple(_notes(place)), blocks=blocks)

    def removal(self, place: InstallTarget) -> ConnectPlan:
        """Return how to take our entry out of every settings file that has one, and the plugin away."""
        steps: list[FileEdit] = []
        for file in _settings_files(place):
            before = read(file)
            after = json_remove(before, ENTRY, file=file)
            after = _without_told(after, place, file)
            steps.append(FileEdit(path=file, before=before, after=after, why="takes the MCP server out"))
        path = _plugin_file(place)
        script = read(path)
        if script is not None and script.startswith(_FIRST_LINE):
            steps.append(FileEdit(path=path, before=script, after=None, why="the plugin", is_ours=True))
        return ConnectPlan(host=NAME, steps=[*steps, untold(place, NAME, _own_file(place))])

    def check(self, place: InstallTarget) -> Sequence[CheckFinding]:
        """Look whether the files are current, and whether opencode reads the settings as they are meant."""
        file, path = settings_file(place), _plugin_file(place)
        data, program = read(file), find_program(place, PROGRAM)
        entry = json_value(data, ENTRY, file=file)
        findings = [
            CheckFinding.of(f"{file} names the MCP server", _AGAIN, is_good=entry == _entry(place)),
            CheckFinding.of(f"{path} is current", _AGAIN, is_good=read(path) == plugin_text(place)),
        ]
        # A copy elsewhere would not find the files that such settings refer to.
        if data is None or entry is None or b"{file:" in data or program is None:
            return findings
        hint = f"Run `opencode debug config` to see what it makes of {file}."
        is_understood = _is_understood(place, program, data)
        return [*findings, CheckFinding.of("opencode reads these settings", hint, is_good=is_understood)]


CONNECTOR: Final[Connector] = OpencodeConnector()


def settings_file(place: InstallTarget) -> Path:
    """Return the settings that are changed: those with an entry of ours, else those that win."""
    there = [file for file in _settings_files(place) if read(file) is not None]
    ours = [file for file in there if json_value(read(file), ENTRY, file=file) is not None]
    own = [file for file in there if file.parent == _folder(place)]
    return [_folder(place) / _DEFAULT, *own, *ours][-1]


def plugin_text(place: InstallTarget) -> bytes:
    """Return the plugin for a home of Harken's, and for what the person chose."""
    text = (files("harken.hosts.opencode") / "files" / "harken.js").read_text(encoding="utf-8")
    # JSON's strings are JavaScript's, and pure ASCII.
    text = text.replace(_BLANK, json.dumps(str(place.harken)), 1)
    return text.replace(_CHOICE, json.dumps(place.has_approvals), 1).encode()


def _folder(place: InstallTarget) -> Path:
    """Return where opencode keeps its settings and plugins."""
    if place.project is not None:
        return place.project / ".opencode"
    named = place.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if named else place.user / ".config") / "opencode"


def _plugin_file(place: InstallTarget) -> Path:
    return _folder(place) / _PLUGIN


def _own_file(place: InstallTarget) -> Path:
    return _folder(place) / _TOLD


def _telling(place: InstallTarget) -> tuple[Sequence[FileEdit], Sequence[Path]]:
    """Return how the agent is told, and the files with the block: our own, unless opencode reads one here anyway."""
    own = _own_file(place)
    if place.project is not None:
        if is_told(_own_file(replace(place, project=None))):
            return (untold(place, NAME, own),), ()
        shared = place.project / AGENTS_FILE
        if is_told(shared):
            return (told(place, NAME, shared, ANY_HOST), untold(place, NAME, own)), (shared,)
    return (told(place, NAME, own, ABILITIES),), (own,)


def _with_told(data: bytes, place: InstallTarget, file: Path) -> bytes | None:
    """Return the settings with our file among the instructions, once, where it has the block."""
    _, blocks = _telling(place)
    name = str(_own_file(place))
    if _own_file(place) not in blocks:
        return _without_told(data, place, file)
    there = json_value(data, INSTRUCTIONS, file=file)
    return data if isinstance(there, list) and name in there else json_append(data, INSTRUCTIONS, name, file=file)


def _without_told(data: bytes | None, place: InstallTarget, file: Path) -> bytes | None:
    return json_remove_items(data, INSTRUCTIONS, lambda item: item == str(_own_file(place)), file=file)


def _settings_files(place: InstallTarget) -> Sequence[Path]:
    """Return the files that opencode reads, the one that wins last."""
    own = [_folder(place) / name for name in (_DEFAULT, "opencode.jsonc")]
    if place.project is not None:
        return own
    named = place.environ.get("OPENCODE_CONFIG", "")
    return [_folder(place) / "config.json", *own, *([Path(named)] if named else [])]


def _entry(place: InstallTarget) -> Mapping[str, object]:
    return {"type": "local", "command": list(mcp_command(place)), "enabled": True, "timeout": TIMEOUT_MS}


def _notes(place: InstallTarget) -> Iterator[str]:
    yield "Conversations that are open now get their messages after opencode is started again."
    yield "An idle conversation is woken by a prompt of the plugin's; one that you reopen, after its first prompt."
    if place.has_approvals:
        yield "What opencode asks before it uses a tool is shown in Harken too, and the first answer counts."
    if not (_folder(place) / "node_modules" / "@opencode-ai" / "plugin").exists():
        yield (
            "Where there is a plugin, opencode fetches its package @opencode-ai/plugin from the npm registry, once. If "
            "it cannot, each start takes a minute longer; `npm config set fetch-retries 0` ends that."
        )
    if place.project is not None:
        yield (
            "This project only, on this machine: what was written names folders of yours. Git does not ignore "
            ".opencode/opencode.json, .opencode/harken.md and .opencode/plugins/harken.js: keep them out of commits."
        )


def _is_understood(place: InstallTarget, program: str, data: bytes) -> bool:
    """Whether opencode finds the entry in a copy of the settings: it writes into those that it reads."""
    said = _said(place, program, "debug", "config", settings=data)
    try:
        return bool(json_value(said.encode(), ENTRY, file=Path("opencode.jsonc")) == _entry(place))
    except UserError:
        return False


def _said(place: InstallTarget, *argv: str, settings: bytes = b"{}") -> str:
    """Return what opencode says, from a home that is thrown away, and without its reaching out."""
    kept = {name: value for name, value in place.environ.items() if not name.startswith(("XDG_", "OPENCODE"))}
    quiet = {"npm_config_offline": "true", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    with tempfile.TemporaryDirectory(prefix="harken-") as scratch:
        file = Path(scratch) / "opencode.jsonc"
        file.write_bytes(settings)
        environ = {**kept, **quiet, "HOME": scratch, "OPENCODE_CONFIG": str(file)}
        return output_of(argv, environ, Path(scratch), is_all=False)


def _remote_server(inbox: RemoteInbox) -> Mapping[str, object]:
    token = f"{{file:{inbox.token_file}}}" if inbox.token_file else f"{{env:{inbox.variable}}}"
    return {
        "type": "remote",
        "url": inbox.url,
        "headers": {"Authorization": f"Bearer {token}"},
        "oauth": False,
        "enabled": True,
        "timeout": TIMEOUT_MS,
    }


_UNPROVEN: Final = (
    "opencode cancels a call also when it has its answer, so another call proves nothing: a message is given to its "
    "agent again, marked as a repeat, until the agent answers it or acknowledges it (ack)."
)
REMOTE: Final[RemoteEntry] = SettingsEntry(
    file=settings_file,
    keys=ENTRY,
    value=_remote_server,
    takes_file=True,
    note=_UNPROVEN,
    start=json_set(None, ("$schema",), SCHEMA, file=Path(_DEFAULT)),
)
