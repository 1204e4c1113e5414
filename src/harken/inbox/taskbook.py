"""The tasks there are, in memory: whose folder a session is in, and whether a task still takes mail.

Asked on every hook and every message, so it must not ask the store; it is read anew after each change. What is done
with tasks is in `tasks.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath

import anyio

from harken.errors import HarkenError, NotFound, Refused, UserError
from harken.model import TASK, Consumer, Mailbox, Task, TaskId
from harken.sessions.reading import NamedTask, Reading
from harken.store.contract import Store

MOST_NAMED = 20
NAMED_BY = "--task or HARKEN_TASK"


class TaskBook:
    """Holds the tasks; `refresh` after one changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: Mapping[TaskId, Task] = {}
        self._used: frozenset[TaskId] = frozenset()
        self._folders: Sequence[tuple[PurePath, Task]] = ()
        self._refreshing = anyio.Lock()

    async def refresh(self) -> None:
        """Read the tasks."""
        # One at a time: of two that read at once the older picture could come last, and stay.
        async with self._refreshing:
            used = frozenset(await self._store.tasks.ids())
            tasks = await self._store.tasks.list(with_done=True)
            self._tasks, self._used = {task.id: task for task in tasks}, used
            # The innermost folder first: a task inside another's folder is the one that is meant.
            folders = [(PurePath(task.dir), task) for task in tasks if task.done_at is None]
            self._folders = sorted(folders, key=lambda pair: len(pair[0].parts), reverse=True)

    def every(self) -> Collection[Task]:
        """Return the tasks in the order in which they were made, done ones too."""
        return self._tasks.values()

    @property
    def used(self) -> Collection[TaskId]:
        """Every id that a task ever had: none is given out twice."""
        return self._used

    def of_folder(self, cwd: str) -> Task | None:
        """Return the open task in whose folder a path is."""
        if not cwd:
            return None
        here = PurePath(cwd)
        return next((task for folder, task in self._folders if here.is_relative_to(folder)), None)

    def of_consumer(self, consumer: Consumer) -> Task | None:
        """Return the task that a consumer is."""
        return self._tasks.get(TaskId(consumer.removeprefix(TASK))) if consumer.startswith(TASK) else None

    def reading(self, cwd: str) -> Reading | None:
        """Return how a session in a task's folder reads: the mail of the task, and nothing else."""
        task = self.of_folder(cwd)
        return None if task is None else Reading(task.consumer, (task.mailbox,))

    def reading_as(self, named: NamedTask, cwd: str, agent: Consumer) -> Reading:
        """Return how a session reads that was started for a task: as if it ran in the task's folder.

        One that may not be this task, or for which there is none, reads nothing; it is who its folder says.
        """
        inside = self.of_folder(cwd)
        try:
            task = self._named(named, inside)
        except HarkenError as exc:
            return Reading(agent if inside is None else inside.consumer, (), exc)
        return Reading(task.consumer, (task.mailbox,))

    def _named(self, named: NamedTask, inside: Task | None) -> Task:
        if named.said_by:
            raise Refused(
                f"{named.said_by[:80]!r} may not start a session for task {named.id[:80]!r}.",
                "Only your user names the task of a session. send_to_task says something to a task.",
            )
        if inside is not None and inside.id != named.id:
            raise Refused(
                f"This session runs in the folder of task {inside.id!r} and cannot be task {named.id[:80]!r}.",
                f"Take {NAMED_BY} away, or start it in another folder.",
            )
        task = self._tasks.get(named.id)
        if task is None:
            raise NotFound(
                f"There is no task {named.id[:80]!r}, for which this session was started.",
                f"Correct {NAMED_BY}. {self.listed()}",
            )
        if task.done_at is not None:
            raise Refused(
                f"Task {task.id!r}, for which this session was started, is done.",
                f"Take {NAMED_BY} away, or name another task. {self.listed()}",
            )
        return task

    def find(self, name: str) -> Task:
        """Return the task that is meant: by id, with or without `task:`, or by its title; an open one before others."""
        wanted = name.strip().removeprefix(TASK)
        if not wanted:
            raise UserError("Which task?", self.listed())
        if task := self._tasks.get(TaskId(wanted)):
            return task
        titled = [task for task in self._tasks.values() if task.title.casefold() == wanted.casefold()]
        fits = [task for task in titled if task.done_at is None] or titled
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise UserError(f"{wanted[:80]!r} may be several tasks.", f"Say which: {_names(fits)}.")
        raise NotFound(f"There is no task {wanted[:80]!r}.", self.listed())

    def admit(self, mailbox: Mailbox, agent: Consumer | None = None) -> None:
        """Refuse mail to a task that is not there or is done, and an agent's mail to its own."""
        if not mailbox.startswith(TASK):
            return
        if agent is not None and agent == Consumer(mailbox):
            others = [task for task in self._tasks.values() if task.done_at is None and task.mailbox != mailbox]
            hint = f"Other tasks are: {_names(others)}." if others else "There is no other task yet."
            raise UserError(f"{mailbox.removeprefix(TASK)!r} is your own task.", hint)
        task = self._tasks.get(TaskId(mailbox.removeprefix(TASK)))
        if task is None:
            raise NotFound(f"There is no task {mailbox.removeprefix(TASK)[:80]!r}.", self.listed())
        if task.done_at is not None:
            raise Refused(f"Task {task.id!r} is done and takes no more mail.", self.listed())

    def is_open(self, mailbox: Mailbox) -> bool:
        """Whether a mailbox is that of a task that takes mail."""
        task = self._tasks.get(TaskId(mailbox.removeprefix(TASK))) if mailbox.startswith(TASK) else None
        return task is not None and task.done_at is None

    def listed(self) -> str:
        """Say which tasks there are, for whoever named one that is not."""
        names = [task for task in self._tasks.values() if task.done_at is None]
        return f"The tasks are: {_names(names)}." if names else 'No task is open. Make one: harken task new "TITLE"'


def _names(tasks: Sequence[Task]) -> str:
    shown = ", ".join(task.id for task in tasks[-MOST_NAMED:])
    return shown if len(tasks) <= MOST_NAMED else f"{shown}, and {len(tasks) - MOST_NAMED} more"


TASK_CHANNEL = "task"
