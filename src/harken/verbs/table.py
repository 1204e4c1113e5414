"""The table of verbs, and of the tools that agents have. The socket and the HTTP API ask here and nowhere else."""

from __future__ import annotations

from typing import Final

from harken.errors import UserError
from harken.verbs.access import ACCESS_VERBS, BROWSER_VERBS, TOKEN_VERBS
from harken.verbs.conversations import CONVERSATION_VERBS
from harken.verbs.messages import CHANNEL_VERBS, MESSAGE_VERBS
from harken.verbs.needs import NEED_VERBS
from harken.verbs.questions import APPROVAL_VERBS, OUTBOX_VERBS, QUESTION_VERBS, REPLY_VERBS
from harken.verbs.retention import RETENTION_VERBS
from harken.verbs.rules import RULE_VERBS
from harken.verbs.status import STATUS_VERBS
from harken.verbs.tasks import TASK_VERBS
from harken.verbs.verb import AgentTool, Verb, VerbTable

VERBS: Final = VerbTable(
    *MESSAGE_VERBS,
    *STATUS_VERBS,
    *REPLY_VERBS,
    *ACCESS_VERBS,
    *BROWSER_VERBS,
    *TOKEN_VERBS,
    *TASK_VERBS,
    *CHANNEL_VERBS,
    *QUESTION_VERBS,
    *APPROVAL_VERBS,
    *CONVERSATION_VERBS,
    *NEED_VERBS,
    *OUTBOX_VERBS,
    *RETENTION_VERBS,
    *RULE_VERBS,
)

_TOOLS_IN_ORDER: Final = (
    *("inbox_pull", "inbox_read", "wait_for_inbound_message", "inbound_queue_stats", "ack", "reply", "inbox_search"),
    *("channels", "check_inbox", "send_to_task", "inbox_status", "send_to_peer"),
)
TOOL_VERBS: Final[tuple[Verb, ...]] = tuple(
    sorted((verb for verb in VERBS if verb.tool), key=lambda verb: _TOOLS_IN_ORDER.index(verb.offered.name))
)
"""The verbs that agents have as tools, in the order in which they are listed."""

TOOLS: Final[tuple[AgentTool, ...]] = tuple(verb.offered for verb in TOOL_VERBS)
"""The tools that agents have, in the order in which they are listed."""

LONG_VERBS: Final = frozenset({"wait", "run_output"})
"""Those that may take long, and whose client may give up meanwhile."""

call: Final = VERBS.call


def find_tool(name: str) -> Verb:
    """Return the verb that has a tool of a name."""
    for verb in TOOL_VERBS:
        if verb.offered.name == name:
            return verb
    raise UserError(f"There is no tool {name[:80]!r}.", f"The tools are: {', '.join(tool.name for tool in TOOLS)}.")
