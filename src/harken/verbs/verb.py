"""What a verb is, and the context of its call: who asks, and the use cases behind it.

The verbs themselves are in the modules beside, one for each noun; `table.py` joins them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from harken.budget import Rendering, ResultBudget, longest_piece, piece_of, printed_bytes
from harken.errors import NotFound, Refused, UserError
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.host import GENERIC
from harken.hosts.registry import host_named
from harken.inbox import Caller, Inbox, PullResult, Role
from harken.inbox.access import Access
from harken.inbox.automation import Automation
from harken.inbox.channels import Channels
from harken.inbox.questions import Questions
from harken.inbox.replies import Replies
from harken.inbox.retention import MailRetention
from harken.inbox.tasks import Tasks
from harken.model import Consumer, Mailbox, Message, MessageId, Reader, SessionKey
from harken.render import Piece
from harken.sessions.session import Session
from harken.sources.source import SourceReport
from harken.verbs import shapes

if TYPE_CHECKING:  # which is made of a verb's arguments
    from harken.verbs.tool import AgentTool

CONSUMER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}|task:[a-z0-9][a-z0-9._-]{0,63}")
_HIGHEST = (1 << 63) - 1  # what a database holds


def about(text: str, *, command: str = "", flag: str = "") -> msgspec.Meta:
    """Describe an argument; `command` says it in other words on the command line, `flag` is its option there."""
    extra = {name: value for name, value in (("command", command), ("flag", flag)) if value}
    return msgspec.Meta(description=text, extra=extra or None)


def position(text: str) -> msgspec.Meta:
    """Describe an argument that is a place in a mailbox or in the journal."""
    return msgspec.Meta(description=text, ge=-1, le=_HIGHEST)


class Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of a verb."""


class SignedInBrowser(Protocol):
    """A browser that is signed in to the page."""

    @property
    def id(self) -> str:
        """Its name to people."""
        ...

    @property
    def browser(self) -> str:
        """What it calls itself."""
        ...

    @property
    def host(self) -> str:
        """The address it is signed in at."""
        ...

    @property
    def began_at(self) -> datetime:
        """Since when."""
        ...

    @property
    def used_at(self) -> datetime:
        """When it was used last."""
        ...


class SignedInBrowsers(Protocol):
    """The browsers that are signed in."""

    def all(self) -> Sequence[SignedInBrowser]:
        """Return them."""
        ...

    def end(self, name: str) -> bool:
        """Sign one out; return whether it was signed in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForms:
    """How a message looks in an answer, whole and cut: in JSON, and in the result of a tool."""

    json: tuple[Rendering, Rendering]
    tool: tuple[Rendering, Rendering]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a verb needs: the use cases, who asks, and what the daemon says of itself."""

    inbox: Inbox
    access: Access
    tasks: Tasks
    channels: Channels
    questions: Questions
    replies: Replies
    reactions: Automation
    keeping: MailRetention
    caller: Caller
    session: SessionKey
    request: str
    daemon: Callable[[], Mapping[str, object]]
    sources: Callable[[], Sequence[SourceReport]]
    place: Callable[[], InstallTarget]  # where the settings of the person's hosts are
    reload: Callable[[], Awaitable[Mapping[str, object]]]  # takes over config.toml, all or nothing
    sign_in: Callable[[], str]  # makes a link that signs a browser in, once
    browsers: SignedInBrowsers

    @property
    def agent(self) -> Session | None:
        """The session of the agent that asks, while it is here; None for the person."""
        return self.inbox.sessions.get(self.caller.session) if self.caller.role is Role.AGENT else None

    @property
    def result_bytes(self) -> int | None:
        """As much as the host of the agent that asks shows its model of a command's output; the person sees all."""
        if self.caller.role is not Role.AGENT:
            return None
        return host_named(self.agent.host).result_bytes if self.agent else GENERIC.result_bytes

    def budget(self, forms: MessageForms) -> ResultBudget | None:
        """Return what an answer may carry; None for the person, who has no bound."""
        most = self.result_bytes
        return None if most is None else ResultBudget(most, *forms.json, printed_bytes)

    @property
    def carrier(self) -> str:
        """What names the answer that carries offers."""
        return self.request

    @property
    def session_key(self) -> SessionKey:
        """The session that offers are leased to."""
        return self.session

    def surface_of(self, verb: str) -> str:
        """Return the name of the surface through which offers go: the verb's."""
        return verb

    def answerable(self) -> Sequence[Mailbox] | None:
        """Return the mailboxes with what the caller may answer: a run what it is about, wherever that is."""
        return None if self.caller.is_run else self.among()

    def once(self, key: str) -> tuple[str, str]:
        """Return what names a request that carries a key: the command line, and the key."""
        return ("cli", key) if key else ("", "")

    def send_key(self, key: str, _to: str, _body: str) -> str:
        """Return what names a message that is sent again: the caller's own key."""
        return key

    def piece(self, message: Message, start: int, most_chars: int) -> Piece:
        """Return a part of a text that has so many characters at most, and that an agent's host shows whole."""
        asked = piece_of(message, start, start + most_chars)
        if self.result_bytes is None:
            return asked
        shown = longest_piece(message, start, self.result_bytes, shapes.piece, printed_bytes)
        return min(asked, shown, key=lambda piece: piece.end)

    def took(self, pulled: PullResult) -> None:
        """Note what an answer lists because it is too long: it does not end the next wait of the agent."""
        if self.agent:
            self.agent.note_listed(pulled.too_long.intersection(offer.message.id for offer in pulled.cut))

    def listed(self) -> frozenset[MessageId]:
        """Return what the agent has heard of by its first words."""
        return self.agent.listed if self.agent else frozenset()

    def among(self, mailbox: str = "") -> Sequence[Mailbox] | None:
        """Return what an agent may look into, or refuse it a mailbox that is not its own; None for the person."""
        if self.caller.role is not Role.AGENT:
            return None
        self._refuse_run()
        own = self.inbox.agent(self.caller, self.session).mailboxes
        if mailbox and mailbox not in own:
            raise self.caller.refusal(f"read the mailbox {mailbox[:40]!r}")
        return own

    def may_read(self, message: Message) -> bool:
        """Whether a message is for the caller, or its own: the person reads every one."""
        among = self.among()
        return among is None or message.mailbox in among or message.sender.id == self.caller.sender.id

    async def message(self, ref: str) -> Message:
        """Return a message that the caller may read; raises `NotFound` for any other."""
        found = await self.inbox.readable(ref)
        return found if self.may_read(found) else await self.inbox.readable(ref, self.among())

    def _refuse_run(self) -> None:
        if self.caller.is_run:
            raise Refused("A run takes no mail.", "What it is about stands in its prompt.")

    async def read_as(self, name: str = "", *, must_exist: bool = False) -> Reader:
        """Return how the caller reads: a person as any consumer, an agent as itself."""
        self._refuse_run()
        consumer = Consumer(name or self.caller.consumer)
        if self.caller.role is Role.AGENT:
            if consumer != self.caller.consumer:
                raise self.caller.refusal(f"read as {name[:40]!r}")
            return self.inbox.agent(self.caller, self.session)
        if not CONSUMER_NAME.fullmatch(consumer):
            raise UserError(
                f"{name[:40]!r} is not a valid consumer name.", "Use lower-case letters, digits, dots and hyphens."
            )
        if must_exist and consumer not in await self.inbox.consumers():
            raise NotFound(f"There is no consumer {name[:40]!r}.", "See them with: harken status")
        return await self.inbox.person(self.session, consumer)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its name, its arguments, what it does and answers as JSON, and the tool that agents have for it."""

    name: str
    arguments: type[Arguments]
    run: Callable[[CallContext, Any], Awaitable[object]]
    tool: AgentTool | None = None

    def parse(self, arguments: object) -> Arguments:
        """Return the arguments, or raise what is wrong with them."""
        try:
            return msgspec.convert(arguments or {}, self.arguments, strict=True)
        except msgspec.ValidationError as exc:
            known = ", ".join(self.arguments.__struct_fields__) or "none"
            raise UserError(f"{self.name}: {exc}.", f"Its arguments are: {known}.") from exc
