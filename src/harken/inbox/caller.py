"""Who is asking, what that lets them do, and what they may say: by which name, how urgently, how much at once.

The socket admits only processes of the same user. Of those, one that descends from a registered host, or has a mark of
one in its environment, *is* that agent: it may not speak as the owner or change who may reach what. That guards against
mistakes of a model, not against malice on the same account. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from harken.errors import Forbidden, UserError
from harken.ingest.policy import IN_PARTS, MAX_SAID_CHARS, check_said
from harken.ingest.prepare import MAX_NAME
from harken.model import (
    AGENT,
    INBOX,
    OWNER_ID,
    RUN,
    TASK,
    WATCH,
    Consumer,
    Mailbox,
    Message,
    Priority,
    Sender,
    SessionKey,
)

CHANNELS_ID = "channels"  # who says what the person injects: nobody's own word, so nobody else may use it
NO_SESSION = SessionKey("")


class Role(StrEnum):
    """The person at the machine, or a program that acts for an agent."""

    OWNER = "owner"
    AGENT = "agent"


def caller_name(role: Role) -> str:
    """Return what people read where the owner, or an agent, has spoken."""
    return "you" if role is Role.OWNER else "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One caller of a use case."""

    role: Role
    consumer: Consumer = WATCH
    session: SessionKey = NO_SESSION
    program: str = ""  # of an agent that is known by its environment: what people call its host
    because: str = ""  # and by what it was known

    @property
    def sender(self) -> Sender:
        """Who a message of this caller is from."""
        if self.role is Role.OWNER:
            return Sender(OWNER_ID, caller_name(Role.OWNER))
        if self.consumer.startswith(TASK):
            return Sender(self.consumer, self.consumer)
        if self.is_run:
            return Sender(self.session, f"run {self.session.removeprefix(RUN)}")
        return Sender(f"{AGENT}{self.consumer}", self.consumer)

    @property
    def is_run(self) -> bool:
        """Whether it is the agent of a run, or something that it started."""
        return self.role is Role.AGENT and self.session.startswith(RUN)

    def require_owner(self, what: str) -> None:
        """Refuse what only the person may do."""
        if self.role is not Role.OWNER:
            raise self.refusal(what)

    def refusal(self, what: str) -> Forbidden:
        """Return why an agent may not do what only the person may."""
        return refusal(what, self.program, self.because)


def refusal(what: str, program: str = "", because: str = "") -> Forbidden:
    """Return what an agent is told that wants to do what only the person may, and by what it was known for one."""
    who = f" This counts as a command of {program}, because {because}." if because else ""
    return Forbidden(f"An agent may not {what}.{who}", "Ask your user to run it in their own terminal.")


def speaker(caller: Caller, name: str | None) -> Sender:
    """Return who a message is from. What an agent hands in is its own word, under any name it gives."""
    if name is None:
        return caller.sender
    # Invisible characters go when it is stored: what is left must not be such a name either.
    folded = "".join(char for char in name if char.isprintable()).strip().lower()
    if folded == CHANNELS_ID:
        raise Forbidden(f"Nobody may speak as {CHANNELS_ID!r}.", "To pass on channel messages: harken channel inject")
    if folded.startswith((TASK, AGENT, RUN)):
        raise Forbidden(f"Nobody can speak as {name[:40]!r} from here.", "Name a person or a program: --from ci-bot")
    if caller.role is Role.OWNER:
        return Sender(name, name)
    if folded in (OWNER_ID, caller_name(Role.OWNER), "user"):
        raise Forbidden("An agent may not speak as the owner.", "Leave out the sender, or name another.")
    return Sender(caller.sender.id, name)


def check_reply(body: str, bounds: Bounds) -> None:
    """Refuse a text that is no reply."""
    if not body.strip():
        raise UserError("A reply needs a text.", "Say what to answer.")
    check_said(body, bounds.max_said_chars, "A reply", "Shorten it, or answer in parts.")


def check_message(caller: Caller, text: str, bounds: Bounds, *, has_folder: bool) -> None:
    """Refuse a message that is too long. `has_folder`: it is for a task, with a folder that can hold it as a file."""
    if caller.role is Role.AGENT:
        hint = "Write it to a file in your folder, and name that file in a shorter message."
    else:
        hint = "Send it as a file in the task's folder: --as-file, in the API as_file." if has_folder else IN_PARTS
    can_be_file = has_folder and caller.role is Role.OWNER
    check_said(text, bounds.max_said_chars, "A message", hint, can_be_file=can_be_file)


def check_names(sender: str | None, channel: str) -> None:
    """Refuse names that could not be kept whole, empty ones, and those that could not be typed."""
    if sender is not None and not sender.strip():
        raise UserError("A sender needs a name.", "Leave it out to speak as yourself, or name one: --from ci-bot")
    check_said(sender or "", MAX_NAME, "The name of a sender", "Give a shorter one.")
    check_said(channel, MAX_NAME, "The name of a channel", "Give a shorter one.")
    parts = channel.split("/") if channel else []
    if "\\" in channel or any(part != part.strip() or not part for part in parts):
        raise UserError(
            f"{channel[:80]!r} cannot be the name of a channel.", "Use words, with / between parts: ci, alerts/critical"
        )


def check_answerable(message: Message, bounds: Bounds) -> None:
    """Refuse to answer what cannot be answered: a reply that is parked would leave the message as answered."""
    if message.source in bounds.announcers:
        raise Forbidden(
            f"Announcements of {message.source!r} cannot be answered.", "Tell your user, or mark it with: ack"
        )


def as_priority(name: str) -> Priority:
    """Return the priority of a name."""
    try:
        return Priority(name)
    except ValueError as exc:
        raise UserError(f"There is no priority {name[:40]!r}.", "Use high, normal or low.") from exc


MAX_PAGE_CHARS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of the use cases, from the configuration."""

    max_wait_seconds: float = 55.0
    lease: timedelta = timedelta(minutes=15)
    new_consumer_window: timedelta = timedelta(hours=24)
    new_consumer_most: int = 10_000
    max_said_chars: int = MAX_SAID_CHARS  # in a message, a reply or a prompt
    agents_read: frozenset[Mailbox] = frozenset({INBOX})  # the inbox, and the mailbox of each project
    announcers: Collection[str] = frozenset()  # sources that only announce: what they say cannot be answered


def printable(messages: Sequence[Message]) -> Sequence[Message]:
    """Return as many of the first messages as fit into one answer."""
    return messages[: fitting([len(message.text) for message in messages])]


def fitting(sizes: Sequence[int]) -> int:
    """Return how many of the first fit into one answer: at least one."""
    characters = 0
    for index, size in enumerate(sizes):
        characters += size
        if characters > MAX_PAGE_CHARS:
            return max(1, index)
    return len(sizes)


def bounded(value: int, most: int, name: str) -> int:
    """Return what was asked for, at most so many; refuses what makes no sense."""
    if value < 1:
        raise UserError(f"{name} must be at least 1.", f"Give 1 or more; you get {most} at once at most.")
    return min(value, most)
