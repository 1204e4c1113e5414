"""The same statement has the same key, another statement another."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from harken.ingest.prepare import DraftIdentity, dedup_key, identify
from harken.model import Draft, MessageKind, Sender

DRAFT = Draft(source="teams", sender=Sender("ann"), text="hello", upstream_id="m1", conversation="c1")


def test_message_seen_again_has_the_same_key() -> None:
    """A source may yield a message twice, after a restart for example: it is one message."""
    again = replace(DRAFT, text="hello again", thread="other")
    assert identify(DRAFT).dedup_key == identify(again).dedup_key == dedup_key("teams", "m1")


def test_key_never_changes_between_releases() -> None:
    """Keys are kept for ever; another way to make them would let every old message in again."""
    assert dedup_key("teams", "m1").hex() == "807134f8c3951da3a5947463dc6d3985"


def test_draft_without_upstream_id_is_always_new() -> None:
    """Where the source has no id, two equal texts are two messages."""
    assert identify(replace(DRAFT, upstream_id="")) == DraftIdentity(None, None, "c1")


def test_each_new_wording_of_an_edit_is_a_message_about_the_original() -> None:
    """An edit is stored once however often it is yielded, and the next edit is another one."""
    first, second = (replace(DRAFT, kind=MessageKind.EDIT, text=text) for text in ("hello 1", "hello 2"))
    assert identify(first) == identify(first)
    assert len({identify(DRAFT).dedup_key, identify(first).dedup_key, identify(second).dedup_key}) == 3
    assert identify(first).refers_key == identify(second).refers_key == identify(DRAFT).dedup_key


def test_going_back_to_an_earlier_wording_is_an_edit_too() -> None:
    """The last word counts; dropped as known, the agent would go on with the one before it."""
    edit = replace(DRAFT, kind=MessageKind.EDIT, text="at nine", sent_at=datetime(2026, 1, 5, 9, tzinfo=UTC))
    later = replace(edit, sent_at=datetime(2026, 1, 5, 10, tzinfo=UTC))
    assert identify(edit).dedup_key == identify(replace(edit)).dedup_key
    assert identify(edit).dedup_key != identify(later).dedup_key
    assert identify(edit).refers_key == identify(later).refers_key


def test_edit_with_an_id_of_its_own_refers_to_the_one_it_names() -> None:
    """Some sources give the edit a new id and name the original."""
    edit = replace(DRAFT, kind=MessageKind.EDIT, upstream_id="m2", refers_to="m1")
    assert identify(edit).refers_key == identify(DRAFT).dedup_key


def test_deletion_is_one_message_about_the_original() -> None:
    """Its text says nothing, so it does not count."""
    deletion = replace(DRAFT, kind=MessageKind.DELETION, text="")
    assert identify(deletion) == identify(replace(deletion, text="gone"))
    assert identify(deletion).dedup_key not in (None, identify(DRAFT).dedup_key)
    assert identify(deletion).refers_key == identify(DRAFT).dedup_key


def test_answer_refers_to_what_it_answers() -> None:
    """The agent is shown what was answered; a plain message refers to nothing."""
    assert identify(replace(DRAFT, upstream_id="m2", refers_to="m1")).refers_key == identify(DRAFT).dedup_key
    assert identify(DRAFT).refers_key is None


def test_thread_is_the_closest_thing_the_source_names() -> None:
    """Everything that belongs together can be shown together, even from sources without threads."""
    assert identify(replace(DRAFT, thread="t1")).thread == "t1"
    assert identify(DRAFT).thread == "c1"
    assert identify(replace(DRAFT, conversation="")).thread == "m1"


NAMES = st.text(max_size=6)


@given(NAMES, NAMES, NAMES, NAMES)
def test_different_ids_have_different_keys(source: str, upstream_id: str, other: str, other_id: str) -> None:
    """No source can make a key that belongs to another: parts never run into each other."""
    is_same = (source, upstream_id) == (other, other_id)
    assert (dedup_key(source, upstream_id) == dedup_key(other, other_id)) is is_same


def test_ids_that_are_no_text_have_keys_too() -> None:
    """Upstream ids are hostile: half a surrogate must not stop ingest."""
    assert len(dedup_key("teams", "\ud800")) == 16
