"""What is kept of a run's answer: all of it up to the bound of a text, and above that it says what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from harken.model import MAX_TEXT_BYTES
from harken.runs.output import RunRecord
from harken.runs.sandbox import OutputEvent, OutputKind


class Saying:
    """A transcript whose host answers with every line."""

    def feed(self, line: bytes) -> Sequence[OutputEvent]:
        """Return the line as an answer."""
        return [OutputEvent(OutputKind.ANSWER, line.decode())]

    def finish(self, _stderr: str, _code: int) -> Sequence[OutputEvent]:
        """Return nothing more."""
        return []


@pytest.mark.parametrize("more", [0, 1])
def test_answer_is_whole_up_to_a_million_bytes_and_ends_with_what_is_missing(more: int) -> None:
    """The run is over and cannot be asked again: what it said is kept, and nobody takes a part for all of it."""
    record = RunRecord(Saying(), 5, is_counted=False)
    text = "日" * (MAX_TEXT_BYTES // 3) + "x" * (MAX_TEXT_BYTES % 3 + more)
    record.take(text.encode())
    answer = record.end(aborted_by="", is_late=False, timeout=timedelta(minutes=1)).answer
    assert answer == (f"{text[:-1]}\n[… 1 characters cut]" if more else text)
