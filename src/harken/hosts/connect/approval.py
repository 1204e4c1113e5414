"""Which tools a host need not ask about, where it can be told so: what only reads and marks this agent's own mail.

`reply` is not among them, because it speaks to people outside; nor is what speaks to other tasks, whose agents may act
on it. That is for the person's own approval to decide.
"""

from __future__ import annotations

from typing import Final

UNASKED: Final = (
    "ack",
    "check_inbox",
    "inbound_queue_stats",
    "inbox_pull",
    "inbox_read",
    "inbox_search",
    "inbox_status",
    "wait_for_inbound_message",
)
