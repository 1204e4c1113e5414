"""How Gemini CLI's hooks speak: its payloads as events, and texts as the JSON that it passes on to its model.

Pure. Gemini wraps what its hooks add as context of its own and escapes angle brackets in it, so those moments carry
bodies; what keeps a turn going arrives as plain words of the user. Nothing in a payload tells a subagent's tool from
the agent's own: the commands that `connect` writes see to that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from harken.hosts.hook import Hello, HookAdapter, HookSample, Voice, hook_sample, payload_text, record_entry
from harken.sessions.turns import Halt, HookEvent, HookMoment, holds

NAME: Final = "gemini-cli"
TELLS: Final = "Notification"
ASKS: Final = "ToolPermission"
CLEARED: Final = "clear"  # the reason of an end after which the process goes on

EVENTS: Final[Mapping[HookMoment, str]] = MappingProxyType(
    {
        HookMoment.START: "SessionStart",
        HookMoment.PROMPT: "BeforeAgent",
        HookMoment.TOOL: "AfterTool",
        HookMoment.STOP: "AfterAgent",
        HookMoment.END: "SessionEnd",
    }
)
# A session that starts may stay without a prompt for hours: it is told with the prompt, directly before the model.
_MAX_CHARS: Final[Mapping[HookMoment, int]] = MappingProxyType(
    {HookMoment.PROMPT: 8_000, HookMoment.TOOL: 8_000, HookMoment.STOP: 8_000}
)
_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(
    {HookMoment.PROMPT: Voice.OUTSIDE, HookMoment.TOOL: Voice.OUTSIDE, HookMoment.STOP: Voice.USER}
)
_MAX_STOPS: Final = 3
# After Esc the hook of the tool still runs, and no end of the turn follows.
_CANCELLED: Final = ("Command was cancelled by user", "<untrusted_context>\nCommand was cancelled by user")


class GeminiHooks(HookAdapter):
    """The hooks of Gemini CLI."""

    name = NAME
    most_chars = _MAX_CHARS
    voices = _VOICES
    most_stops = _MAX_STOPS
    events = EVENTS
    halts = frozenset({Halt.WAITS, Halt.FINISHED})

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for what is not Gemini's, or not of this moment."""
        found = super().event(moment, payload, hello)
        if found is None:
            return None
        is_interrupted = moment is HookMoment.TOOL and _is_cancelled(payload)
        return replace(
            found,
            moment=HookMoment.STOP if is_interrupted else moment,
            is_interrupted=is_interrupted,
            keeps_running=moment is HookMoment.END and payload_text(payload, "reason") == CLEARED,
        )

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return what is asked."""
        told = payload_text(payload, "hook_event_name"), payload_text(payload, "notification_type")
        return (Halt.WAITS, payload_text(payload, "message")) if told == (TELLS, ASKS) else None


def _is_cancelled(payload: Mapping[str, object]) -> bool:
    response = payload.get("tool_response")
    said = response.get("llmContent") if isinstance(response, Mapping) else None
    return isinstance(said, str) and said.startswith(_CANCELLED)


HOOKS: Final[HookAdapter] = GeminiHooks()


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand before a new answer of the model."""
    held: dict[str, str] = {}  # by the message that holds it
    read: set[str] = set()
    names: dict[str, None] = {}  # of all messages so far, in their order
    for line in lines:
        entry = record_entry(line)
        kind, name = str(entry.get("type", "")), str(entry.get("id", ""))
        if "$rewindTo" in entry:
            held = _before(str(entry["$rewindTo"]), names, held)
        elif kind == "user":
            held |= {each: name for each in ids if holds(line, each)}
        elif kind == "gemini" and name not in names:
            read.update(held)
        names[name] = None
    return read


def _before(place: str, names: Collection[str], held: Mapping[str, str]) -> dict[str, str]:
    """Return what stands before the message that a conversation was taken back to; nothing when that is not known."""
    order = list(names)
    kept = set(order[: order.index(place)]) if place in order else set[str]()
    return {each: name for each, name in held.items() if name in kept}


# `SAMPLES`: payloads as version 0.61.0 was seen to send them, and what each means.
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
    _sample(HookMoment.STOP, {"hook_event_name": "AfterAgent", "prompt": "p", "stop_hook_active": True}),
    _sample(
        HookMoment.HALT,
        {
            "hook_event_name": "Notification",
            "notification_type": "ToolPermission",
            "message": "Tool Confirm Shell Command requires execution",
            "details": {"type": "exec", "command": "touch x"},
        },
        halt=Halt.WAITS,
        reason="Tool Confirm Shell Command requires execution",
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "exit"}),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "clear"}, keeps_running=True),
)
