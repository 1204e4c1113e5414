"""How Copilot CLI's hooks speak: its payloads as events, and texts as the JSON that it passes on to its model.

Pure. A session's first hook runs with its first prompt, directly before the hook of that prompt: it carries nothing,
so nothing can be said twice. The end of a turn is held up with words that Copilot takes for the person's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from harken.hosts.hook import (
    SILENCE,
    ApprovalAdapter,
    Hello,
    HookAdapter,
    HookAnswer,
    HookSample,
    Voice,
    hook_sample,
    payload_text,
    printed,
    record_entry,
)
from harken.model import ApprovalChoice, ApprovalRequest, SessionKey
from harken.sessions.turns import Halt, HookMoment, holds

NAME: Final = "copilot-cli"

# What follows a tool is cut at 10 KB; the rest of that is Copilot's own words and what JSON adds.
_MAX: Final = 8_000
_MAX_CHARS: Final[Mapping[HookMoment, int]] = MappingProxyType(
    dict.fromkeys((HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP, HookMoment.BELL), _MAX)
)
_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(
    {
        HookMoment.PROMPT: Voice.OUTSIDE,  # a `<system_reminder>` after the prompt
        HookMoment.TOOL: Voice.OUTSIDE,  # beside the tool's result, as the words of a hook
        HookMoment.STOP: Voice.USER,  # the next prompt, with nothing that says it is not typed
        HookMoment.BELL: Voice.OUTSIDE,  # a wake: a `<system_notification>`, or the output of a shell
    }
)
# Copilot ends a turn in spite of its hooks after eight in a row; other people's hooks count too.
_MAX_STOPS: Final = 6
_ASKS: Final = frozenset({"permission_prompt", "elicitation_dialog"})


class CopilotHooks(HookAdapter):
    """The hooks of Copilot CLI."""

    name = NAME
    most_chars = _MAX_CHARS
    voices = _VOICES
    most_stops = _MAX_STOPS
    native_key = "sessionId"
    transcript_key = "transcriptPath"
    subagent_key = "parentAgentId"  # a helper has a session id of its own and names the one it works for
    halts = frozenset({Halt.WAITS, Halt.FINISHED})

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return what is asked."""
        is_asking = payload_text(payload, "notification_type") in _ASKS
        return (Halt.WAITS, payload_text(payload, "message")) if is_asking else None

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        if not text or moment not in {HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP}:
            return SILENCE
        return printed(
            {"decision": "block", "reason": text} if moment is HookMoment.STOP else {"additionalContext": text}
        )


HOOKS: Final[HookAdapter] = CopilotHooks()

# Of what Copilot asks: what names the request, and what it offers, not what it asks.
_APART: Final = frozenset({"kind", "toolCallId", "canOfferSessionApproval"})
REFUSED: Final = "The user refused this, without a reason."


class CopilotApprovals(ApprovalAdapter):
    """What Copilot asks, as its event `permission.requested` says it, and the result that its call takes."""

    def question(self, payload: Mapping[str, object], hello: Hello) -> ApprovalRequest | None:
        """Return what is asked; None for what is not understood."""
        asked, session = payload.get("asked"), payload_text(payload, "sessionId")
        native = payload_text(payload, "requestId")
        tool = payload_text(asked, "kind") if isinstance(asked, dict) else ""
        if not isinstance(asked, dict) or not session or not native or not tool:
            return None
        always = _commands(asked)
        return ApprovalRequest(
            host=NAME,
            session=SessionKey(session),
            tool=tool,
            arguments={name: value for name, value in asked.items() if name not in _APART},
            digest="",
            folder=payload_text(payload, "cwd") or hello.cwd,
            choices=(ApprovalChoice.ONCE, *([ApprovalChoice.ALWAYS] if always else []), ApprovalChoice.NO),
            always=f"{', '.join(always)}: every such command, in this conversation" if always else "",
            native=native,
        )

    def answer(self, payload: Mapping[str, object], choice: ApprovalChoice, reason: str) -> HookAnswer:
        """Return the result; for `always` with the commands that Copilot itself has named."""
        asked = payload.get("asked")
        result: dict[str, object] = {"kind": "approve-once"}
        if choice is ApprovalChoice.NO:
            result = {"kind": "reject", "feedback": reason or REFUSED}
        elif choice is ApprovalChoice.ALWAYS and isinstance(asked, dict):
            approval = {"kind": "commands", "commandIdentifiers": _commands(asked)}
            result = {"kind": "approve-for-session", "approval": approval}
        return printed(result)


APPROVALS: Final[ApprovalAdapter] = CopilotApprovals()


def _commands(asked: Mapping[str, object]) -> list[str]:
    """Return the commands that Copilot would not ask about again in this conversation; none where it offers that not.

    What it would do about files and servers was not seen, so for these there is no `always`.
    """
    found = asked.get("commands")
    if asked.get("canOfferSessionApproval") is not True or not isinstance(found, list):
        return []
    names = [payload_text(each, "identifier") for each in found if isinstance(each, dict)]
    return names if names and all(names) else []


_CARRIERS = frozenset({"user.message", "tool.execution_complete"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand before an answer of the model."""
    held: set[str] = set()
    read: set[str] = set()
    for line in lines:
        kind = record_entry(line).get("type")
        if kind in _CARRIERS:
            held |= {each for each in ids if holds(line, each)}
        elif kind == "assistant.message":
            read |= held
    return read


# `SAMPLES`: payloads as version 1.0.102 was seen to send them, and what each means.
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
    ),
    _sample(
        HookMoment.HALT,
        {
            "hook_event_name": "Notification",
            "notification_type": "permission_prompt",
            "title": "Permission needed",
            "message": "Run command: touch x",
        },
        halt=Halt.WAITS,
        reason="Run command: touch x",
    ),
    _sample(HookMoment.END, {"reason": "user_exit"}),
)
