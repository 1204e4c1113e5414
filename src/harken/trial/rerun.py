"""A second run of a host, after the first was ended: what people do to it and to Harken besides asking something.

A message comes after the end and before the next start, one while a tool takes long, and one after Harken itself was
restarted under a working agent. The last is done only where the person asked for it: it is their own Harken.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from harken.trial.exchange import ModelAnswer, ModelRequest
from harken.trial.model import RequestGate
from harken.trial.outcome import TrialResult, TrialVerdict
from harken.trial.screen import HeadlessProgram
from harken.trial.turn import (
    LOOK_SECONDS,
    START_SECONDS,
    Trial,
    closed_tool,
    explained,
    follows,
    judged,
    last_words,
    new_marker,
    new_prompt,
    next_request,
    stepwise,
)

REOPENED: Final = "reopened"
LONG_TOOL: Final = "long tool"
RESTART: Final = "restart"
CASES: Final = (REOPENED, LONG_TOOL, RESTART)
GONE_SECONDS: Final = 15.0  # until Harken has noticed that a host was ended
END_SECONDS: Final = 15.0


def run_again(trial: Trial) -> list[TrialResult]:
    """Send a message to a host that was ended, start it again, and return what came of that and of the other cases."""
    marker, prompt = new_marker(), new_prompt()
    trial.tell("sending a message after it was ended …")
    _until_gone(trial)
    message = trial.send(marker)
    unasked = _began_unasked(trial, marker)
    with ExitStack() as stack:
        # In the folder of the host, because some refuse paths outside it.
        gates = [
            stack.enter_context(RequestGate(trial.folder / f".harken-gate-{secrets.token_hex(4)}")) for _ in range(2)
        ]
        steps = gates if trial.restart is not None else gates[:1]
        trial.model.follow(stepwise(prompt, *(ModelAnswer.shell(gate.command) for gate in steps)))
        argv = trial.recipe.headless(trial.program, prompt, trial.recipe.overrides(trial.model.url))
        trial.tell("starting it again …")
        began = time.monotonic()
        running = stack.enter_context(HeadlessProgram(argv, trial.environment, trial.folder))
        first = trial.wait(follows(prompt), START_SECONDS, running)
        if first is None:
            raise last_words(trial, running)
        reopened = unasked or judged(REOPENED, (marker, message), first, began)
        turn = _SecondTurn(trial, running, prompt, first)
        outcomes = [reopened, *turn.play(*gates)]
        # Its last hooks run now. Only then is everything proven that can be.
        running.wait(END_SECONDS)
    return [explained(trial, outcome, turn.guest) for outcome in outcomes]


def untried(reason: str) -> list[TrialResult]:
    """Return that none of the cases was tried."""
    return [TrialResult(surface=case, verdict=TrialVerdict.NOT_TRIED, reason=reason) for case in CASES]


class _SecondTurn:
    """The turn of the second run."""

    def __init__(self, trial: Trial, running: HeadlessProgram, prompt: str, first: ModelRequest) -> None:
        self._trial = trial
        self._running = running
        self._prompt = prompt
        self._asked = first
        self.guest = trial.guest()

    def play(self, long: RequestGate, restarted: RequestGate) -> Iterator[TrialResult]:
        """Go through the rest of the turn."""
        yield self._during(LONG_TOOL, long)
        if self._trial.restart is None:
            reason = "It ends your Harken for a moment, and whoever else uses it would notice."
            hint = f"Run: harken doctor --live {self._trial.name} --restart"
            yield TrialResult(surface=RESTART, verdict=TrialVerdict.NOT_TRIED, reason=reason, hint=hint)
        else:
            yield self._during(RESTART, restarted)

    def _during(self, case: str, gate: RequestGate) -> TrialResult:
        """Send a message while a tool runs, in the case's own way, and look for it in the request that follows."""
        refusal = closed_tool(self._trial, self._running, gate, self._prompt, self._asked)
        if refusal is not None:
            return replace(refusal, surface=case)
        marked = self._after_restart() if case == RESTART else self._in_long_tool()
        self.guest = self._trial.guest() or self.guest
        began = time.monotonic()
        gate.open()
        asked = next_request(self._trial, self._running, self._prompt, self._asked)
        self._asked = asked or self._asked
        return judged(case, marked, asked, began)

    def _in_long_tool(self) -> tuple[str, str]:
        trial = self._trial
        trial.tell(f"sending a message while a tool takes {trial.pauses.long_tool_seconds:.0f} s …")
        marker = new_marker()
        message = trial.send(marker)
        with contextlib.suppress(TimeoutError):
            trial.model.wait_for(lambda asked: asked.count(marker) > 0, trial.pauses.long_tool_seconds)
        return marker, message

    def _after_restart(self) -> tuple[str, str]:
        trial = self._trial
        trial.tell("restarting Harken while a tool runs, and sending a message …")
        if trial.restart is not None:
            trial.restart()
        end = time.monotonic() + trial.pauses.back_seconds
        while trial.guest() is None and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        marker = new_marker()
        message = trial.send(marker)
        # Whoever is taken for idle now would be woken.
        with contextlib.suppress(TimeoutError):
            trial.model.wait_for(lambda asked: asked.count(marker) > 0, trial.pauses.still_seconds)
        return marker, message


def _until_gone(trial: Trial) -> None:
    end = time.monotonic() + GONE_SECONDS
    while trial.guest() is not None and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)


def _began_unasked(trial: Trial, marker: str) -> TrialResult | None:
    """Return that a message began a turn, although the host was ended; None when all stays quiet."""
    try:
        trial.model.wait_for(lambda asked: asked.count(marker) > 0, trial.pauses.still_seconds)
    except TimeoutError:
        return None
    reason = f"{trial.title} was ended, and the message began a turn that no terminal shows."
    return TrialResult(surface=REOPENED, verdict=TrialVerdict.MISSING, reason=reason, marker=marker)
