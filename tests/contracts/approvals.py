"""The part of the store suite about approvals: one question, the first answer, and every way in which there is none.

One test, or more, for each sentence of `store/contract/questions.py`. Which steps there are at all is tested over
random orders in `tests/store/test_approval_steps.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Final

import anyio
import pytest

from harken.errors import Conflict, Forbidden, NotFound, UserError
from harken.model import (
    APPROVALS,
    Approval,
    ApprovalAnswer,
    ApprovalChoice,
    ApprovalId,
    ApprovalRequest,
    ApprovalState,
    Mailbox,
    SessionKey,
    approval_digest,
)
from harken.store.contract import Store
from harken.store.contract.questions import KEPT, MAX_OPEN
from harken.testing import FakeClock
from tests.contracts.store_suite import WAIT_SECONDS, Journal, StoreSuite
from tests.loss.rig import Chance

PATIENCE: Final = timedelta(minutes=10)
CHOICES: Final = (ApprovalChoice.ONCE, ApprovalChoice.ALWAYS, ApprovalChoice.NO)


def request_of(command: str = "touch a", *, session: str = "claude-code:7", native: str = "") -> ApprovalRequest:
    """Return a question of Claude Code about a command."""
    arguments = {"command": command, "nested": {"list": [1, 2.5, None, True, "\u0000\u202e"]}}
    return ApprovalRequest(
        host="claude-code",
        session=SessionKey(session),
        tool="Bash",
        arguments=arguments,
        digest=approval_digest("claude-code", session, "Bash", arguments),
        folder="/code/shop",
        why="make a file",
        choices=CHOICES,
        always="Bash(touch:*)",
        turn="p1",
        native=native,
        carries_reason=False,
    )


def answer_to(approval: Approval, choice: ApprovalChoice = ApprovalChoice.ONCE, by: str = "you") -> ApprovalAnswer:
    """Return an answer that is bound to what was asked."""
    asked = approval.request
    return ApprovalAnswer(
        approval=approval.id, session=asked.session, digest=asked.digest, choice=choice, by=by, through="page"
    )


def said(journal: Journal) -> list[tuple[object, object]]:
    """Return the steps in the journal."""
    return [(event.data["change"], event.data["state"]) for event in journal.of("approval")]


class ApprovalSuite(StoreSuite):
    """Asked, shown, answered, obeyed; or withdrawn, or expired."""

    async def test_a_question_is_kept_as_it_was_asked(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """What is shown, and what an answer is bound to, is what the host asked, to the letter."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        expected = Approval(id=asked.id, request=request_of(), asked_at=clock.now(), expires_at=clock.now() + PATIENCE)
        assert asked == expected
        assert await store.approvals.get(asked.id) == expected
        assert await store.approvals.get(asked.id[:5]) == expected
        assert await store.approvals.list([ApprovalState.OPEN]) == [expected]
        assert said(journal) == [("asked", "open")]

    async def test_every_step_is_kept_and_journaled(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """The ledger of an approval is as true as that of a message."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        shown = await store.approvals.show(asked.id, "page")
        assert await store.approvals.show(asked.id, "page") == shown
        assert shown == replace(asked, shown=("page",))
        clock.advance(5)
        given = replace(answer_to(asked, ApprovalChoice.NO), reason="not today")
        answered = await store.approvals.answer(given)
        assert answered == replace(
            shown,
            state=ApprovalState.ANSWERED,
            choice=ApprovalChoice.NO,
            reason="not today",
            answered_by="you",
            through="page",
            answered_at=clock.now(),
        )
        clock.advance(5)
        obeyed = await store.approvals.obey(asked.id, "its record")
        assert obeyed == replace(answered, state=ApprovalState.OBEYED, ended_at=clock.now(), because="its record")
        assert await store.approvals.get(asked.id) == obeyed
        assert said(journal) == [("asked", "open"), ("shown", "open"), ("answered", "answered"), ("obeyed", "obeyed")]

    async def test_a_question_that_a_rule_refuses_is_never_open(self, store: Store, journal: Journal) -> None:
        """Nobody is shown it, and nobody else can answer it; also when no other could be asked."""
        for number in range(MAX_OPEN):
            await store.approvals.ask(request_of(f"{number}"), PATIENCE)
        refused = await store.approvals.ask(request_of("rm -rf ~"), PATIENCE, refused_by="rule 1", reason="no")
        assert (refused.state, refused.choice) == (ApprovalState.ANSWERED, ApprovalChoice.NO)
        assert (refused.answered_by, refused.through, refused.reason) == ("rule 1", "rules", "no")
        assert said(journal)[-2:] == [("asked", "open"), ("answered", "answered")]
        with pytest.raises(Conflict, match="rule 1"):
            await store.approvals.answer(answer_to(refused))

    async def test_an_open_question_that_is_asked_again_is_refused_too(self, store: Store) -> None:
        """A rule that came meanwhile counts for what its host asks once more."""
        first = await store.approvals.ask(request_of(native="per_1"), PATIENCE)
        again = await store.approvals.ask(request_of(native="per_1"), PATIENCE, refused_by="rule 1")
        assert (again.id, again.state) == (first.id, ApprovalState.ANSWERED)

    async def test_the_first_answer_counts(self, store: Store, journal: Journal) -> None:
        """A second answer is told what it is and by whom, and changes nothing."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        first = await store.approvals.answer(answer_to(asked, ApprovalChoice.NO, by="the phone"))
        with pytest.raises(Conflict, match=r"answered.*the phone"):
            await store.approvals.answer(answer_to(asked))
        assert await store.approvals.get(asked.id) == first
        assert len(said(journal)) == 2

    async def test_of_two_answers_at_once_one_counts(self, store: Store) -> None:
        """The page and the phone, in the same moment."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        counted, late = list[Approval](), list[Conflict]()

        async def say(choice: ApprovalChoice) -> None:
            try:
                counted.append(await store.approvals.answer(answer_to(asked, choice)))
            except Conflict as exc:
                late.append(exc)

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as both:
                for choice in (ApprovalChoice.ONCE, ApprovalChoice.NO):
                    both.start_soon(say, choice)
        assert (len(counted), len(late)) == (1, 1)
        assert await store.approvals.get(asked.id) == counted[0]

    async def test_an_answer_is_bound_to_what_was_asked(self, store: Store, journal: Journal) -> None:
        """An answer to another session, to other arguments, or without a name behind it, is no answer."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        other = await store.approvals.ask(request_of("rm -rf /", session="claude-code:8"), PATIENCE)
        good = answer_to(asked)
        for wrong in (
            replace(good, digest=other.request.digest),
            replace(good, session=other.request.session),
            replace(good, approval=other.id),
            replace(good, digest=""),
            replace(good, by=""),
        ):
            with pytest.raises(Conflict):
                await store.approvals.answer(wrong)
        for unknown in (ApprovalId(asked.id[:5]), ApprovalId("ap-nobody"), ApprovalId("")):
            with pytest.raises(NotFound):
                await store.approvals.answer(replace(good, approval=unknown))
        assert await store.approvals.list([ApprovalState.OPEN]) == [asked, other]
        assert len(said(journal)) == 2

    async def test_a_choice_that_the_host_does_not_have_is_refused(self, store: Store) -> None:
        """`always` exists only where the host has it."""
        request = replace(request_of(), choices=(ApprovalChoice.ONCE, ApprovalChoice.NO))
        asked = await store.approvals.ask(request, PATIENCE)
        with pytest.raises(Conflict, match="always"):
            await store.approvals.answer(answer_to(asked, ApprovalChoice.ALWAYS))
        assert (await store.approvals.get(asked.id)).state is ApprovalState.OPEN

    async def test_after_its_time_it_cannot_be_answered(self, store: Store, clock: FakeClock, journal: Journal) -> None:
        """A time-out is never an answer; the call itself ends the question, whoever looks at the clock first."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        clock.advance(PATIENCE.total_seconds())
        for _ in range(2):
            with pytest.raises(Conflict, match="expired"):
                await store.approvals.answer(answer_to(asked))
        found = await store.approvals.get(asked.id)
        assert (found.state, found.choice, found.answered_by) == (ApprovalState.EXPIRED, None, "")
        assert said(journal) == [("asked", "open"), ("expired", "expired")]

    async def test_what_is_late_expires(self, store: Store, clock: FakeClock) -> None:
        """Also when the clock was set back far: a question must not stay open for as long."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        clock.advance(PATIENCE.total_seconds() - 0.001)
        assert await store.approvals.expire() == []
        clock.advance(0.001)
        assert [each.id for each in await store.approvals.expire()] == [asked.id]
        second = await store.approvals.ask(request_of(), PATIENCE)
        clock.set_back(2 * PATIENCE.total_seconds() + 1)
        assert [each.id for each in await store.approvals.expire()] == [second.id]

    @pytest.mark.parametrize("is_answered", [False, True])
    async def test_a_withdrawn_question_is_over(self, store: Store, *, is_answered: bool) -> None:
        """The host is gone, or was answered at its terminal; an answer that did not reach it was not obeyed."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        if is_answered:
            await store.approvals.answer(answer_to(asked))
        gone = await store.approvals.withdraw(asked.id, "the host ended")
        assert (gone.state, gone.because) == (ApprovalState.WITHDRAWN, "the host ended")
        assert await store.approvals.withdraw(asked.id, "again") == gone
        assert await store.approvals.obey(asked.id, "a lie") == gone
        with pytest.raises(Conflict, match="withdrawn"):
            await store.approvals.answer(answer_to(asked))

    async def test_obeyed_needs_an_answer_and_evidence(self, store: Store) -> None:
        """Nothing is claimed that nobody has seen."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        assert (await store.approvals.obey(asked.id, "its record")).state is ApprovalState.OPEN
        await store.approvals.answer(answer_to(asked))
        with pytest.raises(UserError):
            await store.approvals.obey(asked.id, "")
        assert (await store.approvals.get(asked.id)).state is ApprovalState.ANSWERED

    async def test_the_same_request_of_a_host_is_one_question(self, store: Store) -> None:
        """A program that connects again asks again; what asks something else by the same id is another question."""
        first = await store.approvals.ask(request_of(native="per_1"), PATIENCE)
        assert await store.approvals.ask(request_of(native="per_1"), PATIENCE) == first
        other = await store.approvals.ask(request_of("rm -rf /", native="per_1"), PATIENCE)
        assert other.id != first.id
        assert (await store.approvals.get(first.id)).state is ApprovalState.WITHDRAWN
        unnamed = [await store.approvals.ask(request_of(), PATIENCE) for _ in range(2)]
        assert unnamed[0].id != unnamed[1].id

    @pytest.mark.parametrize("seed", range(20))
    async def test_a_store_takes_the_steps_of_the_noun_in_any_order(
        self, store: Store, clock: FakeClock, journal: Journal, seed: int
    ) -> None:
        """What a store keeps, journals and refuses is what `Approval` decides."""
        chance, steps = Chance(seed), list[tuple[str, str]]()
        expected = [await store.approvals.ask(request_of(f"{number}"), PATIENCE) for number in range(2)]
        for _ in range(12):
            clock.advance(chance.choice([0, 1, PATIENCE.total_seconds() / 3]))
            at = chance.randrange(2)
            now, before = clock.now(), expected[at]
            change = chance.choice(["shown", "answered", "withdrawn", "expired", "obeyed"])
            given = replace(answer_to(chance.choice(expected), chance.choice(CHOICES)), approval=before.id)
            match change:
                case "shown":
                    after = before.show("page")
                    await store.approvals.show(before.id, "page")
                case "withdrawn":
                    after = before.withdraw("gone", now)
                    await store.approvals.withdraw(before.id, "gone")
                case "obeyed":
                    after = before.obey("its record", now)
                    await store.approvals.obey(before.id, "its record")
                case "expired":
                    after = before.expire(now)
                    other = expected[1 - at].expire(now)
                    expected[1 - at] = other or expected[1 - at]
                    steps += [("expired", each.id) for each in (expected[0], expected[1]) if each is other]
                    await store.approvals.expire()
                case _:
                    after = before.expire(now)
                    change = "expired" if after else change
                    after = after or before.answer(given, now)
                    with nullcontext() if change == "answered" and after else pytest.raises(Conflict):
                        await store.approvals.answer(given)
            expected[at] = after or before
            steps += [(change, before.id)] if after else []
        assert await store.approvals.list() == expected
        kept = [(event.data["change"], event.data["approval"]) for event in journal.of("approval")[2:]]
        assert sorted(kept) == sorted(steps)

    async def test_so_many_can_be_open_and_be_kept(self, store: Store) -> None:
        """A host that asks without end fills neither the list nor the store."""
        for number in range(MAX_OPEN):
            await store.approvals.ask(request_of(f"{number}"), PATIENCE)
        with pytest.raises(Forbidden):
            await store.approvals.ask(request_of("one more"), PATIENCE)
        opened = await store.approvals.list([ApprovalState.OPEN], limit=3)
        assert [each.request.arguments["command"] for each in opened] == ["0", "1", "2"]
        for each in await store.approvals.list([ApprovalState.OPEN]):
            await store.approvals.withdraw(each.id, "its host is gone")
        await store.approvals.ask(request_of("one more"), PATIENCE)
        assert KEPT > MAX_OPEN

    async def test_a_change_rings(self, store: Store) -> None:
        """The hook that waits, the page and the phone learn of an answer at once."""
        rung = anyio.Event()

        def hear(grown: object) -> None:
            assert grown
            rung.set()

        with store.changes.listen(hear, only=[Mailbox(APPROVALS)]), anyio.fail_after(WAIT_SECONDS):
            await store.approvals.ask(request_of(), PATIENCE)
            await rung.wait()

    async def test_what_this_daemon_asked_is_known(self, store: Store) -> None:
        """After a restart its hosts no longer wait for it: it withdraws what it asked, and not what others asked."""
        asked = await store.approvals.ask(request_of(), PATIENCE)
        assert await store.approvals.list([ApprovalState.OPEN], is_own=True) == [asked]
        assert await store.approvals.list([ApprovalState.EXPIRED]) == []
