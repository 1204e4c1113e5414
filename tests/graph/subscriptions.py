"""Change notifications: create, renew, reauthorize, delete; the handshake; what is sent when something changes.

As documented: an https address that answers a validation token in plain text, a life of at most three days for chats
and seven for mail, an address for the subscription's own events when it lives longer than an hour. Notifications leave
from a thread of their own and in order; what was not accepted waits until it is sent again.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import httpx2
from starlette.responses import Response

from tests.graph import shapes
from tests.graph.clock import moment, stamp
from tests.graph.wire import Call, Refusal, Route, answer, required_text
from tests.graph.world import Chat, ChatMessage, Json, Mail, Person, World

CHAT_LIFE: Final = timedelta(minutes=4320)
MAIL_LIFE: Final = timedelta(minutes=10080)
LIFE_WITHOUT_EVENTS: Final = timedelta(hours=1)
HANDSHAKE_SECONDS: Final = 10
DELIVERY_SECONDS: Final = 3
MAX_CLIENT_STATE: Final = 128
_CHANGES: Final = frozenset({"created", "updated", "deleted"})
_CHAT: Final = re.compile(r"/?chats/([^/]+)/messages", re.IGNORECASE)
_ALL_CHATS: Final = re.compile(r"/?(?:me|users/[^/]+)/chats/getAllMessages", re.IGNORECASE)
_MAIL: Final = re.compile(r"/?(?:me|users/[^/]+)/(?:mailfolders(?:\('([^']+)'\)|/([^/]+))/)?messages", re.IGNORECASE)


@dataclass(slots=True)
class Subscription:
    """One address that wants to hear of changes to one resource."""

    id: str
    owner: Person
    client_id: str
    resource: str
    changes: frozenset[str]
    url: str
    lifecycle_url: str
    state: str
    expires: datetime
    is_paused: bool = False


@dataclass(slots=True)
class Notification:
    """One body on its way to an address, and what the address said."""

    url: str
    body: Json
    status: int | None = None


class Subscriptions:
    """The routes of subscriptions, and their notifications."""

    def __init__(self, world: World, ca: str) -> None:
        self._world = world
        self._trust = ssl.create_default_context(cafile=ca)
        self._sender = ThreadPoolExecutor(1, "notifications")
        self._lock = threading.Lock()
        self.held: dict[str, Subscription] = {}
        self.sent: list[Notification] = []
        self.accepts_plain_http = False

    def close(self) -> None:
        """Stop sending."""
        self._sender.shutdown(wait=True, cancel_futures=True)

    def routes(self) -> list[Route]:
        """What can be asked."""
        return [
            Route("POST", "/subscriptions", (), self.create),
            Route("GET", "/subscriptions", (), self.list_all),
            Route("PATCH", "/subscriptions/([^/]+)", (), self.renew),
            Route("DELETE", "/subscriptions/([^/]+)", (), self.delete),
        ]

    def _shown(self, held: Subscription) -> Json:
        return {
            "id": held.id,
            "resource": held.resource,
            "applicationId": held.client_id,
            "changeType": ",".join(sorted(held.changes)),
            "clientState": held.state or None,
            "notificationUrl": held.url,
            "lifecycleNotificationUrl": held.lifecycle_url or None,
            "expirationDateTime": stamp(held.expires),
            "creatorId": held.owner.id,
            "latestSupportedTlsVersion": "v1_2",
            "notificationContentType": "application/json",
        }

    def _limit(self, resource: str, call: Call) -> timedelta:
        if found := _CHAT.fullmatch(resource):
            chat = self._world.chats.get(found[1])
            if chat is None or call.grant.user not in chat.members:
                raise Refusal(404, "ResourceNotFound", "Resource not found.")
        needed: tuple[str, ...]
        if found or _ALL_CHATS.fullmatch(resource):
            needed, limit = ("Chat.Read", "Chat.ReadWrite"), CHAT_LIFE
        elif _MAIL.fullmatch(resource):
            needed, limit = ("Mail.ReadBasic", "Mail.Read", "Mail.ReadWrite"), MAIL_LIFE
        else:
            raise Refusal(400, "InvalidRequest", f"Resource '{resource}' is not supported.")
        if call.grant.scopes.isdisjoint(needed):
            raise Refusal(403, "ExtensionError", "Operation: Create; Exception: [Status Code: Forbidden]")
        return limit

    def _expiry(self, body: Json, limit: timedelta) -> datetime:
        try:
            expires = moment(required_text(body, "expirationDateTime"))
        except ValueError as exc:
            raise Refusal(400, "InvalidRequest", "expirationDateTime is required.") from exc
        now = self._world.clock.now()
        if not now < expires <= now + limit:
            minutes = int(limit.total_seconds() // 60)
            message = f"Subscription expiration can only be up to {minutes} minutes in the future."
            raise Refusal(400, "InvalidRequest", message)
        return expires

    async def create(self, call: Call) -> Response:
        """Make a subscription, after its addresses have answered."""
        body = call.json()
        resource = required_text(body, "resource")
        limit = self._limit(resource, call)
        expires = self._expiry(body, limit)
        changes = frozenset(required_text(body, "changeType").replace(" ", "").split(","))
        url, lifecycle = required_text(body, "notificationUrl"), required_text(body, "lifecycleNotificationUrl")
        if not changes <= _CHANGES:
            raise Refusal(400, "InvalidRequest", "changeType is required: created, updated or deleted.")
        if len(state := required_text(body, "clientState")) > MAX_CLIENT_STATE:
            raise Refusal(400, "InvalidRequest", "clientState is too long.")
        if limit == CHAT_LIFE and expires - self._world.clock.now() > LIFE_WITHOUT_EVENTS and not lifecycle:
            message = "lifecycleNotificationUrl is a required property for a subscription that lives over one hour."
            raise Refusal(400, "InvalidRequest", message)
        for address in dict.fromkeys(filter(None, (url, lifecycle))):
            await self._shake_hands(address)
        if not url:
            raise Refusal(400, "InvalidRequest", "notificationUrl is required.")
        new = Subscription(
            self._world.new_id(),
            call.grant.user,
            call.grant.client_id,
            resource,
            changes,
            url,
            lifecycle,
            state,
            expires,
        )
        self.held[new.id] = new
        return answer({"@odata.context": call.context("subscriptions/$entity"), **self._shown(new)}, 201)

    async def _shake_hands(self, url: str) -> None:
        if not url.startswith("https://") and not self.accepts_plain_http:
            raise Refusal(400, "InvalidRequest", "Notification endpoint must be an HTTPS address.")
        token = (
            f"Validation: Testing client application reachability for subscription Request-Id: {self._world.new_id()}"
        )
        address = f"{url}{'&' if '?' in url else '?'}{urlencode({'validationToken': token})}"
        try:
            async with httpx2.AsyncClient(verify=self._trust, timeout=HANDSHAKE_SECONDS) as client:
                said = await client.post(address, headers={"Content-Type": "text/plain; charset=utf-8"})
        except httpx2.HTTPError as exc:
            raise Refusal(400, "ValidationError", "Subscription validation request timed out.") from exc
        is_plain = said.headers.get("content-type", "").startswith("text/plain")
        if said.status_code != 200 or not is_plain or said.text != token:
            message = "Subscription validation request failed. Must respond with 200 OK and the token in plain text."
            raise Refusal(400, "ValidationError", message)

    def _find(self, call: Call) -> Subscription:
        held = self.held.get(call.parts[0])
        if held is None or held.expires <= self._world.clock.now() or held.owner != call.grant.user:
            raise Refusal(404, "ResourceNotFound", "The object was not found.")
        return held

    async def list_all(self, call: Call) -> Response:
        """The subscriptions of the person that live."""
        now = self._world.clock.now()
        mine = [held for held in self.held.values() if held.owner == call.grant.user and held.expires > now]
        return answer(shapes.collection(call.context("subscriptions"), map(self._shown, mine)))

    async def renew(self, call: Call) -> Response:
        """Let a subscription live longer; it also counts as authorized again."""
        held = self._find(call)
        held.expires = self._expiry(call.json(), self._limit(held.resource, call))
        held.is_paused = False
        return answer({"@odata.context": call.context("subscriptions/$entity"), **self._shown(held)})

    async def delete(self, call: Call) -> Response:
        """End a subscription."""
        del self.held[self._find(call).id]
        return Response(status_code=204)

    def chat_changed(self, chat: Chat, message: ChatMessage, change: str) -> None:
        """Tell whoever subscribed to this chat."""
        place = f"chats('{chat.id}')/messages('{message.id}')"
        data: Json = {"@odata.type": "#Microsoft.Graph.chatMessage", "@odata.id": place, "id": message.id}
        for held in list(self.held.values()):
            found = _CHAT.fullmatch(held.resource)
            if (found and found[1] == chat.id) or (_ALL_CHATS.fullmatch(held.resource) and held.owner in chat.members):
                self._tell(held, change, place, data)

    def mail_changed(self, mail: Mail, change: str) -> None:
        """Tell whoever subscribed to the folder of this mail."""
        shown = shapes.mail_id(mail, is_immutable=False)
        for held in list(self.held.values()):
            found = _MAIL.fullmatch(held.resource)
            folder = (found[1] or found[2]) if found else None
            if found and (folder is None or self._world.folder(folder) == mail.folder):
                place = f"Users/{held.owner.id}/Messages/{shown}"
                self._tell(
                    held, change, place, {"@odata.type": "#Microsoft.Graph.Message", "@odata.id": place, "id": shown}
                )

    def _tell(self, held: Subscription, change: str, resource: str, data: Mapping[str, object]) -> None:
        if change not in held.changes or held.is_paused or held.expires <= self._world.clock.now():
            return
        about: Json = {"changeType": change, "resource": resource, "resourceData": dict(data)}
        self._send(held.url, {"value": [self._about(held) | {"id": self._world.new_id(), **about}]})

    def _about(self, held: Subscription) -> Json:
        return {
            "subscriptionId": held.id,
            "subscriptionExpirationDateTime": stamp(held.expires),
            "clientState": held.state or None,
            "tenantId": self._world.tenant,
        }

    def tell_lifecycle(self, event: str) -> None:
        """Tell every subscription about itself: reauthorizationRequired, subscriptionRemoved or missed."""
        for held in list(self.held.values()):
            if held.lifecycle_url:
                self._send(held.lifecycle_url, {"value": [self._about(held) | {"lifecycleEvent": event}]})
            if event == "reauthorizationRequired":
                held.is_paused = True
            elif event == "subscriptionRemoved":
                del self.held[held.id]

    def _send(self, url: str, body: Json) -> None:
        notification = Notification(url, body)
        with self._lock:
            self.sent.append(notification)
        self._sender.submit(self._deliver, notification)

    def _deliver(self, notification: Notification) -> None:
        try:
            with httpx2.Client(verify=self._trust, timeout=DELIVERY_SECONDS) as client:
                notification.status = client.post(notification.url, json=notification.body).status_code
        except httpx2.HTTPError:
            notification.status = 0

    def settle(self, seconds: float = 10.0) -> None:
        """Wait until everything so far was tried."""
        self._sender.submit(lambda: None).result(seconds)
