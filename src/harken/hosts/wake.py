"""How a host starts a turn in an idle conversation, from outside: its own ways, and a push through its MCP connection.

Values that a host declares. What is said, when, and what becomes of a text that was not taken is decided above.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harken.model import Message


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
