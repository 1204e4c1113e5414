"""The chat part of the service: what may be asked of chats and messages, and what is silently ignored.

The rules are the documented ones: one order of chats, two of messages, both descending; a filter counts only with the
order of the same property; at most 50 to a page; no delta with a person's own sign-in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response

from tests.graph import shapes
from tests.graph.clock import moment
from tests.graph.faults import Fault
from tests.graph.limits import Limits
from tests.graph.subscriptions import Subscriptions
from tests.graph.wire import Call, Pages, Refusal, Route, answer, required_text
from tests.graph.world import Chat, ChatMessage, Json, World

MAX_TOP: Final = 50
DEFAULT_TOP: Final = 20
MAX_MESSAGE_BYTES: Final = 28 * 1024
CHATS_ORDER: Final = "lastmessagepreview/createddatetime desc"
EXPANDABLE: Final = {"lastmessagepreview": "lastMessagePreview"}
READ_BASIC: Final = ("Chat.ReadBasic", "Chat.Read", "Chat.ReadWrite")
READ: Final = ("Chat.Read", "Chat.ReadWrite")
SEND: Final = ("ChatMessage.Send", "Chat.ReadWrite")
WRITE: Final = ("Chat.ReadWrite",)
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)
_CLAUSE: Final = re.compile(r"(\w+)\s+(\w+)\s+(\S+)")
_FILTERS: Final = {
    ("lastmodifieddatetime", "gt"),
    ("lastmodifieddatetime", "lt"),
    ("createddatetime", "lt"),
}


@dataclass(frozen=True, slots=True)
class ChatPage:
    """Where a list of chats goes on: below this place in the order."""

    top: int
    expanded: tuple[str, ...]
    is_ordered: bool
    below: tuple[datetime, str] | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Where a list of messages goes on: below this place in the order, inside these bounds."""

    chat_id: str
    top: int
    by_created: bool
    bounds: tuple[tuple[str, str, datetime], ...] = ()
    below: tuple[datetime, str] | None = None


def read_top(query: Mapping[str, str]) -> int:
    """The size of a page that a request asks for."""
    text = query.get("$top", str(DEFAULT_TOP))
    if not text.isdigit() or not int(text):
        raise Refusal(400, "BadRequest", f"Invalid value '{text}' for $top query option.")
    if int(text) > MAX_TOP:
        message = f"The limit of '{MAX_TOP}' for Top query has been exceeded. The incoming request has '{text}'."
        raise Refusal(400, "BadRequest", message)
    return int(text)


def read_order(query: Mapping[str, str]) -> str:
    """The property that messages are ordered by; both orders are descending."""
    words = query.get("$orderby", "").lower().split()
    if not words:
        return ""
    if words[0] not in {"createddatetime", "lastmodifieddatetime"} or words[1:] != ["desc"]:
        raise Refusal(400, "BadRequest", "QueryOptions to order by is not supported: only descending, by a known time.")
    return words[0]


def read_filter(query: Mapping[str, str], order: str) -> tuple[tuple[str, str, datetime], ...]:
    """The bounds of a filter; without the order of the same property the whole filter is silently ignored."""
    text = query.get("$filter", "")
    clauses = [_CLAUSE.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", text)] if text else []
    found = [match.groups() for match in clauses if match]
    if not found or len(found) != len(clauses) or any(name.lower() != order for name, _, _ in found):
        return ()
    bounds = []
    for name, verb, value in found:
        if (name.lower(), verb.lower()) not in _FILTERS:
            raise Refusal(400, "BadRequest", f"The filter '{name} {verb}' is not supported on messages.")
        try:
            bounds.append((name.lower(), verb.lower(), moment(value)))
        except ValueError as exc:
            raise Refusal(400, "BadRequest", f"Invalid filter clause: '{value}' is no date.") from exc
    return tuple(bounds)


def check_body(body: Json) -> tuple[str, str, Sequence[Json]]:
    """Judge a message to be sent: its text, its type, its mentions."""
    content, kind = required_text(body, "body", "content"), required_text(body, "body", "contentType") or "text"
    mentions = body.get("mentions") or []
    if not content:
        raise Refusal(400, "BadRequest", "Missing body content.")
    if kind not in {"text", "html"}:
        raise Refusal(400, "BadRequest", f"Invalid value '{kind}' for contentType.")
    if len(content.encode()) > MAX_MESSAGE_BYTES:
        raise Refusal(413, "RequestEntityTooLarge", "Message size too large.")
    if not isinstance(mentions, list) or not all(isinstance(mention, dict) for mention in mentions):
        raise Refusal(400, "BadRequest", "Invalid mentions.")
    written = sorted(int(number) for number in re.findall(r'<at id="(\d+)"', content)) if kind == "html" else []
    named = sorted(mention["id"] for mention in mentions if isinstance(mention.get("id"), int))
    if written != named or len(named) != len(mentions):
        raise Refusal(400, "BadRequest", "The mentions do not match the <at> tags of the body.")
    if not all(mention.get("mentionText") and isinstance(mention.get("mentioned"), dict) for mention in mentions):
        raise Refusal(400, "BadRequest", "A mention needs mentionText and mentioned.")
    return content, kind, mentions


class Teams:
    """The routes of chats and their messages."""

    def __init__(self, world: World, limits: Limits, subscriptions: Subscriptions) -> None:
        self._world = world
        self._limits = limits
        self._subscriptions = subscriptions
        self.chat_pages: Pages[ChatPage] = Pages(world.new_id)
        self.message_pages: Pages[MessagePage] = Pages(world.new_id)
        self.lag_seconds = 0.0  # so long a message is in the list of chats only
        self.late_seconds = 20.0  # so much later a message is sent whose request was delayed

    def routes(self) -> list[Route]:
        """What can be asked; the first that fits answers."""
        chat = "/chats/([^/]+)"
        return [
            Route("GET", "(?:/me|/users/[^/]+)?/chats", READ_BASIC, self.list_chats),
            Route("GET", f"(?:/me)?{chat}/messages", READ, self.list_messages),
            Route("POST", f"(?:/me)?{chat}/messages", SEND, self.send),
            Route("PATCH", f"(?:/me)?{chat}/messages/([^/]+)", WRITE, self.update),
            # Only below a user; the path that starts with the chat is the next route, and is not allowed.
            Route("POST", f"(?:/me|/users/[^/]+){chat}/messages/([^/]+)/softDelete", WRITE, self.soft_delete),
            Route("-", f"{chat}/messages/([^/]+)/softDelete", WRITE, self.soft_delete),
        ]

    def _chat(self, call: Call) -> Chat:
        chat = self._world.chats.get(call.parts[0])
        if chat is None:
            raise Refusal(404, "NotFound", "NotFound")
        if call.grant.user not in chat.members:
            raise Refusal(403, "Forbidden", "User is not a member of the chat.")
        return chat

    def _message(self, call: Call) -> tuple[Chat, ChatMessage]:
        chat = self._chat(call)
        message = chat.messages.get(call.parts[1])
        if message is None:
            raise Refusal(404, "NotFound", "NotFound")
        return chat, message

    def _chat_page(self, call: Call) -> ChatPage:
        if token := call.query.get("$skiptoken"):
            return self.chat_pages.find(token)
        order = " ".join(call.query.get("$orderby", "").lower().split())
        if order not in {"", CHATS_ORDER}:
            raise Refusal(400, "BadRequest", "Only lastMessagePreview/createdDateTime desc can order chats.")
        if "$filter" in call.query:
            raise Refusal(400, "BadRequest", "This filter on chats is not supported.")
        asked = [name.strip() for name in call.query.get("$expand", "").split(",") if name.strip()]
        if any(name.lower() not in EXPANDABLE for name in asked):
            raise Refusal(400, "BadRequest", f"Parsing OData Select and Expand failed: {', '.join(asked)}.")
        return ChatPage(read_top(call.query), tuple(EXPANDABLE[name.lower()] for name in asked), bool(order))

    def _place(self, chat: Chat, page: ChatPage) -> tuple[datetime, str]:
        if not page.is_ordered:
            return (_BEGINNING, f"{self._world.dice.fraction('chats', chat.id):.12f}")
        return (chat.last.created if chat.last else _BEGINNING, chat.id)

    async def list_chats(self, call: Call) -> Response:
        """The chats of a person, by their last message or in no order that means anything."""
        self._limits.list_chats(call.grant.user.id)
        self._world.settle()
        page = self._chat_page(call)
        with self._world.lock:
            placed = [
                (self._place(chat, page), chat)
                for chat in self._world.chats.values()
                if call.grant.user in chat.members
            ]
            below = [pair for pair in placed if page.below is None or pair[0] < page.below]
            below.sort(key=lambda pair: pair[0], reverse=True)
            shown = below[: page.top]
            items = [shapes.chat(chat, self._world.tenant, page.expanded) for _, chat in shown]
        expanded = f"({','.join(f'{name}()' for name in page.expanded)})" if page.expanded else ""
        body = self._listed(call, call.context(f"chats{expanded}"), items)
        if len(below) > page.top:
            goes_on = page if call.fault is Fault.DUPLICATED else replace(page, below=shown[-1][0])
            path = "/me/chats" if "/me/" in call.request.url.path.lower() else "/chats"
            body["@odata.nextLink"] = call.link(path, skiptoken=self.chat_pages.keep(goes_on))
        return answer(body)

    def _listed(self, call: Call, context: str, items: Sequence[Json]) -> Json:
        if call.fault is Fault.REORDERED:
            items = self._world.dice.shuffled(items, "order", call.request.url.path, self._world.new_id())
        return {"@odata.context": context, "@odata.count": len(items), "value": list(items)}

    async def list_messages(self, call: Call) -> Response:
        """The messages of a chat, newest first."""
        chat = self._chat(call)
        self._limits.read_chat(chat.id, call.grant.client_id)
        self._world.settle()
        if token := call.query.get("$skiptoken"):
            page = self.message_pages.find(token)
            if page.chat_id != chat.id:
                raise Refusal(400, "BadRequest", "The skip token is invalid or has expired.")
        else:
            order = read_order(call.query)
            bounds = read_filter(call.query, order)
            page = MessagePage(chat.id, read_top(call.query), order == "createddatetime", bounds)
        with self._world.lock:
            below = self._below(chat, page)
            shown = below[: page.top]
            knows_events = "include-unknown-enum-members" in call.prefers
            items = [shapes.chat_message(chat, message, knows_events=knows_events) for _, message in shown]
        body = self._listed(call, call.context(f"chats('{chat.id}')/messages"), items)
        if len(below) > page.top:
            goes_on = page if call.fault is Fault.DUPLICATED else replace(page, below=shown[-1][0])
            path = f"/chats/{chat.id}/messages"
            body["@odata.nextLink"] = call.link(path, top=str(page.top), skiptoken=self.message_pages.keep(goes_on))
        return answer(body)

    def _below(self, chat: Chat, page: MessagePage) -> list[tuple[tuple[datetime, str], ChatMessage]]:
        shown = self._world.clock.now() - timedelta(seconds=self.lag_seconds)
        placed = [
            ((message.created if page.by_created else message.modified, message.id), message)
            for message in chat.messages.values()
            if message.created <= shown
        ]
        for _, verb, bound in page.bounds:
            placed = [pair for pair in placed if (pair[0][0] > bound if verb == "gt" else pair[0][0] < bound)]
        below = [pair for pair in placed if page.below is None or pair[0] < page.below]
        return sorted(below, key=lambda pair: pair[0], reverse=True)

    def _shown(self, call: Call, chat: Chat, message: ChatMessage, status: int) -> Response:
        knows_events = "include-unknown-enum-members" in call.prefers
        body = shapes.chat_message(chat, message, knows_events=knows_events)
        return answer({"@odata.context": call.context(f"chats('{chat.id}')/messages/$entity"), **body}, status)

    async def send(self, call: Call) -> Response:
        """Send a message as the signed-in person."""
        chat = self._chat(call)
        self._limits.write_chat(chat.id, call.grant.client_id)
        body = call.json()
        content, kind, mentions = check_body(body)
        attachments = body.get("attachments")
        now = self._world.clock.now()
        message = ChatMessage("", call.grant.user, content, kind, now, now, mentions=mentions)
        message.attachments = attachments if isinstance(attachments, list) else ()
        if call.fault is Fault.DELAYED:
            self._world.delayed.append((now + timedelta(seconds=self.late_seconds), chat, message))
            return Response(status_code=202)
        self._world.say(chat, message)
        self._subscriptions.chat_changed(chat, message, "created")
        return self._shown(call, chat, message, 201)

    async def update(self, call: Call) -> Response:
        """Edit a message of one's own."""
        chat, message = self._message(call)
        self._limits.write_chat(chat.id, call.grant.client_id)
        if message.sender != call.grant.user or message.deleted:
            raise Refusal(403, "Forbidden", "Only the sender can edit a message.")
        content, kind, mentions = check_body(call.json())
        self._world.edit(message, content, kind)
        message.mentions = mentions
        self._subscriptions.chat_changed(chat, message, "updated")
        return Response(status_code=204)

    async def soft_delete(self, call: Call) -> Response:
        """Take a message of one's own back."""
        chat, message = self._message(call)
        self._limits.write_chat(chat.id, call.grant.client_id)
        if message.sender != call.grant.user:
            raise Refusal(403, "Forbidden", "Only the sender can delete a message.")
        self._world.delete(message)
        self._subscriptions.chat_changed(chat, message, "deleted")
        return Response(status_code=204)
