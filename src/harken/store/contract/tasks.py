"""The part of the store's contract that is about tasks. What holds for every method is in `store/contract`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from harken.model import Task, TaskId


class TaskRows(Protocol):
    """Tasks and their links. Every change journals `task` with the task's id and what changed."""

    async def add_task(self, task: Task, peers: Collection[TaskId] = ()) -> Task:
        """Store a new task, linked to others, and give its consumer the mailbox from its first message.

        Raises `Conflict` when the id was used before or an open task has the folder, `NotFound` for an unknown peer.
        """
        ...

    async def task(self, task: TaskId) -> Task:
        """Return a task, or raise `NotFound`."""
        ...

    async def tasks(self, *, with_done: bool = False) -> list[Task]:
        """Return the tasks in the order in which they were made."""
        ...

    async def task_ids(self) -> list[TaskId]:
        """Return every id that was ever used."""
        ...

    async def link_tasks(self, task: TaskId, other: TaskId, *, is_on: bool) -> bool:
        """Link two tasks, or end that, in both directions; return whether that changed anything. Idempotent."""
        ...

    async def start_task(self, task: TaskId) -> bool:
        """Note that a session runs in a task; return whether it was the first. Idempotent."""
        ...

    async def finish_task(self, task: TaskId) -> int:
        """Let a task be done: what its sessions have not seen becomes `refused`. Return how much. Idempotent."""
        ...

    async def remove_task(self, task: TaskId) -> None:
        """Forget a task that is done; its messages stay until retention takes them. Its id is not used again.

        Raises `Conflict` for one that is not done.
        """
        ...
