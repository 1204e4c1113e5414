"""What the events of a turn prove, told as stories of a host that may be interrupted at any time.

The stories know what really happened: which request of the model came after which text. The log hears only what a hook
would say. Whatever it calls proven, the model must have read; whatever an uninterrupted turn carried, its end proves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from harken.inbox.turns import MAX_CARRIERS, Carriage, TurnLog, Verdict
from harken.model import DeliveryId


@dataclass(frozen=True, slots=True)
class Text:
    """A text that was handed to the host: in which turn, and after how many requests of the model in it."""

    deliveries: tuple[DeliveryId, ...]
    carriage: Carriage
    turn: int
    requests: int


class Host(RuleBasedStateMachine):
    """A host with hooks; subclasses say whether it names its turns and how often its tool hook runs."""

    names_turns = False
    is_once_per_step = False

    def __init__(self) -> None:
        super().__init__()
        self.log = TurnLog()
        self.ids = count(1)
        self.texts: dict[str, Text] = {}
        self.proven: set[DeliveryId] = set()
        self.released: set[str] = set()
        self.turn = 0
        self.requests = 0  # of the model, in this turn
        self.told_at = 0  # after how many requests the last tool hook ran
        self.is_running = False
        self.has_spoken = False  # since a prompt, or what held an end up

    # -- what the host does without a word ------------------------------------------------------------------------

    @precondition(lambda self: self.is_running)
    @rule()
    def model_reads_everything_and_speaks(self) -> None:
        """One more request: it holds all that was carried in this turn until now."""
        self.requests += 1
        self.has_spoken = True

    @precondition(lambda self: self.is_running)
    @rule()
    def person_interrupts(self) -> None:
        """Esc: no hook says so."""
        self.is_running = False

    @precondition(lambda self: self.names_turns)
    @rule()
    def turn_begins_unheard(self) -> None:
        """The prompt's hook was ended by its host, or there was no daemon: the log hears only later events."""
        self._begin()
        self.model_reads_everything_and_speaks()

    # -- what hooks say -------------------------------------------------------------------------------------------

    @rule(size=st.integers(0, 2))
    def prompt(self, size: int) -> None:
        """The person says something new, in the middle of a turn or after it."""
        self._begin()
        self._check(self.log.submitted("do it", self._name()))
        self._carry(size, Carriage.OPENING)

    @precondition(lambda self: self.is_running and self.has_spoken and self._has_step())
    @rule(size=st.integers(0, 2))
    def tool_has_run(self, size: int) -> None:
        """A tool that the last request asked for is done; perhaps another one of the same request was before it."""
        self._check(self.log.stepped(self._name(), is_step=self.is_once_per_step))
        self.told_at = self.requests
        self._carry(size, Carriage.STEP)

    @precondition(lambda self: self.is_running and self.has_spoken and self.requests > self.told_at)
    @rule(size=st.integers(0, 2))
    def turn_ends_by_itself(self, size: int) -> None:
        """The last request asked for no tool; a hook may hold the end up with a text."""
        self._check(self.log.ended(self._name()))
        carried = {delivery for text in self._of_turn() for delivery in text.deliveries}
        assert carried <= self.proven, "the end of the turn proves all of it"
        self.is_running = False
        if size:
            self.is_running = True
            self.has_spoken = False
            self._carry(size, Carriage.OPENING)

    @precondition(lambda self: self.texts)
    @rule(pick=st.integers(0, 9))
    def prompt_quotes_what_was_given(self, pick: int) -> None:
        """A prompt that holds our own text: the turn begins with it, wherever it came from."""
        quoted = list(self.texts)[pick % len(self.texts)]
        is_open = quoted in self.log.carriers
        self._begin()
        verdict = self.log.submitted(" ".join(self.texts[quoted].deliveries), self._name())
        if is_open:
            self.texts[quoted] = replace(self.texts[quoted], turn=self.turn, requests=0)
        self._check(verdict)

    # -- the truth ------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_proven_and_open(self) -> None:
        """What is proven is not waited for any more."""
        assert not self.proven & set(self.log.carried)

    def _begin(self) -> None:
        self.turn += 1
        self.requests = self.told_at = 0
        self.is_running = True
        self.has_spoken = False

    def _name(self) -> str:
        return f"turn-{self.turn}" if self.names_turns else ""

    def _has_step(self) -> bool:
        return not self.is_once_per_step or self.requests > self.told_at

    def _of_turn(self) -> list[Text]:
        return [text for text in self.texts.values() if text.turn == self.turn]

    def _carry(self, size: int, carriage: Carriage) -> None:
        if not size:
            return
        carrier = f"c-{next(self.ids)}"
        deliveries = tuple(DeliveryId(f"<d-{next(self.ids)}>") for _ in range(size))
        self.texts[carrier] = Text(deliveries, carriage, self.turn, self.requests)
        self.log.carry(carrier, deliveries, carriage, turn=self._name(), is_busy=True)

    def _check(self, verdict: Verdict) -> None:
        """What is proven was read, and nothing is decided twice."""
        assert len(verdict.proven) == len(set(verdict.proven))
        for delivery in verdict.proven:
            (carrier,) = [name for name, text in self.texts.items() if delivery in text.deliveries]
            text = self.texts[carrier]
            is_read = text.turn == self.turn and self.requests > text.requests
            assert is_read, f"{text} was not read by request {self.requests} of {self.turn}"
            assert delivery not in self.proven
            assert carrier not in self.released
        self.proven.update(verdict.proven)
        for carrier in verdict.released:
            assert carrier not in self.released
            assert not set(self.texts[carrier].deliveries) & self.proven
            assert self.texts[carrier].turn != self.turn, "what the running turn carried is not lost"
        self.released.update(verdict.released)


class PerCallHost(Host):
    """Its tool hook runs once per call, calls run side by side, and turns have no names."""


class PerCallNamingHost(Host):
    """As above, but each event names its turn."""

    names_turns = True


class PerStepHost(Host):
    """Its tool hook runs once per step of the model."""

    is_once_per_step = True


class PerStepNamingHost(Host):
    """As above, but each event names its turn."""

    names_turns = True
    is_once_per_step = True


@pytest.mark.parametrize("host", [PerCallHost, PerCallNamingHost, PerStepHost, PerStepNamingHost])
def test_proof_is_never_early_and_never_missing(host: type[Host]) -> None:
    """A false proof loses a message for ever, a missing one gives it twice: no story may lead to either."""
    run_state_machine_as_test(host, settings=settings(max_examples=80, stateful_step_count=12))


FIRST, SECOND = DeliveryId("d-0000000001"), DeliveryId("d-0000000002")


def log_with(carriage: Carriage, *deliveries: DeliveryId, turn: str = "", is_busy: bool = False) -> TurnLog:
    """Return a log after one text."""
    log = TurnLog()
    log.carry("c-1", deliveries or (FIRST,), carriage, turn=turn, is_busy=is_busy)
    return log


def test_a_parallel_tool_proves_nothing_of_its_own_step() -> None:
    """Two tools of one step end one after the other; the second hook runs before the model has read the first."""
    log = log_with(Carriage.STEP)
    assert log.stepped(is_step=False).proven == []
    assert list(log.carried) == [FIRST]


def test_the_tool_of_another_step_proves_the_one_before() -> None:
    """Where a hook runs once per step, the next one means that the model has spoken since."""
    assert log_with(Carriage.STEP).stepped(is_step=True) == Verdict(proven=[FIRST], evidence="later step")


def test_a_tool_proves_what_opened_the_turn() -> None:
    """Whoever calls a tool has read the prompt, with what went along."""
    assert log_with(Carriage.OPENING).stepped(is_step=False) == Verdict(proven=[FIRST], evidence="later step")


@pytest.mark.parametrize("carriage", [Carriage.OPENING, Carriage.STEP])
@pytest.mark.parametrize("event", ["tool", "end"])
def test_an_event_of_another_turn_proves_nothing(carriage: Carriage, event: str) -> None:
    """Where the host names its turns, what an interrupted one carried is not proven by the next one's events."""
    log = log_with(carriage, turn="a")
    verdict = log.stepped("b", is_step=True) if event == "tool" else log.ended("b")
    assert verdict.proven == []
    assert list(log.carried) == [FIRST]


def test_the_end_of_another_turn_does_not_wear_a_text_out() -> None:
    """However many other turns end meanwhile: they are other turns."""
    log = log_with(Carriage.STEP, turn="a")
    assert [log.ended(turn).proven for turn in ("b", "c", "d")] == [[], [], []]


def test_a_new_prompt_releases_what_an_interrupted_turn_carried() -> None:
    """Nobody knows whether it was read, so it is offered again."""
    log = log_with(Carriage.STEP, turn="a")
    verdict = log.submitted("go on", "b")
    assert (verdict.proven, verdict.released) == ([], ["c-1"])
    assert list(log.carried) == []


def test_a_prompt_in_the_middle_of_the_same_turn_releases_nothing() -> None:
    """A wake that met a busy session shows up as a prompt of the running turn: nothing was interrupted."""
    log = log_with(Carriage.STEP, turn="a")
    verdict = log.submitted("our own words", "a")
    assert (verdict.proven, verdict.released) == ([], [])
    assert log.ended("a").proven == [FIRST]


@pytest.mark.parametrize("carriage", list(Carriage))
def test_what_a_prompt_shows_is_proven_when_its_turn_goes_on(carriage: Carriage) -> None:
    """The turn begins with it; a prompt that is taken back before any answer takes it away again."""
    log = log_with(carriage, turn="a")
    verdict = log.submitted(f"--- {FIRST} begins", "b")
    assert (verdict.proven, verdict.released) == ([], [])
    assert log.stepped("b", is_step=False).proven == [FIRST]
    taken_back = log_with(carriage, turn="a")
    taken_back.submitted(f"--- {FIRST} begins", "b")
    assert taken_back.submitted("something else", "c").released == ["c-1"]


def test_an_id_in_a_prompt_proves_a_wake_that_was_given_up() -> None:
    """A host may bring it late, after a long tool."""
    log = log_with(Carriage.WAKE)
    log.give_up_wakes()
    assert log.submitted(f"--- {FIRST} begins").proven == [FIRST]


def test_an_id_in_the_transcript_proves_it() -> None:
    """The host's own record is as good as a prompt."""
    verdict = log_with(Carriage.STEP).submitted("next", recorded=[FIRST])
    assert (verdict.proven, verdict.released) == ([FIRST], [])


@pytest.mark.parametrize("carriage", list(Carriage))
def test_a_prompt_that_shows_half_of_it_proves_nothing(carriage: Carriage) -> None:
    """A prompt that was cut holds the first message only: what was carried together is offered again together."""
    log = log_with(carriage, FIRST, SECOND)
    assert log.submitted(f"{FIRST} and the rest is cut off").proven == []
    assert log.ended().proven == []


def test_a_wake_of_an_idle_session_is_proven_by_the_end_of_its_turn() -> None:
    """Some hosts run no prompt hook for it: the end is the first that is heard."""
    log = log_with(Carriage.WAKE)
    assert log.ended().proven == []
    assert log.closed().proven == [FIRST]


def test_a_wake_that_meets_a_busy_session_needs_the_end_of_its_own_turn() -> None:
    """The running turn ends without having read it; only the next one has."""
    log = log_with(Carriage.WAKE, is_busy=True)
    assert log.closed().proven == []
    assert log.closed().proven == [FIRST]


def test_the_end_of_a_turn_that_was_typed_after_a_wake_does_not_prove_it() -> None:
    """Two turns are to come: the typed one and the one of the wake, and nobody says which is first."""
    log = log_with(Carriage.WAKE)
    log.submitted("something else")
    assert log.closed().proven == []
    assert log.closed().proven == [FIRST]


def test_a_wake_that_comes_back_as_a_prompt_is_proven_by_nothing_else() -> None:
    """Any other end of a turn may be that of another one."""
    log = TurnLog()
    log.carry("c-1", [FIRST], Carriage.WAKE, is_echoed=True)
    assert (log.stepped(is_step=True).proven, log.ended().proven, log.closed().proven) == ([], [], [])
    assert log.ended(recorded=[FIRST]).proven == [FIRST]


@pytest.mark.parametrize("is_step", [True, False])
def test_tools_prove_no_wake(*, is_step: bool) -> None:
    """They may belong to the turn that ran when it came."""
    log = log_with(Carriage.WAKE, is_busy=True)
    assert log.stepped(is_step=is_step).proven == []


def test_a_typed_prompt_neither_proves_nor_releases_a_wake() -> None:
    """The host has it and will bring it; whether it did, a later event says, or the time for proof is over."""
    log = log_with(Carriage.WAKE)
    verdict = log.submitted("something else")
    assert (verdict.proven, verdict.released, list(log.carried)) == ([], [], [FIRST])


def test_wakes_are_given_up_and_hooks_are_not() -> None:
    """What a hook carried into a turn that still runs may yet be proven."""
    log = log_with(Carriage.WAKE)
    log.carry("c-2", [SECOND], Carriage.STEP)
    assert log.give_up_wakes() == ["c-1"]
    assert list(log.carried) == [SECOND]
    assert log.give_up_wakes() == []


def test_a_text_that_did_not_arrive_is_proven_by_nothing() -> None:
    """Its message is queued again; a later event must not call it seen."""
    log = log_with(Carriage.OPENING)
    log.forget("c-1")
    log.forget("c-1")
    assert (list(log.carried), log.stepped(is_step=True).proven, log.ended().proven) == ([], [], [])


def test_a_notice_without_deliveries_is_not_waited_for() -> None:
    """A text that only says that something waits proves nothing, and nothing would ever end the waiting."""
    log = TurnLog()
    log.carry("c-1", [], Carriage.STEP)
    assert (list(log.carried), log.submitted("x").released) == ([], [])


def test_a_session_without_events_does_not_grow_for_ever() -> None:
    """A host whose end hook never runs must not fill the memory."""
    log = TurnLog()
    for number in range(MAX_CARRIERS + 5):
        log.carry(f"c-{number}", [DeliveryId(f"d-{number}")], Carriage.STEP)
    assert len(log.carried) == MAX_CARRIERS
