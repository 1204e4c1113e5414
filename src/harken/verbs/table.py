"""The table of verbs, and doing what one says. The socket and the HTTP API ask here and nowhere else."""

from __future__ import annotations

import logging
from typing import Final

from harken.errors import HarkenError, InternalError, UserError
from harken.memory import out_of_memory
from harken.verbs.access import ACCESS_VERBS, BROWSER_VERBS
from harken.verbs.messages import CHANNEL_VERBS, MESSAGE_VERBS
from harken.verbs.questions import OUTBOX_VERBS, QUESTION_VERBS, REPLY_VERBS
from harken.verbs.retention import RETENTION_VERBS
from harken.verbs.rules import RULE_VERBS
from harken.verbs.status import STATUS_VERBS
from harken.verbs.tasks import TASK_VERBS
from harken.verbs.verb import AgentTool, CallContext, Verb

_log = logging.getLogger("harken.verbs")

VERBS: Final[tuple[Verb, ...]] = (
    *MESSAGE_VERBS,
    *STATUS_VERBS,
    *REPLY_VERBS,
    *ACCESS_VERBS,
    *BROWSER_VERBS,
    *TASK_VERBS,
    *CHANNEL_VERBS,
    *QUESTION_VERBS,
    *OUTBOX_VERBS,
    *RETENTION_VERBS,
    *RULE_VERBS,
)

_TOOLS_IN_ORDER: Final = (
    *("inbox_pull", "inbox_read", "wait_for_inbound_message", "inbound_queue_stats", "ack", "reply", "inbox_search"),
    *("check_inbox", "send_to_task", "inbox_status", "send_to_peer"),
)
TOOLS: Final[tuple[AgentTool, ...]] = tuple(
    sorted((verb.tool for verb in VERBS if verb.tool), key=lambda tool: _TOOLS_IN_ORDER.index(tool.name))
)
"""The tools that agents have, in the order in which they are listed."""

LONG_VERBS: Final = frozenset({"wait", "run_output"})
"""Those that may take long, and whose client may give up meanwhile."""


async def call(context: CallContext, name: str, arguments: object) -> object:
    """Do what a verb says; raises `InternalError` for a fault in it, which the caller would take for a lost daemon."""
    for verb in VERBS:
        if verb.name == name:
            try:
                return await verb.run(context, verb.parse(arguments))
            except HarkenError:
                raise
            except MemoryError as exc:
                raise out_of_memory() from exc
            except Exception as exc:
                _log.exception("the verb %s failed", name)
                raise InternalError(
                    f"Harken itself has failed at {name} ({type(exc).__name__}); it may have been done or not.",
                    "Look whether it was done. The daemon's log says what failed; please report it.",
                ) from exc
    names = ", ".join(verb.name for verb in VERBS)
    raise UserError(f"There is no verb {name[:80]!r}.", f"The verbs are: {names}.")


def find_tool(name: str) -> AgentTool:
    """Return a tool by name."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise UserError(f"There is no tool {name[:80]!r}.", f"The tools are: {', '.join(tool.name for tool in TOOLS)}.")
