"""Payloads of Qwen Code's hooks as version 0.24.4 was seen to send them, and what each means."""

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
    "prompt_id": "s-1########0",
}
_MEANT: Final[Mapping[str, Any]] = {"native": "s-1", "cwd": "/work", "transcript": "/t.jsonl"}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.START, {"hook_event_name": "SessionStart", "source": "startup"}),
    _sample(
        HookMoment.PROMPT,
        {"hook_event_name": "UserPromptSubmit", "prompt": "hi", "submitted_prompt": "hi"},
        prompt="hi",
        turn="s-1########0",
    ),
    _sample(
        HookMoment.PROMPT,
        {"hook_event_name": "UserPromptSubmit", "prompt": ""},
        moment=HookMoment.TOOL,
        is_step=True,
        turn="s-1########0",
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "done"},
        turn="s-1########0",
    ),
    _sample(
        HookMoment.STOP, {"hook_event_name": "Stop", "stop_hook_active": True}, turn="s-1########0", is_continued=True
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "agent_id": "general-purpose-1"},
        turn="s-1########0",
        is_subagent=True,
    ),
    _sample(
        HookMoment.STOP, {"hook_event_name": "Notification", "notification_type": "idle_prompt"}, is_interrupted=True
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "clear"}, keeps_running=True),
)
