"""The part of the store's contract that is about tasks. What holds for every method is in `store/contract`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from harken.model import Task, TaskId


class TaskStore(Protocol):
    """Tasks and their links. Every change journals `task` with the task's id and what changed."""

    async def add(self, task: Task, peers: Collection[TaskId] = ()) -> Task:
        """Store a new task, linked to others, and give its consumer the mailbox from its first message.

        Raises `Conflict` when the id was used before or an open task of this machine has the folder, `NotFound` for an
        unknown peer. A task is told with its machine where that is another one.
        """
        ...

    async def get(self, task: TaskId) -> Task:
        """Return a task, or raise `NotFound`."""
        ...

    async def list(self, *, with_done: bool = False) -> Sequence[Task]:
        """Return the tasks in the order in which they were made."""
        ...

    async def ids(self) -> Sequence[TaskId]:
        """Return every id that was ever used."""
        ...

    async def link(self, task: TaskId, other: TaskId, *, is_on: bool) -> bool:
        """Link two tasks, or end that, in both directions; return whether that changed anything. Idempotent."""
        ...

    async def start(self, task: TaskId) -> bool:
        """Note that a session runs in a task; return whether it was the first. Idempotent."""
        ...

    async def finish(self, task: TaskId) -> int:
        """Let a task be done: what its sessions have not seen becomes `refused`. Return how much. Idempotent."""
        ...

    async def remove(self, task: TaskId) -> None:
        """Forget a task that is done; its messages stay until retention takes them. Its id is not used again.

        Raises `Conflict` for one that is not done.
        """
        ...
