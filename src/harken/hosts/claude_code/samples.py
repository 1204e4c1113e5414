"""Payloads of Claude Code's hooks as version 2.1.325 was seen to send them, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harken.hosts.hook import HookSample, hook_sample
from harken.sessions.events import HookMoment

_COMMON: Final[Mapping[str, object]] = {
    "session_id": "f5304b8e",
    "transcript_path": "/home/me/.claude/projects/p/f5304b8e.jsonl",
    "cwd": "/code/shop",
}
_MEANT: Final[Mapping[str, Any]] = {
    "native": "f5304b8e",
    "transcript": "/home/me/.claude/projects/p/f5304b8e.jsonl",
    "cwd": "/code/shop",
}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.START, {"hook_event_name": "SessionStart", "source": "startup", "model": "m"}),
    _sample(HookMoment.START, {"hook_event_name": "SessionStart", "source": "compact"}, is_compacted=True),
    _sample(
        HookMoment.PROMPT,
        {"hook_event_name": "UserPromptSubmit", "prompt": "Fix it. (d-1)", "prompt_id": "a6fd00f3"},
        prompt="Fix it. (d-1)",
        turn="a6fd00f3",
    ),
    _sample(
        HookMoment.TOOL,
        {"hook_event_name": "PostToolBatch", "tool_calls": [{"tool_name": "Bash"}, {}], "prompt_id": "a6fd00f3"},
        turn="a6fd00f3",
        is_step=True,
    ),
    _sample(
        HookMoment.TOOL,
        {"hook_event_name": "PostToolBatch", "tool_calls": [{}], "agent_id": "a6a6", "agent_type": "general-purpose"},
        is_step=True,
        is_subagent=True,
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "stop_hook_active": False, "prompt_id": "a6fd00f3"},
        turn="a6fd00f3",
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "stop_hook_active": True, "prompt_id": "a6fd00f3"},
        turn="a6fd00f3",
        is_continued=True,
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"}),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "clear"}, keeps_running=True),
    _sample(HookMoment.BELL, {"hook_event_name": "FileChanged", "file_path": "bell", "event": "change"}),
)
