"""The live check of a host: a marker through every surface it has, with the person's own settings and another model.

First a turn without a terminal, then an idle session that is woken, then a second run after the first was ended.
Nothing is answered on the person's behalf: a host that asks something when it starts is left alone, and the wake is
reported as not tried. Harken itself is restarted under a working agent only where the person asked for it.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from harken.trial.exchange import ModelAnswer, ModelRequest, in_order
from harken.trial.model import RequestGate
from harken.trial.outcome import TrialResult, TrialSession, TrialVerdict
from harken.trial.screen import HeadlessProgram, RunningProgram, TerminalProgram, last_lines
from harken.trial.turn import (
    LAST_WORD,
    LOOK_SECONDS,
    START_SECONDS,
    STEP_SECONDS,
    PlayedTurn,
    Trial,
    closed_tool,
    explained,
    follows,
    has_wake,
    judged,
    last_words,
    new_marker,
    new_prompt,
    next_request,
    staged,
    stepwise,
)

WAKE: Final = "wake"
READY_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 5.0  # some programs never stop moving
TYPED_SECONDS: Final = 15.0
IDLE_SECONDS: Final = 15.0
# The slowest way asks every few seconds, and a ring that a host missed is repeated.
WAKE_SECONDS: Final = 75.0
END_SECONDS: Final = 15.0
TERMINAL: Final = "xterm-256color"
# A list to choose from: a mark, and a number or an answer. Some hosts draw the mark of their prompt there too.
_QUESTION: Final = re.compile(r"^\W*[\u276f\u203a\u25cf\u25b6>]\s*(?:\d+[.)]\s|(?:Yes|No)(?:,| *\(| *$))", re.MULTILINE)
REOPENED: Final = "reopened"
LONG_TOOL: Final = "long tool"
RESTART: Final = "restart"
CASES: Final = (REOPENED, LONG_TOOL, RESTART)
GONE_SECONDS: Final = 15.0  # until Harken has noticed that a host was ended


def check(trial: Trial) -> list[TrialResult]:
    """Try every surface of a host, and return what came of each. Raises `HostFailed` when it cannot be run."""
    outcomes = in_a_turn(trial)
    if all(outcome.is_good for outcome in outcomes):
        return [*outcomes, when_idle(trial), *run_again(trial)]
    # Every wake needs them too. And a host that has something to ask about its hooks asks when it starts.
    reason = "What is missing above is needed for this too."
    return [*outcomes, TrialResult(surface=WAKE, verdict=TrialVerdict.NOT_TRIED, reason=reason), *untried(reason)]


def in_a_turn(trial: Trial) -> list[TrialResult]:
    """Run the host headless for one turn, and return what came of each surface that a turn has."""
    marker, prompt = new_marker(), new_prompt()
    message = trial.send(marker)
    recipe = trial.recipe
    with staged(trial, prompt) as (gate, hold):
        argv = recipe.headless(trial.program, prompt, recipe.overrides(trial.model.url))
        trial.tell("starting it …")
        began = time.monotonic()
        with HeadlessProgram(argv, trial.environment, trial.folder) as running:
            played = PlayedTurn(
                trial=trial,
                running=running,
                gate=gate,
                hold=hold,
                prompt=prompt,
                told=(marker, message),
                began=began,
            )
            outcomes = played.play()
            # Its last hooks run now: they end the session.
            running.wait(END_SECONDS)
    return outcomes


def when_idle(trial: Trial) -> TrialResult:
    """Run the host until it is idle, send it a message, and return whether that started a turn."""
    if not has_wake(trial.hooks):
        reason = f"{trial.title} has no way to be woken: what arrives while it is idle comes with the next prompt."
        return TrialResult(surface=WAKE, verdict=TrialVerdict.NOT_OFFERED, reason=reason)
    trial.model.follow(in_order(then=LAST_WORD))
    trial.tell("starting it once more, to leave it idle …")
    prompt = new_prompt()
    if trial.recipe.fed_argv:
        with _fed(trial, prompt) as running:
            return woken(trial, running, prompt)
    with shown(trial) as screen:
        asked = question(trial, screen)
        if asked is not None:
            return TrialResult(
                surface=WAKE,
                verdict=TrialVerdict.NOT_TRIED,
                reason=f"{trial.title} did not wait for a prompt: {asked}",
                hint=f"Run: harken probe {trial.name} --dir A_FOLDER_YOU_TRUST",
            )
        if not entered(screen, prompt):
            reason = f"{trial.title} did not take a prompt: {last_lines(screen.text())}"
            return TrialResult(surface=WAKE, verdict=TrialVerdict.NOT_TRIED, reason=reason)
        return woken(trial, screen, prompt)


def woken(trial: Trial, running: RunningProgram, prompt: str) -> TrialResult:
    """Return whether a message starts a turn in a session that has got its first prompt and becomes idle."""
    if trial.wait(follows(prompt), STEP_SECONDS, running) is None:
        reason = f"{trial.title} did not come so far: {last_lines(running.text())}"
        return TrialResult(surface=WAKE, verdict=TrialVerdict.NOT_TRIED, reason=reason)
    guest = idle(trial, frozenset())
    if guest is not None and not guest.can_wake and trial.is_connected:
        reason = "No way to wake it is connected: a message waits for the next prompt."
        hint = f"See what there is, and what it costs: harken connect {trial.name} --dry-run"
        return TrialResult(surface=WAKE, verdict=TrialVerdict.NOT_TRIED, reason=reason, hint=hint)
    trial.tell("sending a message while it is idle …")
    return nudged(trial, running, guest)


def nudged(trial: Trial, running: RunningProgram, guest: TrialSession | None) -> TrialResult:
    """Send a message to an idle session, and return whether it started a turn."""
    marker = new_marker()
    after = len(trial.model.requests)
    message = trial.send(marker)
    began = time.monotonic()
    asked = trial.wait(lambda one: not one.is_side and one.count(marker) > 0, WAKE_SECONDS, running, after=after)
    verdict = TrialVerdict.MISSING if asked is None else TrialVerdict.ARRIVED
    seconds = None if asked is None else round(time.monotonic() - began, 2)
    outcome = TrialResult(surface=WAKE, verdict=verdict, seconds=seconds, marker=marker, message=message)
    return explained(trial, outcome, guest)


def idle(trial: Trial, others: frozenset[str]) -> TrialSession | None:
    """Return the session once Harken knows that it is idle and can be woken; else as it is when the time is up."""
    end = time.monotonic() + IDLE_SECONDS
    while True:
        guest = trial.guest(others)
        if (guest is not None and guest.can_wake and guest.presence != "busy") or time.monotonic() > end:
            return guest
        time.sleep(LOOK_SECONDS)


@contextmanager
def shown(trial: Trial) -> Iterator[TerminalProgram]:
    """The host in a terminal of its own."""
    argv = trial.recipe.interactive(trial.program, trial.recipe.overrides(trial.model.url))
    with TerminalProgram(argv, {**trial.environment, "TERM": TERMINAL}, trial.folder) as screen:
        yield screen


def question(trial: Trial, screen: TerminalProgram) -> str | None:
    """Wait until the host takes a prompt, and return None; else what it shows instead."""
    ready = trial.recipe.ready
    try:
        screen.wait_for(lambda text: ready in text or asks(text), READY_SECONDS)
        # What is painted first may be covered by a question a moment later.
        text = screen.wait_quiet(QUIET_SECONDS, SETTLE_SECONDS)
    except TimeoutError:
        text = screen.text()
    return None if ready in text and not asks(text) else last_lines(text) or "nothing"


def entered(screen: TerminalProgram, prompt: str) -> bool:
    """Type a prompt and press Enter, unless the host does not show it, or asks something instead."""
    screen.type(prompt)
    try:
        screen.wait_for(prompt, TYPED_SECONDS)
    except TimeoutError:
        return False
    if asks(screen.wait_quiet(seconds=SETTLE_SECONDS)):
        return False
    screen.press("enter")
    return True


def asks(text: str) -> bool:
    """Whether a screen shows a list of answers to choose from."""
    return _QUESTION.search(text) is not None


@contextmanager
def _fed(trial: Trial, prompt: str) -> Iterator[HeadlessProgram]:
    argv: Sequence[str] = (
        str(trial.program),
        *trial.recipe.overrides(trial.model.url).argv,
        *trial.recipe.fed_argv,
    )
    with HeadlessProgram(argv, trial.environment, trial.folder, is_fed=True) as running:
        running.feed(json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}))
        yield running


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
