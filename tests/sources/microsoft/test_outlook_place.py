"""How far a folder was read: what is old, what is news, and what is read again when the service forgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from harken.sources.outlook.mail import OutlookRow
from harken.sources.outlook.source import (
    MAX_KNOWN,
    OVERLAP,
    OutlookCheckpoint,
    first_place,
    read_place,
)

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
MOMENTS = st.integers(0, 10**9).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
ROWS = st.lists(st.builds(OutlookRow, st.text(min_size=1, max_size=3), st.none() | MOMENTS), max_size=12)


def test_a_forgotten_place_reads_one_week_again_and_not_the_whole_mailbox() -> None:
    """Each mail costs a request: a year of them would take hours, and every one is known already."""
    year = [OutlookRow(str(day), NOON + day * DAY) for day in range(365)]
    place = OutlookCheckpoint(link="x", since=NOON - DAY).after(year, "y", NOON + 365 * DAY)

    assert len(place.news(year)) == 365
    assert [row.id for row in place.begin_again().news(year)] == [str(day) for day in range(357, 365)]
    assert year[-1].received_at == place.heard
    assert timedelta(days=7) == OVERLAP


def test_a_mail_from_the_future_hides_none() -> None:
    """Mail can be imported with any time: what counts as heard never runs ahead of the present."""
    future = OutlookRow("f", NOON + 900 * DAY)

    assert OutlookCheckpoint().after([future], "x", NOON).heard == OutlookCheckpoint().heard
    begun = first_place([OutlookRow("a", NOON - SECOND), future], NOON)
    assert (begun.since, begun.known) == (NOON - SECOND, ("a",))


def test_an_empty_folder_has_no_old_mail() -> None:
    """If our clock is ahead of the service's, the first mails seem old; nothing was there, so nothing is."""
    begun = first_place([], NOON)

    assert begun.news([OutlookRow("a", NOON - DAY)]) == [OutlookRow("a", NOON - DAY)]


def test_what_is_known_has_a_bound() -> None:
    """An import can put any number of mails into one second, and the checkpoint is written with every look."""
    begun = first_place([OutlookRow(str(number), NOON - DAY) for number in range(MAX_KNOWN * 2)], NOON)

    assert len(begun.known) == MAX_KNOWN


@given(ROWS, MOMENTS, st.text(max_size=20))
def test_a_place_is_read_as_it_was_written(rows: list[OutlookRow], started: datetime, link: str) -> None:
    """The checkpoint is all that a restart knows."""
    place = first_place(rows, started).after(rows, link, started)

    assert read_place(place.text()) == place


@given(st.text(max_size=60))
def test_any_other_text_is_no_place(text: str) -> None:
    """A checkpoint may be of another version, or damaged; it must not stop the source."""
    assert read_place(text) is None


@given(ROWS, MOMENTS)
def test_what_was_there_at_the_beginning_is_never_news(rows: list[OutlookRow], started: datetime) -> None:
    """However often the service tells it again, and with or without its link."""
    timed = list({row.id: row for row in rows if row.received_at is not None}.values())
    begun = first_place(timed, started)
    old = {row.id for row in timed if row.received_at is not None and row.received_at < started}

    for place in (begun, begun.after([], "x", started)):
        assert not {row.id for row in place.news(timed)} & old
