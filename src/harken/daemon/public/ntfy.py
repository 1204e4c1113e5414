"""What waits for you, on your phone by an ntfy server that you name, with buttons that answer it.

`NtfyPush` publishes one notification for each approval as soon as a host asks, and for questions when the ladder of
`dispatch/escalation.py` says that the phone is next. `ntfy.shows` decides what stands on the lock screen. A button is
there only where the notification shows all that it answers: nothing is allowed unseen.

What a button sends is a secret of 256 random bits, in the body of a request to the public address. It answers one
request in one way, once and for a time; pressing one button of a notification ends the others. They are held in memory
only: after a restart they do nothing. The server of ntfy, and who reads the topic, could press them, so there are none
unless you say so. A yes is recorded as that of an ntfy button.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harken.clock import Clock, Signal
from harken.config.settings import Settings
from harken.daemon.public.gate import SHUT_SECONDS, TOO_MANY, address_of
from harken.daemon.public.listener import Slowdown
from harken.dispatch.toast import HaltNote
from harken.display import visible
from harken.errors import Forbidden, HarkenError, NeedsPerson, Unavailable, UserError
from harken.hosts.registry import host_title
from harken.inbox.caller import EVERY_MAILBOX, Caller, Grant, Role
from harken.inbox.inbox import Inbox
from harken.inbox.questions import Approvals, asked_parts, asks, sentence
from harken.memory import json_bytes
from harken.model import APPROVALS, WATCH, Approval, ApprovalChoice, ApprovalId, ApprovalState
from harken.sources.http import ConnectionBroken, HttpWire, ServiceAddress
from harken.store.contract import Store
from harken.store.contract.questions import Question
from harken.store.contract.tokens import TokenScope
from harken.surfaces.web.guard import HEADERS
from harken.surfaces.web.shell import error_answer

_log = logging.getLogger("harken.ntfy")

SURFACE: Final = "ntfy"
SERVICE: Final = "the ntfy server"
PATH: Final = "/press"
REQUEST_SECONDS: Final = 20.0
LOOK_EVERY_SECONDS: Final = 30.0
MOST_BYTES: Final = 3_500  # of a text; ntfy makes a file of what has more than 4,096
MAX_NAMED: Final = 3  # questions that get a notification of their own; more are told in one
MAX_BUTTONS: Final = 500
MAX_PRESS_BYTES: Final = 200
WHO_CHARS: Final = 60
QUESTION_LASTS: Final = timedelta(hours=24)
ANSWERS: Final = ("Yes", "No")
GONE: Final = 410
URGENT, USUAL = 4, 3
NEEDS, WAITING = "/needs", "/waiting"
CUT_NOTE: Final = "\n… Open the page to see all of it."
_TEXT: Final = "text"
_OK, _REDIRECT = 200, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NtfyTopic:
    """Where to publish. The topic and the token are secrets: they are in no error and no log."""

    server: ServiceAddress
    topic: str
    token: str = ""

    @classmethod
    def parse(cls, address: str, token: str = "") -> NtfyTopic:
        """Read an address such as https://ntfy.example.org/topic; raises `UserError` for any other."""
        server, _, topic = address.strip().rstrip("/").rpartition("/")
        if not topic.replace("-", "").replace("_", "").isalnum() or not urlsplit(server).hostname:
            raise UserError("ntfy.address does not lead to a topic.", "Write it like https://ntfy.example.org/my-topic")
        return cls(server=ServiceAddress.parse(server, SERVICE), topic=topic, token=token)


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonAnswer:
    """What a button answers: an approval with a choice, or a message with a text; until when, and with which others."""

    ref: str
    says: str
    digest: str  # of the approval; empty for a message
    until: datetime
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneNote:
    """A notification. `buttons` are labels, each with what it answers; without a whole text there are none.

    `path` is where the page shows what it is about, `until` when it is about nothing any more.
    """

    title: str
    text: str
    path: str
    priority: int = USUAL
    buttons: Sequence[tuple[str, ButtonAnswer]] = ()
    until: datetime | None = None


class PhoneNotes:
    """Writes the notifications of what waits. `shows` is how much stands on a lock screen."""

    def __init__(self, clock: Clock, shows: str, buttons: Collection[str] = (), most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._shows = shows
        self._buttons = buttons  # for what there are some: "answer", "approve"
        self._most_bytes = most_bytes

    @property
    def has_text(self) -> bool:
        """Whether what is asked is shown."""
        return self._shows == _TEXT

    def of_approval(self, asked: Approval) -> PhoneNote:
        """Return the notification of what a host asks."""
        request, until, path = asked.request, asked.expires_at, f"{NEEDS}#need-approval:{asked.id}"
        if self._shows == "nothing":
            text = "An agent waits for your answer."
            return PhoneNote(title="Harken", text=text, path=NEEDS, priority=URGENT, until=until)
        shown = replace(request, tool=visible(request.tool)[:WHO_CHARS])
        title = f"{host_title(request.host)} {asks(shown)}"
        if not self.has_text:
            text = "Open the page to see what it would do."
            return PhoneNote(title=title, text=text, path=path, priority=URGENT, until=until)
        parts = [f"{visible(name)}: {visible(text)}" for name, text in asked_parts(request.arguments)]
        parts += [f"folder: {request.folder}"] if request.folder else []
        whole = "\n".join(parts)
        if "approve" not in self._buttons or self._is_cut(whole):
            return PhoneNote(title=title, text=self._bounded(whole), path=path, priority=URGENT, until=until)
        group = secrets.token_hex(8)
        choices = (("Allow once", ApprovalChoice.ONCE), ("Refuse", ApprovalChoice.NO))
        if ApprovalChoice.ANSWER in request.choices:
            return PhoneNote(title=title, text=whole, path=path, priority=URGENT, until=until)
        buttons = [
            (label, ButtonAnswer(ref=asked.id, says=choice.value, digest=request.digest, until=until, group=group))
            for label, choice in choices
        ]
        return PhoneNote(title=title, text=whole, path=path, priority=URGENT, buttons=buttons, until=until)

    def of_questions(self, questions: Sequence[Question]) -> Sequence[PhoneNote]:
        """Return a notification for each of a few questions, or one for all of many."""
        now = self._clock.now()
        title = sentence(len(questions), questions[0].message.received_at, now)
        if self._shows == "nothing":
            return [PhoneNote(title="Harken", text=title, path=WAITING)]
        who = [_who(each) for each in questions]
        if not self.has_text or len(questions) > MAX_NAMED:
            path = f"/message/{questions[0].message.id}" if len(questions) == 1 else WAITING
            return [PhoneNote(title=title, text=self._bounded("\n".join(sorted(set(who)))), path=path)]
        return [self._of_question(name, each, now) for name, each in zip(who, questions, strict=True)]

    def _of_question(self, who: str, question: Question, now: datetime) -> PhoneNote:
        message = question.message
        text, title, path = visible(message.text), f"{who} waits for an answer", f"/message/{message.id}"
        if "answer" not in self._buttons or self._is_cut(text):
            return PhoneNote(title=title, text=self._bounded(text), path=path)
        group, until = secrets.token_hex(8), now + QUESTION_LASTS
        buttons = [
            (each, ButtonAnswer(ref=message.id, says=each, digest="", until=until, group=group)) for each in ANSWERS
        ]
        return PhoneNote(title=title, text=text, path=path, buttons=buttons)

    def of_halt(self, halted: HaltNote) -> PhoneNote:
        """Return the notification of a session that does not go on: one line, with what its host says if it may."""
        if self._shows == "nothing":
            return PhoneNote(title="Harken", text="An agent does not go on.", path=halted.path)
        text = self._bounded(halted.reason) if self.has_text else ""
        return PhoneNote(title=halted.title, text=text or "Open the page to see it.", path=halted.path)

    def _is_cut(self, text: str) -> bool:
        return len(text.encode()) > self._most_bytes

    def _bounded(self, text: str) -> str:
        data = text.encode()
        return text if not self._is_cut(text) else data[: self._most_bytes].decode("utf-8", "ignore") + CUT_NOTE


class NtfyPush:
    """Publishes what waits, and takes what buttons send."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        approvals: Approvals,
        inbox: Inbox,
        secret: Callable[[str], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ntfy = settings.ntfy
        self._http = settings.http
        self._quiet = settings.toasts.quiet_hours
        is_public = bool(self._http.public_listen and self._http.public_url)
        wanted = {"both": ("answer", "approve")}.get(self._ntfy.buttons, (self._ntfy.buttons,))
        self._notes = PhoneNotes(clock, self._ntfy.shows, wanted if is_public else ())
        self._approvals = approvals
        self._inbox = inbox
        self._secret = secret  # resolves a reference
        self._slowdown = Slowdown()
        self._told: Collection[ApprovalId] = frozenset()
        self._trouble = ""  # what was logged last, so that it is logged once
        self._buttons: dict[str, ButtonAnswer] = {}  # by the hash of what is sent

    @property
    def route(self) -> Route:
        """Where buttons lead."""
        return Route(PATH, self.press, methods=["POST"])

    async def run(self) -> None:
        """Publish what hosts ask, for ever."""
        changed = Signal()
        with self._store.changes.listen(changed.ring, only=[APPROVALS]):
            while True:
                await self.look()
                await changed.wait(LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        """Publish what is asked and was not published yet; what cannot be published is tried again later."""
        asked = await self._store.approvals.list([ApprovalState.OPEN], is_own=True)
        fresh = [each for each in asked if each.id not in self._told]
        self._told = frozenset(each.id for each in asked if each.id in self._told)
        if self._quiet is not None and self._quiet.covers(self._clock.now().astimezone()):
            return
        for each in fresh:
            try:
                await self._publish(self._notes.of_approval(each))
                self._told = {*self._told, each.id}
                if self._notes.has_text:
                    await self._approvals.show([each], SURFACE)
                self._trouble = ""
            except HarkenError as exc:
                if exc.message != self._trouble:
                    _log.warning("an approval was not published: %s", exc.message)
                self._trouble = exc.message
                return

    async def tell(self, questions: Sequence[Question]) -> bool:
        """Publish questions, the oldest first; return that they were. May raise a `HarkenError`."""
        for note in self._notes.of_questions(questions):
            await self._publish(note)
        return True

    async def tell_halt(self, halted: HaltNote) -> bool:
        """Publish that a session does not go on. May raise a `HarkenError`."""
        await self._publish(self._notes.of_halt(halted))
        return True

    async def press(self, request: Request) -> Response:
        """Do what a button answers, once. An address that guesses waits, and then is not listened to."""
        address = address_of(request.scope, self._http.proxy)
        if self._slowdown.is_shut_out(address):
            shut = Unavailable("Too many wrong buttons were pressed from here.", "Wait.", retry_after=SHUT_SECONDS)
            return error_answer(shut, TOO_MANY)
        answer = self.take(await _short_body(request))
        if answer is None or "origin" in request.headers:
            await self._slowdown.hold_up(address)
            return error_answer(Forbidden("This button does not work any more.", "Open the page: /needs"), GONE)
        try:
            await self._do(answer)
        except HarkenError as exc:
            _log.info("a button did nothing: %s", exc.message)
            return error_answer(exc)
        return Response(json_bytes({"done": answer.says}), media_type="application/json", headers=dict(HEADERS))

    async def _do(self, answer: ButtonAnswer) -> None:
        if answer.digest:
            await self._approvals.answer(
                _presser("approve", Grant.APPROVE),
                ApprovalId(answer.ref),
                answer.says,
                digest=answer.digest,
                through=SURFACE,
            )
        else:
            caller = _presser("reply", Grant.REPLY)
            await self._inbox.reply(caller, answer.ref, answer.says, edge=SURFACE, request=answer.group)

    def take(self, secret: str) -> ButtonAnswer | None:
        """Use a button up, with the others of its notification; None for one that is not good."""
        found = self._buttons.get(_digest(secret))
        now = self._clock.now()
        kept = {name: each for name, each in self._buttons.items() if each.until > now}
        self._buttons = {name: each for name, each in kept.items() if found is None or each.group != found.group}
        return found if found is not None and found.until > now else None

    async def _publish(self, note: PhoneNote) -> None:
        """Publish a notification; raises a `HarkenError` when the server did not take it."""
        topic = await anyio.to_thread.run_sync(self._topic)
        made = {secrets.token_urlsafe(32): (label, answer) for label, answer in note.buttons}
        said: dict[str, object] = {
            "topic": topic.topic,
            "title": note.title,
            "message": note.text,
            "priority": note.priority,
        }
        url = self._http.public_url if self._http.public_listen else ""
        if url:
            said |= {"click": f"{url}{note.path}"}
        if made:
            opens = {"action": "view", "label": "Open", "url": f"{url}{note.path}"}
            said |= {"actions": [*(_button(label, url, secret) for secret, (label, _) in made.items()), opens]}
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {topic.token}"} if topic.token else {}
        )
        # Before it is sent: a button may be pressed in the moment in which it arrives.
        fresh = {_digest(secret): answer for secret, (_, answer) in made.items()}
        self._buttons = dict([*self._buttons.items(), *fresh.items()][-MAX_BUTTONS:])
        await _post(topic.server, headers, json_bytes(said))

    def _topic(self) -> NtfyTopic:
        # Looked up each time: what is put right there needs no restart.
        token = self._secret(self._ntfy.token) if self._ntfy.token else ""
        return NtfyTopic.parse(self._secret(self._ntfy.address), token)


async def _post(server: ServiceAddress, headers: dict[str, str], body: bytes) -> None:
    wire = HttpWire(server, verify=None, request_seconds=REQUEST_SECONDS)
    try:
        answer = await wire.exchange("POST", server.root, headers, body)
    except ConnectionBroken as exc:
        raise Unavailable(f"Nothing was published: {exc.reason}.", "Harken tries again.") from exc
    finally:
        await wire.aclose()
    if answer.status in (401, 403):
        raise NeedsPerson("The ntfy server does not let Harken publish.", "Check ntfy.address and ntfy.token.")
    if not _OK <= answer.status < _REDIRECT:
        raise Unavailable(f"The ntfy server answered with {answer.status}.", "Harken tries again.")


def _button(label: str, url: str, secret: str) -> dict[str, object]:
    return {
        "action": "http",
        "label": label,
        "url": f"{url}{PATH}",
        "method": "POST",
        "headers": {"Content-Type": "text/plain"},
        "body": secret,
        "clear": True,
    }


def _presser(verb: str, needs: Grant) -> Caller:
    """Return the caller that presses a button: it may do this, and is named for what it is."""
    may = frozenset({needs.value})
    scope = TokenScope(may=may, mailboxes=(EVERY_MAILBOX,), consumer=WATCH)
    you = Caller(role=Role.OWNER).sender
    holder = Caller(role=Role.AGENT, consumer=WATCH, holder="ntfy button", scope=scope, said_by=you)
    return holder.doing(verb, needs)


def _who(question: Question) -> str:
    message = question.message
    where = message.channel or message.source
    return f"{visible(message.sender.label)[:WHO_CHARS]} in {visible(where)[:WHO_CHARS]}"


async def _short_body(request: Request) -> str:
    """Return the body of a request, as far as one of a button goes."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_PRESS_BYTES:
            return ""
    return body.decode("ascii", "replace").strip()


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
