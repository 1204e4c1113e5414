"""The part of the store suite about actions: questions, who answers them, and when it is too late.

One test, or more, for each sentence of that part of `store/contract/automation.py`. `store.py` puts it together with
the other parts; what a crash leaves behind is tested beside the backend.
"""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from harken.automation import MAX_WAITING, Action, ActionId, ActionState, Mode
from harken.errors import Conflict, Forbidden, NotFound, UserError
from harken.model import WATCH, MessageId, Reader, SessionKey
from harken.store.contract import Store
from harken.store.contract.automation import CONFIRM_EXPIRES
from harken.store.contract.retention import Limits
from harken.testing import FakeClock
from tests.contracts.rules import ORDER, ask, run_of, say, settle, verdict
from tests.contracts.store_suite import LONG_SECONDS, WAIT_SECONDS, Journal, StoreSuite

PATIENCE = CONFIRM_EXPIRES.total_seconds()
LETTERS = 32
KEPT = 1_000


def said(journal: Journal) -> list[tuple[object, ...]]:
    """Return what the journal says about actions."""
    return [tuple(event.data[name] for name in ("action", "state", "by")) for event in journal.of("action")]


class AnswerSuite(StoreSuite):
    """Yes, no, or too late."""

    async def test_yes_lets_it_be_queued(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Who said yes, and when, stays with it. It waits on: for its agent and its folder."""
        action = await ask(store, clock)
        clock.advance(5)
        queued = await store.actions.answer(action.id, is_yes=True, by="page")
        assert queued == replace(action, state=ActionState.QUEUED, decided_at=clock.now(), decided_by="page")
        assert await store.actions.get(action.id) == queued
        assert (await store.rules.state()).waiting == 1
        assert said(journal) == [(action.id, "queued", "page")]

    @pytest.mark.parametrize("mode", [Mode.CONFIRM, Mode.AUTO])
    async def test_no_declines_what_waits(self, store: Store, clock: FakeClock, mode: Mode) -> None:
        """Also what is queued already: until it is started, it can still be stopped."""
        action = await ask(store, clock, mode)
        declined = await store.actions.answer(action.id, is_yes=False, by="cli")
        assert declined == replace(action, state=ActionState.DECLINED, decided_at=clock.now(), decided_by="cli")
        assert (await store.rules.state()).waiting == 0

    @pytest.mark.parametrize("is_first_yes", [True, False])
    async def test_the_first_answer_counts(
        self, store: Store, clock: FakeClock, journal: Journal, *, is_first_yes: bool
    ) -> None:
        """Whoever comes later is told what it is now and by whom, and changes nothing."""
        action = await ask(store, clock)
        first = await store.actions.answer(action.id, is_yes=is_first_yes, by="page")
        clock.advance(5)
        with pytest.raises(Conflict, match=rf"{first.state.value}.*page"):
            await store.actions.answer(action.id, is_yes=True, by="cli")
        assert await store.actions.get(action.id) == first
        assert len(said(journal)) == 1

    async def test_of_two_answers_at_once_one_counts(self, store: Store, clock: FakeClock) -> None:
        """The page and the phone, in the same moment: one is done, the other is told."""
        action = await ask(store, clock)
        counted, late = list[Action](), list[Conflict]()

        async def say_yes(by: str) -> None:
            try:
                counted.append(await store.actions.answer(action.id, is_yes=True, by=by))
            except Conflict as exc:
                late.append(exc)

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as both:
                for by in ("page", "chat"):
                    both.start_soon(say_yes, by)
        assert (len(counted), len(late)) == (1, 1)
        assert await store.actions.get(action.id) == counted[0]

    @pytest.mark.parametrize("mode", [Mode.NOTIFY, Mode.AUTO])
    async def test_what_was_not_asked_cannot_be_accepted(self, store: Store, clock: FakeClock, mode: Mode) -> None:
        """There is no question: a yes must not queue it once more."""
        action = await ask(store, clock, mode)
        with pytest.raises(Conflict, match=action.state.value):
            await store.actions.answer(action.id, is_yes=True, by="cli")
        assert await store.actions.get(action.id) == action

    async def test_an_answer_needs_the_whole_id(self, store: Store, clock: FakeClock) -> None:
        """What a beginning means changes with what else waits; a yes must not go to another question."""
        action = await ask(store, clock)
        for wrong in (ActionId(action.id[:5]), ActionId("a-nobody")):
            with pytest.raises(NotFound):
                await store.actions.answer(wrong, is_yes=True, by="cli")
        assert (await store.actions.get(action.id)).state is ActionState.WAITING

    async def test_a_question_can_be_answered_until_its_last_moment(self, store: Store, clock: FakeClock) -> None:
        """Thirty minutes are thirty minutes."""
        action = await ask(store, clock)
        clock.advance(PATIENCE - 0.001)
        assert await store.actions.expire() == []
        assert (await store.actions.answer(action.id, is_yes=True, by="cli")).state is ActionState.QUEUED

    @pytest.mark.parametrize("is_yes", [True, False])
    async def test_after_its_time_it_can_no_longer_be_answered(
        self, store: Store, clock: FakeClock, journal: Journal, *, is_yes: bool
    ) -> None:
        """The call itself ends the question, so that it does not matter who looks at the clock first."""
        action = await ask(store, clock)
        clock.advance(PATIENCE)
        for _ in range(2):
            with pytest.raises(Conflict, match="expired"):
                await store.actions.answer(action.id, is_yes=is_yes, by="cli")
        expired = await store.actions.get(action.id)
        assert (expired.state, expired.decided_by, bool(expired.reason)) == (ActionState.EXPIRED, "", True)
        assert (await store.rules.state()).waiting == 0
        assert said(journal) == [(action.id, "expired", "")]

    async def test_what_was_accepted_in_time_does_not_expire(self, store: Store, clock: FakeClock) -> None:
        """It waits for an agent now, and not for the person."""
        action = await ask(store, clock)
        accepted = await store.actions.answer(action.id, is_yes=True, by="cli")
        clock.advance(PATIENCE * 2)
        assert await store.actions.expire() == []
        assert await store.actions.get(action.id) == accepted

    async def test_a_clock_that_is_set_back_far_leaves_no_question_open(self, store: Store, clock: FakeClock) -> None:
        """Otherwise a question of today could be accepted for days; a small correction changes nothing."""
        action = await ask(store, clock)
        clock.set_back(60)
        assert await store.actions.expire() == []
        clock.set_back(PATIENCE)
        with pytest.raises(Conflict, match="expired"):
            await store.actions.answer(action.id, is_yes=True, by="cli")

    async def test_questions_expire_by_themselves(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """Only those whose time is over, and once."""
        old = await ask(store, clock)
        clock.advance(PATIENCE / 2)
        young, auto = await ask(store, clock), await ask(store, clock, Mode.AUTO)
        clock.advance(PATIENCE / 2)
        [expired] = await store.actions.expire()
        assert expired == replace(old, state=ActionState.EXPIRED, reason=expired.reason)
        assert await store.actions.expire() == []
        assert [await store.actions.get(each.id) for each in (young, auto)] == [young, auto]
        assert said(journal) == [(old.id, "expired", "")]


class ActionSuite(StoreSuite):
    """Finding actions, refusing them, and asking by hand."""

    async def test_only_what_is_queued_can_be_refused(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """A refusal says why; one that was declined or started has another end."""
        action = await ask(store, clock)
        with pytest.raises(Conflict, match="waiting"):
            await store.actions.refuse(action.id, "no host")
        accepted = await store.actions.answer(action.id, is_yes=True, by="cli")
        refused = await store.actions.refuse(action.id, "no host can be fenced to it")
        assert refused == replace(accepted, state=ActionState.REFUSED, reason="no host can be fenced to it")
        with pytest.raises(Conflict, match="refused"):
            await store.actions.refuse(action.id, "again")
        assert await store.actions.get(action.id) == refused
        assert [event.data["reason"] for event in journal.of("action")] == ["", refused.reason]

    async def test_the_person_can_ask_by_hand(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """No rule, no question: they have said yes by asking."""
        [message] = await say(store, "one")
        action = await store.actions.add(message.id, ORDER, "cli")
        assert (action.rule, action.state, action.order) == ("", ActionState.QUEUED, ORDER)
        assert (action.message, action.decided_by, action.decided_at) == (message.id, "cli", clock.now())
        assert action.expires_at is None
        assert await store.actions.get(action.id) == action
        assert said(journal) == [(action.id, "queued", "cli")]
        with pytest.raises(NotFound):
            await store.actions.add(MessageId("m-nothing"), ORDER, "cli")

    async def test_no_more_can_be_asked_for_than_may_wait(self, store: Store, clock: FakeClock) -> None:
        """The one that is too many is told so, and one that is done makes place for it."""
        [message] = await say(store, "one")
        fired = [verdict(message, f"rule {n}", Mode.AUTO if n % 2 else Mode.CONFIRM) for n in range(MAX_WAITING)]
        made = await settle(store, clock, fired)
        with pytest.raises(Forbidden, match=str(MAX_WAITING)):
            await store.actions.add(message.id, ORDER, "cli")
        assert (await store.rules.state()).waiting == len(await store.actions.list()) == MAX_WAITING
        await store.actions.answer(made[0].id, is_yes=False, by="cli")
        await store.actions.add(message.id, ORDER, "cli")

    async def test_an_action_is_found_by_a_unique_beginning(self, store: Store, clock: FakeClock) -> None:
        """Ids are typed by people. With more actions than letters some beginning fits two."""
        [message] = await say(store, "one")
        made = await settle(store, clock, [verdict(message, f"rule {n}") for n in range(LETTERS + 1)])
        alone = made[0]
        for length in range(len(alone.id), 2, -1):
            fits = [each for each in made if each.id.startswith(alone.id[:length])]
            if len(fits) == 1:
                assert await store.actions.get(alone.id[:length]) == alone
        beginnings = [each.id[:3] for each in made]
        double = next(each for each in beginnings if beginnings.count(each) > 1)
        with pytest.raises(UserError, match=double):
            await store.actions.get(double)
        for wrong in ("", "a", "a-", "a-%", "r-000000", alone.id + "0", "b" + alone.id[1:]):
            with pytest.raises(NotFound):
                await store.actions.get(wrong)

    async def test_actions_come_newest_first(self, store: Store, clock: FakeClock) -> None:
        """Of some states or all, of one message or all, and no more than was asked for."""
        told, asked, queued, second = [
            await ask(store, clock, mode) for mode in (Mode.NOTIFY, Mode.CONFIRM, Mode.AUTO, Mode.CONFIRM)
        ]
        declined = await store.actions.answer(second.id, is_yes=False, by="cli")
        [again] = await settle(store, clock, [replace(verdict(await store.messages.get(asked.message), "blue"))])
        waiting = (ActionState.WAITING, ActionState.QUEUED)
        assert await store.actions.list() == [again, declined, queued, asked, told]
        assert await store.actions.list(limit=2) == [again, declined]
        assert await store.actions.list(waiting) == [again, queued, asked]
        assert await store.actions.list(waiting, limit=2) == [again, queued]
        assert await store.actions.list([ActionState.TOLD]) == [told]
        assert await store.actions.list(message=asked.message) == [again, asked]
        assert await store.actions.list([ActionState.QUEUED], message=queued.message) == [queued]
        assert await store.actions.list([ActionState.QUEUED], message=asked.message) == []

    async def test_old_actions_go_and_what_waits_stays(self, store: Store, clock: FakeClock) -> None:
        """A history that grows for ever slows everything; an open question, and what it is about, is no history."""
        waiting = await ask(store, clock)
        running = await ask(store, clock, Mode.AUTO, "/w/other")
        await store.runs.start(run_of(running, workdir="/w/other"))
        declined = await store.actions.answer((await ask(store, clock)).id, is_yes=False, by="cli")
        messages = [each.message for each in (waiting, running, declined)]
        [message] = await say(store, "newest")
        newest = await settle(store, clock, [verdict(message, f"rule {n}", Mode.NOTIFY) for n in range(KEPT)])
        limits = Limits(max_count=10 * KEPT, max_age_seconds=60)
        await store.retention.prune(limits)
        assert (await store.actions.get(declined.id)) == declined
        clock.advance(61)
        await say(store, "one that is younger")
        await store.deliveries.acknowledge(Reader(consumer=WATCH, session=SessionKey("w")), messages, "ack")
        await store.retention.prune(limits)
        with pytest.raises(NotFound):
            await store.actions.get(declined.id)
        left = {each.id for each in await store.actions.list(limit=2 * KEPT)}
        assert left == {waiting.id, running.id, *(each.id for each in newest)}
        assert [await _is_there(store, each) for each in messages] == [True, True, False]

    async def test_more_actions_than_a_mailbox_keeps_go_however_young(self, store: Store, clock: FakeClock) -> None:
        """A rule that fires all the time must not fill the disk; the newest thousand stay all the same."""
        [message] = await say(store, "one")
        made = await settle(store, clock, [verdict(message, f"rule {n}", Mode.NOTIFY) for n in range(KEPT + 5)])
        await store.retention.prune(Limits(max_count=1, max_age_seconds=LONG_SECONDS))
        assert await store.actions.list(limit=2 * KEPT) == list(reversed(made))[:KEPT]

    async def test_stats_count_actions_and_runs(self, store: Store, clock: FakeClock) -> None:
        """People compare these numbers with what they see."""
        await ask(store, clock)
        await store.runs.start(run_of(await ask(store, clock, Mode.AUTO)))
        stats = await store.health.stats()
        assert (stats["actions"], stats["runs"]) == (2, 1)


async def _is_there(store: Store, message: MessageId) -> bool:
    return message in await store.messages.get_many([message])
