"""What a run told so far, and what that makes of it when it ends. Pure, over a host's transcript."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from harken.automation import RunEnd, RunState
from harken.ingest.lengths import chars_within, utf8_bytes
from harken.model import MAX_TEXT_BYTES
from harken.runs.sandbox import OutputEvent, OutputKind, OutputReader

MOST_DENIED: Final = 500
MOST_DENIED_CHARS: Final = 300
MOST_REASON_CHARS: Final = 1_000


class RunRecord:
    """What one run told."""

    def __init__(self, transcript: OutputReader, max_turns: int, *, is_counted: bool) -> None:
        self._transcript = transcript
        self._max_turns = max_turns
        self._is_counted = is_counted
        self._said = ""
        self._answer = ""
        self._error = ""
        self._denied: list[str] = []
        self._denied_more = 0
        self.turns = 0
        self.exit_code: int | None = None

    @property
    def is_over_budget(self) -> bool:
        """Whether it has had more turns than it may, and its host does not end it."""
        return self._is_counted and self.turns > self._max_turns

    def take(self, line: bytes) -> Sequence[OutputEvent]:
        """Note a line of output; return what it told."""
        return self._noted(self._transcript.feed(line))

    def finish(self, stderr: str) -> Sequence[OutputEvent]:
        """Note the end of the process."""
        code = self.exit_code if self.exit_code is not None else -1
        return self._noted(self._transcript.finish(stderr, code))

    def last_words(self) -> Sequence[OutputEvent]:
        """Note what it said and had not finished, of one that was ended."""
        told = self._transcript.finish("", 0)
        return self._noted(
            [each for each in told if each.kind in (OutputKind.TEXT, OutputKind.ANSWER, OutputKind.DENIED)]
        )

    def end(self, *, aborted_by: str, is_late: bool, timeout: timedelta) -> RunEnd:
        """Return how it ended."""
        state, reason = self._state(aborted_by, timeout if is_late else None)
        return RunEnd(
            state=state,
            exit_code=self.exit_code,
            turns=self.turns,
            denied=(*self._denied, *([f"and {self._denied_more} more"] if self._denied_more else ())),
            answer=(self._answer or self._said).strip(),
            reason=reason[:MOST_REASON_CHARS],
        )

    def _state(self, aborted_by: str, late: timedelta | None) -> tuple[RunState, str]:
        if aborted_by:
            return RunState.ABORTED, f"aborted by {aborted_by}"
        if late is not None:
            return RunState.TIMED_OUT, f"it took longer than {late.total_seconds():g} seconds"
        if self.is_over_budget:
            return RunState.FAILED, f"it took more than {self._max_turns} turns"
        if self._error:
            return RunState.FAILED, self._error
        if self.exit_code:
            return RunState.FAILED, f"its program ended with {self.exit_code}"
        return RunState.DONE, ""

    def _noted(self, found: Sequence[OutputEvent]) -> Sequence[OutputEvent]:
        told = [_kept(each) for each in found]
        for each in told:
            if each.kind is OutputKind.TURN:
                self.turns += 1
            elif each.kind is OutputKind.DENIED:
                self._deny(each)
            elif each.kind is OutputKind.ANSWER:
                self._answer = _bounded(each.text)
            elif each.kind is OutputKind.TEXT:
                self._said = _bounded(each.text)
            elif each.kind is OutputKind.ERROR:
                self._error = each.text or "it failed"
        return told

    def _deny(self, each: OutputEvent) -> None:
        if len(self._denied) < MOST_DENIED:
            self._denied.append(_on_one_line(f"{each.tool or each.text} {each.target}"))
        else:
            self._denied_more += 1


def _kept(each: OutputEvent) -> OutputEvent:
    """Return what was told as it is kept: on the line of a denial, what it was about comes before the reason."""
    about = f"{each.target}: {each.text}" if each.target and each.text else each.target or each.text
    return OutputEvent(each.kind, _whole(about), _whole(each.tool), _whole(each.target))


def _on_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_DENIED_CHARS else f"{line[:MOST_DENIED_CHARS]}…"


def _bounded(text: str) -> str:
    """Return as much of an answer as is kept; one that is cut ends with how much is missing."""
    if utf8_bytes(text) <= MAX_TEXT_BYTES:
        return text
    kept = text[: chars_within(text, MAX_TEXT_BYTES)]
    return f"{kept}\n[… {len(text) - len(kept)} characters cut]"


def _whole(text: str) -> str:
    """Return a text that can be stored: half of a pair of surrogates, as JSON may hold it, cannot."""
    return text.encode("utf-8", "replace").decode()
