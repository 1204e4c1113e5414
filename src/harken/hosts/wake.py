"""How a host is reached from outside: its own ways to start a turn, a push by its MCP connection, what it asks.

Values that a host declares. What is said, when, and what becomes of a text that was not taken is decided above.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import timedelta

    from harken.model import ApprovalChoice, ApprovalRequest, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeWay:
    """One way to hand a text to an idle conversation, so that a turn begins."""

    surface: str  # as the ledger calls it
    send: Callable[[WakeTarget, str], Awaitable[bool | None]]  # whether it was taken; None: it may have been
    hindrance: Callable[[WakeTarget], Awaitable[str]] | None = None  # why it cannot be woken now; empty when it can
    speaks_as_user: bool = False  # whatever the host's hooks say: to the model the text is the user's own
    runs_prompt_hook: bool = True  # the host runs its prompt hook for the turn that this begins


class HostWaker(Protocol):
    """A host's own ways to start a turn. One for each daemon; it may keep connections."""

    def ways(self, target: WakeTarget) -> Sequence[WakeWay]:
        """Return the ways to a conversation as it is now, the best first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PushChannel:
    """A notification of a host's own that starts a turn in sessions which listen to it.

    The host never says whether it listens: it drops what it does not want without a word. So it is a way to wake only
    where the command line of the session turned it on, and what it carried is told again when nothing proves that it
    arrived.
    """

    surface: str  # as the ledger calls it
    capability: str  # declared in the handshake of every connection
    method: str
    most_chars: int
    params: Callable[
        [str, Sequence[Message]], Mapping[str, object]
    ]  # of the notification, from a text and what it tells
    listens: Callable[[Sequence[str]], bool]  # whether a session with this command line does


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeTarget:
    """An idle conversation, as far as a host's own way of waking needs to know it."""

    native: str
    pid: int = 0
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class HostQuestion(Protocol):
    """One question that a listener has heard: it waits in its host's own terminal too."""

    @property
    def request(self) -> ApprovalRequest:
        """What is asked, with the host's own id of the conversation as its session."""
        ...

    @property
    def patience(self) -> timedelta:
        """How long the host waits."""
        ...

    async def over(self) -> str:
        """Return why it can no longer be answered, once that is so."""
        ...

    async def reply(self, choice: ApprovalChoice, reason: str) -> str | None:
        """Hand an answer over, once; return what shows that it was obeyed: nothing if it was not, None if unknown."""
        ...


AskPerson = Callable[[str, HostQuestion, Sequence[str]], Awaitable[None]]
"""Relays a question of a host, by the host's name, until it is over. The last are the host's ids of the conversation
and of those that began it: the first that Harken knows is the one that asks."""


class QuestionListener(Protocol):
    """Hears what a host asks where no hook, and no program beside it, asks. One for each daemon."""

    def places(self, targets: Sequence[WakeTarget], harken: str) -> Collection[str]:
        """Return where some sessions ask, as far as the person chose that this Harken, by its home, shows it."""
        ...

    async def listen(self, place: str, ask: AskPerson) -> None:
        """Hear the questions of one place until it is gone; the daemon tries again."""
        ...
