"""An answer has the headers that we gave it, whatever stood in the mail that it answers. Found by `make fuzz`."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from email.parser import BytesParser
from email.policy import SMTP
from typing import Final

import pytest

from harken.errors import Forbidden
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import INBOX, Message, MessageId, OutgoingReply
from harken.sources.imap.messages import ArrivedMail, draft_of
from harken.sources.imap.sender import compose
from harken.sources.imap.settings import ImapSettings

NOW: Final = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
REFERENCE: Final = "env:MAIL"
ACCOUNT: Final = ImapSettings(
    name="mail",
    host="imap.example.org",
    user="me@example.org",
    password=REFERENCE,
    smtp_host="smtp.example.org",
    address="me@example.org",
)
BREAKS_OUT: Final = b"=?utf-8?q?a=0D=0AX-Evil=3A_y=0D=0A=0D=0Aa_body?="
TWICE: Final = b"=?utf-8?b?" + base64.b64encode(BREAKS_OUT) + b"?="
NO_LETTER: Final = b"=?utf-8?b?" + base64.b64encode("=?utf?q?ü\x1d=Fe".encode()) + b"?="


def answer_to(raw: bytes) -> bytes:
    """Return the answer to a mail as it leaves."""
    new = prepare(draft_of(ArrivedMail(raw=raw, received_at=NOW), source="mail", folder="INBOX"), IngestPolicy())
    message = Message(
        id=MessageId("m1"),
        mailbox=INBOX,
        seq=1,
        received_at=NOW,
        source=new.source,
        sender=new.sender,
        text=new.text,
        trust=new.trust,
        attention=new.attention,
        conversation=new.conversation,
        upstream_id=new.upstream_id,
        meta=new.meta,
    )
    return compose(OutgoingReply(key="k", to=message, body="Thanks.", author="a"), ACCOUNT, NOW).as_bytes(policy=SMTP)


@pytest.mark.parametrize(
    "header",
    [
        b"Subject: " + TWICE + b"\r\nMessage-ID: <m1@x.example>",
        b"Subject: " + NO_LETTER + b"\r\nMessage-ID: <m1@x.example>",
        b"Message-ID: <" + BREAKS_OUT + b"@x.example>",
        b"Message-ID: <m1@x.example>\r\nReferences: <" + BREAKS_OUT + b"@x.example>",
        b"Message-ID: <m1@x.example>\r\nIn-Reply-To: <" + BREAKS_OUT + b">",
    ],
    ids=["subject", "unknown charset", "id", "references", "in reply to"],
)
def test_encoded_word_in_a_mail_breaks_out_of_no_header_of_the_answer(header: bytes) -> None:
    """What is decoded once more on its way out may hold line ends: then a stranger writes in our name."""
    answer = BytesParser(policy=SMTP).parsebytes(answer_to(b"From: ann@x.example\r\n" + header + b"\r\n\r\nhello\r\n"))
    assert answer["x-evil"] is None
    body = answer.get_body(("plain",))
    assert body is not None
    assert body.get_content().startswith("Thanks.")


def test_sender_whose_domain_is_a_dot_is_refused() -> None:
    """It looks like an address to the reader and is none to the writer; the agent is told so."""
    with pytest.raises(Forbidden):
        answer_to(b"From: n@.\r\n\r\nhello\r\n")
