"""Which messages a source takes for questions: somebody speaks to this account, and is no machine and not ourselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.model import Draft, MessageKind, Sender
from harken.sources.answers import is_unattended
from harken.sources.bot.activity import draft_of as bot_draft
from harken.sources.bot.activity import read_activity
from harken.sources.imap.messages import ArrivedMail
from harken.sources.imap.messages import draft_of as mail_draft
from harken.sources.outlook.mail import draft_of as outlook_draft
from harken.sources.teams.messages import TeamsChat, chat_draft, read_message

ME: Final = "7c1a-me"
ANN: Final = Sender("55aa-ann", "Ann")
MINE: Final = "you@example.com"
ONE: Final = TeamsChat("19:55aa_7c1a@unq.gbl.spaces", kind="oneOnOne")
GROUP: Final = TeamsChat("19:meeting_x@thread.v2", kind="group")
MENTION: Final[Mapping[str, object]] = {"mentions": [{"id": 0, "mentioned": {"user": {"id": ME}}}]}


def said(
    chat: TeamsChat,
    more: Mapping[str, object] | None = None,
    *,
    by: Sender = ANN,
    kind: MessageKind = MessageKind.MESSAGE,
    me: str = ME,
) -> Draft:
    """Return what somebody says in a chat."""
    who = {"from": {"user": {"id": by.id, "displayName": by.name}}}
    text = {"id": "1", "createdDateTime": "2026-01-05T09:00:00Z", "body": {"content": "how?"}}
    written = read_message({**text, **who, **(more or {})})
    assert written is not None
    return chat_draft(written, source="work", chat=chat, sender=by, kind=kind, me=me)


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (said(ONE), (True, False)),
        (said(TeamsChat(ONE.id)), (True, False)),
        (said(GROUP), (False, False)),
        (said(GROUP, MENTION), (True, False)),
        (said(GROUP, MENTION, me="somebody-else"), (False, False)),
        (said(ONE, me=""), (False, False)),
        (said(ONE, kind=MessageKind.EDIT), (False, False)),
        (said(ONE, kind=MessageKind.DELETION), (False, False)),
        (said(ONE, {"from": {"application": {"id": "bot"}}}), (False, False)),
        (said(ONE, by=Sender(ME)), (False, True)),
        (said(GROUP, MENTION, by=Sender(ME)), (False, True)),
        (said(GROUP, by=Sender(ME), kind=MessageKind.EDIT), (False, False)),
    ],
    ids=[
        "alone", "alone, by its id", "in a group", "called in a group", "somebody else is called", "nobody signed in",
        "an edit", "a deletion", "a program", "the person answers", "the person calls themselves",
        "the person corrects",
    ],
)  # fmt: skip
def test_teams_message_is_a_question_when_it_is_for_the_account(draft: Draft, expected: tuple[bool, bool]) -> None:
    """Alone with somebody, or called by name; what the person writes there themselves is the answer."""
    assert (draft.is_question, draft.is_answer) == expected


def person(address: str) -> Mapping[str, object]:
    """Return an address as Graph writes it."""
    return {"emailAddress": {"address": address, "name": "x"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailed:
    """A mail to two people, with a copy to the account."""

    to: str = MINE
    sender: str = "ann@example.com"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def graph(self) -> dict[str, object]:
        """Return it as Graph tells it."""
        return {
            "id": "a1",
            "internetMessageId": "<1@example.com>",
            "subject": "how?",
            "from": person(self.sender),
            "toRecipients": [person("carl@example.com"), person(self.to)],
            "ccRecipients": [person(MINE)],
            "body": {"contentType": "text", "content": "how?"},
            "internetMessageHeaders": [{"name": name, "value": value} for name, value in self.headers.items()],
        }

    def raw(self) -> bytes:
        """Return it as a server hands it over."""
        to = f"carl@example.com, {self.to}"
        lines = {"From": self.sender, "To": to, "Cc": MINE, "Subject": "how?", **self.headers}
        return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode() + b"\r\nhow?\r\n"


MAILS: Final = [
    (Mailed(), True),
    (Mailed(to=MINE.upper()), True),
    (Mailed(to="bob@example.com"), False),
    (Mailed(sender=MINE), False),
    (Mailed(sender="no-reply@example.com"), False),
    (Mailed(sender="notifications@example.com"), False),
    (Mailed(headers={"Auto-Submitted": "auto-replied"}), False),
    (Mailed(headers={"Auto-Submitted": "no"}), True),
    (Mailed(headers={"List-Id": "<all.example.com>"}), False),
    (Mailed(headers={"List-Unsubscribe": "<https://example.com/u>"}), False),
    (Mailed(headers={"Precedence": "bulk"}), False),
    (Mailed(headers={"Return-Path": "<>"}), False),
]


@pytest.mark.parametrize(("mail", "expected"), MAILS)
def test_mail_is_a_question_when_somebody_writes_to_the_account(mail: Mailed, *, expected: bool) -> None:
    """Both kinds of account judge alike: who is only copied, a list and a machine wait for nothing."""
    found = outlook_draft(mail.graph(), source="work", folder="inbox", addresses={MINE})
    assert found is not None
    read = mail_draft(ArrivedMail(raw=mail.raw()), source="post", folder="INBOX", addresses={MINE})
    assert (found.is_question, read.is_question) == (expected, expected)
    assert (found.is_answer, read.is_answer) == (False, False)


def test_mail_of_an_account_whose_address_is_not_known_is_no_question() -> None:
    """Nobody can say for whom it is; a list of everything would be read by nobody."""
    found = outlook_draft(Mailed().graph(), source="work", folder="inbox")
    assert found is not None
    assert not found.is_question
    assert not mail_draft(ArrivedMail(raw=Mailed().raw()), source="post", folder="INBOX").is_question


def test_invitation_is_no_question() -> None:
    """It is answered in the calendar."""
    invitation = {**Mailed().graph(), "@odata.type": "#microsoft.graph.eventMessage"}
    found = outlook_draft(invitation, source="work", folder="inbox", addresses={MINE})
    assert found is not None
    assert not found.is_question
    calendar = {"MIME-Version": "1.0", "Content-Type": "text/calendar; method=REQUEST"}
    read = mail_draft(ArrivedMail(raw=Mailed(headers=calendar).raw()), source="post", folder="INBOX", addresses={MINE})
    assert not read.is_question


@pytest.mark.parametrize(("kind", "expected"), [("message", True), ("messageUpdate", False), ("messageDelete", False)])
def test_whoever_speaks_to_a_bot_waits_for_an_answer(kind: str, *, expected: bool) -> None:
    """A bot is spoken to for no other reason."""
    activity = {
        "type": kind,
        "id": "1",
        "channelId": "msteams",
        "serviceUrl": "https://smba.trafficmanager.net/emea/",
        "conversation": {"id": "a:1"},
        "from": {"id": "29:ann"},
        "recipient": {"id": "28:bot"},
        "text": "how?",
    }
    draft = bot_draft(read_activity(json.dumps(activity).encode()), "desk")
    assert draft is not None
    assert (draft.is_question, draft.is_answer) == (expected, False)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("noreply@example.com", True), ("no-reply@example.com", True), ("do_not.reply+7@example.com", True),
        ("shop-noreply@example.com", True), ("MAILER-DAEMON@example.com", True), ("bounces-12@example.com", True),
        ("noreen.ply@example.com", False), ("ann@noreply.example.com", False), ("ann.alerts@example.com", False),
        ("noreply", False), ("", False),
    ],
)  # fmt: skip
def test_address_says_whether_somebody_reads_it(address: str, *, expected: bool) -> None:
    """A machine names itself; a person whose name begins like one is still a person."""
    assert is_unattended(address) is expected


@given(st.text(max_size=300))
def test_any_text_may_stand_where_an_address_should(text: str) -> None:
    """Senders write what they like: it is judged in bounded time, and the part behind the @ does not count."""
    assert isinstance(is_unattended(text), bool)
    assert not is_unattended(f"ann@{text.replace('@', '')}")


@given(
    kind=st.sampled_from([MessageKind.MESSAGE, MessageKind.EDIT, MessageKind.DELETION]),
    chat=st.sampled_from([ONE, GROUP, TeamsChat("c")]),
    is_called=st.booleans(),
)
def test_what_we_write_ourselves_is_never_a_question(kind: MessageKind, chat: TeamsChat, *, is_called: bool) -> None:
    """Else Harken would remind its person of what they said."""
    draft = said(chat, MENTION if is_called else None, by=Sender(ME), kind=kind)
    assert not draft.is_question
    assert draft.is_answer is (kind is MessageKind.MESSAGE)
