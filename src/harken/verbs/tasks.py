"""The verbs for tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from anyio import CancelScope, to_thread

from harken import render
from harken.errors import HarkenError, NotFound, UserError
from harken.hosts.registry import host_name
from harken.inbox.caller import DeliveryTime, Grant, Role
from harken.inbox.results import PullResult, TaskProgress
from harken.inbox.tasks import NewTask
from harken.model import TASK, Task, TaskId
from harken.verbs import shapes
from harken.verbs.verb import (
    AT,
    FROM_OUTSIDE,
    WHEN,
    AnyCall,
    Arguments,
    CallContext,
    MessageForms,
    ToolAnswer,
    ToolArgument,
    ToolCall,
    Verb,
    about,
    cut_note,
    plain,
    tool_of,
)

if TYPE_CHECKING:
    from harken.workspaces.seeding import SeedReport

_OWN = "the caller's own when empty."


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTask:
    """A task with its folder: what was written there for its agent, and what the person has to know."""

    task: TaskProgress
    folder: Path
    seeded: SeedReport
    notes: Sequence[str]


class ProposeTaskId(Arguments):
    """Propose an id for a task."""

    title: Annotated[str, about("What it is about.")]


class TaskNew(Arguments):
    """Make a task: its mailbox, and its folder. Asked again for the same it is made once."""

    title: Annotated[str, about("What it is about.")]
    dir: Annotated[str, about("Its folder, as a whole path.")]
    id: Annotated[str, about("Its id (default: made from the title).")] = ""
    repo: Annotated[str, about("The git repository it belongs to.")] = ""
    branch: Annotated[str, about("Its git branch.")] = ""
    agent: Annotated[str, about("The agent to use.")] = ""
    has_worktree: Annotated[bool, about("The folder is a git worktree made for it.")] = False
    links: Annotated[list[str], about("Tasks that become its peers.")] = msgspec.field(default_factory=list)
    prompt: Annotated[str, about("What to do: the first message in its mailbox, from you.")] = ""


class TaskMake(Arguments):
    """Make a task with its folder: a worktree on a new branch, or a folder as it is, with its agent connected there."""

    title: Annotated[str, about("What it is about.")]
    folder: Annotated[str, about("The repository or folder, as a whole path; ~ is your home.")]
    id: Annotated[str, about("Its id (default: made from the title).")] = ""
    agent: Annotated[str, about("The agent to use.")] = ""
    links: Annotated[list[str], about("Tasks that become its peers.")] = msgspec.field(default_factory=list)
    prompt: Annotated[str, about("What to do: the first message in its mailbox, from you.")] = ""
    branch: Annotated[str, about("The new branch (default: task/ID).")] = ""
    start: Annotated[str, about("Where the branch starts (default: HEAD).", flag="--from")] = ""
    is_here: Annotated[bool, about("Use the folder as it is, without a worktree.", flag="--here")] = False
    is_trusted: Annotated[
        bool, about("Let git run programs that the repository's settings name.", flag="--trust-repository")
    ] = False


class TaskList(Arguments):
    """Show the tasks: state, unread messages, title and folder."""

    all: Annotated[bool, about("Include tasks that are done.")] = False


class TaskShow(Arguments):
    """Show a task, its folder, its peers and who works on it."""

    task: Annotated[str, about("Its id or its title.")]


class TaskLink(Arguments):
    """Link tasks, so that their agents can message each other."""

    task: Annotated[str, about("One task.")]
    other: Annotated[str, about("The other.")]


class TaskUnlink(Arguments):
    """Unlink tasks."""

    task: Annotated[str, about("One task.")]
    other: Annotated[str, about("The other.")]


class TaskHost(Arguments):
    """Run a task's agent without a terminal: the daemon talks to it, and takes its conversation up after a restart."""

    task: Annotated[str, about("The task.")]
    agent: Annotated[str, about("The agent to use.")] = ""


class TaskStop(Arguments):
    """Stop the turn of a hosted agent. Its task goes on with the next message."""

    task: Annotated[str, about("The task.")]
    is_end: Annotated[bool, about("End the agent, and host the task no more.", flag="--end")] = False


class TaskDone(Arguments):
    """Let a task be done: it takes no more mail, and what it has not seen is refused."""

    task: Annotated[str, about("The task.")]


class TaskRemove(Arguments):
    """Forget a task that is done."""

    task: Annotated[str, about("The task.")]


class SendToTask(Arguments):
    """Send a message to a task, and see what will happen to it."""

    task_id: Annotated[str, about("The task.")]
    body: Annotated[str, about("What to say, in Markdown.")]
    priority: Annotated[str, about("high, normal or low.")] = "normal"
    key: Annotated[str, about("Your own id; a message with the same id is stored once.", flag="--id")] = ""
    as_file: Annotated[bool, about("Save the text as a file in the task's folder, and send its name.")] = False
    at: Annotated[str, AT] = ""
    when: Annotated[str, WHEN] = ""


class SendToPeer(Arguments):
    """Send a message to a peer of your task."""

    body: Annotated[str, about("What to say, in Markdown.")]
    peer: Annotated[str, about("Which peer, if there are several.")] = ""
    priority: Annotated[str, about("high, normal or low.")] = "normal"
    key: Annotated[str, about("Your own id; a message with the same id is stored once.", flag="--id")] = ""
    cwd: Annotated[str, about("The folder that says which task is yours.")] = ""
    as_file: Annotated[bool, about("Save the text as a file in the task's folder, and send its name.")] = False
    at: Annotated[str, AT] = ""
    when: Annotated[str, WHEN] = ""


class CheckInbox(Arguments):
    """Take a task's unread messages, urgent ones first."""

    task_id: Annotated[str, about(f"The task; {_OWN}")] = ""
    peek: Annotated[bool, about("Look without taking.")] = False
    cwd: Annotated[str, about("The folder that says which task is yours.")] = ""


class InboxStatus(Arguments):
    """Count a task's unread messages."""

    task_id: Annotated[str, about(f"The task; {_OWN}")] = ""
    cwd: Annotated[str, about("The folder that says which task is yours.")] = ""


async def _task_id(context: CallContext, a: ProposeTaskId) -> object:
    return {"id": context.tasks.propose(a.title)}


async def _task_new(context: CallContext, a: TaskNew) -> object:
    return shapes.task(await context.tasks.new(context.caller, NewTask(**msgspec.structs.asdict(a))))


async def make_task(context: CallContext, a: TaskMake) -> MadeTask:
    """Make a task and its folder. If git cannot make the worktree, the task is taken back."""
    from harken.workspaces.seeding import SeedReport, seed
    from harken.workspaces.tasks import TaskRequest, find_ground, ground_notes
    from harken.workspaces.worktree import add_worktree

    context.caller.require_owner("make tasks")
    agent = host_name(a.agent) if a.agent else ""
    name = a.id or context.tasks.propose(a.title)
    wanted = TaskRequest(
        title=a.title,
        folder=_named_folder(a.folder),
        branch=a.branch,
        start=a.start,
        is_here=a.is_here,
        is_trusted=a.is_trusted,
    )
    ground = await to_thread.run_sync(find_ground, wanted, name)
    new = NewTask(
        title=a.title,
        dir=str(ground.folder),
        id=name,
        repo=ground.repo,
        branch=ground.branch,
        agent=agent,
        has_worktree=ground.has_worktree,
        links=a.links,
        prompt=a.prompt,
    )
    made = await context.tasks.new(context.caller, new)
    if ground.spot and ground.repository:
        await _check_out(context, made.task.id, partial(add_worktree, ground.repository, ground.spot))
    seeded = SeedReport()
    if agent:
        # Only the owner comes this far, and they may connect hosts.
        connect = partial(seed, context.place(), made.task.id, ground.folder, agent, lambda: None)
        seeded = await to_thread.run_sync(connect)
    return MadeTask(task=made, folder=ground.folder, seeded=seeded, notes=[*ground_notes(ground), *seeded.notes])


async def _check_out(context: CallContext, task: TaskId, add: Callable[[], None]) -> None:
    from harken.workspaces.worktree import SpotTaken

    is_kept = False
    try:
        await to_thread.run_sync(add)
        is_kept = True
    except SpotTaken:
        is_kept = True  # the same task was made twice at once: it belongs to the first
        raise
    finally:
        if not is_kept:
            # What git said is the reason; a task that stays is shown without its folder.
            with CancelScope(shield=True), suppress(HarkenError):
                await context.tasks.finish(context.caller, task)
                await context.tasks.remove(context.caller, task)


def _named_folder(text: str) -> Path:
    folder = Path.home() / text[1:].lstrip("/") if text == "~" or text.startswith("~/") else Path(text)
    if not text.strip() or not folder.is_absolute():
        raise UserError("A task needs a folder.", "Give the whole path, such as ~/src/app.")
    if not folder.is_dir():
        raise NotFound(f"There is no folder {text[:200]}.", "Name a git repository or another folder.")
    return folder


async def _task_make(context: CallContext, a: TaskMake) -> object:
    made = await make_task(context, a)
    notes = [*made.notes, *made.seeded.about]
    return {**shapes.task(made.task), "has_folder": True, "seeded": list(made.seeded.files), "notes": notes}


async def _task_list(context: CallContext, a: TaskList) -> object:
    return {"tasks": [shapes.task(item) for item in await context.tasks.list(with_done=a.all)]}


async def _task_show(context: CallContext, a: TaskShow) -> object:
    found = await context.tasks.show(a.task)
    told = shapes.task(found)
    if found.hosted is not None and context.caller.role is Role.OWNER:
        # What an agent says to you is not for others.
        told["hosted"] = {**(shapes.hosted(found.hosted) or {}), **shapes.conversation_parts(found.hosted)}
    return told


async def _task_host(context: CallContext, a: TaskHost) -> object:
    return shapes.task(await context.tasks.host(context.caller, a.task, host_name(a.agent) if a.agent else ""))


async def _task_stop(context: CallContext, a: TaskStop) -> object:
    found, is_stopped = await context.tasks.stop(context.caller, a.task, is_end=a.is_end)
    return {**shapes.task(found), "is_stopped": is_stopped}


async def _task_link(context: CallContext, a: TaskLink) -> object:
    return shapes.task(await context.tasks.link(context.caller, a.task, a.other, is_on=True))


async def _task_unlink(context: CallContext, a: TaskUnlink) -> object:
    return shapes.task(await context.tasks.link(context.caller, a.task, a.other, is_on=False))


async def _task_done(context: CallContext, a: TaskDone) -> object:
    standing, refused = await context.tasks.finish(context.caller, a.task)
    return {**shapes.task(standing), "refused": refused}


async def _task_rm(context: CallContext, a: TaskRemove) -> object:
    return {"id": await context.tasks.remove(context.caller, a.task)}


async def _send_to_task(context: AnyCall, a: SendToTask) -> object:
    key = context.send_key(a.key, a.task_id, a.body)
    timing, named = DeliveryTime(a.at, a.when), {"priority": a.priority, "key": key}
    sent = await context.tasks.send(context.caller, a.task_id, a.body, **named, as_file=a.as_file, timing=timing)
    return {**sent.as_json(), "task": sent.message.mailbox.removeprefix(TASK)}


async def _send_to_peer(context: AnyCall, a: SendToPeer) -> object:
    key = context.send_key(a.key, a.peer, a.body)
    timing, named = DeliveryTime(a.at, a.when), {"priority": a.priority, "key": key, "peer": a.peer, "cwd": a.cwd}
    sent = await context.tasks.send_to_peer(context.caller, a.body, **named, as_file=a.as_file, timing=timing)
    return {**sent.as_json(), "task": sent.message.mailbox.removeprefix(TASK)}


def _forms(task: Task) -> MessageForms:
    """Return how a message of a task looks."""
    return MessageForms(
        json=(partial(shapes.task_message, task=task.id), partial(shapes.cut_task_message, task=task.id)),
        tool=(partial(render.for_task, task=task.id), partial(render.cut_for_task, task=task.id)),
    )


async def check_inbox(context: AnyCall, a: CheckInbox) -> tuple[Task, PullResult]:
    """Take what a task has not seen."""
    task, pulled = await context.tasks.check(
        context.caller,
        a.task_id,
        session=context.session_key,
        carrier=context.carrier,
        cwd=a.cwd,
        consume=not a.peek,
        choose=lambda task: context.budget(_forms(task)),
    )
    context.took(pulled)
    return task, pulled


async def _check_inbox(context: CallContext, a: CheckInbox) -> object:
    task, pulled = await check_inbox(context, a)
    whole, cut = _forms(task).json
    messages = [*map(whole, pulled.offers), *map(cut, pulled.cut)]
    return {"task": task.id, "pending": pulled.remaining, "messages": messages}


async def _check_inbox_tool(call: ToolCall, a: CheckInbox) -> ToolAnswer:
    task, pulled = await check_inbox(call, a)
    whole, cut = _forms(task).tool
    messages, note = [*map(whole, pulled.offers), *map(cut, pulled.cut)], cut_note(pulled, call.tool)
    is_own = task.consumer == call.reader.consumer
    return (
        ToolAnswer(messages, pulled.remaining, note, len(pulled.too_long))
        if is_own
        else ToolAnswer(messages, note=note)
    )


async def _inbox_status(context: AnyCall, a: InboxStatus) -> object:
    return {"pending": await context.tasks.pending(context.caller, a.task_id, cwd=a.cwd)}


_OWN_TASK: Final = ToolArgument(name="task_id", description="The task's id; this session's own task when empty.")
_BODY: Final = ToolArgument(name="body", description="What to say, in Markdown.")
_AT: Final = ToolArgument(name="at", description="Deliver it then: 18:00, in 2h, tomorrow 9:00.")
_WHEN: Final = ToolArgument(name="when", description="idle: when its session is idle; turn: after its turn.")
_CHECK_TOOL: Final = tool_of(
    CheckInbox,
    _OWN_TASK,
    name="check_inbox",
    title="Read the messages of a task",
    description=(
        "Returns the messages of a task that it has not seen yet, from its user and from other tasks, and marks "
        f"them as delivered: called again it returns only what is new. {FROM_OUTSIDE} Local and quick."
    ),
    run=_check_inbox_tool,
)
_SEND_TOOL: Final = tool_of(
    SendToTask,
    ToolArgument(name="task_id", description="The task's id."),
    _BODY,
    ToolArgument(name="priority", description="high goes first; normal; low waits for the next prompt."),
    _AT,
    _WHEN,
    name="send_to_task",
    title="Send a message to a task",
    description=(
        "Sends a message to another task. A session that works gets it between two tool calls, an idle one with "
        "its next prompt, or at once with priority high; a task that is not running gets it when it starts. The "
        "result says which."
    ),
    run=plain(_send_to_task),
)
_STATUS_TOOL: Final = tool_of(
    InboxStatus,
    _OWN_TASK,
    name="inbox_status",
    title="Count the messages of a task",
    description="Returns how many messages a task has not seen yet.",
    run=plain(_inbox_status),
    is_read_only=True,
)
_PEER_TOOL: Final = tool_of(
    SendToPeer,
    _BODY,
    ToolArgument(name="peer", description="The peer's id; not needed when there is one peer."),
    _AT,
    _WHEN,
    name="send_to_peer",
    title="Send a message to the linked task",
    description=(
        "Sends a message to the task that this session's task is linked to. With several peers, `peer` names one."
    ),
    run=plain(_send_to_peer),
)

TASK_VERBS: Final = (
    Verb("task_id", ProposeTaskId, _task_id),
    Verb("task_new", TaskNew, _task_new),
    Verb("task_make", TaskMake, _task_make),
    Verb("task_list", TaskList, _task_list),
    Verb("task_show", TaskShow, _task_show),
    Verb("task_link", TaskLink, _task_link),
    Verb("task_unlink", TaskUnlink, _task_unlink),
    Verb("task_host", TaskHost, _task_host),
    Verb("task_stop", TaskStop, _task_stop),
    Verb("task_done", TaskDone, _task_done),
    Verb("task_rm", TaskRemove, _task_rm),
    Verb("send_to_task", SendToTask, _send_to_task, _SEND_TOOL, needs=Grant.SEND),
    Verb("send_to_peer", SendToPeer, _send_to_peer, _PEER_TOOL, needs=Grant.SEND),
    Verb("check_inbox", CheckInbox, _check_inbox, _CHECK_TOOL, needs=Grant.READ),
    Verb("inbox_status", InboxStatus, _inbox_status, _STATUS_TOOL, needs=Grant.READ),
)
