"""What Qwen Code prints when it runs headless: one event in JSON on each line. Pure.

Each message of the agent is one model step. That a tool was denied is told by its result as it happens; what the last
event says of that on its own is told then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harken.hosts.run_environment import MOST_TEXT, brief, entry, last_line, row, table, target, word
from harken.runs.sandbox import OutputEvent, OutputKind

_DENIED: Final = re.compile(
    r"requires permission to use|denied by permission rules|is not listed in the active core tools|"
    r'^Tool "[\s\S]+" (?:not found|is a built-in tool that is disabled)|bridge refused'
)
_TURNS_EXIT: Final = 53
_MOST_SAID: Final = 4_000_000  # `runs.reading` keeps less, and says so
_MOST_CALLS: Final = 1_000


class QwenOutput:
    """The output of one run."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}  # by id: the name, and what it is about
        self._denied: set[str] = set()
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        told = tuple(self._read(entry(line)))
        self._has_failed = self._has_failed or any(each.kind is OutputKind.ERROR for each in told)
        return told

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        if exit_code == 0 or self._has_failed:
            return ()
        if exit_code == _TURNS_EXIT:
            return (OutputEvent(OutputKind.ERROR, "It was ended: it took all the turns that it has."),)
        return (OutputEvent(OutputKind.ERROR, last_line(stderr) or f"Qwen Code ended with {exit_code}."),)

    def _read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        parts = [table(part) for part in row(table(event.get("message")).get("content"))]
        match event.get("type"):
            case "assistant":
                for part in parts:
                    yield from self._said(part)
                yield OutputEvent(OutputKind.TURN)
            case "user":
                for part in parts:
                    yield from self._result(part)
            case "result":
                yield from self._end(event)
            case _:
                pass

    def _said(self, part: Mapping[str, object]) -> Iterator[OutputEvent]:
        if part.get("type") == "text" and word(part.get("text")).strip():
            yield OutputEvent(OutputKind.TEXT, word(part.get("text"))[:_MOST_SAID])
        elif part.get("type") == "tool_use":
            name = word(part.get("name"))[:MOST_TEXT]
            if len(self._calls) < _MOST_CALLS:
                self._calls[word(part.get("id"))[:MOST_TEXT]] = (name, target(part.get("input")))
            yield OutputEvent(OutputKind.TOOL, brief(part.get("input")), name)

    def _result(self, part: Mapping[str, object]) -> Iterator[OutputEvent]:
        call = word(part.get("tool_use_id"))[:MOST_TEXT]
        text = word(part.get("content"))
        if part.get("is_error") is True and _DENIED.search(text) and len(self._denied) < _MOST_CALLS:
            self._denied.add(call)
            name, about = self._calls.get(call, ("", ""))
            yield OutputEvent(OutputKind.DENIED, text[:MOST_TEXT], name, about)

    def _end(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        for denial in map(table, row(event.get("permission_denials"))):
            if word(denial.get("tool_use_id")) not in self._denied:
                name = word(denial.get("tool_name"))[:MOST_TEXT]
                yield OutputEvent(OutputKind.DENIED, "", name, target(denial.get("tool_input")))
        if event.get("is_error") is True:
            yield OutputEvent(
                OutputKind.ERROR, word(table(event.get("error")).get("message"))[:MOST_TEXT] or "Qwen Code failed."
            )
        else:
            yield OutputEvent(OutputKind.ANSWER, word(event.get("result"))[:_MOST_SAID])
