"""The machine itself as a source: what the command line and agents say, and where answers to that go.

A reply to something the person said becomes a message in the mailbox `replies`, which people read; a reply to a task
becomes mail of that task; what the person answers to an agent goes where agents read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harken.model import INBOX, LOCAL, REPLIES, TASK, WATCH, Consumer, Draft, Mailbox, Outgoing, Sender

AGENT = "agent:"  # how the sender id of an agent begins that is in no task

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
                sender=Sender(reply.author, reply.author.removeprefix(AGENT)),
                text=reply.body,
                upstream_id=f"reply/{reply.key}",
                refers_to=reply.to.upstream_id,
                channel=reply.to.channel,
                conversation=reply.to.conversation,
                thread=reply.to.thread,
                mailbox=_mailbox(reply),
                author=_author(reply),
            )
        )


def _mailbox(reply: Outgoing) -> Mailbox:
    asker = reply.to.sender.id
    if asker.startswith(TASK):
        return Mailbox(asker)
    return INBOX if asker.startswith(AGENT) and not reply.author.startswith((AGENT, TASK)) else REPLIES


def _author(reply: Outgoing) -> Consumer:
    """Return the reader who answers: nobody needs to be told what they said themselves."""
    author = reply.author
    return Consumer(author.removeprefix(AGENT)) if author.startswith((AGENT, TASK)) else WATCH
