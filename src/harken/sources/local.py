"""The machine itself as a source: what the command line and agents say, and where answers to that go.

A reply to something the person said becomes a message in the mailbox `replies`, which people read; a reply to a task
becomes mail of that task; what the person answers to an agent goes where agents read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harken.display import author_name
from harken.model import AGENT, INBOX, LOCAL, REPLIES, RUN, TASK, WATCH, Consumer, Draft, Mailbox, OutgoingReply, Sender

_PROGRAMS = (AGENT, TASK, RUN)

Post = Callable[[Draft], Awaitable[str]]
"""Hands a draft in; returns the id of the message it became."""


class LocalSender:
    """Sends replies to people on this machine."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def send(self, reply: OutgoingReply) -> str:
        """Hand the reply in as a message; its key makes a second try the same message."""
        return await self._post(
            Draft(
                source=LOCAL,
                sender=Sender(reply.author, author_name(reply.author).removeprefix(AGENT)),
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


def _mailbox(reply: OutgoingReply) -> Mailbox:
    asker = reply.to.sender.id
    if asker.startswith(TASK):
        return Mailbox(asker)
    return INBOX if asker.startswith(AGENT) and not reply.author.startswith(_PROGRAMS) else REPLIES


def _author(reply: OutgoingReply) -> Consumer | None:
    """Return the person who answers: they need not be told what they said themselves.

    An agent's name is that of all its sessions, and the others have not heard it.
    """
    return None if reply.author.startswith(_PROGRAMS) else WATCH
