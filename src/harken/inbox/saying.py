"""Who says something, how urgent it is, and whether it can be said: what a caller may claim of its message. Pure."""

from __future__ import annotations

from harken.errors import Refused, UserError
from harken.inbox.bounds import Bounds
from harken.inbox.caller import CHANNELS_ID, OWNER_ID, Caller, Role, caller_name
from harken.model import AGENT, RUN, TASK, Message, Priority, Sender


def speaker(caller: Caller, name: str) -> Sender:
    """Return who a message is from. What an agent hands in is its own word, whatever name it gives."""
    if not name:
        return caller.sender
    # Invisible characters go when it is stored: what is left must not be such a name either.
    folded = "".join(char for char in name if char.isprintable()).strip().lower()
    if folded == CHANNELS_ID:
        raise Refused(f"Nobody may speak as {CHANNELS_ID!r}.", "To hand channel messages over: harken channel inject")
    if folded.startswith((TASK, AGENT, RUN)):
        raise Refused(f"Nobody can speak as {name[:40]!r} from here.", "Name a person or a program: --from ci-bot")
    if caller.role is Role.OWNER:
        return Sender(name, name)
    if folded in (OWNER_ID, caller_name(Role.OWNER), "user"):
        raise Refused("An agent may not speak as the owner.", "Leave the sender away, or name another.")
    return Sender(caller.sender.id, name)


def check_reply(body: str, bounds: Bounds) -> None:
    """Refuse a text that is no reply."""
    if not body.strip():
        raise UserError("A reply needs a text.", "Say what to answer.")
    if len(body) > bounds.max_reply_chars:
        raise UserError(f"A reply has at most {bounds.max_reply_chars} characters.", "Shorten it.")


def check_answerable(message: Message, bounds: Bounds) -> None:
    """Refuse to answer what nobody can: a reply that is parked would leave the message as answered."""
    if message.source in bounds.announcers:
        raise Refused(f"What {message.source!r} announces cannot be answered.", "Tell your user, or mark it with: ack")


def as_priority(name: str) -> Priority:
    """Return the priority of a name."""
    try:
        return Priority(name)
    except ValueError as exc:
        raise UserError(f"There is no priority {name[:40]!r}.", "Use high, normal or low.") from exc
