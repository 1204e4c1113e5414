"""How Codex's hooks speak: its payloads as events, and texts as the JSON that it passes on to its model.

Pure. What a hook says arrives with the developer's authority, and what holds up the end of a turn with the user's, so
no moment may carry an outsider's words. Codex drops an answer with a key that it does not know, without a word: each
event has exactly its own shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from harken.hosts.hook import HookAdapter, HookAnswer, HookSample, Voice, hook_sample, payload_text
from harken.sessions.turns import Halt, HookMoment

NAME: Final = "codex"

# SessionStart is missing: it runs directly before the first prompt, and a session that seems idle would be woken.
EVENTS: Final[Mapping[HookMoment, str]] = {
    HookMoment.PROMPT: "UserPromptSubmit",
    HookMoment.TOOL: "PostToolUse",
    HookMoment.STOP: "Stop",
    # After Esc there is no end of a turn, only this: as at a start nothing runs, nothing is proven, nobody listens.
    HookMoment.START: "Interrupt",
    HookMoment.END: "SessionEnd",
    HookMoment.HALT: "PermissionRequest",  # Codex shows its dialog when the hook has ended
}
# `connect` lifts the limit of 2,500 tokens for context. It stays for what holds up an end, at four bytes a token.
_MAX_CHARS: Final[Mapping[HookMoment, int]] = {
    HookMoment.PROMPT: 8_000,
    HookMoment.TOOL: 8_000,
    HookMoment.STOP: 2_400,
    HookMoment.BELL: 8_000,
}
_VOICES: Final[Mapping[HookMoment, Voice]] = dict.fromkeys(_MAX_CHARS, Voice.USER)
_MAX_STOPS: Final = 3


class CodexHooks(HookAdapter):
    """The hooks of Codex."""

    name = NAME
    most_chars = _MAX_CHARS
    voices = _VOICES
    most_stops = _MAX_STOPS
    events = EVENTS
    turn_key = "turn_id"
    halts = frozenset({Halt.WAITS, Halt.FINISHED})

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return what is asked."""
        is_asking = payload_text(payload, "hook_event_name") == EVENTS[HookMoment.HALT]
        return (Halt.WAITS, payload_text(payload, "tool_name")) if is_asking else None

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        # Half of a surrogate pair cannot be read by Codex, which then drops the whole answer.
        return super().answer(moment, text.encode("utf-8", "replace").decode("utf-8"))


HOOKS: Final[HookAdapter] = CodexHooks()


# `SAMPLES`: payloads as version 0.166.0 was seen to send them, and what each means.
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
    _sample(HookMoment.STOP, {"hook_event_name": "Stop", "stop_hook_active": True}),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "touch x"}},
        halt=Halt.WAITS,
        reason="Bash",
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "other"}),
)
