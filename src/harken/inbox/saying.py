"""Who says something, how urgent it is, and whether it can be said: what a caller may claim of its message. Pure."""

from __future__ import annotations

from harken.errors import Forbidden, UserError
from harken.inbox.bounds import Bounds
from harken.inbox.caller import CHANNELS_ID, Caller, Role, caller_name
from harken.ingest.lengths import IN_PARTS, check_said
from harken.ingest.prepare import MAX_NAME
from harken.model import AGENT, OWNER_ID, RUN, TASK, Message, Priority, Sender


def speaker(caller: Caller, name: str) -> Sender:
    """Return who a message is from. What an agent hands in is its own word, whatever name it gives."""
    if not name:
        return caller.sender
    # Invisible characters go when it is stored: what is left must not be such a name either.
    folded = "".join(char for char in name if char.isprintable()).strip().lower()
    if folded == CHANNELS_ID:
        raise Forbidden(f"Nobody may speak as {CHANNELS_ID!r}.", "To hand channel messages over: harken channel inject")
    if folded.startswith((TASK, AGENT, RUN)):
        raise Forbidden(f"Nobody can speak as {name[:40]!r} from here.", "Name a person or a program: --from ci-bot")
    if caller.role is Role.OWNER:
        return Sender(name, name)
    if folded in (OWNER_ID, caller_name(Role.OWNER), "user"):
        raise Forbidden("An agent may not speak as the owner.", "Leave the sender away, or name another.")
    return Sender(caller.sender.id, name)


def check_reply(body: str, bounds: Bounds) -> None:
    """Refuse a text that is no reply."""
    if not body.strip():
        raise UserError("A reply needs a text.", "Say what to answer.")
    check_said(body, bounds.max_said_chars, "A reply", "Shorten it, or answer in parts.")


def check_message(caller: Caller, text: str, bounds: Bounds, *, has_folder: bool) -> None:
    """Refuse a message that is too long. `has_folder`: it is for a task, whose folder can hold it as a file."""
    if caller.role is Role.AGENT:
        hint = "Write it to a file in your folder, and name that file in a shorter message."
    else:
        hint = "Send it as a file in the task's folder: --as-file, in the API as_file." if has_folder else IN_PARTS
    can_be_file = has_folder and caller.role is Role.OWNER
    check_said(text, bounds.max_said_chars, "A message", hint, can_be_file=can_be_file)


def check_names(sender: str, channel: str) -> None:
    """Refuse names that could not be kept whole."""
    check_said(sender, MAX_NAME, "The name of a sender", "Give a shorter one.")
    check_said(channel, MAX_NAME, "The name of a channel", "Give a shorter one.")


def check_answerable(message: Message, bounds: Bounds) -> None:
    """Refuse to answer what nobody can: a reply that is parked would leave the message as answered."""
    if message.source in bounds.announcers:
        raise Forbidden(
            f"What {message.source!r} announces cannot be answered.", "Tell your user, or mark it with: ack"
        )


def as_priority(name: str) -> Priority:
    """Return the priority of a name."""
    try:
        return Priority(name)
    except ValueError as exc:
        raise UserError(f"There is no priority {name[:40]!r}.", "Use high, normal or low.") from exc
