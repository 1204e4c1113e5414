"""A program that Copilot CLI and Codex ask before they change files, in a run that may change files.

These hosts keep edits in the folder, but take `.git`, the settings of agents and editors, and instructions there for
files like any other: what is written into them is executed or obeyed later, by other programs and as the person. This
refuses those. Standard library only: it is started by path, with the parts of paths that it refuses as JSON, once for
every change. What it does not understand it refuses.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

# Hosts take a line for a heading also when there are blanks before it.
_PATCHED: Final = re.compile(r"^\s*\*\*\*\s*(?:Add File|Update File|Delete File|Move to)\s*:(.*)$", re.MULTILINE)
_REASON: Final = "A run does not change git's own files, settings of agents and editors, or instructions for agents"
_MAX_PATH: Final = 200
_NESTED: Final = "nested"


def allows(path: str, folder: Path, held: Sequence[str]) -> bool:
    """Whether a path, with its links followed, leads to none of what a run must not change."""
    whole = (folder / path.strip()).resolve()
    inner = (whole.relative_to(folder) if whole.is_relative_to(folder) else whole).as_posix()
    return not any(f"/{part}/" in f"/{inner}/".casefold() for part in held)


def main(given: str, asked: str, shape: str = "") -> str:
    """Return what to tell the host: nothing when the file may be changed."""
    try:
        question = json.loads(asked)
        folder = Path(question["cwd"]).resolve()
        paths = list(_paths(question))
        held = json.loads(given)
        refused = [path for path in paths if not allows(path, folder, held)]
        if paths and not refused:
            return ""
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        refused = []
    what = "".join(f": {path.strip()[:_MAX_PATH]!r}" for path in refused[:1])
    refusal = {"permissionDecision": "deny", "permissionDecisionReason": _REASON + what}
    nested = {"hookSpecificOutput": {"hookEventName": "PreToolUse", **refusal}}
    return json.dumps(nested if shape == _NESTED else refusal)


def _paths(question: Mapping[str, Any]) -> Iterator[str]:
    arguments = question["tool_input"] if "tool_input" in question else question["toolArgs"]
    if isinstance(arguments, str) and arguments.lstrip().startswith("{"):
        arguments = json.loads(arguments)
    if isinstance(arguments, str):
        yield from _PATCHED.findall(arguments)
    elif "path" in arguments:
        yield str(arguments["path"])
    else:
        yield from _PATCHED.findall(str(arguments["command"] if "command" in arguments else arguments["input"]))


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], sys.stdin.read(), *sys.argv[2:3]))
