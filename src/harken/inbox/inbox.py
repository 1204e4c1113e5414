"""`Inbox`: everything a person or an agent can do with messages.

Above are the surfaces, which translate and render; below the store, which persists. Here it is decided who gets
what: cursors move on evidence, never on offer; a wait that is cancelled consumes nothing; `send` says truthfully
what will happen. Methods take the caller or reader they act for and raise only `HarkenError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from logging import getLogger
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from harken.clock import Clock
from harken.errors import Conflict, NotFound, Unavailable, UserError
from harken.inbox.caller import (
    AT_ONCE,
    NO_SESSION,
    Bounds,
    Caller,
    DeliveryTime,
    Role,
    as_priority,
    bounded,
    check_answerable,
    check_message,
    check_names,
    check_reply,
    fitting,
    printable,
    speaker,
)
from harken.inbox.results import (
    Details,
    Forecast,
    LedgerEntry,
    Outlook,
    PullResult,
    QueueStats,
    SendResult,
    Status,
    as_if_stored,
    forecast,
    is_due,
    readers_of,
    scheduled_forecast,
)
from harken.inbox.taskbook import TaskBook, TextFile, write_text
from harken.ingest.intake import Intake, PolicyBook
from harken.ingest.policy import answer_of, check_said
from harken.ingest.prepare import prepare
from harken.ingest.redact import redact
from harken.ingest.sanitise import one_line
from harken.model import (
    INBOX,
    LOCAL,
    NOT_AGENTS,
    OWNER_ID,
    REPLIES,
    TASK,
    TRIAL,
    WATCH,
    Attention,
    Choose,
    Consumer,
    Delivery,
    DeliveryId,
    DeliveryState,
    Draft,
    Mailbox,
    Message,
    MessageId,
    Occasion,
    Offer,
    Reader,
    Schedule,
    ScheduledMessage,
    Selection,
    SessionKey,
    fresh_id,
)
from harken.sessions.proof import Proofs
from harken.sessions.registry import Sessions
from harken.sessions.session import Session
from harken.sessions.turns import Halt
from harken.store.contract import Store
from harken.store.contract.deliveries import MuteFilter, OfferFilter, SurfaceRecord
from harken.store.contract.events import Event
from harken.store.contract.messages import Filter
from harken.store.contract.outbox import CallKey, OutboxRow
from harken.store.contract.timeline import TimelineScope
from harken.times import COMING, parse_moment

_log = getLogger("harken.inbox")

MAX_PAGE = 1_000
MAX_OFFER = 100
MAX_HALT_CHARS: Final = 2_000  # of what a host says of a halt are looked at
HALT_CHARS: Final = 160  # and kept
INDEX_BEFORE_SEARCH = 2_000
MAX_REMEMBERED = 10_000
PROBE_SECONDS = 0.5  # the longest that a sender waits for a host to say whether a session can be woken
EVIDENCE_OF = timedelta(days=30)
LONGEST_DELAY: Final = timedelta(days=366)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

Listed = Callable[[], frozenset[MessageId]]
"""Returns what a session has heard of by its first words, because it is too long. Called from any thread."""


class Inbox:
    """The use cases over one store. One per daemon."""

    def __init__(
        self,
        store: Store,
        intake: Intake,
        policies: PolicyBook,
        sessions: Sessions,
        clock: Clock,
        *,
        bounds: Bounds,
        tasks: TaskBook,
    ) -> None:
        self._store = store
        self._intake = intake
        self._policies = policies
        self._clock = clock
        self._bounds = bounds
        self._tasks = tasks
        self._enrolled: set[tuple[Consumer, Mailbox]] = set()
        self.sessions = sessions
        self.proofs = Proofs(store.deliveries, sessions, clock, lease=bounds.lease)

    @property
    def max_said_chars(self) -> int:
        """How many characters a message or a reply that is written here may have."""
        return self._bounds.max_said_chars

    # -- saying ------------------------------------------------------------------------------------------------

    async def send(
        self,
        caller: Caller,
        text: str | TextFile,
        *,
        sender: str | None = None,
        channel: str = "",
        to: str = "",
        priority: str = "normal",
        conversation: str = "",
        upstream_id: str = "",
    ) -> SendResult:
        """Accept a message from this machine. Sent again with the same `upstream_id` it is stored once.

        A text that was put down in a file is said by the words that name the file.
        """
        named = {"channel": channel, "to": to, "priority": priority, "conversation": conversation}
        return await self.send_at(AT_ONCE, caller, text, sender=sender, upstream_id=upstream_id, **named)

    async def send_at(
        self, timing: DeliveryTime, caller: Caller, text: str | TextFile, *, sender: str | None = None, **named: str
    ) -> SendResult:
        """Accept a message as `send` does. It enters its mailbox when it is to, and no reader hears of it before."""
        draft = self._drafted(caller, text.note if isinstance(text, TextFile) else text, sender=sender, **named)
        sent = await (self.accept(draft) if timing == AT_ONCE else self._accept_later(draft, timing))
        return replace(sent, file=text.path if isinstance(text, TextFile) else "")

    def _drafted(
        self,
        caller: Caller,
        text: str,
        *,
        sender: str | None,
        channel: str = "",
        to: str = "",
        priority: str = "normal",
        conversation: str = "",
        upstream_id: str = "",
    ) -> Draft:
        """Return what a caller says as a draft; refuses what the caller may not say."""
        if not text.strip():
            raise UserError("A message needs a text.", 'Say something: harken send "the build is red"')
        is_agent = caller.role is Role.AGENT
        to = caller.addressee(to)
        self._tasks.admit(Mailbox(to), caller.consumer if is_agent else None)
        check_names(sender, channel)
        has_folder = self._tasks.of_consumer(Consumer(to)) is not None
        check_message(caller, text, self._bounds, has_folder=has_folder)
        own_id = upstream_id or fresh_id("u-", 20)
        said_by = speaker(caller, sender)
        draft = Draft(
            source=LOCAL,
            sender=said_by,
            text=text,
            # An agent's ids are its own: it cannot take the place of what somebody else is about to send.
            upstream_id=f"{caller.sender.id}/{own_id}" if is_agent else own_id,
            channel=channel or caller.holder or ("agent" if is_agent else "cli"),
            conversation=conversation,
            priority=as_priority(priority),
            mailbox=Mailbox(to) if to else None,
            author=WATCH if said_by.id == OWNER_ID else None,
        )
        if caller.scope is not None and answer_of(prepare(draft, self._policies.current()).text) is not None:
            # Said with your trust it would answer an action, which only a token that may approve does.
            raise caller.refusal("answer an action in words; the verb is confirm")
        return draft

    async def write_as_file(self, caller: Caller, to: str, text: str) -> TextFile:
        """Write a text for a task into the task's folder. `send` tells the agent."""
        # The daemon writes where an agent may not: another task's folder is none of its business.
        caller.require_owner("put files into a task's folder")
        self._tasks.admit(Mailbox(to))
        task = self._tasks.of_consumer(Consumer(to))
        if task is None:
            raise UserError("Only a task has a folder for files.", "Name a task: --to task:ID")
        if not text.strip():
            raise UserError("A message needs a text.", 'Say something: harken send "the build is red"')
        if task.machine:
            raise Conflict(f"The folder of task {task.id!r} is on {task.machine}.", "Send it from there, or in parts.")
        return await anyio.to_thread.run_sync(write_text, task.dir, text, self._clock.now().date())

    def check_prompt(self, text: str) -> None:
        """Refuse the first message of a task that is too long, before the task is made."""
        hint = "Put it in a file in the task's folder and name that, or send it later with --as-file."
        check_said(text, self._bounds.max_said_chars, "A prompt", hint)

    async def accept(self, draft: Draft) -> SendResult:
        """Store what is said on this machine, and say what will happen to it."""
        self._tasks.admit(draft.mailbox or INBOX)
        # Both asked before. A wake may be quicker than the answer of its host, which then seems busy; and whoever waits
        # has it in the very moment in which it is accepted, and waits no more.
        await self._look_at_idle()
        waiting = frozenset(self.sessions.waiting())
        appended = (await self._intake.accept([draft]))[0]
        if not appended.is_new:
            known = Forecast(Outlook.KNOWN, "was received before and is not stored again")
            return SendResult(message=appended.message, is_new=False, forecast=known)
        return SendResult(message=appended.message, is_new=True, forecast=self._outlook(appended.message, waiting))

    async def _accept_later(self, draft: Draft, timing: DeliveryTime) -> SendResult:
        """Store what enters its mailbox at a time or an occasion; at once, where no turn is to be waited for."""
        self._tasks.admit(draft.mailbox or INBOX)
        schedule = self._schedule(timing, prepare(draft, self._policies.current()).mailbox)
        if schedule.occasion is Occasion.TURN and not schedule.turns:
            return await self.accept(draft)
        appended = await self._intake.schedule(draft, schedule)
        if not appended.is_new:
            known = Forecast(Outlook.KNOWN, "was received before and is not stored again")
            return SendResult(message=appended.message, is_new=False, forecast=known)
        scheduled = ScheduledMessage(message=appended.message, schedule=schedule)
        return SendResult(message=appended.message, is_new=True, forecast=self.outlook_of(scheduled))

    def _schedule(self, timing: DeliveryTime, mailbox: Mailbox) -> Schedule:
        """Return what a time and an occasion mean now, for a message to a mailbox."""
        at, when = timing.at, timing.when
        try:
            occasion = Occasion(when or Occasion.TIME)
        except ValueError as exc:
            raise UserError(f"There is no occasion {when[:40]!r}.", "Occasions: idle, turn.") from exc
        if occasion is Occasion.TURN and at:
            raise UserError("At a time, or after this turn?", "Use one of them. A time goes with --when idle.")
        if occasion is not Occasion.TIME and not self.has_readers(mailbox):
            raise UserError(f"No agent reads {mailbox}, so none gets idle.", "Leave out --when and --after-turn.")
        now, due_at = self._clock.now(), None
        if at:
            try:
                due_at = parse_moment(at, now.astimezone()).astimezone(UTC)
            except ValueError as exc:
                raise UserError(f"{at[:40]!r} is not a time.", f"Write it as {COMING}.") from exc
            if not now < due_at <= now + LONGEST_DELAY:
                said = "That time has passed." if due_at <= now else "That is more than a year off."
                raise UserError(said, f"Name a time to come: {COMING}.")
        readers = readers_of(mailbox, self.sessions.everywhere()) if occasion is Occasion.TURN else ()
        turns = {session.key: session.turn for session in readers if session.is_at_work}
        return Schedule(due_at=due_at, occasion=occasion, turns=turns)

    def outlook_of(self, scheduled: ScheduledMessage) -> Forecast:
        """Say what a scheduled message waits for."""
        return scheduled_forecast(scheduled, self.sessions.also_left(), self._clock.now())

    async def scheduled(self, mailbox: str = "") -> Sequence[ScheduledMessage]:
        """Return the messages that wait for their time, the next due first."""
        return await self._store.schedule.list(mailbox)

    async def find_scheduled(self, caller: Caller, ref: str) -> ScheduledMessage:
        """Return a message that waits for its time or was withdrawn; to an agent only one that it sent."""
        found = await self._store.schedule.get(ref)
        if caller.role is Role.AGENT and not caller.is_named and found.message.sender.id != caller.sender.id:
            raise NotFound(f"No message {ref[:80]!r} of yours waits for its time.", "Name it by the id that send gave.")
        return found

    async def read_scheduled(self, scheduled: ScheduledMessage) -> Details:
        """Return a scheduled message with its ledger: it is queued for the readers of its mailbox."""
        places = await self._store.deliveries.consumers([scheduled.message.mailbox])
        readers = () if scheduled.withdrawn_at else {WATCH, *(place.consumer for place in places)}
        ledger = [LedgerEntry(consumer=name, state=DeliveryState.QUEUED) for name in sorted(readers)]
        return Details(message=scheduled.message, ledger=ledger, not_given=(), replies=())

    async def unsend(self, caller: Caller, ref: str) -> ScheduledMessage:
        """Withdraw a message before its time: it never enters its mailbox. Idempotent."""
        found = await self.find_scheduled(caller, ref)
        return await self._store.schedule.withdraw(found.message.id, caller.sender.id)

    async def release_due(self) -> Sequence[Message]:
        """Let the scheduled messages that are due enter their mailboxes; return them."""
        now, sessions = self._clock.now(), self.sessions.also_left()
        due = [each.message.id for each in await self._store.schedule.list() if is_due(each, sessions, now)]
        return await self._store.schedule.release(due) if due else []

    async def _look_at_idle(self) -> None:
        """Ask the hosts of idle sessions whether they can be woken, where only they know."""
        async with anyio.create_task_group() as looks:
            for session in self.sessions.live():
                if session.probe is not None and not session.is_busy:
                    looks.start_soon(self.sessions.probe, session, PROBE_SECONDS)

    def foresee(self, draft: Draft) -> Forecast:
        """Say what would happen to a draft that is accepted now; nothing is stored."""
        message = as_if_stored(prepare(draft, self._policies.current()), self._clock.now())
        self._tasks.admit(message.mailbox)
        return self._outlook(message, self.sessions.waiting())

    def _outlook(self, message: Message, waiting: Collection[SessionKey]) -> Forecast:
        mutes, has_readers = self._policies.mutes(self._clock.now()), self.has_readers(message.mailbox)
        return forecast(message, self.sessions.everywhere(), mutes, has_readers=has_readers, waiting=waiting)

    async def reply(
        self,
        caller: Caller,
        ref: str,
        body: str,
        *,
        among: Sequence[Mailbox] | None = None,
        edge: str = "",
        request: str = "",
    ) -> OutboxRow:
        """Answer a message where it came from: a row of the outbox, delivered by its source's sender.

        `among` are the mailboxes that an agent reads: it cannot answer what is not for it.
        The same request of the same edge, sent again after a restart, is done once.
        """
        check_reply(body, self._bounds)
        message = await self.readable(ref, among)
        check_answerable(message, self._bounds)
        said = Draft(source=message.source, sender=caller.sender, text=body)
        is_person = caller.role is Role.OWNER and caller.scope is None
        if not is_person and answer_of(prepare(said, self._policies.current()).text) is not None:
            # Sent through an account of yours it would come back as your word.
            raise caller.refusal("answer what is asked of you, in words")
        await self._enroll(Reader(consumer=caller.consumer, session=caller.session, mailboxes=(message.mailbox,)))
        call = CallKey(edge=edge, request=request) if edge else None
        return await self._store.outbox.add(
            message.id, body, author=caller.sender.id, consumer=caller.consumer, call=call
        )

    def has_readers(self, mailbox: Mailbox) -> bool:
        """Whether there are, or will be, agents that read a mailbox."""
        return mailbox in self._bounds.agents_read or self._tasks.is_open(mailbox)

    # -- getting -----------------------------------------------------------------------------------------------

    async def pull(
        self,
        reader: Reader,
        *,
        limit: int = 20,
        since: str = "",
        channel: str = "",
        consume: bool = True,
        surface: str,
        carrier: str,
        choose: Choose | None = None,
    ) -> PullResult:
        """Hand out what waits, or (not `consume`) show it without handing it out.

        `choose` says what an answer can carry; what it lets go whole is handed out, and nothing else.
        """
        await self._enroll(reader)
        wanted = bounded(limit, MAX_OFFER, "limit")
        if not consume:
            most = MAX_OFFER if choose else wanted
            found = await self.shown(await self._store.deliveries.peek(reader, most, channel=channel, after=since))
            shown = choose(found, wanted) if choose else Selection(whole=found)
            return PullResult.of(shown, max(0, await self.count(reader) - len(shown.whole)))
        where = OfferFilter(attentions=frozenset(Attention), choose=choose) if choose else None
        given = await self._offer(reader, wanted, surface, carrier, channel=channel, since=since, where=where)
        is_part = bool(channel or since) or given.leaves_some(wanted)
        return PullResult.of(given, await self._left(reader) if is_part else 0)

    async def wait(
        self,
        reader: Reader,
        *,
        timeout_seconds: float,
        max_items: int,
        surface: str,
        carrier: str,
        choose: Choose | None = None,
        listed: Listed = frozenset,
    ) -> PullResult:
        """Hand out what waits as soon as there is something; nothing after the time, which is capped.

        `choose` says what an answer can carry; what it only lists ends the wait too, but for what was `listed` before.
        """
        await self._enroll(reader)
        wanted = bounded(max_items, MAX_OFFER, "max_items")
        end = anyio.current_time() + min(max(0.0, timeout_seconds), self._bounds.max_wait_seconds)
        found: list[Selection] = []
        session = self.sessions.get(reader.session)
        if session is not None and not session.is_at_rest and not await self.waiting(reader, frozenset(Attention), 1):
            await self.note_rest(session)
        while not found:
            with self.sessions.in_wait(reader.session):
                # Mail that arrives while it begins with another mailbox is handed over, so it counts as waiting.
                await self._enroll(reader)
                given = await self._store.deliveries.offer_when_ready(
                    reader,
                    wanted,
                    surface=surface,
                    carrier=carrier,
                    lease=self._bounds.lease,
                    rank=partial(self.sessions.last_active, reader.session),
                    where=partial(self._filter_while_waiting, reader, choose, listed),
                    seconds=max(0.0, end - anyio.current_time()),
                )
                found.append(given)
            if not found and session is not None:
                # It has a name now, or its folder has become a task's or is one's no longer: it waits as who it is now.
                session.require_reading()
                reader = session.reader
        is_part = found[0].leaves_some(wanted) or bool(listed())
        return PullResult.of(found[0], await self._left(reader) if is_part else 0)

    async def note_rest(self, session: Session) -> None:
        """Journal, once, that a session has nothing to do until it is spoken to."""
        if session.is_helper or not session.come_to_rest():
            return
        told = {"session": session.key, "consumer": session.consumer, "agent": session.agent, "host": session.host}
        try:
            await self._store.events.record("session", {"state": "waiting", **told, "mailboxes": session.mailboxes})
        except Unavailable as exc:
            # Whoever only follows sessions may miss this one; what it is given and says is not touched by it.
            session.leave_rest()
            _log.warning("that session %s waits could not be noted: %s", session.key, exc.message)
        self.sessions.note_change(session.key)

    async def note_halt(self, session: Session, halt: Halt, reason: str = "") -> None:
        """Journal that a session does not go on by itself, where a person may want to know: each halt once."""
        is_quiet = session.is_helper or session.is_one_shot or any(box.startswith(TRIAL) for box in session.mailboxes)
        said = one_line(redact(reason[:MAX_HALT_CHARS]).text, HALT_CHARS)
        if is_quiet or not session.stop_working(halt, self._clock.now(), said):
            return
        told = {"session": session.key, "consumer": session.consumer, "agent": session.agent, "host": session.host}
        try:
            await self._store.events.record("halted", {"halt": halt, **told, "folder": session.cwd, "reason": said})
        except Unavailable as exc:
            _log.warning("that session %s %s could not be noted: %s", session.key, halt.words, exc.message)
        self.sessions.note_change(session.key)

    async def waiting(
        self,
        reader: Reader,
        attentions: Collection[Attention],
        limit: int,
        *,
        without: Collection[MessageId] = (),
        only: Collection[MessageId] | None = None,
        since: datetime | None = None,
    ) -> Sequence[Message]:
        """Return what waits and may push so far, oldest first; nothing that is muted. Changes nothing."""
        await self._enroll(reader)
        wanted = None if only is None else frozenset(only)
        where = replace(self._filter(reader, attentions, wanted), without=frozenset(without), since=since)
        return await self._store.deliveries.peek(reader, limit, where=where)

    async def hand_over(
        self, reader: Reader, messages: Collection[Message], *, surface: str, carrier: str
    ) -> Sequence[Offer]:
        """Offer some of what waits; what another reader got meanwhile is left out."""
        if not messages:
            return []
        where = self._filter(reader, frozenset(Attention), only=frozenset(message.id for message in messages))
        return (await self._offer(reader, len(messages), surface, carrier, where=where)).whole

    async def hand_over_read(self, reader: Reader, message: Message, *, surface: str, carrier: str) -> Offer | None:
        """Offer a message that was read by its name; None when another session has it, or this reader had it before."""
        await self._enroll(reader)
        where = OfferFilter(attentions=frozenset(Attention), only=frozenset({message.id}))
        given = await self._offer(reader, 1, surface, carrier, where=where)
        return given.whole[0] if given.whole else None

    async def recent(self, reader: Reader, limit: int) -> Sequence[Message]:
        """Return the newest messages that go with prompts, seen or not, oldest first; nothing that is muted."""
        return await self._store.timeline.for_prompts(reader.mailboxes, limit, self._mute_filter(reader))

    async def person(self, session: SessionKey, consumer: Consumer = WATCH) -> Reader:
        """Return how a person reads: every mailbox there is."""
        places = await self._store.deliveries.consumers()
        known = dict.fromkeys([INBOX, REPLIES, *(place.mailbox for place in places if place.consumer == WATCH)])
        return Reader(consumer=consumer, session=session, mailboxes=tuple(known))

    def agent(self, caller: Caller, session: SessionKey) -> Reader:
        """Return how a program that an agent started reads: as the agent, over what the agent reads."""
        if caller.mailboxes is not None:
            return Reader(consumer=caller.consumer, session=session, mailboxes=caller.mailboxes)
        own = self.sessions.get(caller.session)
        if own is not None:
            own.require_reading()
        # The mailbox of a task is called like its consumer.
        alone = (Mailbox(caller.consumer),) if caller.consumer.startswith(TASK) else (INBOX,)
        return Reader(consumer=caller.consumer, session=session, mailboxes=own.mailboxes if own else alone)

    async def consumers(self) -> Collection[Consumer]:
        """Return the names of everyone who reads."""
        return {place.consumer for place in await self._store.deliveries.consumers()} | {WATCH}

    async def count(self, reader: Reader) -> int:
        """Return how much waits for a reader, apart from what is being handed over."""
        await self._enroll(reader)
        unread = await self._store.deliveries.unread(reader)
        return unread.count - unread.leased

    async def newest(self, reader: Reader, limit: int) -> Sequence[Message]:
        """Return the newest messages of a reader's mailboxes, oldest first, seen or not."""
        pages = [
            await self._store.messages.page(Filter(mailbox=name), limit, newest_first=True) for name in reader.mailboxes
        ]
        return sorted((m for page in pages for m in page), key=lambda m: (m.received_at, m.seq))[-limit:]

    async def stats(self, reader: Reader) -> QueueStats:
        """Return what waits for a reader, in numbers."""
        await self._enroll(reader)
        unread = await self._store.deliveries.unread(reader, by_channel=True)
        return QueueStats(
            depth=unread.count,
            dropped_total=self._intake.dropped_total,
            oldest=unread.oldest,
            by_channel=unread.by_channel,
            left_out=await self._store.deliveries.omissions(reader),
        )

    # -- evidence ----------------------------------------------------------------------------------------------

    async def ack(self, reader: Reader, refs: Collection[str]) -> Sequence[Delivery]:
        """Mark messages as seen by a reader, named by message id, `#seq` or delivery id."""
        if not refs:
            raise UserError("Which message?", "Name one or more ids: harken ack ID")
        # Every name is looked up first: with one that is wrong, nothing is acknowledged.
        messages = [await self.readable(ref, reader.mailboxes) for ref in refs if not ref.startswith("d-")]
        await self._enroll(reader)
        named = [DeliveryId(ref) for ref in refs if ref.startswith("d-")]
        proven = await self._store.deliveries.prove(named, "ack", consumer=reader.consumer)
        acknowledged = (
            await self._store.deliveries.acknowledge(reader, [m.id for m in messages], "ack") if messages else []
        )
        return [*proven, *acknowledged]

    def notify(self, caller: Caller, session: str, method: str, params: Mapping[str, object]) -> bool:
        """Send any notification to a session, for a person who wants to see what its host does with it."""
        caller.require_owner("probe sessions")
        found = self.sessions.get(SessionKey(session))
        if found is None:
            raise NotFound(f"There is no session {session[:80]!r} now.", "See who is here: harken status")
        return any(pusher.notify(method, params) for pusher in tuple(found.connections.values()))

    async def evidence(self) -> Sequence[SurfaceRecord]:
        """Return what is known lately about each surface of each consumer."""
        return await self._store.deliveries.surfaces(self._clock.now() - EVIDENCE_OF)

    # -- looking -----------------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        mailbox: str = "",
        among: Sequence[Mailbox] | None = None,
        channel: str = "",
        sender: str = "",
        thread: str = "",
        since: datetime | None = None,
        before: int = 0,
        limit: int = 20,
    ) -> Sequence[Message]:
        """Return the newest messages that fit, oldest first; `among` bounds where an agent may look."""
        where = Filter(
            mailbox=mailbox,
            among=None if among is None else tuple(among),
            channel=channel,
            sender=sender,
            thread=thread,
            since=since,
            before=before,
        )
        found = await self._store.messages.page(where, bounded(limit, MAX_PAGE, "limit"), newest_first=True)
        return printable(found)[::-1]

    async def shown(self, messages: Sequence[Message]) -> Sequence[Offer]:
        """Return messages as if they were handed out, without what would prove that they arrived."""
        seen = await self.seen_by(messages)
        return [Offer(message=m, delivery_id=DeliveryId(""), seen_by=tuple(seen[m.id])) for m in messages]

    async def seen_by(self, messages: Collection[Message]) -> Mapping[MessageId, Sequence[Consumer]]:
        """Return who has seen each of some messages."""
        return await self._store.deliveries.seen_by([message.id for message in messages]) if messages else {}

    async def mailboxes(self) -> Sequence[Mailbox]:
        """Return every mailbox, by name."""
        return sorted({place.mailbox for place in await self._store.deliveries.consumers()})

    async def read(self, ref: str) -> Details:
        """Return a message with its ledger and replies."""
        message = await self._store.messages.get(ref)
        deliveries = {delivery.consumer: delivery for delivery in await self._store.deliveries.ledger(message.id)}
        ledger = [LedgerEntry(consumer=name, state=d.state, delivery=d) for name, d in deliveries.items()]
        here = [place for place in await self._store.deliveries.consumers() if place.mailbox == message.mailbox]
        others = [place for place in here if place.consumer not in deliveries]
        ledger += [
            LedgerEntry(consumer=p.consumer, state=DeliveryState.QUEUED) for p in others if p.cursor < message.seq
        ]
        not_given = [p.consumer for p in others if p.left_out and message.seq <= min(p.left_out.up_to, p.cursor)]
        return Details(
            message=message, ledger=ledger, not_given=not_given, replies=await self._store.outbox.to_message(message.id)
        )

    async def search(
        self,
        text: str,
        *,
        mailbox: str = "",
        among: Sequence[Mailbox] | None = None,
        channel: str = "",
        sender: str = "",
        limit: int = 20,
    ) -> Sequence[Message]:
        """Return messages that contain all the words, newest first; `among` bounds where an agent may look."""
        where = Filter(mailbox=mailbox, among=None if among is None else tuple(among), channel=channel, sender=sender)
        # Indexing runs behind accepting; catching up here lets people find what they sent a moment ago.
        with suppress(Unavailable):  # what is indexed can be found, also on a full disk
            await self._store.messages.index(INDEX_BEFORE_SEARCH)
        return printable(await self._store.messages.search(text, where, bounded(limit, MAX_PAGE, "limit")))

    async def journal(self, after: int, limit: int) -> Sequence[Event]:
        """Return events of the journal that follow a number."""
        events = await self._store.events.after(after, bounded(limit, MAX_PAGE, "limit"))
        return events[: fitting([len(event.message.text) if event.message else 0 for event in events])]

    async def last_event(self) -> int:
        """Return the number of the newest event."""
        return await self._store.events.last()

    async def status(self) -> Status:
        """Return what a person wants to know at a glance."""
        return Status(
            sessions=self.sessions.everywhere(),
            # Trials are over in a minute; what they left says nothing to people.
            consumers=[p for p in await self._store.deliveries.consumers() if not p.mailbox.startswith(TRIAL)],
            senders=await self._store.people.senders(),
            mutes=self._policies.mutes(self._clock.now()),
            parked=await self._store.outbox.list(state="parked"),
            waiting_replies=len(await self._store.outbox.list(state="queued")),
            not_stored=self._intake.not_stored,
            refused_pairings=self._intake.refused_pairings,
            store=await self._store.health.stats(),
        )

    async def readable(self, ref: str, among: Collection[Mailbox] | None = None) -> Message:
        """Return a message, seen or not; `among` are the mailboxes that an agent reads."""
        message = await self._store.messages.get(ref)
        if among is not None and message.mailbox not in among:
            raise NotFound(f"There is no message {ref[:80]!r} for you.", "See what is with: inbox_pull, inbox_search")
        return message

    # -- inner -------------------------------------------------------------------------------------------------

    async def _offer(
        self,
        reader: Reader,
        limit: int,
        surface: str,
        carrier: str,
        *,
        channel: str = "",
        since: str = "",
        where: OfferFilter | None = None,
    ) -> Selection:
        """Offer, such that a caller who is cancelled meanwhile has consumed nothing."""
        with anyio.CancelScope(shield=True):
            given = await self._store.deliveries.offer(
                reader,
                limit,
                surface=surface,
                carrier=carrier,
                lease_until=self._clock.now() + self._bounds.lease,
                channel=channel,
                after=since,
                where=where,
            )
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._store.deliveries.undo([offer.delivery_id for offer in given.whole], carrier)
            raise
        return given

    async def _left(self, reader: Reader) -> int | None:
        """Count what is left after an offer; shielded, because a caller cancelled now would lose the offer.

        None where the store went away meanwhile: an error would keep back what is leased to the caller already.
        """
        found = list[int]()
        with anyio.CancelScope(shield=True), suppress(Unavailable):
            found.append(await self.count(reader))
        return found[0] if found else None

    def _filter(
        self, reader: Reader, attentions: Collection[Attention], only: frozenset[MessageId] | None = None
    ) -> OfferFilter:
        return OfferFilter(attentions=frozenset(attentions), mutes=self._mute_filter(reader), only=only)

    def _filter_while_waiting(self, reader: Reader, choose: Choose | None, listed: Listed) -> OfferFilter:
        return OfferFilter(mutes=self._mute_filter(reader), without=listed(), choose=choose)

    def _mute_filter(self, reader: Reader) -> MuteFilter:
        """Return what may not wake a reader now."""
        mutes = self._policies.mutes(self._clock.now())
        mine = {("session", reader.session), ("session", reader.consumer)}
        return MuteFilter(
            channels=frozenset(mute.name for mute in mutes if mute.kind == "channel"),
            senders=frozenset(mute.name for mute in mutes if mute.kind == "sender"),
            is_total=any((mute.kind, mute.name) in mine for mute in mutes),
        )

    async def _enroll(self, reader: Reader) -> None:
        for mailbox in reader.mailboxes:
            if (reader.consumer, mailbox) not in self._enrolled:
                if len(self._enrolled) >= MAX_REMEMBERED:
                    self._enrolled.clear()
                # The window is for the inbox, which is everyone's. Mail to a project waits for its first reader.
                since = self._clock.now() - self._bounds.new_consumer_window if mailbox == INBOX else BEGINNING
                await self._store.deliveries.enroll(reader.consumer, mailbox, since, most=await self._most(mailbox))
                self._enrolled.add((reader.consumer, mailbox))

    async def _most(self, mailbox: Mailbox) -> int | None:
        """Return how many messages a new consumer may begin with; None for however many there are."""
        if mailbox != INBOX and all(
            p.consumer in NOT_AGENTS for p in await self._store.deliveries.consumers([mailbox])
        ):
            return None  # its first reader: nobody else was given them
        return self._bounds.new_consumer_most


SEEN_AT_ONCE: Final = 500  # what one transaction marks; other writers wait no longer than for that


MAX_SEEN: Final = 10_000


FARTHEST: Final = 2**62  # beyond every position, and still a number that a store can take


_PERSON: Final = Reader(consumer=WATCH, session=NO_SESSION)


async def mark_seen(store: Store, scope: TimelineScope, *, since: int = 0, up_to: int = FARTHEST, evidence: str) -> int:
    """Mark the messages between two positions as seen by you; return how many were not. Idempotent.

    Of a mailbox, the oldest 10,000 in one call; of a channel, those among its newest 500.
    """
    marked = 0
    for _ in range(MAX_SEEN // SEEN_AT_ONCE if scope.mailbox else 1):
        unseen = await store.timeline.unseen(scope, up_to, SEEN_AT_ONCE, since=since)
        marked += len(await store.deliveries.acknowledge(_PERSON, unseen, evidence)) if unseen else 0
        if len(unseen) < SEEN_AT_ONCE:
            break
    return marked
