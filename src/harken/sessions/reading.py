"""The consumer that a session reads as, and its mailboxes: its folder decides, or the task that was named for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from harken.errors import HarkenError
from harken.model import (
    INBOX,
    Consumer,
    Mailbox,
    TaskId,
)


@dataclass(frozen=True, slots=True)
class NamedTask:
    """The task that a session was started for, wherever it runs: on the command line, or in the environment."""

    id: TaskId
    said_by: str = ""  # the agent in whose session that was said; empty for the person, who alone may


@dataclass(frozen=True, slots=True)
class ReadingScope:
    """The consumer that a session reads as, and its mailboxes."""

    consumer: Consumer
    mailboxes: tuple[Mailbox, ...] = (INBOX,)
    problem: HarkenError | None = None  # why it reads nothing: the named task is not there, or not for it


class ReadingOf(Protocol):
    """Decides how a session reads."""

    def __call__(self, cwd: str, agent: Consumer, named: NamedTask | None = None, /) -> ReadingScope:
        """Return how a session in a folder reads, which by itself would be `agent`."""
        ...


class NamingOf(Protocol):
    """Decides whether a session may be the task that was named for it."""

    def __call__(self, task: str, pid: int, host: str, /) -> NamedTask | None:
        """Return the task as a process of a host has named it, and whether an agent has; None when it named none."""
        ...


def mailboxes_of(cwd: str, projects: Mapping[str, Sequence[str]]) -> tuple[Mailbox, ...]:
    """Return what a session in a folder reads: the inbox, and the mailbox of each project it is inside."""
    here = PurePath(cwd or "/")
    inside = [name for name, folders in projects.items() if any(here.is_relative_to(folder) for folder in folders)]
    return (INBOX, *(Mailbox(f"project:{name}") for name in inside))


def trial_of(cwd: str, folder: PurePath) -> Mailbox | None:
    """Return the mailbox of the trial that a session runs in: it must not take mail that is meant for others."""
    here = PurePath(cwd or "/")
    return Mailbox(f"trial:{here.relative_to(folder).parts[0]}") if folder in here.parents else None
