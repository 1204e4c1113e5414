"""The commands of Gemini CLI's hooks, as lines for `sh`.

A tool of a subagent runs the same hooks as the agent's own, with nothing in the payload to tell them apart, and what
a subagent is told never reaches the agent. So while one runs there is a mark for its process, and the hook after a
tool stays silent: the message comes when the subagent is done. A mark that was left behind, as after Esc, goes with
the next prompt. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harken.hosts.connect.command import hook_line
from harken.hosts.connect.plan import InstallTarget
from harken.hosts.gemini.hooks import CLEARED, EVENTS, NAME
from harken.sessions.events import HookMoment

SUBAGENT_TOOL: Final = "invoke_agent"
MARK_EVENT: Final = "BeforeTool"
_ITS_OWN: Final = f"^{SUBAGENT_TOOL}$"
_OTHERS: Final = f"^(?!{SUBAGENT_TOOL}$)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiHookLine:
    """One hook: when it runs, and what."""

    event: str
    name: str  # unique among ours in its event: how it is found again
    line: str
    matcher: str = ""


def hook_lines(place: InstallTarget) -> Sequence[GeminiHookLine]:
    """Return the hooks that `connect` writes."""
    marks = shlex.quote(str(place.harken / "run" / "subagents")) + "/$PPID."
    run = shlex.quote(str(place.harken / "run"))
    folder = shlex.quote(str(place.harken / "run" / "subagents"))
    mark = f"[ -d {run} ] || exit 0; mkdir -p {folder} 2>/dev/null && : >{marks}$$; exit 0"
    unmark = f'for mark in {marks}*; do rm "$mark" 2>/dev/null && break; done; '
    forget = f"rm -f {marks}* 2>/dev/null; "
    quiet = f'for mark in {marks}*; do [ -e "$mark" ] && exit 0; done; '
    tool = hook_line(place, NAME, HookMoment.TOOL)
    return (
        GeminiHookLine(
            event=EVENTS[HookMoment.START], name="harken", line=forget + hook_line(place, NAME, HookMoment.START)
        ),
        GeminiHookLine(
            event=EVENTS[HookMoment.PROMPT], name="harken", line=forget + hook_line(place, NAME, HookMoment.PROMPT)
        ),
        GeminiHookLine(event=MARK_EVENT, name="harken subagent", line=mark, matcher=_ITS_OWN),
        GeminiHookLine(event=EVENTS[HookMoment.TOOL], name="harken", line=quiet + tool, matcher=_OTHERS),
        GeminiHookLine(
            event=EVENTS[HookMoment.TOOL], name="harken subagent", line=unmark + quiet + tool, matcher=_ITS_OWN
        ),
        GeminiHookLine(event=EVENTS[HookMoment.STOP], name="harken", line=hook_line(place, NAME, HookMoment.STOP)),
        # At an exit Gemini would show lines about it to the person; that the process is gone is seen without.
        GeminiHookLine(
            event=EVENTS[HookMoment.END],
            name="harken",
            line=forget + hook_line(place, NAME, HookMoment.END),
            matcher=CLEARED,
        ),
    )
