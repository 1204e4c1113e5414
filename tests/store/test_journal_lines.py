"""The lines of a commit are written at once, and are what each would be by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harken.model import Attention, Sender
from harken.store.contract.events import Event
from harken.store.journal import Journal, line
from tests.builders import a_message

MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
# Around midnight, some of them equal, and one told in another zone: the same moment is written the same way.
MOMENTS = st.sampled_from(
    [MIDNIGHT + timedelta(milliseconds=shift) for shift in (-1500, -1, 0, 1)]
    + [MIDNIGHT.astimezone(timezone(timedelta(hours=2)))]
)
MESSAGE = a_message(
    "line\n\u00e9", received_at=MIDNIGHT, source="ci", sender=Sender("ann", "Ann"), attention=Attention.PROMPT
)


def _events(moments: Sequence[tuple[datetime, datetime | None]]) -> list[Event]:
    return [
        Event(n=n, at=at, kind="received", data={}, message=replace(MESSAGE, received_at=at, sent_at=sent_at))
        for n, (at, sent_at) in enumerate(moments, start=1)
    ]


@given(st.lists(st.tuples(MOMENTS, st.none() | MOMENTS), min_size=1, max_size=6))
def test_lines_written_together_are_those_written_alone(moments: Sequence[tuple[datetime, datetime | None]]) -> None:
    """Times are written once for all that share them; no line may get the time or the day of another."""
    events = _events(moments)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        journal.observe(events)
        journal.close()
        written = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    expected: dict[str, bytes] = {}
    for event in events:
        day = f"{event.at.astimezone(UTC):%Y-%m-%d}.jsonl"
        expected[day] = expected.get(day, b"") + line(event)
    assert written == expected
