"""What a mail says: what is encrypted is announced, what is attached named, who wrote it told. No service needed."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.ingest.markup import to_text
from harken.model import Draft, TextFormat
from harken.sources.microsoft.responses import MissingScope
from harken.sources.outlook.mail import ENCRYPTED, FOLDED, MAX_ATTACHMENTS, draft_of, own_id_in, row_of

INTERNAL: Final = {"name": "X-MS-Exchange-Organization-AuthAs", "value": "Internal"}
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES: Final = (
    *("id", "internetMessageId", "subject", "from", "sender", "replyTo", "toRecipients", "ccRecipients", "attachments"),
    *("receivedDateTime", "conversationId", "isDraft", "hasAttachments", "importance", "bodyPreview", "body", "event"),
    *("internetMessageHeaders", "meetingMessageType", "@odata.type", "startDateTime", "location"),
)


def read(*headers: object, **fields: object) -> Draft:
    """Return a mail of the organisation with these headers and fields as a draft."""
    mail = {
        "id": "AAk1",
        "internetMessageId": "<1@example.test>",
        "subject": "Hi",
        "from": {"emailAddress": {"name": "Ann", "address": "Ann@Example.test"}},
        "receivedDateTime": "2026-01-05T09:00:00Z",
        "body": {"contentType": "html", "content": "<p>words</p>"},
        "internetMessageHeaders": [INTERNAL, *headers],
        **fields,
    }
    draft = draft_of(mail, source="work", folder="inbox")
    assert draft is not None
    return draft


def shown(html: str) -> str:
    """Return what a reader sees of some markup."""
    return " ".join(to_text(html, 10_000).text.split())


@pytest.mark.parametrize(
    "fields",
    [
        {"internetMessageHeaders": [INTERNAL, {"name": "Content-Type", "value": "application/pkcs7-mime; name=x"}]},
        {"attachments": [{"name": "smime.p7m", "contentType": "application/octet-stream"}]},
        {"attachments": [{"name": "message_v2.rpmsg", "contentType": "application/octet-stream"}]},
        {"attachments": [{"name": "x", "contentType": "application/x-microsoft-rpmsg-message"}]},
    ],
)
def test_encrypted_mail_is_announced_and_not_shown(fields: dict[str, object]) -> None:
    """What stands in such a mail is for Outlook; the person should know that it came."""
    draft = read(**fields)

    assert (draft.text, draft.format) == (f"Subject: Hi\n{ENCRYPTED}", TextFormat.PLAIN)


def test_signed_mail_is_shown() -> None:
    """A signature hides nothing."""
    signed = {"name": "Content-Type", "value": "application/pkcs7-mime; smime-type=signed-data"}
    attached = [{"name": "smime.p7s", "contentType": "application/pkcs7-signature"}]

    assert "words" in read(signed).text
    assert "words" in read(attachments=attached).text


def test_attachments_are_named() -> None:
    """An agent cannot open them; that they are there, and what they are called, is part of what was said."""
    attached = [{"name": f"<b>{number}.pdf"} for number in range(MAX_ATTACHMENTS + 2)]
    draft = read(attachments=[{"name": "logo.png", "isInline": True}, *attached])

    assert "<p>[attachment: &lt;b&gt;0.pdf]</p>" in draft.text
    assert draft.text.endswith("<p>[and 2 more attachments]</p>\n<p>words</p>")
    assert "logo.png" not in draft.text
    assert "<p>[it has attachments]</p>" in read(hasAttachments=True).text


def test_no_mail_can_hide_what_is_said_about_it() -> None:
    """Markup that never ends swallows all that follows: what we say must not be there."""
    body = {"contentType": "html", "content": "<p>words<!-- <textarea>"}
    draft = read(body=body, attachments=[{"name": "invoice.exe"}])

    assert shown(draft.text) == "Subject: Hi [attachment: invoice.exe] words"


def test_who_wrote_and_where_an_answer_would_go_is_told() -> None:
    """An answer follows `replyTo`, which may be somebody else than the sender: people and rules can see it."""
    other = {"emailAddress": {"name": "Eve", "address": "eve@example.test"}}
    draft = read(replyTo=[other], sender=other, importance="high")

    assert draft.sender.id == "ann@example.test"
    assert draft.meta == {
        "subject": "Hi",
        "folder": "inbox",
        "answers_go_to": "eve@example.test",
        "sent_by": "eve@example.test",
        "importance": "high",
        "graph_id": "AAk1",
    }
    assert shown(draft.text).startswith("Subject: Hi [answers go to: eve@example.test]")


def test_a_name_is_nobodys_address() -> None:
    """Everybody chooses their own name: one that looks like an address must not be trusted as that address."""
    draft = read(**{"from": {"emailAddress": {"name": "owner@example.test", "address": ""}}})

    assert (draft.sender.id, draft.sender.name) == ("unknown", "owner@example.test")


def test_nobody_is_told_that_answers_go_where_they_always_go() -> None:
    """A line that is under every mail is read under none."""
    own = {"emailAddress": {"name": "Ann", "address": "Ann@example.test"}}

    assert "answers go to" not in read(replyTo=[own]).text


def test_many_addresses_for_an_answer_are_counted_and_stay_text() -> None:
    """An address is the sender's word too: it can be markup, or hundreds of them."""
    many = [{"emailAddress": {"address": f"{number}<img src=x>@example.test"}} for number in range(200)]
    text = read(replyTo=many).text

    assert "<img" not in text
    assert "and 195 more" in text


def test_a_mail_is_known_by_its_id_and_by_what_it_says() -> None:
    """Its id is its sender's word: alone, a stranger could write the id of a mail that is to come, and hide that."""
    same = read(id="AAk2", conversationId="c2", receivedDateTime="2026-01-06T09:00:00Z", toRecipients=[])
    ids = [
        read().upstream_id,
        read(subject="Other").upstream_id,
        read(body={"contentType": "html", "content": "<p>other</p>"}).upstream_id,
        read(**{"from": {"emailAddress": {"address": "eve@example.test"}}}).upstream_id,
        read(internetMessageHeaders=[]).upstream_id,
        read(internetMessageId="<2@example.test>").upstream_id,
        read(internetMessageId="").upstream_id,
    ]

    assert read().upstream_id == same.upstream_id
    assert len(set(ids)) == len(ids)
    assert [own_id_in(each) for each in ids[-3:]] == ["<1@example.test>", "<2@example.test>", ""]
    assert own_id_in("<stored@earlier.test>") == "<stored@earlier.test>"


def test_no_id_that_a_sender_writes_looks_like_one_of_the_service() -> None:
    """An answer would go to whichever mail the sender named."""
    upstream = read(internetMessageId="graph:AAk9").upstream_id

    assert (upstream.startswith("mail:"), own_id_in(upstream)) == (True, "graph:AAk9")
    assert read(internetMessageId=" ").upstream_id == "graph:AAk1"


def test_that_something_was_folded_is_said_above_the_mail() -> None:
    """In its place the note can be hidden by the sender's markup, and words would be missing without a trace."""
    deep = '<div hidden><blockquote type="cite"><blockquote type="cite">old</blockquote></blockquote></div><p>new</p>'
    html = {"contentType": "html", "content": deep}
    plain = {"contentType": "text", "content": "new\n>> old"}

    assert shown(read(subject="Re: Hi", body=html).text) == f"Subject: Re: Hi {FOLDED} new"
    assert read(subject="Re: Hi", body=plain).text == f"Subject: Re: Hi\n{FOLDED}\n\nnew\n{FOLDED}"
    assert FOLDED not in read(subject="Hi", body=plain).text


def test_what_cannot_be_read_whole_is_announced() -> None:
    """A mail that cannot be read whole is still a mail that came."""
    mail = {"id": "1", "subject": "Big", "bodyPreview": "It begins"}
    draft = draft_of(mail, source="work", folder="inbox")

    assert draft is not None
    assert draft.text.startswith("Subject: Big\n[this mail cannot be read")
    assert draft.text.endswith("\nIt begins")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, JSON)), JSON)
def test_nothing_that_a_service_says_breaks_the_reading(mail: dict[str, object], item: object) -> None:
    """One strange mail must not stop all others behind it."""
    row_of(item)
    try:
        draft = draft_of(mail, source="work", folder="inbox")
    except MissingScope:
        assert not {"body", "bodyPreview"} & set(mail)
    else:
        assert (draft is None) == (mail.get("isDraft") is True)
