"""Payloads of Copilot CLI's hooks as version 1.0.102 was seen to send them, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harken.hosts.hook import HookSample, hook_sample
from harken.sessions.events import HookMoment

_COMMON: Final[Mapping[str, object]] = {"sessionId": "a62138f1", "timestamp": 1794785306604, "cwd": "/code/shop"}
_MEANT: Final[Mapping[str, Any]] = {"native": "a62138f1", "cwd": "/code/shop"}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.START, {"source": "new", "initialPrompt": "Fix it."}),
    _sample(HookMoment.PROMPT, {"prompt": "Fix it. (d-1)"}, prompt="Fix it. (d-1)"),
    _sample(
        HookMoment.PROMPT,
        {"prompt": "<system_notification>\nHello (d-7)\n</system_notification>"},
        prompt="<system_notification>\nHello (d-7)\n</system_notification>",
    ),
    _sample(HookMoment.TOOL, {"toolName": "bash", "toolResult": {"resultType": "success", "textResultForLlm": "x"}}),
    _sample(
        HookMoment.TOOL,
        {"toolName": "bash", "agentId": "f8f88ea1", "agentType": "explore", "parentAgentId": "a62138f1"},
        is_subagent=True,
    ),
    _sample(
        HookMoment.STOP,
        {"transcriptPath": "/s/events.jsonl", "stopReason": "end_turn", "stop_hook_active": False},
        transcript="/s/events.jsonl",
    ),
    _sample(
        HookMoment.STOP,
        {"transcriptPath": "/s/events.jsonl", "stop_hook_active": True},
        transcript="/s/events.jsonl",
        is_continued=True,
    ),
    _sample(HookMoment.END, {"reason": "user_exit"}),
)
