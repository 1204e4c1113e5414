"""Answers to actions that the owner gives in a message: `yes a-4k2m9x`. Pure.

Only the whole message counts, and only the owner's: what somebody quotes, or says around it, answers nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from harken.model import Message, MessageKind, Trust

_ANSWER: Final = re.compile(
    r"(?P<word>yes|no|confirm)\s+(?P<action>a-[0-9a-z]{6})(?:\s+(?P<after>yes|no))?\s*[.!]?", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Which action a message answers, and how."""

    action: str
    is_yes: bool


def answer_in(message: Message) -> ChatAnswer | None:
    """Return the answer that a message is, if it is one."""
    return answer_of(message.text) if message.trust is Trust.OWNER and message.kind is MessageKind.MESSAGE else None


def answer_of(text: str) -> ChatAnswer | None:
    """Return the answer that a text is, if it is one, whoever says it."""
    found = _ANSWER.fullmatch(text.strip())
    if found is None:
        return None
    word = (found["after"] or found["word"]).lower()
    return ChatAnswer(found["action"].lower(), is_yes=word != "no")
