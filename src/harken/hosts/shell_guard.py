"""A program that a host asks before it runs a command, in a run that may run some commands only.

The hosts' own rules let every command through that they take to be reading. This refuses all that does not begin with
the words that the run's rule names, and all that could be more than one command. Standard library only: it is started
by path, with the beginnings as JSON, once for every command. The host's rules hold besides: one no is enough. It speaks
to Claude Code, which says which event it asks about, and to Copilot CLI, which does not.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

# What joins, nests, redirects or replaces, with names of files too: one could be an option. Stricter than a shell:
# inside quotes they would do no harm.
_JOINERS: Final = frozenset("\n\r;&|<>`$(){}\\#*?[]")
# Options by which git, asked to read, writes a file, starts a program, or reads what is not in the repository.
_OPTIONS_OF_GIT: Final = re.compile(
    r"--(?:ou|ext-|textc|exec|open|upload-p|receive-p|no-index|contents|config|git-dir|work-tree|help)|-O"
)
_DENY: Final = "deny"
_REASON: Final = "This run may only run commands that begin with the words that its rule names."


def allows(command: str, beginnings: Sequence[Sequence[str]]) -> bool:
    """Whether a command is one command, and begins with the words of one of the beginnings."""
    if not _JOINERS.isdisjoint(command):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    if words and _is_git(words[0]) and any(map(_OPTIONS_OF_GIT.match, words)):
        return False
    return any(beginning and words[: len(beginning)] == list(beginning) for beginning in beginnings)


def _is_git(program: str) -> bool:
    return program.rpartition("/")[2] == "git"


def main(given: str, asked: str) -> str:
    """Return what to tell the host: nothing when the command may run."""
    event = ""
    try:
        question = json.loads(asked)
        event = question.get("hook_event_name", "")
        command = _command(question)
        is_allowed = isinstance(command, str) and allows(command, json.loads(given))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        is_allowed = False
    if is_allowed:
        return ""
    told = {"permissionDecision": _DENY, "permissionDecisionReason": _REASON}
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **told}} if event else told)


def _command(question: Mapping[str, Any]) -> object:
    if "tool_input" in question:
        return question["tool_input"]["command"]
    arguments = question["toolArgs"]
    return (json.loads(arguments) if isinstance(arguments, str) else arguments)["command"]


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], sys.stdin.read()))
