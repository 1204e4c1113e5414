"""Payloads of Gemini CLI's hooks as version 0.61.0 was seen to send them, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harken.hosts.hook import HookSample, hook_sample
from harken.sessions.events import HookMoment

_COMMON: Final[Mapping[str, object]] = {
    "session_id": "s-1",
    "cwd": "/work",
    "transcript_path": "/t.jsonl",
    "timestamp": "2026-01-05T09:00:00Z",
}
_MEANT: Final[Mapping[str, Any]] = {"native": "s-1", "cwd": "/work", "transcript": "/t.jsonl"}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.START, {"hook_event_name": "SessionStart", "source": "startup"}),
    _sample(HookMoment.PROMPT, {"hook_event_name": "BeforeAgent", "prompt": "hi d-1"}, prompt="hi d-1"),
    _sample(
        HookMoment.TOOL, {"hook_event_name": "AfterTool", "tool_name": "shell", "tool_response": {"llmContent": "x"}}
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "AfterAgent", "prompt": "p", "prompt_response": "r", "stop_hook_active": False},
    ),
    _sample(
        HookMoment.STOP, {"hook_event_name": "AfterAgent", "prompt": "p", "stop_hook_active": True}, is_continued=True
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "exit"}),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "clear"}, keeps_running=True),
)
