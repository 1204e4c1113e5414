"""What a run prints, kept: one file of JSON lines per run, with a limit, that can be followed while it grows.

The kinds of lines are those of `sandbox.OutputKind`, and `begin`, `end`, `stderr`, `cut`, `changed` and `undone`.
Lines are numbered from 1. What is over the limit is counted and not kept; the end is always kept. Files of runs that
the store has forgotten are removed by `sweep`. What the lines make of the run when it ends is decided here as well.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import msgspec

from harken.automation import OutputLine, OutputPart, RunEnd, RunId, RunState
from harken.ingest.policy import chars_within, utf8_bytes
from harken.memory import json_bytes
from harken.model import MAX_TEXT_BYTES, timestamp
from harken.runs.sandbox import OutputEvent, OutputKind, OutputReader

_log = logging.getLogger("harken.runs")

MAX_BYTES: Final = 1_000_000
MAX_LINE_CHARS: Final = 16_000
MAX_LINES_AT_ONCE: Final = 500
SUFFIX: Final = ".jsonl"
RECORD: Final = "-changes.jsonl"  # what a run changed is kept beside; see `folders`
PRIVATE: Final = 0o600


class RunOutput:
    """The output of one run that is going on."""

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)
        self._left = MAX_BYTES
        self._dropped = 0
        self._grown = anyio.Event()

    def add(self, at: datetime, kind: str, text: str = "", tool: str = "") -> None:
        """Keep a line, if there is room."""
        line = self._encoded(at, kind, text, tool)
        if len(line) > self._left:
            self._dropped += 1
            return
        self._left -= len(line)
        self._write(line)

    def close(self, at: datetime, text: str) -> None:
        """Say how it ended, and how much was not kept."""
        if self._dropped:
            self._write(self._encoded(at, "cut", f"{self._dropped} more lines were not kept"))
        self._write(self._encoded(at, "end", text))
        if self._file is not None:
            self._file.close()

    def wake(self) -> None:
        """Let the tasks that wait for a line look again."""
        self._grown.set()
        self._grown = anyio.Event()

    async def grown(self) -> None:
        """Wait for the next line."""
        await self._grown.wait()

    def _encoded(self, at: datetime, kind: str, text: str = "", tool: str = "") -> bytes:
        cut = text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}…"
        return json_bytes(OutputLine(timestamp(at), kind, cut, tool[:200])) + b"\n"

    def _write(self, line: bytes) -> None:
        try:
            if self._file is not None:
                self._file.write(line)
        except OSError:
            # The disk is full: the run matters more than what it says.
            self._dropped += 1
        self.wake()


class RunOutputs:
    """The outputs of all runs of one home."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live: dict[RunId, RunOutput] = {}

    def path(self, run: RunId) -> Path:
        """Return where a run's output is."""
        return self._folder / f"{run}{SUFFIX}"

    def begin(self, run: RunId) -> RunOutput:
        """Begin the output of a run."""
        output = self._live[run] = RunOutput(self.path(run))
        return output

    def finish(self, run: RunId) -> None:
        """Nothing more comes from a run."""
        output = self._live.pop(run, None)
        if output is not None:
            output.wake()

    def read(self, run: RunId, after: int) -> OutputPart:
        """Return the lines after a number."""
        try:
            kept = self.path(run).read_bytes().split(b"\n")
        except OSError:
            return OutputPart([], after)
        # What follows the last line end is being written, or nothing.
        lines = kept[:-1][max(after, 0) :][:MAX_LINES_AT_ONCE]
        found = [line for each in lines if (line := _decoded(each)) is not None]
        return OutputPart(found, max(after, 0) + len(lines))

    async def wait(self, run: RunId, after: int, seconds: float) -> OutputPart:
        """Return the lines after a number, as soon as there is one, it is over, or the time is."""
        with anyio.move_on_after(seconds):
            while (live := self._live.get(run)) is not None:
                part = self.read(run, after)
                if part.lines:
                    return part
                await live.grown()
        return self.read(run, after)

    def sweep(self, known: Collection[RunId]) -> int:
        """Remove the outputs of runs that are not known any more; return how many."""
        kept = {f"{run}{SUFFIX}" for run in known}
        found = (path for path in self._folder.glob(f"*{SUFFIX}") if not path.name.endswith(RECORD))
        gone = [path for path in found if path.name not in kept]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)


def _opened(path: Path) -> BinaryIO | None:
    """Return a new private file to write to, or nothing where there can be none: the run goes on without."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE), "ab", buffering=0)
    except OSError as exc:
        _log.warning("what a run says cannot be kept: %s", exc)
        return None


def _decoded(line: bytes) -> OutputLine | None:
    """Return a line, or nothing of one that a crash cut short."""
    try:
        return msgspec.json.decode(line, type=OutputLine)
    except msgspec.DecodeError:
        return None


MAX_DENIED: Final = 500
MAX_DENIED_CHARS: Final = 300
MAX_REASON_CHARS: Final = 1_000
# How hosts say that nobody has signed in to them, or not lately.
_SIGNED_OUT: Final = re.compile(
    r"\bnot (?:signed|logged|authenticated)|\bunauthori[sz]ed\b|\b401\b|/login\b"
    r"|\b(?:sign|log)[ -]?in (?:again|first|required|with)"
    r"|\bauthentication (?:is )?(?:required|failed|error|expired)|\bno authentication\b|\binvalid (?:x-)?api[ -]key"
    r"|\b(?:token|login|session|sign-in) (?:has |is )?expired",
    re.IGNORECASE,
)


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
        self._stderr = ""
        self.turns = 0
        self.exit_code: int | None = None

    @property
    def is_signed_out(self) -> bool:
        """Whether it failed because nobody is signed in to the host: the next run would fail as well."""
        has_failed = bool(self._error or self.exit_code)
        return has_failed and _SIGNED_OUT.search(self._error or self._stderr[-MAX_REASON_CHARS:]) is not None

    @property
    def is_over_budget(self) -> bool:
        """Whether it has had more turns than it may, and its host does not end it."""
        return self._is_counted and self.turns > self._max_turns

    def take(self, line: bytes) -> Sequence[OutputEvent]:
        """Note a line of output; return what it told."""
        return self._noted(self._transcript.feed(line))

    def finish(self, stderr: str) -> Sequence[OutputEvent]:
        """Note the end of the process."""
        self._stderr = stderr
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
            reason=reason[:MAX_REASON_CHARS],
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
        if len(self._denied) < MAX_DENIED:
            self._denied.append(_on_one_line(f"{each.tool or each.text} {each.target}"))
        else:
            self._denied_more += 1


def _kept(each: OutputEvent) -> OutputEvent:
    """Return what was told as it is kept: on the line of a denial, what it was about comes before the reason."""
    about = f"{each.target}: {each.text}" if each.target and each.text else each.target or each.text
    return OutputEvent(each.kind, _whole(about), _whole(each.tool), _whole(each.target))


def _on_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_DENIED_CHARS else f"{line[:MAX_DENIED_CHARS]}…"


def _bounded(text: str) -> str:
    """Return as much of an answer as is kept; one that is cut ends with how much is missing."""
    if utf8_bytes(text) <= MAX_TEXT_BYTES:
        return text
    kept = text[: chars_within(text, MAX_TEXT_BYTES)]
    return f"{kept}\n[… {len(text) - len(kept)} characters cut]"


def _whole(text: str) -> str:
    """Return a text that can be stored: half of a pair of surrogates, as JSON may hold it, cannot."""
    return text.encode("utf-8", "replace").decode()
