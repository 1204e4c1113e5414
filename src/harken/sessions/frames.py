"""What stands around a text that is told to a model: how much room it takes, and the marks to find the text again.

A prompt or a host's record that holds the mark holds the text too. The id alone proves nothing: anybody may quote it.
Pure.
"""

from __future__ import annotations

import re

FRAME_CHARS = 620  # what stands around a text, at most
OPENING_CHARS = 900  # what stands before and after all of them, and room for the list of what does not fit
BLOCK_CHARS = 300  # of a text that goes with a prompt on one line


def width(text: str) -> int:
    """Return the length of a text as most hosts count it: in UTF-16 code units."""
    return len(text.encode("utf-16-le", "replace")) // 2


def on_one_line(text: str) -> str:
    """Return a text without its line ends."""
    return " ".join(text.split())


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
    own results are JSON too: there the id follows the field that says whose word the text is, which no ledger has.
    Ingest defuses all these marks in texts of others.
    """
    if isinstance(record, bytes):
        # Records are long, and most lines of them hold nothing of ours.
        return delivery.encode() in record and holds(record.decode("utf-8", "replace"), delivery)
    text = record
    begun = text.find(beginning(delivery))
    if 0 <= begun < text.rfind(end(delivery)) or line_mark(delivery) in text:
        return True
    quote = r'\\*"'
    result = (
        rf'treat_as{quote}: ?{quote}[^"\\]*{quote}, ?{quote}delivery_id{quote}: ?{quote}{re.escape(delivery)}{quote}'
    )
    return re.search(result, text) is not None
