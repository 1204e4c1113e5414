"""What a trial needs of a running Harken, as a protocol: to send a marker, and to ask what became of it.

The runner of a trial brings an implementation; the trials themselves know neither sockets nor daemons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

# States of the ledger in which there is proof that the model got a message.
PROVEN: Final = frozenset({"seen", "answered"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLedgerLine:
    """What the ledger says about one message and the host under trial."""

    state: str = "queued"
    surface: str = ""
    evidence: str = ""

    @property
    def is_proven(self) -> bool:
        """Whether Harken has proof that the model got it."""
        return self.state in PROVEN

    @property
    def sentence(self) -> str:
        """The line in words."""
        through = f" through {self.surface}" if self.surface else ""
        proof = f" ({self.evidence})" if self.evidence else ""
        return f"{self.state}{through}{proof}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSession:
    """A session as Harken knows it."""

    key: str
    host: str
    cwd: str
    presence: str
    mailboxes: tuple[str, ...]
    surfaces: tuple[str, ...]
    can_wake: bool

    @property
    def is_hooked(self) -> bool:
        """Whether a hook of it has run."""
        return any(surface.startswith("hook: ") for surface in self.surfaces)


class TrialDaemon(Protocol):
    """A running Harken. Every method asks it anew; each raises `HarkenError` when it cannot be asked."""

    def send(self, text: str, mailbox: str, *, is_quiet: bool = False) -> str:
        """Send a message of the person's own and return its id; a quiet one wakes no session."""
        ...

    def line(self, message: str, consumer: str) -> TrialLedgerLine:
        """Return what the ledger says about a message for a consumer."""
        ...

    def sessions(self) -> Sequence[TrialSession]:
        """Return who is here now."""
        ...

    def probe(self, session: str, method: str, params: Mapping[str, object]) -> bool:
        """Send any notification to a session; return whether there was a connection for it."""
        ...

    def settle(self, messages: Sequence[str]) -> None:
        """Mark messages as seen for the person: markers are nothing to read. Idempotent."""
        ...
