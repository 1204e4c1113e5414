"""What a hook of a host says about a session: an event, in words of our own. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HookMoment(StrEnum):
    """When a hook runs. These are the names in the commands that `connect` writes."""

    START = "start"  # a conversation begins, is resumed or cleared
    PROMPT = "prompt"  # the person, or a wake, submitted a prompt
    TOOL = "tool"  # between two tool calls
    STOP = "stop"  # the agent is about to end its turn
    END = "end"  # the conversation is over
    BELL = "bell"  # the session's bell changed while it was idle or busy


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """One run of a hook."""

    moment: HookMoment
    native: str = ""  # the host's own id of the conversation
    pid: int = 0  # the host's process where it names it; 0: found by ancestry
    cwd: str = ""
    turn: str = ""  # the host's own id of the turn: two events with the same one have no interruption between them
    prompt: str = ""  # what was submitted: delivery ids in it prove what a wake carried
    transcript: str = ""  # path of the host's own record of the conversation
    results: tuple[str, ...] | None = None  # of `tool`: the deliveries in Harken's own result; None: it cannot tell
    is_subagent: bool = False  # what it would be given goes to a helper of the agent, who cannot answer
    is_step: bool = False  # of `tool`: this runs once per model step, so an earlier one was another step
    is_interrupted: bool = False  # of `stop`: the person ended the turn; nothing can be said, nothing is proven
    is_compacted: bool = False  # of `start`: the same turn goes on with a shorter history
    is_continued: bool = False  # of `stop`: the turn goes on because of an earlier stop hook
    keeps_running: bool = False  # of `end`: the process goes on with another conversation (a cleared one)
