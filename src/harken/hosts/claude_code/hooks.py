"""Claude Code's hooks: its JSON as an `HookEvent`, and a text as the JSON that it passes on to its model.

Pure, but for a look at the small file in which a session says what it is doing. Its model is told to take what hooks
say as feedback from the user, so the frame around each text, which names its sender and what it is to be treated as,
matters here more than elsewhere; unknown senders do not come this way. What the bell brings is marked by Claude Code
itself as not from the user. A wake also runs the prompt hook, with its text as prompt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
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
    above_an_answer,
    hook_sample,
    payload_text,
    record_entry,
)
from harken.model import ApprovalChoice, ApprovalRequest, SessionKey, answers_in, asked_questions
from harken.sessions.turns import Halt, HookEvent, HookMoment

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
ASKS: Final = "PermissionRequest"  # before the dialog is shown; the notification of it comes seconds later
TELLS: Final = "Notification"
ASKS_FORM: Final = "elicitation_dialog"
FAILS: Final = "StopFailure"  # in place of the end of a turn
MAX_CHARS: Final = 9_500  # above 10,000 Claude Code shows its model only the beginning and the name of a file
MAX_STOPS: Final = 3  # Claude Code itself ends the turn after 8
REWAKE: Final = 2
MAX_DIGITS: Final = 10

# The start carries nothing: its answer names the bell to watch, and the first prompt carries what waits.
_MAX_CHARS: Final[Mapping[HookMoment, int]] = MappingProxyType(
    dict.fromkeys((HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP, HookMoment.BELL), MAX_CHARS)
)
_VOICES: Final[Mapping[HookMoment, Voice]] = MappingProxyType(dict.fromkeys(_MAX_CHARS, Voice.OUTSIDE))
_LIMITS: Final = frozenset({"rate_limit", "billing_error"})
_GOES_ON: Final = frozenset({"clear", "resume"})


class ClaudeCodeHooks(HookAdapter):
    """The hooks of Claude Code."""

    name = "claude-code"
    most_chars = _MAX_CHARS
    voices = _VOICES
    most_stops = MAX_STOPS
    events = EVENTS
    turn_key = "prompt_id"
    halts = frozenset(Halt)

    def event(self, moment: HookMoment, payload: Mapping[str, object], hello: Hello) -> HookEvent | None:
        """Return what a payload means; None for an event that is not the one this moment stands for."""
        found = super().event(moment, payload, hello)
        # Copilot runs the plugins that a project has for Claude Code, and drops what their hooks say.
        is_elsewhere = "COPILOT_CLI" in hello.env and "timestamp" in payload
        if found is None or is_elsewhere:
            return None
        return replace(
            found,
            pid=_pid(hello.env.get("CLAUDE_PID", "")),
            is_step=moment is HookMoment.TOOL,
            is_compacted=moment is HookMoment.START and payload_text(payload, "source") == "compact",
            keeps_running=moment is HookMoment.END and payload_text(payload, "reason") in _GOES_ON,
        )

    def halt(self, payload: Mapping[str, object]) -> tuple[Halt | None, str] | None:
        """Return what is asked, or how a turn failed."""
        match payload_text(payload, "hook_event_name"):
            case "PermissionRequest":
                tool = payload_text(payload, "tool_name")
                return Halt.WAITS, _OWN_DIALOGS.get(tool, tool)
            case "Notification" if payload_text(payload, "notification_type") == ASKS_FORM:
                return Halt.WAITS, payload_text(payload, "message")
            case "StopFailure":
                error = payload_text(payload, "error")
                kind = Halt.LIMITED if error in _LIMITS else Halt.FAILED
                return kind, payload_text(payload, "error_details") or error
            case _:
                return None

    def is_asking(self, transcript: str, pid: int) -> bool | None:
        """Whether the session waits for its person, as its own file says."""
        return _is_waiting(transcript, pid)

    def answer(self, moment: HookMoment, text: str) -> HookAnswer:
        """Return what to print so that the model gets the text."""
        if moment not in _MAX_CHARS or not text:
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


def _pid(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS else 0


ASK_SECONDS: Final = 3_600
_QUESTION: Final = "AskUserQuestion"
_PLAN: Final = "ExitPlanMode"
# Answered by more than yes or no.
_OWN_DIALOGS: Final[Mapping[str, str]] = MappingProxyType({_QUESTION: "a question", _PLAN: "a plan"})
_RULES: Final = "addRules"
_MAX_STATE_BYTES: Final = 64 * 1024
_WAITING: Final = "waiting"


class ClaudeCodeApprovals(ApprovalAdapter):
    """What Claude Code asks by its hook `PermissionRequest`, which names neither the request nor the call.

    The dialog stays on its screen. A No there ends the hook; a Yes is seen in the file in which Claude Code says what a
    session is doing. What the hook prints after that changes nothing.
    """

    shows_state = True
    patience = timedelta(seconds=ASK_SECONDS - 10)  # so that it is over here before the host ends the hook

    def question(self, payload: Mapping[str, object], hello: Hello) -> ApprovalRequest | None:
        """Return what is asked; None for what is not understood."""
        tool, arguments = payload_text(payload, "tool_name"), payload.get("tool_input")
        native = payload_text(payload, "session_id")
        is_this = payload_text(payload, "hook_event_name") == ASKS and "COPILOT_CLI" not in hello.env
        if not (is_this and native and tool and isinstance(arguments, dict)):
            return None
        if tool == _QUESTION and not asked_questions(arguments):
            return None
        rules = _rules(payload) if tool not in _OWN_DIALOGS else ()
        yes = ApprovalChoice.ANSWER if tool == _QUESTION else ApprovalChoice.ONCE
        choices = (yes, *([ApprovalChoice.ALWAYS] if rules else []), ApprovalChoice.NO)
        return ApprovalRequest(
            host="claude-code",
            session=SessionKey(native),
            tool=tool,
            arguments=arguments,
            digest="",
            folder=payload_text(payload, "cwd") or hello.cwd,
            choices=choices,
            always="; ".join(map(_rule_text, rules)),
            turn=payload_text(payload, "prompt_id"),
        )

    def answer(self, payload: Mapping[str, object], choice: ApprovalChoice, reason: str) -> HookAnswer:
        """Return the decision; for `always` with the rules that Claude Code itself has suggested."""
        decision: dict[str, object] = {"behavior": "allow"}
        if choice is ApprovalChoice.NO:
            decision = {"behavior": "deny", "message": reason or REFUSED}
        elif choice is ApprovalChoice.ALWAYS:
            decision["updatedPermissions"] = _rules(payload)
        elif choice is ApprovalChoice.ANSWER:
            decision["updatedInput"] = _answered(payload, reason)
        elif payload_text(payload, "tool_name") == _PLAN:
            # Without this Claude Code goes on asking. The commands that the plan would allow in advance it asks for.
            decision["updatedInput"] = {"allowedPrompts": []}
        return HookAnswer(stdout=json.dumps({"hookSpecificOutput": {"hookEventName": ASKS, "decision": decision}}))

    def pid(self, hello: Hello) -> int:
        """Return the process of the session."""
        return _pid(hello.env.get("CLAUDE_PID", ""))

    def is_asking(self, payload: Mapping[str, object], hello: Hello) -> bool | None:
        """Whether the session waits for its person, as its own file says."""
        return _is_waiting(self.record(payload), self.pid(hello) or hello.ppid)

    def evidence(self, payload: Mapping[str, object], choice: ApprovalChoice, record: Sequence[bytes]) -> str:
        """Return the call in the record whose result shows the answer; the last one of this tool with this input."""
        call, shown = "", ""
        for entry in map(record_entry, record):
            for part in _parts(entry):
                is_call = part.get("type") == "tool_use" and part.get("name") == payload.get("tool_name")
                if is_call and _is_same(part.get("input"), payload):
                    call, shown = str(part.get("id")), ""
                elif call and part.get("type") == "tool_result" and part.get("tool_use_id") == call:
                    shown = call if (part.get("is_error") is True) == (choice is ApprovalChoice.NO) else ""
        return f"the result of {shown[:MAX_EVIDENCE]} in its record" if shown else ""

    def record(self, payload: Mapping[str, object]) -> str:
        """Return the path of the transcript."""
        return payload_text(payload, "transcript_path")


REFUSED: Final = "The user refused this, without a reason."
MAX_EVIDENCE: Final = 80
APPROVALS: Final[ApprovalAdapter] = ClaudeCodeApprovals()


def _is_waiting(transcript: str, pid: int) -> bool | None:
    if not transcript or pid <= 1:
        return None
    try:
        with (Path(transcript).parents[2] / "sessions" / f"{pid}.json").open("rb") as file:
            said = record_entry(file.read(_MAX_STATE_BYTES)).get("status")
    except (OSError, IndexError, ValueError):
        return None
    return said == _WAITING if isinstance(said, str) else None


def _answered(payload: Mapping[str, object], said: str) -> Mapping[str, object]:
    """Return the input of the question with its answers."""
    given = payload.get("tool_input")
    asked = given if isinstance(given, dict) else {}
    pairs = zip(asked_questions(asked), answers_in(asked, said), strict=True)
    return {**asked, "answers": {question.text: ", ".join(answers) for question, answers in pairs}}


def _is_same(recorded: object, payload: Mapping[str, object]) -> bool:
    """Whether a recorded call is what was asked: of a plan it has not all, of a question also the answers."""
    asked, tool = payload.get("tool_input"), payload_text(payload, "tool_name")
    if not isinstance(recorded, dict) or not isinstance(asked, dict) or tool == _PLAN:
        return tool == _PLAN
    return recorded == asked or (tool == _QUESTION and recorded.get("questions") == asked.get("questions"))


def _rules(payload: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """Return the rules that Claude Code suggests to allow: no other change of its permissions goes by `always`."""
    found = payload.get("permission_suggestions")
    each = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [one for one in each if one.get("type") == _RULES and one.get("behavior") == "allow" and one.get("rules")]


def _rule_text(suggested: Mapping[str, object]) -> str:
    rules = suggested.get("rules")
    named = [one for one in rules if isinstance(one, dict)] if isinstance(rules, list) else []
    texts = [f"{one.get('toolName')}({one.get('ruleContent') or '*'})" for one in named]
    return f"{', '.join(texts)} in {suggested.get('destination')}"


def _parts(entry: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


_KINDS = frozenset({"user", "attachment"})


def recorded(lines: Sequence[bytes], ids: Collection[str]) -> Collection[str]:
    """Return those of the ids that stand above an answer of the model."""
    return above_an_answer(lines, ids, _KINDS)


# `SAMPLES`: payloads as version 2.1.325 was seen to send them, and what each means.
_COMMON: Final[Mapping[str, object]] = {
    "session_id": "f5304b8e",
    "transcript_path": "/home/me/.claude/projects/p/f5304b8e.jsonl",
    "cwd": "/code/shop",
}
_MEANT: Final[Mapping[str, Any]] = {
    "native": "f5304b8e",
    "transcript": "/home/me/.claude/projects/p/f5304b8e.jsonl",
    "cwd": "/code/shop",
}

_sample: Final = partial(hook_sample, _COMMON, _MEANT)

SAMPLES: Final[Sequence[HookSample]] = (
    _sample(HookMoment.START, {"hook_event_name": "SessionStart", "source": "startup", "model": "m"}),
    _sample(HookMoment.START, {"hook_event_name": "SessionStart", "source": "compact"}, is_compacted=True),
    _sample(
        HookMoment.PROMPT,
        {"hook_event_name": "UserPromptSubmit", "prompt": "Fix it. (d-1)", "prompt_id": "a6fd00f3"},
        prompt="Fix it. (d-1)",
        turn="a6fd00f3",
    ),
    _sample(
        HookMoment.TOOL,
        {"hook_event_name": "PostToolBatch", "tool_calls": [{"tool_name": "Bash"}, {}], "prompt_id": "a6fd00f3"},
        turn="a6fd00f3",
        is_step=True,
    ),
    _sample(
        HookMoment.TOOL,
        {"hook_event_name": "PostToolBatch", "tool_calls": [{}], "agent_id": "a6a6", "agent_type": "general-purpose"},
        is_step=True,
        is_subagent=True,
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "stop_hook_active": False, "prompt_id": "a6fd00f3"},
        turn="a6fd00f3",
    ),
    _sample(
        HookMoment.STOP,
        {"hook_event_name": "Stop", "stop_hook_active": True, "prompt_id": "a6fd00f3"},
        turn="a6fd00f3",
    ),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"}),
    _sample(HookMoment.END, {"hook_event_name": "SessionEnd", "reason": "clear"}, keeps_running=True),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "touch x"}},
        halt=Halt.WAITS,
        reason="Bash",
    ),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "PermissionRequest", "tool_name": "AskUserQuestion", "agent_id": "a6a6"},
        halt=Halt.WAITS,
        reason="a question",
    ),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "StopFailure", "error": "server_error", "error_details": "500", "prompt_id": "a6fd00f3"},
        moment=HookMoment.STOP,
        turn="a6fd00f3",
        is_interrupted=True,
        halt=Halt.FAILED,
        reason="500",
    ),
    _sample(
        HookMoment.HALT,
        {"hook_event_name": "StopFailure", "error": "rate_limit", "prompt_id": "a6fd00f3"},
        moment=HookMoment.STOP,
        turn="a6fd00f3",
        is_interrupted=True,
        halt=Halt.LIMITED,
        reason="rate_limit",
    ),
    _sample(HookMoment.BELL, {"hook_event_name": "FileChanged", "file_path": "bell", "event": "change"}),
)
