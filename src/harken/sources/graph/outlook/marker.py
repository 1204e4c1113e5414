"""The line below every answer: that an agent wrote it, and the reference by which the answer is found again. Pure.

The reference comes from the reply's key, which is the same each time it is tried, so that looking for it tells whether
an answer has left. It proves nothing by itself: anybody can write it. Above are `sender.py` and `source.py`.
"""

from __future__ import annotations

from typing import Final

from harken.sources.graph.outlook.folding import FOLDED, above_quotes_html, above_quotes_plain, is_answer
from harken.sources.graph.outlook.reading import body_of, is_html, subject_of
from harken.sources.graph.sent import ends_with_reference, reference, words
from harken.sources.graph.verdict import Json

CLOSED: Final = "closed:"  # how the id of an answer begins that has left and was not seen since


def closing_text(key: str, *, is_own_account: bool, is_by_owner: bool) -> str:
    """Return the line below an answer; an agent that has no account of its own speaks for a person."""
    if is_by_owner:
        return reference(key)
    for_whom = "" if is_own_account else " on my behalf"
    return f"Written by an AI agent{for_whom}. {reference(key)}"


def closing_id(key: str) -> str:
    """Return the id of an answer by what it ends with."""
    return f"{CLOSED}{words(reference(key))}"


def closing_id_of(mail: Json) -> str:
    """Return the id of an answer of ours that a mail ends like; empty if it does not.

    Only what stands above all quotes counts: whoever answers or forwards our answer wrote something else there.
    """
    body = body_of(mail)
    own = above_quotes_html(body) if is_html(mail) else above_quotes_plain(body)
    said = own.replace(FOLDED, "")
    if not is_answer(subject_of(mail), has_original=True) or not ends_with_reference(said):
        return ""
    return f"{CLOSED}{words(said)[-len(words(reference(''))) :]}"


def is_answer_of(key: str, markup: str) -> bool:
    """Whether a mail is, or quotes, the answer with this key."""
    return words(reference(key)) in words(markup)
