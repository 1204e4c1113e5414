"""What an activity says: messages, edits and deletions as drafts that can be answered, and nothing that can crash."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.errors import UserError
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import Draft, MessageKind, Priority, Sender, TextFormat
from harken.sources.bot.activity import ID, KINDS, ConversationReference, draft_of, read_activity, upstream_id
from tests.sources.bot.service import ANN, BOT, TENANT, Json, Service

AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
# Ids as Teams has them: of a channel's thread, a group and a chat with the bot.
THREAD = "19:253b1f341670408fb6fe51050b6e5ceb@thread.skype;messageid=1481567603816"
LONG = "a:1pL6i0oY3C0K8oAj8-4hvTtOY0EvBEkvv1Lq" + "xYz_4-" * 20
USER = "29:1XJKJMvc5GBtc2JwZq0oj8tHZmzrQgmz7x-" + "aBc_9-" * 12

_names = st.sampled_from(
    ["id", "type", "text", "name", "from", "mentioned", "contentType", "tenant", "conversationType"]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names | st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
_fields = st.sampled_from(
    [
        "id",
        "timestamp",
        "serviceUrl",
        "channelId",
        "from",
        "conversation",
        "recipient",
        "text",
        "textFormat",
        "entities",
        "attachments",
        "channelData",
        "replyToId",
        "importance",
        "value",
        "locale",
    ]
)


def posted(**more: object) -> Json:
    """Return an activity of Teams."""
    return {**Service(lambda: AT, port=1).activity(chat="a:1"), **more}


def drafted(activity: Json) -> Draft:
    """Return the draft of an activity that is one."""
    draft = draft_of(read_activity(json.dumps(activity).encode()), "desk")
    assert draft is not None
    return draft


def mention(of: Json, mark: str) -> Json:
    """Return a mention as the service writes it."""
    return {"type": "mention", "mentioned": of, "text": mark}


def test_a_message_has_everything_that_an_answer_needs() -> None:
    """The daemon that answers may be another one than the one that heard it."""
    activity = posted(text="Hello", id="1485983408511", importance="high")
    assert drafted(activity) == Draft(
        source="desk",
        sender=Sender(ANN["aadObjectId"], "Ann Smith"),
        text="Hello",
        upstream_id="a:1/1485983408511",
        channel="teams",
        conversation="a:1",
        thread="a:1",
        sent_at=AT,
        priority=Priority.HIGH,
        meta={
            "service_url": f"http://127.0.0.1:1/emea/{TENANT}/",
            "channel_id": "msteams",
            "bot": BOT["id"],
            "user": ANN["id"],
            "chat_type": "personal",
            "tenant": TENANT,
            "locale": "en-GB",
        },
        is_question=True,
    )


@pytest.mark.parametrize("conversation", [THREAD, LONG])
def test_ids_of_the_service_are_stored_unchanged(conversation: str) -> None:
    """An answer is addressed with them: one letter less and it goes nowhere, or elsewhere."""
    activity = posted(id="1485983408511", conversation={"id": conversation, "isGroup": True})
    activity |= {"from": {"id": USER}, "serviceUrl": f"https://smba.trafficmanager.net/emea/{TENANT}/"}
    draft = drafted(activity)
    stored = prepare(draft, IngestPolicy())
    assert (stored.conversation, stored.upstream_id, stored.meta) == (conversation, draft.upstream_id, draft.meta)
    reference = ConversationReference.of(stored.meta)
    assert (reference.user, reference.bot, reference.is_group) == (USER, BOT["id"], True)


def test_the_bot_is_not_called_and_people_are_called_by_name() -> None:
    """In a group one must call the bot to be heard, and that is no part of what is said."""
    text = "<at>Harken</at>&nbsp;ask <at>Bob</at> and <at>Bob</at>, <at>Eve</at>"
    entities = [mention(BOT, "<at>Harken</at>"), mention({"id": "29:2", "name": "Bob Jones"}, "<at>Bob</at>")]
    assert drafted(posted(text=text, entities=entities)).text == "ask @Bob Jones and @Bob, @Eve"


def test_a_mark_of_a_mention_that_is_no_mark_changes_nothing() -> None:
    """Else a mention could take any words out of a text."""
    entities = [mention(BOT, "not "), mention(BOT, ""), {"type": "mention", "text": 1, "mentioned": []}]
    assert drafted(posted(text="do not deploy", entities=entities)).text == "do not deploy"


def test_attachments_and_cards_are_named() -> None:
    """An agent should know that there is something it cannot see."""
    attachments = [
        {"contentType": "text/html", "content": "<p>look</p>"},
        {"contentType": "application/vnd.microsoft.teams.file.download.info", "name": "plan\n.pdf"},
        {"contentType": "image/png", "contentUrl": "https://example.org/x"},
        {"contentType": "application/vnd.microsoft.card.adaptive", "content": {"title": "Poll"}},
        7,
    ]
    draft = drafted(posted(text="look", attachments=attachments))
    assert draft.text == "look\n[attachment: plan .pdf]\n[attachment: a picture]\n[card: Poll]"
    assert draft.meta["attachments"] == "plan .pdf"


def test_a_message_without_a_text_says_so() -> None:
    """A press on a button of a card is a message too."""
    assert drafted(posted(text="", value={"choice": "yes"})).text == '[answer to a card: {"choice":"yes"}]'
    assert drafted(posted(text="")).text == "[a message without a text]"


def test_markup_is_handed_on_as_markup() -> None:
    """Ingest takes it apart; a name among it must not become part of it."""
    draft = drafted(posted(text="<b>now</b>", textFormat="xml", attachments=[{"contentType": "x", "name": "<i>"}]))
    assert (draft.format, draft.text) == (TextFormat.HTML, "<b>now</b>\n<p>[attachment:  i ]</p>")


@pytest.mark.parametrize(
    ("kind", "said", "text"), [("messageUpdate", MessageKind.EDIT, "Hi"), ("messageDelete", MessageKind.DELETION, "")]
)
def test_edits_and_deletions_refer_to_the_message(kind: str, said: MessageKind, text: str) -> None:
    """A message never changes: what happens to it upstream is said after it."""
    draft = drafted(posted(type=kind, id="7", text="Hi"))
    assert (draft.kind, draft.refers_to, draft.upstream_id, draft.text) == (said, "a:1/7", "a:1/7", text)


def test_an_answer_refers_to_what_it_answers() -> None:
    """A thread can be followed."""
    assert drafted(posted(replyToId="5")).refers_to == "a:1/5"


def test_what_the_bot_said_itself_is_not_heard() -> None:
    """Else an agent would answer itself."""
    own = posted()
    own["from"] = BOT
    assert draft_of(read_activity(json.dumps(own).encode()), "desk") is None


@pytest.mark.parametrize("wrong", ["", "with space", "line\nbreak", "x" * 401, "<channel>", "ünicode", 7, None])
def test_an_id_that_would_be_changed_on_its_way_is_no_id(wrong: object) -> None:
    """Two that are changed could become the same, and an answer would go to the other."""
    for activity in (posted(id=wrong), posted(conversation={"id": wrong})):
        with pytest.raises(UserError):
            draft_of(read_activity(json.dumps(activity).encode()), "desk")


@settings(max_examples=60)
@given(kind=st.sampled_from([*KINDS, "typing"]), changes=st.dictionaries(_fields, _values, max_size=5))
def test_any_activity_is_read_or_is_a_mistake_of_the_poster(kind: str, changes: Json) -> None:
    """Types are whatever the other side writes; ids of a draft can always be found again in the store."""
    try:
        draft = draft_of(read_activity(json.dumps({**posted(type=kind), **changes}).encode()), "desk")
    except UserError:
        return
    if draft is None:
        return
    stored = prepare(draft, IngestPolicy())
    assert stored.conversation == draft.conversation
    assert stored.upstream_id == draft.upstream_id
    assert all(isinstance(value, str) for value in draft.meta.values())


@given(conversation=st.from_regex(ID, fullmatch=True), activity=st.from_regex(ID, fullmatch=True))
def test_ids_go_through_the_store_as_they_are(conversation: str, activity: str) -> None:
    """Whatever passes for an id here must be an id there."""
    draft = Draft(
        source="desk", sender=Sender("x"), text="x", conversation=conversation,
        upstream_id=upstream_id(conversation, activity),
    )  # fmt: skip
    stored = prepare(draft, IngestPolicy())
    assert (stored.conversation, stored.upstream_id) == (conversation, draft.upstream_id)
