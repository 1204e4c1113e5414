"""The part of the store suite about runs: one per folder, one end, and the rules that led to what a run says.

One test, or more, for each sentence of that part of `store/contract/automation.py`. `store.py` puts it together with
the other parts; what a crash leaves behind is tested beside the backend.
"""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from harken.automation import Action, ActionId, ActionState, Mode, Run, RunEnd, RunId, RunState
from harken.errors import Conflict, NotFound, UserError
from harken.model import INBOX, LOCAL, RUN, WATCH, Message, MessageId, Reader, Sender, SessionKey
from harken.store.contract import Store
from harken.store.contract.messages import Filter
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.actions import KEPT
from tests.contracts.rules import ORDER, ask, run_of, say, settle, verdict
from tests.contracts.store_suite import LONG_SECONDS, WAIT_SECONDS, Journal, StoreSuite, new_message

DONE = RunEnd(state=RunState.DONE, exit_code=0, turns=3, denied=("Bash", "mcp/x"), answer="fixed\nit", reason="in time")


async def start(store: Store, clock: FakeClock, name: str, workdir: str = ORDER.workdir) -> Run:
    """Let a rule fire and its run begin."""
    action = await ask(store, clock, Mode.AUTO)
    return await store.runs.start(run_of(action, name, workdir))


async def say_as_run(store: Store, run: RunId, source: str = LOCAL) -> Message:
    """Store a message as a run says it."""
    new = replace(new_message("I did it"), source=source, sender=Sender(f"{RUN}{run}"))
    [appended] = await store.messages.append([new])
    return appended.message


class RunSuite(StoreSuite):
    """A run, from its beginning to its end."""

    async def test_a_run_begins_and_its_action_is_started(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """In one step: an action that is started without a run would never end, nor would a run without one."""
        action = await ask(store, clock, Mode.AUTO)
        wanted = run_of(action)
        assert await store.runs.start(wanted) == wanted
        assert await store.runs.get(wanted.id) == wanted
        assert await store.actions.get(action.id) == replace(action, state=ActionState.STARTED, run=wanted.id)
        assert (await store.rules.state()).waiting == 0
        [event] = journal.of("run")
        named = (wanted.id, action.id, action.message, "red", "running")
        assert tuple(event.data[name] for name in ("run", "action", "message_id", "rule", "state")) == named

    async def test_only_a_queued_action_is_started(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """No yes, no run; and one yes is one run."""
        asked, told = await ask(store, clock), await ask(store, clock, Mode.NOTIFY)
        declined = await store.actions.answer((await ask(store, clock, Mode.AUTO)).id, is_yes=False, by="cli")
        started = await ask(store, clock, Mode.AUTO)
        run = await store.runs.start(run_of(started))
        await store.runs.end(run.id, DONE)
        events = len(journal.events)
        for action in (asked, told, declined, started):
            with pytest.raises(Conflict, match=action.id):
                await store.runs.start(run_of(action, "r-000002"))
        with pytest.raises(NotFound):
            await store.runs.start(replace(run_of(asked, "r-000002"), action=ActionId("a-nobody")))
        assert [each.id for each in await store.runs.list()] == [run.id]
        assert await store.actions.list([ActionState.WAITING]) == [asked]
        assert len(journal.events) == events

    async def test_a_folder_has_one_run_at_a_time(self, store: Store, clock: FakeClock) -> None:
        """Two agents in one folder would write over each other. The second stays queued, and is started later."""
        first, second = await ask(store, clock, Mode.AUTO), await ask(store, clock, Mode.AUTO)
        await store.runs.start(run_of(first, "r-000001", "/w/a"))
        with pytest.raises(Conflict, match="r-000001"):
            await store.runs.start(run_of(second, "r-000002", "/w/a"))
        assert (await store.actions.get(second.id)).state is ActionState.QUEUED
        await store.runs.end(RunId("r-000001"), DONE)
        await store.runs.start(run_of(second, "r-000002", "/w/a"))
        await start(store, clock, "r-000003", "/w/b")
        assert [run.id for run in await store.runs.list(is_running=True)] == ["r-000003", "r-000002"]

    async def test_runs_without_a_folder_do_not_wait_for_each_other(self, store: Store, clock: FakeClock) -> None:
        """An empty folder is none that they could share."""
        await start(store, clock, "r-000001", "")
        await start(store, clock, "r-000002", "")
        assert len(await store.runs.list(is_running=True)) == 2

    async def test_of_two_runs_at_once_for_a_folder_one_begins(self, store: Store, clock: FakeClock) -> None:
        """Two runners, or two daemons: the second is told, and its action waits on."""
        actions = [await ask(store, clock, Mode.AUTO) for _ in range(2)]
        begun, late = list[RunId](), list[Action]()

        async def begin(number: int) -> None:
            try:
                begun.append((await store.runs.start(run_of(actions[number], f"r-00000{number}"))).id)
            except Conflict:
                late.append(actions[number])

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as both:
                for number in range(2):
                    both.start_soon(begin, number)
        assert (len(begun), len(late)) == (1, 1)
        assert await store.actions.list([ActionState.QUEUED]) == late

    async def test_an_id_is_that_of_one_run(self, store: Store, clock: FakeClock) -> None:
        """Its output is in a file of that name."""
        first = await start(store, clock, "r-000001", "/w/a")
        action = await ask(store, clock, Mode.AUTO)
        with pytest.raises(Conflict):
            await store.runs.start(run_of(action, "r-000001", "/w/b"))
        assert await store.runs.list() == [first]
        assert (await store.actions.get(action.id)).state is ActionState.QUEUED

    async def test_how_it_ended_stays(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """What it answered, what it was denied and why it ended is what people ask for."""
        begun = await start(store, clock, "r-000001")
        await store.runs.began(begun.id, 4711)
        clock.advance(60)
        ended = await store.runs.end(begun.id, DONE)
        assert ended == replace(
            begun,
            pid=4711,
            state=RunState.DONE,
            ended_at=clock.now(),
            exit_code=0,
            turns=3,
            denied=("Bash", "mcp/x"),
            answer="fixed\nit",
            reason="in time",
        )
        assert await store.runs.get(begun.id) == ended
        assert [event.data["state"] for event in journal.of("run")] == ["running", "done"]

    async def test_the_first_end_counts(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """It is aborted in the moment in which it ends by itself: one of them is what happened."""
        begun = await start(store, clock, "r-000001")
        ended = await store.runs.end(begun.id, RunEnd(state=RunState.ABORTED, reason="by cli"))
        clock.advance(60)
        assert await store.runs.end(begun.id, DONE) == ended
        await store.runs.began(begun.id, 4711)
        assert await store.runs.get(begun.id) == ended
        assert [event.data["state"] for event in journal.of("run")] == ["running", "aborted"]
        with pytest.raises(NotFound):
            await store.runs.end(RunId("r-nobody"), DONE)

    async def test_a_run_is_found_by_a_unique_beginning(self, store: Store, clock: FakeClock) -> None:
        """Ids are typed by people; a whole id is never the beginning of another one."""
        for number, name in enumerate(("r-ab0000", "r-ab1111", "r-b22222")):
            await start(store, clock, name, f"/w/{number}")
        assert (await store.runs.get("r-b")).id == "r-b22222"
        assert (await store.runs.get("r-ab1")).id == "r-ab1111"
        assert (await store.runs.get("r-ab0000")).id == "r-ab0000"
        with pytest.raises(UserError, match="r-ab"):
            await store.runs.get("r-ab")
        for wrong in ("", "r", "r-", "r-%", "a-ab0000", "r-ab00001"):
            with pytest.raises(NotFound):
                await store.runs.get(wrong)

    async def test_runs_come_newest_first(self, store: Store, clock: FakeClock) -> None:
        """Those that run, those that ended, those for one message, and no more than was asked for."""
        first, second, third = [await start(store, clock, f"r-00000{n}", f"/w/{n}") for n in range(3)]
        ended = await store.runs.end(second.id, DONE)
        assert await store.runs.list() == [third, ended, first]
        assert await store.runs.list(limit=1) == [third]
        assert await store.runs.list(is_running=True) == [third, first]
        assert await store.runs.list(is_running=False) == [ended]
        assert await store.runs.list(message=first.message) == [first]
        assert await store.runs.list(is_running=True, message=ended.message) == []
        assert await store.runs.list(is_running=False, message=ended.message) == [ended]

    async def test_old_runs_go_and_what_runs_stays(self, store: Store, clock: FakeClock) -> None:
        """The newest thousand stay, however old they are; so does one that still runs."""
        [message] = await say(store, "one")
        running, over = await start(store, clock, "r-running", "/w/a"), await start(store, clock, "r-over00", "/w/b")
        await store.runs.end(over.id, DONE)
        limit = anyio.CapacityLimiter(32)

        async def live(number: int) -> None:
            async with limit:
                action = await store.actions.add(message.id, ORDER, "cli")
                run = await store.runs.start(run_of(action, f"r-{number:06}", ""))
                await store.runs.end(run.id, DONE)

        async with anyio.create_task_group() as lives:
            for number in range(KEPT - 1):
                lives.start_soon(live, number)
        limits = Limits(max_count=10 * KEPT, max_age_seconds=60)
        clock.advance(61)
        await store.retention.prune(limits)
        assert (await store.runs.get(over.id)).state is RunState.DONE
        await live(KEPT)
        await store.retention.prune(limits)
        with pytest.raises(NotFound):
            await store.runs.get(over.id)
        left = await store.runs.list(limit=2 * KEPT)
        assert (len(left), left[-1]) == (KEPT + 1, running)


class AncestrySuite(StoreSuite):
    """Which rules led to a message."""

    async def test_what_people_say_has_no_ancestry(self, store: Store, clock: FakeClock) -> None:
        """Only what a run says on this machine has; a sender elsewhere may call itself as it likes."""
        run = await start(store, clock, "r-000001")
        [plain] = await say(store, "one")
        foreign = await say_as_run(store, run.id, source="teams")
        unknown = await say_as_run(store, RunId("r-nobody"))
        gone = MessageId("m-nothing")
        asked = [plain.id, foreign.id, unknown.id, gone]
        assert await store.runs.ancestry(asked) == dict.fromkeys(asked, ())
        assert await store.runs.ancestry([]) == {}

    async def test_a_chain_is_told_from_the_nearest_on(self, store: Store, clock: FakeClock) -> None:
        """The loop guard asks whether a rule is in it, and how long it is. A run by hand counts, without a name."""
        [told] = await say(store, "the build is red")
        ancestry: tuple[str, ...] = ()
        expected = {told.id: ancestry}
        for number, rule in enumerate(("red", "", "blue")):
            if rule:
                [action] = await settle(store, clock, [verdict(told, rule, Mode.AUTO)])
            else:
                action = await store.actions.add(told.id, ORDER, "cli")
            run = await store.runs.start(run_of(action, f"r-00000{number}", f"/w/{number}"))
            told, ancestry = await say_as_run(store, run.id), (rule, *ancestry)
            expected[told.id] = ancestry
        assert ancestry == ("blue", "", "red")
        assert await store.runs.ancestry(list(expected)) == expected

    async def test_a_chain_outlives_its_messages(self, store: Store, clock: FakeClock) -> None:
        """Otherwise a small mailbox would let a loop go on as soon as its beginning is deleted."""
        first = await start(store, clock, "r-000001", "/w/a")
        middle = await say_as_run(store, first.id)
        [action] = await settle(store, clock, [verdict(middle, "blue", Mode.AUTO)])
        second = await store.runs.start(run_of(action, "r-000002", "/w/b"))
        for run in (first, second):
            await store.runs.end(run.id, DONE)
        last = await say_as_run(store, second.id)
        messages = [message.id for message in await store.messages.page(Filter(mailbox=INBOX), 100)]
        await store.deliveries.acknowledge(Reader(consumer=WATCH, session=SessionKey("w")), messages, "ack")
        await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert [message.id for message in await store.messages.page(Filter(mailbox=INBOX), 100)] == [last.id]
        assert await store.runs.ancestry([last.id]) == {last.id: ("blue", "red")}
