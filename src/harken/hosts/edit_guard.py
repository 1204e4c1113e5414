"""A program that Copilot CLI asks before it changes a file, in a run that may change files.

The host keeps edits in the folder, but takes `.git` and the settings of agents and editors there for files like any
other: what is written into them is executed later, by other programs and as the person. This refuses those. Standard
library only: it is started by path, with the parts of paths that it refuses as JSON, once for every change.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_PATCHED: Final = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to):(.*)$", re.MULTILINE)
_REASON: Final = "A run does not change .git, or the settings of agents and editors."


def allows(path: str, folder: Path, held: Sequence[str]) -> bool:
    """Whether a path, with its links followed, leads to none of what a run must not change."""
    whole = (folder / path.strip()).resolve()
    inner = (whole.relative_to(folder) if whole.is_relative_to(folder) else whole).as_posix()
    return not any(f"/{part}/" in f"/{inner}/".casefold() for part in held)


def main(given: str, asked: str) -> str:
    """Return what to tell the host: nothing when the file may be changed."""
    try:
        question = json.loads(asked)
        folder = Path(question["cwd"]).resolve()
        paths = list(_paths(question))
        held = json.loads(given)
        is_allowed = bool(paths) and all(allows(path, folder, held) for path in paths)
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
    sys.stdout.write(main(sys.argv[1], sys.stdin.read()))
