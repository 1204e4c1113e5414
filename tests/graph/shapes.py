"""What the service holds, as the JSON of the documented samples: same names, same nesting, same null values.

Pure: values in, values out. It decides nothing about who may see what; the routes do.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final
from urllib.parse import quote

from selectolax.lexbor import LexborHTMLParser

from tests.graph.clock import second, stamp
from tests.graph.world import Chat, ChatMessage, Json, Mail, Person, World

NEVER_READ: Final = "0001-01-01T00:00:00Z"
PREVIEW_CHARACTERS: Final = 255
_BODY_NAMES: Final = frozenset({"body", "bodyPreview", "uniqueBody"})


def _when(at: datetime | None) -> str | None:
    return stamp(at) if at else None


def _identity(person: Person) -> Json:
    if person.is_bot:
        return {"id": person.id, "displayName": person.name, "applicationIdentityType": "bot"}
    return {"id": person.id, "displayName": person.name, "userIdentityType": "aadUser"}


def from_whom(sender: Person | None) -> Json | None:
    """Who wrote: a user, an application, or nobody for an event of the system."""
    if sender is None:
        return None
    kind, other = ("application", "user") if sender.is_bot else ("user", "application")
    return {other: None, "device": None, kind: _identity(sender)}


def chat_message(chat: Chat, message: ChatMessage, *, knows_events: bool) -> Json:
    """One message; events go by a neutral type unless the request said that it knows newer ones."""
    kind = "message"
    if message.event is not None:
        kind = "systemEventMessage" if knows_events else "unknownFutureValue"
    return {
        "id": message.id,
        "replyToId": None,
        "etag": str(int(message.modified.timestamp() * 1000)),
        "messageType": kind,
        "createdDateTime": stamp(message.created),
        "lastModifiedDateTime": stamp(message.modified),
        "lastEditedDateTime": _when(message.edited),
        "deletedDateTime": _when(message.deleted),
        "subject": None,
        "summary": None,
        "chatId": chat.id,
        "importance": "normal",
        "locale": "en-us",
        "webUrl": None,
        "channelIdentity": None,
        "policyViolation": None,
        "eventDetail": message.event,
        "from": from_whom(message.sender),
        "body": {"contentType": message.content_type, "content": message.html},
        "attachments": list(message.attachments),
        "mentions": list(message.mentions),
        "reactions": list(message.reactions),
        "messageHistory": [],
    }


def renamed(chat: Chat, by: Person, topic: str) -> Json:
    """The detail of the event that a chat was renamed."""
    return {
        "@odata.type": "#microsoft.graph.chatRenamedEventMessageDetail",
        "chatId": chat.id,
        "chatDisplayName": topic,
        "initiator": {
            "application": None,
            "device": None,
            "user": {"id": by.id, "displayName": None, "userIdentityType": "aadUser"},
        },
    }


def preview(message: ChatMessage) -> Json:
    """What the list of chats says about the last message."""
    return {
        "id": message.id,
        "createdDateTime": stamp(message.created),
        "isDeleted": message.deleted is not None,
        "messageType": "systemEventMessage" if message.event else "message",
        "eventDetail": message.event,
        "body": {"contentType": message.content_type, "content": message.html},
        "from": from_whom(message.sender),
    }


def chat(held: Chat, tenant: str, expanded: Collection[str]) -> Json:
    """One chat, with the properties that the request asked to expand."""
    shown: Json = {
        "id": held.id,
        "topic": held.topic,
        "createdDateTime": stamp(held.created),
        "lastUpdatedDateTime": stamp(held.updated),
        "chatType": held.kind,
        "webUrl": f"https://teams.microsoft.com/l/chat/{quote(held.id, safe='')}/0?tenantId={tenant}",
        "tenantId": tenant,
        "onlineMeetingInfo": None,
        "viewpoint": {"isHidden": False, "lastMessageReadDateTime": NEVER_READ},
        "isHiddenForAllMembers": False,
    }
    if "lastMessagePreview" in expanded:
        shown["lastMessagePreview"] = preview(held.last) if held.last else None
    return shown


def mail_id(mail: Mail, *, is_immutable: bool) -> str:
    """The id of a mail: one that stays, or one that changes with every move."""
    name = f"{mail.number:08d}" if is_immutable else f"{mail.number:08d}:{mail.folder}:{mail.moves}"
    head = "AAkAL" if is_immutable else "AAMkAD"
    return head + base64.urlsafe_b64encode(name.encode()).decode()


def mail_number(text: str) -> int:
    """The number of the mail that an id is about, whether the id still holds or not; 0 for what is no id."""
    with contextlib.suppress(ValueError):
        name = base64.urlsafe_b64decode(text.removeprefix("AAkAL").removeprefix("AAMkAD")).decode()
        return int(name.partition(":")[0])
    return 0


def address(person: Person) -> Json:
    """A person as mail names them."""
    return {"emailAddress": {"name": person.name, "address": person.address}}


def plain(html: str) -> str:
    """Markup as text, as the service makes it for previews."""
    body = LexborHTMLParser(html).body
    return " ".join(body.text(separator=" ").split()) if body else ""


def _body(mail: Mail, *, as_text: bool) -> Json:
    if as_text and mail.content_type == "html":
        return {"contentType": "text", "content": plain(mail.html)}
    return {"contentType": mail.content_type, "content": mail.html}


def mail(held: Mail, world: World, *, is_immutable: bool, as_text: bool = False) -> Json:
    """One mail with everything that a plain request gets."""
    key = f"CQAAABYAAA{held.number:08d}{held.version:04d}"
    shown_id = mail_id(held, is_immutable=is_immutable)
    return {
        "@odata.etag": f'W/"{key}"',
        "id": shown_id,
        "createdDateTime": second(held.received),
        "lastModifiedDateTime": second(held.modified),
        "changeKey": key,
        "categories": [],
        "receivedDateTime": second(held.received),
        "sentDateTime": second(held.received),
        "hasAttachments": held.has_attachments,
        "internetMessageId": held.internet_id,
        "subject": held.subject,
        "bodyPreview": plain(held.html)[:PREVIEW_CHARACTERS],
        "importance": "normal",
        "parentFolderId": world.folder_ids[held.folder],
        "conversationId": held.conversation,
        "isDeliveryReceiptRequested": False,
        "isReadReceiptRequested": False,
        "isRead": held.is_read,
        "isDraft": held.is_draft,
        "webLink": f"https://outlook.office365.com/owa/?ItemID={quote(shown_id, safe='')}&exvsurl=1",
        "inferenceClassification": "focused",
        "body": _body(held, as_text=as_text),
        "sender": address(held.sender),
        "from": address(held.sender),
        "toRecipients": [address(person) for person in held.to],
        "ccRecipients": [address(person) for person in held.copies],
        "bccRecipients": [],
        "replyTo": [address(person) for person in held.reply_to],
        "flag": {"flagStatus": "notFlagged"},
        **held.extra,
    }


def selected(shown: Json, wanted: Collection[str], held: Mail) -> Json:
    """Only what `$select` names; the id comes always, the headers and the unique body only when named."""
    if not wanted:
        return shown
    offered = {**shown, "internetMessageHeaders": list(held.headers), "uniqueBody": shown.get("body")}
    kept = {"id", "@odata.etag", "@odata.type", *wanted}
    return {name: value for name, value in offered.items() if name in kept}


def without_body(shown: Json) -> Json:
    """A mail as someone sees it who may read only its outside."""
    return {name: value for name, value in shown.items() if name not in _BODY_NAMES}


def collection(context: str, items: Iterable[Json]) -> Json:
    """The envelope of a list."""
    return {"@odata.context": context, "value": list(items)}
