"""The tasks there are, in memory: which task a session's folder belongs to, and whether a task still takes mail.

Asked on every hook and every message, so it must not ask the store; it is read anew after each change. A text that is
too long for a message is written to `.harken/inbox` of the task's folder, readable by its owner only, under a name of
its own: nothing is overwritten and no link is followed, because an agent works there and may have put one. What is done
with tasks is in `tasks.py`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath
from typing import Final

import anyio

from harken.errors import Conflict, Forbidden, HarkenError, NotFound, TooLong, UserError
from harken.ingest.sanitise import one_line
from harken.model import INBOX, TASK, Consumer, Mailbox, Task, TaskId
from harken.sessions.session import MailScope, NamedTask
from harken.store.contract.tasks import TaskStore

MAX_NAMED = 20
NAMED_BY = "--task or HARKEN_TASK"


class TaskBook:
    """Holds the tasks; `refresh` after one changed."""

    def __init__(self, tasks: TaskStore) -> None:
        self._stored = tasks
        self._tasks: Mapping[TaskId, Task] = {}
        self._used: frozenset[TaskId] = frozenset()
        self._folders: Sequence[tuple[PurePath, Task]] = ()
        self._refreshing = anyio.Lock()

    async def refresh(self) -> None:
        """Read the tasks."""
        # One at a time: of two that read at once the older picture could come last, and stay.
        async with self._refreshing:
            used = frozenset(await self._stored.ids())
            tasks = await self._stored.list(with_done=True)
            self._tasks, self._used = {task.id: task for task in tasks}, used
            # The innermost folder first: a task inside another's folder is the one that is meant.
            folders = [(PurePath(task.dir), task) for task in tasks if task.done_at is None and not task.machine]
            self._folders = sorted(folders, key=lambda pair: len(pair[0].parts), reverse=True)

    def every(self) -> Collection[Task]:
        """Return the tasks in the order in which they were made, done ones too."""
        return self._tasks.values()

    @property
    def used(self) -> Collection[TaskId]:
        """Every id that a task ever had: none is given out twice."""
        return self._used

    def of_folder(self, cwd: str) -> Task | None:
        """Return the open task with a folder that holds a path."""
        if not cwd:
            return None
        here = PurePath(cwd)
        return next((task for folder, task in self._folders if here.is_relative_to(folder)), None)

    def of_consumer(self, consumer: Consumer) -> Task | None:
        """Return the task that a consumer is."""
        return self._tasks.get(TaskId(consumer.removeprefix(TASK))) if consumer.startswith(TASK) else None

    def scope_of(
        self,
        trials: PurePath,
        projects: Mapping[str, Sequence[str]],
        cwd: str,
        agent: Consumer,
        named: NamedTask | None = None,
        /,
        *,
        satellite: str = "",
    ) -> MailScope:
        """Return what a session in a folder reads, which by itself would be `agent`, or one started for a task.

        `trials` is the folder of trials, each of which must not take mail that is meant for others. In the folder of a
        task it is the mail of that task and nothing else; elsewhere the inbox, and that of each project around it. The
        folders of tasks are on this machine: on a satellite no folder is one.
        """
        # Programs name their folder without links, whatever links the home or a task's folder was reached by.
        here = PurePath(os.path.realpath(cwd.replace("\0", "") or "/"))
        trials = PurePath(os.path.realpath(trials))
        if trials in here.parents:
            return MailScope(agent, (Mailbox(f"trial:{here.relative_to(trials).parts[0]}"),))
        if named is not None:
            return self.reading_as(named, "" if satellite else str(here), agent)
        if not satellite and (task := self.of_folder(str(here))) is not None:
            return MailScope(task.consumer, (task.mailbox,))
        path = PurePath(cwd or "/")
        inside = [name for name, folders in projects.items() if any(path.is_relative_to(each) for each in folders)]
        return MailScope(agent, (INBOX, *(Mailbox(f"project:{name}") for name in inside)))

    def reading_as(self, named: NamedTask, cwd: str, agent: Consumer) -> MailScope:
        """Return how a session reads that was started for a task: as if it ran in the task's folder.

        One that may not be this task, or for which there is none, reads nothing; it is who its folder says.
        """
        inside = self.of_folder(cwd)
        try:
            task = self._named(named, inside)
        except HarkenError as exc:
            return MailScope(agent if inside is None else inside.consumer, (), exc)
        return MailScope(task.consumer, (task.mailbox,))

    def _named(self, named: NamedTask, inside: Task | None) -> Task:
        if named.said_by:
            raise Forbidden(
                f"{named.said_by[:80]!r} may not start a session for task {named.id[:80]!r}.",
                "Only your user may name a session's task. To write to a task, use send_to_task.",
            )
        if inside is not None and inside.id != named.id:
            raise Forbidden(
                f"This session runs in the folder of task {inside.id!r} and cannot be task {named.id[:80]!r}.",
                f"Remove {NAMED_BY}, or start it in another folder.",
            )
        task = self._tasks.get(named.id)
        if task is None:
            raise NotFound(
                f"There is no task {named.id[:80]!r}, for which this session was started.",
                f"Correct {NAMED_BY}. {self.listed()}",
            )
        if task.done_at is not None:
            raise Forbidden(
                f"Task {task.id!r}, for which this session was started, is done.",
                f"Remove {NAMED_BY}, or name another task. {self.listed()}",
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
            raise UserError(f"{wanted[:80]!r} matches several tasks.", f"Say which: {_names(fits)}.")
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
            raise Forbidden(f"Task {task.id!r} is done and accepts no more messages.", self.listed())

    def is_open(self, mailbox: Mailbox) -> bool:
        """Whether a mailbox is that of a task that takes mail."""
        task = self._tasks.get(TaskId(mailbox.removeprefix(TASK))) if mailbox.startswith(TASK) else None
        return task is not None and task.done_at is None

    def listed(self) -> str:
        """Say which tasks there are, after a name of none."""
        names = [task for task in self._tasks.values() if task.done_at is None]
        return f"The tasks are: {_names(names)}." if names else 'No task is open. Make one: harken task new "TITLE"'


def _names(tasks: Sequence[Task]) -> str:
    shown = ", ".join(task.id for task in tasks[-MAX_NAMED:])
    return shown if len(tasks) <= MAX_NAMED else f"{shown}, and {len(tasks) - MAX_NAMED} more"


TASK_CHANNEL = "task"


FOLDERS: Final = (".harken", "inbox")
OF_HOMES: Final = ("harken.db", "store.json")  # in a home of Harken, by default in a folder of the first name
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MAX_NAMES: Final = 100
BEGINNING_CHARS: Final = 200  # of the text, in the words that name its file
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
IGNORED: Final = b"# Texts that Harken was given for this task. git leaves them alone.\n*\n"

_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text that is in a file: the file's path below the task's folder, and the words of a message that names it."""

    path: str
    note: str


def write_text(folder: str, text: str, day: date) -> TextFile:
    """Write a text into a task's folder. The same text of one day is written once."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_FILE_BYTES:
        message = f"A file has at most {MAX_FILE_BYTES:,} bytes here, and this text has {len(data):,}."
        hint = "Copy it into the task's folder yourself, and name the file in a message."
        raise TooLong(message, hint, length=len(text), limit=MAX_FILE_BYTES)
    stem = f"{day.isoformat()}-{hashlib.sha256(data).hexdigest()[:12]}"
    try:
        with _opened(folder) as inbox:
            _write_once(inbox, ".gitignore", IGNORED)
            for number in range(1, MAX_NAMES):
                name = f"{stem}.txt" if number == 1 else f"{stem}-{number}.txt"
                if _write_once(inbox, name, data) or _holds(inbox, name, data):
                    return _named("/".join((*FOLDERS, name)), text)
    except FileNotFoundError as exc:
        raise NotFound(f"The folder of the task is missing: {folder}", "See: harken task list") from exc
    except OSError as exc:
        place = "/".join(FOLDERS)
        message = f"No file can be written into {place} of the task's folder: {exc.strerror}."
        raise Conflict(message, "Check what is there: Harken does not follow links.") from exc
    raise Conflict(f"Too many files in the task's folder begin with {stem}.", "Remove some of them.")


def _named(path: str, text: str) -> TextFile:
    said = f"A text of {len(text):,} characters for you is in a file in this task's folder: {path}"
    return TextFile(path, f"{said}\nIt begins: {one_line(text, BEGINNING_CHARS)}")


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Open the folder for the files inside a task's folder; it is made where it is missing."""
    opened = [os.open(folder, _FOLDER)]
    try:
        for name in FOLDERS:
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE_FOLDER, dir_fd=opened[-1])
            opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
            if any(_is_there(opened[-1], each) for each in OF_HOMES):
                message = f"The folder of the task holds a home of Harken: {folder}/{name}"
                raise Conflict(message, "Make a task for another folder.")
        yield opened[-1]
    finally:
        for each in opened:
            os.close(each)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write_once(folder: int, name: str, data: bytes) -> bool:
    """Write a file that is not there yet; return whether it was not. A file that was begun and failed is removed."""
    try:
        file = os.open(name, _NEW, PRIVATE_FILE, dir_fd=folder)
    except FileExistsError:
        return False
    is_written = False
    try:
        with os.fdopen(file, "wb") as to:
            to.write(data)
            to.flush()
            os.fsync(to.fileno())
        os.fsync(folder)
        is_written = True
    finally:
        if not is_written:
            os.unlink(name, dir_fd=folder)
    return True


def _holds(folder: int, name: str, data: bytes) -> bool:
    """Whether a file is there with these words: they were handed over before, and the answer to that was lost."""
    try:
        # Not blocking: whatever has this name, it may be a pipe that nobody writes to.
        file = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NO_LINK, dir_fd=folder)
    except OSError:
        return False
    with os.fdopen(file, "rb") as there:
        is_file = stat.S_ISREG(os.fstat(there.fileno()).st_mode)
        return is_file and there.read(len(data) + 1) == data
