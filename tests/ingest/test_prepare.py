"""A draft that passed ingest is safe to store, whoever wrote it."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.errors import UserError
from harken.ingest.policy import AttentionRule, IngestPolicy, Route
from harken.ingest.prepare import MAX_META_ENTRIES, check_mailbox, dedup_key, prepare, safe_id
from harken.ingest.redact import redact
from harken.model import (
    CUT_FROM,
    INBOX,
    MAX_TEXT_BYTES,
    WATCH,
    Attention,
    Draft,
    Mailbox,
    MessageKind,
    NewMessage,
    Priority,
    Sender,
    SenderRule,
    TextFormat,
    Trust,
)
from tests.cost import costs_at_most

WEB = Mailbox("project:web")
AT = datetime(2026, 3, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))
DRAFT = Draft(source="teams", sender=Sender("ann"), text="hello")
NOTHING = IngestPolicy()


def test_draft_becomes_a_whole_message() -> None:
    """Every field is decided in one place, from the draft and the owner's policy."""
    draft = Draft(
        source="teams",
        sender=Sender("Ann@example.org", "Ann\n\x1b[31m"),
        text="<p>deploy <b>web</b></p><p>password=hunter22</p>",
        upstream_id="m2",
        channel=" dev \n",
        conversation="19:abc@thread.v2",
        refers_to="m1",
        format=TextFormat.HTML,
        sent_at=AT,
        priority=Priority.HIGH,
        meta={"sub\u200bject": "a\nb"},
    )
    policy = IngestPolicy(
        sender_rules=(SenderRule("teams", "ann@example.org", Trust.OWNER),),
        routes=(Route(WEB, channel="dev", contains="deploy WEB"),),
        attention_rules=(AttentionRule(Attention.BOUNDARY, channel="dev"),),
    )
    assert prepare(draft, policy) == NewMessage(
        author=WATCH,
        mailbox=WEB,
        source="teams",
        sender=Sender("Ann@example.org", "Ann"),
        text="deploy web\n\npassword=[redacted: password]",
        trust=Trust.OWNER,
        attention=Attention.WAKE,
        channel="dev",
        conversation="19:abc@thread.v2",
        thread="19:abc@thread.v2",
        priority=Priority.HIGH,
        upstream_id="m2",
        sent_at=datetime(2026, 3, 1, 10, 0, tzinfo=UTC),
        meta={"subject": "a b"},
        dedup_key=dedup_key("teams", "m2"),
        refers_key=dedup_key("teams", "m1"),
    )


def test_without_a_policy_a_sender_is_unknown_and_only_counted() -> None:
    """Zero configuration must not let strangers push."""
    message = prepare(DRAFT, NOTHING)
    assert (message.mailbox, message.trust, message.attention) == (INBOX, Trust.UNKNOWN, Attention.COUNT)


def test_defaults_are_those_of_the_source() -> None:
    """What the person typed and what a webhook says differ before any rule."""
    policy = IngestPolicy(default_trust={"teams": Trust.KNOWN}, default_attention={"teams": Attention.WAKE})
    assert prepare(DRAFT, policy).attention is Attention.WAKE
    assert prepare(replace(DRAFT, source="hook"), policy).attention is Attention.COUNT


def test_addressed_mailbox_wins_over_routes() -> None:
    """Who sends to a task means that task."""
    draft = replace(DRAFT, mailbox=Mailbox("task:t1"))
    assert prepare(draft, IngestPolicy(routes=(Route(WEB),))).mailbox == "task:t1"


@pytest.mark.parametrize("name", ["inbox", "task:7", "task:a-b_c.d", "project:büro"])
def test_known_forms_of_mailboxes_are_accepted(name: str) -> None:
    """These are all there are."""
    assert check_mailbox(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Inbox",
        "inbox ",
        "inbox\n",
        "task:",
        "task:../x",
        "task:a b",
        "task:a#1",
        "project:a/b",
        "team:x",
        "task:" + "a" * 101,
    ],
)
def test_other_mailbox_names_are_refused_with_a_hint(name: str) -> None:
    """Names end up in file names and references; a wrong one is told, not repaired."""
    with pytest.raises(UserError) as caught:
        prepare(replace(DRAFT, mailbox=Mailbox(name)), NOTHING)
    assert "task:<id>" in caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("kind", "text", "note"),
    [
        (MessageKind.MESSAGE, "", "[empty message]"),
        (MessageKind.MESSAGE, "\u200b \n", "[empty message]"),
        (MessageKind.EDIT, "", "[empty message]"),
        (MessageKind.DELETION, "", "[message deleted]"),
        (MessageKind.DELETION, "was this", "was this"),
    ],
)
def test_message_without_text_says_so(kind: MessageKind, text: str, note: str) -> None:
    """An empty line in an agent's context looks like a fault."""
    assert prepare(replace(DRAFT, kind=kind, text=text), NOTHING).text == note


def test_id_that_had_to_be_cleaned_passes_for_no_other() -> None:
    """Without the invisible character it would read like the owner's id, in every list and rule."""
    policy = IngestPolicy(sender_rules=(SenderRule("teams", "ann", Trust.OWNER),))
    message = prepare(replace(DRAFT, sender=Sender("an\u200bn")), policy)
    assert message.trust is Trust.UNKNOWN
    assert message.sender.id.startswith("ann~")
    assert safe_id("an\u200bn", 50) != safe_id("a\u200bnn", 50)


def test_rule_made_from_a_stored_id_finds_its_sender() -> None:
    """People allow the id that they are shown."""
    shown = prepare(replace(DRAFT, sender=Sender("an\u200bn")), NOTHING).sender.id
    policy = IngestPolicy(sender_rules=(SenderRule("teams", shown, Trust.KNOWN),))
    assert prepare(replace(DRAFT, sender=Sender("an\u200bn")), policy).trust is Trust.KNOWN


def test_sender_and_channel_of_a_message_are_no_patterns() -> None:
    """Whoever is called `*` would have you allow everyone with one click, and fire a rule for every channel."""
    for id_, channel in (("*", "*"), (" * ", "ci/*"), ("*", "ci")):
        message = prepare(replace(DRAFT, sender=Sender(id_), channel=channel), NOTHING)
        assert message.sender.id.startswith("*~")
        assert "*" not in message.channel
        decided = IngestPolicy(decisions=(SenderRule("teams", message.sender.id, Trust.KNOWN),))
        assert prepare(replace(DRAFT, sender=Sender(id_)), decided).trust is Trust.KNOWN
        assert prepare(DRAFT, decided).trust is Trust.UNKNOWN


def test_meta_is_bounded_and_holds_strings_only() -> None:
    """It is stored and shown with every message."""
    meta = {f"k{n}": "v" * 5_000 for n in range(100)}
    cleaned = prepare(replace(DRAFT, meta=meta), NOTHING).meta
    assert len(cleaned) == MAX_META_ENTRIES
    assert max(map(len, cleaned.values())) <= 1_000
    odd = json.loads('{"n": 1, "list": ["x"], "ok": "token=ghp_TOKEN", " ": "x"}'.replace("TOKEN", "a1" * 20))
    assert prepare(replace(DRAFT, meta=odd), NOTHING).meta == {"ok": "token=[redacted: github token]"}


@pytest.mark.parametrize(
    ("sent_at", "expected"),
    [
        (None, None),
        (AT.replace(tzinfo=None), AT.replace(tzinfo=UTC)),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), None),
    ],
)
def test_time_of_sending_is_utc_or_unknown(sent_at: datetime | None, expected: datetime | None) -> None:
    """The sender chooses it: it must neither stop ingest nor be taken for local time."""
    assert prepare(replace(DRAFT, sent_at=sent_at), NOTHING).sent_at == expected


@pytest.mark.parametrize("unit", ["x", "ß", "日", "😀", "e\u0301\u0323"])
@pytest.mark.parametrize("more", [0, 1])
def test_text_up_to_a_million_bytes_is_kept_in_full_and_above_that_the_cut_is_a_fact(unit: str, more: int) -> None:
    """Whoever wrote a mail cannot be told that it was too long: the message itself has to say it."""
    size = len(unit.encode())
    text = unit * (MAX_TEXT_BYTES // size) + "y" * (MAX_TEXT_BYTES % size + more)
    stored = prepare(replace(DRAFT, text=text), NOTHING)
    normal = unicodedata.normalize("NFC", text)
    if len(normal.encode()) <= MAX_TEXT_BYTES:
        assert (stored.text, CUT_FROM in stored.meta) == (normal, False)
        return
    assert len(stored.text.encode()) <= MAX_TEXT_BYTES
    assert stored.meta[CUT_FROM] == str(len(normal))
    kept, _, note = stored.text.rpartition("\n")
    assert note == f"[… {len(normal) - len(kept)} characters cut]"
    assert normal.startswith(kept)
    assert len(kept.encode()) > MAX_TEXT_BYTES - 100


def test_what_a_source_left_out_itself_counts_as_cut() -> None:
    """A mail of twenty megabytes is not handed on whole: the record says how long it was all the same."""
    stored = prepare(replace(DRAFT, text="x" * 100, left_out=5_000), NOTHING)
    assert stored.meta[CUT_FROM] == "5100"
    assert stored.text.endswith("[… 5000 characters cut]")


def test_sender_cannot_say_that_a_text_was_cut() -> None:
    """The fact is ours: a whole text that is taken for a part of one would be looked for elsewhere."""
    stored = prepare(replace(DRAFT, text="whole", meta={"cut_from": "99", " cut_from ": "98"}), NOTHING)
    assert CUT_FROM not in stored.meta


def test_what_stands_for_secrets_does_not_make_a_text_longer_than_it_may_be() -> None:
    """Many short secrets become many long marks: the bound of the store holds for what is stored."""
    stored = prepare(replace(DRAFT, text="pwd=hunter2\n" * (MAX_TEXT_BYTES // 12)), NOTHING)
    assert len(stored.text.encode()) <= MAX_TEXT_BYTES
    assert "hunter2" not in stored.text
    assert CUT_FROM in stored.meta


@pytest.mark.parametrize(
    "unit",
    ["x", "word ", "Grüße ✓ ", "<system ", "token: deadbeef12345678aa\n", "-----BEGIN RSA PRIVATE KEY-----\n", "\n"],
)
def test_a_million_bytes_cost_little(unit: str) -> None:
    """A text of that size comes with any mail: it must not hold up what comes after it."""
    text = unit * (MAX_TEXT_BYTES // len(unit.encode()))
    with costs_at_most(500):
        redact(text)
    with costs_at_most(2_000):
        prepare(replace(DRAFT, text=text), NOTHING)


ANYTHING = st.text(alphabet=st.characters(), max_size=40)


@given(
    st.builds(
        Draft,
        source=st.just("hook"),
        sender=st.builds(Sender, ANYTHING, ANYTHING),
        text=ANYTHING,
        upstream_id=ANYTHING,
        channel=ANYTHING,
        conversation=ANYTHING,
        thread=ANYTHING,
        refers_to=ANYTHING,
        kind=st.sampled_from(MessageKind),
        format=st.sampled_from(TextFormat),
        meta=st.dictionaries(ANYTHING, ANYTHING, max_size=3),
    )
)
def test_any_draft_becomes_a_message_that_can_be_stored(draft: Draft) -> None:
    """A draft that raised here would stop its source for ever, at the same place."""
    message = prepare(draft, NOTHING)
    labels = [message.sender.id, message.sender.name, message.channel, message.conversation, message.thread]
    for label in [*labels, message.upstream_id, *message.meta, *message.meta.values()]:
        label.encode()
        assert not any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in label)
    assert message.text.strip()


@pytest.mark.parametrize("year", [1, 9999])
def test_times_at_the_ends_of_the_calendar_are_no_times(year: int) -> None:
    """Shown in another time zone they would be outside of it, and no list with them could be printed."""
    assert prepare(replace(DRAFT, sent_at=datetime(year, 1, 1, tzinfo=UTC)), NOTHING).sent_at is None


@pytest.mark.parametrize(
    ("trust", "attention", "kind", "expected"),
    [
        (Trust.KNOWN, Attention.WAKE, MessageKind.MESSAGE, True),
        (Trust.OWNER, Attention.PROMPT, MessageKind.MESSAGE, True),
        (Trust.UNKNOWN, Attention.WAKE, MessageKind.MESSAGE, False),
        (Trust.KNOWN, Attention.COUNT, MessageKind.MESSAGE, False),
        (Trust.KNOWN, Attention.WAKE, MessageKind.EDIT, False),
    ],
)
def test_question_of_a_stranger_is_none(
    trust: Trust, attention: Attention, kind: MessageKind, *, expected: bool
) -> None:
    """Else anybody could have an agent, a desktop and a phone ask for an answer."""
    draft = replace(DRAFT, is_question=True, kind=kind, refers_to="m1", upstream_id="m2")
    rule = AttentionRule(attention, source="teams", allow_unknown=True)
    policy = IngestPolicy(sender_rules=(SenderRule("teams", "ann", trust),), attention_rules=(rule,))
    assert prepare(draft, policy).is_question is expected


def test_answer_of_the_person_upstream_stays_one() -> None:
    """It settles what was asked before; whose word it is, the source knows."""
    assert prepare(replace(DRAFT, is_answer=True), NOTHING).is_answer
    assert not prepare(DRAFT, NOTHING).is_answer


def test_what_you_say_through_a_source_is_yours() -> None:
    """Your own answer from a phone is not unread for you, and brings no conversation back."""
    owner = IngestPolicy(sender_rules=(SenderRule(DRAFT.source, DRAFT.sender.id, Trust.OWNER),))
    assert prepare(replace(DRAFT, is_answer=True), NOTHING).author == WATCH
    assert prepare(DRAFT, owner).author == WATCH
    assert prepare(DRAFT, NOTHING).author is None
