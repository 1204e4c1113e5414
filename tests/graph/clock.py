"""The time of the service: it runs with the machine's clock, or stands still, and moves when a test says so.

Limits, tokens, delta links and time stamps all ask this clock and no other. It is not the clock of what is tested:
moving only one of the two is how a test shows what a wrong clock does. Stamps are written as the service writes them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ServiceClock:
    """Tells the time of the service; safe to read from any thread."""

    def __init__(self) -> None:
        self._ahead = timedelta()
        self._frozen: datetime | None = None

    def now(self) -> datetime:
        """The time now, to the millisecond, as the service keeps it."""
        at = (self._frozen or datetime.now(UTC)) + self._ahead
        return at.replace(microsecond=at.microsecond // 1000 * 1000)

    def advance(self, seconds: float) -> None:
        """Move the clock, forwards or backwards."""
        self._ahead += timedelta(seconds=seconds)

    def freeze(self) -> None:
        """Stand still until the clock is moved or runs again."""
        self._frozen = datetime.now(UTC)

    def run(self) -> None:
        """Run with the machine's clock again."""
        self._frozen = None


def stamp(at: datetime) -> str:
    """A moment as Teams writes it: milliseconds without their last zeros, so that stamps do not sort as text."""
    text = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{at.microsecond // 1000:03d}".rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"


def second(at: datetime) -> str:
    """A moment as Outlook writes it: whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """The moment that a request names; raises ValueError for text that is none."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
