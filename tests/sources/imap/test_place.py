"""How far a folder was read: a checkpoint that survives everything, and nothing that is stepped over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from harken.sources.imap.connection import ImapRow
from harken.sources.imap.source import LAST_UID, OVERLAP, ImapCheckpoint, first_place, read_place

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
UIDS = st.integers(1, LAST_UID)
TIMES = st.integers(-(10**8), 10**8).map(lambda seconds: NOW + timedelta(seconds=seconds))
ROWS = st.lists(st.builds(ImapRow, UIDS, st.integers(0, 10**8), TIMES, st.text(max_size=5)), max_size=20)


@given(validity=UIDS, last=UIDS, since=TIMES, heard=TIMES, known=st.lists(st.text(max_size=9), max_size=4))
def test_a_checkpoint_says_what_the_place_was(
    validity: int, last: int, since: datetime, heard: datetime, known: list[str]
) -> None:
    """It is all that is left after a restart."""
    place = ImapCheckpoint(validity=validity, last=last, since=since, heard=heard, known=tuple(known))
    assert read_place(place.text()) == place


@given(st.text(max_size=60))
def test_what_is_no_checkpoint_names_no_place(text: str) -> None:
    """A file that was damaged must not stop the daemon."""
    assert read_place(text) is None


@given(ROWS, ROWS)
def test_a_place_never_goes_back(first: list[ImapRow], second: list[ImapRow]) -> None:
    """Whatever order mails are read in, none behind the place is stepped over again."""
    before = ImapCheckpoint(validity=1, last=0).after(first, NOW)
    after = before.after(second, NOW)
    assert after.last == max([0, *(row.uid for row in [*first, *second])])
    assert NOW >= after.heard >= before.heard


@given(before=ROWS, after=ROWS)
def test_a_folder_that_is_read_anew_gives_all_that_is_new_and_not_the_newest_that_was_there(
    before: list[ImapRow], after: list[ImapRow]
) -> None:
    """Mails that came after listening began must be found, whatever their numbers are now."""
    place = first_place(1, LAST_UID, before)
    late = [ImapRow(row.uid, row.size, place.since + timedelta(seconds=1 + at), "new") for at, row in enumerate(after)]
    found = place.news([*before, *late])
    assert set(late) <= set(found)
    assert not [row for row in found if row in before and row not in late and row.message_id]


def test_reading_anew_begins_a_week_before_the_newest_that_was_heard() -> None:
    """A mail can be moved into a folder after it came, and years of mail need not be read again."""
    place = ImapCheckpoint(validity=1, last=9, since=NOW - timedelta(days=100), heard=NOW)
    assert place.oldest == NOW - OVERLAP
    assert ImapCheckpoint(validity=1, last=9, since=NOW, heard=NOW).oldest == NOW


def test_numbers_that_went_back_mean_other_mails() -> None:
    """A server that was restored may keep its validity by mistake."""
    place = ImapCheckpoint(validity=1, last=9)
    assert place.is_of(1, 10)
    assert not place.is_of(2, 10)
    assert not place.is_of(1, 9)
