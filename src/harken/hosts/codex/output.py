"""What `codex exec --json` prints: one event in JSON on each line, and on standard error what it denied. Pure.

Codex tells of calls that it makes, not of those that it denies: these are only complained of on standard error. So a
line of that may be fed as well, as it comes; what was not fed is told at the end. Where a model step ends is not said
either: calls that run together are one, each denied call is one, and the last words are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from harken.hosts.cell import MOST_TEXT, brief, entry, last_line, row, table, word
from harken.runs.jail import Happening, Told

SHELL: Final = "exec_command"
EDIT: Final = "apply_patch"

_COMPLAINT: Final = re.compile(r"ERROR codex_core::tools::router: error=(.*)")
# What each complaint means; the tool is the one named in it, or the one it is about.
_DENIALS: Final[Mapping[re.Pattern[str], str]] = MappingProxyType(
    {
        re.compile(r"unsupported call: (?P<tool>\S+)"): "",
        re.compile(r"patch rejected: "): EDIT,
        re.compile(r"(?P<tool>\w+) is unavailable in "): "",
        re.compile(r"exec_command failed .*(?:[Rr]ejected|denied)"): SHELL,
        re.compile(r"MCP tool call (?:requires approval|blocked)"): "an MCP tool",
    }
)
_NEEDS_APPROVAL: Final = ("requires approval", "user cancelled", "blocked by")
_MOST_SAID: Final = 256_000
_MOST_OPEN: Final = 1_000
_MOST_NAME: Final = 200


class Output:
    """The output of one run."""

    def __init__(self) -> None:
        self._said = ""
        self._trouble = ""
        self._open: set[str] = set()
        self._complaints = 0
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[Told]:
        """Return what a line of standard output tells, or one of standard error."""
        if not line.lstrip().startswith(b"{"):
            told = tuple(_denied(line[: 4 * MOST_TEXT].decode(errors="replace")))
            self._complaints += bool(told)
            return told
        return tuple(self._read(entry(line)))

    def finish(self, stderr: str, exit_code: int) -> Sequence[Told]:
        """Return what is told by the end."""
        complaints = [some for line in stderr.splitlines() if (some := tuple(_denied(line)))]
        told = [each for some in complaints[self._complaints :] for each in some]
        if exit_code and not self._has_failed:
            reason = self._trouble or last_line(stderr) or f"Codex ended with {exit_code}."
            told.append(Told(Happening.ERROR, reason))
        return told

    def _read(self, event: Mapping[str, object]) -> Iterator[Told]:
        item = table(event.get("item"))
        match event.get("type"):
            case "item.started":
                yield from self._started(item)
            case "item.completed":
                yield from self._completed(item)
            case "turn.completed":
                yield Told(Happening.TURN)
                yield Told(Happening.ANSWER, self._said)
            case "turn.failed":
                self._has_failed = True
                text = word(table(event.get("error")).get("message")) or self._trouble
                yield Told(Happening.ERROR, text[:MOST_TEXT])
            case "error":
                # Often only that it tries once more: it counts if nothing better comes.
                self._trouble = word(event.get("message"))[:MOST_TEXT]
            case _:
                pass

    def _started(self, item: Mapping[str, object]) -> Iterator[Told]:
        name = _name(item)
        if not name:
            return
        if not self._open:
            yield Told(Happening.TURN)
        if len(self._open) < _MOST_OPEN:
            self._open.add(word(item.get("id"))[:_MOST_NAME])
        yield Told(Happening.TOOL, _arguments(item), name)

    def _completed(self, item: Mapping[str, object]) -> Iterator[Told]:
        self._open.discard(word(item.get("id"))[:_MOST_NAME])
        if item.get("type") == "agent_message":
            self._said = word(item.get("text"))[:_MOST_SAID]
            yield Told(Happening.TEXT, self._said)
        elif reason := _held(item):
            yield Told(Happening.DENIED, reason, _name(item))


def _denied(line: str) -> Iterator[Told]:
    complaint = _COMPLAINT.search(line[: 4 * MOST_TEXT])
    if complaint is None:
        return
    for pattern, usual in _DENIALS.items():
        if found := pattern.match(complaint[1]):
            tool = found.groupdict().get("tool") or usual
            yield Told(Happening.TURN)
            yield Told(Happening.DENIED, complaint[1][:MOST_TEXT], tool[:_MOST_NAME])
            return


def _name(item: Mapping[str, object]) -> str:
    match item.get("type"):
        case "command_execution":
            return SHELL
        case "file_change":
            return EDIT
        case "mcp_tool_call":
            return f"{word(item.get('server'))}/{word(item.get('tool'))}"[:_MOST_NAME]
        case "web_search":
            return "web_search"
        case "collab_tool_call":
            return word(item.get("tool"))[:_MOST_NAME]
        case _:
            return ""


def _arguments(item: Mapping[str, object]) -> str:
    match item.get("type"):
        case "command_execution":
            return word(item.get("command"))[:MOST_TEXT]
        case "file_change":
            return ", ".join(word(table(change).get("path")) for change in row(item.get("changes")))[:MOST_TEXT]
        case _:
            return brief(item.get("arguments"))


def _held(item: Mapping[str, object]) -> str:
    """Return why a call that was begun was not let through; empty when it was, whatever became of it."""
    status, kind = item.get("status"), item.get("type")
    if kind == "file_change" and status in {"failed", "declined"}:
        return "the change was not made"
    if kind == "command_execution" and status == "declined":
        return word(item.get("aggregated_output"))[:MOST_TEXT] or "the command was declined"
    text = word(table(item.get("error")).get("message"))
    if kind == "mcp_tool_call" and status == "failed" and any(part in text for part in _NEEDS_APPROVAL):
        return text[:MOST_TEXT]
    return ""
