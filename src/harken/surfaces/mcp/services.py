"""What an MCP connection needs of the daemon, without the SDK: services, hints for agents, and questions to you.

A `FormQuestion` is shown by the host behind a connection as a form. How it travels is in `server.py`; which session is
asked, and when, `daemon.confirmations` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

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


def event_json(each: EventOccurrence) -> dict[str, Any]:
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
