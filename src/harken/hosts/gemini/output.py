"""What Gemini CLI prints when it runs headless: one event in JSON on each line. Pure.

What the agent says comes in pieces, and is told when it stops to do something else. That a model step ended is not
said; it is known from the first result that follows calls of tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from harken.hosts.run_environment import brief, entry, last_line, table, target, word
from harken.runs.sandbox import OutputEvent, OutputKind

_DENIALS: Final = frozenset({"policy_violation", "tool_not_registered", "path_not_in_workspace"})
_OUTSIDE: Final = "Path not in workspace"
_EXITS: Final[Mapping[int, str]] = MappingProxyType({41: "Gemini CLI is not signed in."})
_ERRORS: Final[Mapping[str, str]] = MappingProxyType(
    {"FatalTurnLimitedError": "It was ended: it took all the turns that it has."}
)
_MOST_SAID: Final = 4_000_000  # `runs.reading` keeps less, and says so
_MOST_TEXT: Final = 4_000
_MOST_NAME: Final = 200
_MOST_CALLS: Final = 1_000


class GeminiOutput:
    """The output of one run."""

    def __init__(self) -> None:
        self._said = ""
        self._calls: dict[str, tuple[str, str]] = {}  # by id: the name, and what it is about
        self._is_calling = False
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        told = tuple(self._read(entry(line)))
        self._has_failed = self._has_failed or any(each.kind is OutputKind.ERROR for each in told)
        return told

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        if exit_code == 0 or self._has_failed:
            return tuple(self._flush())
        reason = _EXITS.get(exit_code) or last_line(stderr) or f"Gemini CLI ended with {exit_code}."
        return (*self._flush(), OutputEvent(OutputKind.ERROR, reason))

    def _read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        match event.get("type"):
            case "message" if event.get("role") == "assistant":
                self._said = (self._said + word(event.get("content")))[:_MOST_SAID]
            case "tool_use":
                yield from self._flush()
                yield self._use(event)
            case "tool_result":
                yield from self._result(event)
            case "error" if event.get("severity") == "error":
                yield OutputEvent(OutputKind.ERROR, word(event.get("message"))[:_MOST_TEXT])
            case "result":
                yield from self._end(event)
            case _:
                pass

    def _use(self, event: Mapping[str, object]) -> OutputEvent:
        name = word(event.get("tool_name"))[:_MOST_NAME]
        if len(self._calls) < _MOST_CALLS:
            self._calls[word(event.get("tool_id"))[:_MOST_NAME]] = (name, target(event.get("parameters")))
        self._is_calling = True
        return OutputEvent(OutputKind.TOOL, brief(event.get("parameters")), name)

    def _result(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        name, about = self._calls.pop(word(event.get("tool_id"))[:_MOST_NAME], ("", ""))
        if self._is_calling:
            self._is_calling = False
            yield OutputEvent(OutputKind.TURN)
        if error := table(event.get("error")):
            text = word(error.get("message"))[:_MOST_TEXT]
            if error.get("type") in _DENIALS or text.startswith(_OUTSIDE):
                yield OutputEvent(OutputKind.DENIED, text, name, about)

    def _end(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        said = self._said
        yield from self._flush()
        if error := table(event.get("error")):
            known = _ERRORS.get(word(error.get("type")))
            yield OutputEvent(OutputKind.ERROR, known or word(error.get("message"))[:_MOST_TEXT])
        else:
            yield OutputEvent(OutputKind.TURN)
            yield OutputEvent(OutputKind.ANSWER, said)

    def _flush(self) -> Iterator[OutputEvent]:
        said, self._said = self._said, ""
        if said.strip():
            yield OutputEvent(OutputKind.TEXT, said)
