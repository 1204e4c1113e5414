"""What Claude Code prints when it runs headless, line by line. Pure; anything unknown tells nothing.

Each block of an answer is a line of its own, with the id of the answer. A denial is told by an event of its own, by the
result of a tool that is not there or that was held back, and once more at the end; it is passed on once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harken.hosts.run_environment import brief, entry, first_line, row, table, target, word
from harken.runs.sandbox import OutputEvent, OutputKind

_GONE: Final = "No such tool available:"
_HELD_BACK: Final = "PreToolUse:"
_MOST_CALLS: Final = 1_000  # remembered by id; of a longer run the oldest are forgotten
_REASONS: Final = (
    ("error_max_turns", "It used all the turns that it was given."),
    ("error_max_budget_usd", "It used all the money that it was given."),
)


class ClaudeCodeOutput:
    """Reads the output of one run."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}  # by id: the name, and what it is about
        self._denied: dict[str, tuple[str, str]] = {}
        self._message = ""
        self._has_ended = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        event = entry(line)
        match event.get("type"):
            case "assistant":
                return list(self._said(table(event.get("message"))))
            case "user":
                return list(self._results(table(event.get("message"))))
            case "system" if event.get("subtype") == "permission_denied":
                return list(self._refused(word(event.get("tool_use_id")), word(event.get("tool_name")), None))
            case "result":
                return list(self._end(event))
            case _:
                return ()

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return why it failed, when its output did not say so."""
        if self._has_ended:
            return ()
        return [
            OutputEvent(OutputKind.ERROR, first_line(stderr) or f"Claude Code ended with {exit_code} and said nothing.")
        ]

    def _said(self, message: Mapping[str, object]) -> Iterator[OutputEvent]:
        if self._message and self._message != word(message.get("id")):
            yield OutputEvent(OutputKind.TURN)
        self._message = word(message.get("id"))
        for block in map(table, row(message.get("content"))):
            if block.get("type") == "text" and block.get("text"):
                yield OutputEvent(OutputKind.TEXT, word(block.get("text")))
            elif block.get("type") == "tool_use":
                name = word(block.get("name"))
                _remember(self._calls, word(block.get("id")), (name, target(block.get("input"))))
                yield OutputEvent(OutputKind.TOOL, brief(block.get("input")), name)

    def _results(self, message: Mapping[str, object]) -> Iterator[OutputEvent]:
        for block in map(table, row(message.get("content"))):
            text = word(block.get("content"))
            if block.get("is_error") is True and (_GONE in text[:100] or text.startswith(_HELD_BACK)):
                yield from self._refused(word(block.get("tool_use_id")), "", None)

    def _refused(self, call: str, name: str, given: object) -> Iterator[OutputEvent]:
        if call not in self._denied:
            called, about = self._calls.get(call, ("", target(given)))
            _remember(self._denied, call, (name, about))
            yield OutputEvent(OutputKind.DENIED, tool=name or called, target=about)

    def _end(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        self._has_ended = True
        for denial in map(table, row(event.get("permission_denials"))):
            name, given = word(denial.get("tool_name")), denial.get("tool_input")
            yield from self._refused(word(denial.get("tool_use_id")), name, given)
        if self._message:
            yield OutputEvent(OutputKind.TURN)
        text = word(event.get("result"))
        subtype = word(event.get("subtype"))
        if subtype == "success" and event.get("is_error") is not True:
            yield OutputEvent(OutputKind.ANSWER, text)
        else:
            reason = next((reason for name, reason in _REASONS if name == subtype), "")
            yield OutputEvent(
                OutputKind.ERROR, reason or text or f"Claude Code failed: {subtype or 'no reason given'}."
            )


def _remember(kept: dict[str, tuple[str, str]], key: str, value: tuple[str, str]) -> None:
    kept[key] = value
    if len(kept) > _MOST_CALLS:
        del kept[next(iter(kept))]
