"""How Qwen Code's hooks speak: its payloads as events, and texts as the JSON that it passes on to its model.

Pure. Its prompt hook runs before every request of a turn, the first time with the prompt and then with an empty one:
the latter is our moment between tool calls, once per model step, also after a tool that failed. What hooks add is
wrapped and escaped as context; what keeps a turn going arrives as the user's words. Text at the start of a session
would become part of the system prompt, so there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from harken.hosts.hook import (
    Hello,
    HookAdapter,
    HookAnswer,
    HookSample,
    Voice,
    above_an_answer,
    hook_sample,
    payload_text,
)
from harken.sessions.turns import Halt, HookEvent, HookMoment

NAME: Final = "qwen-code"
# After Esc there is no end of a turn, only this; after any other end it says nothing new.
IDLE_EVENT: Final = "Notification"
IDLE: Final = "idle_prompt"
ASKS: Final = "permission_prompt"
FAILS: Final = "StopFailure"  # in place of the end of a turn
_LIMITS: Final = frozenset({"rate_limit", "billing_error"})

EVENTS: Final[Mapping[HookMoment, str]] = MappingProxyType(
    {
        HookMoment.START: "SessionStart",
        HookMoment.PROMPT: "UserPromptSubmit",
        HookMoment.STOP: "Stop",
        HookMoment.END: "SessionEnd",
    }
)
# What wakes is wrapped as the word of a process that the session started, not of its user.
_MAX_CHARS: Final[Mapping[HookMoment, int]] = MappingProxyType(
    {HookMoment.PROMPT: 8_000, HookMoment.TOOL: 8_000, HookMoment.STOP: 8_000, HookMoment.BELL: 8_000}
)
_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(
    {
        HookMoment.PROMPT: Voice.OUTSIDE,
        HookMoment.TOOL: Voice.OUTSIDE,
        HookMoment.STOP: Voice.USER,
        HookMoment.BELL: Voice.OUTSIDE,
    }
)
# Qwen itself allows eight in a row.
_MAX_STOPS: Final = 3


class QwenHooks(HookAdapter):
    """The hooks of Qwen Code."""

    name = NAME
    most_chars = _MAX_CHARS
    voices = _VOICES
    most_stops = _MAX_STOPS
    events = EVENTS
    turn_key = "prompt_id"
    halts = frozenset(Halt)

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for what is not Qwen's, or not of this moment."""
        is_idle = moment is HookMoment.STOP and (
            (payload_text(payload, "hook_event_name"), payload_text(payload, "notification_type")) == (IDLE_EVENT, IDLE)
        )
        found = super().event(moment, {**payload, "hook_event_name": EVENTS[moment]} if is_idle else payload, hello)
        if found is None:
            return None
        is_step = moment is HookMoment.PROMPT and not found.prompt.strip() and "submitted_prompt" not in payload
        # The screen may be idle for a moment while the turn goes on: that says nothing of a turn.
        is_of_turn = moment in {HookMoment.PROMPT, HookMoment.STOP} and not is_idle
        return replace(
            found,
            moment=HookMoment.TOOL if is_step else found.moment,
            turn=found.turn if is_of_turn else "",
            is_step=is_step,
            is_interrupted=is_idle or found.is_interrupted,
            keeps_running=moment is HookMoment.END and payload_text(payload, "reason") == "clear",
        )

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return what is asked, or how a turn failed."""
        match payload_text(payload, "hook_event_name"), payload_text(payload, "notification_type"):
            case "Notification", "permission_prompt":
                return Halt.WAITS, payload_text(payload, "message")
            case "StopFailure", _:
                error = payload_text(payload, "error")
                kind = Halt.LIMITED if error in _LIMITS else Halt.FAILED
                return kind, payload_text(payload, "error_details") or error
            case _:
                return None

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        return super().answer(HookMoment.PROMPT if moment is HookMoment.TOOL else moment, text)


HOOKS: Final[HookAdapter] = QwenHooks()


_KINDS = frozenset({"user", "tool_result"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand above an answer of the model."""
    return above_an_answer(lines, ids, _KINDS)


# `SAMPLES`: payloads as version 0.24.4 was seen to send them, and what each means.
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
    _sample(HookMoment.STOP, {"hook_event_name": "Stop", "stop_hook_active": True}, turn="s-1########0"),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "agent_id": "general-purpose-1"},
        turn="s-1########0",
        is_subagent=True,
    ),
    _sample(
        HookMoment.STOP, {"hook_event_name": "Notification", "notification_type": "idle_prompt"}, is_interrupted=True
    ),
    _sample(
        HookMoment.HALT,
        {
            "hook_event_name": "Notification",
            "notification_type": "permission_prompt",
            "message": "Qwen Code needs your permission to use run_shell_command",
            "title": "Permission needed",
        },
        halt=Halt.WAITS,
        reason="Qwen Code needs your permission to use run_shell_command",
    ),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "StopFailure", "error": "invalid_request", "error_details": "400 status code"},
        moment=HookMoment.STOP,
        is_interrupted=True,
        halt=Halt.FAILED,
        reason="400 status code",
    ),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "StopFailure", "error": "rate_limit"},
        moment=HookMoment.STOP,
        is_interrupted=True,
        halt=Halt.LIMITED,
        reason="rate_limit",
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "clear"}, keeps_running=True),
)
