"""The part of the store suite about judging: verdicts, windows, and where judging is.

One test, or more, for each sentence of the first part of `store/contract/automation.py`; the other parts are in
`actions.py` and `runs.py`. `store.py` puts it together with the other parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
import pytest

from harken.automation import (
    ACTIONS,
    Action,
    ActionState,
    Mode,
    Order,
    Outcome,
    RuleCount,
    RuleFiring,
    RuleState,
    RuleVerdict,
    Run,
    RunEnd,
    RunId,
    RunState,
)
from harken.errors import Conflict
from harken.model import INBOX, WATCH, Mailbox, Message, MessageId, MessageKind, Reader, SessionKey
from harken.store.contract import Store
from harken.store.contract.automation import CONFIRM_EXPIRES, Settlement
from harken.store.contract.events import RECOVERY
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.store_journal import Ear
from tests.contracts.store_suite import (
    LONG_SECONDS,
    TASK,
    WAIT_SECONDS,
    Backend,
    Journal,
    StoreSuite,
    fill,
    new_message,
)

ORDER: Final = Order(
    agent="claude-code",
    workdir="/w/shop",
    tools=("read_file", "shell:git log"),
    prompt="Look at:\n«the build is red»",
    timeout=timedelta(minutes=7, microseconds=3),
    max_turns=9,
    has_reply=True,
)
WINDOW: Final = timedelta(days=1)
FIRST, SECOND_DIGEST = b"\x01" * 32, b"\x02" * 32


async def say(store: Store, *texts: str) -> list[Message]:
    """Store messages and return them."""
    return [each.message for each in await store.messages.append([new_message(text) for text in texts])]


def verdict(
    message: Message,
    rule: str = "red",
    mode: Mode = Mode.CONFIRM,
    outcome: Outcome = Outcome.FIRED,
    digest: bytes = FIRST,
) -> RuleVerdict:
    """Return a verdict as the engine would give it."""
    has_order = outcome is Outcome.FIRED and mode is not Mode.NOTIFY
    return RuleVerdict(
        message=message.id,
        rule=rule,
        mode=mode,
        outcome=outcome,
        digest=digest,
        order=ORDER if has_order else None,
    )


async def settle(
    store: Store, clock: FakeClock, verdicts: Sequence[RuleVerdict], *, judged: int = -1
) -> Sequence[Action]:
    """Settle what was decided from the standing of this moment; nothing more is judged by it unless said."""
    standing = await store.rules.state()
    return await store.rules.settle(
        Settlement(
            revision=standing.revision,
            judged=standing.judged if judged < 0 else judged,
            verdicts=verdicts,
            keep_since=clock.now() - WINDOW,
        )
    )


async def ask(store: Store, clock: FakeClock, mode: Mode = Mode.CONFIRM, workdir: str = ORDER.workdir) -> Action:
    """Let a rule fire for a new message; return its action."""
    [message] = await say(store, "the build is red")
    fired = replace(verdict(message, mode=mode), order=replace(ORDER, workdir=workdir))
    [action] = await settle(store, clock, [fired])
    return action


def run_of(action: Action, name: str = "r-000001", workdir: str = ORDER.workdir) -> Run:
    """Return the run of an action as the runner would begin it."""
    return Run(
        id=RunId(name),
        action=action.id,
        rule=action.rule,
        message=action.message,
        agent="claude-code",
        workdir=workdir,
        tools=("read_file",),
        state=RunState.RUNNING,
        started_at=action.created_at,
        leftover=("TodoWrite",),
    )


async def judged_up_to(store: Store) -> int:
    """Return the place of the newest message that can be judged."""
    return (await store.rules.unjudged(0, 1000))[-1][0]


class JudgingSuite(StoreSuite):
    """What is to be judged, and what was decided."""

    async def test_a_new_store_has_judged_nothing(self, store: Store) -> None:
        """Whatever decides begins with nothing: no window, no pause, nothing that waits."""
        assert await store.rules.state(["red"], [("red", FIRST)]) == RuleState()
        assert await store.rules.counts() == {}

    async def test_what_is_to_be_judged_comes_in_order_of_receipt(self, store: Store) -> None:
        """Over all mailboxes, because a window of one mailbox holds in the other; with places to go on from."""
        await fill(store, "one")
        await fill(store, "two", mailbox=TASK)
        await fill(store, "a trial", mailbox=Mailbox("trial:1"))
        await store.messages.append([replace(new_message("gone"), kind=MessageKind.DELETION)])
        await store.messages.append([replace(new_message("corrected"), kind=MessageKind.EDIT)])
        await fill(store, "three")
        found = await store.rules.unjudged(0, 100)
        assert [message.text for _, message in found] == ["one", "two", "corrected", "three"]
        places = [place for place, _ in found]
        assert places == sorted(set(places))
        assert await store.rules.unjudged(0, 2) == found[:2]
        assert await store.rules.unjudged(places[1], 100) == found[2:]
        assert await store.rules.unjudged(places[-1], 100) == []
        assert found[0][1] == await store.messages.get("#1")
        assert (await store.rules.state()).head == places[-1]

    @pytest.mark.parametrize(
        ("mode", "state"),
        [
            (Mode.NOTIFY, ActionState.TOLD),
            (Mode.CONFIRM, ActionState.WAITING),
            (Mode.AUTO, ActionState.QUEUED),
        ],
    )
    async def test_a_rule_that_fires_makes_an_action(
        self, store: Store, clock: FakeClock, mode: Mode, state: ActionState
    ) -> None:
        """What happens next, and until when, follows from the mode and from nothing else."""
        [message] = await say(store, "the build is red")
        clock.advance(5)
        decided = verdict(message, mode=mode)
        [action] = await settle(store, clock, [decided])
        assert action == Action(
            id=action.id,
            rule="red",
            mode=mode,
            message=message.id,
            state=state,
            created_at=clock.now(),
            order=decided.order,
            expires_at=clock.now() + CONFIRM_EXPIRES if mode is Mode.CONFIRM else None,
        )
        assert await store.actions.get(action.id) == action
        assert (await store.rules.state()).waiting == (0 if mode is Mode.NOTIFY else 1)

    async def test_verdicts_come_back_in_the_order_of_the_rules(self, store: Store, clock: FakeClock) -> None:
        """People ask why a rule did nothing, and read the answers in the order of their file."""
        first, second = await say(store, "one", "two")
        decided = [
            replace(verdict(first, "zebra"), reason="it matches"),
            verdict(second, "zebra", outcome=Outcome.NO_MATCH),
            replace(verdict(first, "ant", outcome=Outcome.DUPLICATE), earlier=second.id, reason="as before"),
            verdict(first, "mole", Mode.NOTIFY),
        ]
        made = await settle(store, clock, decided)
        assert [(action.rule, action.message) for action in made] == [("zebra", first.id), ("mole", first.id)]
        assert await store.rules.verdicts(first.id) == [decided[0], decided[2], decided[3]]
        assert await store.rules.verdicts(second.id) == [decided[1]]
        assert await store.rules.verdicts(MessageId("m-nothing")) == []

    @pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.FIRED])
    async def test_what_was_held_makes_no_action_and_begins_no_window(
        self, store: Store, clock: FakeClock, outcome: Outcome
    ) -> None:
        """A message that was refused must not silence the next one."""
        [message] = await say(store, "one")
        assert await settle(store, clock, [verdict(message, outcome=outcome)]) == []
        standing = await store.rules.state(["red"], [("red", FIRST)])
        assert (standing.fired, standing.duplicates, standing.waiting) == ({}, {}, 0)
        assert await store.actions.list() == []
        assert await store.rules.counts() == {"red": RuleCount(outcomes={outcome: 1})}

    async def test_every_verdict_is_journaled(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """The journal is the record of what was decided, long after the message is gone."""
        [message] = await say(store, "one")
        held = replace(verdict(message, "held", outcome=Outcome.QUIET), reason="until 07:00")
        [action] = await settle(store, clock, [verdict(message), held])
        told = {"message_id": message.id, "mode": "confirm", "earlier": None}
        assert [event.told for event in journal.of("judged")] == [
            {**told, "rule": "red", "outcome": "fired", "reason": "", "action": action.id},
            {**told, "rule": "held", "outcome": "quiet hours", "reason": "until 07:00", "action": None},
        ]
        assert {str(event.data[RECOVERY]) for event in journal.of("judged")} == {str({"digest": FIRST.hex()})}

    async def test_counts_say_what_came_of_each_rule(self, store: Store, clock: FakeClock) -> None:
        """Counted for ever; when a rule fired last is when its message was received."""
        one, two = await say(store, "one", "two")
        clock.advance(60)
        [three] = await say(store, "three")
        clock.advance(60)
        full = verdict(two, "busy", outcome=Outcome.FULL)
        await settle(store, clock, [verdict(one), verdict(two), verdict(three, outcome=Outcome.LIMITED), full])
        assert await store.rules.counts() == {
            "red": RuleCount(outcomes={Outcome.FIRED: 2, Outcome.LIMITED: 1}, last_fired_at=one.received_at),
            "busy": RuleCount(outcomes={Outcome.FULL: 1}),
        }

    async def test_verdicts_go_with_their_message_and_counts_stay(self, store: Store, clock: FakeClock) -> None:
        """A message that nobody can read any more needs no reasons."""
        one, two = await say(store, "one", "two")
        await settle(store, clock, [verdict(one, mode=Mode.NOTIFY), verdict(two, mode=Mode.NOTIFY)])
        before = await store.rules.counts()
        await store.deliveries.acknowledge(Reader(consumer=WATCH, session=SessionKey("w")), [one.id], "ack")
        assert (await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))).deleted == 1
        assert await store.rules.verdicts(one.id) == []
        assert len(await store.rules.verdicts(two.id)) == 1
        assert await store.rules.counts() == before
        assert await settle(store, clock, [verdict(one, "late")]) == []
        assert (await store.rules.verdicts(one.id), await store.rules.counts()) == ([], before)


class WindowSuite(StoreSuite):
    """What silences a rule for a while."""

    async def test_windows_begin_when_the_message_was_received(self, store: Store, clock: FakeClock) -> None:
        """Not when it was judged: a daemon that was away for a while must decide as if it had not been."""
        [message] = await say(store, "one")
        clock.advance(600)
        await settle(store, clock, [verdict(message)])
        fired = RuleFiring(message.id, message.received_at)
        standing = await store.rules.state(["red"], [("red", FIRST)])
        assert (standing.fired, standing.duplicates) == ({"red": fired}, {("red", FIRST): fired})

    async def test_windows_are_of_a_rule_and_a_content(self, store: Store, clock: FakeClock) -> None:
        """Another content is no duplicate, and another rule has its own windows; nothing is told that was not asked."""
        one, two = await say(store, "one", "two")
        await settle(store, clock, [verdict(one), verdict(two, digest=SECOND_DIGEST)])
        pairs = [("red", FIRST), ("red", SECOND_DIGEST), ("blue", FIRST), ("red", b"\x03" * 32)]
        standing = await store.rules.state(["red", "blue"], pairs)
        first, second = (RuleFiring(each.id, each.received_at) for each in (one, two))
        assert standing.fired == {"red": second}
        assert standing.duplicates == {("red", FIRST): first, ("red", SECOND_DIGEST): second}
        assert (await store.rules.state()).fired == {}

    async def test_the_newest_to_fire_is_whose_window_it_is(self, store: Store, clock: FakeClock) -> None:
        """Also when the clock was set back meanwhile: order is that of judging."""
        [one] = await say(store, "one")
        clock.set_back(3600)
        [two] = await say(store, "one")
        await settle(store, clock, [verdict(one), verdict(two)])
        standing = await store.rules.state(["red"], [("red", FIRST)])
        fired = RuleFiring(two.id, two.received_at)
        assert (standing.fired, standing.duplicates) == ({"red": fired}, {("red", FIRST): fired})

    async def test_windows_that_are_over_are_forgotten(self, store: Store, clock: FakeClock) -> None:
        """Every content that ever came would be too many to remember; one that began just then is kept."""
        [one] = await say(store, "one")
        clock.advance(1)
        [two] = await say(store, "two")
        await settle(store, clock, [verdict(one), verdict(two, "blue")])
        standing = await store.rules.state()
        settlement = Settlement(
            revision=standing.revision, judged=standing.judged + 2, verdicts=[], keep_since=two.received_at
        )
        await store.rules.settle(settlement)
        standing = await store.rules.state(["red", "blue"], [("red", FIRST), ("blue", FIRST)])
        fired = RuleFiring(two.id, two.received_at)
        assert (standing.fired, standing.duplicates) == ({"blue": fired}, {("blue", FIRST): fired})
        assert (await store.rules.counts())["red"].last_fired_at == one.received_at


Change = Callable[[Store, Action], Awaitable[object]]
CHANGES: Final[dict[str, Change]] = {
    "paused": lambda store, _: store.rules.pause(is_on=True),
    "declined": lambda store, action: store.actions.answer(action.id, is_yes=False, by="cli"),
    "refused": lambda store, action: store.actions.refuse(action.id, "no host can"),
    "started": lambda store, action: store.runs.start(run_of(action)),
    "asked by hand": lambda store, action: store.actions.add(action.message, ORDER, "cli"),
}


class OnceSuite(StoreSuite):
    """Each message is judged once, whoever judges."""

    async def test_of_two_judges_one_decides(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Two daemons with the same standing and the same message: one action, one window, one line."""
        [message] = await say(store, "one")
        standing, made, late = await store.rules.state(), list[Action](), list[Conflict]()
        settlement = Settlement(
            revision=standing.revision, judged=1, verdicts=[verdict(message)], keep_since=clock.now() - WINDOW
        )

        async def judge() -> None:
            try:
                made.extend(await store.rules.settle(settlement))
            except Conflict as exc:
                late.append(exc)

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as judges:
                for _ in range(2):
                    judges.start_soon(judge)
        assert (len(made), len(late)) == (1, 1)
        assert await store.actions.list() == made
        assert len(journal.of("judged")) == 1
        assert (await store.rules.counts())["red"].outcomes == {Outcome.FIRED: 1}

    @pytest.mark.parametrize("change", CHANGES)
    async def test_what_changed_meanwhile_makes_a_judge_decide_again(
        self, store: Store, clock: FakeClock, journal: Journal, change: str
    ) -> None:
        """A decision that rests on what is no longer so must leave nothing behind."""
        action = await ask(store, clock, Mode.AUTO)
        [message] = await say(store, "two")
        standing = await store.rules.state()
        await CHANGES[change](store, action)
        before = await store.rules.state(["red"]), await store.actions.list(), len(journal.events)
        stale = Settlement(
            revision=standing.revision, judged=2, verdicts=[verdict(message)], keep_since=clock.now() + WINDOW
        )
        with pytest.raises(Conflict):
            await store.rules.settle(stale)
        assert (await store.rules.state(["red"]), await store.actions.list(), len(journal.events)) == before
        assert await store.rules.verdicts(message.id) == []

    async def test_an_expired_question_makes_a_judge_decide_again(self, store: Store, clock: FakeClock) -> None:
        """There is one place more now."""
        await ask(store, clock)
        before = await store.rules.state()
        clock.advance(CONFIRM_EXPIRES.total_seconds())
        await store.actions.expire()
        after = await store.rules.state()
        assert (before.waiting, after.waiting) == (1, 0)
        assert after.revision != before.revision

    async def test_judging_what_was_judged_changes_nothing(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """After a crash the same messages may come again, under other rules: no second action, no second count."""
        [one, two] = await say(store, "one", "two")
        up_to = await judged_up_to(store)
        await settle(store, clock, [verdict(one)], judged=up_to)
        before = await store.rules.state(["red", "new"], [("red", SECOND_DIGEST)]), await store.rules.counts()
        events = len(journal.events)
        again = [verdict(one, digest=SECOND_DIGEST), verdict(two, "new")]
        assert await settle(store, clock, again, judged=up_to) == []
        assert await settle(store, clock, again, judged=0) == []
        after = await store.rules.state(["red", "new"], [("red", SECOND_DIGEST)]), await store.rules.counts()
        assert after == before
        assert len(journal.events) == events
        assert (await store.rules.verdicts(one.id), await store.rules.verdicts(two.id)) == ([verdict(one)], [])

    async def test_a_verdict_that_is_there_already_is_not_made_again(self, store: Store, clock: FakeClock) -> None:
        """Also before its round is complete: a message and a rule have one verdict, the first."""
        [message] = await say(store, "one")
        [action] = await settle(store, clock, [verdict(message)])
        other = verdict(message, outcome=Outcome.LIMITED)
        [second] = await settle(store, clock, [other, verdict(message), verdict(message, "blue")])
        assert second.rule == "blue"
        assert await store.actions.list() == [second, action]
        assert (await store.rules.counts())["red"].outcomes == {Outcome.FIRED: 1}

    async def test_the_place_of_judging_moves_without_a_match_and_never_back(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Most mail matches no rule, and must not be looked at again."""
        await say(store, "one", "two")
        up_to = await judged_up_to(store)
        before = await store.rules.state()
        assert await settle(store, clock, [], judged=up_to) == []
        after = await store.rules.state()
        assert (after.judged, after.revision != before.revision) == (up_to, True)
        await settle(store, clock, [], judged=1)
        assert await store.rules.state() == after
        [late] = await say(store, "three")
        await settle(store, clock, [verdict(late)], judged=1)
        assert (await store.rules.state()).judged == up_to


class RuleUpkeepSuite(StoreSuite):
    """Pausing, the change feed, and what a closed store remembers."""

    async def test_a_pause_is_one_decision(self, store: Store, journal: Journal) -> None:
        """Pausing twice is no change; it holds until it is ended."""
        changes = [await store.rules.pause(is_on=is_on) for is_on in (False, True, True, False, False)]
        assert changes == [False, True, False, True, False]
        assert [kind for kind in journal.kinds() if kind in ("paused", "resumed")] == ["paused", "resumed"]
        await store.rules.pause(is_on=True)
        assert (await store.rules.state()).is_paused is True

    @pytest.mark.parametrize("change", CHANGES)
    async def test_changes_ring_for_actions(
        self, store: Store, clock: FakeClock, journal: Journal, change: str
    ) -> None:
        """The runner and the page wait for this, and ask nothing meanwhile."""
        action = await ask(store, clock, Mode.AUTO)
        ear = Ear(journal)
        with store.changes.listen(ear):
            await CHANGES[change](store, action)
            assert (await ear.heard())[0] == {ACTIONS}

    async def test_what_was_settled_and_answered_rings_for_actions(
        self, store: Store, clock: FakeClock, journal: Journal
    ) -> None:
        """From the message to the end of its run, nobody has to look by themselves."""
        [message] = await say(store, "one")
        ear = Ear(journal)
        with store.changes.listen(ear):
            [action] = await settle(store, clock, [verdict(message)])
            await ear.heard()
            await store.actions.answer(action.id, is_yes=True, by="cli")
            assert (await ear.heard())[0] == {ACTIONS}
            run = await store.runs.start(run_of(action))
            await ear.heard()
            await store.runs.end(run.id, RunEnd(state=RunState.DONE))
            assert (await ear.heard())[0] == {ACTIONS}

    async def test_actions_are_no_mailbox(self, store: Store, clock: FakeClock) -> None:
        """The name is for the bell only: nobody is to find an empty mailbox of that name."""
        await ask(store, clock)
        assert {each.mailbox for each in await store.deliveries.consumers()} == {INBOX}

    async def test_everything_about_rules_survives_a_restart(
        self, backend: Backend, tmp_path: Path, clock: FakeClock
    ) -> None:
        """A restart changes no decision, forgets no question and no run."""

        async def everything(store: Store) -> Sequence[object]:
            return (
                await store.rules.state(["red"], [("red", FIRST)]),
                await store.rules.counts(),
                await store.actions.list(),
                [await store.rules.verdicts(action.message) for action in await store.actions.list()],
                await store.runs.list(),
            )

        async with backend(tmp_path, clock, Journal()) as store:
            await ask(store, clock)
            started = await ask(store, clock, Mode.AUTO)
            run = await store.runs.start(run_of(started))
            await store.runs.began(run.id, 4711)
            await store.rules.pause(is_on=True)
            before = await everything(store)
        async with backend(tmp_path, clock, Journal()) as store:
            assert await everything(store) == before
            assert (await store.runs.get(run.id)).pid == 4711
