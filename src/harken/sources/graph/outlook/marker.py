"""The line below every answer: that an agent wrote it, and the reference by which the answer is found again. Pure.

The reference comes from the reply's key, which is the same each time it is tried, so that looking for it tells whether
an answer has left. It proves nothing: anybody can write it. Above are `sender.py` and `source.py`.
"""

from __future__ import annotations

import re
from typing import Final

from harken.sources.graph.sent import REFERENCE_CHARS, reference, words

_REFERENCE: Final = re.compile(rf"\[harken(?:\s|&nbsp;){{1,5}}[0-9a-f]{{{REFERENCE_CHARS}}}\]")


def closing_text(key: str, *, is_own_account: bool) -> str:
    """Return the line below an answer; an agent that has no account of its own speaks for a person."""
    for_whom = "" if is_own_account else " on my behalf"
    return f"Written by an AI agent{for_whom}. {reference(key)}"


def has_reference(text: str) -> bool:
    """Whether a text has the reference of any answer."""
    return _REFERENCE.search(text) is not None


def is_answer_of(key: str, markup: str) -> bool:
    """Whether a mail is, or quotes, the answer with this key."""
    return words(reference(key)) in words(markup)
