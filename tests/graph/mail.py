"""The mail part of the service: changes of a folder, reading, replying, drafts, sending, moving.

The rules are the documented ones: changes come per folder and by links, pages are as large as the request prefers, old
links are gone, things come twice; ids change with a move unless the request prefers ids that stay; a reply has a
comment or a body, never both; what was accepted is among the sent mails at once or later, as a test says. Every mail
that arrives has headers that say what the service knows of its sender.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from starlette.responses import Response

from tests.graph import shapes
from tests.graph.faults import Fault
from tests.graph.limits import Limits
from tests.graph.subscriptions import Subscriptions
from tests.graph.wire import Call, Handler, Pages, Refusal, Route, answer, required_text
from tests.graph.world import Json, Mail, Person, World

READ: Final = ("Mail.ReadBasic", "Mail.Read", "Mail.ReadWrite")
READ_BODY: Final = frozenset({"Mail.Read", "Mail.ReadWrite"})
SEND: Final = ("Mail.Send",)
DEFAULT_PAGE: Final = 10
MAX_PAGE: Final = 1000
_EQUALS: Final = re.compile(r"(internetMessageId|conversationId)\s+eq\s+'([^']*)'", re.IGNORECASE)
_AUTH_AS: Final = "X-MS-Exchange-Organization-AuthAs"
_RESULTS: Final = "Authentication-Results"
_FAILED: Final = "spf=none (sender IP is 192.0.2.1); dkim=none; dmarc=none action=none; compauth=fail reason=001"
_CHANGES: Final = frozenset({"", "created", "updated", "deleted"})


@dataclass(frozen=True, slots=True)
class Round:
    """One round of changes: what is still to be given, and where the next round starts."""

    folder: str
    wanted: tuple[str, ...]
    change: str
    next_start: int
    left: tuple[int, ...] = ()
    is_between: bool = False


class MailRoutes:
    """The routes of one mailbox."""

    def __init__(self, world: World, limits: Limits, subscriptions: Subscriptions) -> None:
        self._world = world
        self._limits = limits
        self._subscriptions = subscriptions
        self.rounds: Pages[Round] = Pages(world.new_id)
        self.is_gone_with_place = True
        self.repeats = 0
        self.filing_seconds = 0.0  # from the answer that a mail was accepted until it is among the sent ones
        self._on_their_way: list[tuple[datetime, Mail]] = []

    def routes(self) -> list[Route]:
        """What can be asked; the first that fits answers."""
        me, one = "(?:/me|/users/[^/]+)", "(?:/me|/users/[^/]+)(?:/mailFolders/[^/]+)?/messages/([^/]+)"
        folder = rf"{me}/mailFolders(?:/([^/()]+)|\('([^']+)'\))/messages"
        plan: list[tuple[str, str, Sequence[str], Callable[[Call], Response]]] = [
            ("GET", f"{folder}/delta", READ, self.delta),
            ("GET", folder, READ, self.list_mails),
            ("GET", f"{me}/messages", READ, self.list_mails),
            ("GET", f"{one}/?", READ, self.get),
            ("POST", f"{one}/reply", SEND, self.reply),
        ]
        return [Route(method, path, scopes, self._in_turn(handle)) for method, path, scopes, handle in plan]

    def _in_turn(self, handle: Callable[[Call], Response]) -> Handler:
        async def in_turn(call: Call) -> Response:
            hold = call.request.scope["hold"]
            with self._limits.mailbox(call.grant.user.id):
                await hold()
                with self._world.lock:
                    self.file_sent()
                    response = handle(call)
            if call.wants_immutable_ids:
                response.headers["Preference-Applied"] = 'IdType="ImmutableId"'
            return response

        return in_turn

    def _shown(self, call: Call, mail: Mail, wanted: Sequence[str] = ()) -> Json:
        as_text = call.prefers.get("outlook.body-content-type", "").lower() == "text"
        whole = shapes.mail(mail, self._world, is_immutable=call.wants_immutable_ids, as_text=as_text)
        chosen = shapes.selected(whole, wanted, mail)
        if "internetMessageHeaders" in chosen:
            chosen["internetMessageHeaders"] = self._headers(mail)
        return chosen if call.grant.scopes & READ_BODY else shapes.without_body(chosen)

    def _headers(self, mail: Mail) -> list[Json]:
        """The headers of a mail, below what the service wrote about its sender, unless a test wrote that."""
        names = {str(header.get("name", "")).lower() for header in mail.headers}
        if {_AUTH_AS.lower(), _RESULTS.lower()} & names:
            return list(mail.headers)
        is_internal = mail.sender.address.rpartition("@")[2] == self._world.me.address.rpartition("@")[2]
        stamp = (_AUTH_AS, "Internal") if is_internal else (_RESULTS, _FAILED)
        return [{"name": stamp[0], "value": stamp[1]}, *mail.headers]

    def file_sent(self) -> None:
        """Put what was accepted long enough ago among the sent mails."""
        now = self._world.clock.now()
        due = [mail for at, mail in self._on_their_way if at <= now]
        self._on_their_way = [(at, mail) for at, mail in self._on_their_way if at > now]
        for mail in due:
            self._world.receive(mail)

    def _find(self, call: Call) -> Mail:
        mail = self._world.mails.get(shapes.mail_number(call.parts[0]))
        if mail and call.parts[0] in {shapes.mail_id(mail, is_immutable=stays) for stays in (True, False)}:
            return mail
        raise Refusal(404, "ErrorItemNotFound", "The specified object was not found in the store.")

    def _folder(self, call: Call) -> str:
        name = next(filter(None, call.parts), "")
        folder = self._world.folder(name)
        if folder is None:
            raise Refusal(404, "ErrorItemNotFound", "The specified folder could not be found in the store.")
        return folder

    def _wanted(self, call: Call) -> tuple[str, ...]:
        return tuple(name.strip() for name in call.query.get("$select", "").split(",") if name.strip())

    def _page_size(self, call: Call) -> int:
        text = call.prefers.get("odata.maxpagesize", str(DEFAULT_PAGE))
        return min(int(text), MAX_PAGE) if text.isdigit() and int(text) else DEFAULT_PAGE

    def delta(self, call: Call) -> Response:
        """What changed in a folder: everything at first, then what came after the link."""
        folder = self._folder(call)
        token = call.query.get("$deltatoken") or call.query.get("$skiptoken")
        current = self._go_on(call, folder, token) if token else self._first_round(call, folder)
        size = self._page_size(call)
        now, later = current.left[:size], current.left[size:]
        items = [self._changed(call, number, current) for number in now]
        if call.fault is Fault.REORDERED:
            items = self._world.dice.shuffled(items, "delta", self._world.new_id())
        body = shapes.collection(call.context("Collection(message)"), items)
        path = f"/me/mailfolders('{self._world.folder_ids[folder]}')/messages/delta"
        if later:
            goes_on = current if call.fault is Fault.DUPLICATED else replace(current, left=later)
            body["@odata.nextLink"] = call.link(path, skiptoken=self.rounds.keep(replace(goes_on, is_between=True)))
        else:
            done = replace(current, left=(), is_between=False)
            body["@odata.deltaLink"] = call.link(path, deltatoken=self.rounds.keep(done))
        return answer(body)

    def _first_round(self, call: Call, folder: str) -> Round:
        change = call.query.get("changetype", "").lower()
        if not call.query.keys().isdisjoint({"$filter", "$orderby", "$search"}):
            # One filter and one order are documented; nobody here uses them.
            raise Refusal(400, "ErrorInvalidUrlQuery", "The query is not supported with change tracking on messages.")
        if change not in _CHANGES:
            raise Refusal(400, "ErrorInvalidUrlQueryFilter", "changeType must be created, updated or deleted.")
        left = self._shuffled([mail.number for mail in self._world.mails.values() if mail.folder == folder])
        return Round(folder, self._wanted(call), change, len(self._world.changes), left)

    def _shuffled(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._world.dice.shuffled(numbers, "round", len(self._world.changes)))

    def _go_on(self, call: Call, folder: str, token: str) -> Round:
        if token in self.rounds.gone or token not in self.rounds.held:
            raise self._gone(call, folder)
        current = self.rounds.held[token]
        if current.folder != folder:
            raise Refusal(400, "ErrorInvalidUrlQuery", "The token is for another folder.")
        if current.is_between:
            return current
        changes = self._world.changes[max(0, current.next_start - self.repeats) :]
        numbers = dict.fromkeys(
            change.number for change in changes if change.folder == folder and current.change in {"", change.kind}
        )
        left = self._shuffled(list(numbers))
        return replace(current, left=left, next_start=len(self._world.changes))

    def _gone(self, call: Call, folder: str) -> Refusal:
        message = "The sync state generation is not found; generation=149;[highest=157][157][155][156]."
        if not self.is_gone_with_place:
            return Refusal(400, "SyncStateNotFound", message)
        place = call.link(f"/me/mailFolders/{self._world.folder_ids[folder]}/messages/delta", deltatoken="")
        return Refusal(410, "SyncStateNotFound", message, {"Location": place.partition("?")[0]})

    def _changed(self, call: Call, number: int, current: Round) -> Json:
        mail = self._world.mails.get(number)
        if mail is None or mail.folder != current.folder:
            gone = mail or Mail(
                number,
                current.folder,
                self._world.me,
                (),
                "",
                "",
                self._world.clock.now(),
                self._world.clock.now(),
                "",
                "",
            )
            shown = shapes.mail_id(gone, is_immutable=call.wants_immutable_ids)
            return {"@odata.type": "#microsoft.graph.message", "id": shown, "@removed": {"reason": "deleted"}}
        return {"@odata.type": "#microsoft.graph.message", **self._shown(call, mail, current.wanted)}

    def list_mails(self, call: Call) -> Response:
        """The newest mails, of one folder or of all."""
        folder = self._folder(call) if call.parts else ""
        text, top = call.query.get("$filter", ""), call.query.get("$top", str(DEFAULT_PAGE))
        found = _EQUALS.fullmatch(text)
        if text and not found:
            raise Refusal(400, "ErrorInvalidUrlQueryFilter", "The query filter contains one or more invalid nodes.")
        if not top.isdigit() or not 0 < int(top) <= MAX_PAGE:
            raise Refusal(400, "ErrorInvalidUrlQueryTop", f"Invalid $top: 1 to {MAX_PAGE}.")
        held = [mail for mail in self._world.mails.values() if folder in {"", mail.folder}]
        if found:
            by_id = found[1].lower() == "internetmessageid"
            held = [mail for mail in held if found[2] == (mail.internet_id if by_id else mail.conversation)]
        held.sort(key=lambda mail: (mail.received, mail.number), reverse=True)
        wanted = self._wanted(call)
        items = [self._shown(call, mail, wanted) for mail in held[: int(top)]]
        return answer(shapes.collection(call.context("users/messages"), items))

    def get(self, call: Call) -> Response:
        """One mail."""
        shown = self._shown(call, self._find(call), self._wanted(call))
        return answer({"@odata.context": call.context("users/messages/$entity"), **shown})

    def _check_reply(self, body: Json) -> str:
        message = body.get("message")
        has_body = isinstance(message, dict) and "body" in message
        if "comment" in body and has_body:
            raise Refusal(400, "ErrorInvalidRequest", "Specify either a comment or the body of the message, not both.")
        return required_text(body, "message", "body", "content") if has_body else required_text(body, "comment")

    def _reply(self, call: Call) -> Mail:
        mail, body = self._find(call), call.json()
        html, now = self._check_reply(body), self._world.clock.now()
        to = self._people(body, "toRecipients") or list(mail.reply_to or [mail.sender])
        subject = mail.subject if mail.subject.lower().startswith("re:") else f"RE: {mail.subject}"
        made = Mail(0, "sentitems", call.grant.user, to, subject, html, now, now, "", mail.conversation)
        made.headers = ({"name": "In-Reply-To", "value": mail.internet_id},)
        return made

    def _people(self, body: Json, name: str) -> list[Person]:
        message = body.get("message")
        listed = message.get(name, []) if isinstance(message, dict) else []
        found = []
        for entry in listed if isinstance(listed, list) else []:
            address = required_text(entry, "emailAddress", "address")
            if "@" not in address:
                raise Refusal(400, "ErrorInvalidRecipients", "At least one recipient is not valid.")
            found.append(Person("", required_text(entry, "emailAddress", "name") or address, address))
        return found

    def reply(self, call: Call) -> Response:
        """Answer a mail; nothing is said about what was sent."""
        made = self._reply(call)
        self._on_their_way.append((self._world.clock.now() + timedelta(seconds=self.filing_seconds), made))
        if not self.filing_seconds:
            self.file_sent()
        return Response(status_code=202)
