"""What Copilot CLI prints when it runs headless, line by line. Pure; anything unknown tells nothing.

Every event has a type and its data. A tool that was denied, and one that is not there, both end without success; only
the name in the call says which it was. The answer is the last text that asked for no tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harken.hosts.run_environment import brief, entry, first_line, row, table, target, word
from harken.runs.sandbox import OutputEvent, OutputKind

_MOST_CALLS: Final = 1_000  # remembered by id; of a longer run the oldest are forgotten
_DENIED: Final = "denied"
_TOOL: Final = "Tool '"
_GONE: Final = "does not exist."
_BLOCKED: Final = "Command blocked:"


class CopilotOutput:
    """Reads the output of one run."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}  # by id: the name, and what it is about
        self._answer = ""
        self._error = ""

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        event = entry(line)
        data = table(event.get("data"))
        match event.get("type"):
            case "assistant.message":
                return list(self._said(data))
            case "tool.execution_complete":
                return list(self._result(data))
            case "assistant.turn_end":
                return (OutputEvent(OutputKind.TURN),)
            case "session.error":
                self._error = word(data.get("message"))
                return ()
            case _:
                return ()

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return its last word, or why it failed."""
        if exit_code == 0:
            return [OutputEvent(OutputKind.ANSWER, self._answer)]
        said = f"Copilot CLI ended with {exit_code} and said nothing."
        return [OutputEvent(OutputKind.ERROR, self._error or first_line(stderr) or said)]

    def _said(self, data: Mapping[str, object]) -> Iterator[OutputEvent]:
        text, calls = word(data.get("content")), row(data.get("toolRequests"))
        if text:
            yield OutputEvent(OutputKind.TEXT, text)
        if text and not calls:
            self._answer = text
        for call in map(table, calls):
            name = word(call.get("name"))
            self._calls[word(call.get("toolCallId"))] = (name, target(call.get("arguments")))
            if len(self._calls) > _MOST_CALLS:
                del self._calls[next(iter(self._calls))]
            yield OutputEvent(OutputKind.TOOL, brief(call.get("arguments")), name)

    def _result(self, data: Mapping[str, object]) -> Iterator[OutputEvent]:
        error = table(data.get("error"))
        message = word(error.get("message"))
        is_gone = message.startswith(_TOOL) and _GONE in message
        is_denied = error.get("code") == _DENIED or is_gone or message.startswith(_BLOCKED)
        if data.get("success") is False and is_denied:
            name, about = self._calls.get(word(data.get("toolCallId")), ("", ""))
            yield OutputEvent(OutputKind.DENIED, tool=name, target=about)
