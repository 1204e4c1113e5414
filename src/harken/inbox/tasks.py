"""`Tasks`: what people and agents do with tasks, and how tasks talk to each other.

A task is a folder, a mailbox and the agents that run in that folder. Above are the surfaces; messages go through
`Inbox` like all others, so that a task's mail has the same promises. Git and the agent's programs are the command
line's.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath
from typing import Protocol

import anyio

from harken.clock import Clock
from harken.errors import Conflict, Forbidden, NotFound, UserError
from harken.inbox.caller import AT_ONCE, Caller, DeliveryTime, Role
from harken.inbox.inbox import Inbox
from harken.inbox.results import HostedProgress, HostedState, PullResult, SendResult, TaskProgress
from harken.inbox.taskbook import TASK_CHANNEL, TaskBook
from harken.ingest.policy import check_said
from harken.ingest.sanitise import one_line
from harken.model import (
    LOCAL,
    Choose,
    Consumer,
    Draft,
    Mailbox,
    Message,
    Reader,
    Sender,
    SessionKey,
    Task,
    TaskId,
    fresh_id,
)
from harken.sessions.registry import MailScopeOf
from harken.sessions.session import Presence, Session
from harken.store.contract import Store

MAX_TITLE = 120
GONE = "gone"
MAX_TOLD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """What a person asks for."""

    title: str
    dir: str
    id: str = ""
    repo: str = ""
    branch: str = ""
    agent: str = ""
    has_worktree: bool = False
    links: Sequence[str] = ()
    prompt: str = ""


class TaskHosting(Protocol):
    """Runs the agents of tasks, without a terminal."""

    async def start(self, task: Task, agent: str) -> HostedProgress:
        """Run an agent in a task's folder from now on, also after a restart; return how that stands.

        Raises `UserError` for an agent that cannot be hosted. What keeps it from starting is in what is returned.
        """
        ...

    async def stop(self, task: TaskId) -> bool:
        """Stop the turn that an agent is in; return whether there was one."""
        ...

    async def end(self, task: TaskId) -> bool:
        """End the agent of a task, and host it no more; return whether it was hosted."""
        ...

    def progress(self, task: TaskId) -> HostedProgress | None:
        """Return how the agent of a task stands; None for a task that is not hosted."""
        ...


class Tasks:
    """The use cases of tasks. One per daemon."""

    def __init__(self, store: Store, inbox: Inbox, book: TaskBook, clock: Clock, *, reading_of: MailScopeOf) -> None:
        self._store = store
        self._inbox = inbox
        self._book = book
        self._clock = clock
        self._reading_of = reading_of
        self._running: frozenset[TaskId] = frozenset()
        self._met: frozenset[TaskId] = frozenset()
        self._changed = anyio.Event()
        self._making = anyio.Lock()
        self._hosting: TaskHosting | None = None
        inbox.sessions.observe_readers(self._note_readers)

    # -- people ------------------------------------------------------------------------------------------------

    def propose(self, title: str) -> TaskId:
        """Return the id that a new task with this title would have."""
        return task_id(_title(title), self._book.used)

    async def new(self, caller: Caller, asked: NewTask) -> TaskProgress:
        """Make a task. Its prompt becomes the first message in its mailbox, which waits for its first session."""
        caller.require_owner("make tasks")
        title = _title(asked.title)
        self._inbox.check_prompt(asked.prompt)
        if not PurePath(asked.dir).is_absolute():
            raise UserError("A task needs a folder.", "Give the whole path with --dir.")
        peers = [self._open(name).id for name in asked.links]
        # One at a time: two with one title would be given the same id.
        async with self._making:
            wanted = Task(
                id=given_id(asked.id) if asked.id else self.propose(title),
                title=title,
                dir=_folder(asked.dir),
                created_at=self._clock.now(),
                agent=asked.agent,
                repo=asked.repo,
                branch=asked.branch,
                has_worktree=asked.has_worktree,
            )
            known = self._made_before(wanted, is_named=bool(asked.id))
            task = known or await self._store.tasks.add(wanted, dict.fromkeys(peers))
            for peer in peers if known else ():
                await self._store.tasks.link(task.id, peer, is_on=True)
            await self.refresh()
        if asked.prompt.strip():
            # With what it says in it: asked for the same again it is stored once, for something else it is added.
            said = hashlib.sha256(asked.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            key = f"task/{task.id}/prompt/{said}"
            await self._inbox.send(caller, asked.prompt, channel=TASK_CHANNEL, to=task.mailbox, upstream_id=key)
        return await self.show(task.id)

    async def list(self, *, with_done: bool = False) -> Sequence[TaskProgress]:
        """Return the tasks, in the order in which they were made."""
        tasks = [task for task in self._book.every() if with_done or task.done_at is None]
        unread = {place.consumer: place.unread - place.leased for place in await self._store.deliveries.consumers()}
        return [self._seen_from(task, unread.get(task.consumer, 0)) for task in tasks]

    async def show(self, name: str) -> TaskProgress:
        """Return a task and how it stands."""
        return await self._standing(self._book.find(name))

    async def link(self, caller: Caller, name: str, other: str, *, is_on: bool) -> TaskProgress:
        """Link two tasks so that each is the other's peer, or end that."""
        caller.require_owner("link tasks")
        first, second = self._book.find(name), self._book.find(other)
        if first.id == second.id:
            raise UserError("A task cannot be its own peer.", "Name two different tasks.")
        if is_on:
            first, second = self._open(first.id), self._open(second.id)
        await self._store.tasks.link(first.id, second.id, is_on=is_on)
        await self.refresh()
        return await self.show(first.id)

    async def finish(self, caller: Caller, name: str) -> tuple[TaskProgress, int]:
        """Let a task be done: it takes no more mail, and what waited for it is refused. Return how much that was."""
        caller.require_owner("end tasks")
        task = self._book.find(name)
        if self._hosting:
            await self._hosting.end(task.id)
        reader = Reader(consumer=task.consumer, session=caller.session, mailboxes=(task.mailbox,))
        unread = await self._store.deliveries.peek(reader, MAX_TOLD) if task.done_at is None else []
        refused = await self._store.tasks.finish(task.id)
        await self.refresh()
        await self._tell_askers(task, unread)
        return await self.show(task.id), refused

    async def _tell_askers(self, done: Task, unread: Sequence[Message]) -> None:
        """Tell the tasks that wrote to one that is done now: they would wait for an answer that never comes."""
        for message in unread:
            asker = self._book.of_consumer(Consumer(message.sender.id))
            if asker is not None and asker.done_at is None:
                await self._inbox.accept(_unread_note(done, asker, message))

    async def remove(self, caller: Caller, name: str) -> TaskId:
        """Forget a task that is done."""
        caller.require_owner("remove tasks")
        task = self._book.find(name)
        await self._store.tasks.remove(task.id)
        await self.refresh()
        return task.id

    # -- hosted agents -----------------------------------------------------------------------------------------

    def be_hosted_by(self, hosting: TaskHosting) -> None:
        """Let agents of tasks be run by this from now on."""
        self._hosting = hosting

    async def host(self, caller: Caller, name: str, agent: str = "") -> TaskProgress:
        """Run the agent of a task without a terminal, from now on."""
        caller.require_owner("host agents")
        task = self._open(name)
        if task.machine:
            raise Conflict(f"The folder of task {task.id!r} is on {task.machine}.", "Do it there.")
        if not (chosen := agent or task.agent):
            raise UserError("Which agent?", "Say --agent with its name.")
        known = self._hosted_by.progress(task.id)
        running = known if known and known.state is not HostedState.STOPPED else None
        if running and agent and agent != running.agent:
            raise Conflict(
                f"Task {task.id!r} is hosted already, by {running.agent}.", f"harken task stop {task.id} --end"
            )
        if not running and (here := [each for each in self._here(task) if not each.is_hosted]):
            raise Conflict(
                f"A session of task {task.id!r} is here already: {here[0].key}.",
                "End it first: of two in one folder, each would take the other's mail.",
            )
        if not running:
            await self._hosted_by.start(task, chosen)
        return await self.show(task.id)

    async def stop(self, caller: Caller, name: str, *, is_end: bool = False) -> tuple[TaskProgress, bool]:
        """Stop the turn of a hosted agent, or end the agent; return whether there was something to stop."""
        caller.require_owner("stop hosted agents")
        task = self._book.find(name)
        if self._hosted_by.progress(task.id) is None:
            raise NotFound(f"Task {task.id!r} is not hosted.", "What runs in a terminal is stopped there.")
        done = await (self._hosted_by.end(task.id) if is_end else self._hosted_by.stop(task.id))
        return await self.show(task.id), done

    @property
    def _hosted_by(self) -> TaskHosting:
        if self._hosting is None:
            raise UserError("This daemon hosts no agents.", "Ask the daemon that has the task's folder.")
        return self._hosting

    # -- agents and people -------------------------------------------------------------------------------------

    async def send(
        self,
        caller: Caller,
        name: str,
        body: str,
        *,
        priority: str = "normal",
        key: str = "",
        as_file: bool = False,
        timing: DeliveryTime = AT_ONCE,
    ) -> SendResult:
        """Send a message to a task, from its user or from another task; as a file in its folder, if that is wanted."""
        task = self._open(name)
        text = await self._inbox.write_as_file(caller, task.mailbox, body) if as_file else body
        named = {"channel": TASK_CHANNEL, "to": task.mailbox, "priority": priority, "upstream_id": key}
        return await self._inbox.send_at(timing, caller, text, **named)

    async def send_to_peer(
        self,
        caller: Caller,
        body: str,
        *,
        peer: str = "",
        priority: str = "normal",
        cwd: str = "",
        key: str = "",
        as_file: bool = False,
        timing: DeliveryTime = AT_ONCE,
    ) -> SendResult:
        """Send a message to the task that the caller's own is linked to; with several it must be named."""
        own = self.own(caller, cwd)
        peers = [self._book.find(name) for name in own.peers]
        if not peers:
            raise UserError(
                f"Task {own.id!r} has no peer.", f"Link one: harken task link {own.id} OTHER. {self._book.listed()}"
            )
        working = [task for task in peers if task.done_at is None]
        names = ", ".join(task.id for task in working or peers)
        if not peer and len(working) > 1:
            raise UserError(f"Task {own.id!r} has several peers.", f"Say which one: {names}.")
        chosen = self._book.find(peer) if peer else (working or peers)[0]
        if chosen.id not in own.peers:
            raise UserError(f"Task {chosen.id!r} is not a peer of {own.id!r}.", f"Its peers are: {names}.")
        return await self.send(caller, chosen.id, body, priority=priority, key=key, as_file=as_file, timing=timing)

    async def check(
        self,
        caller: Caller,
        name: str = "",
        *,
        session: SessionKey,
        carrier: str,
        cwd: str = "",
        consume: bool = True,
        choose: Callable[[Task], Choose | None] | None = None,
    ) -> tuple[Task, PullResult]:
        """Hand out what a task has not seen yet, what is urgent first; as much as an answer about it can carry."""
        task = self._named_or_own(caller, name, cwd)
        self._require_own(caller, task)
        reader = Reader(consumer=task.consumer, session=session, mailboxes=(task.mailbox,))
        pulled = await self._inbox.pull(
            reader,
            limit=MAX_TOLD,
            consume=consume,
            surface="check_inbox",
            carrier=carrier,
            choose=choose(task) if choose else None,
        )
        return task, pulled

    def reader_of(self, caller: Caller, mailbox: Mailbox, session: SessionKey) -> Reader | None:
        """Return how the mail of a task is read by a caller who may take it; None for any other mailbox."""
        task = self._book.of_consumer(Consumer(mailbox))
        if task is None or not self._may_take(caller, task):
            return None
        return Reader(consumer=task.consumer, session=session, mailboxes=(mailbox,))

    async def pending(self, caller: Caller, name: str = "", *, cwd: str = "") -> int:
        """Count what a task has not seen yet."""
        task = self._named_or_own(caller, name, cwd)
        caller.require_mailbox(task.mailbox)
        reader = Reader(consumer=task.consumer, session=caller.session, mailboxes=(task.mailbox,))
        return await self._inbox.count(reader)

    def own(self, caller: Caller, cwd: str = "") -> Task:
        """Return the task that the caller is in: its session's, else that of the folder it is in."""
        if task := self._book.of_consumer(caller.consumer) or self._book.of_folder(_folder(cwd)):
            return task
        raise UserError("This session is in no task's folder.", f"Name a task. {self._book.listed()}")

    # -- keeping -----------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the tasks anew, and let every session read as its folder now says."""
        await self._book.refresh()
        for key in self._inbox.sessions.read_anew(self._reading_of):
            await self._inbox.proofs.release(key)

    async def keep(self) -> None:
        """Note which tasks have a session, as it changes: the first one starts a task."""
        while True:
            changed = self._changed
            running = self._now_running()
            # Also one that came and went since the last look.
            met, self._met = self._met | running, frozenset()
            await self._note_running(met - self._running, (met | self._running) - running)
            self._running = running
            await changed.wait()

    def _now_running(self) -> frozenset[TaskId]:
        here = self._inbox.sessions.consumers
        return frozenset(task.id for task in self._book.every() if task.consumer in here)

    async def _note_running(self, begun: Collection[TaskId], ended: Collection[TaskId]) -> None:
        for task in sorted(begun):
            if await self._store.tasks.start(task):
                await self._book.refresh()
            else:
                await self._store.events.record("task", {"task": task, "change": "running"})
        for task in sorted(ended):
            await self._store.events.record("task", {"task": task, "change": "ended"})

    def _note_readers(self) -> None:
        self._met |= self._now_running()
        self._changed.set()
        self._changed = anyio.Event()

    # -- inner -------------------------------------------------------------------------------------------------

    def _open(self, name: str) -> Task:
        task = self._book.find(name)
        self._book.admit(task.mailbox)
        return task

    def _made_before(self, wanted: Task, *, is_named: bool) -> Task | None:
        """Return the task that the same request has made already: a client that lost the answer asks again."""
        same = (wanted.title, wanted.dir)
        made = [task for task in self._book.every() if task.done_at is None and (task.title, task.dir) == same]
        return next((task for task in made if task.id == wanted.id or not is_named), None)

    def _named_or_own(self, caller: Caller, name: str, cwd: str) -> Task:
        return self._book.find(name) if name.strip() else self.own(caller, cwd)

    def _require_own(self, caller: Caller, task: Task) -> None:
        """Refuse to let an agent take the mail of another task: that one would never see it."""
        if not self._may_take(caller, task):
            raise Forbidden(
                f"The messages of task {task.id!r} are for its own session.",
                "inbox_status counts them; send_to_task sends it a message.",
            )

    def _may_take(self, caller: Caller, task: Task) -> bool:
        return caller.role is Role.OWNER or caller.consumer == task.consumer

    def _here(self, task: Task) -> Sequence[Session]:
        return [session for session in self._inbox.sessions.everywhere() if session.consumer == task.consumer]

    async def _standing(self, task: Task) -> TaskProgress:
        reader = Reader(consumer=task.consumer, session=SessionKey(""), mailboxes=(task.mailbox,))
        unread = await self._store.deliveries.unread(reader)
        return self._seen_from(task, unread.count - unread.leased)

    def _seen_from(self, task: Task, pending: int) -> TaskProgress:
        sessions = self._here(task) if task.done_at is None else []
        return TaskProgress(
            task=task,
            state=task.state(is_running=bool(sessions)),
            presence=_presence(sessions),
            pending=pending,
            sessions=sessions,
            hosted=self._hosting.progress(task.id) if self._hosting else None,
        )


def _unread_note(done: Task, asker: Task, message: Message) -> Draft:
    return Draft(
        source=LOCAL,
        sender=Sender(done.consumer, done.consumer),
        text=f"Task {done.id} is done and has not read your message {message.id}. It takes no more mail.",
        upstream_id=f"task/{done.id}/unread/{message.id}",
        refers_to=message.upstream_id,
        channel=TASK_CHANNEL,
        thread=message.thread,
        mailbox=asker.mailbox,
    )


def _folder(path: str) -> str:
    """Return a folder without links: programs name theirs so, also where a person reached it by a link."""
    if "\0" in path:
        raise UserError("A path cannot hold a NUL character.", "Check how the path was made.")
    return os.path.realpath(path) if path else ""


def _presence(sessions: Sequence[Session]) -> str:
    """Return what a task's sessions do: one that waits counts first, then one that works."""
    doing = {session.presence for session in sessions}
    order = (Presence.WAITING, Presence.BUSY, Presence.IDLE, Presence.CONNECTED)
    return next((presence.value for presence in order if presence in doing), GONE)


def _title(text: str) -> str:
    title = one_line(text, MAX_TITLE + len(text)).strip()
    check_said(title, MAX_TITLE, "The title of a task", "Say the rest with --prompt, or in a message.")
    if not title:
        raise UserError("A task needs a title.", 'Say what it is about: harken task new "Fix the login page"')
    return title


MAX_WORDS = 3
MAX_CHARS = 28
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
# What says little about a piece of work; without these the id is the part one remembers.
_FILLERS = frozenset(
    {"a", "an", "and", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or", "our"}
    | {"the", "this", "to", "up", "with"}
)


def task_id(title: str, taken: Collection[str]) -> TaskId:
    """Return a new id: `Fix the login page` is `fix-login-page`."""
    plain = unicodedata.normalize("NFKD", title.lower()).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", plain)
    telling = list(dict.fromkeys(word for word in words if word not in _FILLERS)) or words
    base = "-".join(telling[:MAX_WORDS])[:MAX_CHARS].strip("-") or fresh_id("task-", 4)
    if base not in taken:
        return TaskId(base)
    return TaskId(next(f"{base}-{number}" for number in count(2) if f"{base}-{number}" not in taken))


def given_id(name: str) -> TaskId:
    """Return an id that a person chose, or raise what is wrong with it."""
    if not _ID.fullmatch(name):
        raise UserError(
            f"{name[:60]!r} cannot be the id of a task.", "Use up to 40 lower-case letters, digits, dots and hyphens."
        )
    return TaskId(name)
