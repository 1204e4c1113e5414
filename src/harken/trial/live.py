"""The live check of a host: a marker through every surface it has, with the person's own settings and another model.

First a turn without a terminal, then an idle session that is woken, then a second run, see `rerun`. Nothing is answered
on the person's behalf: a host that asks something when it starts is left alone, and the wake is reported as not tried.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from harken.trial.exchange import in_order
from harken.trial.outcome import TrialResult, TrialVerdict
from harken.trial.post import TrialSession
from harken.trial.rerun import run_again, untried
from harken.trial.screen import HeadlessProgram, RunningProgram, TerminalProgram, last_lines
from harken.trial.turn import (
    LAST_WORD,
    LOOK_SECONDS,
    STEP_SECONDS,
    PlayedTurn,
    Trial,
    explained,
    follows,
    has_wake,
    new_marker,
    new_prompt,
    staged,
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
