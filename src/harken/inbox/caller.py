"""The caller of a use case: its role, what it may do, and the bounds of what it may send.

The socket accepts only processes of the same user. A process that descends from a registered host, or has a host's mark
in its environment, counts as that agent: it may not speak as the owner or change access. This guards against a model's
mistakes, not against malicious programs of the same account.

A program elsewhere comes with a token, and counts as an agent that may do less: each verb says by its `Grant` what it
needs, the token's scope what its holder may do, and in which mailboxes. What only you may do it may only if its token
names that very verb. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from harken.errors import Forbidden, UserError
from harken.ingest.policy import IN_PARTS, MAX_SAID_CHARS, check_said
from harken.ingest.prepare import MAX_NAME
from harken.ingest.sanitise import bare
from harken.model import (
    AGENT,
    INBOX,
    OWNER_ID,
    PROGRAM,
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
from harken.store.contract.tokens import TokenScope

CHANNELS_ID = "channels"  # the sender of injected messages; no caller may use it
NO_SESSION = SessionKey("")


class Role(StrEnum):
    """The person at the machine, or a program of an agent."""

    OWNER = "owner"
    AGENT = "agent"


class Grant(StrEnum):
    """What a verb needs of a token. A scope has these words, and names of verbs."""

    ANY = "any"
    READ = "read"
    SEND = "send"
    REPLY = "reply"
    APPROVE = "approve"
    NAMED = "named"  # what only you may do, or see of the whole inbox: a scope names the verb itself


EVERY_MAILBOX = Mailbox("*")


def lets(scope: TokenScope, verb: str, needs: Grant) -> bool:
    """Whether a token may do a verb at all."""
    return needs is Grant.ANY or (verb if needs is Grant.NAMED else needs.value) in scope.may


def covers(scope: TokenScope, mailbox: str) -> bool:
    """Whether a token is for a mailbox."""
    return EVERY_MAILBOX in scope.mailboxes or mailbox in scope.mailboxes


def is_within(scope: TokenScope, wider: TokenScope) -> bool:
    """Whether a token lets its holder do no more than another."""
    return scope.may <= wider.may and all(covers(wider, each) for each in scope.mailboxes)


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
    satellite: str = ""  # the satellite that it is on; empty: the machine of the daemon
    holder: str = ""  # the name of the token that it came with
    scope: TokenScope | None = None  # what that lets it do
    said_by: Sender | None = None  # who its messages are from, where its consumer does not say
    is_named: bool = False  # it does what its token names, and only you may do otherwise

    @property
    def sender(self) -> Sender:
        """The sender of this caller's messages."""
        if self.said_by is not None:
            return self.said_by
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
        if self.role is not Role.OWNER and not self.is_named:
            raise self.refusal(what)

    def require_home(self, what: str) -> None:
        """Refuse what only the person may do, and only on the machine of the daemon."""
        self.require_owner(what)
        if self.satellite:
            raise Forbidden(f"A satellite may not {what}.", "Do it on the main machine.")

    def refusal(self, what: str) -> Forbidden:
        """Return why an agent may not do what only the person may."""
        return self._beyond(what) if self.scope else refusal(what, self.program, self.because)

    @property
    def is_device(self) -> bool:
        """Whether it is a device of the person, with a token of its own."""
        return self.scope is not None and self.said_by is not None and self.said_by.id == OWNER_ID

    def may(self, verb: str, needs: Grant) -> bool:
        """Whether its token lets it do a verb; without a token the use case decides."""
        return self.scope is None or lets(self.scope, verb, needs)

    @property
    def approves(self) -> frozenset[Mailbox]:
        """The mailboxes of a token for which it may say yes or no; without a token none."""
        if self.scope is None or not self.may("approve", Grant.APPROVE):
            return frozenset()
        return frozenset(self.scope.mailboxes)

    def doing(self, verb: str, needs: Grant) -> Caller:
        """Return the caller as it does a verb; refuses one that its token does not let it do."""
        if self.scope is None:
            return self
        if not self.may(verb, needs):
            raise self._beyond(f"do {verb!r}")
        return replace(self, is_named=needs in (Grant.APPROVE, Grant.NAMED))

    @property
    def mailboxes(self) -> tuple[Mailbox, ...] | None:
        """The mailboxes that its token is for; None for every one, and for a caller without a token."""
        return None if self.scope is None or EVERY_MAILBOX in self.scope.mailboxes else self.scope.mailboxes

    def require_mailbox(self, mailbox: str) -> None:
        """Refuse a mailbox that the token is not for."""
        if self.scope is not None and not covers(self.scope, mailbox):
            raise self._beyond(f"use the mailbox {mailbox[:40]!r}")

    def addressee(self, named: str) -> str:
        """Return the mailbox for what it sends: one that its token is for, also when it names none."""
        own = self.mailboxes
        to = named or (own[0] if own and INBOX not in own else INBOX if own else "")
        if to:
            self.require_mailbox(to)
        return to

    def _beyond(self, what: str) -> Forbidden:
        return Forbidden(f"The token {self.holder!r} may not {what}.", "Use another token, or ask who made this one.")


def refusal(what: str, program: str = "", because: str = "") -> Forbidden:
    """Return the error for an agent that tries what only the person may do, with how it was recognised."""
    who = f" This counts as a command of {program}, because {because}." if because else ""
    return Forbidden(f"An agent may not {what}.{who}", "Ask your user to run it in their own terminal.")


@dataclass(frozen=True, slots=True)
class DeliveryTime:
    """When a message is to be delivered, as its sender says it: at a time, at an occasion, or at once."""

    at: str = ""
    when: str = ""


AT_ONCE = DeliveryTime()


def speaker(caller: Caller, name: str | None) -> Sender:
    """Return the sender of a message. An agent may give any name, but stays the sender."""
    if name is None:
        return caller.sender
    # Ingest removes invisible characters; the rest must not be a reserved name either.
    folded = "".join(char for char in name if char.isprintable()).strip().lower()
    if folded == CHANNELS_ID:
        raise Forbidden(f"Nobody may speak as {CHANNELS_ID!r}.", "To pass on channel messages: harken channel inject")
    if folded.startswith((TASK, AGENT, RUN, PROGRAM)):
        raise Forbidden(f"Nobody can speak as {name[:40]!r} from here.", "Name a person or a program: --from ci-bot")
    if caller.role is Role.OWNER:
        return Sender(name, name)
    yours = {OWNER_ID, caller_name(Role.OWNER), "user"}
    if not yours.isdisjoint((folded, bare(folded))) or caller.sender.id == OWNER_ID:
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
    if not {"\\", "*"}.isdisjoint(channel) or any(part != part.strip() or not part for part in parts):
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
