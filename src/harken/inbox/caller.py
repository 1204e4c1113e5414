"""The caller of a use case: its role, what it may do, and the bounds of what it may send.

The socket accepts only processes of the same user. A process that descends from a registered host, or has a host's mark
in its environment, counts as that agent: it may not speak as the owner or change access. This guards against a model's
mistakes, not against malicious programs of the same account. Pure.
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

CHANNELS_ID = "channels"  # the sender of injected messages; no caller may use it
NO_SESSION = SessionKey("")


class Role(StrEnum):
    """The person at the machine, or a program of an agent."""

    OWNER = "owner"
    AGENT = "agent"


def caller_name(role: Role) -> str:
    """Return the display name of the owner, or of an agent."""
    return "you" if role is Role.OWNER else "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One caller of a use case."""

    role: Role
    consumer: Consumer = WATCH
    session: SessionKey = NO_SESSION
    program: str = ""  # the title of its host, for an agent recognised by its environment
    because: str = ""  # how it was recognised

    @property
    def sender(self) -> Sender:
        """The sender of this caller's messages."""
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
    """Return the error for an agent that tries what only the person may do, with how it was recognised."""
    who = f" This counts as a command of {program}, because {because}." if because else ""
    return Forbidden(f"An agent may not {what}.{who}", "Ask your user to run it in their own terminal.")


def speaker(caller: Caller, name: str | None) -> Sender:
    """Return the sender of a message. An agent may give any name, but stays the sender."""
    if name is None:
        return caller.sender
    # Ingest removes invisible characters; the rest must not be a reserved name either.
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
    """Refuse an empty reply, or one that is too long."""
    if not body.strip():
        raise UserError("A reply needs a text.", "Say what to answer.")
    check_said(body, bounds.max_said_chars, "A reply", "Shorten it, or answer in parts.")


def check_message(caller: Caller, text: str, bounds: Bounds, *, has_folder: bool) -> None:
    """Refuse a message that is too long. `has_folder`: it is for a task, so it could be a file in its folder."""
    if caller.role is Role.AGENT:
        hint = "Write it to a file in your folder, and name that file in a shorter message."
    else:
        hint = "Send it as a file in the task's folder: --as-file, in the API as_file." if has_folder else IN_PARTS
    can_be_file = has_folder and caller.role is Role.OWNER
    check_said(text, bounds.max_said_chars, "A message", hint, can_be_file=can_be_file)


def check_names(sender: str | None, channel: str) -> None:
    """Refuse names that are empty, too long to store, or cannot be typed."""
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
    """Refuse a reply to a source without answers: the message would count as answered while the reply is parked."""
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
    announcers: Collection[str] = frozenset()  # sources whose messages cannot be answered


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
    """Return the requested number, at most the limit; refuses numbers below 1."""
    if value < 1:
        raise UserError(f"{name} must be at least 1.", f"Give 1 or more; you get {most} at once at most.")
    return min(value, most)
