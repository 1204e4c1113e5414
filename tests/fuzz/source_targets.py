"""The targets at the sources: posts of services, mails, and what Microsoft answers, read and made messages of.

Anybody can reach these with any bytes. Each is an answer or one of our own errors, and whatever is let in can be
stored, and answered where it is meant to be.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import SMTP
from types import MappingProxyType
from typing import Any, Final, TypeVar

from harken.errors import Forbidden, HarkenError, UserError
from harken.ingest.policy import IngestPolicy
from harken.ingest.prepare import prepare
from harken.model import Draft, Message, MessageId, MessageKind, NewMessage, OutgoingReply
from harken.sources.bot.activity import draft_of as activity_draft
from harken.sources.bot.activity import read_activity
from harken.sources.bot.door import read_bearer
from harken.sources.bot.settings import BotSettings
from harken.sources.http import HttpAnswer
from harken.sources.imap.messages import UNVERIFIED, ArrivedMail
from harken.sources.imap.messages import draft_of as mail_draft
from harken.sources.imap.sender import compose
from harken.sources.imap.settings import ImapSettings, is_address
from harken.sources.microsoft.notifications import NoticeDoor, NoticeListener
from harken.sources.microsoft.responses import ResponseDone, verdict_of
from harken.sources.outlook import mail as outlook
from harken.sources.payload import items
from harken.sources.source import DoorAnswer, PostedRequest
from harken.sources.teams import messages as teams
from harken.sources.webhook.settings import read_settings
from harken.sources.webhook.source import WebhookSource
from tests.builders import a_message
from tests.fuzz.ingest_targets import is_storable
from tests.fuzz.target import Judge, Target, letter, must, plain
from tests.sources.webhook.rig import NOW, RAW_KEY, SECRET, SIGNERS, STANDARD_SECRET, Kept, StillClock

Result = TypeVar("Result")

KEPT: Final = "env:X"
BOT_APP: Final = "11111111-2222-3333-4444-555555555555"
STATUSES: Final = frozenset({200, 202, 415})
HEADERS: Final = frozenset(
    {"from", "to", "subject", "date", "message-id", "in-reply-to", "references", "mime-version", "content-type"}
)
EXPRESSIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"text": "message.text", "channel": "kind", "sender": "who", "id": "join('', ids)"}
)
_ACCOUNT: Final = ImapSettings(
    name="mail",
    host="imap.example.org",
    user="me@example.org",
    password=KEPT,
    smtp_host="smtp.example.org",
    address="me@example.org",
)
_HEADER_LINE: Final = re.compile(rb"^([!-9;-~]+):", re.MULTILINE)


def done(work: Coroutine[Any, Any, Result]) -> Result:
    """Run something that is async by its form only: nothing here waits for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise AssertionError("it waits for something")


def stored(draft: Draft) -> NewMessage:
    """Make a message of a draft and look whether it can be kept."""
    message = prepare(draft, IngestPolicy())
    is_storable(message)
    return message


@contextmanager
def _webhooks() -> Iterator[Judge]:
    sources = {name: webhook(name) for name in SIGNERS}

    def judge(data: bytes) -> str:
        said = letter(data)
        name = said.chosen(sorted(SIGNERS))
        key = RAW_KEY if name == "standard" else SECRET.encode()
        signed = {} if said.headers.get("signed") == "no" else SIGNERS[name](said.body, key)
        posted = PostedRequest(headers={"content-type": "application/json", **signed, **said.headers}, body=said.body)
        (door,) = sources[name].doors()
        kept = Kept()
        try:
            answer: DoorAnswer = done(door.take(posted, kept.accept))
        except Forbidden:
            must(not signed or _is_overridden(signed, said.headers), "what is signed was refused", said)
            return "refused"
        except UserError:
            return "unreadable"
        must(answer.status in STATUSES, "an answer that is none", answer)
        must(signed, "taken without a signature", said)
        for draft in kept.drafts:
            stored(draft)
        sources[name].health()
        return "stored" if kept.drafts else f"answered {answer.status}"

    yield judge


def _is_overridden(signed: Mapping[str, str], said: Mapping[str, str]) -> bool:
    return any(said.get(name, value) != value for name, value in signed.items())


def webhook(name: str) -> WebhookSource:
    """Return a webhook of that preset."""
    more = EXPRESSIONS if name == "generic" else {}
    settings = read_settings(name, {"kind": "webhook", "preset": name, "secret": KEPT, **more})
    keys = settings.preset.keys(STANDARD_SECRET if name == "standard" else SECRET)
    return WebhookSource(settings, keys, StillClock())


def _activity(data: bytes) -> str:
    said = letter(data)
    settings = BotSettings(name="bot", app_id=BOT_APP, secret=KEPT, tenant="t")
    try:
        bearer = read_bearer(said.headers.get("authorization", ""), settings, NOW)
    except Forbidden:
        bearer = None
    try:
        draft = activity_draft(read_activity(said.body), "bot")
    except UserError:
        return "unreadable" if bearer is None else "token"
    if draft is None:
        return "left out"
    message = stored(draft)
    must(message.conversation == draft.conversation, "the conversation cannot be answered", draft.conversation)
    must(message.upstream_id == draft.upstream_id, "the id is another one", draft.upstream_id)
    return "stored"


def _mail(data: bytes) -> str:
    message = _read_mail(data)
    return (
        "unproven" if message.sender.id.startswith(UNVERIFIED) else "proven" if "@" in message.sender.id else "nobody"
    )


def _read_mail(data: bytes) -> NewMessage:
    arrival = ArrivedMail(raw=data[1:], received_at=NOW, is_head_only=data[:1] == b"h")
    draft = mail_draft(arrival, source="mail", folder="INBOX", authserv_id="mx.example.org", addresses={"me@x.example"})
    message = stored(draft)
    must(message.upstream_id == draft.upstream_id, "the id is another one", draft.upstream_id)
    return message


def _reply(data: bytes) -> str:
    try:
        made = compose(OutgoingReply(key="k", to=_kept(_read_mail(data)), body="Thanks.", author="a"), _ACCOUNT, NOW)
    except (Forbidden, UserError):
        return "unanswerable"
    written = made.as_bytes(policy=SMTP)
    head = written.partition(b"\r\n\r\n")[0]
    names = [name.decode().lower() for name in _HEADER_LINE.findall(head)]
    must(set(names) <= HEADERS and len(names) == len(set(names)), "a header that nobody wrote", head)
    read = BytesParser(policy=SMTP).parsebytes(head, headersonly=True)
    must(all(is_address(each.addr_spec) for each in read["to"].addresses), "no address", head)
    return "answered"


def _kept(message: NewMessage) -> Message:
    return a_message(
        message.text,
        id=MessageId("m1"),
        received_at=NOW,
        source=message.source,
        sender=message.sender,
        trust=message.trust,
        attention=message.attention,
        channel=message.channel,
        conversation=message.conversation,
        upstream_id=message.upstream_id,
        meta=message.meta,
    )


def _graph(data: bytes) -> str:
    said = letter(data)
    kind = said.chosen(("mail", "chat", "notice", "list"))
    if kind == "notice":
        return _notice(said.headers, said.body)
    status = int(said.headers["status"]) if said.headers.get("status", "").isdecimal() else 200
    verdict = verdict_of("GET", HttpAnswer(status, said.headers, said.body), NOW, is_list=kind == "list")
    if not isinstance(verdict, ResponseDone):
        return "no answer"
    try:
        drafts = [*_mails(verdict.body)] if kind == "mail" else [*_chats(verdict.body)]
    except HarkenError:
        return "refused"
    for draft in drafts:
        stored(draft)
    return f"{kind} stored" if drafts else "nothing"


def _mails(body: Mapping[str, object]) -> Iterator[Draft]:
    outlook.is_invitation(body)
    draft = outlook.draft_of(body, source="outlook", folder="Inbox", addresses={"me@example.org"})
    if draft is not None:
        yield draft
    row = outlook.row_of(body)
    seen = outlook.draft_of(outlook.unread(row), source="outlook", folder="Inbox") if row else None
    if seen is not None:
        yield seen


def _chats(body: Mapping[str, object]) -> Iterator[Draft]:
    for chat_json in items(body):
        chat = teams.read_chat(chat_json)
        for json in items(chat_json, "messages"):
            written, sender = teams.read_message(json), teams.sender_of(json)
            teams.is_bot(json)
            if chat is None or written is None or sender is None:
                continue
            for kind in MessageKind:
                yield teams.chat_draft(written, source="teams", chat=chat, sender=sender, kind=kind, me="me")


def _notice(headers: Mapping[str, str], body: bytes) -> str:
    told: list[str] = []
    door = NoticeDoor("teams", [NoticeListener(lambda: "s3cret", told.append, told.append)])
    query = {"validationToken": headers["token"]} if "token" in headers else {}
    try:
        answer: DoorAnswer = done(door.take(PostedRequest(query=query, headers=headers, body=body), Kept().accept))
    except Forbidden:
        must(not told, "told by somebody else", body)
        return "refused"
    except UserError:
        return "unreadable"
    must(answer.media_type.startswith("text/plain") or not answer.body, "said back as something else", answer)
    must(bool(told) or "token" in headers, "nobody was told", body)
    return "told" if told else "said back"


JSON_TOKENS: Final = (b'"id":', b'"body":', b'"value":', b'"type":"message"', b'"from":', b"null", b"[]", b"{}", b'""')
MAIL_TOKENS: Final = (
    *(b"\r\n", b"Subject: ", b"From: ", b"To: me@x.example\r\n", b"Message-ID: <a@b>\r\n", b"References: <a@b>\r\n"),
    *(b"Content-Type: multipart/mixed; boundary=x\r\n", b"Content-Type: text/html; charset=utf-7\r\n", b"\r\n--x\r\n"),
    *(b"Content-Type: message/rfc822\r\n", b"Content-Type: text/calendar\r\n", b"BEGIN:VEVENT\r\n", b"--x--\r\n"),
    *(b"Content-Transfer-Encoding: base64\r\n", b"Content-Transfer-Encoding: quoted-printable\r\n", b"Reply-To: "),
    *(b"=?utf-8?q?a=0D=0AX=3A_y?=", b"=?utf-8?b?PT91dGYtOD9xP2E9MEQ9MEFYPTNBX3k/PQ==?=", b"Reply-To: <a@[b]>\r\n"),
    *(b"=?utf-8?b?4oCu?=", b"=?x?q?a?=", b"filename*0*=utf-8''%e2%80", b"charset*=utf-8''x", b"Auto-Submitted: x\r\n"),
)

TARGETS: Final = (
    Target(
        name="webhook",
        opened=_webhooks,
        reaches=frozenset({"stored", "refused", "unreadable", "answered 200", "answered 415"}),
        tokens=(b"signed: no\n", b"content-type: application/x-www-form-urlencoded\n", b"payload=%7B", *JSON_TOKENS),
        small_cases=600,
    ),
    Target(
        name="bot",
        opened=plain(_activity),
        reaches=frozenset({"stored", "left out", "unreadable"}),
        tokens=(b"authorization: Bearer ", b"eyJhbGciOiJSUzI1NiJ9.", b"<at>", b"</at>", *JSON_TOKENS),
    ),
    Target(
        name="graph",
        opened=plain(_graph),
        reaches=frozenset({"mail stored", "chat stored", "told", "said back", "refused", "no answer"}),
        tokens=(b"status: 429\n", b"retry-after: ", b"<attachment id=", b"<at id=", b"@removed", *JSON_TOKENS),
    ),
    Target(
        name="mail",
        opened=plain(_mail),
        reaches=frozenset({"proven", "unproven", "nobody"}),
        tokens=MAIL_TOKENS,
        most_bytes=8_192,
    ),
    Target(
        name="reply",
        opened=plain(_reply),
        reaches=frozenset({"answered", "unanswerable"}),
        tokens=MAIL_TOKENS,
        small_cases=200,
    ),
)
