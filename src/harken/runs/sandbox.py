"""What a host must be able to do to run an agent headless, fenced to some tools, and which host does it for an order.

Each host package implements `Sandbox`. It only says how: which program, arguments, environment and files. Starting,
watching and ending it is `runner`'s business. What a host prints is read by the sandbox's output reader, which is pure.
`HostChooser` takes a host that is installed and can be fenced to the tools; what it refuses, it says why in one
sentence, because that is what people read beside the rule.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from harken.runs.tools import Ability, Tool, is_too_short, parse_tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """An MCP server that a run may use: a program, or an address."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_sse: bool = False  # the older transport


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """One run as a sandbox needs to know it."""

    prompt: str
    workdir: Path  # exists; its path has no links
    tools: tuple[Tool, ...]
    servers: Mapping[str, ToolServer]  # those that its tools name
    max_turns: int
    private: Path  # a folder of this run alone, 0700, gone afterwards
    program: str  # the host's program
    environ: Mapping[str, str]  # of the person: where their home, sign-in and model are found


class RunFileKind(StrEnum):
    """What may be put into a run's private folder."""

    FILE = "file"
    LINK = "link"  # to a file of the person's: a sign-in that is renewed there stays renewed
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class RunFile:
    """One thing in the private folder, made 0600 before the host is started."""

    path: str  # relative
    kind: RunFileKind
    content: str = ""  # of a file
    target: Path = field(default_factory=Path)  # of a link or copy; left out when there is no such file


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCommand:
    """How a host is started for one run. The environment is complete: nothing is added to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes = b""
    files: tuple[RunFile, ...] = ()
    leftover: tuple[str, ...] = ()  # built-in tools that this host cannot take away, named to the person
    is_turn_limited: bool = False  # the host itself ends after `max_turns`; else they are counted
    has_told_errors: bool = False  # its transcript is fed the lines of standard error too, as they come
    log_line: str = ""  # a regular expression: lines of standard error that only the transcript reads begin so
    keys: tuple[Path, ...] = ()  # files of the person in which the host itself looks for a sign-in

    @property
    def sign_ins(self) -> tuple[Path, ...]:
        """The files of the person's sign-in: if one changes, a run that failed for want of it may be tried again."""
        return (*self.keys, *(each.target for each in self.files if each.kind is not RunFileKind.FILE))


class OutputKind(StrEnum):
    """What a line of a host's output tells."""

    TEXT = "text"  # the agent says something
    TOOL = "tool"  # it calls a tool
    DENIED = "denied"  # a tool that it asked for was denied
    TURN = "turn"  # a model step ended
    ANSWER = "answer"  # its last word
    ERROR = "error"  # why it failed


@dataclass(frozen=True, slots=True)
class OutputEvent:
    """One thing that a host's output told."""

    kind: OutputKind
    text: str = ""  # of a denial: why, where the host says so
    tool: str = ""
    target: str = ""  # of a denial: what the tool was to work on


class OutputReader(Protocol):
    """Reads the output of one run, line by line. Never raises: a line it does not know tells nothing."""

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        ...

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end: why it failed, if it did."""
        ...


class Sandbox(Protocol):
    """How one host runs fenced."""

    @property
    def host(self) -> str:
        """Its name."""
        ...

    @property
    def program(self) -> str:
        """What its command is called."""
        ...

    @property
    def variables(self) -> Sequence[str]:
        """Environment variables that carry a sign-in or the choice of a model; no others are taken."""
        ...

    def refusal(self, tools: Sequence[Tool]) -> str:
        """Return why this host cannot be fenced to these tools, in one sentence; empty when it can."""
        ...

    def command(self, work: SandboxRequest) -> SandboxCommand:
        """Return how to start it. Reads the person's files, and writes none."""
        ...

    def transcript(self) -> OutputReader:
        """Return a new reader of its output."""
        ...


ServerOf = Callable[[str], ToolServer | None]
"""Returns the MCP server of a name, None when there is none that a run may use."""


@dataclass(frozen=True, slots=True)
class ChosenHost:
    """A host that can do it, and the path of its program; or why none can."""

    sandbox: Sandbox | None
    program: str = ""
    refusal: str = ""


class HostChooser:
    """Chooses among the sandboxes there are."""

    def __init__(
        self,
        sandboxes: Callable[[], Sequence[Sandbox]],
        server_of: ServerOf,
        environ: Mapping[str, str],
        preferred: str = "",
    ) -> None:
        self._sandboxes = sandboxes
        self._server_of = server_of
        self._environ = environ
        self._preferred = preferred

    def choose(self, agent: str, tools: Sequence[str]) -> ChosenHost:
        """Return the host for an order: the one it names, else the preferred one, else the first that can."""
        named = agent or self._preferred
        sandboxes = [sandbox for sandbox in self._sandboxes() if not named or sandbox.host == named]
        if not sandboxes:
            return ChosenHost(None, refusal=f"there is no way to fence {named}")
        wanted = [parse_tool(text) for text in tools]
        if missing := self._unknown_server(wanted):
            return ChosenHost(None, refusal=missing)
        if short := next((tool for tool in wanted if is_too_short(tool)), None):
            return ChosenHost(None, refusal=f"{short.text} allows any command: name more of it, or say shell")
        abilities = {tool.ability for tool in wanted}
        if Ability.EDIT_INSTRUCTIONS in abilities and Ability.EDIT_FILE not in abilities:
            return ChosenHost(None, refusal="edit_instructions edits nothing by itself: name edit_file too")
        refusals: list[str] = []
        missing_hosts: list[str] = []
        for sandbox in sandboxes:
            program = shutil.which(sandbox.program, path=self._environ.get("PATH", os.defpath))
            if program is None:
                missing_hosts.append(sandbox.host)
            elif refusal := sandbox.refusal(wanted):
                refusals.append(f"{sandbox.host}: {refusal}")
            else:
                return ChosenHost(sandbox, program)
        if missing_hosts:
            is_all = not refusals and not named
            refusals.append("no agent is installed here" if is_all else f"not installed: {', '.join(missing_hosts)}")
        return ChosenHost(None, refusal="; ".join(refusals))

    def servers(self, tools: Sequence[Tool]) -> dict[str, ToolServer]:
        """Return the servers that some tools are of."""
        names = {tool.server for tool in tools if tool.ability is Ability.MCP}
        found = {name: self._server_of(name) for name in sorted(names)}
        return {name: server for name, server in found.items() if server is not None}

    def _unknown_server(self, tools: Sequence[Tool]) -> str:
        for tool in tools:
            if tool.ability is Ability.MCP and self._server_of(tool.server) is None:
                return f"{tool.text}: there is no MCP server {tool.server!r} among the sources"
        return ""
