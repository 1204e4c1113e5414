"""A Microsoft Graph and its token service on loopback: how a test starts it, fills it, disturbs it and looks at it.

Built from the public documentation, not from any client of ours, so that it can disagree with ours. It runs in a thread
with a certificate of its own. Tests of our sources, of sign-in and of the whole round stand above it.
"""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Final

import httpx2
import uvicorn
from starlette.responses import Response

from tests.graph import shapes
from tests.graph.certificate import Signer, make_signer, write_loopback_pair
from tests.graph.clock import ServiceClock
from tests.graph.door import Asked, Door, Protocol, Server
from tests.graph.faults import Fault, Faults
from tests.graph.limits import Limits
from tests.graph.mail import MailRoutes
from tests.graph.subscriptions import Notification, Subscriptions
from tests.graph.teams import Teams
from tests.graph.tokens import Agent, Tokens, TokenState
from tests.graph.wire import Call, Refusal, Route, answer
from tests.graph.world import Chat, ChatMessage, Json, Mail, Person, World

START_SECONDS: Final = 20


class Graph:
    """The running service, as a test sees it."""

    def __init__(self, seed: int, ca: Path, certificate: Path) -> None:
        self.ca = ca
        self.certificate = certificate
        self.clock = ServiceClock()
        self.world = World(self.clock, seed)
        self.tokens = Tokens(self.world)
        self.limits = Limits(self.clock)
        self.subscriptions = Subscriptions(self.world, str(ca))
        self.teams = Teams(self.world, self.limits, self.subscriptions)
        self.mailbox = MailRoutes(self.world, self.limits, self.subscriptions)
        self._faults = Faults(self.world.dice)
        routes = [
            Route("GET", "/me", ("User.Read",), self._me),
            *self.mailbox.routes(),
            *self.subscriptions.routes(),
            *self.teams.routes(),
        ]
        self.door = Door(self.world, self.tokens, self._faults, routes)

    async def _me(self, call: Call) -> Response:
        person = call.grant.user
        first, _, last = person.name.partition(" ")
        context = {"@odata.context": call.context("users/$entity")}
        known: Json = {
            "businessPhones": [],
            "displayName": person.name,
            "givenName": first,
            "jobTitle": None,
            "mail": person.address or None,
            "mobilePhone": None,
            "officeLocation": None,
            "preferredLanguage": "en-US",
            "surname": last or None,
            "userPrincipalName": person.upn or person.address,
            "id": person.id,
        }
        # What is not shown by itself is there for who names it; what is unknown is refused.
        more: Json = {"proxyAddresses": list(person.proxies)}
        wanted = [name for name in call.query.get("$select", "").split(",") if name]
        for name in wanted:
            if name not in known and name not in more:
                raise Refusal(400, "BadRequest", f"Could not find a property named '{name}' on type 'user'.")
        shown = {name: {**known, **more}[name] for name in wanted} if wanted else known
        return answer({**context, **shown})

    @property
    def url(self) -> str:
        """The base address of Graph, with its version."""
        return f"{self.tokens.origin}/v1.0"

    @property
    def authority(self) -> str:
        """The address of the tenant at the token service."""
        return f"{self.tokens.origin}/{self.tenant}"

    @property
    def tenant(self) -> str:
        """The id of the tenant."""
        return self.world.tenant

    @property
    def client_id(self) -> str:
        """The id of the public client that is registered."""
        return self.tokens.client_id

    @property
    def me(self) -> Person:
        """The person who signs in."""
        return self.world.me

    @property
    def sign_in(self) -> TokenState:
        """What a test can turn at the token service: the person's answer, consent, second factor."""
        return self.tokens.state

    @property
    def requests(self) -> Sequence[Asked]:
        """Every request so far, in the order of arrival."""
        return tuple(self.door.log)

    @property
    def notifications(self) -> Sequence[Notification]:
        """Every notification so far."""
        return tuple(self.subscriptions.sent)

    def asked(self, text: str, method: str = "") -> list[Asked]:
        """The requests whose path holds a text."""
        return [entry for entry in self.requests if text in entry.path and method in {"", entry.method}]

    def person(self, name: str, *, is_bot: bool = False) -> Person:
        """Someone new."""
        return self.world.person(name, is_bot=is_bot)

    def chat(self, *others: Person, topic: str | None = None, kind: str | None = None) -> Chat:
        """A new chat of the signed-in person with others."""
        return self.world.chat(*others, topic=topic, kind=kind)

    def say(
        self,
        chat: Chat,
        sender: Person,
        html: str,
        *,
        at: datetime | None = None,
        content_type: str = "html",
        mentions: Sequence[Json] = (),
        attachments: Sequence[Json] = (),
    ) -> ChatMessage:
        """Someone writes into a chat; `at` in the past is a message that arrives late."""
        at = at or self.clock.now()
        message = ChatMessage("", sender, html, content_type, at, at, mentions=mentions, attachments=attachments)
        self.world.say(chat, message)
        self.subscriptions.chat_changed(chat, message, "created")
        return message

    def rename(self, chat: Chat, by: Person, topic: str) -> ChatMessage:
        """Someone renames a chat, which leaves an event of the system in it."""
        now = self.clock.now()
        chat.topic, chat.updated = topic, now
        message = ChatMessage("", None, "<systemEventMessage/>", "html", now, now)
        message.event = shapes.renamed(chat, by, topic)
        return self.world.say(chat, message)

    def edit(self, chat: Chat, message: ChatMessage, html: str) -> None:
        """The author changes a message."""
        self.world.edit(message, html)
        self.subscriptions.chat_changed(chat, message, "updated")

    def react(self, chat: Chat, message: ChatMessage, by: Person, reaction: str = "👍") -> None:
        """Someone reacts to a message."""
        self.world.react(message, by, reaction)
        self.subscriptions.chat_changed(chat, message, "updated")

    def delete(self, chat: Chat, message: ChatMessage) -> None:
        """The author takes a message back."""
        self.world.delete(message)
        self.subscriptions.chat_changed(chat, message, "deleted")

    def mail(self, sender: Person, subject: str, html: str, *, at: datetime | None = None, **more: object) -> Mail:
        """A mail arrives; `more` are fields of `Mail`, such as folder, reply_to, internet_id, extra."""
        at = at or self.clock.now()
        mail = Mail(0, "inbox", sender, (self.me,), subject, html, at, at, "", "")
        for name, value in more.items():
            setattr(mail, name, value)
        self.world.receive(mail)
        self.subscriptions.mail_changed(mail, "created")
        return mail

    @property
    def sent_mails(self) -> list[Mail]:
        """Every mail that left, kept or not."""
        # Copied at once: the service receives mails in a thread of its own.
        return [mail for mail in list(self.world.mails.values()) if mail.folder == "sentitems"]

    def faults(self, *, under: str = "/v1.0/", **rates: float) -> None:
        """Let things go wrong for a share of the requests, by the names of `Fault`; without rates, no more."""
        self._faults.set_rates({Fault(name): rate for name, rate in rates.items()}, under)

    def fail_next(self, fault: Fault, path: str = "", times: int = 1, *, method: str = "") -> None:
        """Let the next requests whose path holds the text go wrong."""
        self._faults.order(fault, path, times, method)

    @contextmanager
    def holding(self, path: str) -> Iterator[threading.Event]:
        """Keep mail requests whose path holds the text inside the service until the block ends or the event is set."""
        event = threading.Event()
        entry = (path, event)
        self.door.holds.paths.append(entry)
        try:
            yield event
        finally:
            self.door.holds.paths.remove(entry)
            event.set()

    def token(self, *scopes: str, user: Person | None = None, is_application: bool = False) -> str:
        """An access token without the trouble of signing in; all scopes that were consented to, or these."""
        grant = self.tokens.grant_for(scopes or self.sign_in.consented, user=user, is_application=is_application)
        return str(self.tokens.issue(grant)["access_token"])

    def expire_tokens(self) -> None:
        """Let every access token so far be too old."""
        self.tokens.expire_access()

    def revoke_sign_in(self) -> None:
        """End every sign-in so far, as a changed password does."""
        self.tokens.revoke()

    def expire_pages(self) -> None:
        """Let every next link of chats and messages be too old."""
        self.teams.chat_pages.expire()
        self.teams.message_pages.expire()

    def expire_deltas(self, *, with_place: bool = True) -> None:
        """Let every delta link be too old: 410 with a place to start again, or 400 without."""
        self.mailbox.is_gone_with_place = with_place
        self.mailbox.rounds.expire()

    def replay(self, changes: int) -> None:
        """Let every further round of changes begin so many changes before its link."""
        self.mailbox.repeats = changes

    def register_agent(self, name: str = "Agent Smith", signer: Signer | None = None) -> Agent:
        """A blueprint with a certificate, an agent identity, and an agent user."""
        new = self.world.new_id
        agent = Agent(new(), new(), self.person(name), signer or make_signer())
        self.tokens.agents[agent.identity_id] = agent
        return agent

    def browse(self, url: str) -> httpx2.Response:
        """Do what a person's browser does with the address of a sign-in: follow it, and post what the page posts."""
        with httpx2.Client(verify=ssl.create_default_context(cafile=str(self.ca)), timeout=10) as client:
            page = client.get(url)
            if page.is_redirect:
                return client.get(page.headers["location"])
            action = re.search(r'action="([^"]+)"', page.text)
            if action is None:
                return page
            fields = {name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page.text)}
            return client.post(unescape(action[1]), data=fields)


@contextmanager
def serving(seed: int = 0) -> Iterator[Graph]:
    """Run the service on a free port of loopback until the block ends."""
    # Named as TCP, because asyncio turns the delay of small packets off only for sockets that say so: 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with tempfile.TemporaryDirectory(prefix="graph-") as folder, listener:
        ca, certificate = write_loopback_pair(Path(folder))
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        graph = Graph(seed, ca, certificate)
        graph.tokens.origin = f"https://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            graph.door,
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            date_header=False,
            server_header=False,
            log_config=None,
            log_level="critical",
            ssl_certfile=certificate,
            timeout_graceful_shutdown=1,
        )
        server = Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="graph", daemon=True)
        thread.start()
        try:
            yield graph
        finally:
            graph.subscriptions.close()
            server.should_exit = True
            thread.join(START_SECONDS)
