"""What came of trying one surface: did the text reach the model, what does the ledger say, what to do if not.

Pure values and the judgement from them. What was on the model's wire decides; the ledger only explains. `TrialDaemon`
is what a trial needs of a running Harken; the trials themselves know neither sockets nor daemons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

# States of the ledger in which there is proof that the model got a message.
PROVEN: Final = frozenset({"seen", "answered"})


class TrialVerdict(StrEnum):
    """How a surface did."""

    ARRIVED = "arrived"
    MISSING = "missing"  # it should have arrived
    NOT_TRIED = "not tried"
    NOT_OFFERED = "not offered"  # this host has no such surface


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One surface, tried."""

    surface: str  # as the ledger calls it
    verdict: TrialVerdict
    seconds: float | None = None  # from when it could be given until the model had it
    ledger: str = ""
    reason: str = ""
    hint: str = ""
    marker: str = ""
    message: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.verdict is not TrialVerdict.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCircumstances:
    """What is known about a host when a text did not arrive."""

    host: str  # its name on the command line
    title: str
    is_connected: bool
    guest: TrialSession | None  # the session of the trial, as Harken saw it while it ran
    hook_hint: str = ""  # why this host may leave a hook out, and what to do


def diagnose(surface: str, line: TrialLedgerLine, known: TrialCircumstances) -> tuple[str, str]:
    """Return why a text that was sent did not reach the model through a surface, and what to do about it."""
    look = f"Run: harken doctor {known.host}"
    if not known.is_connected:
        return f"{known.title} is not connected.", f"Run: harken connect {known.host}"
    if known.guest is None:
        why = f"No session of {known.title} reached Harken: neither its MCP server nor its hooks started."
        return why, look
    if surface.startswith("wake") and not known.guest.can_wake:
        return f"Harken knows no way to wake this session of {known.title}.", look
    if not surface.startswith("hook: ") or line.surface or surface in known.guest.surfaces:
        return _by_ledger(surface, line, known.title), look
    why = "This hook did not run." if known.guest.is_hooked else "None of its hooks ran."
    return why, known.hook_hint or look


def _by_ledger(surface: str, line: TrialLedgerLine, title: str) -> str:
    if not line.surface:
        return "It is still queued: nothing asked for it."
    if line.surface == surface or (surface == "wake" and line.surface.startswith("wake")):
        return f"Harken handed it over, and {title} did not pass it on to its model: {line.sentence}."
    return f"It went another way: {line.sentence}."


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
