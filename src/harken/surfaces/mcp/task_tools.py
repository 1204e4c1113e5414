"""The tools for tasks: reading a task's mail, and saying something to another task.

Like `tools`: descriptions describe, the first content block of a result is exactly its JSON.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Annotated

import msgspec

from harken import render
from harken.budget import Rendering, ResultBudget
from harken.model import Task
from harken.surfaces.mcp.tool import FROM_OUTSIDE, Answer, Call, Tool, cut_note
from harken.verbs import shapes

_OWN = "The task's id; this session's own task when empty."


class CheckInbox(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `check_inbox`."""

    task_id: Annotated[str, msgspec.Meta(description=_OWN)] = ""


class SendToTask(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `send_to_task`."""

    task_id: Annotated[str, msgspec.Meta(description="The task's id.")]
    body: Annotated[str, msgspec.Meta(description="What to say, in Markdown.")]
    priority: Annotated[str, msgspec.Meta(description="high goes first; normal; low waits for the next prompt.")] = (
        "normal"
    )


class InboxStatus(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `inbox_status`."""

    task_id: Annotated[str, msgspec.Meta(description=_OWN)] = ""


class SendToPeer(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `send_to_peer`."""

    body: Annotated[str, msgspec.Meta(description="What to say, in Markdown.")]
    peer: Annotated[str, msgspec.Meta(description="The peer's id; not needed when there is one peer.")] = ""


async def _check(call: Call, arguments: CheckInbox) -> Answer:
    task, pulled = await call.tasks.check(
        call.caller,
        arguments.task_id,
        session=call.reader.session,
        carrier=call.carrier,
        choose=lambda task: ResultBudget(call.result_bytes, *_renderings(task)),
    )
    call.note(pulled.offers)
    call.note_listed(pulled)
    whole, cut = _renderings(task)
    messages, note = [*map(whole, pulled.offers), *map(cut, pulled.cut)], cut_note(pulled, "check_inbox")
    is_own = task.consumer == call.reader.consumer
    return Answer(messages, pulled.remaining, note, len(pulled.too_long)) if is_own else Answer(messages, note=note)


def _renderings(task: Task) -> tuple[Rendering, Rendering]:
    """Return how a message of a task looks in a result, whole and cut."""
    return partial(render.for_task, task=task.id), partial(render.cut_for_task, task=task.id)


async def _send(call: Call, arguments: SendToTask) -> Answer:
    sent = await call.tasks.send(
        call.caller,
        arguments.task_id,
        arguments.body,
        priority=arguments.priority,
        key=_key(call, arguments.task_id, arguments.body),
    )
    return Answer(shapes.sent_to_task(sent))


async def _status(call: Call, arguments: InboxStatus) -> Answer:
    return Answer({"pending": await call.tasks.pending(call.caller, arguments.task_id)})


async def _send_to_peer(call: Call, arguments: SendToPeer) -> Answer:
    sent = await call.tasks.send_to_peer(
        call.caller, arguments.body, peer=arguments.peer, key=_key(call, arguments.peer, arguments.body)
    )
    return Answer(shapes.sent_to_task(sent))


def _key(call: Call, to: str, body: str) -> str:
    """Return what names this request: sent again after a restart it is stored once.

    With what it says in it: a client that uses a number twice must not lose the second message.
    """
    said = hashlib.sha256(f"{to}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{call.edge}/{call.request}/{said}"


TASK_TOOLS = (
    Tool(
        name="check_inbox",
        title="Read the messages of a task",
        description=(
            "Returns the messages of a task that it has not seen yet, from its user and from other tasks, and marks "
            f"them as delivered: called again it returns only what is new. {FROM_OUTSIDE} Local and quick."
        ),
        arguments=CheckInbox,
        run=_check,
    ),
    Tool(
        name="send_to_task",
        title="Send a message to a task",
        description=(
            "Sends a message to another task. A session that works gets it between two tool calls, an idle one with "
            "its next prompt, or at once with priority high; a task that is not running gets it when it starts. The "
            "result says which."
        ),
        arguments=SendToTask,
        run=_send,
    ),
    Tool(
        name="inbox_status",
        title="Count the messages of a task",
        description="Returns how many messages a task has not seen yet.",
        arguments=InboxStatus,
        run=_status,
        is_read_only=True,
    ),
    Tool(
        name="send_to_peer",
        title="Send a message to the linked task",
        description=(
            "Sends a message to the task that this session's task is linked to. With several peers, `peer` names one."
        ),
        arguments=SendToPeer,
        run=_send_to_peer,
    ),
)
