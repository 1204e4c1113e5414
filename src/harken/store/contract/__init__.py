"""The contract of a store, in the words of the domain. Backends pass `tests/contracts/store.py`.

Promises that hold for every method:

- A method that writes is one transaction: after it returns, everything it did survives a crash; if it raises,
  nothing happened. Journal events are rows of that same transaction. What cannot be had again (messages,
  checkpoints, replies, decisions) survives power loss too; offers and proofs may then be lost, which at worst
  offers a message once more.
- After the commit and before the method returns, the store gives the events to its `AfterCommit` (the journal file),
  and only then rings `Changes`. So a line is on disk before anyone is pushed. - Sequence numbers are per mailbox, start
  at 1, have no gaps and follow commit order: a reader of `seq > n` can never step over a message that commits later.
- Driver exceptions never leave: `Unavailable` when the disk is full or the database away (nothing was changed),
  `UserError` when the database cannot be used at all (newer schema, damaged file), `NotFound`, `Conflict`.
- Reads see every write that returned before the read began.

A store may be shared by several daemons, each with its own opening: then all of this holds over all of them, and
`tests/contracts/two_openers.py` says what follows for offers, checkpoints, replies and changes.

It is not a policy: who may do what, what is pushed where, and how long a lease lasts is decided above.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol

from harken.model import Mailbox
from harken.store.contract.automation import ActionStore, RuleStore, RunStore
from harken.store.contract.conversations import ConversationStore
from harken.store.contract.deliveries import DeliveryStore
from harken.store.contract.events import EventStore
from harken.store.contract.health import DaemonStore, HealthStore
from harken.store.contract.leases import LeaseStore
from harken.store.contract.messages import CheckpointStore, MessageStore, ScheduleStore
from harken.store.contract.outbox import OutboxStore, SubscriptionStore
from harken.store.contract.people import PeopleStore
from harken.store.contract.questions import ApprovalStore, QuestionStore
from harken.store.contract.retention import RetentionStore
from harken.store.contract.tasks import TaskStore
from harken.store.contract.timeline import TimelineStore
from harken.store.contract.tokens import TokenStore


class Changes(Protocol):
    """Tells that something was committed. Rings for every daemon that shares the store."""

    def listen(
        self, wake: Callable[[Collection[Mailbox]], None], only: Collection[Mailbox] = ()
    ) -> AbstractContextManager[None]:
        """Call `wake` in the event loop after a commit, while the context is open; `only`: one that concerns these.

        It gets the mailboxes in which something can be offered now: they grew, or a lease was ended. A new reply
        rings for `OUTBOX`, what changes about rules, actions and runs for `ACTIONS`, about an approval for `APPROVALS`,
        about a scheduled message for `SCHEDULE`,
        a lease that was given back for `LEASES`. `wake` must be quick and not raise. A ring may be spurious, never
        missing.
        """
        ...


class Store(Protocol):
    """A store: one attribute per noun. See the module docstring for what holds for every method."""

    @property
    def changes(self) -> Changes:
        """The change feed."""
        ...

    @property
    def messages(self) -> MessageStore:
        """Everything that was accepted, in order."""
        ...

    @property
    def schedule(self) -> ScheduleStore:
        """Messages that wait for their time."""
        ...

    @property
    def checkpoints(self) -> CheckpointStore:
        """How far each feed has come."""
        ...

    @property
    def deliveries(self) -> DeliveryStore:
        """Offers, leases, proofs and cursors."""
        ...

    @property
    def people(self) -> PeopleStore:
        """What the person decided about senders, and mutes."""
        ...

    @property
    def rules(self) -> RuleStore:
        """What rules made of messages, and the rules in force."""
        ...

    @property
    def actions(self) -> ActionStore:
        """What rules and people asked for."""
        ...

    @property
    def runs(self) -> RunStore:
        """Headless agent executions."""
        ...

    @property
    def outbox(self) -> OutboxStore:
        """Replies on their way out."""
        ...

    @property
    def questions(self) -> QuestionStore:
        """Messages with a sender who waits for an answer."""
        ...

    @property
    def approvals(self) -> ApprovalStore:
        """What hosts ask before a tool is used."""
        ...

    @property
    def conversations(self) -> ConversationStore:
        """Messages of one thread, as the person sorts them."""
        ...

    @property
    def tasks(self) -> TaskStore:
        """Tasks and their links."""
        ...

    @property
    def tokens(self) -> TokenStore:
        """What lets other machines in."""
        ...

    @property
    def events(self) -> EventStore:
        """What happened, in commit order."""
        ...

    @property
    def subscriptions(self) -> SubscriptionStore:
        """Who has events posted to an address."""
        ...

    @property
    def timeline(self) -> TimelineStore:
        """Reads for people."""
        ...

    @property
    def retention(self) -> RetentionStore:
        """What is over the limits, and removing it."""
        ...

    @property
    def leases(self) -> LeaseStore:
        """What one daemon does for all that share the store."""
        ...

    @property
    def daemons(self) -> DaemonStore:
        """Which daemons have it open."""
        ...

    @property
    def health(self) -> HealthStore:
        """Whether the store works, and which one it is."""
        ...
