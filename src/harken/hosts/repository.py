"""What a folder's repository could make git do in a run that may run git: start programs that its settings name.

A clone brings no settings along, an unpacked archive does. Nothing is executed here: settings are read as text, and in
doubt they name a program. What can be overruled is overruled by variables, for all programs of a run. It knows no
host; above it are the jails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harken.errors import UserError
from harken.runs.tools import Ability, Tool

_OVERRULED: Final = (
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),  # else a subfolder that looks like a repository is one, settings and all
)
VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(_OVERRULED)),
        **{f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in enumerate(_OVERRULED)},
        **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(_OVERRULED)},
    }
)
_GIT: Final = "git"
_FOLDER: Final = ".git"
# What git starts for commands that only read; filters of git's own large files are no danger.
_STARTS: Final = re.compile(
    rb"(?:^|\])[ \t]*(?:textconv|command|external|driver|program|(?:clean|smudge|process)[ \t]*=(?![ \t]*git[ -]lfs ))",
    re.IGNORECASE | re.MULTILINE,
)
_INCLUDES: Final = re.compile(rb"\[[ \t]*include", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(r"gitdir:[ ]*(.+)")


def check_repository(workdir: Path, tools: Sequence[Tool]) -> None:
    """Raise `UserError` where a run may run git, and the folder's settings name programs that git would run."""
    words = [tool.prefix[0] for tool in tools if tool.ability is Ability.SHELL_PREFIX and tool.prefix]
    if _GIT not in (Path(word).name for word in words):
        return
    for file in _settings(workdir):
        try:
            text = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            text = b"[include]"  # what cannot be read here may be read there
        if _STARTS.search(text) or _INCLUDES.search(text):
            hint = "Remove them from that file, or run the rule in another folder or without git."
            raise UserError(f"Git would run programs that the settings of the folder name: {file}.", hint)


def _settings(workdir: Path) -> Iterator[Path]:
    for folder in (workdir, *workdir.parents):
        for own in _places(folder / _FOLDER):
            yield from (own / "config", own / "config.worktree")
        if (folder / _FOLDER).exists():
            return


def _places(own: Path) -> Iterator[Path]:
    """Yield where a repository keeps its settings, also when another folder keeps them for it."""
    yield own
    if own.is_file():
        found = _ELSEWHERE.match(own.read_text(encoding="utf-8", errors="replace"))
        there = own.parent / (found[1].strip() if found else "")
        yield there
        shared = there / "commondir"
        if shared.is_file():
            yield there / shared.read_text(encoding="utf-8", errors="replace").strip()
