"""What sandboxes of several hosts share: a small environment, what is carried over of a person's settings, and output.

Also which files runs do not change, with those that belong to the hosts: no run writes what another host obeys.
It knows no host. Nothing here writes; a file of the person's that is missing or broken carries nothing over.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from harken.errors import HarkenError, UserError
from harken.git import NOWHERE, VARIABLES, risky_settings
from harken.hosts import edit_guard, shell_guard
from harken.hosts.connect.edits import json_value
from harken.hosts.connect.files import read
from harken.hosts.registry import hosts
from harken.runs.held import HeldPaths, folded
from harken.runs.sandbox import OutputEvent, OutputKind, OutputReader, SandboxRequest, ToolServer
from harken.runs.tools import Ability, Tool, runs_git

# How every program on node, and most others, reach the network.
NETWORK: Final = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS")
MAX_SAID: Final = 4_000_000  # of what an agent says; `runs.output` keeps less, and says so
MAX_TEXT: Final = 2_000  # of a tool's arguments that is told
MAX_NAME: Final = 200
MAX_CALLS: Final = 1_000  # remembered by id; of a longer run the oldest are forgotten
MAX_TARGET: Final = 400  # of those of a call that may be denied, which are remembered until it is over
# The arguments that say best what a call is about, the first that is there.
_ABOUT: Final = (
    "command",
    "cmd",
    "file_path",
    "filePath",
    "absolute_path",
    "dir_path",
    "path",
    "url",
    "query",
    "pattern",
)
# Longer than any run: hosts go on without an answer that is late.
GUARD_SECONDS: Final = 86_400
# What any program needs of a person's environment; sign-ins and models are each host's own.
_PLAIN: Final = ("HOME", "PATH", "LANG", "USER", "LOGNAME", "TMPDIR", "TZ")
_WORD: Final = re.compile(r"[A-Za-z0-9./_][A-Za-z0-9./_+=@-]*")
_KEY: Final = re.compile(r"KEY|TOKEN|SECRET|HEADERS|CREDENTIALS")
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]")


class HostOutput(OutputReader):
    """Reads the output of one run; what its lines mean, each host says by `read`."""

    title: ClassVar[str]

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}  # by id: the name, and what it is about
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        told = tuple(self.read(entry(line)))
        self._has_failed = self._has_failed or any(each.kind is OutputKind.ERROR for each in told)
        return told

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return why it failed, when its output did not say so."""
        if exit_code == 0 or self._has_failed:
            return ()
        said = self.reason(exit_code) or last_line(stderr) or f"{self.title} ended with {exit_code}."
        return (OutputEvent(OutputKind.ERROR, said),)

    @abstractmethod
    def read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        """Yield what an object on a line tells."""

    def reason(self, exit_code: int) -> str:
        """Return what a code means with which the host ends; empty where it says nothing by itself."""
        del exit_code
        return ""

    def remember(self, call: object, name: str, given: object) -> None:
        """Remember a call until it is known whether it was denied."""
        self._calls[word(call)[:MAX_NAME]] = (name, target(given))
        if len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]

    def called(self, call: object) -> tuple[str, str]:
        """Return the name of a call, and what it is about."""
        return self._calls.get(word(call)[:MAX_NAME], ("", ""))


def plain_prompt(prompt: str) -> str:
    """Return a prompt in which a host puts no file in place of `@path`, and finds none of its commands."""
    escaped = re.sub(r"(?<!\\)@", r"\\@", prompt)
    return f" {escaped}" if escaped.startswith("/") else escaped


def environment(work: SandboxRequest, variables: Collection[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return a whole environment: what any program needs, some variables of the person's, and the host's own.

    Raises `UserError` for a folder in which git, if the run may run it, could start programs.
    """
    of_git = git_variables(work.workdir, work.tools)
    kept = {name: value for name, value in work.environ.items() if name in _PLAIN or name in variables}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **kept, "TERM": "dumb", **of_git, **own}


def carried(file: Path, keys: Sequence[str]) -> dict[str, object]:
    """Return some values of a JSON file of the person's; comments in it do no harm."""
    try:
        whole = json_value(read(file), (), file=file)
    except HarkenError:
        return {}
    return {key: whole[key] for key in keys if key in whole} if isinstance(whole, dict) else {}


def dotenv_values(files: Iterable[Path], names: Collection[str]) -> dict[str, str]:
    """Return some variables from the first `.env` file that exists; only names that are asked for are taken."""
    found = next((data for file in files if (data := read(file)) is not None), b"")
    return {name: value for name, value in _assignments(found) if name in names}


def _assignments(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.decode(errors="replace").splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            yield name.strip(), value.strip().strip("\"'")


def plain(name: str) -> str:
    """Return a name as every host writes it in the names of tools."""
    return _NOT_PLAIN.sub("_", name)


def servers_file(servers: Mapping[str, ToolServer], more: Mapping[str, Mapping[str, object]]) -> str:
    """Return the file that tells a host its MCP servers, as most hosts read it; `more` is added to each by name."""
    entries = {plain(name): {**_entry(server), **more.get(name, {})} for name, server in servers.items()}
    return json.dumps({"mcpServers": entries})


def _entry(server: ToolServer) -> dict[str, object]:
    if server.command:
        program, *arguments = server.command
        return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}
    return {"type": "sse" if server.is_sse else "http", "url": server.url, "headers": dict(server.headers)}


def unfit(title: str, tools: Sequence[Tool], own: Collection[str]) -> str:
    """Return why a host cannot be given some tools by name; empty when it can."""
    for tool in tools:
        if tool.ability is Ability.OWN and tool.name not in own:
            close = get_close_matches(tool.name, [*own, *Ability], 1, cutoff=0.4)
            guess = f"did you mean {close[0]}" if close else f"it has {', '.join(own)}"
            return f"{title} has no tool {tool.name[:60]!r} that a run can be given: {guess}?"
    names = {tool.server for tool in tools if tool.server}
    called = {plain(name) for name in names}
    if len(called) < len(names) or any(other.startswith(f"{name}__") for name in called for other in called):
        return f"{title} cannot tell the servers {', '.join(sorted(names))} apart: rename one of them."
    return ""


def unsayable(title: str, tools: Sequence[Tool], *, words: re.Pattern[str] = _WORD, any_command: str = "") -> str:
    """Return why a host cannot be held to the beginnings of commands that some tools name; empty when it can.

    `words` are those that mean nothing but themselves to it, `any_command` is what it calls its tool for those.
    """
    for tool in tools:
        if tool.ability is Ability.SHELL_PREFIX and not (tool.prefix and all(map(words.fullmatch, tool.prefix))):
            return f"{title} cannot be held to {tool.text[:60]!r}: name plain words, such as `shell:git log`."
        if tool.ability is Ability.OWN and tool.name == any_command:
            return f"{any_command} is any command: write `shell`, or name the commands as in shell:git log."
    return ""


def without_keys(server: ToolServer, names: Collection[str]) -> dict[str, str]:
    """Return the variables of a server that its host would hand the keys of the model: they are empty for it."""
    return {
        **{name: "" for name in sorted(names) if _KEY.search(name) and name not in VARIABLES},
        **server.env,
    }


def guard_command(tools: Sequence[Tool]) -> str:
    """Return the command that a host asks before it runs another; empty when any may run, or none."""
    beginnings = [tool.prefix for tool in tools if tool.ability is Ability.SHELL_PREFIX]
    if not beginnings or any(tool.ability is Ability.SHELL for tool in tools):
        return ""
    return started_by_path(shell_guard.__file__, json.dumps(beginnings))


def edit_guard_command(tools: Sequence[Tool], *, is_nested: bool = False) -> str:
    """Return the command that a host asks before it changes a file; `is_nested` is how the host wants its answer."""
    shape = ("nested",) if is_nested else ()
    return started_by_path(edit_guard.__file__, json.dumps(folded(held_parts(tools))), *shape)


def started_by_path(file: str, *arguments: str) -> str:
    """Return the command that starts a guard; one that could not be asked has said no."""
    return shlex.join([sys.executable, "-I", "-S", file, *arguments]) + " || exit 2"


def entry(line: bytes) -> Mapping[str, object]:
    """Return the object on a line of JSON; empty for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def table(value: object) -> Mapping[str, object]:
    """Return an object's members; none for anything else."""
    return value if isinstance(value, dict) else {}


def row(value: object) -> Sequence[object]:
    """Return an array's items; none for anything else."""
    return value if isinstance(value, list) else ()


def word(value: object) -> str:
    """Return a string; empty for anything else."""
    return value if isinstance(value, str) else ""


def brief(value: object) -> str:
    """Return the arguments of a tool on one line, cut."""
    return json.dumps(value, ensure_ascii=False)[:MAX_TEXT]


def target(arguments: object) -> str:
    """Return what a call is about, from its arguments: the command or the path, else all of them."""
    if isinstance(arguments, str):
        return arguments[:MAX_TARGET]
    about = table(arguments)
    found = next((word(about.get(name)) for name in _ABOUT if word(about.get(name))), "")
    return (found or (brief(arguments) if arguments else ""))[:MAX_TARGET]


def first_line(stderr: str) -> str:
    """Return what a program complained of first, where what follows is how to go on."""
    # A bracket that closes an object says nothing.
    return next((line.strip()[:MAX_TEXT] for line in stderr.splitlines() if any(map(str.isalnum, line))), "")


def last_line(stderr: str) -> str:
    """Return what a program complained of last, where it warns of much before it fails."""
    return first_line("\n".join(reversed(stderr.splitlines())))


def git_variables(workdir: Path, tools: Sequence[Tool]) -> Mapping[str, str]:
    """Return what the environment of a run says to git.

    Raises `UserError` where it may run git, and the settings of the folder could make git start a program.
    """
    if not runs_git(tools):
        return NOWHERE
    if found := next(risky_settings(workdir), None):
        file, name = found
        hint = f"Remove `{name}` from that file, or run the rule in another folder or without git."
        raise UserError(f"Git could run programs that the settings of the folder name: {name} in {file}.", hint)
    return VARIABLES


@cache
def held_paths() -> HeldPaths:
    """Return the parts of paths that runs do not change, of every host."""
    settings = [path for host in hosts().values() for path in host.settings_paths]
    return HeldPaths().beside(settings, [path for host in hosts().values() for path in host.instruction_paths])


def held_parts(tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the parts of paths that a run with some tools does not change, in any folder."""
    return held_paths().parts(tools)
