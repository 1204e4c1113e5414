"""What `codex exec --json` prints: one event in JSON on each line, and on standard error its log. Pure.

Codex tells of calls that it makes, not of those that it denies: these are only complained of in the log, by the name of
the tool. What they were about is in the answers of the model's service, which the log quotes; it also says when such an
answer was complete: that is a model step. A line of standard error is fed as it comes; if none was, all are read at the
end. Where the log says nothing of answers, steps are guessed: calls that run together are one, each denied call is one,
and the last words are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from harken.hosts.run_environment import MOST_TARGET, MOST_TEXT, entry, last_line, row, table, target, word
from harken.runs.sandbox import OutputEvent, OutputKind

SHELL: Final = "exec_command"
EDIT: Final = "apply_patch"

# Where the log quotes the model's service, over either transport.
EVENT_SOURCES: Final = ("codex_api::sse::responses", "codex_api::endpoint::responses_websocket")
LOG_LINE: Final = r"\S+ +(?:INFO|DEBUG|TRACE) "

_COMPLAINT: Final = re.compile(r"^\S+ ERROR codex_core::tools::router: error=(.*)")
_FACT: Final = re.compile(r"^\S+  INFO codex_otel\.trace_safe: event\.name=\"(?P<name>[\w.]+)\" (?P<rest>.*)")
_ANSWERED: Final = "event.kind=response.completed"
_FAILED: Final = re.compile(r"\bcall_id=(?P<call>\S+) .*\bsuccess=false\b")
_READY: Final = re.compile(r'\bcall_id="(?P<call>[^"\s]+)"')
_EVENT: Final = re.compile(rb"^\S+ TRACE \S+: [\w ]{0,40}event: (?P<event>\{.*)")
_PATCH: Final = "*** Begin Patch"
_FILE: Final = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_CALLED: Final = b"response.output_item.done"
# What each complaint means; the tool is the one named in it, or the one it is about.
_DENIALS: Final[Mapping[re.Pattern[str], str]] = MappingProxyType(
    {
        re.compile(r"unsupported call: (?P<tool>\S+)"): "",
        re.compile(r"patch rejected: "): EDIT,
        re.compile(r"Command blocked by PreToolUse hook: "): EDIT,  # the guard that the run has
        re.compile(r"(?P<tool>\w+) is unavailable in "): "",
        re.compile(r"exec_command failed .*(?:[Rr]ejected|denied)"): SHELL,
        re.compile(r"MCP tool call (?:requires approval|blocked)"): "an MCP tool",
    }
)
_NEEDS_APPROVAL: Final = ("requires approval", "user cancelled", "blocked by")
_MOST_SAID: Final = 4_000_000  # `runs.reading` keeps less, and says so
_MOST_OPEN: Final = 1_000
_MOST_NAME: Final = 200
_MOST_CALLS: Final = 1_000  # remembered by id; of a longer run the oldest are forgotten
_NOBODY: Final = ("", "")


class CodexOutput:
    """The output of one run."""

    def __init__(self) -> None:
        self._said = ""
        self._trouble = ""
        self._open: set[str] = set()
        self._calls: dict[str, tuple[str, str]] = {}  # what the model asked for and is not over: name, target
        self._failed = ""  # the call that failed last
        self._has_heard_errors = False
        self._is_logged = False
        self._has_failed = False

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return what a line of standard output tells, or one of standard error."""
        if line.lstrip().startswith(b"{"):
            return tuple(self._read(entry(line)))
        self._has_heard_errors = True
        if found := _EVENT.match(line):
            self._note_call(found["event"])
            return ()
        return tuple(self._logged(line[: 4 * MOST_TEXT].decode(errors="replace")))

    def finish(self, stderr: str, exit_code: int) -> Sequence[OutputEvent]:
        """Return what is told by the end."""
        told: list[OutputEvent] = []
        if not self._has_heard_errors:
            told = [each for line in stderr.splitlines() for each in self.feed(line.encode(errors="replace"))]
        if exit_code and not self._has_failed:
            reason = self._trouble or last_line(stderr) or f"Codex ended with {exit_code}."
            told.append(OutputEvent(OutputKind.ERROR, reason))
        return told

    def _note_call(self, event: bytes) -> None:
        """Remember what the model asks for, from the words of its service."""
        item = table(entry(event).get("item")) if _CALLED in event else {}
        if call := word(item.get("call_id"))[:_MOST_NAME]:
            given = word(item.get("input")) or _parsed(word(item.get("arguments"))) or item.get("action")
            self._calls[call] = (word(item.get("name"))[:_MOST_NAME], _changed_by(given) or target(given))
            if len(self._calls) > _MOST_CALLS:
                del self._calls[next(iter(self._calls))]

    def _logged(self, line: str) -> Iterator[OutputEvent]:
        if fact := _FACT.match(line):
            self._is_logged = True
            if fact["name"] == "codex.sse_event" and _ANSWERED in fact["rest"]:
                yield OutputEvent(OutputKind.TURN)
            elif fact["name"] == "codex.tool_result" and (failed := _FAILED.search(fact["rest"])):
                self._failed = failed["call"][:_MOST_NAME]
            elif fact["name"] == "codex.tool_result_ready" and (ready := _READY.search(fact["rest"])):
                self._calls.pop(ready["call"][:_MOST_NAME], None)  # over: what is denied from now on is another
        elif complaint := _COMPLAINT.match(line):
            yield from self._denied(complaint[1])

    def _denied(self, complaint: str) -> Iterator[OutputEvent]:
        for pattern, usual in _DENIALS.items():
            if found := pattern.match(complaint):
                tool = (found.groupdict().get("tool") or usual)[:_MOST_NAME]
                if not self._is_logged:
                    yield OutputEvent(OutputKind.TURN)
                yield OutputEvent(OutputKind.DENIED, complaint[:MOST_TEXT], tool, self._target_of(tool))
                return

    def _target_of(self, tool: str) -> str:
        """Return what a denied call was about: the one that failed just now, else the oldest of the tool.

        A call that the model's own program made is in no answer of the model: it is about that program.
        """
        call = self._failed if self._failed in self._calls else ""
        call = call or next((each for each, (name, _) in self._calls.items() if name == tool), "")
        return self._calls.pop(call)[1] if call else next(reversed(self._calls.values()), _NOBODY)[1]

    def _read(self, event: Mapping[str, object]) -> Iterator[OutputEvent]:
        item = table(event.get("item"))
        match event.get("type"):
            case "item.started":
                yield from self._started(item)
            case "item.completed":
                yield from self._completed(item)
            case "turn.completed":
                if not self._is_logged:
                    yield OutputEvent(OutputKind.TURN)
                yield OutputEvent(OutputKind.ANSWER, self._said)
            case "turn.failed":
                self._has_failed = True
                text = word(table(event.get("error")).get("message")) or self._trouble
                yield OutputEvent(OutputKind.ERROR, text[:MOST_TEXT])
            case "error":
                # Often only that it tries once more: it counts if nothing better comes.
                self._trouble = word(event.get("message"))[:MOST_TEXT]
            case _:
                pass

    def _started(self, item: Mapping[str, object]) -> Iterator[OutputEvent]:
        name = _name(item)
        if not name:
            return
        if not self._open and not self._is_logged:
            yield OutputEvent(OutputKind.TURN)
        if len(self._open) < _MOST_OPEN:
            self._open.add(word(item.get("id"))[:_MOST_NAME])
        yield OutputEvent(OutputKind.TOOL, _arguments(item), name)

    def _completed(self, item: Mapping[str, object]) -> Iterator[OutputEvent]:
        self._open.discard(word(item.get("id"))[:_MOST_NAME])
        if item.get("type") == "agent_message":
            self._said = word(item.get("text"))[:_MOST_SAID]
            yield OutputEvent(OutputKind.TEXT, self._said)
        elif reason := _held(item):
            yield OutputEvent(OutputKind.DENIED, reason, _name(item), _arguments(item)[:MOST_TARGET])


def _changed_by(given: object) -> str:
    """Return the files that a patch names; empty for anything else."""
    return ", ".join(_FILE.findall(given))[:MOST_TARGET] if isinstance(given, str) and given.startswith(_PATCH) else ""


def _parsed(arguments: str) -> object:
    """Return the arguments of a call, which are JSON in a string; as they are when they are not."""
    return entry(arguments.encode(errors="replace")) or arguments


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
            return target(item.get("arguments"))


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
