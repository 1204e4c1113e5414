"""The one writer, committing what arrived meanwhile together (group commit).

A job is a function over a `Transaction`. Jobs that wait when the writer is free share one commit, and so one
fsync; each still succeeds or fails on its own, behind a savepoint. Those of one kind also share their statements. After
the commit `AfterCommit` gets the events and only then the callers their results: that order is the contract of
`store/contract`.

It writes in a thread of its own. Where the disk is quick that detour costs more than the disk: then quick jobs are
committed in the event loop, those that one turn of it brought together, as long as the thread has nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from harken.clock import Clock
from harken.errors import HarkenError, Unavailable
from harken.model import Mailbox
from harken.store.contract.events import AfterCommit, BeforeCommit, Event
from harken.store.contract.leases import LEASE_OF_TASK, Lease
from harken.store.files import DiskReserve
from harken.store.sql.transaction import ALONE, SqlConnection, StoreHolder, Transaction, full, unstorable_text

A = TypeVar("A")
T = TypeVar("T")

Together = Callable[[Transaction, Sequence[A]], Sequence[T]]
"""Does for several callers at once what each of them wants, in order; returns what each one gets."""

_log = logging.getLogger("harken.store")

MAX_BATCH = 256
RETRY_SECONDS = 1.0
MAX_IN_LOOP = 64
"""How many jobs are committed in the event loop together."""
QUICK_SECONDS = 0.001
"""A disk that makes commits durable within this time, mostly, may hold up the event loop for it."""
COMMITS_TIMED = 15


class Database(Protocol):
    """What a backend has for the one writer: its connection, and how a transaction begins and ends."""

    @property
    def connection(self) -> SqlConnection:
        """The one connection that writes; the same object for ever."""
        ...

    @property
    def errors(self) -> type[Exception]:
        """What the driver raises."""
        ...

    @property
    def may_use_loop(self) -> bool:
        """Whether quick jobs may be committed in the event loop, as long as the disk is quick."""
        ...

    def begin(self, *, is_durable: bool) -> int | None:
        """Begin a transaction, alone among all writers; `is_durable`: it survives a power cut.

        Returns the number of the last event, where that costs nothing.
        """
        ...

    def commit(self, grown: Collection[Mailbox]) -> None:
        """Commit; daemons that share the store are told of the mailboxes that have grown."""
        ...

    def roll_back(self) -> None:
        """Undo what is open, if anything is. Never raises."""
        ...

    def translate(self, error: Exception) -> HarkenError:
        """Return the error of ours for one of the driver's."""
        ...

    def is_full(self, error: BaseException) -> bool:
        """Whether there was no room to write."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class CommitService(Protocol):
    """What is served in every transaction after its jobs: readers that wait. It belongs to the writer."""

    @property
    def unserved(self) -> Collection[Mailbox]:
        """Mailboxes for which something is left to do; the writer does not wait for a job then."""
        ...

    def hear(self, grown: Collection[Mailbox]) -> bool:
        """Mailboxes have grown by another daemon; return whether that is to be served. Called in the event loop."""
        ...

    def serve(self, tx: Transaction, *, is_alone: bool) -> None:
        """Do what the transaction has something for; `is_alone`: no job waits for it."""
        ...

    def commit(self) -> Sequence[Callable[[], None]]:
        """The transaction is committed: return what is to be called in the event loop."""
        ...

    def roll_back(self) -> None:
        """The transaction failed: everything is as it was before."""
        ...


@dataclass(slots=True)
class _Job(Generic[T]):
    run: Callable[[Transaction], T]
    future: asyncio.Future[T]
    is_durable: bool
    needs_room: bool = True
    is_quick: bool = False
    together: Together[Any, T] | None = None
    wanted: object = None
    leases: tuple[Lease, ...] = ()  # it is written under these
    result: T | None = None
    error: Exception | None = None


class LocalChanges:
    """The change feed inside one daemon, which is SQLite's only writer: a call, no polling."""

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[Callable[[Collection[Mailbox]], None], frozenset[Mailbox]]] = {}

    @contextmanager
    def listen(self, wake: Callable[[Collection[Mailbox]], None], only: Collection[Mailbox] = ()) -> Iterator[None]:
        """Call `wake` after each commit while the context is open, or after those that concern `only` these."""
        key = object()
        self._listeners[key] = wake, frozenset(only)
        try:
            yield
        finally:
            del self._listeners[key]

    def ring(self, grown: Collection[Mailbox]) -> None:
        """Wake the listeners of these mailboxes."""
        for wake, only in tuple(self._listeners.values()):
            if not only or not only.isdisjoint(grown):
                wake(grown)


class CommitTimes:
    """How long the disk took for the last commits that it made durable."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=COMMITS_TIMED)
        self.are_short = True  # until it is known

    def note(self, seconds: float) -> None:
        """Take in how long one took."""
        self._times.append(seconds)
        self.are_short = sorted(self._times)[len(self._times) // 2] <= QUICK_SECONDS


class Writer:
    """Owns the writing connection, for the running event loop. `start` and `join` bracket its life."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        service: CommitService,
        *,
        reserve: DiskReserve | None,
        after_commit: AfterCommit,
        before_commit: BeforeCommit,
        changes: LocalChanges,
        holder: StoreHolder = ALONE,
    ) -> None:
        self._database = database
        self._connection = database.connection
        self._clock = clock
        self._reserve = reserve
        self._after_commit = after_commit
        self._before_commit = before_commit
        self._changes = changes
        self._holder = holder
        self._service = service
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="harken-writer", daemon=True)
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._times = CommitTimes()
        self._writing = threading.Lock()  # held by the thread or the loop, whichever has the connection
        self._turn: list[_Job[Any]] = []  # what this turn of the loop brought
        self._in_thread = 0  # how many jobs the thread has, or has finished without the loop knowing it yet
        self._is_in_loop = False  # the loop writes now

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def refuse(self) -> None:
        """Take no more jobs; those that were taken are finished. Call it in the loop, so that none slips in after."""
        self._is_stopped = True
        self._give_to_thread()
        self._jobs.put(None)

    def join(self) -> None:
        """Wait until the jobs are finished, then close the connection. Blocks; call it off the loop."""
        self._thread.join()
        self._database.close()

    async def run(
        self,
        job: Callable[[Transaction], T],
        *,
        is_durable: bool = True,
        needs_room: bool | None = None,
        is_quick: bool = False,
    ) -> T:
        """Run a job in a transaction and return its result once that is committed.

        A durable job survives a power cut; any other survives a crash of the process, and is safe from a power cut as
        soon as a durable one follows. It saves the fsync where losing the write only means doing it again. On a full
        disk only what does not need room is still written, into the reserve: what is not durable, by default. A quick
        job does little, however much is stored: the event loop may wait for it.
        Cancelling the caller does not undo the job: a caller that can be cancelled and cares must shield.
        """
        is_big = is_durable if needs_room is None else needs_room
        future, leases = self._loop.create_future(), _leases_of_task()
        return await self._submit(_Job(job, future, is_durable, is_big, is_quick, leases=leases))

    async def run_together(self, run: Together[A, T], wanted: A, *, is_quick: bool = False) -> T:
        """Like `run`, durable, for many callers that want the same kind of thing: those that meet are run as one.

        When it fails for several, each of them is run alone, so that it fails only for those who caused it.
        """
        alone = partial(_run_for_one, run, wanted)
        future, leases = self._loop.create_future(), _leases_of_task()
        return await self._submit(
            _Job(alone, future, is_durable=True, is_quick=is_quick, together=run, wanted=wanted, leases=leases)
        )

    def hear(self, grown: Collection[Mailbox]) -> None:
        """Serve readers that wait for mailboxes which another daemon let grow. Call it in the loop."""
        if not self._is_stopped and self._service.hear(grown):
            self._serve_later()

    def _submit(self, job: _Job[T]) -> asyncio.Future[T]:
        # asyncio rather than anyio: anyio has no way to complete something from a foreign thread without
        # blocking that thread until the loop has run it.
        if self._is_stopped:
            raise Unavailable("The store is closed.", "Start Harken again: harken up.")
        self._turn.append(job)
        if not (self._database.may_use_loop and job.is_quick):
            self._give_to_thread()
        elif len(self._turn) == 1:
            self._loop.call_soon(self._end_turn)
        return job.future

    def _serve_later(self) -> None:
        """Let the thread serve readers that are left."""
        self._turn.append(_Job(_nothing, self._loop.create_future(), is_durable=False))
        self._give_to_thread()

    def _give_to_thread(self) -> None:
        """Let the thread commit what this turn of the loop has brought so far."""
        jobs, self._turn = self._turn, []
        self._in_thread += len(jobs)
        for job in jobs:
            self._jobs.put(job)

    def _end_turn(self) -> None:
        """Commit what a turn of the loop brought: here, if that is quick and the thread has nothing to do."""
        is_short = 0 < len(self._turn) <= MAX_IN_LOOP and self._times.are_short
        has_room = self._reserve is None or not self._reserve.is_used
        if not (is_short and has_room and not self._in_thread and self._writing.acquire(blocking=False)):
            self._give_to_thread()
            return
        jobs, self._turn = self._turn, []
        try:
            self._is_in_loop = True
            self._write(jobs)
            is_left = bool(self._service.unserved)
        finally:
            self._is_in_loop = False
            self._writing.release()
        if is_left and not self._is_stopped:
            self._serve_later()

    def _work(self) -> None:
        is_stopping, pause = False, 0.0
        while not is_stopping:
            # Readers that still have to be served do not wait for the next job, and do not hold it up either.
            with self._writing:
                is_left = bool(self._service.unserved)
            batch, is_stopping = self._next_batch(pause if is_left else None)
            with self._writing:
                if batch or self._service.unserved:
                    # While nothing can be written (a full disk), trying without end would only burn a core.
                    pause = 0.0 if self._write(batch) else RETRY_SECONDS

    def _next_batch(self, patience: float | None) -> tuple[list[_Job[Any]], bool]:
        """Return the jobs that are here or come within some seconds (None: wait), and whether they are the last."""
        batch: list[_Job[Any]] = []
        while len(batch) < MAX_BATCH:
            try:
                job = self._jobs.get_nowait() if batch or patience == 0 else self._jobs.get(timeout=patience)
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _write(self, batch: Sequence[_Job[Any]]) -> bool:
        """Commit jobs; when the disk is full, those that may use the reserve. Return whether it was committed."""
        reserve = self._reserve
        if reserve is None or not reserve.is_used:
            return self._commit(batch, last=reserve is None)
        if any(job.needs_room for job in batch) and not reserve.keep():
            return self._write_small(batch, full())
        return self._commit(batch, last=reserve.is_used)

    def _write_small(self, batch: Sequence[_Job[Any]], failure: Exception) -> bool:
        """Refuse the jobs that need room, and commit the others."""
        refused = [job for job in batch if job.needs_room]
        for job in refused:
            job.error = job.error or failure
        self._post(refused, (), ())
        others = [job for job in batch if not job.needs_room]
        return self._commit(others, last=True) if others or self._service.unserved else False

    def _commit(self, batch: Sequence[_Job[Any]], *, last: bool) -> bool:
        """Run jobs in one transaction, and tell everyone; return whether it was committed.

        If it is not the `last` try and the disk is full, the reserve is given up and it is tried once more in that.
        """
        try:
            transaction, served = self._transact(batch)
        except Exception as exc:
            # Whatever it is, it fails this batch only: a thread that ends would leave everyone waiting.
            self._database.roll_back()
            self._service.roll_back()
            failure = self._database.translate(exc) if isinstance(exc, self._database.errors) else exc
            failure.__cause__ = exc if failure is not exc else None
            is_full = self._database.is_full(exc)
            if not last and is_full and self._reserve is not None and self._reserve.release():
                _log.warning("the disk is full: new mail is refused until there is space")
                return self._write_small(batch, failure)
            for job in batch:
                job.error = job.error or failure
            self._post(batch, (), ())
            return False
        if transaction.events:
            self._give_events(transaction.events)
        self._post(batch, served, transaction.grown)
        return True

    def _transact(self, batch: Sequence[_Job[Any]]) -> tuple[Transaction, Sequence[Callable[[], None]]]:
        """Run jobs and commit; return the transaction, and what is to be called in the event loop."""
        last = self._begin(batch)
        transaction = Transaction(self._connection, self._clock.now(), self._holder, last)
        self._run_all(batch, transaction)
        self._service.serve(transaction, is_alone=not batch)
        self._announce_growth(transaction.grown)
        began = time.perf_counter()
        self._database.commit(transaction.grown)
        if any(job.is_durable for job in batch):
            self._times.note(time.perf_counter() - began)
        return transaction, self._service.commit()

    def _begin(self, batch: Sequence[_Job[Any]]) -> int | None:
        return self._database.begin(is_durable=any(job.is_durable for job in batch))

    def _announce_growth(self, grown: Collection[Mailbox]) -> None:
        if not grown:
            return
        try:
            self._before_commit(grown)
        except Exception:
            # It must not raise either: a bell that cannot be rung costs no message.
            _log.exception("before_commit of the store failed")

    def _give_events(self, events: Sequence[Event]) -> None:
        try:
            self._after_commit(events)
        except Exception:
            # It must not raise. What is committed is committed, and whoever waits for it must hear of it all the same.
            _log.exception("after_commit of the store failed")

    def _run_all(self, batch: Sequence[_Job[Any]], transaction: Transaction) -> None:
        for together, group in groupby(batch, key=lambda job: job.together):
            jobs = list(group)
            is_alone = len(jobs) == len(batch)
            if (
                together is not None
                and len(jobs) > 1
                and self._run_as_one(together, jobs, transaction, is_alone=is_alone)
            ):
                continue
            for job in jobs:
                self._run_one(job, transaction, is_alone=len(batch) == 1)

    def _run_as_one(
        self, together: Together[Any, Any], jobs: Sequence[_Job[Any]], transaction: Transaction, *, is_alone: bool
    ) -> bool:
        """Run jobs of one kind as one; return whether that went well, else nothing has changed."""
        run = partial(_run_for_all, together, [job.wanted for job in jobs])
        leases = tuple({lease for job in jobs for lease in job.leases})
        whole = _Job[Sequence[Any]](run, jobs[0].future, is_durable=True, leases=leases)
        self._run_one(whole, transaction, is_alone=is_alone)
        if whole.error is not None or whole.result is None:
            return False
        for job, result in zip(jobs, whole.result, strict=True):
            job.result = result
        return True

    def _run_one(self, job: _Job[Any], transaction: Transaction, *, is_alone: bool) -> None:
        marks = len(transaction.events), len(transaction.fresh), set(transaction.grown)
        if not is_alone:
            self._connection.execute("SAVEPOINT job")
        try:
            for lease in job.leases:
                transaction.refuse_old(lease)
            job.result = job.run(transaction)
        except self._database.errors:
            raise
        except Exception as exc:
            job.error = unstorable_text() if isinstance(exc, UnicodeEncodeError) else exc
            if is_alone:
                self._database.roll_back()
                self._begin((job,))
            else:
                self._connection.execute("ROLLBACK TO job")
            transaction.undo(*marks)
        if not is_alone:
            self._connection.execute("RELEASE job")

    def _post(
        self, batch: Sequence[_Job[Any]], served: Sequence[Callable[[], None]], grown: Collection[Mailbox]
    ) -> None:
        if self._is_in_loop:
            self._settle(batch, served, grown)
            return
        # When the loop is closed nobody is left to be told. What was committed is committed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle_of_thread, batch, served, grown)

    def _settle_of_thread(
        self, batch: Sequence[_Job[Any]], served: Sequence[Callable[[], None]], grown: Collection[Mailbox]
    ) -> None:
        self._in_thread -= len(batch)
        self._settle(batch, served, grown)

    def _settle(
        self, batch: Sequence[_Job[Any]], served: Sequence[Callable[[], None]], grown: Collection[Mailbox]
    ) -> None:
        for hand_over in served:
            hand_over()
        for job in batch:
            if job.future.done() or job.run is _nothing:
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)
        if grown:
            self._changes.ring(grown)


def _run_for_all(run: Together[A, T], wanted: Sequence[A], transaction: Transaction) -> Sequence[T]:
    return run(transaction, wanted)


def _run_for_one(run: Together[A, T], wanted: A, transaction: Transaction) -> T:
    return run(transaction, (wanted,))[0]


def _leases_of_task() -> tuple[Lease, ...]:
    lease = LEASE_OF_TASK.get()
    return () if lease is None else (lease,)


def _nothing(_transaction: Transaction) -> None:
    """Change nothing: only what is served matters."""


def nothing_before(_grown: Collection[Mailbox]) -> None:
    """Announce nothing."""


def nothing_after(_events: Sequence[Event]) -> None:
    """Observe nothing."""
