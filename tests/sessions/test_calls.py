"""What a later call proves, against a second, simpler way to say it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from harken.model import DeliveryId
from harken.sessions.proof import CallLog
from harken.sessions.turns import MAX_CARRIERS
from tests.examples import examples

Step = tuple[str, str, str]
"""What happened, to which request, and for `carry` with which delivery."""

A, B, C = "1", "2", '"1"'
D1, D2 = DeliveryId("d-1"), DeliveryId("d-2")

STEPS: Final = st.lists(
    st.tuples(st.sampled_from(["begin", "carry", "carry", "answer", "cancel"]), st.sampled_from([0, 0, 1, 2])),
    min_size=10,
    max_size=40,
)


def story(steps: Sequence[tuple[str, int]]) -> list[Step]:
    """Return what happens: each `begin` is a new request; the others concern the one begun so many before the last."""
    begun = 0
    open_now: set[str] = set()
    happened: list[Step] = []
    for number, (what, back) in enumerate(steps):
        if what == "begin":
            begun += 1
            open_now.add(str(begun))
            happened.append((what, str(begun), ""))
            continue
        request = str(begun - back)
        if what == "carry" and request in open_now:
            happened.append((what, request, f"d-{number}"))
        elif what != "carry" and begun > back:
            # Ends of what has ended are kept: one host cancels what was answered.
            open_now.discard(request)
            happened.append((what, request, ""))
    return happened


def proofs(history: Sequence[Step]) -> dict[str, set[str]]:
    """Say for each begun request what it proves, by looking back over all that happened before it."""
    found: dict[str, set[str]] = {}
    for now, (what, request, _) in enumerate(history):
        if what != "begin":
            continue
        earlier = history[:now]
        last_begin = max((at for at, step in enumerate(earlier) if step[0] == "begin"), default=-1)
        found[request] = set()
        for other in {step[1] for step in earlier}:
            ends = [at for at, step in enumerate(earlier) if step[1] == other and step[0] in {"answer", "cancel"}]
            # What was answered before an earlier request began is that one's to prove.
            if ends and earlier[ends[0]][0] == "answer" and ends[0] > last_begin:
                found[request] |= {d for what_, r, d in earlier[: ends[0]] if (what_, r) == ("carry", other)}
    return found


@settings(max_examples=examples(500))
@given(STEPS)
def test_a_call_proves_exactly_what_was_answered_since_the_call_before(steps: list[tuple[str, int]]) -> None:
    """Not what overlaps it, not what was cancelled in time, and nothing twice."""
    history = story(steps)
    log = CallLog("edge")
    proven: dict[str, set[str]] = {}
    for what, request, delivery in history:
        match what:
            case "begin":
                log.begin(request)
                proven[request] = set(log.proven_by(request))
            case "carry":
                log.carry(request, [DeliveryId(delivery)])
            case "answer":
                log.answer(request)
            case _:
                log.cancel(request)
    assert proven == proofs(history)


def test_a_call_that_overlaps_proves_nothing_and_the_next_one_does() -> None:
    """Two calls of one step: the second began before the first was answered."""
    log = CallLog("edge")
    log.begin(A)
    log.begin(B)
    log.carry(A, [D1])
    log.answer(A)
    assert list(log.proven_by(B)) == []
    log.begin(C)
    assert list(log.proven_by(C)) == [D1]


def test_what_was_carried_before_a_restart_is_proven_by_the_next_call() -> None:
    """The store remembers open offers; the connection that comes back can still prove them."""
    log = CallLog("edge")
    log.restore("edge/0", D1)
    log.begin(A)
    assert list(log.proven_by(A)) == [D1]


def test_a_call_that_came_while_the_past_was_looked_up_proves_it() -> None:
    """The host knows nothing of the restart: its next step may be faster than the store."""
    log = CallLog("edge")
    log.begin(A)
    log.restore("edge/0", D1)
    log.restore("edge/0", D2)
    assert list(log.proven_by(A)) == [D1, D2]


def test_a_call_that_was_sent_again_proves_nothing_of_the_past() -> None:
    """It may have run beside the one that carried the message; the next one proves it."""
    log = CallLog("edge")
    log.begin(A)
    log.restore("edge/0", D1, resent=[A])
    assert list(log.proven_by(A)) == []
    log.begin(B)
    assert list(log.proven_by(B)) == [D1]


def test_a_client_that_never_reads_does_not_fill_the_memory() -> None:
    """Calls that are never answered are counted up to a bound; one that is answered makes room again."""
    log = CallLog("edge")
    for number in range(2 * MAX_CARRIERS):
        log.begin(str(number))
    assert log.cancel(str(MAX_CARRIERS - 1)) is True
    assert log.cancel(str(MAX_CARRIERS)) is False

    log.answer("0")
    log.begin(C)
    log.carry(C, [D1])
    log.answer(C)
    log.begin(A)
    assert list(log.proven_by(A)) == [D1]


def test_what_is_to_be_done_after_an_answer_is_done_once_it_is_written() -> None:
    """What a result only lists was heard of when the result was written, and not by a call that was cancelled."""
    log, done = CallLog("edge"), list[str]()
    for request in (A, B):
        log.begin(request)
        log.afterwards(request, partial(done.append, request))
    log.afterwards(C, lambda: done.append(C))
    log.cancel(A)
    assert done == []
    for request in (A, B, B, C):
        log.answer(request)
    assert done == [B]


def test_cancelling_a_call_that_was_refused_takes_no_proof_from_an_earlier_one() -> None:
    """It has carried nothing itself: what it would have proven had it run is still proven by the next call."""
    log = CallLog("edge")
    log.begin(A)
    log.carry(A, [D1])
    log.answer(A)
    log.begin(B)
    log.answer(B)
    assert not log.discard(B)
    assert not log.cancel(B)
    log.begin(C)
    assert list(log.proven_by(C)) == [D1]


def test_end_of_a_turn_settles_what_was_answered_in_it_and_no_other() -> None:
    """A result whose turn is not known is settled by any end; one of another turn waits for its own."""
    log = CallLog("edge")
    for request, delivery, turn in ((A, D1, "t1"), (B, D2, "t2"), (C, DeliveryId("d-3"), "")):
        log.begin(request)
        log.proven_by(request)
        log.carry(request, [delivery], turn)
    for request in (A, B, C):
        log.answer(request)
    assert list(log.settle("t2")) == [D2, "d-3"]
    assert list(log.abandon("t1")) == []
    assert list(log.abandon("t2")) == [log.carrier(A)]
    assert list(log.settle()) == []
