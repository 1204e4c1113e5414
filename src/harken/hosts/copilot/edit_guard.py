"""A program that Copilot CLI asks before it changes a file, in a run that may change files.

The host keeps edits in the folder, but takes `.git` and the settings of agents and editors there for files like any
other: what is written into them is executed later, by other programs and as the person. This refuses those. Standard
library only: it is started by path, once for every change.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

_KEPT: Final = frozenset(
    (".git", ".claude", ".codex", ".copilot", ".gemini", ".idea", ".mcp.json", ".opencode", ".qwen", ".vscode")
)
_KEPT_BELOW: Final = (".github", frozenset(("copilot", "extensions", "hooks", "mcp.json")))
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to):(.*)$", re.MULTILINE)
_REASON: Final = "A run does not change .git, or the settings of agents and editors."


def allows(path: str, folder: Path) -> bool:
    """Whether a path, with its links followed, leads to none of what a run must not change."""
    whole = (folder / path.strip()).resolve()
    parts = [part.casefold() for part in (whole.relative_to(folder) if whole.is_relative_to(folder) else whole).parts]
    above, below = _KEPT_BELOW
    is_below = any(first == above and second in below for first, second in pairwise(parts))
    return not is_below and _KEPT.isdisjoint(parts)


def main(asked: str) -> str:
    """Return what to tell the host: nothing when the file may be changed."""
    try:
        question = json.loads(asked)
        folder = Path(question["cwd"]).resolve()
        paths = list(_paths(question))
        is_allowed = bool(paths) and all(allows(path, folder) for path in paths)
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        is_allowed = False
    return "" if is_allowed else json.dumps({"permissionDecision": "deny", "permissionDecisionReason": _REASON})


def _paths(question: Mapping[str, Any]) -> Iterator[str]:
    arguments = question["toolArgs"]
    if isinstance(arguments, str) and arguments.lstrip().startswith("{"):
        arguments = json.loads(arguments)
    if isinstance(arguments, dict) and "path" in arguments:
        yield str(arguments["path"])
    else:
        yield from _PATCHED.findall(arguments if isinstance(arguments, str) else str(arguments["input"]))


if __name__ == "__main__":
    sys.stdout.write(main(sys.stdin.read()))
