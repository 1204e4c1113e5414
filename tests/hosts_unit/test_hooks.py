"""What a hook prints so that the model of its host gets a text, and whose voice the model takes it for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.hosts.hook import Voice
from harken.hosts.registry import hook_host
from harken.sessions.turns import HookMoment

Shape = Callable[[str], Mapping[str, object]]
PROMPT, TOOL, STOP, BELL = HookMoment.PROMPT, HookMoment.TOOL, HookMoment.STOP, HookMoment.BELL


def context(event: str) -> Shape:
    """Return the shape that names its event."""
    return lambda text: {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def reason(text: str) -> Mapping[str, object]:
    """Hold up the end of a turn: the reason is the next prompt."""
    return {"decision": "block", "reason": text}


def plain(text: str) -> Mapping[str, object]:
    """Say it at the top level of the answer, and nowhere else."""
    return {"additionalContext": text}


# A host drops an answer of another shape, or shows it to its user and not to the model.
SHAPES: Final[Mapping[str, Mapping[HookMoment, Shape]]] = MappingProxyType(
    {
        "claude-code": {PROMPT: context("UserPromptSubmit"), TOOL: context("PostToolBatch"), STOP: context("Stop")},
        "copilot-cli": {PROMPT: plain, TOOL: plain, STOP: reason},
        "codex": {PROMPT: context("UserPromptSubmit"), TOOL: context("PostToolUse"), STOP: reason},
        "gemini-cli": {PROMPT: context("BeforeAgent"), TOOL: context("AfterTool"), STOP: reason},
        # A prompt without words is the next step of a turn.
        "qwen-code": {PROMPT: context("UserPromptSubmit"), TOOL: context("UserPromptSubmit"), STOP: reason},
    }
)
# Where a text has the authority of the user, the words of outsiders must never be.
VOICES: Final[Mapping[str, Mapping[HookMoment, Voice]]] = MappingProxyType(
    {
        # The frame says whose word it is; unknown senders push nowhere, so they are not among them.
        "claude-code": dict.fromkeys((PROMPT, TOOL, STOP, BELL), Voice.OUTSIDE),
        "codex": dict.fromkeys((PROMPT, TOOL, STOP, BELL), Voice.USER),
        "gemini-cli": {PROMPT: Voice.OUTSIDE, TOOL: Voice.OUTSIDE, STOP: Voice.USER},
        # Everything but the result of a tool stands in the person's own message.
        "opencode": {PROMPT: Voice.USER, TOOL: Voice.OUTSIDE, BELL: Voice.USER},
        "qwen-code": {PROMPT: Voice.OUTSIDE, TOOL: Voice.OUTSIDE, STOP: Voice.USER, BELL: Voice.OUTSIDE},
    }
)


@pytest.mark.parametrize(("host", "moment"), [(host, moment) for host, shapes in SHAPES.items() for moment in shapes])
@given(text=st.text(min_size=1).filter(str.strip))
def test_answer_is_exactly_the_shape_that_its_host_reads(host: str, moment: HookMoment, text: str) -> None:
    """With one key too many, or with text that is not Unicode, it would be dropped, and nobody would hear of it."""
    answer = hook_host(host).answer(moment, text)
    sound = text.encode("utf-8", "replace").decode()
    shape = SHAPES[host][moment]
    assert json.loads(answer.stdout) in ([shape(sound)] if host == "codex" else [shape(text), shape(sound)])
    assert (answer.stderr, answer.exit_code) == ("", 0)


@pytest.mark.parametrize("host", VOICES)
def test_a_moment_speaks_with_the_voice_that_its_host_gives_it(host: str) -> None:
    """Otherwise a stranger would be obeyed as the user, or the user's own word be taken for a stranger's."""
    assert hook_host(host).voices == VOICES[host]
