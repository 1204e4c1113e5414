"""The tools that a rule may name, and what they mean on every host. Pure.

A few words mean the same everywhere; `server/tool` is a tool of an MCP server; anything else is a host's own name for
one of its tools, which only that host's sandbox can judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_OF_SERVER: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,63})/([\w.-]{1,128})")
_SHELL_PREFIX: Final = "shell:"
_RUN_ANYTHING: Final = frozenset(
    [
        "awk",
        "bash",
        "busybox",
        "dash",
        "doas",
        "env",
        "eval",
        "exec",
        "find",
        "fish",
        "git",
        "go",
        "ksh",
        "make",
        "nice",
        "node",
        "nohup",
        "npm",
        "npx",
        "perl",
        "php",
        "pip",
        "python",
        "python3",
        "ruby",
        "sed",
        "sh",
        "sudo",
        "su",
        "tcsh",
        "time",
        "timeout",
        "uv",
        "uvx",
        "watch",
        "xargs",
        "zsh",
    ]
)


class Ability(StrEnum):
    """What a portable word allows; files are those in the run's folder."""

    READ_FILE = "read_file"
    LIST_FILES = "list_files"
    SEARCH_FILES = "search_files"
    EDIT_FILE = "edit_file"  # change and make, but for what is held
    EDIT_INSTRUCTIONS = "edit_instructions"  # with it, also what agents read and other tools start by themselves
    SHELL = "shell"  # any command: no sandbox holds what a shell does but the system's own
    SHELL_PREFIX = "shell:"  # `shell:git log`: commands that begin with these words
    MCP = "mcp"
    OWN = "own"  # a host's own name


PORTABLE: Final = frozenset(Ability) - {Ability.SHELL_PREFIX, Ability.MCP, Ability.OWN}  # words that say it all


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that a rule names."""

    ability: Ability
    text: str  # as the rule says it
    server: str = ""
    name: str = ""  # of the server's tool, or the host's own
    prefix: tuple[str, ...] = ()  # of commands


def is_too_short(tool: Tool) -> bool:
    """Whether a beginning is a program that runs its next words: as much as any command."""
    return tool.ability is Ability.SHELL_PREFIX and len(tool.prefix) == 1 and tool.prefix[0] in _RUN_ANYTHING


def parse_tool(text: str) -> Tool:
    """Return what a rule's word for a tool means."""
    word = text.strip()
    if word in PORTABLE:
        return Tool(Ability(word), word)
    if word.startswith(_SHELL_PREFIX):
        return Tool(Ability.SHELL_PREFIX, word, prefix=tuple(word.removeprefix(_SHELL_PREFIX).split()))
    if found := _OF_SERVER.fullmatch(word):
        return Tool(Ability.MCP, word, server=found[1], name=found[2])
    return Tool(Ability.OWN, word, name=word)


def may_change(tools: Sequence[Tool]) -> bool:
    """Whether a run with some tools can change anything at all."""
    looking = (Ability.READ_FILE, Ability.LIST_FILES, Ability.SEARCH_FILES)
    return any(tool.ability not in looking for tool in tools)


def runs_git(tools: Sequence[Tool]) -> bool:
    """Whether a run may run git."""
    words = [tool.prefix[0] for tool in tools if tool.ability is Ability.SHELL_PREFIX and tool.prefix]
    return any(tool.ability is Ability.SHELL for tool in tools) or "git" in (word.rpartition("/")[2] for word in words)
