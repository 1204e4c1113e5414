"""What every agent is served with, and the hints of errors in words for agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harken.clock import Clock
from harken.inbox import Inbox
from harken.inbox.tasks import Tasks
from harken.sessions.reading import NamedTask, ReadingOf
from harken.sources.source import SourceReport

# What a hint tells a person to run, and what an agent does instead.
_INSTEAD: Final = (
    ("See the ids with: harken list", "Find its id with inbox_search; inbox_pull gives what waits."),
    ('Make one: harken task new "TITLE"', "Your user can make one."),
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
    clock: Clock
    reading_of: ReadingOf
    named_by: Callable[[str], NamedTask | None] = lambda _host: None  # the task that an edge was started for
    sources: Callable[[], Sequence[SourceReport]] = tuple
