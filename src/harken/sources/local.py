"""The machine itself as a source: what the command line and agents say, and where answers to that go.

A reply to something said here becomes a message in the mailbox `replies`, which people read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harken.model import LOCAL, REPLIES, Draft, Outgoing, Sender

Post = Callable[[Draft], Awaitable[str]]
"""Hands a draft in; returns the id of the message it became."""


class LocalSender:
    """Sends replies to people on this machine."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def send(self, reply: Outgoing) -> str:
        """Hand the reply in as a message; its key makes a second try the same message."""
        return await self._post(
            Draft(
                source=LOCAL,
                sender=Sender(reply.author, reply.author.removeprefix("agent:")),
                text=reply.body,
                upstream_id=f"reply/{reply.key}",
                refers_to=reply.to.upstream_id,
                channel=reply.to.channel,
                conversation=reply.to.conversation,
                thread=reply.to.thread,
                mailbox=REPLIES,
            )
        )
