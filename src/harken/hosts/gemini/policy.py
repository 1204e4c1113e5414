"""The rules that fence Gemini CLI to some tools, in the words of its policy files. Pure.

A tool that no rule allows is denied. Some tools can be led to where no run may be, or to a command, by their arguments:
for these, only arguments are allowed of which that is sure. Above it is the sandbox, which puts the text into the home
of a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from harken.hosts.held import held_parts
from harken.runs.held import folded
from harken.runs.tools import Ability, Tool

SHELL: Final = "run_shell_command"
_SEARCH: Final = "grep_search"
_GLOB: Final = "glob"
_TOOLS: Final[Mapping[Ability, tuple[str, ...]]] = MappingProxyType(
    {
        Ability.READ_FILE: ("read_file",),
        Ability.LIST_FILES: ("list_directory", _GLOB),
        Ability.SEARCH_FILES: (_SEARCH,),
        Ability.EDIT_FILE: ("replace", "write_file"),
        Ability.EDIT_INSTRUCTIONS: (),
        Ability.SHELL: (SHELL,),
        Ability.SHELL_PREFIX: (SHELL,),
    }
)
EDITING: Final = frozenset(_TOOLS[Ability.EDIT_FILE])
OWN: Final = (
    "list_directory",
    _GLOB,
    _SEARCH,
    "replace",
    "write_file",
    "web_fetch",
    "google_web_search",
    "write_todos",
)
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_./:=@,+%^~-]+")

# Policies see arguments as JSON with a zero byte on both sides of each pair. No pattern may nest what repeats, or
# Gemini leaves the whole rule out. Of a command, only characters that mean nothing to a shell are let through.
_PLAIN_ARGUMENTS: Final = r"[ A-Za-z0-9_./:=@,+%^~'-]{0,2000}"
# By these git, asked to read, writes a file, starts a program, or reads what is not in the repository.
_OF_GIT: Final = (
    *("--ou", "--ext-", "--textc", "--exec", "--open", "--upload-p", "--receive-p", "--no-index", "--contents"),
    *("--config", "--git-dir", "--work-tree", "--help", "-O"),
)
# Gemini hands a pattern to `git grep` as it is: one that begins with a dash would be an option, and can be a command.
# What git and grep do not understand is searched by Gemini itself, which follows links out of the folder.
_PLAIN_PATTERN: Final = r"(?!-)[ \w\u00a0-\uffff./:=@,#%&;!~<>'|^$*+-]{1,400}"
# The names that `glob` finds are not held to the folder: neither whole paths, nor steps upwards, however spelled.
_PLAIN_GLOB: Final = r"(?![/~:!^-])[^\x00\\()\[\]]{1,400}"
_UPWARDS: Final = r"(?:\.\.|\{[.,/}]|,[.,/}])"
_NOT_CHANGED: Final = (
    "A run does not change .git, the settings of agents and editors, or what they take for instructions."
)
_LIMITED: Final[Mapping[str, str]] = {
    SHELL: "Only plain commands that were named are allowed, without anything that means something to a shell.",
    _SEARCH: "Only plain patterns are allowed: no brackets, no backslash, no dash in front, files in this folder.",
    **dict.fromkeys(EDITING, _NOT_CHANGED),
    _GLOB: "Only patterns for files in this folder are allowed: no path from the root, no step upwards.",
}
MOST_PATTERN: Final = 2_048  # characters, beyond which Gemini leaves a rule out
_MOST_JOINED: Final = 1_500
_DENY_ALL: Final = 980
_DENY_REST: Final = 985
_ALLOW: Final = 990
_DENY: Final = 999


def is_plain_command(words: Sequence[str]) -> bool:
    """Whether the words of a command mean nothing to a shell but themselves."""
    return bool(words) and all(_PLAIN_WORD.fullmatch(word) for word in words)


def alias(server: str) -> str:
    """Return the name of a server in the run: policies take what follows the first underscore for the tool."""
    return re.sub(r"[^A-Za-z0-9-]", "-", server)


def built_in(tools: Sequence[Tool]) -> list[str]:
    """Return the names of Gemini's own tools that some tools need."""
    return sorted({name for tool in tools if not tool.server for name in _TOOLS.get(tool.ability, (tool.name,))})


def policy(tools: Sequence[Tool]) -> str:
    """Return a policy file that allows these tools and denies all others."""
    rules = [_rule("*", "deny", _DENY_ALL)]
    for name in built_in(tools):
        if name not in _LIMITED:
            rules.append(_rule(name, "allow", _ALLOW))
        else:
            rules.append(_rule(name, "deny", _DENY_REST, says=_LIMITED[name]))
            rules.extend(_limits(name, tools))
    if not any(tool.ability is Ability.SHELL for tool in tools):
        # A folder inside may be a repository that came with it, and its settings may name programs.
        rules.append(_rule(SHELL, "deny", _DENY, _begins("dir_path", r'(?!"\.?"\x00)')))
    for tool in tools:
        if tool.ability is Ability.SHELL:
            rules.append(_rule(SHELL, "allow", _ALLOW, _begins("command", '"'), is_redirected=True))
        elif tool.ability is Ability.SHELL_PREFIX:
            rules.append(_rule(SHELL, "allow", _ALLOW, _is("command", _command(tool.prefix))))
        elif tool.server:
            rules.append(_rule(tool.name, "allow", _ALLOW, server=alias(tool.server)))
    return "\n".join(rules)


def _command(prefix: Sequence[str]) -> str:
    words = re.escape(" ".join(prefix)).replace(r"\ ", " ")
    if prefix[0].rpartition("/")[2] != "git":
        return rf'{words}(?=[ "]){_PLAIN_ARGUMENTS}'
    # Quotes may stand anywhere in a word.
    options = "|".join("'*".join(map(re.escape, option)) for option in _OF_GIT)
    return rf"""{words}(?=[ "])(?![^"]* '*(?:{options})){_PLAIN_ARGUMENTS}"""


def _limits(name: str, tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the rules for a tool whose arguments can lead out of the folder."""
    match name:
        case "glob":
            yield _rule(name, "allow", _ALLOW, _is("pattern", _PLAIN_GLOB))
            yield _rule(name, "deny", _DENY, _begins("pattern", rf"[^\x00]*{_UPWARDS}"))
        case "grep_search":
            yield _rule(name, "allow", _ALLOW, _is("pattern", _PLAIN_PATTERN))
            yield _rule(name, "deny", _DENY, _begins("include_pattern", rf'(?!"{_PLAIN_GLOB}"\x00)'))
            yield _rule(name, "deny", _DENY, _begins("include_pattern", rf"[^\x00]*{_UPWARDS}"))
        case "replace" | "write_file":
            yield _rule(name, "allow", _ALLOW, _begins("file_path", '"'))
            for held in _joined([_either_case(part) for part in folded(held_parts(tools))]):
                pattern = _begins("file_path", rf'[^\x00]*["/](?:{held})[/"]')
                yield _rule(name, "deny", _DENY, pattern, says=_NOT_CHANGED)
        case _:
            # It would live on when the run has ended.
            yield _rule(name, "deny", _DENY, _begins("is_background", r"(?!false\x00)"))


def _joined(patterns: Sequence[str]) -> Iterator[str]:
    """Yield the patterns as few that fit any of them, none of which is too long."""
    joined = ""
    for each in patterns:
        if joined and len(joined) + len(each) > _MOST_JOINED:
            yield joined
            joined = ""
        joined = f"{joined}|{each}" if joined else each
    yield joined


def _either_case(text: str) -> str:
    return "".join(f"[{char}{char.upper()}]" if char.isalpha() else re.escape(char) for char in text)


def _is(argument: str, pattern: str) -> str:
    return _begins(argument, rf'"{pattern}"\x00')


def _begins(argument: str, pattern: str) -> str:
    return rf'\x00"{argument}":{pattern}'


def _rule(
    tool: str,
    decision: str,
    priority: int,
    pattern: str = "",
    *,
    server: str = "",
    says: str = "",
    is_redirected: bool = False,
) -> str:
    fields = {"toolName": tool, "decision": decision, "mcpName": server, "argsPattern": pattern, "denyMessage": says}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value]
    lines += ["allowRedirection = true"] if is_redirected else []
    return "\n".join(("[[rule]]", f"priority = {priority}", *lines, ""))
