"""What is said to a bot, as a draft, with the reference that an answer needs. Pure.

An activity has the shape that the Bot Connector documents, or any other: either way the result is a value or an error
of ours. Above are the door and the sender.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from harken.errors import Forbidden, UserError
from harken.memory import json_bytes
from harken.model import Draft, Message, MessageKind, Priority, Sender, TextFormat
from harken.sources.bot.settings import TEAMS
from harken.sources.payload import Json, iso_moment, items, text_of, within

# Printable, without spaces and brackets: what an inbox would have to change is no id here.
ID: Final = re.compile(r"[!-;=?-~]{1,400}")

_GROUP: Final = "true"

CHANNEL: Final = "teams"
MAX_MENTIONS: Final = 50
MAX_ATTACHMENTS: Final = 20
MAX_NAME_CHARS: Final = 200
KINDS: Final[Mapping[str, MessageKind]] = {
    "message": MessageKind.MESSAGE,
    "messageUpdate": MessageKind.EDIT,
    "messageDelete": MessageKind.DELETION,
}

_AT: Final = re.compile(r"<at(?:\s[^<>]{0,200})?>([^<>]{0,500})</at>")
_CARD: Final = "application/vnd.microsoft.card."
_URGENT: Final = frozenset({"high", "urgent"})
_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,59}")
_NO_TEXT: Final = "[a message without a text]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationReference:
    """What an answer needs besides the conversation and the activity."""

    service_url: str
    channel_id: str = ""
    bot: str = ""
    user: str = ""
    is_group: bool = False

    def as_meta(self) -> dict[str, str]:
        """Return it as it is kept."""
        return {
            "service_url": self.service_url,
            "channel_id": self.channel_id,
            "bot": self.bot,
            "user": self.user,
            "group": _GROUP if self.is_group else "",
        }

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> Self:
        """Read what is kept; what is not as it was is left out."""
        kept = {key: meta[key] for key in ("channel_id", "bot", "user") if ID.fullmatch(meta.get(key, ""))}
        return cls(service_url=meta.get("service_url", ""), is_group=meta.get("group") == _GROUP, **kept)


def upstream_id(conversation_id: str, activity_id: str) -> str:
    """Return how a message is known: ids of activities are unique in their conversation only."""
    return f"{conversation_id}/{activity_id}"


def activity_id_of(message: Message) -> str:
    """Return the activity that a stored message was; raises `Forbidden` if its conversation is not the one it says."""
    conversation, upstream = message.conversation, message.upstream_id
    activity_id = upstream.removeprefix(f"{conversation}/")
    if not ID.fullmatch(conversation) or activity_id == upstream or not ID.fullmatch(activity_id):
        raise Forbidden("This message does not say which conversation it came from.", "answer it where it came from")
    return activity_id


@dataclass(frozen=True, slots=True, kw_only=True)
class BotActivity:
    """One thing that happened in a conversation, as the service tells it."""

    type: str
    channel_id: str
    service_url: str
    tenants: frozenset[str] = frozenset()  # each place that names one; they should agree
    json: Json = field(default_factory=dict[str, object], repr=False)


def read_activity(body: bytes) -> BotActivity:
    """Return what was posted; raises `UserError` if it is no activity."""
    try:
        json = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _unreadable("it is no JSON") from None
    if not isinstance(json, dict):
        raise _unreadable("it is no object")
    kind = text_of(json, "type")
    if not _TYPE.fullmatch(kind):
        raise _unreadable("it has no type")
    data = within(json, "channelData")
    named = (text_of(within(data, "tenant"), "id"), text_of(within(json, "conversation"), "tenantId"))
    return BotActivity(
        type=kind,
        channel_id=text_of(json, "channelId"),
        service_url=text_of(json, "serviceUrl"),
        tenants=frozenset(each.lower() for each in named if each),
        json=json,
    )


def draft_of(activity: BotActivity, source: str) -> Draft | None:
    """Return a message as a draft, nothing for another activity; raises `UserError` for half a message."""
    json = activity.json
    kind = KINDS.get(activity.type)
    if kind is None:
        return None
    conversation, author, bot = within(json, "conversation"), within(json, "from"), within(json, "recipient")
    conversation_id, activity_id = _id(conversation, "conversation"), _id(json, "activity")
    author_id = text_of(author, "id") if kind is MessageKind.DELETION else _id(author, "sender")
    if author_id and author_id == text_of(bot, "id"):
        return None
    own_id = upstream_id(conversation_id, activity_id)
    text, text_format = ("", TextFormat.PLAIN) if kind is MessageKind.DELETION else _text(json)
    replied = text_of(json, "replyToId")
    is_answer = kind is MessageKind.MESSAGE and bool(ID.fullmatch(replied))
    return Draft(
        source=source,
        sender=_sender(activity, author, author_id),
        text=text,
        upstream_id=own_id,
        channel=CHANNEL if activity.channel_id == TEAMS else activity.channel_id,
        conversation=conversation_id,
        thread=conversation_id,
        kind=kind,
        refers_to=own_id
        if kind is not MessageKind.MESSAGE
        else upstream_id(conversation_id, replied)
        if is_answer
        else "",
        format=text_format,
        sent_at=iso_moment(text_of(json, "timestamp")[:40]),
        priority=Priority.HIGH if text_of(json, "importance").lower() in _URGENT else Priority.NORMAL,
        meta=_meta(activity, author_id),
        is_question=kind is MessageKind.MESSAGE,  # whoever speaks to a bot wants to hear something
    )


def _id(json: Json, what: str) -> str:
    found = text_of(json, "id")
    if not ID.fullmatch(found):
        raise _unreadable(f"the id of its {what} is missing or cannot be one")
    return found


def _sender(activity: BotActivity, author: Json, author_id: str) -> Sender:
    """Return who said it. Only Teams vouches for a person's id in the directory; elsewhere visitors name themselves."""
    name = text_of(author, "name")[:MAX_NAME_CHARS]
    if activity.channel_id != TEAMS:
        return Sender(f"{activity.channel_id}:{author_id}", name)
    directory_id = text_of(author, "aadObjectId").lower()
    return Sender(directory_id if ID.fullmatch(directory_id) else author_id or "unknown", name)


def _text(json: Json) -> tuple[str, TextFormat]:
    is_markup = text_of(json, "textFormat") == "xml"
    text = _without_mentions(json).replace("&nbsp;", " ").replace("\xa0", " ").strip()
    notes = [note for each in items(json, "attachments")[:MAX_ATTACHMENTS] if (note := _attachment(each))]
    if not text and json.get("value") is not None:
        notes.insert(0, f"[answer to a card: {_shown(json['value'])}]")
    if is_markup:
        # In markup a name could close what it stands in; what is left of it is enough to find the file.
        notes = [f"<p>{re.sub(r'[<>&]', ' ', note)}</p>" for note in notes]
    whole = "\n".join(filter(None, (text, *notes))) or _NO_TEXT
    return whole, TextFormat.HTML if is_markup else TextFormat.PLAIN


def _without_mentions(json: Json) -> str:
    """Return the text with people called by their names, and without the call of the bot itself."""
    text, bot = text_of(json, "text"), text_of(within(json, "recipient"), "id")
    for entity in items(json, "entities")[:MAX_MENTIONS]:
        mark, mentioned = text_of(entity, "text"), within(entity, "mentioned")
        if text_of(entity, "type") != "mention" or not _AT.fullmatch(mark):
            continue
        name = "" if bot and text_of(mentioned, "id") == bot else _called(text_of(mentioned, "name") or mark)
        text = text.replace(mark, name, 1)
    return _AT.sub(lambda found: _called(found[1]), text)


def _called(name: str) -> str:
    return "@" + _AT.sub(lambda found: found[1], name)[:MAX_NAME_CHARS].strip().removeprefix("@")


def _attachment(json: Json) -> str:
    kind, name = text_of(json, "contentType"), _line(text_of(json, "name"))
    if kind == "text/html" and not name:
        return ""  # the same text once more, with its markup
    if kind.startswith(_CARD):
        content = within(json, "content")
        title = name or _line(text_of(content, "title") or text_of(content, "text") or text_of(content, "fallbackText"))
        return f"[card: {title or 'without a title'}]"
    return f"[attachment: {name or ('a picture' if kind.startswith('image') else 'without a name')}]"


def _meta(activity: BotActivity, author_id: str) -> dict[str, str]:
    json = activity.json
    conversation, data = within(json, "conversation"), within(json, "channelData")
    kind = text_of(conversation, "conversationType")
    reference = ConversationReference(
        service_url=activity.service_url,
        channel_id=activity.channel_id,
        bot=text_of(within(json, "recipient"), "id"),
        user=author_id,
        is_group=conversation.get("isGroup") is True or kind in {"groupChat", "channel"},
    )
    names = [_line(text_of(each, "name")) for each in items(json, "attachments")[:MAX_ATTACHMENTS]]
    meta = {
        **reference.as_meta(),
        "chat_type": kind[:MAX_NAME_CHARS],
        "tenant": min(activity.tenants, default=""),
        "topic": _line(text_of(conversation, "name") or text_of(within(data, "team"), "name")),
        "locale": text_of(json, "locale")[:40],
        "attachments": ", ".join(filter(None, names)),
    }
    return {name: value for name, value in meta.items() if value}


def _line(text: str) -> str:
    return " ".join(text[: 4 * MAX_NAME_CHARS].split())[:MAX_NAME_CHARS]


def _shown(value: object) -> str:
    try:
        return json_bytes(value).decode()
    except (msgspec.MsgspecError, RecursionError):
        return "…"


def _unreadable(why: str) -> UserError:
    return UserError(f"The post is not an activity: {why}.", "post what the Bot Connector posts")
