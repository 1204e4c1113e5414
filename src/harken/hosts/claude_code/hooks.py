"""Claude Code's hooks: its JSON as an `HookEvent`, and a text as the JSON that it passes on to its model.

Pure. Its model is told to take what hooks say as feedback from the user, so the frame around each text, which names
its sender and what it is to be treated as, matters here more than elsewhere; senders that nobody knows do not come this
way. What the bell brings is marked by Claude Code itself as not from the user. A wake also runs the prompt hook, with
its text as prompt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harken.hosts.hook import SILENCE, Hello, HookAdapter, HookAnswer, Voice
from harken.hosts.transcript import above_an_answer
from harken.sessions.events import HookEvent, HookMoment

EVENTS: Final[Mapping[HookMoment, str]] = MappingProxyType(
    {
        HookMoment.START: "SessionStart",
        HookMoment.PROMPT: "UserPromptSubmit",
        HookMoment.TOOL: "PostToolBatch",
        HookMoment.STOP: "Stop",
        HookMoment.END: "SessionEnd",
        HookMoment.BELL: "FileChanged",
    }
)
MOST_CHARS: Final = 9_500  # above 10,000 Claude Code shows its model only the beginning and the name of a file
MOST_STOPS: Final = 3  # Claude Code itself ends the turn after 8
REWAKE: Final = 2
MAX_DIGITS: Final = 10

# The start carries nothing: its answer names the bell to watch, and the first prompt carries what waits.
_MOST_CHARS: Final[Mapping[HookMoment, int]] = MappingProxyType(
    dict.fromkeys((HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP, HookMoment.BELL), MOST_CHARS)
)
_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(dict.fromkeys(_MOST_CHARS, Voice.OUTSIDE))
_GOES_ON: Final = frozenset({"clear", "resume"})


@dataclass(frozen=True, slots=True)
class ClaudeCodeHooks:
    """The hooks of Claude Code."""

    name: str = "claude-code"
    most_stops: int = MOST_STOPS

    @property
    def most_chars(self) -> Mapping[HookMoment, int]:
        """How many characters each moment can carry."""
        return _MOST_CHARS

    @property
    def voices(self) -> Mapping[HookMoment, Voice]:
        """Whose word a text is to the model at each of those moments."""
        return _VOICES

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for an event that is not the one this moment stands for."""
        native = _text(payload, "session_id")
        # Copilot runs the plugins that a project has for Claude Code, and drops what their hooks say.
        is_elsewhere = "COPILOT_CLI" in hello.env and "timestamp" in payload
        if not native or is_elsewhere or payload.get("hook_event_name") != EVENTS[moment]:
            return None
        return HookEvent(
            moment=moment,
            native=native,
            pid=_pid(hello.env.get("CLAUDE_PID", "")),
            cwd=_text(payload, "cwd") or hello.cwd,
            turn=_text(payload, "prompt_id"),
            prompt=_text(payload, "prompt") if moment is HookMoment.PROMPT else "",
            transcript=_text(payload, "transcript_path"),
            is_subagent=bool(payload.get("agent_id")),
            is_step=moment is HookMoment.TOOL,
            is_compacted=moment is HookMoment.START and _text(payload, "source") == "compact",
            is_continued=moment is HookMoment.STOP and payload.get("stop_hook_active") is True,
            keeps_running=moment is HookMoment.END and _text(payload, "reason") in _GOES_ON,
        )

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        if moment not in _MOST_CHARS or not text:
            return SILENCE
        if moment is HookMoment.BELL:
            return HookAnswer(stderr=text, exit_code=REWAKE)
        return _output(moment, {"additionalContext": text})

    def context(self, moment: HookMoment, watch: str) -> HookAnswer:
        """Return what to print without a text: at the start, which file rings for this session."""
        if moment is not HookMoment.START or not watch:
            return SILENCE
        return _output(moment, {"watchPaths": [watch]})


HOOKS: Final[HookAdapter] = ClaudeCodeHooks()


def _output(moment: HookMoment, fields: Mapping[str, object]) -> HookAnswer:
    return HookAnswer(stdout=json.dumps({"hookSpecificOutput": {"hookEventName": EVENTS[moment], **fields}}))


def _text(payload: Mapping[str, object], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""


def _pid(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS else 0


_KINDS = frozenset({"user", "attachment"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand above an answer of the model."""
    return above_an_answer(lines, ids, _KINDS)
