"""What `opencode run --format json` prints: one event in JSON on each line. Pure.

A call is told when it is over, whatever became of it. A tool that is not offered is called `invalid`, with the name
that the model used among its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harken.hosts.run_environment import MOST_TEXT, brief, entry, last_line, table, target, word
from harken.runs.sandbox import OutputEvent, OutputKind

_DENIALS: Final = (
    "harken: ",
    "The user has specified a rule which prevents",
    "The user rejected permission",
    "Model tried to call unavailable tool",
)
_INVALID: Final = "invalid"
# Names that every object of its language has: no tools, but opencode looks them up as if they were.
_INHERITED: Final = frozenset(
    (
        *("__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__", "constructor"),
        *("hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"),
    )
)
_MOST_SAID: Final = 256_000
_MOST_NAME: Final = 200


class OpencodeOutput:
    """The output of one run."""

    def __init__(self) -> None:
        self._said = ""
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells."""
        event = entry(line)
        return tuple(self._read(event, table(event.get("part"))))

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        if exit_code and not self._has_failed:
            return (OutputEvent(OutputKind.ERROR, last_line(stderr) or f"opencode ended with {exit_code}."),)
        return ()

    def _read(self, event: Mapping[str, object], part: Mapping[str, object]) -> Iterator[OutputEvent]:
        match event.get("type"):
            case "text":
                self._said = word(part.get("text"))[:_MOST_SAID]
                yield OutputEvent(OutputKind.TEXT, self._said)
            case "tool_use":
                yield from _called(part)
            case "step_finish":
                yield OutputEvent(OutputKind.TURN)
                if part.get("reason") != "tool-calls":
                    yield OutputEvent(OutputKind.ANSWER, self._said)
            case "error":
                self._has_failed = True
                yield OutputEvent(OutputKind.ERROR, _trouble(table(event.get("error"))))
            case _:
                pass


def _called(part: Mapping[str, object]) -> Iterator[OutputEvent]:
    state = table(part.get("state"))
    given = table(state.get("input"))
    tool = word(part.get("tool"))
    name = (word(given.get("tool")) if tool == _INVALID else tool)[:_MOST_NAME] or _INVALID
    # What the model called that is not there is told without its arguments.
    error = word(given.get("error")) if tool == _INVALID else word(state.get("error"))
    about = "" if tool == _INVALID else target(given)
    if tool == _INVALID or error.startswith(_DENIALS) or (error and tool in _INHERITED):
        yield OutputEvent(OutputKind.DENIED, error[:MOST_TEXT], name, about)
    else:
        yield OutputEvent(OutputKind.TOOL, brief(given), name)


def _trouble(error: Mapping[str, object]) -> str:
    text = word(table(error.get("data")).get("message")) or word(error.get("message")) or word(error.get("name"))
    return text[:MOST_TEXT] or "opencode failed and did not say why."
