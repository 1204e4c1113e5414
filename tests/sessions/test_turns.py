"""What the events of a turn prove, told as stories of a host that may be interrupted at any time.

The stories know what really happened: which request of the model held which text. The log hears only what hooks say
while there is a daemon to hear it, and is handed on when the daemon is restarted or killed. Whatever it calls proven,
the model must have read; whatever an uninterrupted turn carried, its end proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from harken.model import DeliveryId
from harken.sessions import turns
from harken.sessions.turns import MAX_CARRIERS, CarrierRecord, TurnLog, TurnPhase, TurnVerdict
from tests.examples import examples


def framed(delivery: str) -> str:
    """Return a text as it is told."""
    return f"{turns.beginning(delivery)}\nplease\n{turns.end(delivery)}"


class Fate(Enum):
    """What became of the text that a hook was given."""

    CONFIRMED = auto()  # printed, and the daemon was told so
    UNCONFIRMED = auto()  # printed, and the daemon was not told
    UNPRINTED = auto()  # not printed, and the daemon does not know


AFTER = st.sampled_from(["", "", "restarted", "killed", "away"])


@dataclass(slots=True)
class Text:
    """A text that was handed over."""

    deliveries: tuple[DeliveryId, ...]
    carriage: TurnPhase
    turn: int
    fate: Fate = Fate.CONFIRMED
    is_heard: bool = True  # everything since then was heard by one daemon, or the host names its turns
    is_present: bool = False  # the next request holds it
    is_read: bool = False


class Host(RuleBasedStateMachine):
    """A host with hooks; subclasses say whether it names its turns and how often its tool hook runs."""

    names_turns = False
    is_once_per_step = False

    def __init__(self) -> None:
        super().__init__()
        self.log = TurnLog()
        self.kept: Sequence[CarrierRecord] = ()  # what a killed daemon leaves: as it was one event ago
        self.ids = count(1)
        self.texts: dict[str, Text] = {}
        self.proven: set[DeliveryId] = set()
        self.released: set[str] = set()
        self.turn = 0
        self.has_news = False  # the model has spoken since the last tool hook
        self.is_running = False
        self.has_spoken = False  # since a prompt, or what held an end up
        self.is_down = False

    # -- what the host does without a word ------------------------------------------------------------------------

    @precondition(lambda self: self.is_running)
    @rule()
    def model_reads_everything_and_speaks(self) -> None:
        """One more request: it holds all that is in the conversation by now."""
        for text in self.texts.values():
            text.is_read = text.is_read or text.is_present
        self.has_spoken = self.has_news = True

    @precondition(lambda self: self.is_running)
    @rule()
    def person_interrupts(self) -> None:
        """Esc: no hook says so, and what was not read yet may be gone."""
        self.is_running = False
        self._drop()

    @precondition(lambda self: not self.is_running)
    @rule()
    def host_takes_what_was_queued(self) -> None:
        """What wakes left in its queue becomes a turn of its own, for which no prompt hook runs."""
        self._begin()
        for text in self.texts.values():
            text.is_present = text.is_present or text.carriage is TurnPhase.WAKE
        self.model_reads_everything_and_speaks()

    @precondition(lambda self: self.names_turns or self.is_down)
    @rule()
    def turn_begins_unheard(self) -> None:
        """The prompt's hook was ended by its host, or there was no daemon: the log hears only later events."""
        self._begin()
        self.model_reads_everything_and_speaks()

    # -- what happens to the daemon -------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_down)
    @rule(is_killed=st.booleans())
    def daemon_ends(self, *, is_killed: bool) -> None:
        """A killed one leaves what it wrote after the last event but one."""
        self.kept = self.kept if is_killed else self.log.records
        self.is_down = True

    @precondition(lambda self: self.is_down)
    @rule()
    def daemon_starts(self) -> None:
        """The next one takes over what the store still holds as open."""
        self.log = TurnLog.inherited(self.kept)
        for carrier in tuple(self.log.carriers):
            if carrier in self.released or not self.proven.isdisjoint(self.texts[carrier].deliveries):
                self.log.forget(carrier)
        # What it does not take over is offered again.
        self.released.update(set(self.texts) - set(self.log.carriers) - self._settled())
        for text in self.texts.values():
            text.is_heard = text.is_heard and self.names_turns
        self.is_down = False

    def _then(self, after: str) -> None:
        """Let the daemon be restarted directly after a hook; of what happens while it is `away`, it hears nothing."""
        if after and not self.is_down:
            self.daemon_ends(is_killed=after == "killed")
            if after == "away":
                self._begin()
            self.daemon_starts()

    # -- what hooks say, while somebody hears them ----------------------------------------------------------------

    @rule(size=st.integers(0, 2), fate=st.sampled_from(Fate), after=AFTER)
    def prompt(self, size: int, fate: Fate, after: str) -> None:
        """The person says something new, in the middle of a turn or after it."""
        self._begin()
        if not self.is_down:
            self._check(self.log.submitted("do it", self._name()))
            self._carry(size, TurnPhase.OPENING, fate)
        self._then(after)

    @precondition(lambda self: self.is_running)
    @rule(size=st.integers(0, 2), fate=st.sampled_from(Fate), is_parallel=st.booleans(), after=AFTER)
    def tool_has_run(self, size: int, fate: Fate, after: str, *, is_parallel: bool) -> None:
        """A tool that the last request asked for is done; perhaps another one of the same request was before it."""
        if not (is_parallel and self.has_spoken) or (self.is_once_per_step and not self.has_news):
            self.model_reads_everything_and_speaks()
        self.has_news = False
        if not self.is_down:
            self._check(self.log.stepped(self._name(), is_step=self.is_once_per_step))
            self._carry(size, TurnPhase.STEP, fate)
        self._then(after)

    @precondition(lambda self: self.is_running)
    @rule(size=st.integers(0, 2), fate=st.sampled_from(Fate), after=AFTER)
    def turn_ends_by_itself(self, size: int, fate: Fate, after: str) -> None:
        """The last request asked for no tool; a hook may hold the end up with a text."""
        self.model_reads_everything_and_speaks()
        self.is_running = False
        if self.is_down:
            return
        self._check(self.log.ended(self._name(), recorded=self._recorded()))
        carried = {delivery for text in self._sure() for delivery in text.deliveries}
        assert carried <= self.proven, "the end of the turn proves all of it"
        if size and fate is not Fate.UNPRINTED:
            self.is_running = True
            self.has_spoken = self.has_news = False
            self._carry(size, TurnPhase.OPENING, fate)
        self._then(after)

    @precondition(lambda self: not self.is_down)
    @rule(size=st.integers(1, 2))
    def wake(self, size: int) -> None:
        """A text is left in the host's queue, whatever it is doing."""
        self._carry(size, TurnPhase.WAKE, Fate.CONFIRMED)

    @precondition(lambda self: not self.is_down)
    @rule()
    def record_is_read(self) -> None:
        """The host's own record shows what the model has answered to."""
        self._check(self.log.written(self._recorded()))

    @precondition(lambda self: self.texts)
    @rule(pick=st.integers(0, 9))
    def prompt_quotes_what_was_given(self, pick: int) -> None:
        """A prompt that holds our own text: the turn begins with it, wherever it came from."""
        quoted = list(self.texts)[pick % len(self.texts)]
        is_open = quoted in self.log.carriers
        self._begin()
        text = self.texts[quoted]
        text.is_present = True
        if self.is_down:
            return
        verdict = self.log.submitted("\n".join(map(framed, text.deliveries)), self._name())
        if is_open:
            text.turn, text.carriage, text.is_heard, text.fate = self.turn, TurnPhase.OPENING, True, Fate.CONFIRMED
        self._check(verdict)

    # -- the truth ------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_proven_and_open(self) -> None:
        """What is proven is not waited for any more."""
        assert self.is_down or not self.proven & set(self.log.carried)

    def _begin(self) -> None:
        if self.is_running:
            self._drop()
        self.turn += 1
        self.is_running = True
        self.has_spoken = self.has_news = False

    def _drop(self) -> None:
        for text in self.texts.values():
            text.is_present = False

    def _name(self) -> str:
        return f"turn-{self.turn}" if self.names_turns else ""

    def _recorded(self) -> list[str]:
        return [delivery for text in self.texts.values() if text.is_read for delivery in text.deliveries]

    def _settled(self) -> set[str]:
        return {name for name, text in self.texts.items() if not self.proven.isdisjoint(text.deliveries)}

    def _sure(self) -> list[Text]:
        """Return the texts of this turn that nothing came between."""
        return [
            text
            for name, text in self.texts.items()
            if text.turn == self.turn
            and text.carriage is not TurnPhase.WAKE
            and text.fate is Fate.CONFIRMED
            and text.is_heard
            and name not in self.released
        ]

    def _carry(self, size: int, carriage: TurnPhase, fate: Fate) -> None:
        if not size:
            return
        self.kept = self.log.records
        carrier = f"c-{next(self.ids)}"
        deliveries = tuple(DeliveryId(f"<d-{next(self.ids)}>") for _ in range(size))
        is_present = carriage is not TurnPhase.WAKE and fate is not Fate.UNPRINTED
        self.texts[carrier] = Text(deliveries, carriage, self.turn, fate, is_present=is_present)
        self.log.carry(carrier, deliveries, carriage, turn=self._name())
        if fate is Fate.CONFIRMED:
            self.log.confirm(carrier)

    def _check(self, verdict: TurnVerdict) -> None:
        """What is proven was read, and nothing is decided twice."""
        assert len(verdict.proven) == len(set(verdict.proven))
        for delivery in verdict.proven:
            (carrier,) = [name for name, text in self.texts.items() if delivery in text.deliveries]
            assert self.texts[carrier].is_read, f"{self.texts[carrier]} was not read in turn {self.turn}"
            assert delivery not in self.proven
            assert carrier not in self.released
        self.proven.update(verdict.proven)
        for carrier in verdict.released:
            assert carrier not in self.released
            assert not set(self.texts[carrier].deliveries) & self.proven
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
@pytest.mark.hypothesis
def test_proof_is_never_early_and_never_missing(host: type[Host]) -> None:
    """A false proof loses a message for ever, a missing one gives it twice: no story may lead to either."""
    run_state_machine_as_test(host, settings=settings(max_examples=examples(150), stateful_step_count=15))


FIRST, SECOND = DeliveryId("d-0000000001"), DeliveryId("d-0000000002")


def log_with(carriage: TurnPhase, *deliveries: DeliveryId, turn: str = "") -> TurnLog:
    """Return a log after one text, which the host has."""
    log = TurnLog()
    log.carry("c-1", deliveries or (FIRST,), carriage, turn=turn)
    log.confirm("c-1")
    return log


def test_a_prompt_in_the_middle_of_the_same_turn_releases_nothing() -> None:
    """A wake that met a busy session shows up as a prompt of the running turn: nothing was interrupted."""
    log = log_with(TurnPhase.STEP, turn="a")
    verdict = log.submitted("our own words", "a")
    assert (verdict.proven, verdict.released) == ([], [])
    assert log.ended("a").proven == [FIRST]


@pytest.mark.parametrize("carriage", list(TurnPhase))
def test_what_a_prompt_shows_is_proven_when_its_turn_goes_on(carriage: TurnPhase) -> None:
    """The turn begins with it; a prompt that is taken back before any answer takes it away again."""
    log = log_with(carriage, turn="a")
    verdict = log.submitted(framed(FIRST), "b")
    assert (verdict.proven, verdict.released) == ([], [])
    assert log.stepped("b", is_step=False).proven == [FIRST]
    taken_back = log_with(carriage, turn="a")
    taken_back.submitted(framed(FIRST), "b")
    assert taken_back.submitted("something else", "c").released == ["c-1"]


def test_a_wake_that_was_given_up_and_comes_late_is_proven_when_its_turn_goes_on() -> None:
    """A host may bring it after a long tool; the prompt alone may still be taken back, as any other."""
    log = log_with(TurnPhase.WAKE)
    log.give_up_wakes()
    verdict = log.submitted(framed(FIRST))
    assert (verdict.proven, verdict.returned, list(log.carried)) == ([], {"c-1": (FIRST,)}, [FIRST])
    assert log.ended().proven == [FIRST]


@pytest.mark.parametrize("quoted", [FIRST, f"what is {FIRST}?", turns.beginning(FIRST), turns.end(FIRST), f"({FIRST})"])
def test_an_id_that_somebody_quotes_proves_nothing(quoted: str) -> None:
    """People and agents see it in the ledger; the text is there only with the mark that ends it."""
    log = log_with(TurnPhase.WAKE)
    assert (log.submitted(quoted).proven, log.ended().proven) == ([], [])


def test_an_id_in_the_transcript_proves_it() -> None:
    """The host's own record is as good as a prompt."""
    verdict = log_with(TurnPhase.STEP).submitted("next", recorded=[FIRST])
    assert (verdict.proven, verdict.released) == ([FIRST], [])


@pytest.mark.parametrize("carriage", list(TurnPhase))
def test_a_prompt_that_shows_half_of_it_proves_nothing(carriage: TurnPhase) -> None:
    """A prompt that was cut holds the first message only: what was carried together is offered again together."""
    log = log_with(carriage, FIRST, SECOND)
    assert log.submitted(f"{framed(FIRST)} and the rest is cut off").proven == []
    assert log.ended().proven == []


def test_the_transcript_proves_a_wake() -> None:
    """The host's own record shows in which turn it was read, whichever that was."""
    assert log_with(TurnPhase.WAKE).ended(recorded=[FIRST]).proven == [FIRST]
    assert log_with(TurnPhase.WAKE).written([FIRST]).proven == [FIRST]
    assert log_with(TurnPhase.WAKE, FIRST, SECOND).written([FIRST]).proven == []


# -- after a restart of the daemon ---------------------------------------------------------------------------------


@pytest.mark.parametrize("carriage", [TurnPhase.OPENING, TurnPhase.STEP])
def test_after_a_restart_only_the_very_same_turn_proves(carriage: TurnPhase) -> None:
    """What happened meanwhile was heard by nobody: the turn may have been interrupted and another one begun."""
    named = TurnLog.inherited(log_with(carriage, turn="a").records)
    assert (named.ended("b").proven, named.ended("").proven, named.ended("a").proven) == ([], [], [FIRST])
    nameless = TurnLog.inherited(log_with(carriage).records)
    assert (nameless.stepped(is_step=True).proven, nameless.ended().proven) == ([], [])
    assert nameless.submitted("go on").released == ["c-1"]


def test_after_a_restart_the_transcript_still_proves() -> None:
    """Where a host does not name its turns, its own record says what was read."""
    for carriage in TurnPhase:
        assert TurnLog.inherited(log_with(carriage).records).ended(recorded=[FIRST]).proven == [FIRST]


def test_after_a_restart_nobody_waits_for_what_was_not_printed() -> None:
    """Whether the host got it can never be known: it is offered again."""
    log = TurnLog()
    log.carry("c-1", [FIRST], TurnPhase.STEP)
    log.carry("c-2", [SECOND], TurnPhase.WAKE)
    assert TurnLog.inherited(log.records).carriers == ("c-2",)


def test_wakes_are_given_up_and_hooks_are_not() -> None:
    """What a hook carried into a turn that still runs may yet be proven."""
    log = log_with(TurnPhase.WAKE)
    log.carry("c-2", [SECOND], TurnPhase.STEP)
    assert log.give_up_wakes() == ["c-1"]
    assert list(log.carried) == [SECOND]
    assert log.give_up_wakes() == []


def test_a_text_that_did_not_arrive_is_proven_by_nothing() -> None:
    """Its message is queued again; a later event must not call it seen."""
    log = log_with(TurnPhase.OPENING)
    log.forget("c-1")
    log.forget("c-1")
    assert (list(log.carried), log.stepped(is_step=True).proven, log.ended().proven) == ([], [], [])


def test_a_notice_without_deliveries_is_not_waited_for() -> None:
    """A text that only says that something waits proves nothing, and nothing would ever end the waiting."""
    log = TurnLog()
    log.carry("c-1", [], TurnPhase.STEP)
    assert (list(log.carried), log.submitted("x").released) == ([], [])


def test_a_session_without_events_does_not_grow_for_ever() -> None:
    """A host whose end hook never runs must not fill the memory."""
    log = TurnLog()
    for number in range(MAX_CARRIERS + 5):
        log.carry(f"c-{number}", [DeliveryId(f"d-{number}")], TurnPhase.STEP)
    assert len(log.carried) == MAX_CARRIERS
