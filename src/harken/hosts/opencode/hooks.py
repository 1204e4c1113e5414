"""How our plugin in opencode speaks: its own payloads as events, and texts as they are.

Pure. The other end is `files/harken.js`, which puts a text behind a tool's result, beside what the person typed, or
into a prompt that wakes. Only a tool's result is marked as coming from elsewhere. The plugin leaves subagents out, and
opencode cannot be kept from ending a turn: what waits then wakes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
)
from harken.model import ApprovalChoice, ApprovalRequest, SessionKey, answers_in, asked_questions
from harken.sessions.turns import Halt, HookEvent, HookMoment

NAME: Final = "opencode"
MAX_CHARS: Final = 8_000  # opencode has no limit of its own
MAX_RESULTS: Final = 200

_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(
    {HookMoment.PROMPT: Voice.USER, HookMoment.TOOL: Voice.OUTSIDE, HookMoment.BELL: Voice.USER}
)
_MAX_CHARS: Final[Mapping[HookMoment, int]] = MappingProxyType(dict.fromkeys(_VOICES, MAX_CHARS))


class OpencodeHooks(HookAdapter):
    """The hooks of opencode."""

    name = NAME
    most_chars = _MAX_CHARS
    voices = _VOICES
    turn_key = "turn"
    halts = frozenset(Halt)
    says_when_answered = True

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for what is not the plugin's."""
        found = super().event(moment, payload, hello)
        return found and replace(
            found,
            results=_results(payload),
            is_step=moment is HookMoment.TOOL and payload.get("is_step") is True,
            is_interrupted=moment is HookMoment.STOP and payload.get("is_interrupted") is True,
            halt=_failure(payload) if moment is HookMoment.STOP else found.halt,
            reason=payload_text(payload, "error") if moment is HookMoment.STOP else found.reason,
        )

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return what is asked, or that it was answered."""
        if payload.get("is_asking") is False:
            return None, ""
        return (Halt.WAITS, payload_text(payload, "asks")) if payload.get("is_asking") is True else None

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return the text as it is: the plugin puts it into place."""
        return HookAnswer(stdout=text) if moment in _MAX_CHARS else SILENCE


def _failure(payload: Mapping[str, object]) -> Halt | None:
    """Return how a turn failed; None of one that has ended, or was stopped."""
    if not payload_text(payload, "error"):
        return None
    return Halt.LIMITED if payload.get("is_limit") is True else Halt.FAILED


HOOKS: Final[HookAdapter] = OpencodeHooks()


class OpencodeApprovals(ApprovalAdapter):
    """What opencode asks, as its events `permission.asked` and `question.asked` say it, and the body of its `reply`."""

    def question(self, payload: Mapping[str, object], hello: Hello) -> ApprovalRequest | None:
        """Return what is asked; None for what is not understood."""
        asked, session = payload.get("asked"), payload_text(payload, "session_id")
        if not isinstance(asked, dict) or not session:
            return None
        if "questions" in asked:
            return self._questions(payload, asked, hello)
        metadata, patterns, always = asked.get("metadata"), _texts(asked, "patterns"), _texts(asked, "always")
        native, tool = payload_text(asked, "id"), payload_text(asked, "permission")
        if not native or not tool or not isinstance(metadata, dict):
            return None
        choices = (ApprovalChoice.ONCE, *([ApprovalChoice.ALWAYS] if always else []), ApprovalChoice.NO)
        return ApprovalRequest(
            host=NAME,
            session=SessionKey(session),
            tool=tool,
            arguments={**metadata, "patterns": patterns},
            digest="",
            folder=payload_text(payload, "cwd") or hello.cwd,
            choices=choices,
            always=", ".join(always),
            turn=payload_text(payload, "turn"),
            native=native,
        )

    def _questions(
        self, payload: Mapping[str, object], asked: Mapping[str, object], hello: Hello
    ) -> ApprovalRequest | None:
        native, arguments = payload_text(asked, "id"), {"questions": asked.get("questions")}
        if not native or not asked_questions(arguments):
            return None
        return ApprovalRequest(
            host=NAME,
            session=SessionKey(payload_text(payload, "session_id")),
            tool="question",
            arguments=arguments,
            digest="",
            folder=payload_text(payload, "cwd") or hello.cwd,
            choices=(ApprovalChoice.ANSWER, ApprovalChoice.NO),
            turn=payload_text(payload, "turn"),
            native=native,
            carries_reason=False,
        )

    def answer(self, payload: Mapping[str, object], choice: ApprovalChoice, reason: str) -> HookAnswer:
        """Return the body of the reply."""
        asked = payload.get("asked")
        if isinstance(asked, dict) and "questions" in asked:
            is_refused = choice is not ApprovalChoice.ANSWER
            return printed({"reject": True} if is_refused else {"answers": answers_in(asked, reason)})
        reply: dict[str, object] = {"reply": _REPLIES[choice]}
        return printed(reply | ({"message": reason} if reason else {}))


_REPLIES: Final[Mapping[ApprovalChoice, str]] = MappingProxyType(
    {ApprovalChoice.ONCE: "once", ApprovalChoice.ALWAYS: "always", ApprovalChoice.NO: "reject"}
)
APPROVALS: Final[ApprovalAdapter] = OpencodeApprovals()


def _texts(asked: Mapping[str, object], key: str) -> list[str]:
    found = asked.get(key)
    return [str(each) for each in found] if isinstance(found, list) else []


def _results(payload: Mapping[str, object]) -> tuple[str, ...] | None:
    """Return what a result of Harken's own tools carried; None of a plugin that an older version wrote."""
    found = payload.get("results")
    return tuple(str(each) for each in found[:MAX_RESULTS]) if isinstance(found, list) else None


# `SAMPLES`: payloads as version 1.18.33 was seen to send them, and what each means.
_COMMON: Final[Mapping[str, object]] = {"session_id": "ses_1", "cwd": "/code/shop", "turn": "msg_1"}
_MEANT: Final[Mapping[str, Any]] = {"native": "ses_1", "cwd": "/code/shop", "turn": "msg_1"}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.PROMPT, {"prompt": "Fix it. (d-1)"}, prompt="Fix it. (d-1)"),
    _sample(HookMoment.TOOL, {"tool": "bash", "is_step": True, "results": []}, is_step=True, results=()),
    _sample(HookMoment.TOOL, {"tool": "harken_inbox_pull", "is_step": False, "results": ["d-1"]}, results=("d-1",)),
    _sample(HookMoment.STOP, {"is_interrupted": True}, is_interrupted=True),
    _sample(HookMoment.STOP, {"is_interrupted": False}),
    _sample(
        HookMoment.STOP,
        {"is_interrupted": True, "error": "APIError: boom", "is_limit": False},
        is_interrupted=True,
        halt=Halt.FAILED,
        reason="APIError: boom",
    ),
    _sample(
        HookMoment.STOP,
        {"is_interrupted": True, "error": "APIError: Too many requests", "is_limit": True},
        is_interrupted=True,
        halt=Halt.LIMITED,
        reason="APIError: Too many requests",
    ),
    _sample(HookMoment.HALT, {"is_asking": True, "asks": "bash"}, halt=Halt.WAITS, reason="bash"),
    _sample(HookMoment.HALT, {"is_asking": False}),
    _sample(HookMoment.END, {}),
)
