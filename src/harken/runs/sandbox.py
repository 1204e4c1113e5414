"""What a host must be able to do to run an agent headless, fenced to some tools. Each host package implements it.

A sandbox only says how: which program, arguments, environment and files. Starting, watching and ending it is
`runner`'s business. What a host prints is read by the sandbox's output reader, which is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from harken.runs.tools import Tool


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
