"""The steps of an approval in every order: nothing but a person's own answer, in time and to the letter, allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.model import (
    MAX_QUESTIONS,
    Approval,
    ApprovalAnswer,
    ApprovalChoice,
    ApprovalId,
    ApprovalState,
    SessionKey,
    answers_in,
    approval_digest,
    asked_questions,
)
from tests.contracts.approvals import PATIENCE, answer_to, request_of
from tests.examples import examples

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
ASKED: Final = Approval(id=ApprovalId("ap-000001"), request=request_of(), asked_at=BEGIN, expires_at=BEGIN + PATIENCE)
GOOD: Final = answer_to(ASKED)
WRONG: Final = (
    replace(GOOD, digest=request_of("touch b").digest),
    replace(GOOD, session=SessionKey("claude-code:8")),
    replace(GOOD, approval=ApprovalId("ap-000002")),
    replace(GOOD, by=""),
)


COLOUR: Final = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue, dark"}]}
SIZES: Final = {
    "question": "Which sizes?",
    "header": "Sizes",
    "options": [{"label": "S", "description": "small"}, {"label": "S, slim"}, {"label": "L"}],
    "multiSelect": True,
}


@pytest.mark.parametrize(
    ("questions", "text", "answers"),
    [
        ([COLOUR], "Red", [["Red"]]),
        ([COLOUR], " Blue,  dark \n", [["Blue, dark"]]),
        ([COLOUR], "Red, Blue, dark", [["Red, Blue, dark"]]),
        ([COLOUR], "none of these", [["none of these"]]),
        ([SIZES], "S", [["S"]]),
        ([SIZES], "S, L", [["S", "L"]]),
        ([SIZES], "S, slim,L", [["S, slim", "L"]]),
        ([SIZES], "S, M", [["S, M"]]),
        ([COLOUR, SIZES], "Red\nL", [["Red"], ["L"]]),
        ([COLOUR, SIZES], "Red", []),
        ([COLOUR], "Red\nL", []),
        ([COLOUR], "", []),
        ([COLOUR, SIZES], "Red\n \n", []),
        ([], "Red", []),
    ],
)
def test_each_question_of_an_agent_gets_its_own_answer(questions: object, text: str, answers: object) -> None:
    """An option by its label, several only where it takes several, or other words; never for another question."""
    assert answers_in({"questions": questions}, text) == answers


@pytest.mark.parametrize(
    "changed",
    [
        {"question": ""},
        {"question": 7},
        {"header": None},
        {"options": "Red"},
        {"options": [{"label": "Red"}, {"label": " Red "}]},
        {"options": [{"label": "Red\u202e"}]},
        {"options": [{"label": "Red\nBlue"}]},
        {"options": [{"label": ""}]},
        {"options": ["Red"]},
        {"options": [{"label": "Red", "preview": "what nobody would see"}]},
        {"hidden": "what nobody would see"},
    ],
)
def test_question_that_would_not_be_shown_whole_is_none(changed: dict[str, object]) -> None:
    """Its host asks it in its own terminal; one among others takes all of them there."""
    assert asked_questions({"questions": [{**COLOUR, **changed}]}) == []
    assert asked_questions({"questions": [SIZES, {**COLOUR, **changed}]}) == []
    assert asked_questions({"questions": [COLOUR, COLOUR]}) == []
    assert asked_questions({"questions": [{**COLOUR, "question": f"{n}"} for n in range(MAX_QUESTIONS + 1)]}) == []


def test_answer_in_words_is_one_only_to_questions() -> None:
    """A question without an answer stays open, and a tool is not allowed by words."""
    asked = replace(
        ASKED.request, arguments={"questions": [COLOUR]}, choices=(ApprovalChoice.ANSWER, ApprovalChoice.NO)
    )
    question, said = replace(ASKED, request=asked), replace(GOOD, choice=ApprovalChoice.ANSWER)
    assert question.answer(said, BEGIN) is None
    assert question.answer(replace(said, reason="Red\nL"), BEGIN) is None
    assert ASKED.answer(replace(said, reason="Red"), BEGIN) is None
    assert question.answer(GOOD, BEGIN) is None
    answered = question.answer(replace(said, reason="Red"), BEGIN)
    assert answered is not None
    assert (answered.choice, answered.reason) == (ApprovalChoice.ANSWER, "Red")


@dataclass(frozen=True)
class Move:
    """One step that somebody tries, so many seconds after the question."""

    name: str
    at: float
    answer: ApprovalAnswer = GOOD
    text: str = "because"

    def of(self, approval: Approval) -> Approval | None:
        """Return what it makes of an approval."""
        now = BEGIN + timedelta(seconds=self.at)
        match self.name:
            case "show":
                return approval.show(self.text)
            case "answer":
                return approval.answer(self.answer, now)
            case "withdraw":
                return approval.withdraw(self.text, now)
            case "expire":
                return approval.expire(now)
            case _:
                return approval.obey(self.text, now)


MOVES: Final = st.builds(
    Move,
    name=st.sampled_from(["show", "answer", "withdraw", "expire", "obey"]),
    at=st.floats(-2_000, 2_000),
    answer=st.sampled_from([*WRONG, *(replace(GOOD, choice=choice, by="you") for choice in ApprovalChoice)]),
    text=st.sampled_from(["", "page", "its record"]),
)


def is_permission(move: Move) -> bool:
    """Whether a move is a person's answer to this very question, in time."""
    is_in_time = -PATIENCE.total_seconds() <= move.at < PATIENCE.total_seconds()
    return move.name == "answer" and move.answer not in WRONG and is_in_time


@pytest.mark.hypothesis
@settings(max_examples=examples(400))
@given(st.lists(MOVES, max_size=12))
def test_no_order_of_steps_makes_an_answer_of_anything_else(moves: Sequence[Move]) -> None:
    """Time-outs, restarts and garbled answers fall back to the host's own question, in whatever order they come."""
    approval, path, counted = ASKED, [ASKED.state], list[Move]()
    for move in moves:
        after = move.of(approval)
        if after is None:
            continue
        if after.choice is not approval.choice:
            assert approval.state is ApprovalState.OPEN
            counted.append(move)
        if after.state is not approval.state:
            path.append(after.state)
        assert after.request == ASKED.request
        approval = after
    assert all(map(is_permission, counted))
    assert len(counted) <= 1
    assert approval.choice == (counted[0].answer.choice if counted else None)
    assert tuple(path) in PATHS
    if approval.state is ApprovalState.OBEYED:
        assert counted
        assert approval.because


OPEN, ANSWERED = ApprovalState.OPEN, ApprovalState.ANSWERED
PATHS: Final = frozenset(
    {
        (OPEN,),
        (OPEN, ANSWERED),
        (OPEN, ApprovalState.WITHDRAWN),
        (OPEN, ApprovalState.EXPIRED),
        (OPEN, ANSWERED, ApprovalState.OBEYED),
        (OPEN, ANSWERED, ApprovalState.WITHDRAWN),
    }
)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.hypothesis
@settings(max_examples=examples(200))
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=3), st.dictionaries(st.text(max_size=4), JSON, max_size=3))
def test_the_hash_tells_every_argument(first: dict[str, object], second: dict[str, object]) -> None:
    """Changed arguments between question and answer must not go unnoticed; the order of names means nothing."""
    one, other = (approval_digest("h", "s", "t", each) for each in (first, second))
    assert (one == other) == (repr(_sorted(first)) == repr(_sorted(second)))
    assert approval_digest("h", "s", "t", dict(reversed(first.items()))) == one
    assert len({one, approval_digest("h2", "s", "t", first), approval_digest("h", "s2", "t", first)}) == 3


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return [(name, _sorted(value[name])) for name in sorted(value)]
    return [_sorted(each) for each in value] if isinstance(value, list) else value
