"""The part of the store suite about tasks: their rows and links, and what becomes of their mail at the end.

One test, or more, for each sentence of `store/contract/tasks.py`. `store.py` puts it together with the other parts;
what a crash leaves behind is tested beside the backend.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harken.errors import Conflict, NotFound
from harken.model import Delivery, DeliveryState, MessageId, Reader, SessionKey, Task, TaskId
from harken.store.contract import Store
from harken.store.contract.messages import Filter
from harken.testing import FakeClock
from tests.contracts.store_suite import (
    LEASE_SECONDS,
    LONG_SECONDS,
    WAIT_SECONDS,
    Backend,
    Journal,
    StoreSuite,
    fill,
    mentions,
    new_message,
    offer,
    offered_texts,
    place,
    texts,
    waits_for,
)
from tests.contracts.store_waits import Poll, settled


def task(name: str, folder: str = "") -> Task:
    """Return a task as the use cases would ask for it."""
    return Task(id=TaskId(name), title=f"Work on {name}", dir=folder or f"/w/{name}", created_at=FakeClock().now())


def reader_of(item: Task, session: str = "s1") -> Reader:
    """Return how a session in a task's folder reads."""
    return Reader(consumer=item.consumer, session=SessionKey(session), mailboxes=(item.mailbox,))


def changes(journal: Journal, name: str) -> list[object]:
    """Return what the journal says happened to a task."""
    return [event.data["change"] for event in journal.of("task") if mentions(event, name)]


async def delivery_of(store: Store, message: MessageId, item: Task) -> Delivery | None:
    """Return the line of a task in the ledger of a message; None while it is queued."""
    found = [each for each in await store.deliveries.ledger(message) if each.consumer == item.consumer]
    return found[0] if found else None


async def ids_of(store: Store, item: Task) -> list[MessageId]:
    """Return every message of a task, the oldest first."""
    return [message.id for message in await store.messages.page(Filter(mailbox=item.mailbox), 100)]


async def states_of(store: Store, item: Task) -> list[DeliveryState]:
    """Return how far every message of a task got for it, the oldest first."""
    rows = [await delivery_of(store, message, item) for message in await ids_of(store, item)]
    return [row.state if row else DeliveryState.QUEUED for row in rows]


class TaskSuite(StoreSuite):
    """Tasks, from the first to the last day."""

    async def test_a_new_task_is_what_was_asked_for(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Every field comes back: git, the agent and the page each need another one."""
        wanted = replace(task("api"), repo="/r", branch="harken/api", agent="claude-code", has_worktree=True)
        clock.advance(5)
        stored = await store.tasks.add(wanted)
        assert stored == replace(wanted, created_at=clock.now())
        assert await store.tasks.get(wanted.id) == stored
        assert await store.tasks.list() == [stored]
        assert await store.tasks.ids() == [wanted.id]
        assert changes(journal, "api") == ["created"]

    async def test_an_id_is_used_once_for_ever(self, store: Store) -> None:
        """An old message says `task:api`: that must never come to mean another piece of work."""
        await store.tasks.add(task("api"))
        with pytest.raises(Conflict):
            await store.tasks.add(task("api", "/w/elsewhere"))
        await store.tasks.finish(TaskId("api"))
        with pytest.raises(Conflict):
            await store.tasks.add(task("api", "/w/elsewhere"))
        await store.tasks.remove(TaskId("api"))
        with pytest.raises(Conflict):
            await store.tasks.add(task("api", "/w/elsewhere"))
        assert await store.tasks.ids() == [TaskId("api")]
        assert await store.tasks.list(with_done=True) == []

    async def test_a_folder_has_one_open_task(self, store: Store) -> None:
        """Whose consumer a session is follows from its folder; with two tasks nobody could say."""
        await store.tasks.add(task("api", "/w/one"))
        with pytest.raises(Conflict, match="api"):
            await store.tasks.add(task("web", "/w/one"))
        await store.tasks.finish(TaskId("api"))
        web = await store.tasks.add(task("web", "/w/one"))
        assert await store.tasks.list() == [web]

    async def test_of_two_at_once_for_a_folder_one_is_made(self, store: Store) -> None:
        """Two terminals, one folder: the second is told, and leaves nothing behind."""
        made, refused = list[TaskId](), list[TaskId]()

        async def make(name: str) -> None:
            try:
                made.append((await store.tasks.add(task(name, "/w/one"))).id)
            except Conflict:
                refused.append(TaskId(name))

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as both:
                both.start_soon(make, "api")
                both.start_soon(make, "web")
        assert (len(made), len(refused)) == (1, 1)
        assert await store.tasks.ids() == made

    @pytest.mark.parametrize("wrong", ["the id", "the folder", "the peer"])
    async def test_a_task_that_is_refused_leaves_nothing(self, store: Store, wrong: str) -> None:
        """All or nothing: no half of a task, no link, no mailbox, no line in the journal."""
        await store.tasks.add(task("api"))
        before = await store.tasks.list(with_done=True), await store.deliveries.consumers(), await store.events.last()
        asked = {"the id": task("api", "/w/other"), "the folder": task("web", "/w/api"), "the peer": task("web")}
        peers = [TaskId("api"), TaskId("nobody")] if wrong == "the peer" else []
        with pytest.raises(NotFound if wrong == "the peer" else Conflict):
            await store.tasks.add(asked[wrong], peers)
        assert (
            await store.tasks.list(with_done=True),
            await store.deliveries.consumers(),
            await store.events.last(),
        ) == before
        assert await store.tasks.ids() == [TaskId("api")]

    async def test_links_are_the_same_from_both_sides(self, store: Store, journal: Journal) -> None:
        """A peer is a peer of its peer, whoever was named first, at the beginning or later."""
        names = [TaskId(name) for name in ("web", "api", "docs")]
        await store.tasks.add(task("web"))
        await store.tasks.add(task("api"), [TaskId("web")])
        await store.tasks.add(task("docs"))
        assert await store.tasks.link(names[0], names[2], is_on=True) is True
        peers = {each.id: set(each.peers) for each in await store.tasks.list()}
        assert peers == {"web": {"api", "docs"}, "api": {"web"}, "docs": {"web"}}
        assert (await store.tasks.get(names[1])).peers == (names[0],)
        assert await store.tasks.link(names[2], names[0], is_on=False) is True
        assert (await store.tasks.get(names[2])).peers == ()
        assert changes(journal, "docs") == ["created", "linked", "unlinked"]

    async def test_linking_twice_changes_nothing(self, store: Store, journal: Journal) -> None:
        """Idempotent, from either side; and nothing is journaled that did not happen."""
        one, two = TaskId("api"), TaskId("web")
        await store.tasks.add(task("api"))
        await store.tasks.add(task("web"))
        assert [await store.tasks.link(*pair, is_on=True) for pair in ((one, two), (one, two), (two, one))] == [
            True,
            False,
            False,
        ]
        assert [await store.tasks.link(*pair, is_on=False) for pair in ((two, one), (one, two))] == [True, False]
        assert changes(journal, "api") == ["created", "linked", "unlinked"]

    async def test_what_is_not_there_cannot_be_linked(self, store: Store) -> None:
        """A link to nothing would show a peer that nobody can reach."""
        await store.tasks.add(task("api"))
        for pair in ((TaskId("api"), TaskId("nobody")), (TaskId("nobody"), TaskId("api"))):
            with pytest.raises(NotFound):
                await store.tasks.link(*pair, is_on=True)
        assert (await store.tasks.get(TaskId("api"))).peers == ()

    async def test_tasks_come_in_the_order_in_which_they_were_made(self, store: Store) -> None:
        """Not by name: the list must not jump about. Done ones are left out unless asked for."""
        for name in ("web", "api", "docs"):
            await store.tasks.add(task(name))
        await store.tasks.finish(TaskId("api"))
        assert [each.id for each in await store.tasks.list()] == ["web", "docs"]
        assert [each.id for each in await store.tasks.list(with_done=True)] == ["web", "api", "docs"]

    async def test_a_task_starts_once(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """The first session starts it; the second one does not start it again."""
        await store.tasks.add(task("api"))
        first = clock.advance(5)
        assert await store.tasks.start(TaskId("api")) is True
        clock.advance(5)
        assert await store.tasks.start(TaskId("api")) is False
        assert (await store.tasks.get(TaskId("api"))).started_at == first
        assert changes(journal, "api") == ["created", "started"]

    @pytest.mark.parametrize("name", ["nobody", "", "api%", "a\0b"])
    async def test_an_unknown_task_is_not_found(self, store: Store, name: str) -> None:
        """Whatever is asked of it, and nothing else happens."""
        await store.tasks.add(task("api"))
        before = await store.events.last()
        for ask in (store.tasks.get, store.tasks.finish, store.tasks.remove):
            with pytest.raises(NotFound):
                await ask(TaskId(name))
        assert await store.events.last() == before

    async def test_only_a_task_that_is_done_can_be_removed(self, store: Store, journal: Journal) -> None:
        """Removing it refuses nothing, so mail could wait for ever for somebody who is not there."""
        await store.tasks.add(task("web"))
        api = await store.tasks.add(task("api"), [TaskId("web")])
        await fill(store, "kept", mailbox=api.mailbox)
        with pytest.raises(Conflict):
            await store.tasks.remove(api.id)
        await store.tasks.finish(api.id)
        assert (await store.tasks.get(TaskId("web"))).peers == (api.id,)
        await store.tasks.remove(api.id)
        with pytest.raises(NotFound):
            await store.tasks.get(api.id)
        with pytest.raises(NotFound):
            await store.tasks.remove(api.id)
        assert (await store.tasks.get(TaskId("web"))).peers == ()
        assert await texts(store) == ["kept"]
        assert changes(journal, "api") == ["created", "done", "removed"]

    async def test_tasks_survive_a_restart(
        self, backend: Backend, tmp_path: Path, clock: FakeClock, journal: Journal
    ) -> None:
        """Everything: links, times, what is done, and the ids of what was removed."""
        folder = tmp_path / "again"
        async with backend(folder, clock, journal) as store:
            for name in ("web", "old", "gone"):
                await store.tasks.add(task(name))
            await store.tasks.add(task("api"), [TaskId("web"), TaskId("old")])
            await store.tasks.start(TaskId("api"))
            await store.tasks.finish(TaskId("old"))
            await store.tasks.finish(TaskId("gone"))
            await store.tasks.remove(TaskId("gone"))
            before = await store.tasks.list(with_done=True)
        async with backend(folder, clock, journal) as store:
            assert await store.tasks.list(with_done=True) == before
            assert set(await store.tasks.ids()) == {"web", "old", "gone", "api"}


class TaskMailSuite(StoreSuite):
    """The mail of a task, and its end."""

    @pytest.fixture
    async def api(self, store: Store) -> Task:
        """A task with an empty mailbox."""
        return await store.tasks.add(task("api"))

    async def test_a_task_gets_its_mail_from_the_first_message(self, store: Store, clock: FakeClock) -> None:
        """However long ago that was: mail to a task that is queued waits for its start."""
        early = task("early")
        await fill(store, "before it was made", mailbox=early.mailbox)
        clock.advance(LONG_SECONDS)
        await store.tasks.add(early)
        await fill(store, "after", mailbox=early.mailbox)
        clock.advance(LONG_SECONDS)
        assert (await place(store, early.consumer, early.mailbox)).unread == 2
        assert offered_texts(await offer(store, clock, reader_of(early))) == ["before it was made", "after"]

    async def test_what_was_not_seen_is_refused_when_a_task_is_done(
        self, store: Store, clock: FakeClock, api: Task, journal: Journal
    ) -> None:
        """No message may wait for a reader who never comes; each says in its ledger what became of it."""
        await fill(store, "seen", "answered", "offered", "queued", mailbox=api.mailbox)
        given = await offer(store, clock, reader_of(api), 3)
        await store.deliveries.prove([given[0].delivery_id], "later call")
        await store.outbox.add(given[1].message.id, "yes", author=api.consumer, consumer=api.consumer)
        done_at = clock.advance(60)

        assert await store.tasks.finish(api.id) == 2

        assert await states_of(store, api) == [
            DeliveryState.SEEN,
            DeliveryState.ANSWERED,
            DeliveryState.REFUSED,
            DeliveryState.REFUSED,
        ]
        refused = [await delivery_of(store, message, api) for message in (await ids_of(store, api))[2:]]
        assert [bool(row and row.reason) for row in refused] == [True, True]
        assert refused[0] is not None
        assert (refused[0].id, refused[0].offers) == (given[2].delivery_id, 1)
        assert (await store.tasks.get(api.id)).done_at == done_at
        here = await place(store, api.consumer, api.mailbox)
        assert (here.cursor, here.head, here.unread) == (4, 4, 0)
        (event,) = journal.of("refused")
        assert all(mentions(event, message) for message in (await ids_of(store, api))[2:])
        assert not any(mentions(event, message) for message in (await ids_of(store, api))[:2])
        assert changes(journal, "api") == ["created", "done"]

    async def test_the_person_still_has_what_was_refused(self, store: Store, api: Task) -> None:
        """The task refuses for itself only: people go on reading its mailbox."""
        await fill(store, "hello", mailbox=api.mailbox)
        (message,) = await ids_of(store, api)
        waiting = await waits_for(store, message)
        assert api.consumer in waiting
        await store.tasks.finish(api.id)
        assert await waits_for(store, message) == waiting - {api.consumer}

    async def test_a_task_is_done_once(self, store: Store, clock: FakeClock, api: Task) -> None:
        """Said again it changes nothing: not the time, not a message, not the journal."""
        await fill(store, "hello", mailbox=api.mailbox)
        assert await store.tasks.finish(api.id) == 1
        first, last = await store.tasks.get(api.id), await store.events.last()
        clock.advance(5)
        assert await store.tasks.finish(api.id) == 0
        assert (await store.tasks.get(api.id), await store.events.last()) == (first, last)

    async def test_a_proof_that_comes_too_late_changes_nothing(self, store: Store, clock: FakeClock, api: Task) -> None:
        """The end was visible to people already; and the lease must not bring the message back."""
        await fill(store, "hello", mailbox=api.mailbox)
        (given,) = await offer(store, clock, reader_of(api))
        await store.tasks.finish(api.id)
        assert await store.deliveries.prove([given.delivery_id], "later call") == []
        await store.deliveries.release(reader_of(api).session)
        clock.advance(LEASE_SECONDS + 1)
        assert await offer(store, clock, reader_of(api, "s2")) == []
        assert await states_of(store, api) == [DeliveryState.REFUSED]
        assert (await store.deliveries.unread(reader_of(api))).count == 0

    @pytest.mark.parametrize("is_removed", [False, True])
    async def test_a_message_that_comes_after_the_end_is_refused_visibly(
        self, store: Store, clock: FakeClock, api: Task, journal: Journal, *, is_removed: bool
    ) -> None:
        """A reply or a route may arrive late: it is stored, because it was accepted, and says that nobody gets it."""
        await store.tasks.finish(api.id)
        if is_removed:
            await store.tasks.remove(api.id)
        (late,) = await store.messages.append([new_message("late", mailbox=api.mailbox)])
        assert late.is_new
        row = await delivery_of(store, late.message.id, api)
        assert row is not None
        assert (row.state, bool(row.reason)) == (DeliveryState.REFUSED, True)
        assert await offer(store, clock, reader_of(api)) == []
        here = await place(store, api.consumer, api.mailbox)
        assert (here.head, here.unread) == (1, 0)
        (event,) = journal.of("refused")
        assert mentions(event, late.message.id)

    async def test_nobody_who_waits_is_given_what_is_refused(self, store: Store, api: Task) -> None:
        """A long poll may outlive the task: a message must not be both refused and handed out."""
        poll = Poll(store, reader_of(api), seconds=1.0)
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as waits:
                waits.start_soon(poll.run)
                await settled(store)
                await store.tasks.finish(api.id)
                await fill(store, "late", mailbox=api.mailbox)
        assert poll.texts == []
        assert await states_of(store, api) == [DeliveryState.REFUSED]

    async def test_only_the_mail_of_the_task_is_refused(self, store: Store, clock: FakeClock, api: Task) -> None:
        """A task whose id begins the same has its own mail."""
        other = await store.tasks.add(task("api-2"))
        await fill(store, "for api", mailbox=api.mailbox)
        await fill(store, "for api-2", mailbox=other.mailbox)
        assert await store.tasks.finish(api.id) == 1
        await fill(store, "more", mailbox=other.mailbox)
        assert offered_texts(await offer(store, clock, reader_of(other))) == ["for api-2", "more"]

    async def test_what_was_seen_stays_seen_when_it_is_sent_again_after_the_end(
        self, store: Store, clock: FakeClock, api: Task, journal: Journal
    ) -> None:
        """A client that lost its answer asks again: that is the same message, and it did arrive."""
        again = new_message("hello", mailbox=api.mailbox, key=b"k")
        await store.messages.append([again])
        (given,) = await offer(store, clock, reader_of(api))
        await store.deliveries.prove([given.delivery_id], "later call")
        assert await store.tasks.finish(api.id) == 0
        (known,) = await store.messages.append([again])
        assert not known.is_new
        assert await states_of(store, api) == [DeliveryState.SEEN]
        assert journal.of("refused") == []
