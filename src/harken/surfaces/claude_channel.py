"""The claude channel: Claude Code's own push, for sessions that were started with it.

One notification; the capability for it is in the handshake of every connection. The host never says whether it
listens: it drops what it does not want without a word. So this is a way to wake only where the session's command line
turned the channel on, and what it carried is told again by the next surface when nothing proves that it arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harken.inbox import Session
from harken.surfaces.telling import Teller
from harken.surfaces.wakers import TextWaker

METHOD = "notifications/claude/channel"
NAME = "claude channel"
MOST_CHARS = 8_000

Notify = Callable[[str, Mapping[str, object]], bool]
"""Sends a notification if there is room for it, and returns whether there was."""


def channel_waker(session: Session, teller: Teller, notify: Notify) -> TextWaker:
    """Return the way to wake a session that listens to the channel."""

    async def send(text: str) -> bool:
        # Meta values are strings, and none is called `source`: the host adds that one itself.
        return notify(METHOD, {"content": text, "meta": {"kind": "inbox"}})

    return TextWaker(name=NAME, session=session, teller=teller, send=send, most_chars=MOST_CHARS, speaks_as_user=False)
