"""The marks by which a text that was told to a model is found again: each names the delivery, and its whole text.

A prompt or a host's record that holds the mark holds the text too. The id alone proves nothing: anybody may quote it.
Pure.
"""

from __future__ import annotations

import re


def beginning(delivery: str) -> str:
    """Return the line above a text that is told."""
    return f"--- {delivery} begins"


def end(delivery: str) -> str:
    """Return the line below it: whatever was cut off, the text was not."""
    return f"--- {delivery} ends"


def line_mark(delivery: str) -> str:
    """Return what stands before a text of one line."""
    return f"] ({delivery}) "


def holds(record: str | bytes, delivery: str) -> bool:
    """Whether a prompt, or a line of a host's record, holds the text of a delivery as Harken gives it.

    In a record it may be inside of JSON, once or twice; none of the marks has a letter that JSON would change. Harken's
    own results are JSON too: there the id is a field beside the text.
    """
    if isinstance(record, bytes):
        # Records are long, and most lines of them hold nothing of ours.
        return delivery.encode() in record and holds(record.decode("utf-8", "replace"), delivery)
    text = record
    if end(delivery) in text or line_mark(delivery) in text:
        return True
    return re.search(rf'delivery_id\\*": ?\\*"{re.escape(delivery)}\\*"', text) is not None
