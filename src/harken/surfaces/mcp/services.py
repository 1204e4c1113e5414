"""What an MCP connection needs of the daemon, and what its requests are: services, hints for agents, questions to you.

An `AgentRequest` is the same whichever server has read it: `connection.py`, or the SDK by `sdk.py`. A `FormQuestion` is
shown by the host behind a connection as a form. How it travels is in `server.py`; which session is asked, and when,
`daemon.confirmations` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from harken import render
from harken.automation import ANY_AGENT, OWN_FOLDER, ActionId, Order
from harken.clock import Clock
from harken.inbox.automation import ActionDetails
from harken.inbox.callbacks import CallbackSubscriptions
from harken.inbox.channels import Channels
from harken.inbox.inbox import Inbox
from harken.inbox.subscriptions import EventOccurrence, EventSubscriptions
from harken.inbox.tasks import Tasks
from harken.model import Message, timestamp
from harken.processes import LocalOrigin, Origin
from harken.rules.fault import plain_or_quoted
from harken.sessions.registry import MailScopeOf
from harken.sessions.session import NamedTask
from harken.sources.source import SourceReport

# What a hint tells a person to run, and what an agent does instead.
_INSTEAD: Final = (
    ("See the ids with: harken list", "Find its id with inbox_search; inbox_pull gives what waits."),
    ('Make one: harken task new "TITLE"', "Your user can make one."),
    ("See them: harken channel names", "Without a channel the newest of all are listed, each with its channel."),
)


def tool_hint(hint: str) -> str:
    """Return the hint of an error in words for an agent that calls tools."""
    for command, words in _INSTEAD:
        hint = hint.replace(command, words)
    return hint


Json: TypeAlias = dict[str, Any]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NO_MESSAGE: Final = "This is not a JSON-RPC 2.0 message."

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of the protocol that begin with `initialize`, the newest last. Later ones are the modern era."""


class RpcError(Exception):
    """A request is refused: a number, what a person is told, and what a program needs to know besides."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data


class ClientInfo(msgspec.Struct, frozen=True):
    """How a client names itself. Nothing has checked it."""

    name: str
    version: str


class ElicitationCapability(msgspec.Struct, frozen=True):
    """Which questions a client can show its person."""

    form: Json | None = None
    url: Json | None = None

    @property
    def has_form(self) -> bool:
        """Whether it shows forms. Without a mode it does: the other mode came later."""
        return self.form is not None or self.url is None


class ClientCapabilities(msgspec.Struct, frozen=True):
    """What a client says that it can do, as far as Harken makes use of it; the rest is only checked."""

    elicitation: ElicitationCapability | None = None
    extensions: dict[str, Json] | None = None
    experimental: dict[str, Json] | None = None
    roots: Json | None = None
    sampling: Json | None = None
    tasks: Json | None = None


Notice: TypeAlias = Callable[[str, Json], Awaitable[None]]
"""Sends a notification, and waits until there is room for it."""

Elicit: TypeAlias = Callable[[str, Json], Awaitable[Json | None]]
"""Shows a text and a form to the person behind a client; None when there was no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """A request of a client, or a notification, whichever server has read it."""

    method: str
    params: Mapping[str, Any]
    protocol: str  # the version that the connection speaks
    id: int | str | None = None
    number: str = ""  # what the log of calls knows it by
    client: ClientInfo | None = None
    capabilities: ClientCapabilities | None = None
    notify: Notice  # on the way of this request's answer
    announce: Notice  # at any time, as long as the connection is there
    elicit: Elicit | None = None

    @property
    def is_modern(self) -> bool:
        """Whether it is of the era in which requests stand alone."""
        return self.protocol not in HANDSHAKE_VERSIONS


class ModernServer(Protocol):
    """What serves a connection of the modern era."""

    async def serve(self) -> None:
        """Serve it until no more lines come."""
        ...

    async def take(self, line: bytes) -> bool:
        """Take a line of the client; return whether there is still somebody to take it."""
        ...

    async def publish_growth(self) -> None:
        """Tell those who listen that the inbox grew."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The parts behind the tools."""

    inbox: Inbox
    tasks: Tasks
    channels: Channels
    subscriptions: EventSubscriptions
    clock: Clock
    reading_of: MailScopeOf
    named_by: Callable[[str], NamedTask | None] = lambda _host: None  # the task that an edge was started for
    sources: Callable[[], Sequence[SourceReport]] = tuple
    origin: Origin = field(default_factory=LocalOrigin)  # of the edge
    callbacks: CallbackSubscriptions | None = None  # for agents that come with a token


def event_json(each: EventOccurrence) -> Json:
    """Return an occurrence as subscribers get it."""
    data = render.for_event(each.message, each.facts)
    return {"eventId": each.id, "name": each.name, "timestamp": timestamp(each.at), "data": data}


# Claude Code shows four lines at most, each cut at the width of the terminal.
LINE_CHARS: Final = 76
NAME_CHARS: Final = 40
CHANNEL_CHARS: Final = 24
TEXT_CHARS: Final = 240

_NO_QUOTES: Final = str.maketrans(dict.fromkeys('“”„‟"\uff02', "'"))


class FormChoice(StrEnum):
    """What the person can choose. The first is what a key pressed by mistake chooses."""

    LATER = "decide later"
    YES = "yes, run it"
    NO = "no"


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """What is asked, about which action."""

    action: ActionId
    text: str

    @property
    def form(self) -> dict[str, Any]:
        """The schema of the answer. Its one field has the name of the action, so that an answer names its question."""
        choice = {
            "type": "string",
            "title": "Answer",
            "description": f"Or later: harken channel confirm {self.action}",
            "enum": [each.value for each in FormChoice],
        }
        return {"type": "object", "properties": {self.action: choice}, "required": [self.action]}


Ask = Callable[[FormQuestion], Awaitable[FormChoice | None]]
"""Asks the person behind a connection. None: the host gave no answer that could be one."""


def question(told: ActionDetails, *, agent: str, folder: str) -> FormQuestion | None:
    """Return what to ask about an action; None when not all of what would run can be shown.

    `agent` and `folder` are what is taken where the rule names none.
    """
    action, order = told.action, told.action.order
    if order is None or told.message is None:
        return None
    lines = (
        f"Run {told.runs_on or order.agent or agent or ANY_AGENT}? Rule {plain_or_quoted(action.rule)}, {action.id}",
        f"Folder: {told.folder or order.workdir or folder or OWN_FOLDER}",
        f"Tools: {_tools(order)}",
    )
    shown = [_plain(line) for line in lines]
    if any(len(line) > LINE_CHARS for line in shown):
        # Nobody should say yes to what they cannot see.
        return None
    return FormQuestion(action.id, "\n".join((*shown, _said(told.message))))


def choice(asked: FormQuestion, answer: Mapping[str, object]) -> FormChoice | None:
    """Return what the fields of a form say; None when they answer another question."""
    chosen = answer.get(asked.action)
    if chosen is None:
        # To a question of an earlier daemon, which had the same number.
        return None
    # Copilot CLI lets people type something else.
    return next((each for each in FormChoice if each == chosen), FormChoice.LATER)


def _tools(order: Order) -> str:
    return ", ".join(order.tools) or "none"


def _said(message: Message) -> str:
    """Return who said what, on one line, after how far they are trusted: no name can say that of itself."""
    name, channel = _quoted(message.sender.label, NAME_CHARS), _quoted(message.channel or message.source, CHANNEL_CHARS)
    return f"Trust {message.trust.value}: {name} in {channel}: {_quoted(message.text, TEXT_CHARS)}"


def _quoted(text: str, most: int) -> str:
    """Return the beginning of a text in quotes that it cannot close."""
    plain = _plain(text).translate(_NO_QUOTES)
    return f"“{plain if len(plain) <= most else f'{plain[:most]}…'}”"


def _plain(text: str) -> str:
    """Return a text on one line, without anything that a terminal would obey."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())
