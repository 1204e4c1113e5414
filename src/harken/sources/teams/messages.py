"""What is written in a chat of Teams, as drafts, and what is answered there, as HTML. Pure.

The first part reads what Graph tells of chats and messages; for any shape the result is a value or nothing. The second
makes the content of an answer: Markdown of an agent as the few tags that Teams shows.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from harken.errors import UserError
from harken.model import Draft, Message, MessageId, MessageKind, Priority, Sender, TextFormat
from harken.sources.answers import closing_line, to_html
from harken.sources.microsoft.sent import reference
from harken.sources.payload import Json, items, json_object, text_of, within

CHANNEL: Final = "teams"
MAX_ATTACHMENTS: Final = 20
MAX_NAME_CHARS: Final = 200
MAX_QUOTE_CHARS: Final = 4_000
MAX_MILLIS: Final = 200_000_000_000_000  # beyond, a time cannot be reckoned with

_QUOTES: Final = frozenset({"messageReference", "forwardedMessageReference"})
_CARD: Final = "application/vnd.microsoft.card."
_AT: Final = re.compile(r'<at\s{1,5}id="[^"<>]{1,40}"\s{0,5}>(?=\s{0,5}(@?))|</at\s{0,5}>', re.IGNORECASE)
_PLACE: Final = re.compile(r'<attachment\s{1,5}id="([^"<>]{1,200})"\s{0,5}/?>(?:\s{0,9}</attachment>)?', re.IGNORECASE)
_URGENT: Final = frozenset({"high", "urgent"})
_ONE_ON_ONE: Final = "oneOnOne"
_BY_TWO: Final = "@unq.gbl.spaces"  # how the id of such a chat ends
_HIDDEN: Final = "<p>[A policy of the organisation hides this message. Read it in Teams.]</p>"
_EMPTY: Final = "<p>[This message has no text that can be shown. Read it in Teams.]</p>"

MAX_BYTES: Final = 28_000
MAX_MENTION_CHARS: Final = 100
NOT_ANSWERED: Final = "Not answered yet."
ANSWERED_ELSEWHERE: Final = "Answered in another message."

_FOR_A_PERSON: Final = "Written by an AI agent on my behalf."
_WITH_MANY: Final = frozenset({"group", "meeting"})
_PARAGRAPH: Final = "<p>"


@dataclass(frozen=True, slots=True)
class TeamsChat:
    """A chat as the list shows it. `gate` differs whenever its messages have to be read again."""

    id: str
    topic: str = ""
    kind: str = ""
    gate: str = ""
    last_at: int = 0  # when its last message was written, in milliseconds
    last_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message with its times in milliseconds."""

    id: str
    created: int
    modified: int
    is_deleted: bool
    is_edited: bool
    json: Json
    edited: int = 0  # when its text was last changed: a reaction changes only `modified`


def read_chat(json: Json) -> TeamsChat | None:
    """Return a chat of the list, or nothing if it has no id."""
    chat_id = text_of(json, "id")
    if not chat_id:
        return None
    preview = within(json, "lastMessagePreview")
    gate = ".".join(
        (
            text_of(preview, "id"),
            "x" if preview.get("isDeleted") is True else "",
            str(millis(text_of(json, "lastUpdatedDateTime"))),
        )
    )
    return TeamsChat(
        chat_id,
        topic=text_of(json, "topic"),
        kind=text_of(json, "chatType"),
        gate=gate,
        last_at=millis(text_of(preview, "createdDateTime")),
        last_id=text_of(preview, "id"),
    )


def read_message(json: Json) -> ChatMessage | None:
    """Return a message with its times, or nothing if it has no id or no time."""
    message_id, created = text_of(json, "id"), millis(text_of(json, "createdDateTime"))
    if not message_id or not created:
        return None
    deleted, edited = text_of(json, "deletedDateTime"), text_of(json, "lastEditedDateTime")
    modified = max(created, *(millis(each) for each in (text_of(json, "lastModifiedDateTime"), edited, deleted)))
    return ChatMessage(
        message_id,
        created,
        modified,
        is_deleted=bool(deleted),
        is_edited=bool(edited),
        json=json,
        edited=millis(edited),
    )


def sender_of(json: Json) -> Sender | None:
    """Return who wrote a message, by id; nothing for what the system says."""
    if text_of(json, "messageType") not in {"message", ""}:
        return None
    origin = within(json, "from")
    for kind in ("user", "application", "device"):
        who = within(origin, kind)
        if identifier := text_of(who, "id"):
            return Sender(id=identifier, name=text_of(who, "displayName"))
    return None


def is_bot(json: Json) -> bool:
    """Whether a program wrote it, as the service says, not as its name does."""
    return bool(within(within(json, "from"), "application"))


def upstream_id(chat_id: str, message_id: str) -> str:
    """Return how a message is known: ids of messages are unique in their chat only."""
    return f"{chat_id}/{message_id}"


def chat_draft(
    written: ChatMessage, *, source: str, chat: TeamsChat, sender: Sender, kind: MessageKind, me: str
) -> Draft:
    """Return a message as a draft."""
    json = written.json
    own_id = upstream_id(chat.id, written.id)
    refers_to = own_id if kind is not MessageKind.MESSAGE else _quoted_id(chat.id, json)
    at = {MessageKind.MESSAGE: written.created, MessageKind.EDIT: written.edited or written.modified}.get(
        kind, written.modified
    )
    text, text_format = ("", TextFormat.PLAIN) if kind is MessageKind.DELETION else _text(json)
    return Draft(
        source=source,
        sender=sender,
        text=text,
        upstream_id=own_id,
        channel=CHANNEL,
        conversation=chat.id,
        thread=chat.id,
        kind=kind,
        refers_to=refers_to,
        format=text_format,
        sent_at=datetime.fromtimestamp(at / 1000, UTC),
        priority=Priority.HIGH if text_of(json, "importance") in _URGENT else Priority.NORMAL,
        meta=_meta(json, chat, me),
        is_question=kind is MessageKind.MESSAGE and _expects_answer(json, chat, sender, me),
        is_answer=kind is MessageKind.MESSAGE and bool(me) and sender.id == me,
    )


def _expects_answer(json: Json, chat: TeamsChat, sender: Sender, me: str) -> bool:
    """Whether its sender waits for this account: they are alone with it, or call it by name."""
    if not me or sender.id == me or is_bot(json):
        return False
    is_alone = chat.kind == _ONE_ON_ONE or (not chat.kind and chat.id.endswith(_BY_TWO))
    return is_alone or me in _mentioned(json)


def millis(stamp: str) -> int:
    """Return a time stamp in milliseconds since 1970, 0 if it is none."""
    try:
        at = datetime.fromisoformat(stamp)
        # Whole numbers: a fraction would be rounded differently in the filter and in the answer.
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return 0
    found = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    return found if 0 <= found < MAX_MILLIS else 0


def _text(json: Json) -> tuple[str, TextFormat]:
    if "blockAccess" in text_of(within(json, "policyViolation"), "dlpAction"):
        return _HIDDEN, TextFormat.HTML
    body = within(json, "body")
    content = text_of(body, "content")
    if text_of(body, "contentType") != "html":
        content = "<p>" + html.escape(content).replace("\n", "<br>") + "</p>" if content else ""
    subject = " ".join(text_of(json, "subject").split())
    head = f"<p>{html.escape(subject)}</p>" if subject else ""
    whole = head + _with_attachments(_AT.sub(_at, content), items(json, "attachments")[:MAX_ATTACHMENTS])
    return whole or _EMPTY, TextFormat.HTML


def _at(tag: re.Match[str]) -> str:
    """Return the sign before a name; none where it has one, and none behind it."""
    return "" if tag[1] is None or tag[1] else "@"


def _with_attachments(content: str, attachments: Sequence[Json]) -> str:
    shown = {text_of(each, "id"): _shown(each) for each in attachments}
    placed: set[str] = set()

    def put(match: re.Match[str]) -> str:
        key = match[1]
        if key in placed:
            return ""
        placed.add(key)
        return shown.get(key, "")

    content = _PLACE.sub(put, content)
    return content + "".join(each for key, each in shown.items() if key not in placed)


def _shown(attachment: Json) -> str:
    kind, name = text_of(attachment, "contentType"), _name(text_of(attachment, "name"))
    content = json_object(text_of(attachment, "content").encode("utf-8", "replace"))
    if kind in _QUOTES:
        original = text_of(content, "messagePreview") or text_of(content, "originalMessageContent")
        sender = within(content, "messageSender") or within(content, "originalMessageSender")
        who = text_of(within(sender, "user"), "displayName") or text_of(within(sender, "application"), "displayName")
        said = html.escape(original[:MAX_QUOTE_CHARS]) or "[a message that cannot be shown]"
        return f"<blockquote>{html.escape(_name(who)) or 'Someone'} wrote: {said}</blockquote>"
    if kind.startswith(_CARD):
        title = name or text_of(content, "title") or text_of(content, "text") or text_of(content, "fallbackText")
        return f"<p>[card: {html.escape(_name(title)) or 'without a title'}]</p>"
    return f"<p>[attachment: {html.escape(name) or 'without a name'}]</p>"


def _name(text: str) -> str:
    """Return a name on one line: in markup some line ends count that no browser would show."""
    return " ".join(text[: 4 * MAX_NAME_CHARS].split())[:MAX_NAME_CHARS]


def _quoted_id(chat_id: str, json: Json) -> str:
    for each in items(json, "attachments")[:MAX_ATTACHMENTS]:
        if text_of(each, "contentType") == "messageReference":
            quoted = text_of(json_object(text_of(each, "content").encode("utf-8", "replace")), "messageId") or text_of(
                each, "id"
            )
            return upstream_id(chat_id, quoted) if quoted else ""
    return ""


def _meta(json: Json, chat: TeamsChat, me: str) -> dict[str, str]:
    attachments = items(json, "attachments")[:MAX_ATTACHMENTS]
    names = [name for each in attachments if (name := _name(text_of(each, "name")))]
    meta = {
        "topic": chat.topic[:MAX_NAME_CHARS],
        "chat_type": chat.kind,
        "attachments": ", ".join(names),
        "mentions_me": "true" if me and me in _mentioned(json) else "",
        "bot": "true" if is_bot(json) else "",
        "url": text_of(json, "webUrl"),
    }
    return {name: value for name, value in meta.items() if value}


def _mentioned(json: Json) -> list[str]:
    return [text_of(within(within(each, "mentioned"), "user"), "id") for each in items(json, "mentions")]


@dataclass(frozen=True, slots=True)
class ReplyContent:
    """A text to be written, and the person it names. `plain` has no name, for where that is refused."""

    html: str
    plain: str
    mentions: tuple[Mapping[str, object], ...] = ()

    @property
    def json(self) -> Json:
        """The body of a request."""
        body: dict[str, object] = {"body": {"contentType": "html", "content": self.html}}
        return {**body, "mentions": list(self.mentions)} if self.mentions else body

    @property
    def plain_json(self) -> Json:
        """The body of a request that names no person."""
        return {"body": {"contentType": "html", "content": self.plain}}


def answer(body: str, mark: str, *, is_for_person: bool, named: Sender | None = None) -> ReplyContent:
    """Return an answer that ends with its reference, and with the word that an agent wrote it for a person.

    Raises `UserError` if it is empty or too long.
    """
    if not body.strip():
        raise UserError("The reply is empty.", "write something")
    plain = to_html(body) + _closing(mark, is_for_person=is_for_person)
    size = len(plain.encode())
    if size > MAX_BYTES:
        raise UserError(
            f"The reply is too long for Teams: {size} bytes, {MAX_BYTES} fit.", "shorten it, or send it in parts"
        )
    if named is None:
        return ReplyContent(plain, plain)
    tag = f'<at id="0">{escape(named.name)}</at>'
    rest = plain.removeprefix(_PARAGRAPH)
    html = f"{_PARAGRAPH}{tag} {rest}" if rest != plain else f"{_PARAGRAPH}{tag}</p>{plain}"
    if len(html.encode()) > MAX_BYTES:
        return ReplyContent(plain, plain)
    user = {"displayName": named.name, "id": named.id, "userIdentityType": "aadUser"}
    return ReplyContent(html, plain, ({"id": 0, "mentionText": named.name, "mentioned": {"user": user}},))


def standing_in(text: str, mark: str, *, is_for_person: bool) -> ReplyContent:
    """Return a short plain text that stands where an answer will be."""
    html = f"<p>{escape(text, quote=False)}</p>{_closing(mark, is_for_person=is_for_person)}"
    return ReplyContent(html, html)


def place_mark(message: MessageId) -> str:
    """Return the reference of what stands in the place of an answer to a message."""
    return reference(f"placeholder:{message}")


def whom_to_name(message: Message, me: str) -> Sender | None:
    """Return the person an answer to a message names: its sender, where others read along who could feel meant."""
    sender = message.sender
    name = " ".join("".join(char if char.isprintable() else " " for char in sender.name).split())[:MAX_MENTION_CHARS]
    is_person = "bot" not in message.meta and bool(sender.id) and sender.id != me
    if message.meta.get("chat_type") not in _WITH_MANY or not is_person or not name:
        return None
    return Sender(id=sender.id, name=name)


def _closing(mark: str, *, is_for_person: bool) -> str:
    return closing_line(f"{_FOR_A_PERSON} {mark}" if is_for_person else mark)
