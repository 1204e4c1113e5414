"""What a mail says: earlier mails folded, what is encrypted announced, what is attached named. No service needed."""

from __future__ import annotations

import time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.ingest.markup import to_text
from harken.model import Draft, TextFormat
from harken.sources.graph.failures import MissingScope
from harken.sources.graph.outlook.folding import FOLDED, fold_html, fold_plain, is_answer
from harken.sources.graph.outlook.reading import ENCRYPTED, MOST_ATTACHMENTS, draft_of, row_of

OUTLOOK_HISTORY: Final = (
    '<div style="border:none;border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0cm 0cm 0cm"><p class="MsoNormal"><b>From:'
    "</b> Ann &lt;ann@example.test&gt;<br><b>Sent:</b> Monday<br><b>To:</b> Bea<br><b>Subject:</b> Plan</p></div>"
    "<p>the earlier words</p>"
)
GMAIL_HISTORY: Final = (
    '<div class="gmail_quote"><div class="gmail_attr">On Monday Ann wrote:<br></div>'
    '<blockquote class="gmail_quote">the earlier <blockquote>words</blockquote> of Ann</blockquote></div>'
)
STYLE: Final = "<html><head><style>p { color: red }</style></head><body>"
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


def read(**fields: object) -> Draft:
    """Return a mail with these fields as a draft."""
    mail = {
        "id": "AAk1",
        "internetMessageId": "<1@example.test>",
        "subject": "Hi",
        "from": {"emailAddress": {"name": "Ann", "address": "Ann@Example.test"}},
        "receivedDateTime": "2026-01-05T09:00:00Z",
        "body": {"contentType": "html", "content": "<p>words</p>"},
        **fields,
    }
    draft = draft_of(mail, source="work", folder="inbox")
    assert draft is not None
    return draft


def shown(html: str) -> str:
    """Return what a reader sees of some markup."""
    return " ".join(to_text(html, 10_000).text.split())


@pytest.mark.parametrize(
    "history",
    [
        GMAIL_HISTORY,
        '<blockquote type="cite"><div>the earlier words</div></blockquote>',
        OUTLOOK_HISTORY,
        OUTLOOK_HISTORY.replace("From:", "Von:").replace("Sent:", "Gesendet:").replace("Subject:", "Betreff:"),
        '<div id="appendonsend"></div><hr><div id="divRplyFwdMsg">Ann</div><div>the earlier words</div>',
        "<blockquote>the earlier words, and it never ends",
    ],
)
def test_earlier_mails_in_an_answer_are_folded(history: str) -> None:
    """A long conversation would be read again with every answer; what was taken out is said."""
    folded = fold_html(f"{STYLE}<div>My own words.</div>{history}")

    assert shown(folded) == f"My own words. {FOLDED}"


def test_words_below_and_between_quotes_are_kept() -> None:
    """People answer point by point: nothing that the sender wrote now may be taken out."""
    folded = fold_html("<p>Hello</p><blockquote>one</blockquote><p>yes</p><blockquote>two</blockquote><p>no</p>")

    assert shown(folded) == f"Hello {FOLDED} yes {FOLDED} no"


@pytest.mark.parametrize(
    "html",
    [
        f"{STYLE}{OUTLOOK_HISTORY}",
        "<blockquote>only a quote</blockquote>",
        "<p><b>From:</b> here to there</p>",
        "<p>Nothing is quoted.</p>",
    ],
)
def test_nothing_is_folded_if_nothing_would_be_left_or_nothing_is_quoted(html: str) -> None:
    """An empty message says less than an old one."""
    assert fold_html(html) == html


def test_an_answer_in_plain_text_is_folded() -> None:
    """Not every mail is markup."""
    text = "My words.\n\nAnn wrote:\n> earlier\n> words\nMore.\n-----Original Message-----\nFrom: Ann"

    assert fold_plain(text) == f"My words.\n\nAnn wrote:\n{FOLDED}\nMore.\n{FOLDED}"
    assert fold_plain("Mine.\nFrom: A\nSent: B\nSubject: C\nold") == f"Mine.\n{FOLDED}"
    assert fold_plain("> only\n> quoted") == "> only\n> quoted"


@pytest.mark.parametrize(
    ("subject", "has_original", "expected"),
    [
        ("Re: Plan", False, True),
        ("AW: Plan", False, True),
        ("Plan", True, True),
        ("Plan", False, False),
        ("Fwd: Plan", True, False),
        ("WG: Plan", True, False),
        ("Report: Plan", False, False),
    ],
)
def test_only_an_answer_is_folded(subject: str, *, has_original: bool, expected: bool) -> None:
    """In a forwarded mail the earlier mail is what is said, and a first mail quotes nothing that we know."""
    assert is_answer(subject, has_original=has_original) is expected


@pytest.mark.parametrize(
    "hostile",
    [
        "<div " * 80_000,
        "<blockquote>" * 30_000,
        "<b>From:" * 50_000,
        "<b>From: Sent: " * 25_000,
        "<div class=gmail_quote></div>" * 13_000,
        "<" * 390_000,
        "<b " + "a" * 390_000,
        "<!--" * 90_000,
    ],
)
def test_folding_takes_no_longer_than_reading(hostile: str) -> None:
    """A stranger must not be able to stop the daemon with one mail."""
    begin = time.process_time()
    fold_html(hostile)
    fold_plain(hostile.replace("<b>", "\n"))

    assert time.process_time() - begin < 3


@given(st.text(max_size=300))
def test_folding_only_ever_takes_out(text: str) -> None:
    """Whatever a mail holds, nothing appears in it that was not there, except the note."""
    for folded in (fold_plain(text), fold_html(text)):
        for piece in folded.replace(f"<p>{FOLDED}</p>", "\n").replace(FOLDED, "\n").splitlines():
            assert piece in text


@pytest.mark.parametrize(
    "fields",
    [
        {"internetMessageHeaders": [{"name": "Content-Type", "value": "application/pkcs7-mime; name=smime.p7m"}]},
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

    assert "words" in read(internetMessageHeaders=[signed]).text
    assert "words" in read(attachments=attached).text


def test_attachments_are_named() -> None:
    """An agent cannot open them; that they are there, and what they are called, is part of what was said."""
    attached = [{"name": f"<b>{number}.pdf"} for number in range(MOST_ATTACHMENTS + 2)]
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
    }


def test_an_answer_names_what_it_answers() -> None:
    """Only so are the mails of one conversation known to belong together."""
    headers = [{"name": "in-reply-to", "value": " <0@example.test> "}]

    assert read(internetMessageHeaders=headers).refers_to == "<0@example.test>"
    assert read(internetMessageId="").upstream_id == "graph:AAk1"


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
