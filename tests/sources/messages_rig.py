"""A draft as it would be after it was stored, for the tests of senders."""

from __future__ import annotations

from harken.clock import SystemClock
from harken.model import INBOX, Attention, Draft, Message, MessageId, Trust


def stored_message(draft: Draft) -> Message:
    """Return a draft as it would be after it was stored."""
    return Message(
        id=MessageId("m1"),
        mailbox=INBOX,
        seq=1,
        received_at=SystemClock().now(),
        source=draft.source,
        sender=draft.sender,
        text=draft.text,
        trust=Trust.KNOWN,
        attention=Attention.WAKE,
        channel=draft.channel,
        conversation=draft.conversation,
        thread=draft.thread,
        upstream_id=draft.upstream_id,
        meta=draft.meta,
    )
