"""What a message of Teams says, and how far the chats were read: pure, and given any garbage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.model import MessageKind, Priority, Sender
from harken.sources.payload import Json
from harken.sources.teams.messages import (
    ChatMessage,
    TeamsChat,
    chat_draft,
    millis,
    read_chat,
    read_message,
    sender_of,
)
from harken.sources.teams.polling import KEPT_MS, OVERLAP_MS, ChatCheckpoint, TeamsCheckpoint, stamp

NAMES = [
    *("id", "createdDateTime", "lastModifiedDateTime", "lastEditedDateTime", "deletedDateTime", "messageType", "from"),
    *("user", "application", "body", "content", "contentType", "attachments", "mentions", "mentioned", "name", "topic"),
    *("lastMessagePreview", "isDeleted", "policyViolation", "dlpAction", "importance", "subject", "webUrl"),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(["2026-01-02T03:04:05.6Z", "message", "html"])
)
GARBAGE = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
)
ANSWERS = st.dictionaries(st.sampled_from(NAMES), GARBAGE)


def message(**more: object) -> ChatMessage:
    """Return a message that was read."""
    json: Json = {
        "id": "1",
        "createdDateTime": "2026-01-02T03:04:05.6Z",
        "from": {"user": {"id": "a", "displayName": "Ann"}},
        "messageType": "message",
        "body": {"contentType": "html", "content": "<p>hi</p>"},
        **more,
    }
    written = read_message(json)
    assert written is not None
    return written


def text_of_draft(**more: object) -> str:
    """Return what a message says as a draft."""
    draft = chat_draft(
        message(**more), source="work", chat=TeamsChat("c"), sender=Sender("a"), kind=MessageKind.MESSAGE, me="me"
    )
    return draft.text


@given(ANSWERS)
def test_garbage_breaks_nothing(json: dict[str, object]) -> None:
    """The service is not believed: an answer that makes no sense costs that answer, never the feed."""
    read_chat(json)
    written = read_message({"id": "1", "createdDateTime": "2026-01-02T03:04:05Z", **json})
    sender_of(json)
    if written is not None:
        for kind in MessageKind:
            chat_draft(written, source="work", chat=TeamsChat("c"), sender=Sender("a"), kind=kind, me="me")


@given(st.integers(1, 7_000_000_000_000))
def test_a_time_is_the_same_in_an_answer_and_in_a_filter(at: int) -> None:
    """If it were rounded on the way, a message could fall between two reads."""
    assert datetime.fromisoformat(stamp(at)) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    assert millis(stamp(at)) == at


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2026-01-02T03:04:05.6Z", 1767323045600), ("2026-01-02T03:04:05Z", 1767323045000), ("soon", 0), ("", 0)],
)
def test_stamps_of_any_precision_are_read(text: str, expected: int) -> None:
    """Teams leaves out the last zeros, so stamps cannot be compared as text."""
    assert millis(text) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"body": {"contentType": "text", "content": "a < b\nc"}}, "<p>a &lt; b<br>c</p>"),
        ({"subject": "<Plan>"}, "<p>&lt;Plan&gt;</p><p>hi</p>"),
        ({"body": {"contentType": "html", "content": '<at id="0">@Bob</at>!'}}, "@Bob!"),
        (
            {"policyViolation": {"dlpAction": "notifySender,blockAccess"}},
            "<p>[A policy of the organisation hides this message. Read it in Teams.]</p>",
        ),
        ({"body": None}, "<p>[This message has no text that can be shown. Read it in Teams.]</p>"),
        (
            {"attachments": [{"id": "1", "contentType": "messageReference", "content": "{"}]},
            "<p>hi</p><blockquote>Someone wrote: [a message that cannot be shown]</blockquote>",
        ),
    ],
)
def test_what_markup_cannot_say_becomes_text(more: dict[str, object], expected: str) -> None:
    """The agent reads text only; what is hidden is announced rather than missing."""
    assert text_of_draft(**more) == expected


def test_what_is_marked_urgent_goes_first() -> None:
    """The sender said so, and the person's rules may say otherwise."""
    draft = chat_draft(
        message(importance="urgent"),
        source="w",
        chat=TeamsChat("c"),
        sender=Sender("a"),
        kind=MessageKind.MESSAGE,
        me="",
    )
    assert draft.priority is Priority.HIGH


@pytest.mark.parametrize("kind", ["systemEventMessage", "unknownFutureValue", "chatEvent"])
def test_what_the_system_says_has_no_sender(kind: str) -> None:
    """By its type, also where somebody is named as its origin."""
    assert sender_of({"messageType": kind, "from": {"user": {"id": "a"}}}) is None
    assert sender_of({"messageType": "message", "from": None}) is None


@given(
    st.integers(0, 2**42),
    st.dictionaries(
        st.text(min_size=1),
        st.tuples(st.integers(0, 2**42), st.text(), st.dictionaries(st.text(), st.integers(0, 2**42))),
    ),
)
def test_a_place_is_the_same_after_a_restart(at: int, chats: dict[str, tuple[int, str, dict[str, int]]]) -> None:
    """What the checkpoint does not hold is lost or repeated."""
    place = TeamsCheckpoint(at, at, at, {chat_id: ChatCheckpoint(*known) for chat_id, known in chats.items()})
    assert TeamsCheckpoint.load(place.dump()) == place


@pytest.mark.parametrize("checkpoint", ["x", "{}", '{"v":2,"start":0,"listed":0,"floor":0,"chats":{}}'])
def test_a_place_of_others_is_refused(checkpoint: str) -> None:
    """To begin anew by itself would pass over what was said meanwhile."""
    with pytest.raises(UserError):
        TeamsCheckpoint.load(checkpoint)


def test_quiet_chats_are_forgotten_and_go_on_where_they_were() -> None:
    """The checkpoint is written with every batch, so it must not grow with every chat there ever was."""
    place = TeamsCheckpoint(0, 0, 0)
    place.read("old", "g", [ChatMessage("1", 5_000, 5_000, is_deleted=False, is_edited=False, json={})])
    place.read(
        "new", "g", [ChatMessage("2", KEPT_MS + 6_000, KEPT_MS + 6_000, is_deleted=False, is_edited=False, json={})]
    )
    place.completed(KEPT_MS + 6_000)
    assert (set(place.chats), place.known("old").at) == ({"new"}, 6_000)
    assert not place.is_changed(TeamsChat("old", gate="other", last_at=5_000))
    assert place.is_changed(TeamsChat("old", gate="g", last_at=KEPT_MS + 6_001))
    assert place.is_changed(TeamsChat("fresh", last_at=KEPT_MS + 6_000 - OVERLAP_MS + 1))
