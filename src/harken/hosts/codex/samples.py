"""Payloads of Codex's hooks as version 0.166.0 was seen to send them, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harken.hosts.hook import HookSample, hook_sample
from harken.sessions.events import HookMoment

_COMMON: Final[Mapping[str, object]] = {
    "session_id": "01a1",
    "turn_id": "turn-1",
    "transcript_path": "/t.jsonl",
    "cwd": "/work",
    "permission_mode": "default",
}
_MEANT: Final[Mapping[str, Any]] = {"native": "01a1", "turn": "turn-1", "transcript": "/t.jsonl", "cwd": "/work"}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.START, {"hook_event_name": "Interrupt"}),
    _sample(HookMoment.PROMPT, {"hook_event_name": "UserPromptSubmit", "prompt": "fix it"}, prompt="fix it"),
    _sample(
        HookMoment.TOOL,
        {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_response": "x", "tool_use_id": "1"},
    ),
    _sample(
        HookMoment.TOOL, {"hook_event_name": "PostToolUse", "tool_name": "Bash", "agent_id": "a"}, is_subagent=True
    ),
    _sample(HookMoment.STOP, {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "done"}),
    _sample(HookMoment.STOP, {"hook_event_name": "Stop", "stop_hook_active": True}, is_continued=True),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "other"}),
)
