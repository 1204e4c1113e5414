"""Who said it, as the page shows it: a name, a sign of trust that is not only a colour, where it came from. Pure.

A name is the sender's own choice: for whoever is not known, the id that the source vouches for is shown beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harken.display import passes_for_you
from harken.model import LOCAL, OWNER_ID, RUN, TASK, Message, Trust

AGENT = "agent:"
OWN_CHANNELS: Final = frozenset({"cli", "agent", "page", "task"})  # of this machine: they say nothing new


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderView:
    """A sender. `look` is `owner`, `known` or `unknown`; `id` is shown where the name may mislead.

    `run` is the run whose agent said it, by itself.
    """

    name: str
    id: str
    initial: str
    look: str
    is_agent: bool
    is_you: bool
    trust: str
    origin: str
    run: str = ""


def sender_of(message: Message) -> SenderView:
    """Return how to show who said a message."""
    sender = message.sender
    is_agent = sender.id.startswith((AGENT, TASK, RUN))
    is_you = sender.id == OWNER_ID and message.source == LOCAL and message.trust is Trust.OWNER
    bare = sender.id.removeprefix(AGENT)
    name = sender.label.removeprefix(TASK) if is_agent else sender.label
    is_doubtful = message.trust is Trust.UNKNOWN or (passes_for_you(name) and not is_you)
    letter = next((char for char in name if char.isalnum()), "?")
    return SenderView(
        name="You" if is_you else name,
        id=sender.id if is_doubtful and sender.label not in (sender.id, bare) else "",
        initial="?" if message.trust is Trust.UNKNOWN else "Y" if is_you else letter.upper(),
        look=message.trust.value,
        is_agent=is_agent,
        is_you=is_you,
        trust=_trust(message, is_agent=is_agent),
        origin=_origin(message),
        run=sender.id.removeprefix(RUN) if message.source == LOCAL and sender.id.startswith(RUN) else "",
    )


def author_name(author: str) -> str:
    """Return what people call the author of a reply."""
    if author.startswith(RUN):
        return f"run {author.removeprefix(RUN)}"
    return "You" if author == OWNER_ID else author.removeprefix(AGENT).removeprefix(TASK)


def _trust(message: Message, *, is_agent: bool) -> str:
    if message.trust is Trust.OWNER:
        return "your own word"
    if message.trust is Trust.UNKNOWN:
        return "unknown sender"
    return ("task" if message.sender.id.startswith(TASK) else "agent") if is_agent else "known sender"


def _origin(message: Message) -> str:
    """Return source and channel, once where they are the same."""
    if message.source == LOCAL:
        return "" if message.channel in OWN_CHANNELS else message.channel
    return message.source if message.channel in ("", message.source) else f"{message.source} · {message.channel}"
