"""Which files of its folder a run does not change, with any tools. Pure: names in, answers out.

Two kinds. What decides about other sessions and agents, or is started by git and editors: no run changes that. What
agents take for instructions, and what other tools start by themselves in the folder: a rule can let that go, with
`edit_instructions`. Each is held in every folder, in any spelling that some disk takes for the same. What belongs to a
host that can be run is declared by that host, see `hosts/run_environment.py`. Above are the sandboxes, which tell their
hosts, and `snapshot`, which looks whether it was so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from harken.runs.tools import Ability, Tool

SETTINGS: Final = (
    ".agents",
    ".aider.conf.yml",
    ".amazonq",
    ".continue",
    ".cursor",
    ".git",
    ".hg",
    ".idea",
    ".jj",
    ".kiro",
    ".roo",
    ".vscode",
    ".windsurf",
    ".zed",
)
"""Parts of paths that no run without a shell changes: repositories, and the settings of editors and other agents."""

INSTRUCTIONS: Final = (
    ".clinerules",
    ".cursorrules",
    ".devcontainer",
    ".devcontainer.json",
    ".env",
    ".env.local",
    ".envrc",
    ".githooks",
    ".goosehints",
    ".husky",
    ".junie",
    ".lefthook",
    ".lefthook.yml",
    ".mise.toml",
    ".pre-commit-config.yaml",
    ".roorules",
    ".rules",
    ".windsurfrules",
    "AGENT.md",
    "AGENTS.md",
    "WARP.md",
    "lefthook.yml",
    "mise.toml",
)
"""Parts of paths that a run changes only with `edit_instructions`: what agents read, and what starts by itself."""

GIT: Final = ".git"
GIT_SETTINGS: Final = frozenset({"config", "config.worktree"})
REPOSITORIES: Final = frozenset({".git", ".hg", ".jj"})
# What makes a folder a repository of git without being called `.git`, and what can start programs there or lead away.
BARE_SIGNS: Final = frozenset({"head", "objects", "refs"})
BARE_LIVE: Final = frozenset({"commondir", "config", "config.worktree", "gitdir", "hooks"})
HEAD: Final = "head"
_ELSEWHERE: Final = "commondir"
# What some disks leave out of a name: there `.g` and `it` with such a character between them are `.git`.
_UNSEEN: Final = re.compile("[\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


@dataclass(frozen=True, slots=True)
class HeldPaths:
    """Parts of paths that runs do not change, in any folder."""

    settings: tuple[str, ...] = SETTINGS
    instructions: tuple[str, ...] = INSTRUCTIONS

    def beside(self, settings: Collection[str], instructions: Collection[str]) -> HeldPaths:
        """Return these and more, in the order of the alphabet."""
        return HeldPaths(tuple(sorted({*self.settings, *settings})), tuple(sorted({*self.instructions, *instructions})))

    def parts(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """Return what a run with some tools does not change."""
        has_instructions = any(tool.ability is Ability.EDIT_INSTRUCTIONS for tool in tools)
        return self.settings if has_instructions else (*self.settings, *self.instructions)


def folded(parts: Sequence[str]) -> tuple[str, ...]:
    """Return parts of paths in the one spelling that programs compare in."""
    return tuple(map(fold, parts))


def fold(name: str) -> str:
    """Return a name so that all that some disk takes for the same are the same."""
    return name.lower() if name.isascii() else _UNSEEN.sub("", name).casefold()


def is_held(path: str, parts: Sequence[str]) -> bool:
    """Whether a path in the folder is one of some parts, or lies in one."""
    inner = f"/{'/'.join(map(fold, path.split('/')))}/"
    return any(f"/{part}/" in inner for part in folded(parts))


def is_repository(names: Collection[str]) -> bool:
    """Whether git would take a folder with such names, folded, for a repository of its own."""
    return HEAD in names and (_ELSEWHERE in names or ("objects" in names and "refs" in names))


def is_undone(tools: Sequence[Tool]) -> bool:
    """Whether what is held is put back after a run: not where the person has allowed every command."""
    return all(tool.ability is not Ability.SHELL for tool in tools)
