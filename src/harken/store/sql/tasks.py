"""Tasks and their links. A task that is removed keeps its row, so that its id never means something else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from harken.errors import Conflict, NotFound
from harken.model import TASK, Mailbox, Task, TaskId
from harken.store.contract.events import RECOVERY
from harken.store.sql.enrollment import enroll
from harken.store.sql.offers import advance
from harken.store.sql.transaction import Readers, SqlConnection, StoreHolder, Transaction, from_micros, optional_moment
from harken.store.sql.writer import Writer

COLUMNS = "id, title, dir, repo, branch, agent, has_worktree, created_at, started_at, done_at, machine"
INSERT = """
INSERT INTO tasks (id, title, dir, repo, branch, agent, has_worktree, created_at, machine)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
USED = "SELECT 1 FROM tasks WHERE id = ?"
IN_FOLDER = "SELECT id FROM tasks WHERE machine = ? AND dir = ? AND done_at IS NULL"
BY_ID = f"SELECT {COLUMNS} FROM tasks WHERE id = ? AND removed_at IS NULL"
ALL = f"SELECT {COLUMNS} FROM tasks WHERE removed_at IS NULL AND (? <> 0 OR done_at IS NULL) ORDER BY n"
IDS = "SELECT id FROM tasks"
LINKS = "SELECT task, other FROM task_links ORDER BY task, other"
LINKS_OF = "SELECT task, other FROM task_links WHERE task = ? OR other = ? ORDER BY task, other"
LINK = "INSERT INTO task_links (task, other) VALUES (?, ?) ON CONFLICT DO NOTHING"
UNLINK = "DELETE FROM task_links WHERE task = ? AND other = ?"
UNLINK_ALL = "DELETE FROM task_links WHERE task = ? OR other = ?"
START = "UPDATE tasks SET started_at = ? WHERE id = ? AND started_at IS NULL AND removed_at IS NULL"
FINISH = "UPDATE tasks SET done_at = ? WHERE id = ? AND done_at IS NULL"
REMOVE = "UPDATE tasks SET removed_at = ? WHERE id = ?"
IS_DONE = "SELECT 1 FROM tasks WHERE id = ? AND done_at IS NOT NULL"
UNSEEN = """
SELECT m.seq, m.id FROM messages m LEFT JOIN deliveries d
    ON d.consumer = :name AND d.mailbox = :name AND d.seq = m.seq
WHERE m.mailbox = :name AND (d.state IS NULL OR d.state = 'offered')
    AND m.seq > coalesce((SELECT seq FROM cursors WHERE consumer = :name AND mailbox = :name), 0)
ORDER BY m.seq
"""
REFUSE = """
INSERT INTO deliveries (consumer, mailbox, seq, id, message, state, surface, session, carrier, offers, offered_at,
    lease_until, reason) VALUES (?, ?, ?, 'd-' || lower(hex(randomblob(8))), ?, 'refused', '', '', '', 0, ?, 0, ?)
ON CONFLICT (consumer, mailbox, seq) DO UPDATE SET state = 'refused',
    reason = 'the task was done before there was proof that it arrived'
"""
REASON = "the task is done"
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def add(tx: Transaction, task: Task, peers: Collection[TaskId]) -> Task:
    """Store a new task with its links."""
    if tx.execute(USED, (task.id,)).fetchone():
        raise Conflict(
            f"The id {task.id!r} is or was used by a task.", "Choose another id: harken task new TITLE --id ID"
        )
    if other := tx.execute(IN_FOLDER, (tx.holder.machine, task.dir)).fetchone():
        raise Conflict(f"The folder belongs to task {other[0]!r}.", f"End that first: harken task done {other[0]}")
    row = (task.id, task.title, task.dir, task.repo, task.branch, task.agent, task.has_worktree, tx.now_micros)
    tx.execute(INSERT, (*row, tx.holder.machine))
    for peer in peers:
        _stored(tx.connection, peer)
        tx.execute(LINK, pair(task.id, peer))
    enroll(tx, task.consumer, task.mailbox, BEGINNING)
    needed = {name: getattr(task, name) for name in ("dir", "repo", "branch", "agent", "has_worktree")}
    created = {"task": task.id, "change": "created", "title": task.title, "peers": sorted(peers)}
    tx.note("task", {**created, RECOVERY: needed})
    return find(tx.connection, task.id)


def find(connection: SqlConnection, task: TaskId) -> Task:
    """Return a task with its peers."""
    row = _stored(connection, task)
    return _task(row, _peers(connection.execute(LINKS_OF, (task, task)).fetchall()).get(task, []))


def every(connection: SqlConnection, *, with_done: bool) -> list[Task]:
    """Return the tasks, in the order in which they were made."""
    peers = _peers(connection.execute(LINKS).fetchall())
    return [_task(row, peers.get(row[0], [])) for row in connection.execute(ALL, (with_done,))]


def ids(connection: SqlConnection) -> list[TaskId]:
    """Return every id that was ever used."""
    return [TaskId(row[0]) for row in connection.execute(IDS)]


def link(tx: Transaction, task: TaskId, other: TaskId, *, is_on: bool) -> bool:
    """Begin or end a link."""
    _stored(tx.connection, task)
    _stored(tx.connection, other)
    changed = bool(tx.execute(LINK if is_on else UNLINK, pair(task, other)).rowcount)
    if changed:
        tx.note("task", {"task": task, "change": "linked" if is_on else "unlinked", "other": other})
    return changed


def start(tx: Transaction, task: TaskId) -> bool:
    """Note the first session of a task."""
    is_first = bool(tx.execute(START, (tx.now_micros, task)).rowcount)
    if is_first:
        tx.note("task", {"task": task, "change": "started"})
    return is_first


def finish(tx: Transaction, task: TaskId) -> int:
    """Let a task be done, and what waits for it be refused."""
    _stored(tx.connection, task)
    if not tx.execute(FINISH, (tx.now_micros, task)).rowcount:
        return 0
    refused = refuse_mail(tx, Mailbox(f"{TASK}{task}"))
    tx.note("task", {"task": task, "change": "done", "refused": refused})
    return refused


def remove(tx: Transaction, task: TaskId) -> None:
    """Forget a task that is done."""
    if _task(_stored(tx.connection, task), []).done_at is None:
        raise Conflict(f"Task {task!r} is not done.", f"End it first: harken task done {task}")
    tx.execute(REMOVE, (tx.now_micros, task))
    tx.execute(UNLINK_ALL, (task, task))
    tx.note("task", {"task": task, "change": "removed"})


def refuse_late(tx: Transaction, grown: Collection[Mailbox]) -> None:
    """Refuse what came in after its task was done: it must not wait for a reader who never comes."""
    for mailbox in grown:
        if tx.execute(IS_DONE, (mailbox.removeprefix(TASK),)).fetchone():
            refuse_mail(tx, mailbox)


def refuse_mail(tx: Transaction, mailbox: Mailbox) -> int:
    """Let everything that a task has not seen be refused; return how much."""
    rows = tx.connection.execute(UNSEEN, {"name": mailbox}).fetchall()
    for seq, message in rows:
        tx.execute(REFUSE, (mailbox, mailbox, seq, message, tx.now_micros, REASON))
    if rows:
        advance(tx, mailbox, mailbox)
        ids = [message for _, message in rows]
        tx.note("refused", {"consumer": mailbox, "mailbox": mailbox, "count": len(ids), "ids": ids, "reason": REASON})
    return len(rows)


def _stored(connection: SqlConnection, task: TaskId) -> Sequence[Any]:
    row: Sequence[Any] | None = connection.execute(BY_ID, (task,)).fetchone()
    if row is None:
        raise NotFound(f"There is no task {task[:80]!r}.", "See them with: harken task list --all")
    return row


def _task(row: Sequence[Any], peers: Sequence[TaskId]) -> Task:
    return Task(
        id=TaskId(row[0]),
        title=row[1],
        dir=row[2],
        repo=row[3],
        branch=row[4],
        agent=row[5],
        has_worktree=bool(row[6]),
        created_at=from_micros(row[7]),
        started_at=optional_moment(row[8]),
        done_at=optional_moment(row[9]),
        machine=row[10],
        peers=tuple(peers),
    )


def _peers(links: Collection[Sequence[str]]) -> dict[str, list[TaskId]]:
    peers: dict[str, list[TaskId]] = {}
    for task, other in links:
        peers.setdefault(task, []).append(TaskId(other))
        peers.setdefault(other, []).append(TaskId(task))
    return peers


def pair(task: TaskId, other: TaskId) -> tuple[str, str]:
    """Return the ids of two tasks as their link is stored."""
    return (task, other) if task < other else (other, task)


class SqlTasks:
    """The contract of `TaskStore`."""

    def __init__(self, writer: Writer, readers: Readers, holder: StoreHolder) -> None:
        self._writer = writer
        self._readers = readers
        self._holder = holder

    async def add(self, task: Task, peers: Collection[TaskId] = ()) -> Task:
        """Store a new task."""
        return self._from_here(await self._writer.run(lambda tx: add(tx, task, peers)))

    async def get(self, task: TaskId) -> Task:
        """Return a task."""
        return self._from_here(await self._readers.run(lambda db: find(db, task)))

    async def list(self, *, with_done: bool = False) -> Sequence[Task]:
        """Return the tasks."""
        found = await self._readers.run(lambda db: every(db, with_done=with_done))
        return [self._from_here(task) for task in found]

    def _from_here(self, task: Task) -> Task:
        return replace(task, machine=self._holder.other(task.machine)) if task.machine else task

    async def ids(self) -> Sequence[TaskId]:
        """Return every id that was ever used."""
        return await self._readers.run(ids)

    async def link(self, task: TaskId, other: TaskId, *, is_on: bool) -> bool:
        """Link two tasks, or end that."""
        return await self._writer.run(lambda tx: link(tx, task, other, is_on=is_on))

    async def start(self, task: TaskId) -> bool:
        """Note that a session runs in a task."""
        return await self._writer.run(lambda tx: start(tx, task))

    async def finish(self, task: TaskId) -> int:
        """Let a task be done."""
        return await self._writer.run(lambda tx: finish(tx, task))

    async def remove(self, task: TaskId) -> None:
        """Forget a task that is done."""
        await self._writer.run(lambda tx: remove(tx, task))
