"""What came of trying one surface: did the text reach the model, what does the ledger say, what to do if not.

Pure values and the judgement from them. What was on the model's wire decides; the ledger only explains.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harken.trial.post import TrialLedgerLine, TrialSession


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
